"""Following a leader: what is asked, what an answer does to our log, and what it must not do."""

from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.effects import CancelTimer, Effects, SetTimer, Warn
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.log.producer_state import SnapshotEntry, encode_snapshot
from firnline.replica import follower
from firnline.replica.follower import (
    EARLIEST,
    LATEST,
    Fetched,
    Fetcher,
    FetchReply,
    LeaderFetch,
    Position,
)
from firnline.replica.partition import Partition
from firnline.replica.tier_start import TierState
from firnline.sim.disk import CrashableFs
from tests.log_world import NOW, TOPIC_ID, batch, opened, small

LEADER, SELF = 1, 2
BACKOFF_MS = 1_000
Then = Callable[[Any, int], Effects]


def replica(*batches: tuple[int, str], leader_epoch: int = 3) -> Partition:
    """A follower's partition; `batches` are (leader epoch, value), one record each."""
    fs = CrashableFs()
    log = opened(fs, small())
    for epoch, value in batches:
        log.append_as_leader(batch(value), leader_epoch=epoch, now_ms=NOW)
    p = Partition(log, node_id=SELF, fsync_rule="never")
    lead(p, leader_epoch)
    return p


def lead(p: Partition, leader_epoch: int, leader: int = LEADER) -> None:
    p.update(
        leader_id=leader,
        leader_epoch=leader_epoch,
        partition_epoch=leader_epoch,
        replicas=(1, 2),
        isr=(1, 2),
    )


def records(*batches: tuple[int, str], start: int = 0) -> bytes:
    """Batches as a leader sends them."""
    source = opened(CrashableFs(), small())
    for number in range(start):
        source.append_as_leader(batch(f"before {number}"), leader_epoch=0, now_ms=NOW)
    for epoch, value in batches:
        source.append_as_leader(batch(value), leader_epoch=epoch, now_ms=NOW)
    return source.read_batches(start, max_bytes=1 << 20)


def fetched(error: Code = Code.NONE, data: bytes = b"", **more: Any) -> Fetched:
    more = {"high_watermark": -1, "log_start_offset": -1} | more
    return Fetched(TOPIC_ID, 0, error, data, **more)


class Leader:
    """The other side, in the test's hands; and the effects of ours."""

    def __init__(self, *followed: Partition, has_tier: bool = True) -> None:
        self.asked: list[tuple[LeaderFetch, Then]] = []
        self.offsets: list[tuple[Position, int, Then]] = []
        self.timers: dict[Any, SetTimer] = {}
        self.said: list[str] = []
        self.failed: list[Partition] = []
        # (what, with what, continuation), of what is asked about a log that begins in the tier
        self.about: list[tuple[str, Any, Then]] = []
        self.now_ms = 0
        self.fetcher = Fetcher(
            LEADER,
            self,
            backoff_ms=BACKOFF_MS,
            on_storage_failure=lambda p, now_ms: self.failed.append(p) or [],
            tier=self.state_above if has_tier else None,
        )
        for p in followed:
            self.fetcher.add(p)
        self.go()

    def fetch(self, leader_id: int, ask: LeaderFetch, then: Then, now_ms: int) -> Effects:
        assert leader_id == LEADER
        self.asked.append((ask, then))
        return []

    def list_offset(
        self, leader_id: int, position: Position, which: int, then: Then, now_ms: int
    ) -> Effects:
        self.offsets.append((position, which, then))
        return []

    def local_start(self, leader_id: int, position: Position, then: Then, now_ms: int) -> Effects:
        self.about.append(("local start", None, then))
        return []

    def epoch_end(
        self, leader_id: int, position: Position, epoch: int, then: Then, now_ms: int
    ) -> Effects:
        self.about.append(("epoch end", epoch, then))
        return []

    def state_above(
        self, partition: Partition, *, epoch: int, offset: int, then: Then, now_ms: int
    ) -> Effects:
        self.about.append(("tier", (epoch, offset), then))
        return []

    def tell(self, outcome: Any) -> tuple[str, Any]:
        """Answer the one question about the tier; return it."""
        [(what, asked, then)] = self.about
        self.about.clear()
        self.run(then(outcome, self.now_ms))
        return what, asked

    def go(self) -> None:
        self.run(self.fetcher.go(self.now_ms))

    def run(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, SetTimer):
                self.timers[effect.key] = effect
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.key, None)
            else:
                assert isinstance(effect, Warn)
                self.said.append(effect.line)

    @property
    def ask(self) -> LeaderFetch:
        """The one Fetch that is under way."""
        assert len(self.asked) == 1, "one Fetch at a time"
        return self.asked[0][0]

    def answer(self, *parts: Fetched, session_id: int = 7) -> None:
        _, then = self.asked.pop(0)
        self.run(then(FetchReply(session_id, parts), self.now_ms))

    def fail(self, code: Code) -> None:
        _, then = self.asked.pop(0)
        self.run(then(KafkaError(code), self.now_ms))

    def offset(self, outcome: int | KafkaError) -> int:
        _, which, then = self.offsets.pop(0)
        self.run(then(outcome, self.now_ms))
        return which

    def pass_time(self, duration_ms: int = BACKOFF_MS) -> None:
        self.now_ms += duration_ms
        due = [t for t in self.timers.values() if t.at_ms <= self.now_ms]
        for timer in due:
            del self.timers[timer.key]
            self.run(timer.then(self.now_ms))


