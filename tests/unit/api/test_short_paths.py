"""The usual Produce and Fetch go a shorter way: it must say and do what the way for all cases does."""

from typing import Any

import pytest

from firnline.api.fast_path import common_request
from firnline.api.handlers import k00_produce, k01_fetch, k18_api_versions
from firnline.base.errors import Code, KafkaError
from firnline.base.slices import FileSlice
from firnline.broker.fetch import Fetching
from firnline.broker.fetch_session import Wanted
from firnline.broker.produce import Producing
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k18_api_versions import ApiVersionsRequest
from firnline.protocol.session import pieces
from firnline.records.build import NewRecord, build_batch
from firnline.replica.partition import Partition
from tests.worlds.list_log import TOPIC_ID, batch, batch_bytes, log_of, partition
from tests.worlds.wire import Wire, frame_of


def produce(acks: int, data: Any) -> ProduceRequest:
    part = PartitionProduceData(index=0, records=data)
    topic = TopicProduceData(name="t", topic_id=TOPIC_ID, partition_data=[part])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


def fetch(offset: int, limit: int, **more: Any) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=limit)
    topic = FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=[part])
    return FetchRequest(topics=[topic], **({"min_bytes": 1} | more))


def transactional() -> bytearray:
    return build_batch(
        [NewRecord(None, b"v", 1000)],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def disk_failed(p: Partition) -> None:
    log_of(p).fail_next = True


def refused(p: Partition) -> None:
    log_of(p).refuse_next = KafkaError(Code.OUT_OF_ORDER_SEQUENCE_NUMBER, "a gap")


def one_replica_short(p: Partition) -> None:
    p.update(leader_id=1, leader_epoch=3, partition_epoch=1, replicas=(1,), isr=())


def as_it_is(p: Partition) -> None:
    """Nothing wrong."""


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [-1, 0, 1, 2])
@pytest.mark.parametrize("rule", ["never", "auto", "always"])
def test_the_short_way_of_a_produce_answers_as_the_long_one(
    version: int, acks: int, rule: Any
) -> None:
    for case in (as_it_is, refused, disk_failed, one_replica_short):
        for data in (batch(2), transactional(), b""):
            said = []
            for is_short in (True, False):
                p = partition()
                p.fsync_rule = rule
                case(p)
                wire, failed = Wire(p), []
                wire.node.producing = Producing(lambda bad, now, to=failed: to.append(bad) or [])
                send = wire.send_common if is_short else wire.send
                send(k00_produce, produce(acks, bytes(data)), version)
                is_common = bool(data) and version >= 5 and acks != 2
                assert wire.was_common == (is_short and is_common)
                said.append((wire.answers, log_of(p).log_end_offset, p.is_offline, len(failed)))
            assert said[0] == said[1], (case.__name__, bytes(data))


@pytest.mark.parametrize("version", range(4, 19))
def test_the_short_way_of_a_fetch_answers_as_the_long_one(version: int) -> None:
    one = batch_bytes()
    for offset in (-1, 0, 1, 2, 3, 9):
        for limit in (0, one, 2 * one, 10**6):
            for more in (
                {},
                {"isolation_level": 1},
                {"session_epoch": 0},
                {"max_bytes": one},
                {"min_bytes": 5 * one},
            ):
                said = []
                for is_short in (True, False):
                    p = partition()
                    for _ in range(3):
                        p.append(batch(), acks=1, now_ms=0)
                    wire = Wire(p)
                    send = wire.send_common if is_short else wire.send
                    send(k01_fetch, fetch(offset, limit, **more), version)
                    said.append(wire.answers)
                assert said[0] == said[1], (offset, limit, more)


SESSIONS: dict[str, list[dict[str, Any]]] = {
    "as it goes": [{"offset": 0}, {"offset": 1}, {}, {}, {"offset": 2}, {"offset": 0}, {}],
    "a limit": [{"offset": 0, "limit": 1}, {}, {"offset": 0, "limit": 10**6}, {"max_bytes": 1}],
    "nothing new": [{"offset": 3}, {"offset": 0}, {"offset": 3}, {"offset": 9}, {"offset": 0}],
    "enough or not": [{"offset": 0, "min_bytes": 10**6}, {"min_bytes": 10**6}, {}],
    "an epoch twice": [{"offset": 0}, {"epoch": 1}, {}],
    "an epoch too far": [{"epoch": 7}, {"offset": 0}],
    "another session": [{"session_id": 77}, {"offset": 0}],
    "another partition": [{"offset": 0}, {"offset": 0, "index": 1}, {}, {"offset": 1}],
    "another leader epoch": [{"offset": 0, "leader_epoch": 9}, {"offset": 0}, {"leader_epoch": 2}],
    "committed alone": [{"isolation_level": 1}, {}],
    "another version": [{"version": 7}, {"version": 18}, {}],
}


