"""What a follower's Fetch costs its leader, by how many partitions its session has. WORLD.

    python -m bench.followers [PARTITIONS]...     200 and 2000 by default

The baseline is `all`: the same Fetch where nothing rests, since each partition is asked for anew.

In one process, without sockets and codecs: a leader's partitions, one incremental session of a follower that
has them all, and its Fetches. `idle` is one without news, from the request to the answer when the wait is
over; `busy` one that a batch in one partition answers, and the next says that the follower has it. CPU
microseconds, the least of the rounds, and their ratios to the baseline.
"""

import sys
import time
from collections.abc import Callable

from firnline.base.effects import Effects, SetTimer
from firnline.base.ids import TopicPartition
from firnline.broker.fetch import FetchAnswer, Fetching
from firnline.broker.fetch_session import FetchAsk, FetchSessions, Wanted
from firnline.config.topic import TopicConfig
from firnline.log.recovery import open_log
from firnline.records.build import NewRecord, build_batch
from firnline.replica.hosted import HostedPartitions
from firnline.replica.partition import Partition
from firnline.runtime.rng import SystemRng
from firnline.sim.disk import CrashableFs

LEADER, FOLLOWER, ROUNDS = 1, 2, 30
WAIT_MS, MIB = 500, 1 << 20
TOPIC_ID = bytes(range(16))


class Leader:
    """A leader of so many partitions, and the session of one follower."""

    def __init__(self, count: int) -> None:
        fs = CrashableFs()
        self.hosted = HostedPartitions(exists=lambda name, index: False, name_of=lambda _: None)
        self.partitions = [_partition(fs, index) for index in range(count)]
        for partition in self.partitions:
            self.hosted.add(partition)
        self.fetching = Fetching(
            self.hosted,
            FetchSessions(sessions_max=9, eviction_ms=1000, rng=SystemRng()),
            max_bytes=50 * MIB,
            remote_read=None,
            remote_max_wait_ms=0,
            on_follower=lambda partition, now_ms: [],
        )
        self.now_ms, self.epoch, self.session_id = 1, 0, 0
        self.reported: list[FetchAnswer] = []
        self.ends = [0] * count
        self.fetch(range(count))
        # Twice: the second Fetch says that it has what the first one told.
        self.fetch(())

    def fetch(self, asked: range | tuple[int, ...]) -> Effects:
        """Send one request, naming these partitions, and return what is to happen later."""
        wanted = [
            Wanted(None, TOPIC_ID, index, fetch_offset=self.ends[index], max_bytes=MIB,
                   leader_epoch=0, log_start_offset=0)
            for index in asked
        ]  # fmt: skip
        ask = FetchAsk(
            wanted,
            max_wait_ms=WAIT_MS,
            min_bytes=1 if self.epoch > 1 else 0,
            max_bytes=10 * MIB,
            replica_id=FOLLOWER,
            session_id=self.session_id,
            session_epoch=self.epoch,
            uses_ids=True,
        )
        effects = self.fetching.fetch(ask, self._answer, self.now_ms)
        self.epoch += 1
        return effects

    def _answer(self, answer: FetchAnswer) -> Effects:
        assert answer.error is None, answer.error
        self.session_id = answer.session_id
        self.reported.append(answer)
        return []

    def read_all(self) -> None:
        """The follower names all partitions, where it stands: each is read, and nothing is new."""
        self.idle(range(len(self.partitions)))

    def idle(self, asked: range | tuple[int, ...] = ()) -> None:
        """Nothing is new until the wait is over."""
        later = self.fetch(asked)
        self.now_ms += WAIT_MS
        for effect in later:
            if isinstance(effect, SetTimer):
                effect.then(self.now_ms)
        assert self.reported.pop().outcomes == []

    def busy(self) -> None:
        """A batch comes to the first partition; the follower says with its next Fetch that it has it."""
        self.fetch(())
        partition = self.partitions[0]
        data = build_batch([NewRecord(None, b"v" * 100, 1)])
        end = partition.log.log_end_offset
        partition.append(data, acks=-1, now_ms=self.now_ms)
        size = len(data)
        high = partition.log.high_watermark
        partition.grown(size, high, high, self.now_ms)
        assert len(self.reported.pop().outcomes) == 1
        self.ends[0] = end + 1
        # The watermark that moves with it is news of its own.
        later = self.fetch((0,))
        for effect in later:
            if isinstance(effect, SetTimer):
                effect.then(self.now_ms)
        assert len(self.reported.pop().outcomes) == 1
        assert partition.log.high_watermark == end + 1


def _partition(fs: CrashableFs, index: int) -> Partition:
    log = open_log(
        fs, f"/t-{index}", TopicPartition("t", index), topic_id=TOPIC_ID, config=TopicConfig(),
        now_ms=0,
    )  # fmt: skip
    partition = Partition(log, node_id=LEADER, fsync_rule="never")
    both = (LEADER, FOLLOWER)
    partition.update(leader_id=LEADER, leader_epoch=0, partition_epoch=0, replicas=both, isr=both)
    return partition


def least_us(do: Callable[[], None]) -> float:
    """Return the CPU microseconds of the quickest of the rounds."""
    found = []
    for _ in range(ROUNDS):
        began = time.process_time_ns()
        do()
        found.append(time.process_time_ns() - began)
    return min(found) / 1000


def main() -> None:
    """Print one line a size."""
    for count in [int(word) for word in sys.argv[1:]] or [200, 2000]:
        leader = Leader(count)
        baseline = least_us(leader.read_all)
        idle, busy = least_us(leader.idle), least_us(leader.busy) / 2
        print(
            f"{count:6} partitions: all {baseline:6.0f} us a Fetch, idle {idle:6.0f}"
            f" ({idle / baseline:.2f}), busy {busy:6.0f} ({busy / baseline:.2f})"
        )


if __name__ == "__main__":
    main()
