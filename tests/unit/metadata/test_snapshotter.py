"""When a snapshot is taken, of what, and what its failure costs: nothing but itself."""

from collections.abc import Sequence
from typing import Any

import pytest
from immutables import Map

from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import Code
from firnline.base.ids import OffsetAndEpoch
from firnline.metadata import records as r
from firnline.metadata.delta import ClusterDelta, Replay
from firnline.metadata.features import record_version
from firnline.metadata.image import EMPTY_IMAGE, METADATA_VERSION, ClusterImage
from firnline.metadata.loader import SnapshotLoader
from firnline.metadata.meta_log import MetaLog
from firnline.metadata.snapshot_file import read_snapshot, snapshot_name
from firnline.metadata.snapshot_records import RECORDS_PER_STEP, image_steps
from firnline.metadata.snapshotter import (
    SnapshotCounters,
    SnapshotSettings,
    Snapshotter,
    changed_records,
    snapshot_settings,
)
from firnline.protocol.schema import Message
from firnline.sim.disk import CrashableFs
from tests.worlds.decoded import image_records
from tests.worlds.effects import World
from tests.worlds.meta_log import DIR, a_disk, batch_at, check, ids, install, opened, sync
from tests.worlds.quorum import broker_config

NO_TIME = SnapshotSettings(max_new_record_bytes=1000, max_interval_ms=0)
LEVEL = r.FeatureLevelRecord(name=METADATA_VERSION, feature_level=30)


def topic(number: int) -> r.TopicRecord:
    return r.TopicRecord(name=f"t{number:05d}", topic_id=(number + 1).to_bytes(16, "big"))


def partition(topic_number: int, number: int, leader: int = 1) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=number,
        topic_id=(topic_number + 1).to_bytes(16, "big"),
        replicas=[1, 2],
        isr=[1, 2],
        leader=leader,
        leader_epoch=3,
        partition_epoch=4,
        directories=[bytes(16), bytes(16)],
    )


def change(topic_number: int, number: int, leader: int) -> r.PartitionChangeRecord:
    return r.PartitionChangeRecord(
        partition_id=number, topic_id=(topic_number + 1).to_bytes(16, "big"), leader=leader
    )


class Node(World):
    """A snapshotter over a real metadata log on a simulated disk, and its timers and threads by hand."""

    holds_work = True

    def __init__(self, settings: SnapshotSettings = NO_TIME) -> None:
        self.disk: CrashableFs = a_disk()
        super().__init__(10_000, fs=self.disk)
        self.log: MetaLog = opened(self.disk)
        self.snapshotter = Snapshotter(self.log, settings)
        self.image: ClusterImage = EMPTY_IMAGE
        self.slices = 0
        self.apply(LEVEL)

    def apply(
        self, *records: Message, size_bytes: int = 0, is_batch_end: bool = True, ms: int = 0
    ) -> None:
        """Commit one batch of so many records, apply it, and tell."""
        self.now_ms += ms
        self.write(len(records))
        replay = Replay(self.image)
        for record in records:
            replay.apply(record)
        delta = replay.finish(offset=self.log.end_offset - 1, epoch=self.log.last_epoch)
        self.report(delta, size_bytes, is_batch_end)

    def write(self, count: int, epoch: int = 1) -> None:
        data = batch_at(self.log.end_offset, epoch, max(count, 1))
        assert self.log.append_fetched(data, now_ms=1) is None
        sync(self.log)
        self.log.advance_high_watermark(self.log.end_offset)

    def report(self, delta: ClusterDelta, size_bytes: int, is_batch_end: bool = True) -> None:
        self.image = delta.after
        self.run(
            self.snapshotter.on_applied(
                delta,
                bytes_applied=size_bytes,
                last_timestamp_ms=self.now_ms - 7,
                is_batch_end=is_batch_end,
                now_ms=self.now_ms,
            )
        )

    @property
    def waiting(self) -> list[Any]:
        """What may go on now: slices that are due, and threads."""
        return [t for t in self.timers.values() if t.at_ms <= self.now_ms] + self.work

    def turn(self) -> None:
        """Let one timer or one thread finish."""
        effect = self.waiting[0]
        if isinstance(effect, SetTimer):
            self.slices += 1
            self.fire(effect.key)
        else:
            assert effect.pool == "disk"
            self.work_once()

    def wait(self) -> None:
        """Let the time pass until the next timer is due."""
        [key] = self.timers
        self.fire(key)

    def finish(self) -> None:
        while self.waiting:
            self.turn()

    def stored(self) -> Sequence[OffsetAndEpoch]:
        return ids(self.log)