def state_of(wire: Wire, session_id: int) -> list[object]:
    """What the node remembers of a session."""
    session = wire.node.fetching.sessions._sessions[session_id]
    state: list[object] = [session.epoch, session.used_ms]
    for wanted in session.wanted:
        state += [getattr(wanted, name) for name in Wanted.__slots__ if name != "hosted"]
    return state


@pytest.mark.parametrize("case", SESSIONS)
@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
def test_the_short_way_of_a_session_answers_as_the_long_one(version: int, case: str) -> None:
    """A session is opened on one partition; then incremental requests, of one change or of none."""
    said = []
    for is_short in (True, False):
        p = partition()
        for _ in range(3):
            p.append(batch(), acks=1, now_ms=0)
        wire = Wire(p, partition(index=1))
        send = wire.send_common if is_short else wire.send
        wire.send(k01_fetch, fetch(0, 10**6, session_epoch=0), version)
        session_id = wire.answers[-1].session_id
        assert session_id
        epoch, shorts = 1, 0
        for step in SESSIONS[case]:
            request = fetch(step.get("offset", 0), step.get("limit", 10**6))
            part = request.topics[0].partitions[0]
            part.partition = step.get("index", 0)
            part.current_leader_epoch = step.get("leader_epoch", -1)
            if not step.keys() & {"offset", "index", "leader_epoch"}:
                request.topics = []
            request.session_id = step.get("session_id", session_id)
            request.session_epoch = step.get("epoch", epoch)
            request.isolation_level = step.get("isolation_level", 0)
            request.min_bytes = step.get("min_bytes", 1)
            request.max_bytes = step.get("max_bytes", 10**6)
            send(k01_fetch, request, step.get("version", version))
            shorts += wire.was_at_once
            wire.world.now_ms += 10
            if not wire.answers[-1].error_code:
                epoch += 1
        assert bool(shorts) == is_short
        assert shorts == len(SESSIONS[case]) or case != "as it goes" or not is_short
        said.append((wire.answers, state_of(wire, session_id)))
    assert said[0] == said[1]


@pytest.mark.parametrize("acks", [-1, 0, 1])
@pytest.mark.parametrize("rule", ["never", "auto", "always"])
def test_the_usual_produce_and_fetch_do_go_the_short_way(
    acks: int, rule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = partition()
    p.fsync_rule = rule
    wire = Wire(p)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the long way")

    monkeypatch.setattr(Producing, "produce", refuse)
    monkeypatch.setattr(Fetching, "fetch", refuse)
    wire.send_common(k00_produce, produce(acks, batch()), 9)
    assert wire.was_at_once
    assert wire.send_common(k01_fetch, fetch(0, 10**6, session_epoch=-1), 12)


def test_somebody_who_waits_learns_of_an_append_by_the_short_way_too() -> None:
    wire = Wire(partition())
    wire.send(k01_fetch, fetch(0, 10**6, session_epoch=-1, max_wait_ms=500), 12)
    assert wire.answers == []
    wire.send_common(k00_produce, produce(1, batch()), 9)
    assert len(wire.answers) == 2


def test_the_records_of_an_answer_stay_in_their_file() -> None:
    p = partition()
    p.append(batch(), acks=1, now_ms=0)
    wire = Wire(p)
    data = frame_of(fetch(0, 10**6, session_epoch=-1), 12)
    asked = common_request(data, len(data))
    assert asked is not None
    parts = k01_fetch.at_once(wire.node, None, asked, 0)  # type: ignore[arg-type]
    records = log_of(p).read(0, max_bytes=10**6, upto_offset=1)
    assert parts is not None
    assert [type(part) for part in parts] == [bytes, FileSlice, bytes]
    assert parts[1].read() == records.read()  # type: ignore[union-attr]


def test_a_sample_is_cut_only_where_it_is_plain() -> None:
    assert pieces(b"aaXbbYcc", b"X", b"Y") == (b"aa", b"bb", b"cc")
    with pytest.raises(AssertionError, match="cannot be told"):
        pieces(b"aaXbbXcc", b"X")


def test_new_features_are_reported_though_the_answer_before_is_kept() -> None:
    request = ApiVersionsRequest(client_software_name="firn", client_software_version="1")
    wire = Wire()
    wire.send(k18_api_versions, request, 3)
    wire.node.image = wire.node.image._replace(offset=100)
    wire.send(k18_api_versions, request, 3)
    assert [answer.finalized_features_epoch for answer in wire.answers] == [99, 100]
