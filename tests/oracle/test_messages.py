"""Every request and response, at every version: our bytes are Kafka's bytes, both ways."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.protocol.messages import MODULES, REQUESTS
from firnline.protocol.messages.headers import RequestHeader, ResponseHeader
from firnline.protocol.schema import Message
from tests.oracle.generate import messages, versions
from tests.oracle.kafka_oracle import KafkaOracle, as_json, kafka_name

pytestmark = pytest.mark.peer

ALL: list[tuple[type[Message], int]] = [
    (cls, version)
    for cls in (*(cls for key in MODULES for cls in REQUESTS[key]), RequestHeader, ResponseHeader)
    for version in versions(cls)
]


def test_the_walk_did_not_lose_messages() -> None:
    assert len(ALL) > 400


@pytest.mark.parametrize(("cls", "version"), ALL, ids=lambda x: getattr(x, "__name__", f"v{x}"))
@given(data=st.data())
@settings(settings.get_profile("oracle"), max_examples=12)
def test_kafka_reads_what_we_write_and_we_read_what_kafka_writes(
    oracle: KafkaOracle, cls: type[Message], version: int, data: st.DataObject
) -> None:
    """Goal: no field is missing, misplaced or encoded in another way, in either direction.
    Method: Kafka parses our bytes and writes them again; Kafka builds the same message from JSON."""
    message: Any = data.draw(messages(cls, version))
    ours = message.write(version)
    again, seen = oracle.parse(kafka_name(cls), version, ours)
    assert again == ours
    assert seen == as_json(message, version, records=False)
    built = oracle.build(kafka_name(cls), version, as_json(message, version, records=True))
    assert built == ours
    assert cls.read(memoryview(built), version) == (message, len(built))
