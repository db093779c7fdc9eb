"""KIP-405's follower scenarios, offset by offset, on the machines: leader, follower, tier (rel-T21).

`o:m/e` is offset, message, leader epoch, as the seed's tables have it. A fetch with an epoch is checked as
KIP-320 has it: the epoch of the position is asked about first, and an end below the position is "fenced".
"""

from typing import Any

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import NO_EPOCH
from firnline.base.replicas import EARLIEST, Fetched, FetchReply, LeaderFetch, Position
from firnline.base.slices import Records
from firnline.replica.follower import Fetcher
from firnline.replica.isr import BrokerFact, NoBrokers
from firnline.replica.partition import Partition
from firnline.replica.read import BelowLocalStart, Diverging, Local
from firnline.replica.tier_start import TierState
from firnline.tiered.spi import RemoteSegment
from tests.worlds.decoded import all_records
from tests.worlds.tier import WHERE, Cluster, Node

FENCED = "fenced"


class AllAreWell(NoBrokers):
    """`replica.isr.Brokers`: everybody is registered and alive."""

    def fact(self, broker_id: int) -> BrokerFact:
        return BrokerFact(1, True)


class Broker:
    """One broker: a log and a tier, a replica that leads or follows."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.node = Node(cluster, node_id).start()
        self.partition = Partition(
            self.node.log, node_id=node_id, fsync_rule="never", brokers=AllAreWell()
        )
        self.fetcher: Fetcher | None = None
        self.moved = 0

    @property
    def log(self) -> Any:
        return self.node.log

    @property
    def epochs(self) -> dict[int, int]:
        return dict(self.log.epochs.entries())

    def _update(self, leader_id: int, epoch: int, isr: tuple[int, ...]) -> None:
        self.partition.update(
            leader_id=leader_id, leader_epoch=epoch, partition_epoch=epoch, replicas=(1, 2), isr=isr
        )
        is_leader = leader_id == self.node.node_id
        self.node.role(is_leader=is_leader, epoch=epoch)

    def lead(self, epoch: int, *messages: str) -> None:
        """Lead alone from `epoch` on, and write one record per message."""
        self.fetcher = None
        self._update(self.node.node_id, epoch, (self.node.node_id,))
        self.write(epoch, *messages)

    def write(self, epoch: int, *messages: str) -> None:
        self.node.produce(epoch, *messages, roll=False)

    def ship(self) -> None:
        """End the active segment, and let the tier have all that is finished."""
        self.log.roll(self.node.cluster.now_ms)
        self.node.pass_time(2_000)

    def keep_local_from(self, offset: int) -> None:
        """Give local segments up to the tier."""
        self.node.expire_local()
        assert self.log.local_log_start_offset == offset

    # -------------------------------------------------------------------------------- following

    def follow(self, leader: "Broker", epoch: int) -> None:
        """Fetch until all is here that the leader has."""
        self._update(leader.node.node_id, epoch, (leader.node.node_id,))
        self.leader = leader
        self.fetcher = Fetcher(
            leader.node.node_id,
            self,
            backoff_ms=100,
            on_storage_failure=lambda p, now_ms: [],
            tier=self.state_above,
        )
        self.fetcher.add(self.partition)
        self.fetches = 50
        self._run(self.fetcher.go(self.node.cluster.now_ms))
        for _ in range(20):
            if self.log.log_end_offset == leader.log.log_end_offset and not self.fetches:
                break
            self.fetches = 50
            self.node.pass_time(200)

    def _run(self, effects: Effects) -> None:
        self.node.run(effects)

    def fetch(self, leader_id: int, ask: LeaderFetch, then: Any, now_ms: int) -> Effects:
        """The leader's side: what `Partition.read` says of the position of the one partition."""
        position = Position(
            "t", self.partition.topic_id, 0, self.partition.leader_epoch,
            self.log.log_end_offset, self.log.epochs.latest_epoch, self.log.log_start_offset,
        )  # fmt: skip
        led = self.leader.partition
        refusal = led.follower_refusal(
            self.node.node_id, leader_epoch=position.leader_epoch, broker_epoch=-1
        )
        assert refusal is None, refusal
        outcome = led.read(
            position.fetch_offset,
            max_bytes=1 << 20,
            isolation=0,
            leader_epoch=position.leader_epoch,
            last_fetched_epoch=position.last_fetched_epoch,
            is_follower=True,
        )
        self.fetches -= 1
        if self.fetches <= 0:
            return []
        part = Fetched(position.topic_id, 0, Code.NONE, b"", -1, -1)
        if isinstance(outcome, BelowLocalStart):
            self.moved += 1
            part = part._replace(error=Code.OFFSET_MOVED_TO_TIERED_STORAGE)
        elif isinstance(outcome, Diverging):
            part = part._replace(diverging=(outcome.epoch, outcome.end_offset))
        elif isinstance(outcome, KafkaError):
            part = part._replace(error=outcome.code)
        else:
            assert isinstance(outcome, Local)
            led.follower_fetched(self.node.node_id, position.fetch_offset, now_ms)
            part = part._replace(
                records=_bytes(outcome.records),
                high_watermark=outcome.high_watermark,
                log_start_offset=outcome.log_start_offset,
            )
            if not part.records:
                self.fetches = 0
        return then(FetchReply(0, [part]), now_ms)

    def list_offset(
        self, leader_id: int, position: Position, which: int, then: Any, now_ms: int
    ) -> Effects:
        log = self.leader.log
        found = log.log_start_offset if which == EARLIEST else log.log_end_offset
        return then(found, now_ms)

    def local_start(self, leader_id: int, position: Position, then: Any, now_ms: int) -> Effects:
        log = self.leader.log
        start = log.local_log_start_offset
        epoch = log.epochs.epoch_at(start)
        return then((NO_EPOCH if epoch is None else epoch, start), now_ms)

    def last_tiered(self, leader_id: int, position: Position, then: Any, now_ms: int) -> Effects:
        log = self.leader.log
        epoch = log.epochs.epoch_at(log.highest_remote_offset)
        return then((NO_EPOCH if epoch is None else epoch, log.highest_remote_offset), now_ms)

    def epoch_end(
        self, leader_id: int, position: Position, epoch: int, then: Any, now_ms: int
    ) -> Effects:
        return then(self.leader.partition.end_offset_for_epoch(epoch), now_ms)

    def state_above(
        self, partition: Partition, *, epoch: int, offset: int, then: Any, now_ms: int
    ) -> Effects:
        def came(found: Any, at_ms: int) -> Effects:
            if isinstance(found, KafkaError):
                return then(found, at_ms)
            self.begun_from = found.segment
            end = found.segment.end_offset + 1
            return then(TierState(end, found.epochs, found.producer_snapshot), at_ms)

        return self.node.tier.aux_state(WHERE, epoch=epoch, offset=offset, then=came, now_ms=now_ms)

    begun_from: RemoteSegment | None = None
    leader: "Broker"
    fetches = 0

    # -------------------------------------------------------------------------------- a consumer

    def read(self, offset: int, epoch: int | None = None) -> str:
        """What a consumer gets first from `offset`, whose last record was of `epoch` if it says so."""
        if epoch is not None:
            known, end = self.partition.end_offset_for_epoch(epoch)
            if known < epoch or end < offset:
                return FENCED
        if offset < self.log.local_log_start_offset:
            found = self.node.read(offset, max_bytes=1)
            assert not isinstance(found, KafkaError), found
            data = bytes(found.records)
        else:
            data = self.log.read_batches(offset, max_bytes=1)
        return next((r.value or b"").decode() for r in all_records(data) if r.offset >= offset)

    def messages(self) -> list[str]:
        return [self.read(o) for o in range(self.log.log_start_offset, self.log.log_end_offset)]