def loaded(world: Node, snapshot_id: OffsetAndEpoch) -> ClusterImage:
    """Load a snapshot as a node does."""
    file = world.log.open_snapshot(snapshot_id)
    assert file is not None
    loader = SnapshotLoader(snapshot_id, file)
    for _ in loader.steps():
        pass
    return loader.image()


# ------------------------------------------------------------------------------------ when


def test_bytes_make_a_snapshot_due() -> None:
    world = Node()  # Q30
    world.apply(topic(0), size_bytes=999)
    assert not world.snapshotter.is_emitting
    world.apply(topic(1), size_bytes=1)
    world.finish()
    assert world.stored() == [OffsetAndEpoch(3, 1)]
    world.apply(topic(2), size_bytes=999)
    assert not world.snapshotter.is_emitting, "counted anew"
    world.apply(topic(3), size_bytes=1)
    world.finish()
    assert world.stored() == [OffsetAndEpoch(3, 1), OffsetAndEpoch(5, 1)]


def test_time_makes_a_snapshot_due_when_something_is_applied() -> None:
    world = Node(SnapshotSettings(max_new_record_bytes=10**9, max_interval_ms=500))
    world.apply(topic(0), ms=499)
    assert not world.snapshotter.is_emitting
    world.apply(topic(1), ms=1)
    world.finish()
    assert world.stored() == [OffsetAndEpoch(3, 1)]
    world.apply(topic(2), ms=499)
    assert not world.snapshotter.is_emitting


def test_no_interval_means_no_snapshot_by_time() -> None:
    world = Node()
    world.apply(topic(0), ms=10**9)
    assert not world.snapshotter.is_emitting


def test_a_snapshot_waits_for_the_end_of_a_batch() -> None:
    world = Node()  # Q31, X14
    world.apply(topic(0), size_bytes=5000, is_batch_end=False)
    assert not world.snapshotter.is_emitting
    world.apply(topic(1))
    world.finish()
    assert world.stored() == [OffsetAndEpoch(3, 1)]


def test_one_snapshot_at_a_time() -> None:
    world = Node()  # Q31
    world.apply(topic(0), size_bytes=1000)
    for number in range(1, 6):
        world.apply(topic(number), size_bytes=1000)
        assert len([n for n in world.fs.list_dir(DIR) if n.endswith(".part")]) == 1
    world.finish()
    assert world.stored() == [OffsetAndEpoch(2, 1)]
    world.apply(topic(6))
    world.finish()
    assert world.stored() == [OffsetAndEpoch(2, 1), OffsetAndEpoch(8, 1)]


def test_a_loaded_snapshot_resets_what_was_counted() -> None:
    world = Node(SnapshotSettings(max_new_record_bytes=1000, max_interval_ms=500))  # Q30
    world.apply(topic(0), size_bytes=999, ms=499)
    world.run(world.snapshotter.on_loaded(record_count=1, now_ms=world.now_ms))
    world.apply(topic(1), size_bytes=999, ms=499)
    assert not world.snapshotter.is_emitting


def test_the_keys_of_the_configuration_are_the_settings() -> None:
    assert snapshot_settings(broker_config()) == SnapshotSettings(20971520, 3600000, 0.0)
    config = broker_config(
        metadata_log_max_record_bytes_between_snapshots="5",
        metadata_log_max_snapshot_interval_ms="0",
    )
    assert snapshot_settings(config) == SnapshotSettings(5, 0, 0.0)


# ------------------------------------------------------------------------------------ the ratio


def with_ratio(ratio: float) -> Node:
    world = Node(SnapshotSettings(1000, 0, ratio))
    world.apply(topic(0), *(partition(0, n) for n in range(8)), size_bytes=1000)
    world.finish()
    assert len(world.stored()) == 1
    return world  # its last snapshot has 10 records: a feature, a topic, 8 partitions


