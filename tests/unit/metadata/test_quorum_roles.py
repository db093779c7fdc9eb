"""A node that follows, comes to lead, and is deposed: what it shows, whom it answers, what it forgets."""

from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.base.errors import Code, ConfigError, KafkaError, StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.metadata import records as r
from firnline.metadata.delta import ClusterDelta
from firnline.metadata.image import ClusterImage
from firnline.metadata.loader import RECORDS_PER_STEP
from firnline.metadata.quorum import MetadataQuorum
from firnline.metadata.result import ControllerResult
from firnline.metadata.snapshot_file import Snapshot
from firnline.protocol.schema import Message
from firnline.raft.node import Proposed
from firnline.raft.role import Role
from firnline.raft.voters import Voter, VoterSet
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from firnline.records.control import (
    ControlType,
    LeaderChangeMessage,
    encode_key,
    encode_value,
)
from firnline.records.record import records
from tests.worlds.effects import kept
from tests.worlds.quorum import BOOTSTRAP, Loop, MemoryLog, RecordingObserver, make_quorum

LOAD, IDLE = ("metadata", "load"), ("metadata", "idle")
THREE = VoterSet([Voter(node_id, "localhost", 9090 + node_id) for node_id in (1, 2, 3)])


def setting(value: str, name: str = "t") -> r.ConfigRecord:
    return r.ConfigRecord(resource_type=2, resource_name=name, name="retention.ms", value=value)


class ScriptedRaft:
    """The quorum's machine, whose part the test plays: it appends what is proposed and tells nothing."""

    def __init__(self, log: MemoryLog) -> None:
        self.node_id, self.log = 1, log
        self.role, self.epoch, self.leader_id = Role.UNATTACHED, 0, -1
        self.high_watermark: int | None = None
        self.refusal: KafkaError | None = None

    def start(self, now_ms: int) -> Effects:
        return []

    def resign(self, *now_ms: int) -> Effects:
        self.role = Role.RESIGNED
        return []

    def stop(self) -> None:
        self.role = Role.UNATTACHED

    def propose(self, values: list[bytes], *, epoch: int, now_ms: int, body: bytearray) -> Any:
        if self.refusal is not None:
            return self.refusal
        if self.role is not Role.LEADER or epoch != self.epoch:
            return KafkaError(Code.NOT_CONTROLLER, "")
        rows = [NewRecord(None, value, now_ms) for value in values]
        batch = build_batch(rows, leader_epoch=epoch)
        assert batch.endswith(body), "what was encoded before is what is written"
        base = self.log.append(batch, epoch=epoch, now_ms=now_ms)
        return Proposed(base, self.log.end_offset - 1), []


class RecordingSnapshotter:
    """A snapshotter that writes down where it was told that the image is, and if a snapshot may be there."""

    def __init__(self) -> None:
        self.received: list[tuple[int, bool]] = []

    def on_applied(self, delta: ClusterDelta, *, is_batch_end: bool, **facts: Any) -> Effects:
        self.received.append((delta.after.offset, is_batch_end))
        return []