def asked_offsets(ask: LeaderFetch) -> list[int]:
    return [position.fetch_offset for position in ask.positions]


# ------------------------------------------------------------------------------------- following


def test_the_first_fetch_says_where_our_log_ends_and_in_which_epoch() -> None:
    leader = Leader(replica((1, "a"), (2, "b")))
    position = Position("t", TOPIC_ID, 0, 3, 2, 2, 0)
    assert leader.ask == LeaderFetch(0, 0, (position,), ())


def test_what_comes_is_appended_with_watermark_and_log_start() -> None:
    p = replica()
    leader = Leader(p)
    data = records((1, "a"), (3, "b"))
    leader.answer(fetched(data=data, high_watermark=1, log_start_offset=0))
    assert p.log.read_batches(0, max_bytes=1 << 20) == data
    assert (p.log.log_end_offset, p.log.high_watermark) == (2, 1)
    assert p.log.epochs.entries() == ((1, 0), (3, 1)), "rel-R11: the lineage comes with the batches"
    assert asked_offsets(leader.ask) == [2]


def test_a_watermark_beyond_our_log_is_taken_as_far_as_we_have_it() -> None:
    p = replica()
    leader = Leader(p)
    leader.answer(fetched(data=records((3, "a")), high_watermark=99, log_start_offset=0))
    assert p.log.high_watermark == 1


def test_a_new_leader_that_does_not_know_the_watermark_yet_takes_none_from_us() -> None:
    p = replica((1, "a"), (1, "b"))
    p.log.advance_high_watermark(2)
    leader = Leader(p)
    leader.answer(fetched(high_watermark=0, log_start_offset=0))
    assert p.log.high_watermark == 2


def test_a_log_start_within_a_batch_does_not_keep_a_new_replica_away() -> None:
    """Goal: after DeleteRecords the leader's log may begin within a batch; a replica that lost all, and
    begins there, is sent that batch whole, takes it, and goes on (KAFKA-6361)."""
    p = replica()
    p.log.truncate_fully(7)
    source = opened(CrashableFs(), small())
    for size in (5, 4, 1):
        source.append_as_leader(batch(*["v"] * size), leader_epoch=3, now_ms=NOW)
    data = source.read_batches(7, max_bytes=1 << 20)
    leader = Leader(p)
    leader.answer(fetched(data=data, high_watermark=9, log_start_offset=7))
    assert p.log.read_batches(5, max_bytes=1 << 20) == data
    assert (p.log.log_start_offset, p.log.log_end_offset, p.log.high_watermark) == (7, 10, 9)
    assert leader.ask.positions[0].fetch_offset == 10


