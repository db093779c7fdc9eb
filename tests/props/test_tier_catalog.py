"""Two leaders write catalogs in every order; a reader with any listing sees a cut, never a mixture."""

from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.stores.memory import MemoryStore
from firnline.stores.port import ObjectMissing
from firnline.tiered.catalog.writer import CatalogState, CatalogUpdate, CatalogWriter
from firnline.tiered.objects.catalog_reader import read_catalog
from firnline.tiered.objects.layout import HeadName
from firnline.tiered.spi import RemoteSegment, SegmentState

TOPIC = bytes(15) + b"\x07"


def segment(number: int) -> RemoteSegment:
    return RemoteSegment(
        topic_id=TOPIC,
        topic="t",
        partition=0,
        segment_id=number.to_bytes(16, "big"),
        base_offset=number * 10,
        end_offset=number * 10 + 9,
        size_bytes=1,
        max_timestamp_ms=1,
        epochs=((0, number * 10),),
        broker_id=1,
        event_timestamp_ms=1,
        state=SegmentState.COPY_FINISHED,
    )


class Leader:
    """One leadership: knows its segments, puts objects one by one so that others come between."""

    def __init__(self, epoch: int, store: MemoryStore, cuts: dict[HeadName, tuple[int, ...]]):
        self.store, self.cuts = store, cuts
        self.writer = CatalogWriter(
            topic_id=TOPIC,
            partition=0,
            leader_epoch=epoch,
            broker_id=epoch,
            listed=[info.key for info in store.list_prefix("catalog/")],
        )
        self.numbers: tuple[int, ...] = ()
        self.log_start = 0
        self.update: CatalogUpdate | None = None
        self.steps: list[tuple[str, bytes | None]] = []

    def begin(self, now_ms: int) -> None:
        state = CatalogState(
            topic="t",
            log_start_offset=self.log_start,
            log_end_offset=10**6,
            epochs=((0, 0),),
            segments={s.segment_id: s for s in map(segment, self.numbers)},
            metadata_partition=0,
            metadata_offset=0,
        )
        self.update = self.writer.prepare(state, now_ms)
        self.steps = [*self.update.puts, *((key, None) for key in self.update.deletes)]
        live = [n for n in self.numbers if n * 10 + 9 >= self.log_start]
        self.cuts[self.update.name] = tuple(sorted(live))

    def step(self, fails: bool) -> None:
        assert self.update is not None
        if fails:
            self.writer.failed(self.update)
            self.update = None
            return
        key, data = self.steps.pop(0)
        if data is None:
            self.store.delete(key)
        else:
            self.store.put(key, (data,), size_bytes=len(data))
        if not self.steps:
            self.writer.committed(self.update)
            self.update = None


MOVES = st.lists(
    st.tuples(
        st.integers(0, 1),  # which leader
        st.sampled_from(["add", "add", "bulk", "drop", "start", "step", "step", "fail", "list"]),
        st.integers(0, 40),
    ),
    max_size=120,
)


@settings(max_examples=150, deadline=None)
@given(moves=MOVES, late=st.booleans())
def test_any_order_of_two_writers_gives_a_cut(
    moves: list[tuple[int, str, int]], late: bool
) -> None:
    """Whatever is read is exactly one cut that some leader wrote, and the highest one listed."""
    store = MemoryStore(is_late=late)
    cuts: dict[HeadName, tuple[int, ...]] = {}
    leaders = [Leader(5, store, cuts), Leader(6, store, cuts)]
    next_number = 0
    for now_ms, (who, what, number) in enumerate(moves):
        leader = leaders[who]
        if what in ("add", "bulk"):
            count = number if what == "bulk" else 1
            leader.numbers += tuple(range(next_number, next_number + count))
            next_number += count
        elif what == "drop" and leader.numbers:
            gone = leader.numbers[number % len(leader.numbers)]
            leader.numbers = tuple(n for n in leader.numbers if n != gone)
        elif what == "start":
            leader.log_start = max(leader.log_start, number * 20)
        elif what == "list":
            store.show()
        elif leader.update is not None:
            leader.step(what == "fail")
        elif what == "step":
            leader.begin(now_ms)
        _check(store, cuts)


def _check(store: MemoryStore, cuts: dict[HeadName, tuple[int, ...]]) -> None:
    try:
        catalog = read_catalog(store, TOPIC, 0)
    except ObjectMissing:
        assert store.is_late, "only a late listing may name what is gone"
        return
    heads = [key for key in store.listed if "/heads/" in key]
    if catalog is None:
        assert not heads
        return
    read = tuple(int.from_bytes(s.segment_id, "big") for s in catalog.segments)
    assert read == cuts[catalog.order]
    assert f"/{catalog.leader_epoch:010d}-{catalog.sequence:019d}." in max(heads)
