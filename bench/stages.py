"""Where the microseconds of a small request go, stage by stage, inside one process.

A node on a real directory, driven without sockets: a frame goes in as `runtime/net` would give it, the
answer's parts come out. CPU time of the thread, least of many rounds. A stage is measured alone, by
calling what the path calls, so stages do not add up to the whole to the last digit. The last rows
answer docs/decisions/0006: the same work written as one straight function, without contexts, effects
and continuations; the difference to the whole is the price of the seam.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.measure import BUILD
from bench.requests import TOPIC, api_versions_frame, fetch_frame, frame, produce_frame
from firnline.base.ids import TopicPartition
from firnline.broker.wiring import build_node
from firnline.cli.dev import dev_config
from firnline.log.log import Log
from firnline.metadata.format import format_storage
from firnline.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from firnline.replica.partition import Partition
from firnline.runtime.disk import RealFs
from firnline.runtime.loop import Runtime
from firnline.runtime.poll import PollLoop
from firnline.runtime.rng import SystemRng

Step = Callable[[], object]
_NOW_MS = 1_700_000_000_000


class Peer:
    """What `runtime.net.Connection` is to a request; keeps the last answer."""

    listener = "PLAINTEXT"
    peer_host = "127.0.0.1"
    principal = "User:ANONYMOUS"
    closed = False

    def __init__(self) -> None:
        self.parts: Any = None
        self.on_answer: Callable[[], None] | None = None

    def answer(self, parts: Any) -> None:
        self.parts = parts
        if self.on_answer is not None:
            self.on_answer()


class Bench:
    """A node that serves, with one topic of one partition."""

    def __init__(self, directory: str) -> None:
        config = dev_config(9092, directory, None, {"firnline.acks.fsync": "never"})
        fs, rng, now_ms = RealFs(), SystemRng(), time.time_ns() // 1_000_000
        format_storage(fs, config, cluster_id=None, rng=rng, now_ms=now_ms, ignore_formatted=True)
        self.node = build_node(config, fs, rng, now_ms=now_ms)
        self.loop = PollLoop()
        self.runtime = Runtime(self.node, self.loop, threads={"disk": 1})
        self.node.on_running = lambda now_ms: self.loop.stop()
        self.runtime.start()
        self.loop.run()
        self.peer = Peer()
        self._create_topic()
        self.partition: Partition = self.node.partitions[TopicPartition(TOPIC, 0)]
        self.log: Log = self.partition.log

    def _create_topic(self) -> None:
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        request = frame(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        self.peer.on_answer = self.loop.stop
        view = memoryview(bytearray(request))[4:]
        self.runtime.execute(self.runtime.dispatcher.on_frame(self.peer, view, _NOW_MS))
        self.loop.run()
        self.peer.on_answer = None

    def close(self) -> None:
        self.node.close()
        self.runtime.close()
        self.loop.close()

    def whole(self, frame: bytes) -> Step:
        """Everything between `recv` and `send` of one request."""
        runtime, peer = self.runtime, self.peer
        view = memoryview(bytearray(frame))
        request = view[4:]
        clean = bytes(view)

        def step() -> None:
            view[:] = clean  # an append stamps the batch in place
            runtime.execute(runtime.dispatcher.on_frame(peer, request, runtime.now_ms()))

        step()
        assert peer.parts is not None, "no answer"
        return step


def least_us(step: Step, *, rounds: int, calls: int = 1000) -> float:
    """Return the least mean CPU microseconds of one call over `rounds`."""
    best = float("inf")
    for _ in range(rounds):
        began = time.thread_time_ns()
        for _ in range(calls):
            step()
        best = min(best, time.thread_time_ns() - began)
    return best / calls / 1000


@contextmanager
def bench() -> Iterator[Bench]:
    """A served node in a directory that goes afterwards."""
    BUILD.mkdir(parents=True, exist_ok=True)
    directory = tempfile.mkdtemp(dir=BUILD)
    made = Bench(directory)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with bench() as made:
        for name, content in (
            ("Produce 3900", produce_frame(3900)),
            ("ApiVersions", api_versions_frame()),
            ("Produce 100", produce_frame(100)),
            ("Fetch 4 KiB", fetch_frame(4096)),
        ):
            print(name, round(least_us(made.whole(content), rounds=options.rounds), 2))


if __name__ == "__main__":
    main()
