"""What committed metadata does to the partitions of a node."""

from typing import Any

import pytest

from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import LOST_DIRECTORY, MIGRATING_DIRECTORY, TopicPartition
from firnline.metadata import records as r
from firnline.protocol.schema import Message
from firnline.replica.opening import SLICE
from firnline.replica.partition import Partition
from firnline.replica.waiters import FetchWaiter
from tests.worlds.effects import only
from tests.worlds.hosting import ELSEWHERE, ELSEWHERE_ID, hosted
from tests.worlds.hosting_node import ID, OTHER_ID, Node, moved, placed, topic
from tests.worlds.list_log import NODE_ID, ListLog, log_of


def test_a_topic_placed_here_is_hosted_and_led() -> None:
    node = Node()
    node.commit(topic(), placed(0), placed(1, replicas=(2,)))
    assert node.partition().refusal is None
    assert node.store.opened == [(TopicPartition("t", 0), ID)]
    assert node.reported == [("leadership_began", TopicPartition("t", 0))]


def test_a_follower_is_hosted_and_does_not_lead() -> None:
    node = Node()
    node.commit(topic(), placed(replicas=(2, NODE_ID)))
    assert not node.partition().is_leader
    assert node.reported == []


def test_leadership_comes_and_goes() -> None:
    node = Node()
    node.commit(topic(), placed(replicas=(NODE_ID, 2)))
    node.commit(moved(leader=2))
    node.commit(moved(leader=NODE_ID))
    names = [name for name, _ in node.reported]
    assert names == ["leadership_began", "leadership_ended", "leadership_began"]
    assert node.partition().leader_epoch == 2
    assert len(node.store.opened) == 1


def test_whoever_waits_on_lost_leadership_is_notified_at_once() -> None:
    node = Node()
    node.commit(topic(), placed(replicas=(NODE_ID, 2)))
    p = node.partition()
    woken: list[str] = []

    def released(now_ms: int) -> Effects:
        woken.append("producer")
        return []

    def completed(now_ms: int) -> Effects:
        woken.append("consumer")
        return []

    p.produce_waiters.add(99, released)
    p.fetch_waiters.add(
        FetchWaiter(serial=1, missing_bytes=9, wants_committed=False, complete=completed)
    )
    node.commit(moved(leader=2))
    assert woken == ["producer", "consumer"]


def test_a_deleted_topic_is_refused_at_once_and_its_files_go() -> None:
    node = Node()
    node.commit(topic(), placed(0), placed(1))
    kept = node.partition()
    node.commit(r.RemoveTopicRecord(topic_id=ID))
    assert len(node.hosted) == 0
    assert kept.refusal is not None
    assert kept.refusal.code == Code.NOT_LEADER_OR_FOLLOWER
    assert node.store.dropped == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert ("partition_dropped", TopicPartition("t", 0)) in node.reported
    assert ("leadership_ended", TopicPartition("t", 0)) in node.reported


def test_a_topic_made_again_under_its_name_is_another_topic() -> None:
    node = Node()
    node.commit(topic(), placed())
    old = node.partition()
    node.commit(
        r.RemoveTopicRecord(topic_id=ID), topic(topic_id=OTHER_ID), placed(topic_id=OTHER_ID)
    )
    new = node.partition()
    assert new is not old
    assert new.topic_id == OTHER_ID
    assert isinstance(node.hosted.find_by_id(ID, 0), KafkaError)
    assert node.store.dropped == [TopicPartition("t", 0)]


def test_a_replica_moved_away_is_dropped() -> None:
    node = Node()
    node.commit(topic(), placed(replicas=(NODE_ID, 2)))
    node.commit(moved(leader=2, replicas=[2], isr=[2]))
    assert len(node.hosted) == 0
    assert node.store.dropped == [TopicPartition("t", 0)]


def test_new_settings_of_a_topic_reach_its_logs() -> None:
    node = Node()
    node.commit(topic(), placed(0), placed(1))
    setting = r.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="12345")
    node.commit(setting)
    assert log_of(node.partition()).config.retention_ms == 12345
    assert node.reported[-2:] == [
        ("partition_configured", TopicPartition("t", 0)),
        ("partition_configured", TopicPartition("t", 1)),
    ]
    node.commit(setting)
    assert len([name for name, _ in node.reported if name == "partition_configured"]) == 2


