"""Aborted transactions over a thousand remote segments: a few looks, and none of them recurses."""

from typing import Any, cast

import pytest
from crc32c import crc32c

from firnline.base.effects import Effects, Submit
from firnline.base.errors import Code, KafkaError
from firnline.formats.producer_snapshot import SnapshotEntry, encode_snapshot
from firnline.formats.transaction_index import AbortedTxn
from firnline.tiered.circuits import StoreCircuits
from firnline.tiered.hosted import Hosted, Services
from firnline.tiered.objects.fingerprint import Fingerprint, ObjectSum, encode_fingerprint
from firnline.tiered.objects.layout import PRODUCER_SNAPSHOT
from firnline.tiered.reads import aborted_search
from firnline.tiered.reads.aborted_search import STEP_SEGMENTS, AbortedSearch, OpenTransactions
from firnline.tiered.reads.index_cache import IndexCache
from firnline.tiered.reads.indexes import SegmentIndexes
from firnline.tiered.spi import IndexKind, RemoteSegment
from tests.worlds.effects import carried_out, kept

COUNT = 1000
SIZE = 10  # offsets in a segment
NOT_LOADED = KafkaError(Code.REPLICA_NOT_AVAILABLE, "loading")
Txn = tuple[int, int, int]  # producer id, first offset, offset of its abort marker


class Tier:
    """Segments of ten offsets; `aborted` transactions stand where their markers are."""

    def __init__(
        self, *aborted: Txn, committed: tuple[Txn, ...] = (), local_start: int = -1
    ) -> None:
        self.aborted, self.ended = aborted, (*aborted, *committed)
        self.local_log_start_offset = COUNT * SIZE if local_start < 0 else local_start
        self.asked: list[str] = []
        self.is_damaged = False
        self.is_swapped = False
        self.known_below = COUNT + 1  # of segments from there on the metadata is not loaded
        self.epochs = self
        self.where = self.topic = None
        self.log = self
        self.metadata = self.storage = self
        self.circuits = StoreCircuits(None, None, lambda failures, max_ms: 0)
        self.is_cached = True
        self.open = OpenTransactions(cast("Services", self))
        self.answers: list[Any] = []

    # what the search asks of the metadata, the log, the store and the index cache

    def epoch_at(self, offset: int) -> int:
        return 0

    def entries(self) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def lookup(self, where: Any, *, epoch: int, offset: int) -> RemoteSegment | KafkaError | None:
        number = offset // SIZE
        if number >= self.known_below:
            return NOT_LOADED
        if number >= COUNT:
            return None
        base = number * SIZE
        return RemoteSegment(
            bytes(16), "t", 0, base.to_bytes(16, "big"), base, base + SIZE - 1, 100, 0,
            ((0, base),), 1, 0, custom_metadata=self.fingerprint(base + SIZE - 1),
        )  # fmt: skip

    def fingerprint(self, end: int) -> bytes:
        data = self.snapshot(end)
        sums = ((PRODUCER_SNAPSHOT, ObjectSum(len(data), crc32c(data))),)
        return encode_fingerprint(Fingerprint(False, 0, 0, sums))

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        assert kind == IndexKind.PRODUCER_SNAPSHOT
        self.asked.append(f"snapshot {segment.base_offset // SIZE}")
        if self.is_damaged:
            return b"what is this"
        return self.snapshot(COUNT * SIZE if self.is_swapped else segment.end_offset)

    def snapshot(self, end: int) -> bytes:
        rows = [
            SnapshotEntry(pid, 0, 0, end, 0, 0, 0, first)
            for pid, first, marker in self.ended
            if first <= end < marker
        ]
        return encode_snapshot(rows)

    def load(self, segment: RemoteSegment, then: Any, now_ms: int) -> Effects:
        self.asked.append(f"index {segment.base_offset // SIZE}")
        found = SegmentIndexes(segment.base_offset, b"", b"", b"")
        found.aborted = [
            AbortedTxn(pid, first, marker, min(f for _, f, m in self.ended if m >= marker))
            for pid, first, marker in self.aborted
            if segment.base_offset <= marker <= segment.end_offset
        ]
        if self.is_cached:
            return cast("Effects", then(found, now_ms))
        return [Submit(name="load", pool="read", work=lambda: found, then=then)]

    def aborted_transactions(self, start: int, upto: int) -> list[AbortedTxn]:
        self.asked.append("local")
        return [
            AbortedTxn(pid, first, marker, 0)
            for pid, first, marker in self.aborted
            if marker >= self.local_log_start_offset and first < upto
        ]

    def search(self, start: int, upto: int) -> list[int]:
        """Return the producers whose aborted transactions concern [start, upto)."""
        return sorted(txn.producer_id for txn in self.answer(start, upto))

    def answer(self, start: int, upto: int) -> Any:
        """Return what the search answers."""
        answers: list[Any] = []
        search = AbortedSearch(
            cast("Services", self), cast("IndexCache", self), self.open, cast("Hosted", self),
            start, upto, kept(answers), serial=1,
        )  # fmt: skip
        carried_out(list(search.next(0)), 0)
        [found] = answers
        return found


