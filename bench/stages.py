"""Where the microseconds of a small request go, stage by stage, inside one process.

A node on a real directory, driven without sockets: a frame goes in as `runtime/net` would give it, the
answer's parts come out. CPU time of the thread, least of many rounds. A stage is measured alone, by
calling what the path calls, so stages do not add up to the whole to the last digit. The last rows
answer docs/decisions/0006: the same work written as one straight function, without contexts, effects
and continuations; the difference to the whole is the price of the seam.
"""

import argparse
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench.measure import BUILD, report
from bench.requests import TOPIC, fetch_frame, frame, produce_frame
from firnline.api.context import RequestContext
from firnline.api.dispatch import Dispatcher
from firnline.api.handlers import k00_produce, k01_fetch
from firnline.base.effects import Appended, Effects, Reply
from firnline.base.ids import TopicPartition
from firnline.base.slices import FileRecords
from firnline.broker.wiring import build_node
from firnline.cli.dev import dev_config
from firnline.log.log import Log
from firnline.log.producer_state import ProducerStates
from firnline.metadata.format import format_storage
from firnline.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from firnline.protocol.primitives import uvarint
from firnline.protocol.session import REQUEST_START, Api, read_client_id
from firnline.records.batch import BatchHeader
from firnline.records.validate import check_client_batch
from firnline.replica.partition import Partition
from firnline.replica.read import Local
from firnline.runtime.disk import RealFs
from firnline.runtime.loop import Runtime
from firnline.runtime.net import _small
from firnline.runtime.poll import PollLoop
from firnline.runtime.rng import SystemRng

_pack_start = struct.Struct(">ii").pack
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
        self.peer = Peer(self.runtime.dispatcher)
        self._create_topic()
        self.partition: Partition = self.node.partitions[TopicPartition(TOPIC, 0)]
        self.log: Log = self.partition.log
        for content in (produce_frame(3900), fetch_frame(4096)):
            self.whole(content)
        self._straight = (self.api(0, 9), self.api(1, 12))

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

    def api(self, key: int, version: int) -> Api:
        """The API as the dispatcher found it."""
        return self.runtime.dispatcher._apis[key << 16 | version]

    @staticmethod
    def body_at(request: memoryview) -> int:
        """Where the body of a flexible request begins."""
        return read_client_id(request, REQUEST_START.unpack_from(request)[2])[1] + 1

    def begin(self, request: memoryview) -> RequestContext:
        """What the dispatcher does before it decodes."""
        key_and_version, correlation_id, length = REQUEST_START.unpack_from(request)
        client_id, _ = read_client_id(request, length)
        return RequestContext(
            self.peer, key_and_version >> 16, key_and_version & 0xFFFF, correlation_id, client_id, 0
        )

    def answering(self, whole: Step, least: Callable[[Step], float]) -> Iterator[Row]:
        """From the handler's answer to the parts of a frame."""
        replies: list[Reply] = []
        runtime = self.runtime
        runtime._reply, kept = replies.append, runtime._reply  # type: ignore[method-assign]
        whole()
        runtime._reply = kept  # type: ignore[method-assign]
        effects: Effects = [*replies]
        yield (
            "effect",
            "Reply and its list made, found in the table",
            least(lambda: [replies[0].context.reply(None)]),
        )
        yield (
            "encode and answer",
            "effect to parts of the frame",
            least(lambda: runtime.execute(effects)),
        )

    def straight_produce(self, request: memoryview) -> None:
        """Produce as a program without machines would do it: no context, no effect, no table."""
        _, correlation_id, length = REQUEST_START.unpack_from(request)
        _, position = read_client_id(request, length)
        api = self._straight[0]
        message, _ = api.read(request, position + 1, len(request), [1000])
        topic = message.topic_data[0]
        data = topic.partition_data[0]
        found = self.node.hosted.by_name[topic.name, data.index]
        now_ms = self.runtime.now_ms()
        placed = found.append(data.records, acks=message.acks, now_ms=now_ms)
        assert type(placed) is Appended
        before, after = k00_produce._around_place(9, topic.name, topic.topic_id, data.index)
        numbers = (placed.base_offset, placed.log_append_time_ms, placed.log_start_offset)
        body = before + k00_produce._pack_place(*numbers) + after
        self.peer.answer([_pack_start(5 + len(body), correlation_id) + b"\0" + body])

    def straight_fetch(self, request: memoryview) -> None:
        """Fetch likewise."""
        data = bytes(request)
        _, correlation_id, length = REQUEST_START.unpack_from(data)
        _, position = read_client_id(data, length)
        api = self._straight[1]
        message, _ = api.read(data, position + 1, len(data), [1000])
        topic = message.topics[0]
        part = topic.partitions[0]
        found = self.node.hosted.by_name[topic.topic, part.partition]
        self.runtime.now_ms()
        read = found.read(
            part.fetch_offset, max_bytes=part.partition_max_bytes, isolation=message.isolation_level
        )
        assert type(read) is Local
        records = read.records
        assert type(records) is FileRecords
        parts = k01_fetch._around_records(12, topic.topic, topic.topic_id, part.partition)
        size = records.size_bytes
        numbers = k01_fetch._pack_offsets(*read[1:4])
        front = parts[0] + numbers + parts[1] + uvarint(size + 1)
        start = _pack_start(5 + len(front) + size + len(parts[2]), correlation_id) + b"\0"
        self.peer.answer([start + front, *records.slices, parts[2]])

    @contextmanager
    def without_short_path(self, handler: Any) -> Iterator[None]:
        """Let a handler treat every request as one of many partitions."""
        kept = handler._handle_one
        handler._handle_one = lambda *_: None
        try:
            yield
        finally:
            handler._handle_one = kept


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
    frame_ = produce_frame(100)
    whole = made.whole(frame_)
    view = memoryview(bytearray(frame_))
    clean, request = bytes(view), view[4:]
    api = made.api(0, 9)
    body = made.body_at(request)
    message, _ = api.read(request, body, len(request), [1000])
    data = message.topic_data[0].partition_data[0]
    batch = data.records
    log, now_ms = made.log, made.runtime.now_ms()
    header = check_client_batch(batch, log._limits, now_ms)
    assert type(header) is BatchHeader
    segment = log._segments.active

    def again(step: Step) -> Step:
        def one() -> None:
            view[:] = clean
            step()

        return one

    copy_us = least(again(lambda: None))
    yield "header", "key, correlation id, client id, context", least(lambda: made.begin(request))
    yield "decode", "generated reader", least(lambda: api.read(request, body, len(request), [1000]))
    yield (
        "look up",
        "partition by name",
        least(lambda: made.node.hosted.by_name.get((TOPIC, data.index))),
    )
    view[:] = clean
    yield (
        "judge",
        "header and CRC-32C",
        least(lambda: check_client_batch(batch, log._limits, now_ms)),
    )
    states = ProducerStates()
    numbered = header._replace(producer_id=7, producer_epoch=0, base_sequence=0)
    states.note_batch(numbered, 0, now_ms)
    following = numbered._replace(base_sequence=1)

    def producer_state() -> None:
        states.check(following, is_client=True)
        states.note_batch(numbered, 0, now_ms)

    yield "producer state", "check and note; idempotent producers only", least(producer_state)
    file = segment.file
    assert file is not None
    size = segment.size_bytes
    yield "write", "one pwrite to the page cache", least(lambda: file.append(batch))
    file.truncate(size)
    yield (
        "index",
        "sparse indexes, hints",
        least(lambda: segment.note(segment.size_bytes, 0, log.log_end_offset, now_ms)),
    )
    append = partial(made.partition.append, batch, acks=1, now_ms=now_ms)
    yield (
        "append, all of it",
        "leader, judge, stamp, write, index, watermark",
        (least(again(append)) - copy_us),
    )
    yield from made.answering(whole, least)
    all_us = least(whole) - copy_us
    yield "WHOLE", "between recv and send", all_us
    yield (
        "seam",
        "whole less one straight function that does the same",
        all_us - (least(again(lambda: made.straight_produce(request))) - copy_us),
    )
    with made.without_short_path(k00_produce):
        yield (
            "whole, path for all cases",
            "lists, closures, filled messages",
            (least(whole) - copy_us),
        )


