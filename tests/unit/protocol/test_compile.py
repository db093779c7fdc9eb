"""Declarations become readers and writers that agree with each other, version by version."""

import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.base.effects import Request
from firnline.base.errors import ProtocolError
from firnline.base.limits import ARRAY_ELEMENTS_MAX
from firnline.base.slices import FileRecords, FileSlice
from firnline.protocol.compile import ELEMENTS_PER_SLICE, reader, slicing_reader, writer
from firnline.protocol.messages import MODULES, PRIVATE_MODULES, messages_of
from firnline.protocol.messages.headers import RequestHeader
from firnline.protocol.messages.k01_fetch import FetchRequest, ReplicaState
from firnline.protocol.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
)
from firnline.protocol.primitives import uvarint
from firnline.protocol.schema import Message, Struct, f
from tests.oracle.generate import messages, versions

pytestmark = pytest.mark.slow


class Inner(Struct):
    number = f("int32", "0+", "A number.")
    late = f("string", "2+", "In version 2 and later.", nullable="3+")
    numbers = f(["int64"], "0+", "Fixed width.")
    tagged = f("int8", "2+", "Only when it differs.", tag=4, default=-1)


class Everything(Message, key=7, valid="0-3", flexible="2+"):
    yes = f("bool", "0+", "A bool.")
    tiny = f("int8", "0+", "One byte.")
    small = f("int16", "0+", "Two bytes.")
    port = f("uint16", "0+", "Two bytes, no sign.")
    name = f("string", "0+", "A string.")
    large = f("int64", "0+", "Eight bytes.")
    unsigned = f("uint32", "0+", "Four bytes, no sign.")
    real = f("float64", "0+", "A float.")
    topic_id = f("uuid", "1+", "Sixteen bytes.")
    blob = f("bytes", "0+", "Bytes.", nullable="1+")
    names = f(["string"], "0+", "Strings.", nullable="0+")
    ids = f(["uuid"], "1+", "Uuids.")
    inner = f(Inner, "0+", "A struct.")
    inners = f([Inner], "0+", "Structs.", nullable="1+")
    maybe = f(Inner, "2+", "A struct or null.", nullable="2+")
    records = f("records", "0+", "Record batches.")
    gone = f("int16", "0-1", "Until version 1.", default=5)
    tagged_list = f(["int32"], "2+", "Null by default.", tag=0, nullable="2+", default=None)
    tagged_text = f("string", "3+", "Since 3.", tag=9)
    tagged_struct = f(Inner, "2+", "A tagged struct.", tag=1)


@pytest.mark.parametrize("version", versions(Everything))
@settings(deadline=None)
@given(data=st.data())
def test_what_is_written_is_read_again(version: int, data: st.DataObject) -> None:
    message = data.draw(messages(Everything, version))
    encoded = message.write(version)
    for buffer in (encoded, bytearray(encoded), memoryview(encoded)):
        assert Everything.read(buffer, version) == (message, len(encoded))


