"""A quorum of one on a disk takes snapshots while it leads, and starts from them."""

from typing import Any

from firnline.base.ids import OffsetAndEpoch
from firnline.metadata import records as r
from firnline.metadata.format import format_storage
from firnline.metadata.loader import Loader
from firnline.metadata.meta_log import QuorumStateFile, open_meta_log
from firnline.metadata.quorum import MetadataQuorum
from firnline.metadata.result import ControllerResult
from firnline.metadata.snapshot_file import read_snapshot, snapshot_name
from firnline.metadata.snapshotter import SnapshotSettings
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import CountingRng
from tests.worlds.quorum import VOTERS, Loop, broker_config

CONFIG = broker_config()
DIR = "/data/__cluster_metadata-0"
SNAPSHOT = ("metadata", "snapshot")
NO_RULES = SnapshotSettings()


class Running:
    """One life of the node. Syncs are done at once; snapshots go on when the test says so."""

    def __init__(self, fs: CrashableFs, snapshotting: SnapshotSettings) -> None:
        self.loop, self.answers = Loop(), list[Any]()
        self.log = open_meta_log(fs, CONFIG, now_ms=self.loop.now_ms)
        self.quorum = MetadataQuorum(
            node_id=1,
            cluster_id="c",
            directory_id=bytes(16),
            voters=VOTERS,
            log=self.log,
            elections=QuorumStateFile(fs, DIR, VOTERS.node_ids),
            rng=CountingRng(1_001),
            idle_interval_ms=0,
            snapshotting=snapshotting,
        )
        self.loop.run(self.quorum.start(self.loop.now_ms))
        self.sync()

    def sync(self) -> None:
        self.loop.sync()

    def set(self, topic: int, value: str = "1") -> None:
        record = r.ConfigRecord(
            resource_type=2, resource_name=f"t{topic}", name="x", value=value * 100
        )

        def then(answer: Any, now_ms: int) -> list[Any]:
            self.answers.append(answer)
            return []

        self.loop.run(self.quorum.write(ControllerResult([record], topic), then, self.loop.now_ms))
        self.sync()

    def snapshot_turn(self) -> bool:
        """Let a snapshot that is on its way go one step; False when there is none."""
        if SNAPSHOT in self.loop.timers:
            self.loop.fire(SNAPSHOT)
            return True
        if self.loop.work:
            self.loop.work_once()
            return True
        return False

    def restarted(self, fs: CrashableFs, snapshotting: SnapshotSettings = NO_RULES) -> "Running":
        self.quorum.close()
        self.log.close()
        return Running(fs, snapshotting)

    def finish(self) -> None:
        while self.snapshot_turn():
            pass


def a_disk() -> CrashableFs:
    fs = CrashableFs()
    format_storage(fs, CONFIG, cluster_id="c", rng=CountingRng(1_001), now_ms=1)
    return fs


def test_a_leader_takes_a_snapshot_while_it_leads_and_goes_on_deciding() -> None:
    """Q53: nobody waits, nobody resigns; a voter alone does it too."""
    running = Running(a_disk(), SnapshotSettings(max_new_record_bytes=2_000))
    topic = 0
    while not running.quorum.snapshotter.is_emitting:
        running.set(topic := topic + 1)
    assert running.log.size_bytes > 2_000
    taken_at = running.quorum.image
    while running.snapshot_turn():
        running.set(topic := topic + 1)
    assert running.answers == list(range(1, topic + 1)), "each answered, in order"
    assert running.quorum.is_active
    expected = OffsetAndEpoch(taken_at.offset + 1, taken_at.epoch)
    assert running.log.newest_snapshot_id == expected
    assert running.quorum.snapshotter.counters.generated == 1


def test_the_next_start_loads_the_snapshot_and_what_follows_it() -> None:
    """rel-Q9: and it is what the whole log says."""
    fs = a_disk()
    running = Running(fs, SnapshotSettings(max_new_record_bytes=1_000))
    for topic in range(40):
        running.set(topic)
        while running.snapshot_turn():
            pass
    assert len(running.log.snapshot_sizes()) > 2
    again = running.restarted(fs)
    complete = Loader()
    while complete.next_offset < again.log.end_offset:
        complete.apply(again.log.read(complete.next_offset, max_bytes=1 << 20))
    assert again.quorum.image == complete.image()
    assert len(again.quorum.image.configs) == 40