def fetch_stages(made: Bench, rounds: int) -> Iterator[Row]:
    """Fetch of one partition from offset 0, up to 4 KiB, no session."""
    least = partial(least_us, rounds=rounds)
    frame_ = fetch_frame(4096)
    whole = made.whole(frame_)
    request = memoryview(bytearray(frame_))[4:]
    api, body = made.api(1, 12), made.body_at(request)
    data = bytes(request)
    yield "header", "key, correlation id, client id, context", least(lambda: made.begin(request))
    yield (
        "decode",
        "copy, generated reader",
        least(lambda: api.read(bytes(request), body, len(data), [1000])),
    )
    yield "look up", "partition by name", least(lambda: made.node.hosted.by_name.get((TOPIC, 0)))
    log = made.log
    yield (
        "locate",
        "two places in the log, a slice",
        least(lambda: log.read(0, max_bytes=4096, upto_offset=log.high_watermark)),
    )
    yield (
        "read, all of it",
        "epochs, marks, locate",
        least(lambda: made.partition.read(0, max_bytes=4096, isolation=0)),
    )
    yield from made.answering(whole, least)
    yield "pread and join", "in runtime/net", least(lambda: _small(made.peer.parts))
    all_us = least(whole)
    yield "WHOLE", "between recv and pread", all_us
    straight = least(lambda: made.straight_fetch(request))
    yield "seam", "whole less one straight function that does the same", all_us - straight
    with made.without_short_path(k01_fetch):
        yield "whole, path for all cases", "Wanted, _OneFetch, filled messages", least(whole)


def main() -> None:
    """Print the stages of both requests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    with bench() as made:
        for question, stages in (
            ("Produce 100 B, v9", produce_stages),
            ("Fetch 4 KiB, v12", fetch_stages),
        ):
            rows = [
                {"stage": name, "of": what, "us (min)": round(us, 2)}
                for name, what, us in stages(made, options.rounds)
            ]
            report(f"{question}: CPU of each stage, without sockets", rows)


if __name__ == "__main__":
    main()
