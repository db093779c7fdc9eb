"""Where the microseconds of a small request go, stage by stage, inside one process.

A node on a real directory, driven without sockets: a frame goes in as `runtime/net` would give it, the
answer comes out. CPU time of the thread, least of many rounds. A stage is measured alone, by calling what
the path calls, so stages do not add up to the whole to the last digit. The last rows are the same request
on the way for all cases, with contexts, effects and continuations (docs/decisions/0006, 0007).
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench.measure import BUILD, report
from bench.requests import TOPIC, api_versions_frame, fetch_frame, frame, produce_frame
from firnline.api.dispatch import Dispatcher
from firnline.api.fast_path import common_request, common_request_python
from firnline.api.handlers import k00_produce, k01_fetch
from firnline.base.ids import TopicPartition
from firnline.broker.wiring import build_node
from firnline.cli.dev import dev_config
from firnline.log.log import Log
from firnline.log.producer_state import ProducerStates
from firnline.metadata.format import format_storage
from firnline.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from firnline.records.batch import BatchHeader
from firnline.records.fast_path import common_batch, common_batch_python
from firnline.records.validate import check_limits
from firnline.replica.partition import Partition
from firnline.runtime.disk import RealFs
from firnline.runtime.loop import Runtime
from firnline.runtime.poll import PollLoop
from firnline.runtime.rng import SystemRng

Step = Callable[[], object]
Row = tuple[str, str, float]
_NOW_MS = 1_700_000_000_000


class Peer:
    """What `runtime.net.Connection` is to a request; keeps the last answer."""

    listener = "PLAINTEXT"
    peer_host = "127.0.0.1"
    principal = "User:ANONYMOUS"
    closed = False

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self.turn = 0
        self.closed = False
        self.parts: Any = None
        self.on_answer: Callable[[], None] | None = None

    def answer(self, parts: Any, turn: int) -> None:
        self.parts = parts
        if self.on_answer is not None:
            self.on_answer()


class Bench:
    """A node that serves, with one topic of one partition."""

    def __init__(self, directory: str) -> None:
        config = dev_config(9092, directory, None, {"firnline.acks.fsync": "never"})
        fs, rng, now_ms = RealFs(), SystemRng(), time.time_ns() // 1_000_000
        format_storage(fs, config, cluster_id=None, rng=rng, now_ms=now_ms, ignore_formatted=True)
        self.node = build_node(config, fs, rng, now_ms=now_ms, owner=self)
        self.loop = PollLoop()
        self.runtime = Runtime(self.node, self.loop, threads={"disk": 1})
        self.runtime.start()
        self.loop.run()
        self.peer = Peer(self.runtime.dispatcher)
        self._create_topic()
        self.partition: Partition = self.node.partitions[TopicPartition(TOPIC, 0)]
        self.log: Log = self.partition.log
        for content in (produce_frame(3900), fetch_frame(4096), api_versions_frame()):
            self.for_all_cases(memoryview(bytearray(content)))

    def node_running(self, now_ms: int) -> None:
        """`NodeOwner`: it serves."""
        self.loop.stop()

    def node_stopped(self, now_ms: int) -> None:
        """`NodeOwner`: nobody waits."""

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

    def for_all_cases(self, data: memoryview) -> None:
        """Handle one frame, not asking whether it is usual."""
        runtime, peer = self.runtime, self.peer
        peer.parts = None
        runtime.execute(runtime.dispatcher.on_frame(peer, data[4:], runtime.now_ms()))
        assert peer.parts is not None, "no answer"

    def at_once(self, data: memoryview) -> Any:
        """Handle one frame that is usual, as `Connection._on_received` does."""
        runtime = self.runtime
        now_ms = runtime.now_ms()
        return runtime.dispatcher.at_once(self.peer, data, len(data), now_ms)


def least_us(step: Step, *, rounds: int, calls: int = 300) -> float:
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


def produce_stages(made: Bench, rounds: int) -> Iterator[Row]:
    """Produce of one record of 100 B, acks=1, into one partition."""
    least = partial(least_us, rounds=rounds)
    view = memoryview(bytearray(produce_frame(100)))
    clean, now_ms = bytes(view), made.runtime.now_ms()
    asked: Any = common_request(view, len(view))
    records, fields = asked[6], asked[7]
    partition, log = made.partition, made.log
    node, epoch = made.node, partition.leader_epoch

    def again(step: Step) -> Step:
        def one() -> None:
            view[:] = clean  # an append stamps the batch in place
            step()

        return one

    copy_us = least(again(lambda: None))

    def stamped(step: Step) -> float:
        return least(again(step)) - copy_us

    yield (
        "parse",
        "frame, request, batch header, CRC",
        least(lambda: common_request(view, len(view))),
    )
    yield "", "the same in Python", least(lambda: common_request_python(view, len(view)))
    yield "batch alone", "header and CRC", least(lambda: common_batch(records))
    yield "", "the same in Python", least(lambda: common_batch_python(records))
    yield (
        "judge",
        "by the topic's limits",
        least(lambda: check_limits(fields, records, log.settings.limits, now_ms)),
    )
    header = tuple.__new__(BatchHeader, fields)
    numbered = header._replace(producer_id=7, producer_epoch=0, base_sequence=0)
    states = ProducerStates()
    states.note_batch(numbered, 0, now_ms)

    def producer_state() -> None:
        states.check(numbered._replace(base_sequence=1), is_client=True)
        states.note_batch(numbered, 0, now_ms)

    yield "producer state", "check and note; idempotent producers only", least(producer_state)
    segment = log._segments.active
    file, size = segment.file, segment.size_bytes
    assert file is not None
    yield "write", "one pwrite to the page cache", least(lambda: file.append(records))
    file.truncate(size)
    yield (
        "append to the log",
        "judge, stamp, write, index",
        stamped(lambda: log.append_checked(records, fields, epoch, now_ms)),
    )
    yield (
        "append to the partition",
        "who leads, who waits, watermark",
        stamped(lambda: partition.append(records, acks=1, now_ms=now_ms, header=fields)),
    )
    yield (
        "handler",
        "partition found, append, answer packed",
        stamped(lambda: k00_produce.at_once(node, made.peer, asked, now_ms)),
    )
    yield "WHOLE", "between recv and send", stamped(lambda: made.at_once(view))
    yield "whole, way for all cases", "", stamped(lambda: made.for_all_cases(view))


def fetch_stages(made: Bench, rounds: int) -> Iterator[Row]:
    """Fetch of one partition from offset 0, up to 4 KiB, no session."""
    least = partial(least_us, rounds=rounds)
    view = memoryview(bytearray(fetch_frame(4096)))
    now_ms, node = made.runtime.now_ms(), made.node
    asked: Any = common_request(view, len(view))
    log, partition = made.log, made.partition
    made.for_all_cases(view)  # the first read finds the places
    yield "parse", "frame and request", least(lambda: common_request(view, len(view)))
    yield "", "the same in Python", least(lambda: common_request_python(view, len(view)))
    yield (
        "locate",
        "two known places in the log, a slice",
        least(lambda: log.slice_at_once(0, 4096, log.high_watermark)),
    )
    yield "", "looking for them", least(lambda: log.read(0, max_bytes=4096, upto_offset=1))
    yield (
        "read of the partition",
        "epochs, marks, locate",
        least(lambda: partition.read_at_once(0, 4096, -1)),
    )
    yield (
        "handler",
        "partition found, read, answer packed",
        least(lambda: k01_fetch.at_once(node, made.peer, asked, now_ms)),
    )
    parts = made.at_once(view)
    yield "pread", "of the records, in the loop", least(parts[1].read)
    yield "WHOLE", "between recv and pread", least(lambda: made.at_once(view))
    yield "whole, way for all cases", "", least(lambda: made.for_all_cases(view))


def api_versions_stages(made: Bench, rounds: int) -> Iterator[Row]:
    """ApiVersions v3."""
    least = partial(least_us, rounds=rounds)
    view = memoryview(bytearray(api_versions_frame()))
    yield "WHOLE", "between recv and send", least(lambda: made.at_once(view))
    yield "whole, way for all cases", "", least(lambda: made.for_all_cases(view))


def main() -> None:
    """Print the stages of both requests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    with bench() as made:
        for question, stages in (
            ("Produce 100 B, v9", produce_stages),
            ("Fetch 4 KiB, v12", fetch_stages),
            ("ApiVersions, v3", api_versions_stages),
        ):
            rows = [
                {"stage": name, "of": what, "us (min)": round(us, 2)}
                for name, what, us in stages(made, options.rounds)
            ]
            report(f"{question}: CPU of each stage, without sockets", rows)


if __name__ == "__main__":
    main()