def test_an_hour_is_reason_enough_for_a_snapshot() -> None:
    """Q30: bytes or time, whichever comes first."""
    running = Running(a_disk(), SnapshotSettings(max_interval_ms=3_600_000))
    running.loop.now_ms += 3_599_000
    running.set(1)
    assert not running.quorum.snapshotter.is_emitting
    running.loop.now_ms += 2_000
    running.set(2)
    assert running.quorum.snapshotter.is_emitting


def test_a_node_that_stops_leaves_no_half_of_a_snapshot() -> None:
    fs = a_disk()
    running = Running(fs, SnapshotSettings(max_new_record_bytes=1_000))
    topic = 0
    while not running.quorum.snapshotter.is_emitting:
        running.set(topic := topic + 1)
    assert any(".part" in name for name in fs.list_dir(DIR))
    running.quorum.close()
    assert not any(".checkpoint" in name for name in fs.list_dir(DIR))


def test_what_the_log_had_since_its_last_snapshot_counts_after_a_restart_too() -> None:
    """Otherwise a node that restarts often would never take one."""
    fs = a_disk()
    running = Running(fs, SnapshotSettings())
    for topic in range(20):
        running.set(topic)
    running.quorum.close()
    running.log.close()
    again = Running(fs, SnapshotSettings(max_new_record_bytes=3_000))
    assert again.quorum.snapshotter.is_emitting or again.log.newest_snapshot_id is not None


def test_a_snapshot_that_a_replica_cannot_load_is_replaced_by_another() -> None:
    running = Running(a_disk(), SnapshotSettings(max_new_record_bytes=1_000))
    topic = 0
    while running.log.newest_snapshot_id is None:
        running.set(topic := topic + 1)
        running.finish()
    first = running.log.newest_snapshot_id
    running.set(topic + 1)
    running.loop.run(running.quorum.on_useless_snapshot(first, 9, running.loop.now_ms))
    running.finish()
    newest = running.log.newest_snapshot_id
    assert newest is not None
    assert newest.offset > first.offset
    (line,) = running.loop.warnings
    assert "another node cannot load the metadata snapshot node=9" in line
    assert snapshot_name(first) in line


def test_what_changed_before_a_restart_counts_for_the_ratio_after_it() -> None:
    """Q50, of a voter alone, which publishes all of its log as one change."""
    fs = a_disk()
    rules = SnapshotSettings(max_new_record_bytes=2_000, min_changed_ratio=0.9)
    running = Running(fs, rules)
    for topic in range(12):
        running.set(topic)
        running.finish()
    first = running.log.newest_snapshot_id
    assert first is not None
    there = sum(1 for resource in running.quorum.image.configs)
    running = running.restarted(fs, rules)
    for topic in range(there - 2):
        running.set(topic, "2")
        running = running.restarted(fs, rules)
    assert running.log.newest_snapshot_id == first, "not nine tenths"
    for topic in range(there - 2, there):
        running.set(topic, "2")
        running.finish()
    running.finish()
    assert running.log.newest_snapshot_id != first


def test_records_of_a_loaded_snapshot_are_counted_while_they_are_read() -> None:
    """Not in one step afterwards: an image of a million partitions would hold up everybody."""
    fs = a_disk()
    rules = SnapshotSettings(max_new_record_bytes=2_000, min_changed_ratio=0.5)
    running = Running(fs, rules)
    topic = 0
    while running.log.newest_snapshot_id is None:
        running.set(topic := topic + 1)
        running.finish()
    again = running.restarted(fs, rules)
    taken = again.log.newest_snapshot_id
    assert taken is not None
    content = read_snapshot(fs, f"{DIR}/{snapshot_name(taken)}").records
    assert again.quorum.snapshotter.record_count == len(content) > 5


def test_the_time_of_a_load_is_the_time_of_its_work() -> None:
    """Also of one that is over within its first step: the event that began it knows only when it began."""
    fs = a_disk()
    running = Running(fs, SnapshotSettings(max_new_record_bytes=1_000))
    for topic in range(10):
        running.set(topic)
        running.finish()
    again = running.restarted(fs)
    assert again.quorum.load_latencies.count == 0
    again.loop.now_ms += 140
    again.loop.fire(("metadata", "loaded"))
    assert again.quorum.load_latencies.sum_ms == 140
    (line,) = [line for line in again.loop.notes if "loaded" in line]
    assert "took_ms=140" in line