def test_settings_that_come_with_the_topic_are_used_from_its_first_log_on() -> None:
    node = Node()
    setting = r.ConfigRecord(
        resource_type=2, resource_name="t", name="min.insync.replicas", value="2"
    )
    node.commit(topic(), setting, placed())
    assert log_of(node.partition()).config.min_insync_replicas == 2


def test_a_log_that_cannot_be_opened_costs_that_partition_alone() -> None:
    node = Node()
    node.store.broken = True
    node.commit(topic(), placed(0))
    assert (ID, 0) in node.hosting.failed
    (line,) = node.warnings
    assert line.startswith("partition is not served topic=t partition=0 ")
    assert node.failures == [], "damage is no failed disk"
    node.store.broken = False
    node.commit(topic("u", OTHER_ID), placed(topic_id=OTHER_ID))
    assert node.partition("u").is_leader


# --------------------------------------------------------------------------- what waits for the disk


class BrokenFile:
    """A file whose sync fails."""

    path = "/broken"

    def sync(self) -> None:
        raise StorageError("cannot sync")


def held(count: int = 1) -> Node:
    """A node whose disk does nothing until `go_on`, with one new topic."""
    node = Node()
    node.holds_work = True
    node.commit(topic(), *map(placed, range(count)))
    return node


def test_many_partitions_are_opened_a_few_at_a_time_and_in_order() -> None:
    """d 50: between two slices the loop is free."""
    node = held(100)
    sizes = []
    while node.work:
        before = len(node.store.opened)
        node.go_on()
        sizes.append(len(node.store.opened) - before)
    assert max(sizes) <= SLICE
    assert [tp.partition for tp, _ in node.store.opened] == list(range(100))
    assert len(node.hosted) == 100


def test_groups_wait_for_no_log_but_their_own() -> None:
    """No client names the topic that they are in: after a crash it was opened behind every long recovery."""
    node = held(100)
    node.commit(
        topic("__consumer_offsets", topic_id=OTHER_ID),
        placed(topic_id=OTHER_ID, replicas=(NODE_ID,)),
    )
    while node.work:
        node.go_on()
    names = [tp.topic for tp, _ in node.store.opened]
    assert names.index("__consumer_offsets") <= 2 * SLICE


def test_a_partition_is_not_served_before_it_is_on_disk() -> None:
    node = held()
    assert node.store.opened == [(TopicPartition("t", 0), ID)]
    assert isinstance(node.hosted.find("t", 0), KafkaError)
    assert node.reported == []
    node.go_on()
    assert node.partition().refusal is None


def test_a_partition_that_begins_to_lead_waits_for_no_disk() -> None:
    """Ten thousand do so at each start; their epochs reach the disk with their batches."""
    node = Node()
    node.commit(topic(), placed(replicas=(2, NODE_ID)))
    node.holds_work = True
    node.commit(moved(leader=NODE_ID))
    assert node.partition().refusal is None
    assert node.partition().leader_epoch == 1
    assert node.work == []


def test_a_topic_deleted_while_it_was_made_leaves_nothing() -> None:
    node = held(40)
    node.commit(r.RemoveTopicRecord(topic_id=ID))
    while node.work:
        node.go_on()
    assert len(node.hosted) == 0
    assert sorted(node.store.dropped) == [tp for tp, _ in node.store.opened]
    assert 0 < len(node.store.opened) <= SLICE


def test_a_topic_made_again_while_it_was_made_is_opened_when_the_old_one_is_gone() -> None:
    node = held()
    node.commit(
        r.RemoveTopicRecord(topic_id=ID), topic(topic_id=OTHER_ID), placed(topic_id=OTHER_ID)
    )
    assert node.store.opened == [(TopicPartition("t", 0), ID)]
    node.go_on()
    assert node.store.dropped == [TopicPartition("t", 0)]
    while node.work:
        node.go_on()
    assert node.partition().topic_id == OTHER_ID


def test_settings_that_came_while_a_log_was_made_reach_it() -> None:
    node = held()
    node.commit(
        r.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="12345")
    )
    node.go_on()
    assert log_of(node.partition()).config.retention_ms == 12345


def test_leadership_that_was_lost_while_a_log_was_made_is_not_taken() -> None:
    node = Node()
    node.holds_work = True
    node.commit(topic(), placed(replicas=(NODE_ID, 2)))
    node.commit(moved(leader=2))
    while node.work:
        node.go_on()
    assert not node.partition().is_leader
    assert node.reported == []