def test_records_below_the_end_of_a_log_are_not_taken_for_its_first_batch() -> None:
    p = replica((3, "kept"))
    leader = Leader(p)
    leader.answer(fetched(data=records((3, "other"))))
    assert p.log.log_end_offset == 1
    assert leader.said != []


def test_the_log_start_follows_the_leader() -> None:
    p = replica((1, "a"), (1, "b"))
    leader = Leader(p)
    leader.answer(fetched(high_watermark=2, log_start_offset=1))
    assert p.log.log_start_offset == 1


def test_a_session_carries_changes_alone() -> None:
    p = replica()
    leader = Leader(p)
    leader.answer(fetched(high_watermark=0, log_start_offset=0), session_id=7)
    assert leader.ask == LeaderFetch(7, 1, (), ())
    leader.answer(fetched(data=records((3, "a")), high_watermark=0, log_start_offset=0))
    assert leader.ask[:2] == (7, 2)
    assert asked_offsets(leader.ask) == [1]
    leader.answer()
    assert leader.ask == LeaderFetch(7, 3, (), ())


def many(count: int) -> list[Partition]:
    """Partitions of as many topics; the first has the usual id."""
    found = [replica() for _ in range(count)]
    for number, each in enumerate(found[1:], 1):
        each.topic_id = bytes([number]) * 16
    return found


def test_a_fetch_costs_what_changed_and_not_what_is_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[Partition] = []
    position = follower._Followed.position
    monkeypatch.setattr(
        follower._Followed, "position", lambda each: looked.append(each.partition) or position(each)
    )
    followed = many(50)
    leader = Leader(*followed)
    assert len(looked) == len(leader.ask.positions) == 50
    leader.answer()
    looked.clear()
    for number in range(10):
        leader.answer(fetched(data=records((3, "a"), start=number)))
        assert asked_offsets(leader.ask) == [number + 1]
    assert looked == [followed[0]] * 10


def test_what_a_log_does_by_itself_is_told_to_the_leader_in_time() -> None:
    """Retention moves its start, and nobody tells."""
    p = replica((3, "a"), (3, "b"))
    p.log.advance_high_watermark(2)
    leader = Leader(p)
    p.log.advance_log_start(1)
    leader.answer()
    assert leader.ask.positions == ()
    leader.now_ms += follower.LOOK_AT_ALL_MS
    leader.answer()
    assert [each.log_start_offset for each in leader.ask.positions] == [1]


def test_a_partition_that_went_offline_is_left_out_in_time() -> None:
    p, other = many(2)
    leader = Leader(p, other)
    leader.answer()
    p.go_offline()
    leader.now_ms += follower.LOOK_AT_ALL_MS
    leader.answer()
    assert [each.topic_id for each in leader.ask.forgotten] == [TOPIC_ID]


def test_what_is_followed_no_more_is_forgotten_by_the_session() -> None:
    p = replica()
    leader = Leader(p)
    other = replica()
    other.topic_id = b"o" * 16
    leader.fetcher.add(other)
    leader.answer()
    leader.fetcher.remove(p)
    leader.answer()
    assert [position.topic_id for position in leader.ask.forgotten] == [TOPIC_ID]


def test_without_a_session_each_fetch_is_whole() -> None:
    leader = Leader(replica())
    leader.answer(session_id=0)
    assert leader.ask[:2] == (0, 0)
    assert len(leader.ask.positions) == 1


@pytest.mark.parametrize(
    "code",
    [
        Code.FETCH_SESSION_ID_NOT_FOUND,
        Code.INVALID_FETCH_SESSION_EPOCH,
        Code.FETCH_SESSION_TOPIC_ID_ERROR,
    ],
)
def test_a_session_that_was_pushed_out_begins_again_at_once(code: Code) -> None:
    leader = Leader(replica())
    leader.answer()
    leader.fail(code)
    assert leader.ask[:2] == (0, 0)
    assert len(leader.ask.positions) == 1
    leader.fail(code)
    assert leader.asked == [], "but it does not spin"