class Node:
    """One of three voters, with what it published and said of itself."""

    def __init__(self, log: MemoryLog | None = None) -> None:
        self.log, self.loop = log or MemoryLog(), Loop()
        self.reported = RecordingObserver()
        self.quorum: MetadataQuorum = make_quorum(self.log, voters=THREE, observer=self.reported)
        self.raft = ScriptedRaft(self.log)
        self.quorum.raft = self.raft  # type: ignore[assignment]
        self.deltas: list[ClusterDelta] = []
        self.said: list[str] = []
        self.reported.publishers.append(self._publish)
        self.reported.on_active = self._say("active")
        self.reported.on_inactive = self._say("inactive")
        self.loop.run(self.quorum.start(self.loop.now_ms))

    def _publish(self, delta: ClusterDelta, image: ClusterImage, now_ms: int) -> Effects:
        assert self.quorum.image is image is delta.after
        if self.deltas:
            assert delta.before is self.deltas[-1].after, "each difference begins where one ended"
        self.deltas.append(delta)
        return []

    def _say(self, word: str) -> Any:
        def reported(now_ms: int) -> Effects:
            self.said.append(word)
            return []

        return reported

    def replicate(self, *content: Message, epoch: int = 1) -> None:
        """Another leader's batch arrives in the log; nobody says that it is committed."""
        rows = [NewRecord(None, r.encode(record, _version(record)), 1) for record in content]
        self.log.append(build_batch(rows, leader_epoch=epoch), epoch=epoch, now_ms=1)

    def commit(self, end_offset: int | None = None) -> None:
        end = self.log.end_offset if end_offset is None else end_offset
        self.loop.run(self.quorum.on_committed(end, self.loop.now_ms))

    def elect(self, epoch: int) -> None:
        """This node wins `epoch` and appends its first record, which commits when the test says so."""
        self.raft.role, self.raft.epoch, self.raft.leader_id = Role.LEADER, epoch, 1
        message = LeaderChangeMessage(leader_id=1)
        row = NewRecord(encode_key(ControlType.LEADER_CHANGE), encode_value(message), 1)
        batch = build_batch([row], leader_epoch=epoch, is_control=True)
        self.log.append(batch, epoch=epoch, now_ms=1)

    def lead(self, epoch: int) -> None:
        """Win, commit the first record, and be told."""
        self.elect(epoch)
        self.commit()
        self.loop.run(self.quorum.on_leader(epoch, self.loop.now_ms))

    def depose(self, epoch: int, leader_id: int = 2) -> None:
        self.raft.role, self.raft.epoch, self.raft.leader_id = Role.FOLLOWER, epoch, leader_id
        self.loop.run(self.quorum.on_leader_change(leader_id, epoch, self.loop.now_ms))

    def truncate(self, offset: int) -> None:
        self.log.batches = [b for b in self.log.batches if next(headers(b)).base_offset < offset]

    def write(self, *content: Message) -> list[Any]:
        answers: list[Any] = []
        result = ControllerResult(list(content), "done")
        self.loop.run(self.quorum.write(result, kept(answers), self.loop.now_ms))
        return answers

    def settle(self) -> int:
        """Fire the loading timer until it is quiet; return how often."""
        count = 0
        while LOAD in self.loop.timers:
            self.loop.fire(LOAD)
            count += 1
        return count

    def value(self, name: str = "t") -> str | None:
        return self.quorum.image.topic_config_overrides(name).get("retention.ms")

    def newest(self, name: str = "t") -> str | None:
        return self.quorum.newest.topic_config_overrides(name).get("retention.ms")


def _version(record: Message) -> int:
    return 0


def code_of(answers: list[Any]) -> Code:
    (error,) = answers
    assert isinstance(error, KafkaError), error
    return Code(error.code)


def active() -> Node:
    """A leader of epoch 1 whose bootstrap is committed."""
    node = Node()
    node.lead(1)
    node.commit()
    assert node.said == ["active"]
    return node


# ------------------------------------------------------------------------------------ following


def test_a_follower_shows_what_is_committed_and_nothing_more() -> None:
    """rel-Q13: the rest of its log may yet be taken back."""
    node = Node()
    node.replicate(*BOOTSTRAP)
    node.replicate(setting("1"))
    node.replicate(setting("2"))
    assert not node.deltas
    node.commit(1)
    assert (node.value(), node.quorum.image.offset) == (None, 0)
    node.commit(2)
    assert (node.value(), node.quorum.image.offset) == ("1", 1)
    assert node.newest() == "1"
    node.commit(3)
    assert node.value() == "2"
    assert [delta.after.offset for delta in node.deltas] == [0, 1, 2]


def test_what_is_replaced_before_its_commit_was_never_seen() -> None:
    node = Node()
    node.replicate(*BOOTSTRAP)
    node.commit()
    node.replicate(setting("lost"))
    node.truncate(1)
    node.replicate(setting("kept"), epoch=2)
    node.commit()
    assert node.value() == "kept"
    assert all("lost" not in str(delta.after.configs) for delta in node.deltas)
    assert node.quorum.image.epoch == 2


def test_a_follower_refuses_to_decide() -> None:
    node = Node()
    assert code_of(node.write(setting("1"))) is Code.NOT_CONTROLLER
    assert not node.log.batches


# ------------------------------------------------------------------------------------ slices


def long_log(node: Node, batches: int, each: int = RECORDS_PER_STEP) -> None:
    node.replicate(*BOOTSTRAP)
    for number in range(batches):
        node.replicate(*(setting(str(number), f"t{n}") for n in range(each)))