def test_a_disk_that_refuses_while_a_log_is_opened_has_failed() -> None:
    """rel-P9: a partition that only a warning speaks of is led by nobody, or out of its ISR, for ever."""
    node = Node()
    node.store.broken, node.store.error = True, "EIO"
    node.commit(topic(), placed(0))
    assert [said.facts["path"] for said in node.failures] == ["/one/t-0"]
    assert not [effect for effect in node.work if isinstance(effect, SetTimer)]


def test_a_disk_that_refuses_once_a_log_was_synced_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """rel-P9: the node stopped where the lineage of a new log could not be put in its place."""
    refused = StorageError("cannot rename", path="/one/t-0", error="EIO")

    def flushed(log: ListLog, end_offset: int) -> None:
        raise refused

    monkeypatch.setattr(ListLog, "flushed", flushed)
    node = Node()
    node.commit(topic(), placed(0))
    assert node.failures == [refused]
    assert ("t", 0) not in node.hosted.by_name


@pytest.mark.parametrize("error", ["ENOSPC", "EMFILE"])
def test_a_log_there_was_no_room_for_is_opened_when_there_is(error: str) -> None:
    node = Node()
    node.holds_work = node.store.broken = True
    node.store.error = error
    node.commit(topic(), placed(0))
    [again] = node.work
    assert isinstance(again, SetTimer)
    node.work, node.warnings = [], []
    node.run(again.then(again.at_ms))
    assert node.warnings == [], "the operator knows"
    [again] = node.work
    node.work, node.store.broken, node.holds_work = [], False, False
    node.run(again.then(again.at_ms))
    assert node.partition().is_leader
    assert (node.hosting.failed, node.failures) == ({}, [])


def test_a_log_whose_directory_failed_while_it_was_made_is_not_served() -> None:
    node = held()
    node.store.has_failed = True
    node.go_on()
    assert len(node.hosted) == 0
    assert (ID, 0) in node.hosting.failed
    assert node.lost == [(ID, 0)]


@pytest.mark.parametrize(("error", "lost"), [(None, [(ID, 0)]), ("EIO", [(ID, 0)]), ("ENOSPC", [])])
def test_who_notifies_the_controller_learns_of_a_log_that_cannot_be_opened(
    error: str | None, lost: list[Any]
) -> None:
    """Others lead it then. One that there is no room for comes back by itself."""
    node = Node()
    node.holds_work = node.store.broken = True
    node.store.error = error
    node.commit(topic(), placed(0))
    assert node.lost == lost


@pytest.mark.parametrize(
    ("isr", "directory", "may_make"),
    [
        ((NODE_ID,), LOST_DIRECTORY, False),
        ((2,), LOST_DIRECTORY, True),
        ((NODE_ID, 2), LOST_DIRECTORY, True),
        ((NODE_ID,), MIGRATING_DIRECTORY, True),
    ],
)
def test_no_empty_log_takes_the_place_of_one_that_was_lost_and_that_nobody_else_has(
    isr: tuple[int, ...], directory: bytes, may_make: bool
) -> None:
    """It would lead."""
    node = Node()
    lost = r.PartitionChangeRecord(
        partition_id=0, topic_id=ID, isr=isr, directories=(directory, MIGRATING_DIRECTORY)
    )
    node.commit(topic(), placed(replicas=(NODE_ID, 2)), lost)
    assert node.store.may_make is may_make


def test_a_log_that_cannot_be_made_durable_is_not_served_and_its_disk_has_failed() -> None:
    node = Node()
    node.store.files = [BrokenFile()]
    node.commit(topic(), placed(0))
    assert (ID, 0) in node.hosting.failed
    assert len(node.failures) == 1
    assert node.store.let_go_of == [TopicPartition("t", 0)]
    assert len(node.hosted) == 0


def test_a_full_pool_is_asked_again() -> None:
    node = held()
    submit = node.work.pop()
    node.run(submit.then(KafkaError(Code.THROTTLING_QUOTA_EXCEEDED), 0))
    timer = node.work.pop()
    assert isinstance(timer, SetTimer)
    node.run(timer.then(timer.at_ms))
    node.go_on()
    assert node.partition().is_leader


def test_whoever_waits_is_notified_when_all_before_him_is_open_or_his_time_is_over() -> None:
    node = held(40)
    reported: list[tuple[str, int]] = []

    def saying(name: str) -> Any:
        return lambda now_ms: reported.append((name, len(node.hosted))) or []  # type: ignore[func-returns-value]

    assert node.hosting.when_settled(saying("patient"), 0) == []
    timer = only(node.hosting.when_settled(saying("hasty"), 0, at_most_ms=1000), SetTimer)
    assert timer.at_ms == 1000
    timer.then(1000)
    assert reported == [("hasty", 0)]
    node.commit(topic("u", OTHER_ID), *(placed(index, topic_id=OTHER_ID) for index in range(40)))
    while node.work:
        node.go_on()
    assert reported == [("hasty", 0), ("patient", 40)]
    timer.then(2000)
    node.hosting.when_settled(saying("late"), 0)
    assert reported[2:] == [("late", 80)]