def test_a_leader_that_does_not_answer_is_asked_again_after_a_pause_for_everything() -> None:
    leader = Leader(replica())
    leader.answer()
    leader.fail(Code.NETWORK_EXCEPTION)
    assert leader.asked == []
    leader.pass_time(BACKOFF_MS - 1)
    assert leader.asked == []
    leader.pass_time(1)
    assert leader.ask[:2] == (0, 0)


# ---------------------------------------------------------------------- answers that do not count


def test_an_answer_of_another_leader_epoch_is_not_applied() -> None:
    """rel-R19: it may be from a leader that was deposed since."""
    p = replica((1, "a"))
    leader = Leader(p)
    lead(p, 4)
    leader.fetcher.add(p)
    leader.answer(fetched(diverging=(0, 0)))
    assert p.log.log_end_offset == 1
    assert leader.ask.positions[0].leader_epoch == 4


def test_an_answer_for_another_place_is_not_applied() -> None:
    """rel-R19: a doubled divergence truncated a good log."""
    p = replica((1, "a"))
    leader = Leader(p)
    p.log.append_as_follower(records((3, "b"), start=1), now_ms=NOW)
    leader.answer(fetched(diverging=(1, 0)))
    assert p.log.log_end_offset == 2


def test_an_answer_after_the_end_is_not_applied() -> None:
    p = replica()
    leader = Leader(p)
    leader.run(leader.fetcher.stop())
    leader.answer(fetched(data=records((3, "a"))))
    assert (p.log.log_end_offset, leader.asked) == (0, [])


def test_what_we_lead_ourselves_by_now_is_not_touched() -> None:
    p = replica((1, "a"))
    leader = Leader(p)
    lead(p, 4, leader=SELF)
    leader.fetcher.remove(p)
    leader.answer(fetched(diverging=(0, 0)))
    assert p.log.log_end_offset == 1


# ------------------------------------------------------------------------------------ divergence


@pytest.mark.parametrize(
    ("ours", "diverging", "end"),
    [
        ([1, 1, 1], (1, 2), 2),
        ([1, 1, 2, 2], (1, 2), 2),
        ([1, 1, 2, 2], (1, 5), 2),
        ([1, 3, 3], (2, 9), 1),
        ([2, 2], (1, 1), 0),
    ],
    ids=[
        "the leader's part of the epoch is shorter",
        "our later epoch is none of its",
        "our part of the epoch is shorter",
        "an epoch that we never saw",
        "nothing in common",
    ],
)
def test_a_history_that_differs_is_cut_where_it_parts(
    ours: list[int], diverging: tuple[int, int], end: int
) -> None:
    p = replica(*((epoch, "v") for epoch in ours))
    leader = Leader(p)
    leader.answer(fetched(diverging=diverging))
    assert p.log.log_end_offset == end
    assert all(start < end for _, start in p.log.epochs.entries())
    assert asked_offsets(leader.ask) == [end]


def test_an_epoch_without_records_of_ours_is_given_up_too() -> None:
    """We led, wrote nothing, and the leader never heard of that epoch: without this we would ask for ever."""
    p = replica((1, "a"))
    p.log.epochs.assign(2, 1)
    leader = Leader(p)
    assert leader.ask.positions[0].last_fetched_epoch == 2
    leader.answer(fetched(diverging=(1, 1)))
    assert leader.ask.positions[0].last_fetched_epoch == 1
    assert leader.said == []


def test_a_divergence_that_leads_nowhere_does_not_spin() -> None:
    leader = Leader(replica((1, "a")))
    leader.answer(fetched(diverging=(1, 9)))
    assert leader.asked == []
    assert "nothing to cut off" in leader.said[0]
    leader.pass_time()
    assert leader.ask.forgotten == ()