def test_a_long_log_is_applied_in_slices_and_others_come_in_between() -> None:
    node = Node()
    long_log(node, 6)
    node.commit()
    assert node.quorum.image.offset < node.log.end_offset - 1
    seen = [node.quorum.image.offset]
    while LOAD in node.loop.timers:
        node.loop.fire(LOAD)
        seen.append(node.quorum.image.offset)
    assert seen == sorted(seen)
    assert len(seen) > 6
    assert node.loop.now_ms == 1_000, "each slice follows at once"
    assert node.value("t7") == "5"


def test_half_a_batch_is_never_seen_however_long_it_is() -> None:
    """X14: a change of many records is one batch, and its images are before and after."""
    node = Node()
    node.replicate(*BOOTSTRAP)
    node.commit()
    node.settle()
    node.replicate(*(setting("0", f"t{n}") for n in range(4 * RECORDS_PER_STEP)))
    node.commit()
    assert node.settle() >= 4
    for delta in node.deltas:
        assert len(delta.after.configs) in (0, 4 * RECORDS_PER_STEP)


def test_a_commit_that_arrives_during_a_slice_waits_for_its_turn() -> None:
    node = Node()
    long_log(node, 3)
    node.commit(1 + RECORDS_PER_STEP)
    node.commit()
    node.settle()
    assert node.value("t0") == "2"


def test_a_new_leader_decides_only_once_it_has_applied_its_log() -> None:
    """X16: a decision on half of the metadata would give a second topic the first one's name."""
    node = Node()
    long_log(node, 3)
    node.elect(2)
    node.commit()
    node.loop.run(node.quorum.on_leader(2, 1))
    assert node.quorum.is_leader
    assert node.said == []
    assert code_of(node.write(setting("early"))) is Code.NOT_CONTROLLER
    assert node.settle() > 0
    assert node.said == ["active"]
    assert node.quorum.newest is node.quorum.image
    assert node.value("t0") == "2"
    assert node.quorum.image.offset == node.log.end_offset - 1


def test_a_leader_that_is_deposed_while_it_loads_never_decides() -> None:
    node = Node()
    long_log(node, 3)
    node.elect(2)
    node.commit()
    node.loop.run(node.quorum.on_leader(2, 1))
    node.depose(3)
    node.settle()
    assert node.said == []
    assert node.value("t0") == "2"


# ------------------------------------------------------------------------------------ leading


def test_a_deposed_leader_answers_what_is_in_doubt_and_shows_what_is_committed() -> None:
    node = active()
    seen: list[str | None] = []
    node.reported.on_inactive = lambda now_ms: seen.append(node.newest()) or []  # type: ignore[func-returns-value]
    kept = node.write(setting("kept"))
    lost, empty = node.write(setting("lost")), node.write()
    node.commit(node.log.end_offset - 1)
    assert (kept, lost, empty) == (["done"], [], [])
    node.depose(2)
    assert code_of(lost) is Code.NOT_CONTROLLER
    assert code_of(empty) is Code.NOT_CONTROLLER
    assert kept == ["done"]
    assert seen == ["kept"], "nobody who is told finds what may be gone"
    assert (node.value(), node.newest()) == ("kept", "kept")
    assert IDLE not in node.loop.timers


def led_by(broker_id: int, topic: int) -> tuple[Message, Message]:
    """The records of a topic with one partition on one broker."""
    topic_id = bytes([topic]) * 16
    return (
        r.TopicRecord(name=f"t{topic}", topic_id=topic_id),
        r.PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=[broker_id],
            isr=[broker_id],
            leader=broker_id,
            leader_epoch=0,
            partition_epoch=0,
        ),
    )


def test_a_deposed_leader_decides_by_nothing_that_was_lost_when_it_leads_again() -> None:
    """By the index a controller finds what a broker leads, and what has no leader: it goes back, too."""
    node = active()
    node.write(*led_by(7, 1))
    node.commit()
    at = node.log.end_offset
    node.write(*led_by(8, 2))
    node.write(*led_by(7, 3))
    index = node.quorum.index
    assert index.leads_any(8)
    node.depose(2)
    assert not index.leads_any(8)
    assert list(index.topics_of(8)) == []
    assert list(index.topics_of(7)) == [bytes([1]) * 16]
    node.truncate(at)
    node.replicate(*led_by(9, 4), epoch=2)
    node.commit()
    node.lead(3)
    found = [list(node.quorum.index.topics_of(broker_id)) for broker_id in (7, 8, 9)]
    assert found == [[bytes([1]) * 16], [], [bytes([4]) * 16]]


