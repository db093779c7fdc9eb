"""Consumers read from the replica in their rack: the leader says which, and that one answers (KIP-392)."""

from typing import Any

import pytest

from firnline.base.errors import Code, ConfigError
from firnline.broker.leaders import closest
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.unit.broker.test_replication import BROKERS, ROLES, leader, produce, replica
from tests.worlds.cluster import CLIENT_PORT, Rig
from tests.worlds.harness import values_of

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
NOBODY = -1


def started(**settings: str) -> Rig:
    """Topic t on three brokers, each in a rack of its own: r4, r5, r6."""
    stated: dict[str, Any] = {
        "replica_selector_class": RACK_AWARE,
        "replica_lag_time_max_ms": "10000",
    } | settings
    rig = Rig(ROLES, **stated)
    for n in BROKERS:
        rig[n].settings["broker.rack"] = f"r{n}"
    rig.start()
    assert rig.create_topic(4, "t", replicas=3).error_code == 0
    rig.until(lambda: all(("t", 0) in rig[n].broker.partitions for n in BROKERS))
    assert produce(rig, "a").error_code == 0
    rig.pass_time(2_000)
    return rig


def led(rig: Rig) -> int:
    found = leader(rig)
    assert found is not None
    return found


def follower(rig: Rig) -> int:
    return next(n for n in BROKERS if n != led(rig))


def request(offset: int, *, rack: str = "", **more: Any) -> FetchRequest:
    epoch = more.pop("epoch", -1)
    part = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
    )
    topics = [FetchTopic(topic="t", partitions=[part])]
    return FetchRequest(topics=topics, rack_id=rack, max_bytes=1 << 20, **more)


def fetch(rig: Rig, node_id: int, offset: int, *, version: int = 11, **more: Any) -> Any:
    [topic] = rig.ask(node_id, request(offset, **more), version).responses
    return topic.partitions[0]


def test_a_consumer_is_sent_to_the_follower_in_its_rack() -> None:
    rig = started()
    near = follower(rig)
    reported = fetch(rig, led(rig), 0, rack=f"r{near}")
    assert (reported.error_code, reported.preferred_read_replica, len(reported.records)) == (
        0,
        near,
        0,
    )
    assert (reported.high_watermark, reported.log_start_offset) == (1, 0)
    assert list(values_of(fetch(rig, near, 0, rack=f"r{near}").records)) == ["a"]


@pytest.mark.parametrize("rack", ["", "elsewhere", "the leader's"])
def test_the_leader_answers_who_is_in_no_followers_rack(rack: str) -> None:
    rig = started()
    found = fetch(rig, led(rig), 0, rack=f"r{led(rig)}" if rack == "the leader's" else rack)
    assert found.preferred_read_replica == NOBODY
    assert list(values_of(found.records)) == ["a"]


def test_without_a_selector_nobody_is_sent_elsewhere_but_followers_answer() -> None:
    rig = started(replica_selector_class="")
    near = follower(rig)
    found = fetch(rig, led(rig), 0, rack=f"r{near}")
    assert (found.preferred_read_replica, list(values_of(found.records))) == (NOBODY, ["a"])
    assert list(values_of(fetch(rig, near, 0).records)) == ["a"]


def test_a_client_that_knows_nothing_of_followers_is_answered_by_the_leader_alone() -> None:
    rig = started()
    near = follower(rig)
    assert list(values_of(fetch(rig, led(rig), 0, version=10).records)) == ["a"]
    assert fetch(rig, near, 0, version=10).error_code == Code.NOT_LEADER_OR_FOLLOWER


def test_a_follower_that_is_not_in_sync_or_has_not_the_offset_is_not_named() -> None:
    rig = started()
    near = follower(rig)
    partition = replica(rig, led(rig))
    partition.followers[near].end_offset = 0
    assert fetch(rig, led(rig), 1, rack=f"r{near}").preferred_read_replica == NOBODY
    partition.followers[near].end_offset = 1
    assert fetch(rig, led(rig), 1, rack=f"r{near}").preferred_read_replica == near
    partition.followers[near].log_start_offset = 2
    assert fetch(rig, led(rig), 1, rack=f"r{near}").preferred_read_replica == NOBODY
    partition.followers[near].log_start_offset = 0
    rig[near].kill()
    rig.until(lambda: near not in replica(rig, led(rig)).isr)
    assert fetch(rig, led(rig), 0, rack=f"r{near}").preferred_read_replica == NOBODY


def test_only_a_replica_in_sync_is_named() -> None:
    rig = started()
    partition, near = replica(rig, led(rig)), follower(rig)
    assert closest(partition, 0, lambda broker_id: broker_id == near) == near
    partition.isr = tuple(n for n in partition.isr if n != near)
    assert closest(partition, 0, lambda broker_id: broker_id == near) is None


