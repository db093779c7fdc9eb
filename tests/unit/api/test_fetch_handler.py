"""Fetch on the wire, at every version."""

from typing import Any

import pytest

from firnline.api.handlers import k01_fetch
from firnline.base.errors import Code
from firnline.base.limits import WAIT_MAX_MS
from firnline.base.units import MIB
from firnline.protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from firnline.replica.partition import Partition
from tests.worlds.list_log import TOPIC_ID, Aborted, batch, batch_bytes, log_of, partition
from tests.worlds.wire import ELSEWHERE_ID, OTHER_NODE, Wire

VERSIONS = range(4, 19)
ONE = batch_bytes()


def filled(index: int = 0, batches: int = 1) -> Partition:
    p = partition(index=index)
    for _ in range(batches):
        p.append(batch(), acks=1, now_ms=0)
    return p


def request(
    *parts: tuple[int, int], topic: str = "t", topic_id: bytes = TOPIC_ID, **more: Any
) -> FetchRequest:
    epoch = more.pop("leader_epoch", -1)
    last_epoch = more.pop("last_fetched_epoch", -1)
    partitions = [
        FetchPartition(
            partition=index,
            fetch_offset=offset,
            partition_max_bytes=MIB,
            current_leader_epoch=epoch,
            last_fetched_epoch=last_epoch,
        )
        for index, offset in parts
    ]
    topics = [FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)] if parts else []
    return FetchRequest(topics=topics, **more)


def only(response: Any) -> Any:
    [topic] = response.responses
    [part] = topic.partitions
    return part


def test_no_wait_is_longer_than_the_bound_however_long_the_client_would_wait() -> None:
    """Some kilobytes of requests must not wait for 24 days; the consumer hears of nothing, and asks again."""
    wire = Wire(filled())
    wire.send(k01_fetch, request((0, 1), max_wait_ms=2**31 - 1, min_bytes=1), 12)
    assert wire.answers == []
    wire.world.pass_time(WAIT_MAX_MS - 1)
    wire.run([])
    assert wire.answers == []
    wire.world.pass_time(1)
    wire.run([])
    [response] = wire.answers
    assert only(response).error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_returned_as_they_lie_in_the_log(version: int) -> None:
    p = filled(batches=2)
    [response] = Wire(p).send(k01_fetch, request((0, 1)), version)
    part = only(response)
    assert bytes(part.records) == log_of(p).batches[1][1]
    assert (part.error_code, part.high_watermark, part.last_stable_offset) == (0, 2, 2)
    assert part.log_start_offset == (0 if version >= 5 else -1)
    assert part.aborted_transactions is None
    assert response.responses[0].topic == ("t" if version < 13 else "")
    assert response.responses[0].topic_id == (TOPIC_ID if version >= 13 else bytes(16))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("offset", [1, 99])
def test_nothing_to_return_is_records_of_length_zero_and_never_null(
    version: int, offset: int
) -> None:
    [response] = Wire(filled()).send(k01_fetch, request((0, offset)), version)
    part = only(response)
    assert part.records is not None
    assert len(part.records) == 0
    assert part.error_code == (0 if offset == 1 else Code.OFFSET_OUT_OF_RANGE)


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_a_session_goes_on_where_it_was(version: int) -> None:
    wire = Wire(filled(0), filled(1))
    [first] = wire.send(k01_fetch, request((0, 0), (1, 1), session_epoch=0), version)
    assert first.session_id != 0
    session = {"session_id": first.session_id}
    quiet = wire.send(k01_fetch, request((0, 1), session_epoch=1, **session), version)[-1]
    assert quiet.responses == []
    assert quiet.session_id == first.session_id
    forgotten = [ForgottenTopic(topic="t", topic_id=TOPIC_ID, partitions=[1])]
    again = wire.send(
        k01_fetch,
        request((0, 0), session_epoch=2, forgotten_topics_data=forgotten, **session),
        version,
    )[-1]
    assert only(again).partition_index == 0
    late = wire.send(k01_fetch, request((0, 0), session_epoch=2, **session), version)[-1]
    assert late.error_code == Code.INVALID_FETCH_SESSION_EPOCH
    assert late.responses == []


