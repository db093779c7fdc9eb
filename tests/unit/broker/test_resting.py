"""Partitions rest in a follower's session while nothing happens in them; nobody can tell but by the cost."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import TopicPartition
from firnline.base.replicas import IsrAnswer
from firnline.base.units import MIB
from firnline.broker.fetch import FetchAnswer, Fetching
from firnline.broker.fetch_session import FetchAsk, FetchContext, FetchSessions, Wanted
from firnline.broker.leaders import closest
from firnline.replica.isr import BrokerFact, FetchClock, ReplicaState
from firnline.replica.partition import Partition
from firnline.replica.read import Local
from tests.worlds.chance import SeededRng
from tests.worlds.hosting import Calls, hosted
from tests.worlds.list_log import NODE_ID, TOPIC_ID, ListLog, batch, log_of

FOLLOWERS = (2, 3)
REPLICAS = (NODE_ID, *FOLLOWERS)
LAG_MS, WAIT_MS, COUNT = 1000, 500, 4
SAYS_NO_EPOCH = 3  # of this partition followers do not say which leader epoch they believe in


class Facts:
    """What the leader knows of brokers; a test changes it."""

    lag_max_ms = LAG_MS
    own_epoch = 100

    def __init__(self) -> None:
        self.epochs = dict.fromkeys(FOLLOWERS, 5)

    def fact(self, broker_id: int) -> BrokerFact | None:
        return BrokerFact(self.epochs[broker_id], is_active=True)


class Unresting(FetchSessions):
    """Sessions in which every Fetch is noted in every partition: what the other kind is compared with."""

    def context(self, *known: Any, **more: Any) -> FetchContext | KafkaError:
        found = super().context(*known, **more)
        if not isinstance(found, KafkaError):
            found.clock = None
        return found


class Session:
    """One follower's side: where it is in each partition, and what it has to say with its next Fetch."""

    def __init__(self, replica_id: int) -> None:
        self.replica_id = replica_id
        self.broker_epoch = 5
        self.session_id = self.epoch = 0
        self.at = dict.fromkeys(range(COUNT), 0)
        self.starts = dict.fromkeys(range(COUNT), 0)
        self.news = set(self.at)
        self.forgotten: list[int] = []
        self.in_session: set[int] = set()
        self.is_waiting = False


