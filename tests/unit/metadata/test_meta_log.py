"""The metadata log on a disk that loses power: what was answered is never lost."""

from typing import Any

import pytest

from firnline.base.effects import Submit
from firnline.base.errors import ConfigError, StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.config.broker import BrokerConfig
from firnline.log.directory import LogDirectory
from firnline.metadata import records as r
from firnline.metadata.format import format_storage
from firnline.metadata.image import ResourceType
from firnline.metadata.meta_log import MetaLog, QuorumStateFile, open_meta_log
from firnline.metadata.quorum import MetadataQuorum
from firnline.metadata.result import ControllerResult
from firnline.metadata.snapshot_file import snapshot_batches, snapshot_name, write_snapshot
from firnline.raft.election_state import ElectionState
from firnline.records.batch import CRC_START, HEADER_BYTES, headers
from firnline.records.build import NewRecord, build_batch
from firnline.records.control import (
    ControlType,
    KRaftVersionRecord,
    SnapshotHeaderRecord,
    encode_key,
    encode_value,
)
from firnline.sim.disk import CrashableFs, Operation
from tests.worlds.chance import CountingRng, SeededRng
from tests.worlds.decoded import image_records
from tests.worlds.effects import only
from tests.worlds.meta_log import in_use
from tests.worlds.quorum import VOTERS, Loop, broker_config
from tests.worlds.recovery import overwrite, read_file

CONFIG = broker_config()
DIR = "/data/__cluster_metadata-0"


def a_disk() -> CrashableFs:
    fs = CrashableFs()
    format_storage(fs, CONFIG, cluster_id="c", rng=SeededRng(1), now_ms=1)
    return fs


class Running:
    """A quorum of one on a disk; `set` writes one setting and remembers when it was answered."""

    def __init__(
        self,
        fs: CrashableFs,
        config: BrokerConfig = CONFIG,
        directory: LogDirectory | None = None,
    ) -> None:
        self.loop = Loop()
        self.log = open_meta_log(fs, config, now_ms=self.loop.now_ms, directory=directory)
        self.quorum = MetadataQuorum(
            node_id=1,
            voters=VOTERS,
            log=self.log,
            cluster_id="c",
            directory_id=bytes(16),
            rng=CountingRng(1_001),
            elections=QuorumStateFile(fs, DIR, VOTERS.node_ids),
            idle_interval_ms=500,
        )
        self.answered: dict[str, str] = {}
        self.loop.run(self.quorum.start(self.loop.now_ms))
        self.sync()

    def sync(self) -> None:
        """Do what the runtime does with each flush: sync the files, in order, then report."""
        self.loop.sync()

    def set(self, key: str, value: str) -> None:
        record = r.ConfigRecord(
            resource_type=ResourceType.TOPIC, resource_name="t", name=key, value=value
        )

        def then(response: Any, now_ms: int) -> list[Any]:
            self.answered[key] = value
            return []

        self.loop.run(self.quorum.write(ControllerResult([record], None), then, self.loop.now_ms))

    @property
    def settings(self) -> dict[str, str]:
        return dict(self.quorum.image.topic_config_overrides("t"))


def test_the_directory_has_kafkas_files() -> None:
    """Q5."""
    fs = a_disk()
    Running(fs)
    names = fs.list_dir(DIR)
    for name in ("quorum-state", "partition.metadata", "leader-epoch-checkpoint"):
        assert name in names
    assert "00000000000000000000.log" in names
    identity = fs.open(f"{DIR}/partition.metadata")
    text = identity.read(0, identity.size())
    assert text == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    state = fs.open(f"{DIR}/quorum-state")
    assert b'"leaderId":1,"leaderEpoch":1,"votedId":-1' in state.read(0, state.size())


