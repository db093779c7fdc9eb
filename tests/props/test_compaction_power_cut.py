"""A power cut at any step of a compaction leaves the old segments or the new one.

Nothing is lost, nothing that was deleted comes back, no offset means something else.
"""

import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.log.compaction import swap
from firnline.log.compaction.rounds import compact
from firnline.log.log import Log
from firnline.records.batch import headers
from firnline.records.record import records
from firnline.sim.disk import CrashableFs, Keep
from tests.worlds.chance import SeededRng
from tests.worlds.compaction import RULES, compacted, put, rows, settled
from tests.worlds.log import ABORT, COMMIT, NOW, append, batch, end_txn, opened, read_all

CONFIG = compacted(delete_retention_ms=0)
Step = tuple[str, str | None]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("abcd"), st.sampled_from(["1", "22", None])),
        st.tuples(st.sampled_from("abcd"), st.sampled_from(["1", "22", None])),
        st.tuples(st.sampled_from(["abort", "commit"]), st.sampled_from("abcd")),
        st.tuples(st.just("round"), st.none()),
    ),
    min_size=8,
    max_size=50,
)


class Cut(BaseException):
    """The power went."""


class CutFs(CrashableFs):
    """Loses the power before its operation number `left`; -1 for never."""

    left = -1

    def _count(self) -> None:
        if not self.left:
            raise Cut
        self.left -= 1

    def check(self, operation: object, path: str) -> None:
        super().check(operation, path)  # type: ignore[arg-type]
        if operation not in ("read", "open"):
            self._count()

    def remove(self, path: str) -> None:
        self._count()
        super().remove(path)


class Story:
    """A log that is written and compacted now and then, and what its writer knows of it."""

    def __init__(self, fs: CutFs) -> None:
        self.fs = fs
        self.now_ms = NOW
        self.sequence = 0
        self.values: dict[int, tuple[bytes, bytes | None]] = {}
        self.last: dict[bytes, int] = {}
        self.log = opened(fs, CONFIG)
        fs.sync_dir("/")
        fs.sync_dir("/data")

    def run(self, steps: list[Step]) -> None:
        for kind, argument in steps:
            if kind == "round":
                self.compact()
            elif kind in ("abort", "commit"):
                self.transaction(argument or "", kind == "commit")
            else:
                self.note(kind, argument, put(self.log, kind, argument))

    def note(self, key: str, value: str | None, offset: int) -> None:
        self.values[offset] = key.encode(), None if value is None else value.encode()
        self.last[key.encode()] = offset

    def transaction(self, key: str, is_committed: bool) -> None:
        data = batch("t", key=key.encode(), pid=7, seq=self.sequence, is_transactional=True)
        offset = append(self.log, data).base_offset
        self.values[offset] = key.encode(), b"t"
        end_txn(self.log, 7, COMMIT if is_committed else ABORT)
        self.sequence += 1
        if is_committed:
            self.last[key.encode()] = offset

    def settle(self) -> None:
        settled(self.log)
        self.fs.sync_dir("/data/t-0")

    def compact(self) -> None:
        self.settle()
        self.now_ms += 10
        log = self.log
        due = log.compaction.log_to_clean(self.now_ms)
        if not log.compaction.is_due(due):
            return
        job, cuts = log.compaction.job(due, RULES, self.now_ms), log.compaction.cuts
        running = compact(self.fs, job)
        while True:
            try:
                group = next(running)
            except StopIteration as stop:
                ended = log.compaction.done(stop.value, cuts)
                break
            assert log.compaction.put(group, cuts, self.now_ms) is not None
        assert ended

    def check_log(self, log: Log) -> None:
        found = rows(log)
        offsets = [row[0] for row in found]
        assert offsets == sorted(set(offsets)), "an offset is there twice"
        for offset, key, value in found:
            assert self.values[offset] == (key, value), "an offset means something else"
        hidden = hidden_offsets(log)
        seen = {key: offset for offset, key, _ in found if offset not in hidden}
        for key, offset in self.last.items():
            wanted = [offset] if self.values[offset][1] is not None else [offset, None]
            assert seen.get(key) in wanted, (key, seen.get(key), wanted)
        assert log.log_end_offset == self.log.log_end_offset
        known, kept = self.log.producers.get(7), log.producers.get(7)
        if known is not None:
            assert kept is not None
            assert kept.last_sequence == known.last_sequence