def test_bytes_do_not_do_when_too_few_records_changed() -> None:
    world = with_ratio(0.3)  # Q50
    world.apply(change(0, 0, 2), change(0, 1, 2), size_bytes=5000)
    assert not world.snapshotter.is_emitting
    world.apply(change(0, 1, 1))
    assert not world.snapshotter.is_emitting, "the same record again is no other record"
    world.apply(change(0, 2, 2))
    world.finish()
    assert len(world.stored()) == 2


def test_records_that_are_only_new_do_not_count_and_changed_ones_do() -> None:
    world = with_ratio(0.2)
    world.apply(topic(1), *(partition(1, n) for n in range(50)), size_bytes=5000)
    assert not world.snapshotter.is_emitting
    world.apply(change(1, 0, 2), change(1, 1, 2))
    assert world.snapshotter.is_emitting


def test_a_removed_topic_counts_with_its_partitions() -> None:
    world = with_ratio(0.9)
    world.apply(r.RemoveTopicRecord(topic_id=(1).to_bytes(16, "big")), size_bytes=5000)
    assert world.snapshotter.is_emitting


def test_changed_records_without_the_bytes_do_not_do() -> None:
    world = with_ratio(0.1)
    world.apply(*(change(0, n, 2) for n in range(8)), size_bytes=999)
    assert not world.snapshotter.is_emitting


def test_time_does_not_ask_for_changed_records() -> None:
    world = Node(SnapshotSettings(10**9, 500, 0.9))
    world.apply(topic(0), ms=500)
    assert world.snapshotter.is_emitting


def test_what_changed_before_a_snapshot_that_failed_still_counts() -> None:
    world = with_ratio(0.3)
    world.fs.fail("sync", ".part", "EIO")
    world.apply(*(change(0, n, 2) for n in range(3)), size_bytes=1000)
    world.finish()
    assert world.snapshotter.counters.failed == 1
    world.wait()
    assert world.snapshotter.is_emitting
    world.finish()
    world.apply(change(0, 0, 1), change(0, 1, 1), size_bytes=1000)
    assert not world.snapshotter.is_emitting, "counted anew"


def test_every_kind_of_record_that_changes_is_seen() -> None:
    before = EMPTY_IMAGE
    records: list[Message] = [
        LEVEL,
        topic(0),
        partition(0, 0),
        r.ConfigRecord(resource_type=2, resource_name="t", name="k", value="1"),
        r.RegisterBrokerRecord(broker_id=1, incarnation_id=bytes(16), broker_epoch=1),
        r.RegisterControllerRecord(controller_id=1, incarnation_id=bytes(16)),
        r.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000),
        r.ClientQuotaRecord(
            entity=[r.QuotaEntity(entity_type="user", entity_name="u")], quota_key="k", value=1.0
        ),
    ]

    def applied(image: ClusterImage, *some: Message) -> ClusterDelta:
        replay = Replay(image)
        for record in some:
            replay.apply(record)
        return replay.finish(offset=1, epoch=1)

    delta = applied(before, *records)
    assert list(changed_records(delta)) == []
    after = delta.after
    news: list[Message] = [
        r.FeatureLevelRecord(name=METADATA_VERSION, feature_level=29),
        change(0, 0, 2),
        r.ConfigRecord(resource_type=2, resource_name="t", name="k", value="2"),
        r.FenceBrokerRecord(id=1, epoch=1),
        r.RegisterControllerRecord(controller_id=1, incarnation_id=bytes(15) + b"\x01"),
        r.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=2000),
        r.ClientQuotaRecord(
            entity=[r.QuotaEntity(entity_type="user", entity_name="u")], quota_key="k", value=2.0
        ),
    ]
    for news_of_one in news:
        assert len(list(changed_records(applied(after, news_of_one)))) == 1, news_of_one
    assert len(list(changed_records(applied(after, *news)))) == len(news)


# ------------------------------------------------------------------------------------ what


