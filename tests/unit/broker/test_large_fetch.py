"""A Fetch in slices: what happens between two of them is neither missed nor told as older than it is."""

import random
from collections.abc import Generator
from typing import Any

import pytest

from firnline.base.background import Background
from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.broker import fetch, large_fetch
from firnline.broker.fetch import FetchAnswer, Fetching
from firnline.broker.fetch_session import FetchSessions
from firnline.broker.large_fetch import LargeFetch
from tests.unit.broker.test_fetch import Consumer, remote, tiered, want
from tests.unit.broker.test_resting import COUNT, FOLLOWERS, Leader

Slices = Generator[Effects, int, Effects]


class SlicingLeader(Leader):
    """Reads and answers a partition in a slice; `one_more` does the next slice of the oldest Fetch.

    high  the high watermark that each follower was told last, by partition
    """

    def __init__(self) -> None:
        super().__init__(FetchSessions)
        self.under_way: list[Slices] = []
        self.high: dict[tuple[int, int], int] = {}
        plain = self.fetching.fetch
        run_task = Background("leaving").begin

        def large(fetching: Fetching, ask: Any, context: Any, answer: Any) -> LargeFetch:
            def in_slices(found: FetchAnswer) -> Slices:
                yield []
                return answer(found)  # type: ignore[no-any-return]

            return LargeFetch(self._begin, run_task, in_slices, fetching, ask, context, answer)

        self.fetching.fetch = lambda ask, answer, now_ms: plain(ask, answer, now_ms, large)  # type: ignore[method-assign]

    def _begin(self, slices: Slices, now_ms: int) -> Effects:
        try:
            effects = next(slices)
        except StopIteration as done:
            return list(done.value)
        self.under_way.append(slices)
        return effects

    def one_more(self) -> bool:
        if not self.under_way:
            return False
        slices = self.under_way[0]
        try:
            effects = slices.send(self.world.now_ms)
        except StopIteration as done:
            self.under_way.remove(slices)
            effects = done.value
        self.world.run(effects)
        return True

    def finish(self) -> None:
        while self.one_more():
            pass

    def _receive(self, side: Any, answer: FetchAnswer) -> None:
        super()._receive(side, answer)
        for wanted, outcome in answer.outcomes:
            high = getattr(outcome, "high_watermark", None)
            if high is not None:
                self.high[side.replica_id, wanted.index] = high


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> SlicingLeader:
    for module in (fetch, large_fetch):
        monkeypatch.setattr(module, "PARTITIONS_PER_SLICE", 1)
    return SlicingLeader()


def test_a_follower_that_got_an_older_high_watermark_does_not_rest_with_it(
    leader: SlicingLeader,
) -> None:
    """Goal: consumers that read from a follower get the last record too (KIP-392). Method: the other
    follower brings the high watermark up between the slice that read and the one that answers."""
    for _ in range(2):
        for replica_id in FOLLOWERS:
            leader.fetch(replica_id, wait_ms=0)
            leader.finish()
    leader.append(0)
    leader.append(1)
    for replica_id in FOLLOWERS:
        leader.fetch(replica_id, wait_ms=0)
        leader.finish()
    leader.fetch(2, wait_ms=0)  # partition 0 is read: the other one has not got the records yet
    leader.fetch(3, wait_ms=0)
    leader.finish()
    assert leader.partitions[0].log.high_watermark == 1
    for _ in range(3):
        leader.fetch(2, wait_ms=0)
        leader.finish()
    assert [leader.high[2, index] for index in (0, 1)] == [1, 1]


@pytest.mark.parametrize("seed", range(20))
def test_every_follower_learns_of_every_high_watermark(leader: SlicingLeader, seed: int) -> None:
    """Whatever the order of appends, Fetches and their slices: in the end each knows what is committed."""
    rng = random.Random(seed)
    for _ in range(150):
        roll = rng.random()
        if roll < 0.15:
            leader.append(rng.randrange(COUNT))
        elif roll < 0.35:
            leader.fetch(rng.choice(FOLLOWERS), wait_ms=rng.choice((0, 500)))
        elif roll < 0.40:
            leader.world.pass_time(rng.choice((1, 100)))
        else:
            rng.shuffle(leader.under_way)
            leader.one_more()
    for _ in range(4):
        leader.finish()
        leader.world.pass_time(500)
        leader.finish()
        for replica_id in FOLLOWERS:
            leader.fetch(replica_id, wait_ms=0)
            leader.finish()
    for index, partition in enumerate(leader.partitions):
        log = partition.log
        assert log.high_watermark == log.log_end_offset
        assert [leader.high[n, index] for n in FOLLOWERS] == [log.high_watermark] * 2
        assert not partition.fetch_waiters


def test_a_follower_does_not_rest_in_a_partition_whose_files_failed_since_it_was_read(
    leader: SlicingLeader,
) -> None:
    """Goal: it hears of the failure. Method: the files fail between the slice that read and the one that
    answers."""
    leader.fetch(2, wait_ms=0)
    leader.finish()
    leader.fetch(3, wait_ms=0)
    leader.finish()
    leader.name(2, 0)
    leader.name(2, 1)
    leader.fetch(2, wait_ms=0)  # partition 0 is read
    leader.fail(0)
    leader.finish()
    leader.reported.clear()
    leader.fetch(2, wait_ms=0)
    leader.finish()
    assert leader.reported == [(2, [(0, Code.KAFKA_STORAGE_ERROR, 0, 0)])]


def test_reads_of_the_tier_that_end_at_once_hold_up_no_sliced_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: what was read ahead is answered in the same turn, also in a quiet cluster. The timer of all
    sliced tasks was kept back until the request that waited for it went on."""
    for module in (fetch, large_fetch):
        monkeypatch.setattr(module, "PARTITIONS_PER_SLICE", 1)
    consumer = Consumer(*(tiered(index) for index in range(3)), tiered=True)
    background = Background("requests", is_round_robin=True)
    plain = consumer.fetching.fetch

    def rest(slices: Slices) -> Generator[Effects, int, Effects]:
        now_ms = yield []
        while True:
            try:
                effects = slices.send(now_ms)
            except StopIteration as done:
                return list(done.value)
            now_ms = yield effects

    def run(slices: Slices, now_ms: int) -> Effects:
        try:
            effects = next(slices)
        except StopIteration as done:
            return list(done.value)
        return effects + background.begin(rest(slices), now_ms)

    def large(fetching: Fetching, ask: Any, context: Any, answer: Any) -> LargeFetch:
        def in_slices(found: FetchAnswer) -> Slices:
            yield []
            return answer(found)  # type: ignore[no-any-return]

        return LargeFetch(run, background.begin, in_slices, fetching, ask, context, answer)

    def at_once(*asked: Any) -> Effects:
        *_, then, now_ms = asked
        effects: Effects = then(remote(10), now_ms)
        return effects

    consumer.fetching.fetch = lambda ask, answer, now_ms: plain(ask, answer, now_ms, large)  # type: ignore[method-assign]
    consumer.fetching.remote_read = at_once  # type: ignore[assignment]
    consumer.fetch(want(0), want(1), want(2), max_wait_ms=500, min_bytes=1)
    consumer.world.pass_time(0)
    assert consumer.answers == [[(0, 10), (1, 10), (2, 10)]]