def test_records_that_were_committed_are_not_given_up_silently() -> None:
    p = replica((1, "a"), (1, "b"))
    p.log.advance_high_watermark(2)
    leader = Leader(p)
    leader.answer(fetched(diverging=(1, 1)))
    assert len(leader.said) == 1
    assert "up to 2 were committed" in leader.said[0]


def test_the_watermark_of_a_divergence_is_not_taken() -> None:
    p = replica((1, "a"), (1, "b"), (1, "c"))
    leader = Leader(p)
    leader.answer(fetched(diverging=(1, 1), high_watermark=3, log_start_offset=3))
    assert (p.log.high_watermark, p.log.log_start_offset) == (0, 0)


# ---------------------------------------------------------------------------------- out of range


def test_a_log_that_ends_before_the_leaders_begins_is_begun_anew_there() -> None:
    p = replica((1, "a"))
    leader = Leader(p)
    leader.answer(fetched(Code.OFFSET_OUT_OF_RANGE))
    assert leader.offset(500) == LATEST
    assert leader.offset(400) == EARLIEST
    assert (p.log.log_start_offset, p.log.log_end_offset) == (400, 400)
    assert asked_offsets(leader.ask) == [400]


def test_a_log_that_ends_after_the_leaders_is_cut_there() -> None:
    p = replica((1, "a"), (1, "b"), (1, "c"))
    leader = Leader(p)
    leader.answer(fetched(Code.OFFSET_OUT_OF_RANGE))
    leader.offset(1)
    assert p.log.log_end_offset == 1
    assert leader.offsets == []


def test_a_log_that_overlaps_the_leaders_is_kept() -> None:
    p = replica((1, "a"), (1, "b"))
    leader = Leader(p)
    leader.answer(fetched(Code.OFFSET_OUT_OF_RANGE))
    leader.offset(9)
    leader.offset(1)
    assert (p.log.log_start_offset, p.log.log_end_offset) == (0, 2)


def test_offsets_of_a_leader_that_was_deposed_meanwhile_cut_nothing() -> None:
    p = replica((1, "a"), (1, "b"))
    leader = Leader(p)
    leader.answer(fetched(Code.OFFSET_OUT_OF_RANGE))
    lead(p, 4)
    leader.fetcher.add(p)
    leader.offset(0)
    assert p.log.log_end_offset == 2


def test_offsets_that_cannot_be_had_are_asked_for_again_later() -> None:
    p = replica((1, "a"))
    leader = Leader(p)
    leader.answer(fetched(Code.OFFSET_OUT_OF_RANGE), session_id=0)
    leader.offset(KafkaError(Code.NETWORK_EXCEPTION))
    assert leader.asked == []
    leader.pass_time()
    assert asked_offsets(leader.ask) == [1]


# ---------------------------------------------------------------------------------------- errors


def test_a_fenced_partition_waits_for_metadata() -> None:
    """I23."""
    p = replica()
    leader = Leader(p)
    leader.answer(fetched(Code.FENCED_LEADER_EPOCH))
    leader.pass_time(100 * BACKOFF_MS)
    assert leader.asked == []
    lead(p, 4)
    leader.fetcher.add(p)
    leader.go()
    assert leader.ask.positions[0].leader_epoch == 4