def test_a_node_that_stopped_opens_nothing_more() -> None:
    """Another process may hold the directories by now."""
    node = held(40)
    node.hosting.stop()
    while node.work:
        node.go_on()
    assert len(node.store.opened) <= SLICE
    assert len(node.hosted) == 0


@pytest.mark.parametrize("replicas", [(2,), (2, 3)])
def test_a_change_elsewhere_makes_nothing_here(replicas: tuple[int, ...]) -> None:
    node = Node()
    node.commit(topic(), placed(replicas=replicas))
    assert len(node.hosted) == 0
    assert node.store.opened == []


def tiered(name: str = "t", value: str = "true") -> Message:
    return r.ConfigRecord(
        resource_type=2, resource_name=name, name="remote.storage.enable", value=value
    )


def test_a_tiered_partition_that_comes_to_a_broker_without_a_tier_is_not_served() -> None:
    """T61: its log start would be that of its own files."""
    node = Node()
    node.commit(topic(), tiered(), placed(replicas=(NODE_ID, 2)))
    assert node.store.opened == []
    [line] = node.warnings
    assert 'partition=0 error="its topic is tiered, and this broker has no tier' in line
    assert node.lost == [(ID, 0)], "another replica leads it"


def test_one_that_nobody_else_has_is_not_reported_as_lost() -> None:
    """It was never here: the start with the tier makes it."""
    node = Node()
    node.commit(topic(), tiered(), placed())
    assert node.store.opened == []
    assert node.lost == []


def test_a_topic_that_is_tiered_under_a_broker_without_a_tier_is_reported() -> None:
    node = Node()
    node.commit(topic(), placed())
    node.commit(tiered())
    [line] = node.warnings
    assert "a topic is tiered from now on, and this broker has no tier topic=t partition=0" in line
    assert node.partition().log.config.remote_storage_enable


# -------------------------------------------------------------------- while a log is being cut


def being_cut() -> tuple[Node, Partition]:
    """A follower that gives up what its leader has not."""
    node = Node()
    node.commit(topic(), placed(replicas=(2, NODE_ID)))
    partition = node.partition()
    log_of(partition).truncation = object()
    return node, partition


def test_who_comes_to_lead_while_its_log_is_cut_leads_when_that_is_over() -> None:
    """Before it is, the end of the log is where it must not begin its epoch."""
    node, partition = being_cut()
    log = log_of(partition)
    log.log_end_offset = 9
    node.commit(moved(leader=NODE_ID))
    node.commit(moved(isr=[NODE_ID]))
    assert not partition.is_leader
    assert (partition.leader_epoch, node.reported) == (0, [])
    log.log_end_offset = 4
    node.run(log.end_truncation())
    assert partition.is_leader
    assert (partition.leader_epoch, partition.isr) == (1, (NODE_ID,))
    assert partition.epoch_start_offset == 4
    assert node.reported == [("leadership_began", TopicPartition("t", 0))]


def test_a_topic_that_is_deleted_while_its_log_is_cut_goes_when_that_is_over() -> None:
    """Its directory must not be renamed under a thread that removes files by their names in it."""
    node, partition = being_cut()
    node.commit(r.RemoveTopicRecord(topic_id=ID))
    assert node.store.dropped == []
    node.run(log_of(partition).end_truncation())
    assert node.store.dropped == [TopicPartition("t", 0)]
    assert isinstance(node.hosted.find("t", 0), KafkaError)


def test_a_topic_made_again_while_the_log_of_the_old_one_is_cut_is_opened_after_it() -> None:
    node, partition = being_cut()
    node.commit(r.RemoveTopicRecord(topic_id=ID))
    node.commit(topic(topic_id=OTHER_ID), placed(topic_id=OTHER_ID))
    assert [topic_id for _, topic_id in node.store.opened] == [ID]
    node.run(log_of(partition).end_truncation())
    assert node.store.dropped == [TopicPartition("t", 0)]
    assert [topic_id for _, topic_id in node.store.opened] == [ID, OTHER_ID]
    assert node.partition().topic_id == OTHER_ID
    assert node.partition().is_leader


