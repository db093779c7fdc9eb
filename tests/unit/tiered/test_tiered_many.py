"""A tier of many segments: what follows from one more costs what one costs, not what there are."""

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from firnline.base.ids import TopicPartition
from firnline.tiered import lineage
from firnline.tiered.hosted import Hosted
from firnline.tiered.metadata import cache as cache_module
from firnline.tiered.metadata.cache import MetadataCache
from firnline.tiered.spi import RemoteSegment, SegmentState, SegmentUpdate
from tests.worlds.tier import topic_config

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
    checks = 0

    def counted(found: RemoteSegment) -> tuple[int, int, bytes]:
        nonlocal checks
        checks += 1
        return found.base_offset, found.end_offset, found.segment_id

    monkeypatch.setattr(cache_module, "_by_base", counted)
    copied(full, MANY)
    assert len(full.segments()) == len(full.finished()) == MANY + 1
    assert [s.base_offset for s in full.finished(MANY * 10 - 1)] == [MANY * 10 - 10, MANY * 10]
    assert checks <= 10


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
    checks = 0
    shared_end = lineage.shared_end

    def counted(*args: Any) -> int:
        nonlocal checks
        checks += 1
        return shared_end(*args)

    monkeypatch.setattr(lineage, "shared_end", counted)
    found: Iterator[Any] = lineage.ranges(
        full.finished(), ((0, 0),), start_offset=55, end_offset=10 * MANY
    )
    assert [next(found)[1:] for _ in range(3)] == [(55, 60), (60, 70), (70, 80)]
    assert checks <= 6


class Held:
    """A log that keeps what the tier has, too; and the metadata of one cache."""

    def __init__(self, cache: MetadataCache) -> None:
        self.cache = cache
        self.topic_id, self.topic_partition = TOPIC_ID, TopicPartition("t", 0)
        self.log_start_offset = self.local_log_start_offset = 0
        self.log_end_offset = 10 * MANY + 1000
        self.history: tuple[tuple[int, int], ...] = ((0, 0),)
        self.epochs = SimpleNamespace(entries=lambda: self.history)
        self.config = topic_config()

    def hosted(self) -> Any:
        log: Any = self
        return Hosted(log, is_leader=True, leader_epoch=1)

    def covered(self, hosted: Any) -> int:
        metadata: Any = self
        hosted.metadata_version += 1
        found: int = hosted.covered_offset(metadata)
        return found

    def is_ready(self, _where: object) -> bool:
        return True

    def highest_offset(self, _where: object, epoch: int) -> int | None:
        return self.cache.highest_offset(epoch)

    def finished(self, _where: object, reaching: int = 0) -> list[RemoteSegment]:
        return self.cache.finished(reaching)

    def look(self, _where: object, since: Any) -> Any:
        return self.cache.look(since)


def test_one_more_copy_is_covered_without_a_look_at_all_that_is_local(
    full: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where much stays local each copy asked who serves all of it: 6 us for each, several times."""
    held = Held(full)
    hosted = held.hosted()
    assert held.covered(hosted) == 10 * MANY - 1
    checks = 0
    shared_end = lineage.shared_end

    def counted(*args: Any) -> int:
        nonlocal checks
        checks += 1
        return shared_end(*args)

    monkeypatch.setattr(lineage, "shared_end", counted)
    for number in range(MANY, MANY + 10):
        copied(full, number)
        held.local_log_start_offset += 10
        full.update(change(number - MANY, SegmentState.DELETE_STARTED))  # it expires below
        assert held.covered(hosted) == 10 * number + 9
    assert checks <= 20


@pytest.mark.parametrize("seed", range(8))
def test_what_is_covered_follows_from_what_there_is(seed: int) -> None:
    """Copies that overlap, leave holes, go; epochs that begin, a local start that rises."""
    chance, cache = random.Random(seed), MetadataCache()
    held = Held(cache)
    held.log_end_offset = 200
    hosted = held.hosted()
    for number in range(150):
        base = chance.choice([chance.randrange(200), min(number, 190)])
        size = chance.randrange(1, 40)
        epochs = lineage.segment_epochs(held.history, base, base + size - 1)
        made = segment(number, base=base, size=size)
        cache.add(made._replace(epochs=epochs or ((0, base),)))
        cache.update(change(number, SegmentState.COPY_FINISHED))
        for state in (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED):
            if chance.random() < 0.4:
                cache.update(change(chance.randrange(number + 1), state))
        if chance.random() < 0.05:
            held.local_log_start_offset += chance.randrange(10)
        if chance.random() < 0.03 and held.history[-1][1] < number:
            held.history = (*held.history, (held.history[-1][0] + 1, number))
        assert held.covered(hosted) == held.covered(held.hosted())


def test_what_goes_of_a_lost_history_does_not_have_all_of_this_one_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After an unclean election each deletion would cost as much as the first look."""
    cache = MetadataCache()
    held = Held(cache)
    hosted = held.hosted()
    for number in range(100):
        copied(cache, number)
    assert held.covered(hosted) == 999
    for number in range(100):
        cache.add(segment(1000 + number, base=10 * number)._replace(epochs=((1, 10 * number),)))
        cache.update(change(1000 + number, SegmentState.COPY_FINISHED))
    held.history = ((1, 0),)
    assert held.covered(hosted) == 999
    checks = 0
    shared_end = lineage.shared_end

    def counted(*args: Any) -> int:
        nonlocal checks
        checks += 1
        return shared_end(*args)

    monkeypatch.setattr(lineage, "shared_end", counted)
    for number in range(10):
        cache.update(change(number, SegmentState.DELETE_STARTED))
        assert held.covered(hosted) == 999
    assert checks <= 20
