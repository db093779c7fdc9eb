"""Three brokers and a partition on all of them: what is acknowledged survives any one of them."""

from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from firnline.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from firnline.protocol.messages.k56_alter_partition import AlterPartitionRequest
from firnline.replica.partition import Partition
from tests.worlds.cluster import Rig
from tests.worlds.harness import batch, values_of

BROKERS = (4, 5, 6)
ROLES = {1: "controller", **dict.fromkeys(BROKERS, "broker")}
LAG_MS = 10_000
SESSION_MS = 9_000


def started(*, min_isr: int = 1, **settings: Any) -> Rig:
    """A cluster with topic t on three brokers."""
    rig = Rig(ROLES, replica_lag_time_max_ms=str(LAG_MS), **settings).start()
    made = rig.create_topic(4, "t", replicas=3, configs={"min_insync_replicas": str(min_isr)})
    assert made.error_code == 0, made
    rig.until(lambda: all(("t", 0) in rig[n].broker.partitions for n in BROKERS))
    return rig


def replica(rig: Rig, node_id: int) -> Partition:
    return rig[node_id].broker.partitions["t", 0]


def living(rig: Rig) -> list[int]:
    return [n for n in BROKERS if rig[n].node is not None]


def leader(rig: Rig) -> int | None:
    """The one broker that takes itself for the leader in the newest epoch."""
    ids = [n for n in living(rig) if ("t", 0) in rig[n].broker.partitions]
    newest = max((replica(rig, n).leader_epoch for n in ids), default=-1)
    found = [n for n in ids if replica(rig, n).is_leader and replica(rig, n).leader_epoch == newest]
    return found[0] if found else None


def led(rig: Rig) -> Partition:
    found = leader(rig)
    assert found is not None
    return replica(rig, found)


def produce(rig: Rig, *values: str, acks: int = -1, timeout_ms: int = 5_000) -> Any:
    part = PartitionProduceData(index=0, records=batch(*values))
    data = TopicProduceData(name="t", partition_data=[part])
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])
    found = leader(rig)
    assert found is not None
    return rig.ask(found, request, 9).responses[0].partition_responses[0]


def values(rig: Rig) -> list[str]:
    """What a consumer reads from the leader."""
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[part])])
    found = leader(rig)
    assert found is not None
    [topic] = rig.ask(found, request, 12).responses
    return list(values_of(topic.partitions[0].records))


def contents(p: Partition) -> bytes:
    return p.log.read_batches(p.log.log_start_offset, max_bytes=1 << 24)


def all_equal(rig: Rig) -> bool:
    ids = living(rig)
    ends = {replica(rig, n).log.log_end_offset for n in ids}
    return len(ends) == 1 and len({contents(replica(rig, n)) for n in ids}) == 1


def isr(rig: Rig) -> tuple[int, ...]:
    found = next(iter(living(rig)))
    state = rig[found].broker.image.partition("t", 0)
    assert state is not None
    return tuple(sorted(state.isr))


def test_followers_have_what_the_leader_has_and_learn_what_is_committed() -> None:
    rig = started()
    for number in range(5):
        assert produce(rig, f"v{number}").error_code == 0
    rig.until(lambda: all_equal(rig))
    rig.until(lambda: all(replica(rig, n).log.high_watermark == 5 for n in BROKERS))
    assert values(rig) == [f"v{number}" for number in range(5)]


def test_acks_all_is_answered_when_the_followers_have_it() -> None:
    rig = started()
    assert produce(rig, "v").error_code == 0
    have = [n for n in BROKERS if replica(rig, n).log.log_end_offset == 1]
    assert have == list(BROKERS)


def test_a_write_is_answered_without_waiting_for_a_parked_fetch_to_end() -> None:
    rig = started()
    produce(rig, "warm")
    rig.pass_time(1_000)
    before_ms = rig.now_ms
    assert produce(rig, "v").error_code == 0
    assert rig.now_ms - before_ms < 20


def test_what_was_acknowledged_is_there_when_the_leader_dies() -> None:
    rig = started()
    for number in range(5):
        assert produce(rig, f"v{number}").error_code == 0
    gone = leader(rig)
    assert gone is not None
    rig[gone].kill()
    rig.until(lambda: leader(rig) not in (None, gone))
    assert values(rig)[:4] == [f"v{number}" for number in range(4)]
    assert produce(rig, "after").error_code == 0
    assert values(rig) == [*(f"v{number}" for number in range(5)), "after"]