class Leader:
    """A leader of four partitions with two followers, and a record of all that it told."""

    def __init__(self, sessions: type[FetchSessions]) -> None:
        self.world, self.facts = Calls(), Facts()
        self.hosted = hosted()
        self.partitions = [self._partition(index) for index in range(COUNT)]
        self.fetching = Fetching(
            self.hosted,
            sessions(sessions_max=9, eviction_ms=1000, rng=SeededRng()),
            max_bytes=50 * MIB,
            remote_read=None,
            remote_max_wait_ms=0,
            on_follower=self._propose,
        )
        self.followers = {n: Session(n) for n in FOLLOWERS}
        self.reported: list[Any] = []

    def _partition(self, index: int) -> Partition:
        log: Any = ListLog("t", index, TOPIC_ID)
        made = Partition(log, node_id=NODE_ID, fsync_rule="never", brokers=self.facts)
        made.update(
            leader_id=NODE_ID, leader_epoch=0, partition_epoch=0, replicas=REPLICAS, isr=REPLICAS,
            now_ms=self.world.now_ms,
        )  # fmt: skip
        self.hosted.add(made)
        return made

    def _propose(self, partition: Partition, now_ms: int) -> Effects:
        self.reported.append(("proposes", partition.proposed))
        return []

    # ---- what may happen

    def append(self, index: int) -> None:
        partition, data = self.partitions[index], batch()
        log, size = partition.log, len(data)
        stable, high = log.last_stable_offset, log.high_watermark
        if not isinstance(partition.append(data, acks=1, now_ms=self.world.now_ms), KafkaError):
            self.world.run(partition.grown(size, stable, high, self.world.now_ms))

    def fetch(self, replica_id: int, *, wait_ms: int = WAIT_MS, max_bytes: int = 10 * MIB) -> None:
        """The follower's next Fetch, which says where it is in what it heard of."""
        side = self.followers[replica_id]
        if side.is_waiting:
            return
        named = sorted(side.news if side.epoch else side.at)
        wanted = [
            Wanted(
                None, TOPIC_ID, index, fetch_offset=side.at[index], max_bytes=MIB,
                leader_epoch=-1 if index == SAYS_NO_EPOCH else self.partitions[index].leader_epoch,
                log_start_offset=side.starts[index],
            )
            for index in named
        ]  # fmt: skip
        ask = FetchAsk(
            wanted, max_wait_ms=wait_ms, min_bytes=1, max_bytes=max_bytes, replica_id=replica_id,
            replica_epoch=side.broker_epoch, session_id=side.session_id, session_epoch=side.epoch,
            forgotten=[(TOPIC_ID, index) for index in side.forgotten], uses_ids=True,
        )  # fmt: skip
        side.is_waiting, side.news, side.forgotten = True, set(), []
        side.epoch += 1

        def answer(found: FetchAnswer) -> Effects:
            self._receive(side, found)
            return []

        self.world.run(self.fetching.fetch(ask, answer, self.world.now_ms))

    def _receive(self, side: Session, answer: FetchAnswer) -> None:
        side.is_waiting = False
        if answer.error is not None:
            self.reported.append((side.replica_id, answer.error.code))
            self.begin_anew(side.replica_id)
            return
        side.session_id = answer.session_id
        rows = []
        for wanted, outcome in answer.outcomes:
            if isinstance(outcome, Local):
                size = len(outcome.records)
                rows.append((wanted.index, size, outcome.high_watermark, outcome.log_start_offset))
                if size:
                    side.at[wanted.index] = self.partitions[wanted.index].log.log_end_offset
                    side.news.add(wanted.index)
            else:
                code = outcome.code if isinstance(outcome, KafkaError) else type(outcome)
                rows.append((wanted.index, code, 0, 0))  # type: ignore[arg-type]
                side.at[wanted.index] = self.partitions[wanted.index].log.log_end_offset
                side.news.add(wanted.index)
        self.reported.append((side.replica_id, rows))

    def begin_anew(self, replica_id: int) -> None:
        side = self.followers[replica_id]
        if not side.is_waiting:
            side.session_id = side.epoch = 0

    def name(self, replica_id: int, index: int) -> None:
        """The follower gave records up, and says so."""
        side = self.followers[replica_id]
        side.starts[index] = side.at[index]
        side.news.add(index)

    def forget(self, replica_id: int, index: int) -> None:
        side = self.followers[replica_id]
        if side.epoch > 1 and not side.is_waiting:
            side.forgotten.append(index)
            side.news.discard(index)

    def cut(self, index: int) -> None:
        """Records are deleted up to the high watermark."""
        log = log_of(self.partitions[index])
        log.advance_log_start(log.high_watermark)

    def decide(self, index: int, isr: Sequence[int], leader_id: int, *, is_new: bool) -> None:
        """Metadata says something of a partition."""
        partition = self.partitions[index]
        partition.update(
            leader_id=leader_id,
            leader_epoch=partition.leader_epoch + is_new,
            partition_epoch=partition.partition_epoch + 1,
            replicas=REPLICAS,
            isr=isr,
            now_ms=self.world.now_ms,
        )
        self.world.run(partition.release_all(self.world.now_ms))

    def fail(self, index: int) -> None:
        """The files of a partition fail."""
        self.partitions[index].go_offline()
        self.world.run(self.partitions[index].release_all(self.world.now_ms))

    def look(self) -> None:
        for partition in self.partitions:
            self.world.run(partition.look(self.world.now_ms))

    def agree(self, index: int) -> None:
        """The controller takes what a partition proposes."""
        partition = self.partitions[index]
        change = partition.proposed
        if change is not None:
            isr = tuple(broker_id for broker_id, _ in change.new_isr)
            epochs = (partition.leader_epoch, isr, partition.partition_epoch + 1)
            answer = IsrAnswer(NODE_ID, *epochs)
            self.world.run(partition.altered(change, answer, self.world.now_ms) or [])

    def replace(self, index: int) -> None:
        """A partition leaves, and comes again empty."""
        old = self.partitions[index]
        self.hosted.remove(old)
        old.retire()
        self.world.run(old.release_all(self.world.now_ms))
        self.partitions[index] = self._partition(index)
        for side in self.followers.values():
            side.at[index] = 0
            side.news.add(index)

    def restart(self, replica_id: int) -> None:
        """A newer incarnation registers; the Fetches of the old one go on for a while."""
        self.facts.epochs[replica_id] += 1

    def catch_up(self, replica_id: int) -> None:
        self.followers[replica_id].broker_epoch = self.facts.epochs[replica_id]

    def state(self) -> list[Any]:
        """All that anybody could ask for."""
        return [
            (
                *(p.isr, p.maximal_isr, p.log.high_watermark, p.log.log_end_offset, p.proposed),
                *(len(p.fetch_waiters), closest(p, p.log.log_end_offset, lambda n: n != NODE_ID)),
                [
                    (f.broker_id, f.end_offset, f.caught_up_ms, f.log_start_offset, f.broker_epoch)
                    for f in p.followers.values()
                ],
            )
            for p in self.partitions
        ]