def test_the_snapshot_is_the_image_of_when_it_was_due_whatever_follows() -> None:
    world = Node()  # Q32, rel-Q9
    world.apply(topic(0), *(partition(0, n) for n in range(900)), size_bytes=1000)
    due, due_at = world.image, world.now_ms
    while world.snapshotter.is_emitting:
        world.turn()
        world.now_ms += 1
        world.apply(change(0, world.slices % 900, 2))
    (snapshot_id,) = world.stored()
    assert snapshot_id == (due.offset + 1, due.epoch)
    assert loaded(world, snapshot_id) == due
    path = f"{DIR}/{snapshot_name(snapshot_id)}"
    assert read_snapshot(world.fs, path).last_contained_ms == due_at - 7, "not the wall clock"
    check(world.log, world.fs)


def test_no_slice_makes_more_than_a_few_records() -> None:
    world = Node()  # Q53
    partitions = [partition(0, n) for n in range(3000)]
    world.apply(topic(0), *partitions, size_bytes=1000)
    world.finish()
    assert world.slices >= 3000 / RECORDS_PER_STEP
    steps = list(image_steps(world.image))
    assert max(map(len, steps)) <= RECORDS_PER_STEP
    assert [record for step in steps for record in step] == list(image_records(world.image))


def test_a_hundred_thousand_names_are_not_put_into_order_in_one_step() -> None:
    world = Node()
    topics = [topic(number) for number in range(9000)]
    world.apply(*topics)
    steps = image_steps(world.image)
    before_first = 0
    while not [one for one in next(steps) if isinstance(one, r.TopicRecord)]:
        before_first += 1
    assert before_first >= 4
    names = [x.name for x in image_records(world.image) if isinstance(x, r.TopicRecord)]
    assert names == sorted(names)
    assert len(names) == 9000


def test_a_snapshot_is_little_more_than_the_records_of_the_image() -> None:
    world = Node()  # Q48
    world.apply(topic(0), *(partition(0, n) for n in range(2000)), size_bytes=1000)
    world.finish()
    content = image_records(world.image)
    values = sum(len(r.encode(record, record_version(record, 30))) for record in content)
    rows = values + 10 * 2002  # what the frame of a record adds
    assert world.snapshotter.counters.latest_size_bytes <= 1.1 * rows


def test_nothing_is_read_back_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Node()  # Q48
    monkeypatch.setattr(MetaLog, "read", None)
    world.fs.fail("read", ".log", "EIO", times=10**6)
    world.apply(topic(0), *(partition(0, n) for n in range(500)), size_bytes=1000)
    world.finish()
    assert len(world.stored()) == 1


def test_what_an_empty_observer_fetches_does_not_grow_with_the_history() -> None:
    """Q54: the newest snapshot, and no more of the log than makes the next one due."""
    for changes in (50, 500):
        world = Node(SnapshotSettings(max_new_record_bytes=2000, max_interval_ms=0))
        world.apply(topic(0), *(partition(0, n) for n in range(10)))
        for number in range(changes):
            world.apply(change(0, number % 10, number % 3), size_bytes=len(batch_at(0, 1)))
            world.finish()
        newest = world.log.newest_snapshot_id
        assert newest is not None
        rest, offset = 0, newest.offset
        while offset < world.log.end_offset:
            data = world.log.read(offset, max_bytes=1)
            offset, rest = offset + 1, rest + len(data)
        assert rest <= 2000
        assert world.log.snapshot_sizes()[-1][1] < 1500


def test_a_place_that_is_not_committed_makes_no_snapshot() -> None:
    world = Node()  # Q33
    data = batch_at(world.log.end_offset, 1)
    world.log.append_fetched(data, now_ms=1)
    image = world.image._replace(offset=world.log.end_offset - 1)
    delta = Replay(image).finish(offset=image.offset, epoch=1)
    world.report(delta, 5000)
    assert world.stored() == []
    assert world.snapshotter.counters.failed == 1
    assert "committed" in world.warnings[0]


def test_what_is_here_already_is_quietly_not_made_again() -> None:
    world = Node()
    world.apply(topic(0), size_bytes=1000)
    world.finish()
    delta = Replay(world.image).finish(offset=world.image.offset, epoch=1)
    world.report(delta, 5000)
    assert not world.snapshotter.is_emitting
    assert world.warnings == []
    assert world.snapshotter.counters.failed == 0


# ------------------------------------------------------------------------------------ how


