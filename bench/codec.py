"""What does a message cost, beside kio? Microseconds per message; the ratio is kio's time by ours."""

import io
import timeit
from collections.abc import Callable
from typing import Any

from kio.schema.fetch.v12.request import FetchRequest as KioFetchRequest
from kio.schema.fetch.v12.response import FetchResponse as KioFetchResponse
from kio.schema.produce.v9.request import ProduceRequest as KioProduceRequest
from kio.schema.produce.v9.response import ProduceResponse as KioProduceResponse
from kio.serial import entity_reader, entity_writer

from firnline.protocol.compile import reader, writer
from firnline.protocol.messages import k00_produce as produce
from firnline.protocol.messages import k01_fetch as fetch
from firnline.protocol.schema import Message


def microseconds(call: Callable[[], object]) -> float:
    timer = timeit.Timer(call)
    count, _ = timer.autorange()
    count = max(1, count // 4)
    return min(timer.repeat(5, count)) / count * 1e6


def compare(question: str, ours: Callable[[], object], kio: Callable[[], object]) -> None:
    mine, theirs = microseconds(ours), microseconds(kio)
    print(f"{question:38s} {mine:8.1f} us   kio {theirs:8.1f} us   {theirs / mine:5.1f}x")


def reads(question: str, message: Message, version: int, kio_class: Any) -> None:
    encoded = message.write(version)
    view, size, budget = memoryview(bytearray(encoded)), len(encoded), 1_000_000
    read, kio_read = reader(type(message), version), entity_reader(kio_class)
    compare(question, lambda: read(view, 0, size, [budget]), lambda: kio_read(encoded, 0))


def writes(question: str, message: Message, version: int, kio_class: Any) -> None:
    encoded = message.write(version)
    write, kio_write = writer(type(message), version), entity_writer(kio_class)
    value, _ = entity_reader(kio_class)(encoded, 0)

    def ours() -> bytes:
        parts: list[Any] = []
        write(message, parts.append)
        return b"".join(parts)

    def kio() -> bytes:
        out = io.BytesIO()
        kio_write(out, value)
        return out.getvalue()

    assert ours() == kio() == encoded
    compare(question, ours, kio)


def produce_request(size_bytes: int) -> produce.ProduceRequest:
    partition = produce.PartitionProduceData(index=0, records=bytes(size_bytes))
    topic = produce.TopicProduceData(name="topic", partition_data=[partition])
    return produce.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])


def produce_response() -> produce.ProduceResponse:
    partition = produce.PartitionProduceResponse(index=0, base_offset=5)
    topic = produce.TopicProduceResponse(name="topic", partition_responses=[partition])
    return produce.ProduceResponse(responses=[topic])


def fetch_request(count: int) -> fetch.FetchRequest:
    partitions = [fetch.FetchPartition(partition=i, fetch_offset=7) for i in range(count)]
    topic = fetch.FetchTopic(topic="topic", partitions=partitions)
    return fetch.FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic])


def fetch_response(count: int) -> fetch.FetchResponse:
    partitions = [
        fetch.FetchablePartitionResponse(
            partition_index=i, high_watermark=5, aborted_transactions=None, records=b""
        )
        for i in range(count)
    ]
    topic = fetch.FetchableTopicResponse(topic="topic", partitions=partitions)
    return fetch.FetchResponse(responses=[topic])


def main() -> None:
    for size_bytes in (100, 16384, 131072):
        question = f"read Produce request, {size_bytes} bytes"
        reads(question, produce_request(size_bytes), 9, KioProduceRequest)
    writes("write Produce response", produce_response(), 9, KioProduceResponse)
    for count in (1, 50):
        reads(f"read Fetch request, {count} partitions", fetch_request(count), 12, KioFetchRequest)
        question = f"write Fetch response, {count} partitions"
        writes(question, fetch_response(count), 12, KioFetchResponse)


if __name__ == "__main__":
    main()
