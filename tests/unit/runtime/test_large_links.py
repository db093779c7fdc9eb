"""Large requests to other nodes, and large answers: no step copies or reads all of one."""

import struct
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.units import MIB
from firnline.client.wire import encode_request, encode_request_in_parts
from firnline.protocol.compile import ELEMENTS_PER_SLICE
from firnline.protocol.messages import k01_fetch as m01
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse
from firnline.runtime import links, poll

from .test_links import Asker, Peering, Scripted, asker, play, unanswered

__all__ = ["asker", "play"]

FETCH, ENVELOPE = 1, 58
ROWS = 20_000


def test_a_large_answer_is_not_copied_and_no_other_comes_into_its_buffer(
    asker: Asker, play: Callable[..., Scripted]
) -> None:
    """Goal: a controller's answer of many megabytes holds nobody up. Method: three, of which one is small."""
    bodies = [b"1" * (2 << 20), b"2" * (2 << 20), b"3" * 500_000]

    def script(peer: Peering) -> None:
        peer.greet(0, ENVELOPE)
        for body in bodies:
            header, _ = peer.take()
            answer = EnvelopeResponse(response_data=body).write(0)
            peer.frame(struct.pack(">ib", header.correlation_id, 0) + answer)

    port = play(script).port
    for _ in bodies:
        asker.ask(port, EnvelopeRequest(request_data=b"x", client_host_address=b"addr"))
    found = [each.response_data for each in asker.until_answered()]
    assert list(map(bytes, found)) == bodies
    assert list(map(type, found)) == [memoryview, memoryview, bytes]


def test_a_large_request_leaves_in_the_bytes_that_it_is_made_of(
    asker: Asker, play: Callable[..., Scripted]
) -> None:
    """Goal: what a broker forwards is not copied whole. Method: what sending allocates; others follow it."""
    bodies = [b"1" * (5 << 20), b"2", b"3" * (5 << 20)]
    received: list[bytes] = []
    go = threading.Event()

    def script(peer: Peering) -> None:
        peer.greet(0, ENVELOPE)
        assert go.wait(20)
        for _ in bodies:
            header, request = peer.take()
            received.append(request.request_data)
            answer = EnvelopeResponse(response_data=b"").write(0)
            peer.frame(struct.pack(">ib", header.correlation_id, 0) + answer)

    port = play(script).port
    for body in bodies:
        asker.ask(port, EnvelopeRequest(request_data=body, client_host_address=b"addr"))
    [link] = asker.runtime.links._links.values()
    asker.loop.call_later(0.3, asker.loop.stop)
    tracemalloc.start()
    asker.loop.run()
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert link.is_idle is False
    assert most_bytes < 1 << 20
    go.set()
    asker.until_answered()
    assert received == bodies


def fetched(correlation_id: int) -> bytes:
    """The answer to a Fetch of very many partitions."""
    rows = [m01.FetchablePartitionResponse(partition_index=n) for n in range(ROWS)]
    answer = m01.FetchResponse(responses=[m01.FetchableTopicResponse(topic="t", partitions=rows)])
    return struct.pack(">ib", correlation_id, 0) + answer.write(12)


def test_an_answer_of_very_many_rows_is_read_in_slices(
    asker: Asker, play: Callable[..., Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: others are served meanwhile. Method: a step a turn, and what happens in between: also a second
    answer, and the end of the connection."""
    monkeypatch.setattr(poll, "_STEPS_S", 0)
    turns: list[int] = []

    def script(peer: Peering) -> None:
        peer.greet(12, FETCH)
        first, _ = peer.take()
        second, _ = peer.take()
        small = m01.FetchResponse(responses=[]).write(12)
        peer.frame(fetched(first.correlation_id))
        peer.frame(struct.pack(">ib", second.correlation_id, 0) + small)

    def tick() -> None:
        turns.append(len(asker.answers))
        asker.loop.call_soon(tick)

    decode = links.decode_answer_in_slices  # type: ignore[attr-defined]

    def ticking(*args: Any, **more: Any) -> Any:
        tick()
        return decode(*args, **more)

    monkeypatch.setattr(links, "decode_answer_in_slices", ticking)
    port = play(script).port
    for _ in range(2):
        asker.ask(port, m01.FetchRequest(topics=[]), version_max=12)
    found = asker.until_answered()
    assert sorted(len(answer.responses) for answer in found) == [0, 1]
    [large] = [answer for answer in found if answer.responses]
    numbers = [row.partition_index for row in large.responses[0].partitions]
    assert numbers == list(range(ROWS))
    assert len(turns) >= ROWS // ELEMENTS_PER_SLICE - 1


def test_a_connection_that_fails_while_an_answer_is_read_is_not_well_again_after_it(
    asker: Asker, play: Callable[..., Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a node that hangs up after each large answer is asked again without a pause."""
    monkeypatch.setattr(poll, "_STEPS_S", 0)
    failures: list[int] = []

    def script(peer: Peering) -> None:
        peer.greet(12, FETCH)
        header, _ = peer.take()
        peer.take()
        peer.frame(fetched(header.correlation_id))
        peer.sock.close()

    resume = asker.runtime.resume

    def seen(then: Any, answer: Any) -> None:
        resume(then, answer)
        failures.append(asker.runtime.links._links[key]._failures)

    monkeypatch.setattr(asker.runtime, "resume", seen)
    port = play(script).port
    for _ in range(2):
        asker.ask(port, m01.FetchRequest(topics=[]), version_max=12)
    [key] = asker.runtime.links._links
    hung_up, large = asker.until_answered()
    assert "hung up" in unanswered(hung_up)
    assert len(large.responses[0].partitions) == ROWS
    assert failures[-1] == 1


@pytest.mark.parametrize("cut", [1, 300_000])
def test_a_large_answer_that_is_not_understood_is_none(
    asker: Asker, play: Callable[..., Scripted], cut: int
) -> None:
    def script(peer: Peering) -> None:
        peer.greet(12, FETCH)
        header, _ = peer.take()
        peer.take()
        peer.frame(fetched(header.correlation_id)[:-cut])
        peer.take()

    port = play(script).port
    for _ in range(2):
        asker.ask(port, m01.FetchRequest(topics=[]), version_max=12)
    found = asker.until_answered()
    assert all("not understood" in unanswered(each) for each in found)


def test_a_large_request_does_not_end_with_a_part_of_nothing() -> None:
    """The socket would be told that more follows, and hold the end back until it is told otherwise."""
    data = PartitionProduceData(index=0, records=bytes(MIB))
    request = ProduceRequest(
        acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[data])]
    )
    parts = encode_request_in_parts(request, version=8, correlation_id=1, client_id="c")
    complete = encode_request(request, version=8, correlation_id=1, client_id="c")
    assert len(parts) > 1
    assert all(parts)
    assert b"".join(parts) == complete