@pytest.mark.parametrize(
    "code",
    [
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_ID,
        Code.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_refused_partition_is_asked_for_again_after_a_pause(code: Code) -> None:
    leader = Leader(replica())
    leader.answer(fetched(code))
    assert leader.asked == []
    leader.pass_time()
    assert leader.ask == LeaderFetch(7, 1, (), ()), "the session still has it"


def test_a_refused_partition_does_not_hold_up_the_others() -> None:
    p, other = replica(), replica()
    other.topic_id = b"o" * 16
    leader = Leader(p, other)
    leader.answer(fetched(Code.NOT_LEADER_OR_FOLLOWER))
    assert [position.topic_id for position in leader.ask.forgotten] == [TOPIC_ID]


def test_damaged_records_are_not_written_and_are_asked_for_again() -> None:
    p = replica()
    leader = Leader(p)
    data = bytearray(records((3, "a")))
    data[-1] ^= 1
    leader.answer(fetched(data=bytes(data), high_watermark=1, log_start_offset=0))
    assert (p.log.log_end_offset, p.log.high_watermark) == (0, 0)
    assert "CRC" in leader.said[0]
    leader.pass_time()
    leader.answer(fetched(data=records((3, "a")), high_watermark=1, log_start_offset=0))
    assert (p.log.log_end_offset, p.log.high_watermark) == (1, 1)


@pytest.mark.parametrize("garbage", [b"x", b"\0" * 61, records((3, "a"))[:-1]])
def test_garbage_for_records_is_an_error_and_no_crash(garbage: bytes) -> None:
    p = replica()
    Leader(p).answer(fetched(data=garbage))
    assert p.log.log_end_offset == 0


def test_a_failed_disk_ends_the_partition_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    p = replica()
    leader = Leader(p)

    def fail(data: object, *, now_ms: int) -> None:
        raise StorageError("gone", error="EIO")

    monkeypatch.setattr(p.log, "append_as_follower", fail)
    leader.answer(fetched(data=records((3, "a"))))
    assert p.is_offline
    assert (leader.failed, leader.asked) == ([p], [])


def test_a_full_disk_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    p = replica()
    leader = Leader(p)

    def fail(data: object, *, now_ms: int) -> None:
        raise StorageError("full", error="ENOSPC")

    monkeypatch.setattr(p.log, "append_as_follower", fail)
    leader.answer(fetched(data=records((3, "a"))))
    assert not p.is_offline
    leader.pass_time()
    assert leader.ask.forgotten == ()


MOVED = Code.OFFSET_MOVED_TO_TIERED_STORAGE
STATE = TierState(90, ((0, 10), (1, 85)), encode_snapshot([]))


def moved(*batches: tuple[int, str]) -> tuple[Partition, Leader]:
    """A follower that was told that only the tier has what comes next."""
    p = replica(*batches)
    leader = Leader(p)
    leader.answer(fetched(MOVED))
    assert leader.asked == [], "it does not ask again meanwhile"
    return p, leader


def to_the_tier(leader: Leader) -> None:
    """The leader's epochs are 0:20, 1:85, 3:90; its local log begins at 90 (T32)."""
    assert leader.tell((3, 90)) == ("local start", None)
    assert leader.tell((1, 90)) == ("epoch end", 2)


def begun(leader: Leader, state: Any = STATE, last: tuple[int, int] = (1, 90)) -> None:
    assert leader.tell(state) == ("tier", (1, 89))
    assert leader.tell(last) == ("epoch end", 1)
    assert leader.offset(20) == EARLIEST


def test_a_follower_begins_above_the_segment_that_holds_what_is_before_the_local_log() -> None:
    """T30-T32; the lineage is cut where the leader's log begins."""
    p, leader = moved((0, "old"))
    to_the_tier(leader)
    begun(leader)
    log = p.log
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (20, 90, 90)
    assert log.high_watermark == 90
    assert log.epochs.entries() == ((0, 20), (1, 85))
    [position] = leader.ask.positions
    assert (position.fetch_offset, position.last_fetched_epoch) == (90, 1)


def test_the_first_epoch_has_none_before_it() -> None:
    _, leader = moved()
    assert leader.tell((0, 3)) == ("local start", None)
    assert leader.tell(KafkaError(Code.REPLICA_NOT_AVAILABLE)) == ("tier", (0, 2))


def test_a_local_log_that_begins_within_an_epoch_asks_for_that_epoch() -> None:
    _, leader = moved()
    leader.tell((3, 95))
    leader.tell((1, 90))
    assert leader.tell(KafkaError(Code.REPLICA_NOT_AVAILABLE)) == ("tier", (3, 94))


def test_a_segment_whose_end_the_leader_lost_counts_up_to_the_local_log_only() -> None:
    """The segment goes to 94 in an epoch 2 that an unclean election threw away."""
    p, leader = moved()
    to_the_tier(leader)
    kept = SnapshotEntry(7, 0, 4, 88, 0, NOW, -1, -1)
    lost = SnapshotEntry(8, 0, 4, 93, 0, NOW, -1, -1)
    state = TierState(95, ((0, 10), (1, 85), (2, 91)), encode_snapshot([kept, lost]))
    assert leader.tell(state) == ("tier", (1, 89))
    assert leader.tell((1, 90)) == ("epoch end", 2)
    leader.offset(20)
    assert p.log.log_end_offset == 90
    assert p.log.epochs.entries() == ((0, 20), (1, 85))
    assert [entry.producer_id for entry in p.log.producers.entries()] == [7]


def test_a_segment_may_end_above_the_start_of_the_local_log() -> None:
    p, leader = moved()
    to_the_tier(leader)
    state = TierState(95, ((0, 10), (1, 85), (3, 90)), encode_snapshot([]))
    leader.tell(state)
    assert leader.tell((3, 120)) == ("epoch end", 3)
    leader.offset(20)
    assert (p.log.log_end_offset, p.log.epochs.latest_epoch) == (95, 3)


@pytest.mark.parametrize("at", range(5))
def test_nothing_is_given_up_before_all_is_known(at: int) -> None:
    """Spec 3.19: lost are neither records nor patience while somebody does not answer."""
    p, leader = moved((0, "a"), (0, "b"))
    problem = KafkaError(Code.KAFKA_STORAGE_ERROR, "down")
    for outcome in [(3, 90), (1, 90), STATE, (1, 90)][:at]:
        leader.tell(outcome)
    leader.offset(problem) if at == 4 else leader.tell(problem)
    assert p.log.log_end_offset == 2
    assert leader.asked == leader.about == []
    leader.pass_time()
    assert leader.ask.forgotten == (), "it is asked for again, as it was"
    assert len(leader.said) == 1
    leader.answer(fetched(MOVED))
    leader.tell(problem)
    assert len(leader.said) == 1, "once is enough"


def test_a_damaged_snapshot_of_the_tier_changes_nothing() -> None:
    p, leader = moved((0, "a"))
    to_the_tier(leader)
    leader.tell(STATE._replace(producer_snapshot=b"garbage"))
    assert (p.log.log_end_offset, leader.about) == (1, [])
    leader.pass_time()
    assert leader.ask.forgotten == ()


def test_an_answer_for_an_older_leader_epoch_truncates_nothing() -> None:
    p, leader = moved((0, "a"))
    to_the_tier(leader)
    lead(p, 4)
    leader.fetcher.add(p)
    begun(leader)
    assert p.log.log_end_offset == 1


def test_other_partitions_are_fetched_while_one_begins_in_the_tier() -> None:
    p, other = replica(), replica()
    other.topic_id = bytes(15) + b"\x63"
    leader = Leader(p, other)
    leader.answer(fetched(MOVED))
    assert [position.topic_id for position in leader.ask.forgotten] == [p.topic_id]


def test_a_node_without_a_tier_asks_again_after_a_pause() -> None:
    p = replica()
    leader = Leader(p, has_tier=False)
    leader.answer(fetched(MOVED))
    assert (leader.about, leader.asked) == ([], [])
    assert "this node has none" in leader.said[0]
    leader.pass_time()
    assert leader.ask.forgotten == ()


def test_files_that_fail_while_a_log_begins_anew_take_the_partition_down() -> None:
    """Also when the disk is full: what was there is gone already."""
    p, leader = moved((0, "a"))
    to_the_tier(leader)
    fs = p.log._fs
    assert isinstance(fs, CrashableFs)
    fs.fail("open", ".log", "ENOSPC")
    begun(leader)
    assert (leader.failed, p.is_offline) == ([p], True)