def test_a_leader_that_comes_back_takes_the_history_of_its_successor() -> None:
    """Records that only the old leader had were acknowledged to nobody, and go."""
    rig = started()
    assert produce(rig, "kept").error_code == 0
    old = leader(rig)
    assert old is not None
    for other in BROKERS:
        if other != old:
            rig.cut.add((other, old))
    rig.pass_time(2_000)  # the parked fetches end
    assert produce(rig, "lost", acks=1).error_code == 0
    assert replica(rig, old).log.log_end_offset == 2
    rig[old].kill()
    rig.until(lambda: leader(rig) not in (None, old))
    rig.cut.clear()
    assert produce(rig, "new").error_code == 0
    rig[old].start()
    rig.until(lambda: rig[old].is_running)
    rig.until(lambda: isr(rig) == BROKERS and all_equal(rig))
    assert values(rig) == ["kept", "new"]


def test_a_follower_that_died_leaves_the_isr_and_comes_back_into_it() -> None:
    rig = started()
    rig.until(lambda: isr(rig) == BROKERS)
    follower = next(n for n in BROKERS if n != leader(rig))
    rig[follower].kill()
    rig.until(lambda: follower not in isr(rig))
    assert produce(rig, "while away").error_code == 0
    rig[follower].start()
    rig.until(lambda: rig[follower].is_running)
    rig.until(lambda: isr(rig) == BROKERS)
    assert all_equal(rig)


def test_a_follower_that_cannot_fetch_is_put_out_of_the_isr_by_its_leader() -> None:
    """It beats, so the controller takes it for alive: nobody but the leader can tell."""
    rig = started()
    produce(rig, "one")
    head = leader(rig)
    assert head is not None
    follower = next(n for n in BROKERS if n != head)
    rig.cut.add((follower, head))
    rig.pass_time(1_000)
    assert produce(rig, "two", timeout_ms=60_000).error_code == 0
    assert follower not in led(rig).isr
    changes = [m for _, _, m in rig.sent if isinstance(m, AlterPartitionRequest)]
    assert changes
    rig.until(lambda: follower not in isr(rig))
    rig.cut.clear()
    rig.until(lambda: isr(rig) == BROKERS)
    assert all_equal(rig)


def test_too_few_in_sync_replicas_take_no_acks_all_and_lose_nothing() -> None:
    rig = started(min_isr=2)
    assert produce(rig, "one").error_code == 0
    head = leader(rig)
    for follower in BROKERS:
        if follower != head:
            rig[follower].kill()
    rig.until(lambda: isr(rig) == (head,))
    assert produce(rig, "two").error_code == Code.NOT_ENOUGH_REPLICAS
    assert values(rig) == ["one"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_brokers_restarted_one_after_the_other_lose_nothing(order: tuple[int, ...]) -> None:
    rig = started(min_isr=2)
    sent = []
    for turn, place in enumerate(order):
        node_id = BROKERS[place]
        sent.append(f"v{turn}")
        assert produce(rig, sent[-1]).error_code == 0
        rig[node_id].kill()
        rig.until(lambda gone=node_id: leader(rig) not in (None, gone) and gone not in isr(rig))
        sent.append(f"w{turn}")
        assert produce(rig, sent[-1]).error_code == 0
        rig[node_id].start()
        rig.until(lambda back=node_id: rig[back].is_running and isr(rig) == BROKERS)
    rig.until(lambda: all_equal(rig))
    assert values(rig) == sent


def test_an_empty_disk_comes_back_as_another_incarnation_and_copies_all() -> None:
    rig = started()
    for number in range(3):
        produce(rig, f"v{number}")
    follower = next(n for n in BROKERS if n != leader(rig))
    rig[follower].kill()
    rig.until(lambda: follower not in isr(rig))
    rig[follower].format()
    rig[follower].start()
    rig.until(lambda: rig[follower].is_running and isr(rig) == BROKERS)
    assert all_equal(rig)


def test_log_starts_that_move_up_at_the_leader_move_up_at_its_followers() -> None:
    rig = started()
    for number in range(3):
        produce(rig, f"v{number}")
    led(rig).log.advance_log_start(2)
    rig.until(lambda: all(replica(rig, n).log.log_start_offset == 2 for n in BROKERS))


def delete_before(rig: Rig, offset: int, timeout_ms: int = 30_000) -> tuple[int, int]:
    """(error code, low watermark) of DeleteRecords at the leader."""
    part = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name="t", partitions=[part])
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)
    found = leader(rig)
    assert found is not None
    row = rig.ask(found, request, 2).topics[0].partitions[0]
    return row.error_code, row.low_watermark


def three_written() -> Rig:
    rig = started()
    for number in range(3):
        assert produce(rig, f"v{number}").error_code == 0
    rig.until(lambda: all_equal(rig) and isr(rig) == BROKERS)
    return rig


def test_deleted_records_are_gone_everywhere_when_the_answer_comes() -> None:
    """Whoever leads next must not bring them back (T44). Waiting followers learn of it at once."""
    rig = three_written()
    rig.pass_time(50)  # the followers wait for records
    before_ms = rig.now_ms
    assert delete_before(rig, 2) == (0, 2)
    assert [replica(rig, n).log.log_start_offset for n in BROKERS] == [2, 2, 2]
    assert rig.now_ms - before_ms < 50
    assert delete_before(rig, -1) == (0, 3)
    assert values(rig) == []