@pytest.mark.parametrize("seed", range(60))
def test_no_answered_change_is_lost_by_a_power_cut(seed: int) -> None:
    """Goal: acknowledged metadata survives; what was not acknowledged is there whole or not at all.
    Method: write, sync now and then, cut the power at a random moment, start again, three times."""
    dice = SeededRng(seed)
    fs = a_disk()
    kept: dict[str, str] = {}
    tried: dict[str, list[str]] = {}
    epoch = 0
    for life in range(4):
        running = Running(fs)
        assert running.quorum.epoch > epoch
        epoch = running.quorum.epoch
        found = running.settings
        for key, value in kept.items():
            assert found.get(key) in [value, *tried[key][tried[key].index(value) :]], (life, key)
        for key, value in found.items():
            assert value in tried[key], "a value that nobody wrote"
        # What a start has shown is committed by its first record: it may not go either.
        kept = dict(found)
        for step in range(dice.below(12)):
            key, value = f"k{dice.below(4)}", f"{life}.{step}"
            tried.setdefault(key, []).append(value)
            running.set(key, value)
            if dice.below(3) == 0:
                running.sync()
        kept |= running.answered
        fs = fs.crash(dice)


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_at_any_failing_operation_loses_nothing_answered(seed: int) -> None:
    """Faults, not only cuts: the disk fails once, the node dies of it, and the next start is whole."""
    dice = SeededRng(seed)
    fs = a_disk()
    operations: list[Operation] = ["append", "sync", "rename", "sync_dir"]
    operation = operations[seed % 4]
    fs.fail(operation, "__cluster_metadata", "EIO", skip=dice.below(12))
    kept: dict[str, str] = {}
    running: Running | None = None
    try:
        running = Running(fs)
        for step in range(8):
            running.set(f"k{step}", "v")
            running.sync()
    except StorageError:
        pass
    if running is not None:
        kept = dict(running.answered)
    again = Running(fs.crash(dice))
    assert again.settings.items() >= kept.items()
    again.set("after", "v")
    again.sync()
    assert again.settings["after"] == "v"


def test_epochs_never_repeat_over_crashes_at_the_worst_moment() -> None:
    """Q15: the vote is durable before the first record of its epoch is."""
    fs, seen = a_disk(), []
    for seed in range(8):
        running = Running(fs)
        seen.append(running.quorum.epoch)
        fs = fs.crash(SeededRng(seed), keep="none")
    assert seen == sorted(set(seen))


def test_a_clean_stop_and_a_restart_continue_where_it_ended() -> None:
    fs = a_disk()
    running = Running(fs)
    running.set("k", "v")
    running.sync()
    running.log.close()
    log = open_meta_log(fs, CONFIG, now_ms=1)
    assert log.end_offset == running.quorum.next_offset
    assert log.last_epoch == 1
    assert Running(fs).settings == {"k": "v"}


def with_snapshot(fs: CrashableFs, *, ahead: int = 0) -> int:
    """Write a snapshot of everything at the log's end, or ahead of it; return its end offset."""
    running = Running(fs)
    running.set("k", "v")
    running.sync()
    running.log.close()
    end_offset = running.quorum.next_offset + ahead
    batches = snapshot_batches(
        image_records(running.quorum.image),
        epoch=1,
        metadata_version=30,
        last_contained_ms=1,
        now_ms=1,
    )
    write_snapshot(fs, DIR, snapshot_name(OffsetAndEpoch(end_offset, 1)), batches)
    return end_offset


def test_a_snapshot_ahead_of_the_log_wins() -> None:
    """Q44: the node stopped between the rename and the truncation."""
    fs = a_disk()
    end_offset = with_snapshot(fs, ahead=100)
    running = Running(fs)
    assert running.settings == {"k": "v"}
    assert running.log.start_offset == end_offset
    assert running.quorum.next_offset == end_offset + 1  # the leader change
    assert running.quorum.epoch == 2
    assert Running(fs).settings == {"k": "v"}


def test_a_snapshot_and_the_log_after_it_are_read_together() -> None:
    fs = a_disk()
    with_snapshot(fs)
    running = Running(fs)
    running.set("k", "w")
    running.sync()
    running.log.close()
    assert Running(fs).settings == {"k": "w"}


def test_a_damaged_snapshot_is_refused_by_path_and_not_skipped() -> None:
    fs = a_disk()
    with_snapshot(fs, ahead=100)
    (name,) = [n for n in fs.list_dir(DIR) if n.endswith(".checkpoint")]
    file = fs.open(f"{DIR}/{name}")
    file.truncate(file.size() - 10)
    with pytest.raises(StorageError, match="damaged"):
        Running(fs)


def stopped_cleanly(fs: CrashableFs) -> int:
    """Write settings before and after a snapshot, and stop in order; return where the snapshot ends."""
    end_offset = with_snapshot(fs)
    directory = in_use(fs)
    running = Running(fs, directory=directory)
    running.set("k", "w")
    running.set("l", "x")
    running.sync()
    running.log.close()
    directory.close()
    return end_offset


def test_no_bit_flips_in_a_log_that_was_stopped_in_order_and_changes_the_metadata() -> None:
    """Recovery reads nothing then. What the snapshot has is not read either; the rest is checked."""
    fs = a_disk()
    end_offset = stopped_cleanly(fs)
    path = f"{DIR}/{0:020d}.log"
    data = read_file(fs, path)
    for place in range(len(data)):
        header = [each for each in headers(data) if each.position <= place][-1]
        fs = a_disk()
        stopped_cleanly(fs)
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        overwrite(fs, path, bytes(flipped))
        told = ""
        try:
            running = Running(fs, directory=in_use(fs))
        except StorageError as problem:
            told = str(problem)
        else:
            assert running.settings == {"k": "w", "l": "x"}, place
            assert running.quorum.epoch == 3, place
        in_batch = place - header.position
        if header.base_offset >= end_offset and in_batch >= CRC_START:
            assert "damaged" in told, place
            assert f"path={DIR}" in told
            assert "remedy=" in told
        elif header.next_offset < end_offset and in_batch >= HEADER_BYTES:
            assert not told, place