def _bytes(records: Records) -> bytes:
    return bytes(records) if isinstance(records, (bytes, bytearray)) else records.read()  # type: ignore[union-attr]


def scenario_1() -> tuple[Broker, Cluster]:
    """A: 0:0/0 1:1/0 2:2/0 | 3:3/1 4:4/1 5:5/2 | 6:6/2 7:7/3; the tier has all but the last two."""
    cluster = Cluster()
    a = Broker(cluster, 1)
    a.lead(0, "0", "1", "2")
    a.ship()
    a.lead(1, "3", "4")
    a.lead(2, "5")
    a.ship()
    a.lead(2, "6")
    a.lead(3, "7")
    a.keep_local_from(6)
    assert a.epochs == {0: 0, 1: 3, 2: 5, 3: 7}
    return a, cluster


def test_s1_a_new_empty_follower_begins_in_the_tier() -> None:
    a, cluster = scenario_1()
    b = Broker(cluster, 2)
    b.follow(a, 3)
    assert b.moved >= 1
    assert b.begun_from is not None
    assert (b.begun_from.base_offset, b.begun_from.end_offset) == (3, 5)
    assert (b.log.local_log_start_offset, b.log.log_end_offset) == (6, 8)
    assert b.epochs == a.epochs
    assert b.messages() == [str(n) for n in range(8)]
    assert a.partition.proposed is not None, "it is asked into the ISR"