def test_a_session_that_is_not_ours_is_refused_entirely() -> None:
    [response] = Wire().send(k01_fetch, request(session_id=77, session_epoch=5), 12)
    assert response.error_code == Code.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_that_moved_names_its_new_leader(version: int) -> None:
    asked = request((0, 0), topic="elsewhere", topic_id=ELSEWHERE_ID)
    [response] = Wire().send(k01_fetch, asked, version)
    part = only(response)
    assert part.error_code == Code.NOT_LEADER_OR_FOLLOWER
    if version >= 12:
        assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (OTHER_NODE, 7)
    places = [(p.node_id, p.host) for p in response.node_endpoints]
    assert places == ([(OTHER_NODE, "host2")] if version >= 16 else [])


def test_a_history_that_is_not_ours_learns_where_it_leaves() -> None:
    p = filled(batches=3)
    p.update(leader_id=1, leader_epoch=5, partition_epoch=1, replicas=[1], isr=[1])
    p.append(batch(), acks=1, now_ms=0)
    [response] = Wire(p).send(k01_fetch, request((0, 4), last_fetched_epoch=4), 12)
    part = only(response)
    assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (3, 3)
    assert part.error_code == 0
    assert len(part.records) == 0


@pytest.mark.parametrize("epoch", [2, 4])
def test_an_epoch_that_is_not_ours_is_fenced_from_version_nine_on(epoch: int) -> None:
    [response] = Wire(filled()).send(k01_fetch, request((0, 0), leader_epoch=epoch), 9)
    expected = Code.FENCED_LEADER_EPOCH if epoch == 2 else Code.UNKNOWN_LEADER_EPOCH
    assert only(response).error_code == expected


def test_aborted_transactions_are_listed_for_readers_of_committed_records() -> None:
    p = filled()
    log_of(p).aborted = [Aborted(5, 0)]
    [response] = Wire(p).send(k01_fetch, request((0, 0), isolation_level=1), 12)
    assert [(a.producer_id, a.first_offset) for a in only(response).aborted_transactions] == [
        (5, 0)
    ]


@pytest.mark.parametrize(
    ("version", "claim"),
    [(12, {"replica_id": 9}), (15, {"replica_state": ReplicaState(replica_id=9)})],
)
def test_who_claims_to_be_a_replica_gets_nothing(version: int, claim: dict[str, Any]) -> None:
    [response] = Wire(filled()).send(k01_fetch, request((0, 0), **claim), version)
    assert only(response).error_code == Code.NOT_LEADER_OR_FOLLOWER


def test_a_long_poll_is_answered_by_the_append() -> None:
    p = filled()
    wire = Wire(p)
    assert wire.send(k01_fetch, request((0, 1), min_bytes=1, max_wait_ms=500), 12) == []
    wire.run(
        wire.node.producing.produce(
            [(p, batch())], acks=1, timeout_ms=0, answer=lambda o, now: [], now_ms=0
        )
    )
    assert len(only(wire.answers[0]).records) == ONE


@pytest.mark.parametrize("version", VERSIONS)
def test_a_follower_is_known_by_its_id_and_from_version_15_on_by_its_epoch(version: int) -> None:
    p = partition(isr=(1, 2))
    p.append(batch(), acks=1, now_ms=0)
    claim: dict[str, Any] = (
        {"replica_state": ReplicaState(replica_id=2, replica_epoch=77)}
        if version >= 15
        else {"replica_id": 2}
    )
    [response] = Wire(p).send(k01_fetch, request((0, 1), **claim), version)
    assert only(response).error_code == 0
    follower = p.followers[2]
    assert (follower.end_offset, follower.broker_epoch) == (1, 77 if version >= 15 else -1)
    assert only(response).high_watermark == 1, "it learns what it committed"