def test_a_follower_that_does_not_delete_is_waited_for_as_long_as_the_client_says() -> None:
    rig = three_written()
    head = leader(rig)
    assert head is not None
    slow = next(n for n in BROKERS if n != head)
    rig.cut.add((slow, head))
    rig.pass_time(1_000)
    before_ms = rig.now_ms
    assert delete_before(rig, 2, timeout_ms=2_000) == (Code.REQUEST_TIMED_OUT, -1)
    assert 2_000 <= rig.now_ms - before_ms < 2_100
    assert replica(rig, head).log.log_start_offset == 2, "it is deleted all the same"
    rig.cut.clear()
    assert delete_before(rig, 2) == (0, 2)
    assert replica(rig, slow).log.log_start_offset == 2


def test_a_follower_that_is_fenced_is_not_waited_for() -> None:
    rig = three_written()
    head = leader(rig)
    assert head is not None
    dead = [n for n in BROKERS if n != head]
    for each in dead:  # nobody's Fetch makes the leader look
        rig[each].kill()
    before_ms = rig.now_ms
    assert delete_before(rig, 2, timeout_ms=60_000) == (0, 2)
    assert rig.now_ms - before_ms < 2 * SESSION_MS
    assert isr(rig) == (head,)


def test_a_deletion_that_waits_is_notified_when_the_leader_leads_no_more() -> None:
    rig = three_written()
    head = leader(rig)
    assert head is not None
    others = [n for n in BROKERS if n != head]
    rig.cut |= {(n, head) for n in others}
    rig.pass_time(1_000)
    rig.at(rig.now_ms + 500, lambda serial: rig[head].run(rig[head].broker.shutdown(rig.now_ms)))
    before_ms = rig.now_ms
    assert delete_before(rig, 2, timeout_ms=60_000)[0] == Code.NOT_LEADER_OR_FOLLOWER
    assert rig.now_ms - before_ms < 5_000


def moved(**settings: Any) -> tuple[Rig, int]:
    """A cluster whose topic t, of one replica and three records, was moved; who has it now."""
    rig = Rig(ROLES, **settings).start()
    assert rig.create_topic(4, "t").error_code == 0
    rig.until(lambda: leader(rig) is not None)
    old = leader(rig)
    assert old is not None
    for number in range(3):
        assert produce(rig, f"v{number}").error_code == 0
    new = next(n for n in BROKERS if n != old)
    wanted = ReassignablePartition(partition_index=0, replicas=[new])
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=[wanted])]
    )
    assert rig.ask(old, request, 0).error_code == 0
    rig.until(lambda: ("t", 0) not in rig[old].broker.partitions and leader(rig) == new)
    return rig, new


def test_a_partition_that_moves_takes_its_records_along() -> None:
    """KIP-455: the newcomer follows, joins the ISR, leads; the old replica goes."""
    rig, _ = moved()
    assert values(rig) == ["v0", "v1", "v2"]
    assert produce(rig, "after").error_code == 0


# ---------------------------------------------------------------------------- alone, and the power

UNSYNCED: dict[str, Any] = {
    "log_flush_offset_checkpoint_interval_ms": "86400000"
}  # nobody syncs by the way


def restarted(rig: Rig, node_id: int) -> list[str]:
    """Cut its power a moment from now, keep what was synced, and say what it serves afterwards."""
    rig.pass_time(100)
    rig[node_id].cut_power()
    rig[node_id].start()
    rig.until(lambda: rig[node_id].is_running and leader(rig) == node_id)
    return values(rig)


def test_a_partition_that_moved_outlives_the_power_of_its_new_place() -> None:
    """rel-P4: it was acknowledged from the disk of the old place, which is deleted."""
    rig, new = moved(**UNSYNCED)
    assert restarted(rig, new) == ["v0", "v1", "v2"]


def test_the_last_of_an_isr_keeps_what_others_vouched_for() -> None:
    """rel-P4: it was acknowledged from three page caches, and two of them are gone."""
    rig = started(**UNSYNCED)
    for number in range(3):
        assert produce(rig, f"v{number}").error_code == 0
    last = leader(rig)
    assert last is not None
    for node_id in BROKERS:
        if node_id != last:
            rig[node_id].kill()
    rig.until(lambda: isr(rig) == (last,))
    assert restarted(rig, last) == ["v0", "v1", "v2"]


def test_the_power_takes_what_nobody_synced() -> None:
    """What the two above are measured by: without a need for it nothing is on any disk."""
    rig, new = moved(firnline_acks_fsync="never", **UNSYNCED)
    assert restarted(rig, new) == []