def test_a_partition_that_moves_away_while_its_log_is_cut_is_given_up_after_it() -> None:
    node, partition = being_cut()
    node.commit(moved(replicas=[2], isr=[2]))
    assert node.store.dropped == []
    node.run(log_of(partition).end_truncation())
    assert node.store.dropped == [TopicPartition("t", 0)]


def test_a_node_in_whose_place_another_one_is_leads_and_follows_nothing_and_keeps_its_files() -> (
    None
):
    node = Node()
    node.commit(topic(), placed(0), placed(1, replicas=(2, NODE_ID)))
    assert [node.partition(index=index).leader_id for index in (0, 1)] == [NODE_ID, 2]
    node.was_replaced = True
    node.commit(r.RegisterBrokerRecord(broker_id=NODE_ID, broker_epoch=9))
    assert [node.partition(index=index).leader_id for index in (0, 1)] == [-1, -1]
    node.commit(moved(0, leader=NODE_ID))
    assert not node.partition(index=0).is_leader
    assert (node.store.dropped, node.store.given_up) == ([], [])


# ------------------------------------------------------------------- while many logs are opened


def starting(count: int = 40) -> Node:
    """A node that has begun to open its logs."""
    node = Node()
    node.holds_work = True
    node.commit(topic(), *map(placed, range(count)))
    return node


def test_a_partition_that_a_client_asks_for_is_opened_next() -> None:
    node = starting()
    node.hosting.asked_for("t", 39)
    while isinstance(node.hosted.find("t", 39), KafkaError):
        node.go_on()
    assert len(node.hosted) <= 2 * SLICE


def test_whoever_shall_ask_elsewhere_has_the_log_opened_if_it_waits_here() -> None:
    asked = []
    found = hosted(on_missing=lambda topic, index: asked.append((topic, index)))
    for answer in (found.find(*ELSEWHERE), found.find_by_id(ELSEWHERE_ID, ELSEWHERE[1])):
        assert isinstance(answer, KafkaError)
        assert answer.code is Code.NOT_LEADER_OR_FOLLOWER
    assert isinstance(found.find("unknown", 0), KafkaError)
    assert asked == [ELSEWHERE, ELSEWHERE]


def test_a_topic_that_is_deleted_before_its_logs_are_open_leaves_no_files() -> None:
    node = starting()
    while len(node.hosted) < SLICE:
        node.go_on()
    node.commit(r.RemoveTopicRecord(topic_id=ID))
    while node.work:
        node.go_on()
    gone = [name for name, _ in node.store.given_up] + node.store.dropped
    assert sorted(gone) == [TopicPartition("t", index) for index in range(40)]
    assert len(node.hosted) == 0


def test_a_topic_that_is_deleted_on_a_full_disk_before_its_logs_are_open_is_removed_later() -> None:
    """Its files stayed, and were kept aside by the next start: the disk stayed full."""
    node = starting()
    node.store.broken, node.store.error = True, "ENOSPC"
    node.commit(r.RemoveTopicRecord(topic_id=ID))
    assert node.store.given_up == []
    node.store.broken = False
    while node.work:
        node.go_on()
    gone = [name for name, _ in node.store.given_up] + node.store.dropped
    assert sorted(gone) == [TopicPartition("t", index) for index in range(40)]


def test_a_topic_that_is_deleted_while_its_new_log_is_synced_in_vain_is_given_up() -> None:
    node = starting(1)
    node.commit(r.RemoveTopicRecord(topic_id=ID))
    node.store.has_failed = True
    while node.work:
        node.go_on()
    assert node.store.given_up == [(TopicPartition("t", 0), ID)]
    assert node.hosting.failed == {}


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize(("directory", "expected"), [(bytes(16), [0]), (LOST_DIRECTORY, [])])
def test_a_node_is_counted_in_before_all_is_open_but_not_before_what_was_lost_is_looked_for(
    directory: bytes, expected: list[int], count: int
) -> None:
    """Also where the one that was lost takes long to recover: the controller would elect nobody for it."""
    node = Node()
    node.holds_work = True
    node.store.slices = 5
    node.commit(topic(), *[placed(index, directory=directory) for index in range(count)])
    reported: list[int] = []
    ready = lambda now_ms: reported.append(len(node.hosted)) or []  # type: ignore[func-returns-value]  # noqa: E731
    effects = node.hosting.when_ready(ready, 0, at_most_ms=500)
    [timer] = [e for e in effects if isinstance(e, SetTimer) and e.at_ms == 500]
    node.run(timer.then(500))
    assert reported == expected
    while node.work:
        node.go_on()
    assert reported == (expected or [count])