def test_s21_a_follower_that_lags_by_what_is_local_truncates_nothing() -> None:
    cluster = Cluster()
    a, b = Broker(cluster, 1), Broker(cluster, 2)
    a.lead(0, "0", "1", "2")
    a.lead(1, "3")
    b.follow(a, 1)
    assert b.epochs == {0: 0, 1: 3}
    a.lead(1, "4")
    a.lead(2, "5", "6")
    a.lead(3, "7", "8", "9")
    before = b.log.log_end_offset
    b.follow(a, 3)
    assert (before, b.moved, b.node.warnings) == (4, 0, [])
    assert b.log.local_log_start_offset == 0
    assert (b.epochs, b.messages()) == (a.epochs, [str(n) for n in range(10)])


def test_s22_a_follower_that_lags_by_what_only_the_tier_has_drops_what_it_has() -> None:
    cluster = Cluster()
    a, b = Broker(cluster, 1), Broker(cluster, 2)
    a.lead(0, "0", "1", "2")
    a.ship()
    a.lead(1, "3")
    b.follow(a, 1)
    a.lead(1, "4")
    a.lead(2, "5")
    a.ship()
    a.lead(2, "6")
    a.lead(3, "7", "8")
    a.ship()
    a.write(3, "9", "10", "11")
    a.keep_local_from(9)
    b.follow(a, 3)
    assert b.begun_from is not None
    assert (b.begun_from.base_offset, b.begun_from.end_offset) == (6, 8)
    assert (b.log.local_log_start_offset, b.log.log_start_offset) == (9, 0)
    assert b.epochs == a.epochs == {0: 0, 1: 3, 2: 5, 3: 7}
    assert b.messages() == [str(n) for n in range(12)]


def test_s3_both_crash_and_the_tail_is_lost() -> None:
    """B loses 1 and 2, leads epoch 1 and ships 1-1#2; A follows it and gives up what it had."""
    cluster = Cluster()
    a, b = Broker(cluster, 1), Broker(cluster, 2)
    a.lead(0, "0", "1")
    a.ship()
    a.write(0, "2")
    b.node.follow(a.node)
    b.log.truncate_to(1)
    b.lead(1)
    b.log.roll(cluster.now_ms)
    b.write(1, "3")
    b.ship()
    b.write(1, "4")
    b.keep_local_from(2)
    assert b.epochs == {0: 0, 1: 1}
    assert b.read(0, 0) == "0"
    assert b.read(1) == "3", "not message 1, which the first segment holds"
    assert b.read(1, 1) == "3"
    assert b.read(2, 0) == FENCED
    a.follow(b, 1)
    assert (a.epochs, a.messages()) == (b.epochs, ["0", "3", "4"])


