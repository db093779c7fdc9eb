"""The metadata log against a simple model of it, over appends, snapshots, power cuts and restarts."""

import random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from firnline.base.ids import OffsetAndEpoch
from firnline.raft.snapshot_rules import check_creation
from firnline.records.build import NewRecord, build_batch
from tests.worlds.chance import SeededRng
from tests.worlds.meta_log import (
    DELETE_DELAY_MS,
    NOW,
    CuttingFs,
    PowerCut,
    a_disk,
    batch_at,
    check,
    found,
    freeze,
    ids,
    in_use,
    install,
    opened,
    retire,
    snapshot_bytes,
    sync,
    truncate,
)


class MetaLogMachine(RuleBasedStateMachine):
    """The model: an epoch an offset, what of them is synced and committed, and the ids of snapshots."""

    @initialize(has_directory=st.booleans())
    def begin(self, has_directory: bool) -> None:
        self.fs: CuttingFs = a_disk(CuttingFs)
        # The checkpoint of a log directory says what needs no look at the next start.
        self.has_directory = has_directory
        self.start_up()
        self.start = self.synced = self.committed = 0
        self.batches: list[tuple[int, int, int]] = []  # offset, end offset, epoch
        self.snapshots: list[OffsetAndEpoch] = []
        self.version = 0

    def start_up(self) -> None:
        self.directory = in_use(self.fs) if self.has_directory else None
        self.log = opened(self.fs, self.directory)

    # -- what the model says -------------------------------------------------------------------

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else max(self.start, self.base)

    @property
    def base(self) -> int:
        return self.snapshots[-1].offset if self.snapshots and not self.batches else 0

    @property
    def epoch(self) -> int:
        if self.batches:
            return self.batches[-1][2]
        return self.snapshots[-1].epoch if self.snapshots else 0

    def epoch_before(self, offset: int) -> int:
        """Epoch of the record before a place that is the end of a batch."""
        held = [epoch for _, end, epoch in self.batches if end == offset]
        return held[0] if held else self.snapshots[-1].epoch

    def ends(self) -> list[int]:
        return [end for _, end, _ in self.batches if end > self.start]

    # -- the log -------------------------------------------------------------------------------

    @rule(step=st.integers(0, 2), counts=st.lists(st.integers(1, 4), min_size=1, max_size=3))
    def fetch(self, step: int, counts: list[int]) -> None:
        """Take batches of a leader."""
        epoch, offset, data = max(1, self.epoch + step), self.end, b""
        for count in counts:
            data += batch_at(offset, epoch, count, f"/{self.version}")
            self.batches.append((offset, offset + count, epoch))
            offset += count
        assert self.log.append_fetched(data + data[:30], now_ms=NOW) is None

    @rule(step=st.integers(0, 2), count=st.integers(1, 4))
    def lead(self, step: int, count: int) -> None:
        """Append a batch as leader."""
        epoch, offset = max(1, self.epoch + step), self.end
        rows = [NewRecord(None, b"own".ljust(30), NOW)] * count
        batch = build_batch(rows)
        assert self.log.append(batch, epoch=epoch, now_ms=NOW) == offset
        self.batches.append((offset, offset + count, epoch))

    @rule()
    def sync(self) -> None:
        sync(self.log)
        self.synced = self.end

    @precondition(lambda self: self.directory is not None)
    @rule()
    def checkpoint(self) -> None:
        """What is on the disk is written down."""
        assert self.directory is not None
        self.directory.checkpoint()

    @rule(which=st.integers(0, 100))
    def commit(self, which: int) -> None:
        # A majority may have synced what this node has not.
        ends = [end for end in self.ends() if self.committed < end]
        if ends:
            self.committed = ends[which % len(ends)]
            self.log.advance_high_watermark(self.committed)

    @rule(which=st.integers(0, 100))
    def truncate(self, which: int) -> None:
        """Give up a tail that nobody committed."""
        ends = [end for end in self.ends() if end >= self.committed]
        if ends:
            offset = ends[which % len(ends)]
            truncate(self.log, offset)
            self.batches = [batch for batch in self.batches if batch[1] <= offset]
            self.synced = min(self.synced, offset)
            self.version += 1

    # -- snapshots -----------------------------------------------------------------------------

    @rule()
    def snapshot(self) -> None:
        """Take one of what is committed."""
        if self.committed == 0:
            return
        snapshot_id = OffsetAndEpoch(self.committed, self.epoch_before(self.committed))
        verdict = check_creation(self.log, snapshot_id, high_watermark=self.committed)
        is_newer = not self.snapshots or snapshot_id.offset > self.snapshots[-1].offset
        assert verdict is is_newer
        if is_newer:
            freeze(self.log, snapshot_id)
            self.snapshots.append(snapshot_id)

    @precondition(lambda self: self.snapshots)
    @rule(which=st.integers(0, 100), is_late=st.booleans())
    def retire(self, which: int, is_late: bool) -> None:
        """Let the log start at one of the snapshots."""
        chosen = self.snapshots[which % len(self.snapshots)]
        world = retire(self.log, chosen.offset)
        if chosen.offset > self.start:
            self.synced = self.end  # all of the log is synced with it
        self.start_at(chosen.offset)
        if is_late:
            world.pass_time(DELETE_DELAY_MS)

    def start_at(self, offset: int) -> None:
        if offset > self.start:
            self.start = offset
            self.snapshots = [one for one in self.snapshots if one.offset >= offset]

    @rule(gap=st.integers(1, 5), step=st.integers(0, 2))
    def install(self, gap: int, step: int) -> None:
        """Take over a leader's snapshot from beyond the log."""
        self.version += 1
        snapshot_id = OffsetAndEpoch(self.end + gap, max(1, self.epoch + step))
        install(self.log, snapshot_id)
        self.installed(snapshot_id)

    def installed(self, snapshot_id: OffsetAndEpoch) -> None:
        self.batches, self.snapshots = [], [snapshot_id]
        self.start = self.synced = self.committed = snapshot_id.offset

    # -- stops ---------------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        """A clean stop: nothing is lost."""
        self.log.close()
        if self.directory is not None:
            self.directory.close()
        self.start_up()
        sync(self.log)
        self.synced = self.end

    @rule(rng=st.randoms(use_true_random=False), keep=st.sampled_from(["none", "some", "all"]))
    def lose_power(self, rng: random.Random, keep: Any) -> None:
        """What was synced is there, and of the rest a first part."""
        self.come_back(SeededRng(rng), keep)

    @precondition(lambda self: self.snapshots)
    @rule(
        rng=st.randoms(use_true_random=False),
        keep=st.sampled_from(["none", "some"]),
        what=st.sampled_from(["install", "retire"]),
        after=st.integers(0, 25),
    )
    def lose_power_within(self, rng: random.Random, keep: Any, what: str, after: int) -> None:
        """The power goes while a snapshot is installed, or while old ones are retired."""
        newest = self.snapshots[-1]
        target = OffsetAndEpoch(self.end + 3, self.epoch + 1)
        is_install = what == "install"
        self.fs.cut_at = self.fs.count + after
        try:
            if is_install:
                install(self.log, target)
                self.installed(target)
            else:
                retire(self.log, newest.offset)
                self.start_at(newest.offset)
        except PowerCut:
            pass
        self.come_back(SeededRng(rng), keep, torn=target if is_install else newest)

    def come_back(self, dice: SeededRng, keep: Any, torn: OffsetAndEpoch | None = None) -> None:
        self.fs = self.fs.crash(dice, keep=keep)  # type: ignore[assignment]
        self.fs.__class__ = CuttingFs
        self.start_up()
        newest, end = self.log.newest_snapshot_id, self.log.end_offset
        if newest is not None and newest == torn and newest not in self.snapshots:
            self.installed(newest)  # the cut came after its rename was durable
        elif newest is not None and self.synced < newest.offset == end == self.log.start_offset:
            # Less of the log may have survived than the snapshot holds: it was begun anew there (Q44).
            self.installed(newest)
        if torn is not None and self.log.start_offset == torn.offset:
            self.start_at(torn.offset)
        assert self.log.end_offset >= self.synced, "what was synced survives"
        self.batches = [batch for batch in self.batches if batch[1] <= end]
        sync(self.log)
        self.synced = self.end
        self.committed = min(self.committed, end)
        self.log.advance_high_watermark(self.committed)
        self.version += 1

    # -- always --------------------------------------------------------------------------------

    @invariant()
    def the_log_is_what_the_model_says(self) -> None:
        log = self.log
        assert ids(log) == self.snapshots
        assert (log.start_offset, log.end_offset) == (self.start, self.end)
        assert log.last_epoch == self.epoch
        assert log.synced_offset <= self.end
        kept = [(at, epoch) for at, _, epoch in self.batches if at >= self.start]
        assert [row[:2] for row in found(log)] == kept
        check(log, self.fs)
        for snapshot_id in self.snapshots:
            reader = log.open_snapshot(snapshot_id)
            assert reader is not None
            assert reader.read(0, reader.size_bytes) == snapshot_bytes(snapshot_id)


TestMetaLogModel = MetaLogMachine.TestCase
TestMetaLogModel.settings = settings(
    max_examples=80,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
