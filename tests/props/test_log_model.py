"""The log against a model: any order of appends, reads, rolls, truncations, restarts and power cuts."""

import random
from contextlib import suppress

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from firnline.base.effects import Appended
from firnline.base.errors import StorageError
from firnline.base.ports import File
from firnline.log.log import Log
from firnline.records.batch import headers
from firnline.records.record import records
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.log import NOW, PATH, batch, opened, small

CONFIG = small(segment_bytes=600, index_interval_bytes=100)


class LogModel(RuleBasedStateMachine):
    """`model` is what the log holds: one (offset, value, epoch) a record. `durable_end` was promised."""

    def __init__(self) -> None:
        super().__init__()
        self.fs = CrashableFs()
        self.model: list[tuple[int, bytes, int]] = []
        self.batches: list[int] = []  # base offset of each batch
        self.end = self.start = self.durable_end = self.epoch = self.count = 0
        self.saved_point = self.saved_start = 0
        self.flushing: list[tuple[int, list[File], list[File]]] = []
        self.log = self.open(was_clean=False)
        self.fs.sync_dir("/")
        self.fs.sync_dir("/data")

    def open(self, *, was_clean: bool) -> Log:
        log = opened(
            self.fs,
            CONFIG,
            was_clean=was_clean,
            recovery_point=self.saved_point,
            log_start_offset=self.saved_start,
            before_truncation=self.save,
        )
        self.flushing.clear()
        return log

    def save(self) -> None:
        """The checkpoints of the log directory, as `write_recovery_points`; those are replaced durably."""
        self.saved_point = self.log.recovery_start

    # -- what happens ------------------------------------------------------------------------------

    @rule(sizes=st.lists(st.integers(0, 90), min_size=1, max_size=4))
    def append(self, sizes: list[int]) -> None:
        values = []
        for size in sizes:
            self.count += 1
            values.append(b"%d:" % self.count + b"x" * size)
        done = self.log.append_as_leader(batch(*values), leader_epoch=self.epoch, now_ms=NOW)
        assert isinstance(done, Appended)
        assert (done.base_offset, done.last_offset) == (self.end, self.end + len(values) - 1)
        self.batches.append(self.end)
        for value in values:
            self.model.append((self.end, value, self.epoch))
            self.end += 1

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW)

    @rule(suffix=st.sampled_from([".index", ".timeindex", ".snapshot"]))
    def the_disk_is_full_at_a_roll(self, suffix: str) -> None:
        self.fs.fail("append", suffix, "ENOSPC")
        with suppress(StorageError):
            self.log.roll(NOW)
        self.fs.forgive()
        self.append([9])

    @rule()
    def flush_begins(self) -> None:
        files = self.log.dirty_files()
        if files:
            self.flushing.append((self.log.log_end_offset, files, list(files)))

    @precondition(lambda self: self.flushing)
    @rule()
    def flush_ends(self) -> None:
        end, files, _ = self.flushing.pop(0)
        for file in files:
            file.sync()
        self.log.flushed(end)
        self.durable_end = max(self.durable_end, self.log.recovery_point)

    @rule()
    def checkpoint(self) -> None:
        self.save()
        self.saved_start = self.log.log_start_offset

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        if not self.batches:
            return
        offset = data.draw(st.sampled_from(self.batches))
        if offset < self.start:
            return
        self.log.truncate_to(offset)
        self.cut(offset)
        self.epoch += 1
        assert self.log.log_end_offset == offset

    def cut(self, offset: int) -> None:
        self.model = [row for row in self.model if row[0] < offset]
        self.batches = [base for base in self.batches if base < offset]
        self.end = offset
        self.durable_end = min(self.durable_end, offset)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.advance_high_watermark(self.end)
        self.log.advance_log_start(offset)
        self.log.delete_due_segments(NOW)
        self.start = offset
        self.saved_start = offset
        self.durable_end = max(self.durable_end, offset)

    @rule(data=st.data(), max_bytes=st.integers(0, 900))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        upto = data.draw(st.integers(self.start, self.end))
        found = self.log.read(offset, max_bytes=max_bytes, upto_offset=upto).read()
        batches = list(headers(found))
        assert sum(header.size_bytes for header in batches) == len(found)
        assert len(found) <= max_bytes or len(batches) == 1
        got = [(r.offset, r.value) for header in batches for r in records(found, header)]
        if got:
            assert got[0][0] <= offset
            assert got[-1][0] < upto
        rows = [(o, v) for o, v, _ in self.model]
        wanted = [row for row in rows if got and got[0][0] <= row[0] <= got[-1][0]]
        assert [row for row in got if row[0] >= self.model[0][0]] == wanted

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.checkpoint()
        self.durable_end = self.end
        self.log = self.open(was_clean=True)
        assert self.log.log_end_offset == self.end

    @rule()
    def kill_and_start(self) -> None:
        self.fs = self.fs.crash(SeededRng(), keep="all")
        self.log = self.open(was_clean=False)
        assert self.log.log_end_offset == self.end

    @rule(rng=st.randoms(use_true_random=False), keep=st.sampled_from(["none", "some", "some"]))
    def power_cut(self, rng: random.Random, keep: str) -> None:
        self.fs = self.fs.crash(SeededRng(rng), keep=keep)  # type: ignore[arg-type]
        self.log = self.open(was_clean=False)
        end = self.log.log_end_offset
        assert self.durable_end <= end <= self.end, "an acknowledged record is gone"
        self.cut(end)
        self.epoch += 1

    # -- what always holds -------------------------------------------------------------------------

    @invariant()
    def marks_keep_their_order(self) -> None:
        log = self.log
        assert log.log_start_offset == log.local_log_start_offset == self.start
        assert self.start <= log.high_watermark <= log.log_end_offset == self.end
        assert log.recovery_point <= log.log_end_offset
        assert self.fs.exists(PATH)

    @invariant()
    def the_log_holds_what_the_model_holds(self) -> None:
        data = self.log.read_batches(self.start, max_bytes=1 << 30)
        got = [
            (record.offset, record.value, header.leader_epoch)
            for header in headers(data)
            for record in records(data, header)
        ]
        assert [row for row in got if row[0] >= self.start] == [
            row for row in self.model if row[0] >= self.start
        ]

    @invariant()
    def the_lineage_is_that_of_the_batches(self) -> None:
        seen: dict[int, int] = {}
        for offset, _, epoch in self.model:
            if offset >= self.start:
                seen.setdefault(epoch, offset)
        found = self.log.epochs.entries()
        assert {e: s for e, s in found if s < self.end} == seen


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