def test_what_was_in_doubt_survives_when_the_next_leader_has_it() -> None:
    node = active()
    doubt = node.write(setting("doubt"))
    node.depose(2)
    assert code_of(doubt) is Code.NOT_CONTROLLER
    assert node.value() is None
    node.commit()
    assert node.value() == "doubt"


def test_what_was_in_doubt_is_gone_when_the_next_leader_lacks_it() -> None:
    node = active()
    at = node.log.end_offset
    node.write(setting("doubt"))
    node.depose(2)
    node.truncate(at)
    node.replicate(setting("other", "u"), epoch=2)
    node.commit()
    assert (node.value(), node.value("u")) == (None, "other")


def test_a_second_reign_knows_nothing_of_the_first() -> None:
    node = active()
    first = node.write(setting("first"))
    at = node.log.end_offset - 1
    node.depose(2)
    node.truncate(at)
    node.replicate(setting("between"), epoch=2)
    node.lead(3)
    assert node.said == ["active", "inactive", "active"]
    assert node.newest() == "between"
    second = node.write(setting("second"))
    node.commit()
    assert code_of(first) is Code.NOT_CONTROLLER
    assert second == ["done"]
    assert node.value() == "second"
    assert len(node.quorum._pending) == 0


def test_a_leader_elected_again_at_once_is_notified_in_order() -> None:
    """Its first reign ends before the second begins, even if nobody led in between."""
    node = active()
    first = node.write(setting("first"))
    node.elect(2)
    node.commit()
    second = node.write(setting("second"))
    node.loop.run(node.quorum.on_leader(2, 1))
    assert node.said == ["active", "inactive", "active"]
    assert first == ["done"]
    assert code_of(second) is Code.NOT_CONTROLLER
    assert (node.value(), node.newest()) == ("first", "first")


def test_the_transaction_of_a_leader_that_died_is_aborted_by_the_next() -> None:
    node = Node()
    node.replicate(*BOOTSTRAP)
    node.replicate(r.BeginTransactionRecord(), setting("half"))
    node.lead(2)
    (header,) = headers(node.log.batches[-1])
    (row,) = records(node.log.batches[-1], header)
    assert isinstance(r.decode(row.value or b""), r.AbortTransactionRecord)
    node.commit()
    assert node.value() is None
    assert node.write(setting("whole")) == []
    node.commit()
    assert node.value() == "whole"
    again = Node(node.log)
    again.commit()
    again.settle()
    assert again.quorum.image == node.quorum.image


def test_a_leader_deposed_before_its_bootstrap_is_committed_was_never_active() -> None:
    node = Node()
    node.lead(1)
    assert node.said == []
    node.depose(2)
    assert node.said == []
    node.truncate(1)
    node.lead(3)
    node.commit()
    assert node.said == ["active"]
    assert node.quorum.image.metadata_version == 30


def test_a_cluster_whose_first_records_are_refused_stops_and_says_why() -> None:
    """It would wait for ever to become active, and nobody would know what for."""
    node = Node()
    node.raft.refusal = KafkaError(Code.RECORD_LIST_TOO_LARGE, "too large for one batch")
    with pytest.raises(KafkaError, match="too large for one batch"):
        node.lead(1)


def test_a_leader_that_lost_its_place_before_its_first_write_is_no_bug() -> None:
    """It has not heard of the next leader yet, which will write those records."""
    node = Node()
    node.raft.refusal = KafkaError(Code.NOT_CONTROLLER, "")
    node.lead(1)
    assert (node.said, node.quorum.is_active) == ([], False)


def test_who_is_closed_while_it_loads_never_becomes_active() -> None:
    """Its log is closed, and another process may lead with it."""
    node = Node()
    long_log(node, 3)
    node.elect(1)
    node.commit()
    node.loop.run(node.quorum.on_leader(1, node.loop.now_ms))
    assert LOAD in node.loop.timers
    node.quorum.close()
    node.settle()
    assert (node.said, node.quorum.is_active) == ([], False)


def test_stop_is_the_end_of_a_reign() -> None:
    node = active()
    doubt = node.write(setting("doubt"))
    node.loop.run(node.quorum.stop(1))
    assert node.said == ["active", "inactive"]
    assert code_of(doubt) is Code.NOT_CONTROLLER
    assert code_of(node.write(setting("late"))) is Code.NOT_CONTROLLER


# ------------------------------------------------------------------------------------ snapshots