def happens(rng: random.Random) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Something that may happen to a leader."""
    index, replica_id = rng.randrange(COUNT), rng.choice(FOLLOWERS)
    roll = rng.random()
    if roll < 0.50:
        # A small answer has no room for records of more than one partition.
        limits = {"wait_ms": rng.choice((0, WAIT_MS)), "max_bytes": rng.choice((1, MIB))}
        return "fetch", (replica_id,), limits
    if roll < 0.70:
        return "pass_time", (rng.choice((1, 100, WAIT_MS, LAG_MS)),), {}
    if roll < 0.78:
        return "append", (index,), {}
    if roll < 0.84:
        return rng.choice(("look", "agree")), (index,), {}
    if roll < 0.86:
        isr = rng.choice((REPLICAS, REPLICAS[:2], REPLICAS[:1]))
        leader_id = rng.choice((NODE_ID, NODE_ID, NODE_ID, 2))
        return "decide", (index, isr, leader_id), {"is_new": rng.random() < 0.5}
    if roll < 0.92:
        return rng.choice(("name", "name", "forget")), (replica_id, index), {}
    if roll < 0.96:
        return rng.choice(("cut", "cut", "cut", "replace", "replace", "fail")), (index,), {}
    return rng.choice(("restart", "catch_up", "catch_up", "begin_anew")), (replica_id,), {}


def do(leader: Leader, what: str, words: tuple[Any, ...], more: dict[str, Any]) -> None:
    if what == "pass_time":
        leader.world.pass_time(*words)
    elif what == "look":
        leader.look()
    else:
        getattr(leader, what)(*words, **more)


@pytest.mark.parametrize("seed", range(60))
def test_a_leader_whose_partitions_rest_says_and_knows_what_one_that_reads_them_all_does(
    seed: int,
) -> None:
    """Goal: no answer, no ISR, no time of a follower is another one. Method: the same story to both."""
    rng = random.Random(seed)
    resting, reading = Leader(FetchSessions), Leader(Unresting)
    story: list[Any] = []
    for _ in range(250):
        step = happens(rng)
        story.append(step)
        for leader in (resting, reading):
            do(leader, *step)
        assert resting.reported == reading.reported, story[-12:]
        assert resting.state() == reading.state(), story[-12:]
        assert {*resting.world.timers} == {*reading.world.timers}


@pytest.fixture
def quiet() -> Leader:
    """Both followers have all, and were told so."""
    leader = Leader(FetchSessions)
    for replica_id in FOLLOWERS:
        leader.fetch(replica_id, wait_ms=0)
        leader.fetch(replica_id, wait_ms=0)
    return leader


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note which partitions are read from here on."""
    seen: list[int] = []
    real = Partition.read

    def read(partition: Partition, *where: Any, **more: Any) -> Any:
        seen.append(partition.topic_partition.partition)
        return real(partition, *where, **more)

    monkeypatch.setattr(Partition, "read", read)
    return seen


def test_a_fetch_without_news_reads_no_partition(
    quiet: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = count_reads(monkeypatch)
    quiet.reported.clear()
    quiet.fetch(2)
    quiet.world.pass_time(WAIT_MS)
    assert quiet.reported == [(2, [])]
    assert seen == []


def test_only_what_grew_is_read_and_it_ends_the_wait(
    quiet: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet.fetch(2)
    seen = count_reads(monkeypatch)
    quiet.reported.clear()
    quiet.append(3)
    assert [(who, [row[0] for row in rows]) for who, rows in quiet.reported] == [(2, [3])]
    assert seen == [3]


def test_a_follower_that_rests_is_caught_up_at_the_time_of_its_last_fetch(quiet: Leader) -> None:
    for _ in range(5):
        quiet.world.pass_time(LAG_MS)
        quiet.fetch(2, wait_ms=0)
    fetched_ms = quiet.world.now_ms
    quiet.world.pass_time(LAG_MS - 1)
    quiet.append(0)
    assert [quiet.partitions[0].followers[n].caught_up_ms for n in FOLLOWERS] == [fetched_ms, 1000]
    quiet.look()
    change = quiet.partitions[0].proposed
    assert change is not None
    assert [broker_id for broker_id, _ in change.new_isr] == [NODE_ID, 2]


def test_a_follower_that_said_nothing_in_a_new_leader_epoch_does_not_rest(quiet: Leader) -> None:
    quiet.fetch(2)
    quiet.decide(SAYS_NO_EPOCH, REPLICAS, NODE_ID, is_new=True)
    follower = quiet.partitions[SAYS_NO_EPOCH].followers[2]
    assert not quiet.followers[2].is_waiting
    assert follower.end_offset == -1
    quiet.fetch(2)
    assert follower.end_offset == 0


def test_the_dead_incarnation_of_a_follower_that_rests_is_refused(quiet: Leader) -> None:
    quiet.restart(2)
    quiet.reported.clear()
    quiet.fetch(2, wait_ms=0)
    ((_, rows),) = quiet.reported
    assert [row[1] for row in rows] == [Code.NOT_LEADER_OR_FOLLOWER] * COUNT
    assert quiet.hosted.by_name[TopicPartition("t", 0)] is quiet.partitions[0]


def test_a_session_that_was_left_says_nothing_of_a_follower_any_more() -> None:
    """It may go on for a while beside the one that took its place."""
    old, follower = FetchClock(), ReplicaState(2)
    follower.fetched(7, log_start_offset=0, leader_end_offset=7, broker_epoch=5, now_ms=10)
    old.fetched(2, 5, 10)
    old.begin_rest(follower, Facts())
    old.fetched(2, 5, 20)
    assert follower.caught_up_ms == 20
    follower.fetched(7, log_start_offset=0, leader_end_offset=9, broker_epoch=5, now_ms=30)
    old.fetched(2, 5, 40)
    assert follower.caught_up_ms == 20