def test_s4_an_unclean_election_leaves_two_histories_in_the_tier() -> None:
    cluster = Cluster()
    a, b = Broker(cluster, 1), Broker(cluster, 2)
    a.lead(0, "0")
    b.node.follow(a.node)
    a.write(0, "1", "2")
    a.ship()
    a.write(0, "3")
    a.node.role(is_leader=False, epoch=1)
    b.lead(1, "4")
    b.ship()
    b.write(1, "5")
    b.keep_local_from(2)
    assert b.epochs == {0: 0, 1: 1}
    assert b.read(0, 0) == "0"
    assert b.read(1) == b.read(1, 1) == "4", "not message 1"
    assert b.read(2, 0) == FENCED
    a.follow(b, 1)
    assert (a.epochs, a.messages()) == (b.epochs, ["0", "4", "5"])


def test_s5_histories_part_inside_the_tier() -> None:
    """Two unclean elections; B is made anew and must not take up its own lost history."""
    cluster = Cluster()
    a, b = Broker(cluster, 1), Broker(cluster, 2)
    a.lead(0, "0", "1")
    b.node.follow(a.node)
    a.write(0, "2", "3")
    a.ship()
    a.write(0, "4")
    a.node.role(is_leader=False, epoch=1)
    b.lead(1, "4b", "5b")
    b.ship()
    b.write(1, "6b")
    b.node.role(is_leader=False, epoch=2)
    a.lead(2, "7")
    a.ship()
    a.write(2, "8")
    a.keep_local_from(6)
    assert a.epochs == {0: 0, 2: 5}

    anew = Broker(cluster, 2)
    anew.follow(a, 2)
    assert anew.begun_from is not None
    assert (anew.begun_from.base_offset, anew.begun_from.end_offset) == (4, 5)
    assert anew.epochs == {0: 0, 2: 5}
    assert anew.log.local_log_start_offset == 6
    assert anew.read(3, 1) == FENCED
    assert anew.read(2) == "2", "never message 4 of epoch 1"
    assert anew.messages() == ["0", "1", "2", "3", "4", "7", "8"]
    assert a.partition.proposed is not None

    # Its lost segment neither counts nor moves the log start.
    lost = [s for s in a.node.segments() if (1, 2) in s.epochs]
    assert len(lost) == 1
    a.node.pass_time(10_000)
    assert a.log.log_start_offset == 0


def test_s6_a_follower_that_leads_copies_from_the_segment_that_holds_the_first_missing_offset() -> (
    None
):
    """Epochs {0:0, 1:3, 2:6, 3:7}; the tier has 0-2 and 3-4, its own segments are 0-3, 4-6: 4-6 is next."""
    cluster = Cluster()
    a = Broker(cluster, 1)
    a.lead(0, "0", "1", "2")
    a.ship()
    a.lead(1, "3", "4")
    a.ship()
    a.node.role(is_leader=False, epoch=3)
    b = Broker(cluster, 2)
    for epoch, texts, rolls in (
        (0, "012", False),
        (1, "3", True),
        (1, "45", False),
        (2, "6", True),
    ):
        if epoch not in b.epochs:
            b.log.epochs.assign(epoch, b.log.log_end_offset)
        b.node.produce(epoch, *texts, roll=False)
        if rolls:
            b.log.roll(cluster.now_ms)
    b.lead(3, "7", "8")
    assert b.epochs == {0: 0, 1: 3, 2: 6, 3: 7}
    b.node.pass_time(3_000)
    extents = [(s.base_offset, s.end_offset) for s in b.node.segments()]
    assert extents == [(0, 2), (3, 4), (4, 6)], "an overlap, and no gap"
    b.keep_local_from(7)
    assert b.messages() == [str(n) for n in range(9)]