def with_snapshot(node: Node, end_offset: int, epoch: int, *content: Message) -> None:
    node.log.batches = []
    node.log.snapshot = (end_offset, epoch, Snapshot(0, [*BOOTSTRAP, *content], 0))
    node.loop.run(node.quorum.on_snapshot(OffsetAndEpoch(end_offset, epoch), node.loop.now_ms))


def test_a_snapshot_replaces_the_image_and_what_it_lacks_is_gone() -> None:
    """Q39: the difference says what to forget as well."""
    node = Node()
    node.replicate(*BOOTSTRAP)
    for name in ("gone", "kept"):
        node.replicate(r.TopicRecord(name=name, topic_id=name.rjust(16).encode()))
    node.commit()
    node.settle()
    node.replicate(setting("never committed"))
    with_snapshot(
        node,
        40,
        3,
        r.TopicRecord(name="kept", topic_id=b"kept".rjust(16)),
        r.TopicRecord(name="new", topic_id=b"new".rjust(16)),
    )
    node.settle()
    assert (node.quorum.image.offset, node.quorum.image.epoch) == (39, 3)
    last = node.deltas[-1]
    assert [topic.name for topic in last.deleted_topics] == ["gone"]
    assert [topic.after.name for topic in last.topics] == ["new"]
    node.replicate(setting("after"), epoch=3)
    node.commit()
    assert (node.value(), node.quorum.image.offset) == ("after", 40)


def test_a_snapshot_comes_in_slices_and_the_old_image_is_shown_until_it_is_complete() -> None:
    node = Node()
    node.replicate(*BOOTSTRAP)
    node.replicate(setting("old"))
    node.commit()
    many = [setting("new", f"t{n}") for n in range(6 * RECORDS_PER_STEP)]
    with_snapshot(node, 9000, 3, *many)
    turns = 0
    while LOAD in node.loop.timers:
        assert node.value() == "old"
        node.loop.fire(LOAD)
        turns += 1
    assert turns >= 5
    assert (node.value(), node.value("t7")) == (None, "new")
    assert node.deltas[-1].before.offset == 1


def test_a_newer_snapshot_replaces_one_that_is_half_loaded() -> None:
    node = Node()
    many = [setting("first", f"t{n}") for n in range(5 * RECORDS_PER_STEP)]
    with_snapshot(node, 9000, 3, *many)
    with_snapshot(node, 9500, 4, setting("second"))
    node.settle()
    assert (node.value(), node.quorum.image.offset) == ("second", 9499)
    assert len(node.quorum.image.configs) == 1


def test_a_snapshot_during_a_slice_of_the_log_replaces_it() -> None:
    node = Node()
    long_log(node, 3)
    node.commit()
    with_snapshot(node, 9500, 4, setting("second"))
    node.settle()
    assert node.quorum.image.offset == 9499
    assert node.value() == "second"


def test_the_active_controller_never_loads_a_snapshot() -> None:
    """rel-Q13, Q39."""
    node = active()
    with pytest.raises(AssertionError, match="never loads"):
        with_snapshot(node, 9500, 4)


def test_a_start_begins_with_the_newest_snapshot_and_waits_for_commits() -> None:
    log = MemoryLog()
    log.snapshot = (40, 3, Snapshot(0, [*BOOTSTRAP, setting("1")], 0))
    node = Node(log)
    node.settle()
    assert (node.value(), node.quorum.image.offset) == ("1", 39)
    node.replicate(setting("2"), epoch=3)
    assert node.value() == "1"
    node.commit()
    assert node.value() == "2"


def test_what_a_snapshot_says_is_as_old_as_the_newest_record_in_it() -> None:
    """A node that has just started would look as if it were behind by decades."""
    log = MemoryLog()
    log.snapshot = (40, 3, Snapshot(1_234, [*BOOTSTRAP, setting("1")], 0))
    node = Node(log)
    node.settle()
    assert node.quorum.counters().last_applied_timestamp_ms == 1_234


def test_a_snapshot_that_is_gone_stops_the_node_and_says_which() -> None:
    node = Node()
    with pytest.raises(StorageError, match=r"gone.*path=/data/__.*offset=40, epoch=3"):
        node.quorum.on_snapshot(OffsetAndEpoch(40, 3), node.loop.now_ms)