def in_each(count: int = COUNT) -> tuple[Txn, ...]:
    """One short transaction that aborts in each segment: every one of them has an index."""
    return tuple((100 + n, n * SIZE + 2, n * SIZE + 4) for n in range(count))


LONG = (7, 1, COUNT * SIZE - 1)


def test_a_snapshot_that_is_another_segments_hides_no_aborted_transaction() -> None:
    tier = Tier(LONG, *in_each(50))
    tier.is_swapped = True
    assert tier.search(0, 2) == [7]


@pytest.mark.parametrize("is_cached", [True, False])
def test_a_transaction_over_a_thousand_segments_costs_a_few_checks(is_cached: bool) -> None:
    tier = Tier(LONG, *in_each())
    tier.is_cached = is_cached
    assert tier.search(0, 2) == [7]
    assert len(tier.asked) <= 40, tier.asked
    assert tier.search(5 * SIZE, 5 * SIZE + 3) == [7, 105]


def test_one_that_committed_there_is_not_among_them() -> None:
    tier = Tier(*in_each(), committed=(LONG,))
    assert tier.search(0, 2) == []
    assert tier.search(0, 3) == [100]


def test_a_transaction_that_began_above_what_was_read_is_not_looked_for() -> None:
    tier = Tier((7, 5, 9000), *in_each())
    assert tier.search(0, 3) == [100]
    assert tier.asked == ["index 0", "snapshot 0"]


def test_what_is_known_to_be_stable_needs_no_snapshot() -> None:
    """An entry's last stable offset says that nothing below it is open any more."""
    tier = Tier((7, 1, 3), (8, 6, 8))
    assert tier.search(0, 5) == [7]
    assert tier.asked == ["index 0"]


def test_many_open_transactions_are_each_followed_to_their_end() -> None:
    ends = [(1000 + n, 1, 500 + 7 * n) for n in range(300)]
    tier = Tier(*ends[::2], committed=tuple(ends[1::2]))
    assert tier.search(0, 2) == [txn[0] for txn in ends[::2]]


def test_one_that_ends_in_local_files_is_found_there() -> None:
    tier = Tier((7, 1, COUNT * SIZE + 5), *in_each())
    assert tier.search(0, 2) == [7]
    assert tier.asked[-1] == "local"
    tier = Tier((7, 1, 25), local_start=SIZE)
    assert tier.search(0, 2) == [7]


@pytest.mark.parametrize(
    ("known_below", "is_damaged"), [(0, False), (5, False), (5, True), (COUNT, True)]
)
def test_metadata_that_forks_during_a_search_is_asked_again_later(
    known_below: int, is_damaged: bool
) -> None:
    """An answer without the rest would show records of an aborted transaction."""
    tier = Tier(LONG, local_start=(COUNT + 1) * SIZE)
    tier.known_below, tier.is_damaged = known_below, is_damaged
    tier.ended = ((*LONG[:2], (COUNT + 1) * SIZE),)
    assert tier.answer(0, 2) is NOT_LOADED


def test_where_the_metadata_of_what_was_read_is_gone_by_then_the_log_is_asked() -> None:
    """The segment expired while its records were on their way."""
    end = COUNT * SIZE
    tier = Tier((7, end - 2, end + 20), local_start=end + 10)
    assert tier.search(end - 2, end + 5) == [7]
    assert tier.asked[-1] == "local"


def test_thousands_that_are_open_where_the_tier_ends_are_asked_of_the_log_at_once() -> None:
    tier = Tier(*((1000 + n, 1, 50) for n in range(3000)), local_start=SIZE)
    assert len(tier.search(0, 2)) == 3000
    assert tier.asked == ["index 0", "snapshot 0", "local"]


@pytest.mark.parametrize("is_cached", [True, False])
def test_where_snapshots_are_damaged_every_index_is_looked_through(is_cached: bool) -> None:
    """Seen with 340 segments: the search called itself for each, and the node stopped."""
    tier = Tier(LONG, *in_each())
    tier.is_cached, tier.is_damaged = is_cached, True
    assert tier.search(0, 2) == [7]
    assert len(tier.asked) > COUNT > STEP_SEGMENTS


def test_what_was_open_where_a_segment_ends_is_remembered_within_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A consumer of many segments asks for the same ones again; a month of them would fill the memory."""
    monkeypatch.setattr(aborted_search, "REMEMBERED", 2)
    tier = Tier(LONG)

    def asked(*numbers: int) -> list[str]:
        tier.asked.clear()
        for number in numbers:
            segment = tier.lookup(None, epoch=0, offset=number * SIZE)
            assert isinstance(segment, RemoteSegment)
            for effect in tier.open.load(segment, lambda found, now_ms: [], 0):
                assert isinstance(effect, Submit)
                effect.then(effect.work(), 0)
        return tier.asked

    assert asked(0, 1, 0, 1) == ["snapshot 0", "snapshot 1"]
    assert asked(2, 1, 2) == ["snapshot 2"]
    assert asked(0) == ["snapshot 0"], "the oldest answer made room"