def test_the_order_is_sync_then_name_then_sync_of_the_name_then_it_counts() -> None:
    world = Node()  # Q9
    world.apply(topic(0), size_bytes=1000)
    name = snapshot_name(OffsetAndEpoch(2, 1))
    while isinstance(world.waiting[0], SetTimer):
        world.turn()
    assert name not in world.fs.list_dir(DIR), "not before its bytes are on disk"
    world.turn()
    assert name in world.fs.list_dir(DIR)
    assert world.stored() == [], "not before its name is on disk"
    world.turn()
    assert world.stored() == [OffsetAndEpoch(2, 1)]
    assert not world.waiting


def test_what_is_counted_says_how_large_and_how_long() -> None:
    world = Node()
    assert world.snapshotter.counters == SnapshotCounters()
    world.apply(topic(0), size_bytes=1000)
    world.turn()
    world.now_ms += 30
    world.finish()
    counters = world.snapshotter.counters
    assert counters.generated == 1
    assert counters.latest_size_bytes == world.log.snapshot_sizes()[0][1]
    assert counters.latest_generated_at_ms == world.now_ms
    assert counters.latest_latency_ms == counters.total_latency_ms == 30


@pytest.mark.parametrize(
    ("operation", "path", "skip"),
    [
        ("open", ".part", 0),
        ("append", ".part", 0),
        ("append", ".part", 1),
        ("sync", ".part", 0),
        ("rename", ".part", 0),
        ("sync_dir", DIR, 0),
    ],
)
def test_a_snapshot_that_fails_is_reported_and_the_log_goes_on(
    operation: Any, path: str, skip: int
) -> None:
    world = Node()  # Q34
    world.apply(topic(0), size_bytes=999)
    world.fs.fail(operation, path, "ENOSPC", skip=skip)
    world.snapshotter.on_loaded(record_count=1, now_ms=world.now_ms)
    delta = Replay(world.image).finish(offset=world.log.end_offset - 1, epoch=1)
    world.report(delta, 1000)
    world.finish()
    assert world.stored() == []
    assert world.snapshotter.counters.failed == 1
    assert len(world.warnings) == 1
    assert "ENOSPC" in world.warnings[0]
    assert not [n for n in world.fs.list_dir(DIR) if ".checkpoint" in n], "nothing is left"
    world.apply(topic(1), ms=500)
    assert not world.snapshotter.is_emitting, "not at once"
    world.wait()
    world.finish()
    assert len(world.stored()) == 1, "without another byte"
    check(world.log, world.fs)


def test_after_each_failure_the_next_try_is_later_and_success_ends_that() -> None:
    """Q34: what was counted stays counted; a full disk is not asked every second for ever."""
    world = Node()
    world.fs.fail("sync", ".part", "ENOSPC", times=11)
    world.apply(topic(0), size_bytes=1000)
    waits = []
    for _ in range(11):
        world.finish()
        before_ms = world.now_ms
        world.wait()
        waits.append(world.now_ms - before_ms)
    assert waits == [*(1000 * 2**n for n in range(9)), 300_000, 300_000]
    assert "next_try_s=300" in world.warnings[-1]
    world.finish()
    assert (world.snapshotter.counters.failed, len(world.stored())) == (11, 1)
    world.apply(topic(1), size_bytes=999)
    assert not world.snapshotter.is_emitting, "the count began anew with the one that is there"
    world.fs.fail("sync", ".part", "ENOSPC")
    world.apply(topic(2), size_bytes=1)
    world.finish()
    before_ms = world.now_ms
    world.wait()
    assert world.now_ms - before_ms == 1000


def test_time_that_passed_before_a_failure_counts_too() -> None:
    world = Node(SnapshotSettings(max_new_record_bytes=10**9, max_interval_ms=500_000))
    world.fs.fail("sync", ".part", "EIO")
    world.apply(topic(0), ms=500_000)
    world.finish()
    assert world.snapshotter.counters.failed == 1
    world.wait()
    world.finish()
    assert len(world.stored()) == 1


# ------------------------------------------------------------------------------------ by hand


def asked(world: Node) -> list[Any]:
    answers: list[Any] = []

    def then(outcome: Any, now_ms: int) -> Effects:
        answers.append(outcome)
        return []

    world.run(world.snapshotter.take(then, world.now_ms))
    return answers