@pytest.mark.parametrize("version", versions(Everything))
@settings(deadline=None)
@given(data=st.data())
def test_a_message_cut_anywhere_is_refused(version: int, data: st.DataObject) -> None:
    encoded = data.draw(messages(Everything, version)).write(version)
    for size in range(0, len(encoded), max(1, len(encoded) // 200)):
        with pytest.raises(ProtocolError):
            Everything.read(encoded[:size], version)


@pytest.mark.parametrize("version", versions(Everything))
@settings(deadline=None)
@given(data=st.data())
def test_a_flipped_bit_gives_a_message_or_a_refusal(version: int, data: st.DataObject) -> None:
    encoded = bytearray(data.draw(messages(Everything, version)).write(version))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(ProtocolError):
        Everything.read(encoded, version)


@pytest.mark.parametrize("version", versions(Everything))
@settings(deadline=None)
@given(noise=st.binary(max_size=200))
def test_noise_gives_a_message_or_a_refusal(version: int, noise: bytes) -> None:
    with suppress(ProtocolError):
        Everything.read(noise, version)


def test_a_message_begins_where_it_is_said_to() -> None:
    encoded = Everything(name="firn").write(3)
    message, end = Everything.read(b"head" + encoded + b"tail", 3, 4)
    assert message.name == "firn"
    assert end == 4 + len(encoded)


def test_a_message_that_ends_within_its_buffer_is_not_read_past_its_end() -> None:
    """Goal: the bytes of the next request are not taken for this one's. Method: a lower `end`."""
    encoded = ReplicaOnly(replica_id=1, broker_epoch=2).write(0)
    read = reader(ReplicaOnly, 0)
    assert read(encoded, 0, len(encoded), [])[1] == len(encoded)
    with pytest.raises(ProtocolError):
        read(encoded, 0, len(encoded) - 1, [])


class ReplicaOnly(Message, key=8, valid="0", flexible="none"):
    replica_id = f("int32", "0+", "Fixed.")
    broker_epoch = f("int64", "0+", "Fixed.")


def test_a_field_of_another_version_keeps_its_default_and_is_not_written() -> None:
    message = Everything(gone=9, tagged_text="later", topic_id=b"x" * 16)
    old, _ = Everything.read(message.write(0), 0)
    new, _ = Everything.read(message.write(3), 3)
    assert (old.gone, old.tagged_text, old.topic_id) == (9, "", bytes(16))
    assert (new.gone, new.tagged_text, new.topic_id) == (5, "later", b"x" * 16)


@pytest.mark.parametrize("version", versions(Everything))
def test_a_string_is_as_long_in_one_version_as_in_another(version: int) -> None:
    """What a client says in a compact string it may hear in another one, or somebody else may (C11)."""
    longest = "x" * 32_767
    encoded = Everything(name=longest).write(version)
    assert Everything.read(encoded, version)[0].name == longest
    with pytest.raises((ValueError, struct.error)):
        Everything(name=longest + "x").write(version)
    if version in Everything.flexible:
        was, place = uvarint(32_768) + b"x", encoded.index(uvarint(32_768) + b"x")
        longer = encoded[:place] + uvarint(32_769) + b"x" + encoded[place + len(was) - 1 :]
        with pytest.raises(ProtocolError, match="a string is too long"):
            Everything.read(longer, version)


def test_tagged_fields_at_their_default_are_not_written() -> None:
    bare = Everything().write(3)
    assert Everything(tagged_list=None, tagged_text="", tagged_struct=Inner()).write(3) == bare
    for name, value in {
        "tagged_list": [],
        "tagged_text": "x",
        "tagged_struct": Inner(number=1),
    }.items():
        message = Everything(**{name: value})
        written = message.write(3)
        assert len(written) > len(bare)
        assert Everything.read(written, 3)[0] == message


def test_a_newer_peers_tagged_field_is_skipped() -> None:
    """Goal: a later release may add tags to any struct. Method: one in front of, one behind ours."""
    bare = bytes.fromhex("0000000000000000")
    encoded = Everything(tagged_text="ours").write(3)
    section = uvarint(1) + uvarint(9) + uvarint(5) + b"\x05ours"
    assert encoded.endswith(section)
    extended = (
        encoded[: -len(section)]
        + uvarint(3)
        + uvarint(5)
        + uvarint(8)
        + bare
        + section[1:]
        + uvarint(77)
        + uvarint(0)
    )
    assert Everything.read(extended, 3)[0] == Everything(tagged_text="ours")


def test_the_client_id_keeps_the_classic_encoding_in_a_flexible_header() -> None:
    header = RequestHeader(
        request_api_key=18, request_api_version=3, correlation_id=7, client_id="firn"
    )
    assert header.write(2).hex() == "0012000300000007" + "0004" + b"firn".hex() + "00"


def test_a_nullable_struct_says_first_whether_it_is_there() -> None:
    there = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t", partition_index=3))
    for message in (there, DescribeTopicPartitionsRequest()):
        assert DescribeTopicPartitionsRequest.read(message.write(0), 0)[0] == message
    assert b"\xff\x00" in DescribeTopicPartitionsRequest().write(0)


class OneFile:
    """A file of a known content, for slices."""

    path = "/segment"

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, position: int, size: int) -> bytes:
        return self.content[position : position + size]


def test_record_bytes_in_files_leave_the_writer_as_slices() -> None:
    """Goal: sendfile stays possible. Method: the parts hold the slices themselves, lengths in front."""
    file: Any = OneFile(b"0123456789")
    slices = [FileSlice(file, 0, 4), FileSlice(file, 6, 3)]
    message = Everything(name="firn", records=FileRecords(slices))
    for version in versions(Everything):
        parts = message.parts(version)
        assert [part for part in parts if isinstance(part, FileSlice)] == slices
        same = Everything(name="firn", records=b"0123678")
        assert message.write(version) == same.write(version)


# ------------------------------------------------------------------------------ hostile lengths


class Strings(Message, key=9, valid="0-1", flexible="1+"):
    names = f(["string"], "0+", "Strings.")


class Nested(Struct):
    bits = f(["int8"], "0+", "Bytes.")


class Nests(Message, key=10, valid="0-1", flexible="1+"):
    nests = f([Nested], "0+", "Structs with arrays.")


HUGE = [(0, count.to_bytes(4, "big")) for count in (2**31 - 1, 0x7FFF0000, 2**31, 2**32 - 2)]
HUGE += [(1, uvarint(count)) for count in (2**32 - 1, 2**31, 2**31 - 1, 2**20)]


@pytest.mark.parametrize("kind", [Strings, Nests])
@pytest.mark.parametrize(("version", "count"), HUGE)
def test_a_hostile_count_is_refused_before_anything_is_made(
    kind: type[Message], version: int, count: bytes
) -> None:
    data = count + b"\0" * 64
    reader(kind, version)  # compiled before memory is watched
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            kind.read(data, version)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000


@pytest.mark.parametrize("length", [uvarint(2**32 - 1), uvarint(2**31), uvarint(1000), b"\xff" * 9])
def test_a_hostile_string_length_is_refused(length: bytes) -> None:
    with pytest.raises(ProtocolError):
        Strings.read(b"\x02" + length + b"abc", 1)


@pytest.mark.parametrize("length", ["7fff", "8000", "fffe", "0004"])
def test_a_hostile_classic_string_length_is_refused(length: str) -> None:
    with pytest.raises(ProtocolError):
        Strings.read(b"\0\0\0\x01" + bytes.fromhex(length) + b"abc", 0)


def test_null_is_refused_where_it_may_not_be() -> None:
    for data, version in ((b"\0\0\0\x01\xff\xff", 0), (b"\xff\xff\xff\xff", 0), (b"\0\0", 1)):
        with pytest.raises(ProtocolError):
            Strings.read(data, version)


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(ProtocolError):
        Strings.read(b"\0\0\0\x01\0\x02\xc3\x28", 0)


def test_all_arrays_of_a_message_share_one_budget() -> None:
    data = Nests(nests=[Nested(bits=[1] * 4)] * 3).write(1)
    read = reader(Nests, 1)
    assert len(read(data, 0, len(data), [15])[0].nests) == 3
    with pytest.raises(ProtocolError):
        read(data, 0, len(data), [14])


def test_a_large_message_is_read_in_slices_as_in_one_go() -> None:
    message = Nests(nests=[Nested(bits=[n % 2] * (n % 5)) for n in range(4_000)])
    data = message.write(1)
    found: list[object] = []

    def read() -> Iterator[None]:
        budget = [ARRAY_ELEMENTS_MAX]
        found.append((yield from slicing_reader(Nests, 1)(data, 0, len(data), budget)))

    slices = len(list(read()))
    assert found == [reader(Nests, 1)(data, 0, len(data), [])]
    assert slices >= 4_000 // ELEMENTS_PER_SLICE


def test_a_message_of_too_many_tiny_elements_is_refused() -> None:
    tiny = Nests(nests=[Nested()] * 1000).write(1)[2:]
    count = ARRAY_ELEMENTS_MAX // 1000 + 1
    data = uvarint(1000 * count + 1) + tiny * count + b"\0"
    with pytest.raises(ProtocolError, match="too many array elements"):
        Nests.read(data, 1)


# -------------------------------------------------------------------------------- the instances


def test_a_misspelt_field_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="nmae"):
        Everything(nmae="firn")


