"""A leader in a test's hands, and the replica that follows it."""

from collections.abc import Callable
from typing import Any

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.replicas import Fetched, FetchReply, LeaderFetch, Position
from firnline.replica.follower import Fetcher
from firnline.replica.partition import Partition
from firnline.sim.disk import CrashableFs
from tests.worlds.effects import World
from tests.worlds.log import NOW, TOPIC_ID, batch, opened, small

LEADER, SELF = 1, 2
BACKOFF_MS = 1_000
Then = Callable[[Any, int], Effects]


def replica(*batches: tuple[int, str], leader_epoch: int = 3, partition: int = 0) -> Partition:
    """A follower's partition; `batches` are (leader epoch, value), one record each."""
    fs = CrashableFs()
    log = opened(fs, small(), partition=partition)
    for epoch, value in batches:
        log.append_as_leader(batch(value), leader_epoch=epoch, now_ms=NOW)
    p = Partition(log, node_id=SELF, fsync_rule="never")
    lead(p, leader_epoch)
    return p


def many(count: int) -> list[Partition]:
    """Partitions of as many topics; the first has the usual id."""
    found = [replica() for _ in range(count)]
    for number, each in enumerate(found[1:], 1):
        each.topic_id = number.to_bytes(2, "big") * 8
    return found


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


class Leader(World):
    """The other side, in the test's hands; and the effects of ours."""

    def __init__(
        self, *followed: Partition, has_tier: bool = True, begins_at_last_tiered: bool = False
    ) -> None:
        super().__init__()
        self.asked: list[tuple[LeaderFetch, Then]] = []
        self.offsets: list[tuple[Position, int, Then]] = []
        self.failed: list[Partition] = []
        # (what, with what, continuation), of what is asked about a log that begins in the tier
        self.about: list[tuple[str, Any, Then]] = []
        self.fetcher = Fetcher(
            LEADER,
            self,
            backoff_ms=BACKOFF_MS,
            on_storage_failure=lambda p, now_ms: self.failed.append(p) or [],
            tier=self.state_above if has_tier else None,
            begins_at_last_tiered=lambda: begins_at_last_tiered,
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

    def last_tiered(self, leader_id: int, position: Position, then: Then, now_ms: int) -> Effects:
        self.about.append(("last tiered", None, then))
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

    def report(self, outcome: Any) -> tuple[str, Any]:
        """Answer the one question about the tier; return it."""
        [(what, asked, then)] = self.about
        self.about.clear()
        self.run(then(outcome, self.now_ms))
        return what, asked

    def do_work(self) -> None:
        """Let the disk do what waits for it, and go on with what came of it."""
        while self.work:
            self.work_once()

    def go(self) -> None:
        self.run(self.fetcher.go(self.now_ms))

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
        """Let the timers that are due then fire, once: what they set for the same time is another turn."""
        self.now_ms += duration_ms
        for timer in [each for each in self.timers.values() if each.at_ms <= self.now_ms]:
            self.fire(timer.key)


def asked_offsets(ask: LeaderFetch) -> list[int]:
    return [position.fetch_offset for position in ask.positions]