def test_a_snapshot_is_taken_when_somebody_asks_though_it_is_not_due() -> None:
    world = Node()
    world.apply(topic(0), size_bytes=1)
    answers = asked(world)
    world.finish()
    assert answers == world.stored() == [OffsetAndEpoch(2, 1)]
    assert asked(world) == [OffsetAndEpoch(2, 1)], "what is here already is not made again"
    assert world.snapshotter.counters.generated == 1
    (line,) = world.notes
    assert snapshot_name(OffsetAndEpoch(2, 1)) in line


def test_who_asks_while_one_is_on_its_way_learns_of_that_one() -> None:
    world = Node()
    world.apply(topic(0), size_bytes=1000)
    world.apply(topic(1))
    answers = asked(world)
    world.finish()
    assert answers == [OffsetAndEpoch(2, 1)]


def test_who_asks_learns_why_there_is_none() -> None:
    world = Node()
    world.fs.fail("append", ".part", "ENOSPC")
    world.apply(topic(0))
    answers = asked(world)
    world.finish()
    (problem,) = answers
    assert "ENOSPC" in str(problem)


def test_who_asks_before_anything_is_loaded_learns_so() -> None:
    world = Node()
    world.snapshotter.stop()
    (problem,) = asked(world)
    assert problem.code is Code.COORDINATOR_LOAD_IN_PROGRESS


def test_who_asks_while_the_leaders_snapshot_comes_learns_so() -> None:
    world = Node()
    world.apply(topic(0), size_bytes=1000)
    answers = asked(world)
    world.run(world.snapshotter.on_loaded(record_count=1, now_ms=world.now_ms))
    (problem,) = answers
    assert problem.code is Code.REQUEST_TIMED_OUT


def test_a_record_that_cannot_be_written_down_does_not_stop_the_log() -> None:
    world = Node()  # Q34
    world.apply(topic(0), size_bytes=500)
    features: Any = Map({METADATA_VERSION: 30, "x": "no number"})  # a bug of ours
    bad = world.image._replace(features=features)
    world.report(Replay(bad).finish(offset=world.image.offset, epoch=1), 1000)
    world.finish()
    assert world.snapshotter.counters.failed == 1
    assert len(world.warnings) == 1


def test_a_snapshot_of_a_leader_replaces_one_that_is_being_taken() -> None:
    for steps in range(5):
        world = Node()
        world.apply(topic(0), *(partition(0, n) for n in range(300)), size_bytes=1000)
        for _ in range(min(steps, 3)):
            world.turn()
        if steps == 4:
            while isinstance(world.waiting[0], SetTimer):
                world.turn()
            world.turn()  # it has its name, not durably yet
        ahead = OffsetAndEpoch(world.log.end_offset + 50, 2)
        install(world.log, ahead)
        world.run(world.snapshotter.on_loaded(record_count=1, now_ms=world.now_ms))
        assert not world.snapshotter.is_emitting
        world.finish()
        assert world.stored() == [ahead]
        assert world.snapshotter.counters.generated == 0
        check(world.log, world.fs)
        world.image = world.image._replace(offset=ahead.offset - 1, epoch=2)
        world.write(1, epoch=2)
        world.report(
            Replay(world.image).finish(offset=world.log.end_offset - 1, epoch=2), size_bytes=1000
        )
        world.finish()
        assert world.stored() == [ahead, OffsetAndEpoch(ahead.offset + 1, 2)]


def test_a_part_is_not_closed_while_a_thread_syncs_it() -> None:
    world = Node()
    world.apply(topic(0), size_bytes=1000)
    while isinstance(world.waiting[0], SetTimer):
        world.turn()
    world.snapshotter.stop()
    assert [n for n in world.fs.list_dir(DIR) if n.endswith(".part")]
    world.finish()
    assert not [n for n in world.fs.list_dir(DIR) if n.endswith(".part")]
    assert world.stored() == []


def test_a_node_that_stops_leaves_a_part_that_the_next_start_removes() -> None:
    world = Node()
    world.apply(topic(0), size_bytes=1000)
    world.turn()
    world.snapshotter.stop()
    assert not [n for n in world.fs.list_dir(DIR) if n.endswith(".part")]
    world.finish()
    assert world.stored() == []