def test_the_dynamic_voters_of_kafkas_standalone_format_are_not_overlooked() -> None:
    """Goal: no static quorum over KIP-853's. Method: the 0-0 snapshot that `format --standalone` leaves."""
    fs = a_disk()
    fs.make_dir(DIR)
    rows = [
        NewRecord(encode_key(kind), encode_value(value), 1)
        for kind, value in (
            (ControlType.SNAPSHOT_HEADER, SnapshotHeaderRecord()),
            (ControlType.KRAFT_VERSION, KRaftVersionRecord(kraft_version=1)),
        )
    ]
    end = snapshot_batches([], epoch=0, metadata_version=30, last_contained_ms=0, now_ms=1)
    batches = [build_batch(rows, is_control=True), list(end)[-1]]
    write_snapshot(fs, DIR, snapshot_name(OffsetAndEpoch(0, 0)), batches)
    with pytest.raises(ConfigError, match="dynamic voters"):
        Running(fs)
    assert not fs.exists(f"{DIR}/quorum-state")


def save(store: QuorumStateFile, state: ElectionState) -> None:
    """Do what the runtime does with it; raise what went wrong."""
    submit = only(store.save(state, lambda problem, now_ms: [], 1), Submit)
    assert submit.pool == "votes", "a pool of its own: nothing of another disk is before it"
    submit.work()


def test_an_election_is_saved_in_full_or_not_at_all() -> None:
    for seed in range(20):
        fs = a_disk()
        fs.make_dir(DIR)
        fs.sync_dir("/data")
        store = QuorumStateFile(fs, DIR, (1,))
        assert store.load() is None
        save(store, ElectionState(1, leader_id=1))
        fs.fail(("append", "sync", "rename", "sync_dir")[seed % 4], "quorum-state", "EIO")
        fs.fail("sync_dir", DIR, "EIO")
        with pytest.raises(StorageError):
            save(store, ElectionState(2, voted_id=1))
        found = QuorumStateFile(fs.crash(SeededRng(seed)), DIR, (1,)).load()
        assert found in (ElectionState(1, leader_id=1), ElectionState(2, voted_id=1))


def test_a_vote_that_is_believed_after_a_failed_disk_survives_the_next_power_cut() -> None:
    """rel-P2: it has its name and the name was not synced; a node that acts on it could vote twice."""
    fs = a_disk()
    fs.make_dir(DIR)
    fs.sync_dir("/data")
    store = QuorumStateFile(fs, DIR, (1,))
    save(store, ElectionState(1, leader_id=1))
    fs.fail("sync_dir", DIR, "EIO")
    with pytest.raises(StorageError):
        save(store, ElectionState(2, voted_id=1))
    fs = fs.kill()
    assert QuorumStateFile(fs, DIR, (1,)).load() == ElectionState(2, voted_id=1)
    after = fs.crash(SeededRng(1), keep="none")
    assert QuorumStateFile(after, DIR, (1,)).load() == ElectionState(2, voted_id=1)


def test_a_kill_anywhere_in_the_first_start_leaves_nothing_that_a_power_cut_takes_later() -> None:
    """The name of the directory as well: with it would go all that was voted and acknowledged there."""
    for number in range(30):
        fs = a_disk()
        fs.fail("sync_dir", "", "EIO", skip=number)
        try:
            Running(fs)
        except StorageError:
            fs = fs.kill()
        else:
            assert number > 3
            return
        again = Running(fs)
        again.set("a", "1")
        again.sync()
        assert again.answered == {"a": "1"}
        assert Running(fs.crash(SeededRng(number), keep="none")).settings == {"a": "1"}
    raise AssertionError("a start that syncs without end")


def test_a_directory_without_bootstrap_records_says_what_to_do() -> None:
    fs = a_disk()
    fs.remove("/data/bootstrap.checkpoint")
    with pytest.raises(Exception, match="storage format"):
        Running(fs)


def test_a_batch_the_log_refuses_is_an_error_and_not_a_commit() -> None:
    fs = a_disk()
    running = Running(fs)
    log: MetaLog = running.log
    with pytest.raises(StorageError, match="refused"):
        log.append(bytearray(b"\x00" * 70), epoch=1, now_ms=1)