# --------------------------------------------------------------- while a log is being recovered


def recovering(*indexes: int, slices: int = 5) -> Node:
    """A node that finds logs of a crash: each takes so many turns of the loop."""
    node = Node()
    node.holds_work = True
    node.store.slices = slices
    node.commit(topic(), *map(placed, indexes))
    return node


def test_a_long_recovery_leaves_the_loop_to_others_after_each_slice() -> None:
    node = recovering(0, 1)
    done: list[int] = []
    node.run(node.hosting.when_settled(lambda now_ms: done.append(now_ms) or [], 0))  # type: ignore[func-returns-value]
    for _ in range(10):
        assert len(node.store.opened) < 2
        (timer,) = node.work
        assert isinstance(timer, SetTimer)
        assert timer.at_ms == 0
        node.go_on()
    assert (len(node.store.opened), done) == (2, [])
    while node.work:
        node.go_on()
    assert len(node.hosted) == 2
    assert done == [0]


def test_what_changes_while_a_log_is_recovered_is_acted_on_when_it_is_open() -> None:
    node = recovering(0)
    node.go_on()
    node.commit(moved(leader=NODE_ID, replicas=[NODE_ID], isr=[NODE_ID]), placed(1))
    assert len(node.work) == 1  # still one recovery at a time
    while node.work:
        node.go_on()
    assert node.partition().leader_epoch == 1
    assert [tp.partition for tp, _ in node.store.opened] == [0, 1]


def test_a_topic_deleted_while_its_log_is_recovered_leaves_nothing() -> None:
    node = recovering(0, 1)
    node.go_on()
    node.commit(
        r.RemoveTopicRecord(topic_id=ID), topic(topic_id=OTHER_ID), placed(topic_id=OTHER_ID)
    )
    while node.work:
        node.go_on()
    assert node.partition().topic_id == OTHER_ID
    assert node.store.dropped == [TopicPartition("t", 0)]
    assert [topic_id for _, topic_id in node.store.opened] == [ID, OTHER_ID]


def test_a_recovery_ends_when_the_node_does() -> None:
    node = recovering(0)
    node.hosting.stop()
    while node.work:
        node.go_on()
    assert node.store.opened == []


def given_up(index: int = 0) -> list[tuple[TopicPartition, bytes]]:
    return [(TopicPartition("t", index), ID)]


@pytest.mark.parametrize("error", ["ENOSPC", "EMFILE", None])
def test_a_topic_deleted_when_its_log_could_not_be_opened_leaves_nothing(error: str | None) -> None:
    """Nor when its files are damaged: what was deleted is deleted."""
    node = Node()
    node.holds_work = node.store.broken = True
    node.store.error = error
    node.commit(topic(), placed(0))
    node.store.broken = False
    node.commit(r.RemoveTopicRecord(topic_id=ID))
    assert node.store.given_up == given_up()
    assert node.hosting.failed == {}
    assert node.store.opened == []


def test_a_replica_that_could_not_be_opened_and_moves_away_leaves_nothing() -> None:
    node = Node()
    node.store.broken = True
    node.commit(topic(), placed(0))
    node.store.broken = False
    node.commit(
        r.PartitionChangeRecord(topic_id=ID, partition_id=0, replicas=[2], isr=[2], leader=2)
    )
    assert node.store.given_up == given_up()


def test_what_cannot_be_removed_now_either_is_removed_when_it_can() -> None:
    node = Node()
    node.holds_work = node.store.broken = True
    node.store.error = "EMFILE"
    node.commit(topic(), placed(0))
    node.commit(r.RemoveTopicRecord(topic_id=ID))
    assert node.store.given_up == []
    again = node.work[-1]
    assert isinstance(again, SetTimer)
    node.store.broken = False
    node.run(again.then(again.at_ms))
    assert node.store.given_up == given_up()
    node.run(again.then(again.at_ms))
    assert node.store.given_up == given_up()


def test_a_topic_deleted_while_its_log_is_recovered_in_vain_leaves_nothing() -> None:
    node = recovering(0)
    node.store.fails_after_slices = True
    node.go_on()
    node.commit(r.RemoveTopicRecord(topic_id=ID))
    assert node.store.given_up == [], "its files are being read"
    while node.work:
        node.go_on()
    assert node.store.given_up == given_up()
    assert node.hosting.failed == {}
