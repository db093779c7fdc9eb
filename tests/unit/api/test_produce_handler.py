"""Produce on the wire, at every version."""

from typing import Any

import pytest

from firnline.api.handlers import k00_produce
from firnline.base.errors import Code, KafkaError
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import ZSTD
from tests.worlds.list_log import TOPIC_ID, batch, log_of, partition
from tests.worlds.wire import ELSEWHERE_ID, NODE_CLOSED, OTHER_NODE, SILENCE, Wire

VERSIONS = range(3, 14)


def request(*parts: tuple[str, bytes, int], acks: int = 1, data: Any = None) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=topic_id,
                partition_data=[
                    PartitionProduceData(index=index, records=batch(2) if data is None else data)
                ],
            )
            for name, topic_id, index in parts
        ],
    )


HERE = ("t", TOPIC_ID, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_is_appended_and_its_place_reported(version: int) -> None:
    p = partition()
    wire = Wire(p)
    wire.send(k00_produce, request(HERE), version)
    [response] = wire.send(k00_produce, request(HERE), version)[1:]
    [topic] = response.responses
    [part] = topic.partition_responses
    assert (part.index, part.error_code, part.base_offset) == (0, 0, 2)
    assert part.log_start_offset == (0 if version >= 5 else -1)
    assert part.log_append_time_ms == -1
    assert part.error_message is None
    assert topic.name == ("t" if version < 13 else "")
    assert log_of(p).log_end_offset == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_that_moved_names_its_new_leader_from_version_ten_on(version: int) -> None:
    [response] = Wire().send(k00_produce, request(("elsewhere", ELSEWHERE_ID, 0)), version)
    part = response.responses[0].partition_responses[0]
    assert part.error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert part.base_offset == -1
    if version < 10:
        assert response.node_endpoints == ()
        return
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (OTHER_NODE, 7)
    [place] = response.node_endpoints
    assert (place.node_id, place.host, place.port, place.rack) == (2, "host2", 9092, "rack")


@pytest.mark.parametrize("version", [12, 13])
def test_what_nobody_hosts_is_unknown_by_name_and_by_id(version: int) -> None:
    [response] = Wire().send(k00_produce, request(("no", b"\x05" * 16, 0)), version)
    code = response.responses[0].partition_responses[0].error_code
    assert code == (Code.UNKNOWN_TOPIC_ID if version == 13 else Code.UNKNOWN_TOPIC_OR_PARTITION)


def test_acks_zero_has_no_answer() -> None:
    p = partition()
    assert Wire(p).send(k00_produce, request(HERE, acks=0), 9) == [SILENCE]
    assert log_of(p).log_end_offset == 2


def test_an_error_under_acks_zero_closes_the_connection() -> None:
    wire = Wire(partition())
    assert wire.send(k00_produce, request(HERE, ("t", TOPIC_ID, 9), acks=0), 9) == [NODE_CLOSED]


def test_acks_all_is_answered_when_the_disk_has_it_and_holds_no_receive_buffer() -> None:
    wire = Wire(partition(fsync_rule="auto"))
    assert wire.send(k00_produce, request(HERE, acks=-1), 9) == []
    for flush in wire.world.flushes:
        wire.run(flush.then(None, 0))
    assert wire.answers[0].responses[0].partition_responses[0].base_offset == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refused_record_is_named_from_version_eight_on(version: int) -> None:
    p = partition()
    log_of(p).refuse_next = KafkaError(Code.INVALID_RECORD, "no key", batch_index=1)
    [response] = Wire(p).send(k00_produce, request(HERE), version)
    part = response.responses[0].partition_responses[0]
    assert part.error_code == Code.INVALID_RECORD
    if version >= 8:
        assert part.error_message == "no key"
        assert [(e.batch_index, e.batch_index_error_message) for e in part.record_errors] == [
            (1, "no key")
        ]


@pytest.mark.parametrize("version", [6, 7])
def test_zstd_needs_version_seven(version: int) -> None:
    data = build_batch([NewRecord(b"k", b"v", 1)], codec=ZSTD)
    [response] = Wire(partition()).send(k00_produce, request(HERE, data=data), version)
    code = response.responses[0].partition_responses[0].error_code
    assert code == (Code.UNSUPPORTED_COMPRESSION_TYPE if version == 6 else 0)


def test_null_records_are_refused() -> None:
    data = ProduceRequest(
        acks=1,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0)])],
    )
    [response] = Wire(partition()).send(k00_produce, data, 9)
    assert response.responses[0].partition_responses[0].error_code == Code.INVALID_RECORD