def test_equality_sees_fields_and_not_how_they_are_held() -> None:
    assert Everything(names=["a"]) == Everything(names=("a",))
    assert Everything(names=["a"]) != Everything(names=["b"])
    assert Inner() != Nested()
    assert Strings() != Nests()


def test_the_shared_default_of_a_struct_field_cannot_be_changed() -> None:
    """Goal: one request's change must not show in every other. Method: set an attribute of a default."""
    request = FetchRequest()
    assert request.replica_state == ReplicaState()
    with pytest.raises(AttributeError, match="ReplicaState"):
        request.replica_state.replica_id = 3
    assert FetchRequest().replica_state.replica_id == -1


def test_readers_and_writers_are_made_once() -> None:
    assert reader(Everything, 1) is reader(Everything, 1)
    assert writer(Everything, 1) is writer(Everything, 1)
    assert reader(Everything, 1) is not reader(Everything, 2)


def test_asking_for_one_key_loads_that_key_alone() -> None:
    code = (
        "import sys; from firnline.protocol.messages import REQUESTS; REQUESTS[18];"
        "print([m for m in sys.modules if m.startswith('firnline.protocol.messages.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['firnline.protocol.messages.k18_api_versions']"


@pytest.mark.parametrize("key", [*MODULES, *PRIVATE_MODULES])
def test_a_request_names_what_it_is_answered_with(key: int) -> None:
    request, response = messages_of(key)
    (named,) = [
        get_args(base)[0].__forward_arg__
        for base in request.__orig_bases__  # type: ignore[attr-defined]
        if get_origin(base) is Request
    ]
    assert named == response.__name__