def test_a_follower_shows_what_it_knows_to_be_committed_and_nothing_more() -> None:
    rig = started()
    near = follower(rig)
    log = replica(rig, near).log
    rig.cut |= {(n, led(rig)) for n in BROKERS if n not in (near, led(rig))}
    part = produce(rig, "b", acks=1)
    assert part.error_code == 0
    rig.until(lambda: log.log_end_offset == 2)
    assert log.high_watermark == 1, "the other follower has it, so nothing is tried"
    found = fetch(rig, near, 0)
    assert (list(values_of(found.records)), found.high_watermark) == (["a"], 1)
    assert (fetch(rig, near, 1).error_code, len(fetch(rig, near, 1).records)) == (0, 0)
    assert fetch(rig, near, 3).error_code == Code.OFFSET_OUT_OF_RANGE


def test_a_follower_fences_the_epochs_that_a_leader_fences() -> None:
    rig = started()
    near = follower(rig)
    epoch = replica(rig, near).leader_epoch
    assert fetch(rig, near, 0, version=12, epoch=epoch).error_code == 0
    newer = fetch(rig, near, 0, version=12, epoch=epoch + 1)
    assert newer.error_code == Code.UNKNOWN_LEADER_EPOCH
    old = led(rig)
    rig[old].kill()
    rig.until(lambda: leader(rig) not in (None, old))
    near = next(n for n in BROKERS if n not in (old, led(rig)))
    rig.until(lambda: replica(rig, near).leader_epoch > epoch)
    assert fetch(rig, near, 0, version=12, epoch=epoch).error_code == Code.FENCED_LEADER_EPOCH
    assert fetch(rig, led(rig), 0, version=12, epoch=epoch).error_code == Code.FENCED_LEADER_EPOCH


def waited_ms(rig: Rig, node_id: int) -> int:
    """How long a consumer that waits at the broker's end is without the record that is written now."""
    answers: list[Any] = []
    ask = request(1, max_wait_ms=60_000, min_bytes=1)
    rig._deliver(-1, CLIENT_PORT, ask, 11, answers.append, [])(node_id)
    rig.pass_time(100)
    begin_ms = rig.now_ms
    assert produce(rig, "b").error_code == 0
    rig.until(lambda: answers)
    [topic] = answers[0].responses
    assert list(values_of(topic.partitions[0].records)) == ["b"]
    return rig.now_ms - begin_ms


def test_a_consumer_that_waits_at_a_follower_learns_of_a_record_at_once() -> None:
    """The leader tells its followers of a high watermark that rose without waiting for more records."""
    rig = started()
    assert waited_ms(rig, follower(rig)) < 50


def test_a_consumer_that_waits_at_a_follower_without_a_selector_waits_for_its_next_fetch() -> None:
    rig = started(replica_selector_class="")
    assert 50 <= waited_ms(rig, follower(rig)) <= 600


def test_a_leader_does_not_answer_idle_followers_again_and_again() -> None:
    rig = started()
    rig.pass_time(2_000)
    before = len(rig.sent)
    rig.pass_time(5_000)
    fetches = [m for a, b, m in rig.sent[before:] if isinstance(m, FetchRequest) and b == led(rig)]
    assert len(fetches) <= 2 * 5 * 3


def test_a_consumer_that_waits_at_a_leader_is_answered_when_the_leader_goes() -> None:
    rig = started()
    near = follower(rig)
    answers: list[Any] = []
    ask = request(1, max_wait_ms=60_000, min_bytes=1)
    rig._deliver(-1, CLIENT_PORT, ask, 11, answers.append, [])(near)
    rig.pass_time(100)
    rig[led(rig)].kill()
    rig.until(lambda: answers)


def test_a_selector_that_is_not_known_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"replica\.selector\.class=com\.example\.Mine"):
        started(replica_selector_class="com.example.Mine")


def test_the_end_of_a_log_is_not_reported_before_a_new_leader_knows_it() -> None:
    """A client that believed less would read records twice, or miss what was committed (3.16)."""
    rig = started()
    partition = replica(rig, led(rig))
    partition.epoch_start_offset = 2

    def latest(version: int, isolation: int = 0, replica_id: int = -1, timestamp: int = -1) -> int:
        part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsTopic(name="t", partitions=[part])
        ask = ListOffsetsRequest(topics=[topic], isolation_level=isolation, replica_id=replica_id)
        code: int = rig.ask(led(rig), ask, version).topics[0].partitions[0].error_code
        return code

    assert latest(5) == latest(5, isolation=1) == Code.OFFSET_NOT_AVAILABLE
    assert latest(4) == Code.LEADER_NOT_AVAILABLE
    assert latest(5, timestamp=1 << 60) == Code.OFFSET_NOT_AVAILABLE
    assert latest(5, timestamp=0) == latest(5, timestamp=-2) == 0
    assert latest(5, replica_id=4) == 0
    partition.epoch_start_offset = 1
    assert latest(5) == 0