def test_a_damaged_snapshot_stops_the_node_and_says_which_and_what_helps() -> None:
    class Damaged(MemoryLog):
        def open_snapshot(self, snapshot_id: OffsetAndEpoch) -> Any:
            found = super().open_snapshot(snapshot_id)
            assert found is not None
            found.data = found.data.replace(b"retention", b"Retention")
            return found

    log = Damaged()
    log.snapshot = (40, 3, Snapshot(0, [*BOOTSTRAP, setting("1")], 0))
    with pytest.raises(StorageError, match=r"path=/data/__.*40-0000000003.*CRC.*restore"):
        Node(log).settle()


def test_a_record_that_cannot_be_read_stops_the_node_and_says_where_it_is() -> None:
    """A later release's, or damage: skipping it would make this node's image differ from all others."""
    node = Node()
    node.replicate(*BOOTSTRAP)
    rows = [NewRecord(None, b"\x01\x7f\x00", 1)]
    node.log.append(build_batch(rows, leader_epoch=1), epoch=1, now_ms=1)
    with pytest.raises(StorageError, match=r"path=/data/__.*offset=1 .*type=127.*remedy="):
        node.commit()


def test_committed_records_that_are_not_there_stop_the_node() -> None:
    """Waiting for them would be waiting for ever."""
    node = Node()
    node.replicate(*BOOTSTRAP)
    node.commit(1)
    with pytest.raises(StorageError, match=r"not in the log.*offset=1"):
        node.commit(2)


def test_a_change_of_what_does_not_exist_is_damage_too() -> None:
    node = Node()
    node.replicate(*BOOTSTRAP)
    node.replicate(r.RemoveTopicRecord(topic_id=b"x" * 16))
    with pytest.raises(StorageError, match=r"offset=1 .*unknown topic"):
        node.commit()


def test_a_feature_that_is_raised_while_we_run_stops_the_node_with_the_command_that_helps() -> None:
    node = Node()
    node.replicate(*BOOTSTRAP)
    node.commit()
    node.replicate(r.NoOpRecord(), r.FeatureLevelRecord(name="group.version", feature_level=1))
    end_offset = node.log.end_offset  # not committed: a new leader may cut it off, as Kafka has it
    with pytest.raises(ConfigError, match=r"downgrade --feature group\.version=0") as refused:
        node.commit()
    reported = str(refused.value)
    assert f"path={node.log.path}" in reported
    assert f"offset={end_offset - 1}" in reported


# ------------------------------------------------------------------------------------ metrics


def test_what_a_standby_counts() -> None:
    """Spec 1.14: where it is, whom it heard of, what it loaded."""
    node = Node()
    node.depose(1, leader_id=2)
    with_snapshot(
        node,
        40,
        3,
        r.TopicRecord(name="t", topic_id=b"t" * 16),
        r.PartitionRecord(partition_id=0, topic_id=b"t" * 16, replicas=[1, 2], leader=2),
    )
    node.settle()
    node.replicate(r.PartitionChangeRecord(partition_id=0, topic_id=b"t" * 16, leader=-1), epoch=3)
    assert node.quorum.counters().last_committed_offset == 39
    node.commit()
    node.depose(4, leader_id=-1)
    node.depose(5, leader_id=3)
    counters, counts = node.quorum.counters(), node.quorum.partition_counts
    assert (counters.last_applied_offset, counters.last_committed_offset) == (40, 40)
    assert counters.last_applied_timestamp_ms == 1
    assert counters.new_active_controllers == 2
    assert counters.snapshots_loaded == 1
    # The clock is looked at after the work: what an event is told is the time from before.
    node.loop.now_ms += 25
    node.loop.fire(("metadata", "loaded"))
    latencies = node.quorum.load_latencies
    assert (latencies.count, latencies.sum_ms) == (1, 25)
    assert (counts.partitions, counts.offline, counts.imbalanced) == (1, 1, 1)
    assert not counters.is_active


def test_what_a_leader_counts() -> None:
    node = active()
    node.loop.now_ms = 5_000
    node.write(r.TopicRecord(name="t", topic_id=b"t" * 16))
    node.write(r.PartitionRecord(partition_id=0, topic_id=b"t" * 16, replicas=[1], leader=1))
    assert node.quorum.counters().last_applied_offset == 5
    assert node.quorum.counters().last_committed_offset == 3
    assert node.quorum.partition_counts.partitions == 0
    node.commit()
    counters = node.quorum.counters()
    assert (counters.last_committed_offset, counters.last_applied_timestamp_ms) == (5, 5_000)
    assert (counters.new_active_controllers, counters.is_active) == (1, True)
    assert node.quorum.partition_counts.partitions == 1