def hidden_offsets(log: Log) -> set[int]:
    """Offsets of records that read_committed does not show."""
    aborted = log.aborted_transactions(0, log.log_end_offset)
    data = read_all(log).read()
    return {
        record.offset
        for header in headers(data)
        for txn in aborted
        if header.is_transactional
        and header.producer_id == txn.producer_id
        and txn.first_offset <= header.base_offset < txn.last_offset
        for record in records(data, header)
    }


def reopened(fs: CrashableFs, story: Story, point: int) -> Log:
    first_dirty = story.log.compaction.first_dirty_offset
    return opened(fs, CONFIG, recovery_point=point, first_dirty_offset=first_dirty)


def cut_in_the_last_round(
    steps: list[Step], after: int, again_after: int, rng: random.Random, keep: Keep
) -> None:
    fs = CutFs()
    story = Story(fs)
    story.run(steps)
    story.settle()
    point = story.log.recovery_start
    fs.left = after
    with contextlib.suppress(Cut):
        story.compact()
    fs.left = -1
    # The recovery is cut off, too, and begun once more.
    between = CutFs()
    between._root = fs.crash(SeededRng(rng), keep=keep)._root
    between.left = again_after
    with contextlib.suppress(Cut):
        story.check_log(reopened(between, story, point))
    between.left = -1
    last = between.crash(SeededRng(rng), keep=keep)
    log = reopened(last, story, point)
    story.check_log(log)
    story.log, story.fs = log, last  # type: ignore[assignment]
    log.advance_high_watermark(log.log_end_offset)
    story.compact()
    story.check_log(log)


@settings(max_examples=150, deadline=None)
@given(
    steps=STEPS,
    after=st.integers(0, 60),
    again_after=st.integers(0, 20),
    rng=st.randoms(use_true_random=False),
    keep=st.sampled_from(["some", "all", "none"]),
)
def test_a_cut_at_any_step_loses_nothing_and_brings_nothing_back(
    steps: list[Step], after: int, again_after: int, rng: random.Random, keep: Keep
) -> None:
    cut_in_the_last_round(steps, after, again_after, rng, keep)


def test_a_lost_file_of_recovery_points_costs_no_compacted_record() -> None:
    story = Story(CutFs())
    story.run([("abcd"[n % 4], "1") for n in range(40)] + [("round", None)])
    story.run([("abcd"[n % 3], "2") for n in range(40)])
    story.settle()
    log = opened(
        story.fs,
        CONFIG,
        recovery_point=0,
        first_dirty_offset=story.log.compaction.first_dirty_offset,
        is_recovery_point_known=False,
    )
    story.check_log(log)


@pytest.mark.parametrize("mutation", ["the old go first", "the new are not synced"])
def test_the_property_sees_a_swap_in_the_wrong_order(
    monkeypatch: pytest.MonkeyPatch, mutation: str
) -> None:
    """Planted: some cut has to lose something then."""
    if mutation == "the old go first":
        real = swap.swap_in

        def old_first(fs: CrashableFs, path: str, bases: list[int], snapshots: object) -> list[str]:
            for base in bases:
                fs.remove(f"{path}/{base:020d}.log")
            return real(fs, path, bases, snapshots)  # type: ignore[arg-type]

        monkeypatch.setattr("firnline.log.compaction.state.swap_in", old_first)
    else:
        monkeypatch.setattr("firnline.sim.disk.CrashableFile.sync", lambda self: None)
    steps: list[Step] = [(key, "22") for key in "bcd" + "a" * 30]
    rng = random.Random(3)
    failures = 0
    for after in range(30):
        try:
            cut_in_the_last_round(steps, after, 50, rng, "some")
        except Exception:  # noqa: BLE001 - any complaint will do
            failures += 1
    assert failures
