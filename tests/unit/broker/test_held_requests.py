"""Which request is counted as under way: the one that was taken up last, and no earlier one in its place."""

import struct

import pytest

from firnline.base.errors import ProtocolError
from firnline.protocol.messages.k03_metadata import MetadataRequest
from tests.worlds.harness import Connection

from .large import NAMES, LargeNode

API_VERSIONS, METADATA = 18, 3


def header(key: int, version: int) -> bytearray:
    return bytearray(struct.pack(">hhih", key, version, 7, -1))


@pytest.mark.parametrize(
    "behind",
    [
        pytest.param(header(API_VERSIONS, 99), id="of a version that is not known"),
        pytest.param(header(API_VERSIONS, 0), id="done at once"),
        pytest.param(header(METADATA, 99), id="refused"),
        pytest.param(header(METADATA, 99)[:5], id="no request"),
    ],
)
def test_a_small_request_is_not_counted_in_the_name_of_a_large_one(behind: bytearray) -> None:
    """Goal: the bytes under way come back to 0. A client of the next release asks in a version that is not
    known while a large request is in slices; the large one was counted again, and freed once."""
    node = LargeNode(NAMES[:4])
    large = node.begin(MetadataRequest(topics=None), 4)
    held = node.dispatcher.sliced_request
    assert held is not None
    assert held.connection is large
    try:
        node.dispatcher.on_frame(Connection(), memoryview(behind), node.now_ms)
    except ProtocolError:
        assert behind[1] == METADATA
    assert node.dispatcher.sliced_request is None
    node.finish()
    assert len(large.answers) == 1
