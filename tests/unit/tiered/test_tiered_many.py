"""A tier of many segments: what follows from one more costs what one costs, not what there are."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from firnline.tiered import lineage
from firnline.tiered.metadata import cache as cache_module
from firnline.tiered.metadata.cache import MetadataCache
from firnline.tiered.spi import RemoteSegment, SegmentState, SegmentUpdate

MANY = 2_000
TOPIC_ID = b"t" * 16


def segment(number: int, *, base: int | None = None, size: int = 10) -> RemoteSegment:
    first = number * size if base is None else base
    return RemoteSegment(
        topic_id=TOPIC_ID,
        topic="t",
        partition=0,
        segment_id=number.to_bytes(16, "big"),
        base_offset=first,
        end_offset=first + size - 1,
        size_bytes=1,
        max_timestamp_ms=number,
        epochs=((0, first),),
        broker_id=1,
        event_timestamp_ms=1,
        state=SegmentState.COPY_STARTED,
    )


def change(number: int, state: SegmentState) -> SegmentUpdate:
    return SegmentUpdate(
        topic_id=TOPIC_ID,
        topic="t",
        partition=0,
        segment_id=number.to_bytes(16, "big"),
        state=state,
        broker_id=1,
        event_timestamp_ms=1,
    )


def copied(cache: MetadataCache, number: int) -> None:
    cache.add(segment(number))
    cache.update(change(number, SegmentState.COPY_FINISHED))


@pytest.fixture
def full() -> MetadataCache:
    cache = MetadataCache()
    for number in range(MANY):
        copied(cache, number)
    return cache


def test_one_more_segment_is_not_paid_for_with_a_look_at_all(
    full: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each copy asks for the segments several times: 90 ms each time, where there were 100,000."""
    looks = 0

    def counted(found: RemoteSegment) -> tuple[int, int, bytes]:
        nonlocal looks
        looks += 1
        return found.base_offset, found.end_offset, found.segment_id

    monkeypatch.setattr(cache_module, "_by_base", counted)
    copied(full, MANY)
    assert len(full.segments()) == len(full.finished()) == MANY + 1
    assert [s.base_offset for s in full.finished(MANY * 10 - 1)] == [MANY * 10 - 10, MANY * 10]
    assert looks <= 10


@pytest.mark.parametrize("seed", range(5))
def test_what_is_listed_is_what_there_is_in_order(seed: int) -> None:
    """Copies that overlap, that fail, that are deleted: as sorted from what is known of each."""
    chance, cache, known = random.Random(seed), MetadataCache(), dict[int, RemoteSegment]()
    for number in range(300):
        known[number] = segment(number, base=chance.randrange(200), size=chance.randrange(1, 40))
        cache.add(known[number])
        for _ in range(min(3, len(known))):
            which = chance.choice(list(known))
            state = chance.choice(
                [
                    SegmentState.COPY_FINISHED,
                    SegmentState.DELETE_STARTED,
                    SegmentState.DELETE_FINISHED,
                ]
            )
            cache.update(change(which, state))
            now = cache.get(known[which].segment_id)
            if now is None:
                del known[which]
            else:
                known[which] = now
        there = list(known.values())
        assert cache.segments() == sorted(
            there, key=lambda s: (s.base_offset, s.end_offset, s.segment_id)
        )
        limit = chance.randrange(1, 220)
        finished = [
            s for s in there if s.state == SegmentState.COPY_FINISHED and s.end_offset >= limit
        ]
        assert cache.finished(limit) == sorted(
            finished, key=lambda s: (s.end_offset, s.base_offset, s.segment_id)
        )


def test_who_asks_for_the_first_ranges_does_not_pay_for_all(
    full: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    shared_end = lineage.shared_end

    def counted(*args: Any) -> int:
        nonlocal looks
        looks += 1
        return shared_end(*args)

    monkeypatch.setattr(lineage, "shared_end", counted)
    found: Iterator[Any] = lineage.ranges(
        full.finished(), ((0, 0),), start_offset=55, end_offset=10 * MANY
    )
    assert [next(found)[1:] for _ in range(3)] == [(55, 60), (60, 70), (70, 80)]
    assert looks <= 6
