"""A large request on its way through a broker to the controller: no step of it holds either of them up."""

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from firnline.api.dispatch import Dispatcher, frame_bytes
from firnline.api.handlers import k58_envelope
from firnline.base.effects import Reply, Send, SetTimer
from firnline.base.errors import Code
from firnline.client.wire import decode_answer, encode_request
from firnline.protocol.messages import k44_incremental_alter_configs as m44
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from firnline.protocol.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse
from firnline.protocol.schema import Message
from tests.worlds.cluster import CLIENT_PORT, CONTROLLER_PORT, Line, Rig
from tests.worlds.effects import only
from tests.worlds.slices import SliceRunner

CONTROLLER, BROKER = 1, 4
MANY = 6_000
OF_TOPIC, OF_BROKER = 2, 4
NAMES = [f"none-{n}" for n in range(MANY)]
_END = object()


@pytest.fixture
def rig() -> Rig:
    return Rig({CONTROLLER: "controller", BROKER: "broker"}).start()


class Turns(SliceRunner):
    """A request that reached a node: its slices, one at a time, and what came of them."""

    def __init__(self, rig: Rig, node_id: int, port: int, request: Message, version: int) -> None:
        super().__init__()
        self.rig = rig
        self.names: list[str] = []  # of the slices
        dispatcher: Dispatcher = rig[node_id].dispatchers[port + node_id][1]
        node = rig[node_id].broker if port == CLIENT_PORT else rig[node_id].controller
        self._sliced_tasks = node.sliced_tasks
        self.context: Any = None  # whose bytes count until it ends, if it is done in slices
        self.ended = 0
        frame = encode_request(request, version=version, correlation_id=7, client_id="c")[4:]
        self.line = Line("LISTENER", dispatcher, lambda body: None)
        effects = dispatcher.on_frame(self.line, memoryview(bytearray(frame)), rig.now_ms)
        self.context = dispatcher.sliced_request
        if self.context is not None:
            self.context.on_end = self._on_end
        self.take(effects)

    def _on_end(self) -> None:
        self.ended += 1

    @property
    def now_ms(self) -> int:  # type: ignore[override]
        return self.rig.now_ms

    def is_slice(self, effect: SetTimer) -> bool:
        return effect.key[1] == "background"  # type: ignore[index]

    def one_more(self) -> bool:
        if not super().one_more():
            return False
        self.names.append(self._sliced_tasks.step_name())
        return True

    def count(self, name: str) -> int:
        """How many of the slices were slices of that."""
        return sum(each.startswith(name) for each in self.names)


def at_broker(rig: Rig, request: Message, version: int) -> Turns:
    return Turns(rig, BROKER, CLIENT_PORT, request, version)


def at_controller(rig: Rig, sent: EnvelopeRequest) -> Turns:
    return Turns(rig, CONTROLLER, CONTROLLER_PORT, sent, 0)


def deletion() -> DeleteTopicsRequest:
    states = [DeleteTopicState(name=name) for name in NAMES]
    return DeleteTopicsRequest(topics=states, timeout_ms=1_000)


def alteration(*rows: tuple[int, str]) -> m44.IncrementalAlterConfigsRequest:
    resources = [
        m44.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
        for kind, name in rows
    ]
    return m44.IncrementalAlterConfigsRequest(resources=resources)


def envelope(turns: Turns) -> EnvelopeRequest:
    [send] = [each for each in turns.until().found if isinstance(each, Send)]
    assert isinstance(send.request, EnvelopeRequest)
    return send.request


def refusal(turns: Turns) -> Code:
    [reply] = turns.until().found
    assert isinstance(reply, Reply)
    assert isinstance(reply.message, EnvelopeResponse)
    return Code(reply.message.error_code)


@pytest.mark.parametrize(
    ("request_", "version"),
    [(deletion(), 6), (alteration(*((OF_TOPIC, name) for name in NAMES)), 1)],
    ids=["delete", "alter"],
)
def test_a_broker_writes_a_large_request_again_in_slices(
    rig: Rig, request_: Message, version: int
) -> None:
    """Goal: it is what the client sent. Method: a slice is 500 rows; the first one is that of its turn."""
    turns = at_broker(rig, request_, version)
    sent = envelope(turns)
    assert turns.count("_Forwarded._written") >= MANY // 500 - 1
    if request_.key == m44.IncrementalAlterConfigsRequest.key:
        assert turns.count("_forward") >= MANY // 500 - 1
    frame = encode_request(request_, version=version, correlation_id=7, client_id="c")
    assert bytes(sent.request_data) == frame[4:]


def test_a_controller_reads_a_large_request_in_slices(rig: Rig) -> None:
    """Goal: every row is answered. Method: a slice is 500 rows; the first one is that of its turn."""
    sent = envelope(at_broker(rig, deletion(), 6))
    turns = at_controller(rig, sent).until()
    [reply] = turns.found
    assert isinstance(reply, Reply)
    assert turns.count("_read of") >= MANY // 500 - 1
    data = frame_bytes(turns.line.dispatcher.encode(reply))
    outer: Any = decode_answer(sent, 0, data[4:], correlation_id=7)
    answer: Any = decode_answer(deletion(), 6, outer.response_data, correlation_id=7)
    assert [row.name for row in answer.responses] == NAMES


@pytest.mark.parametrize("elements_at_once", [0, 10 * MANY], ids=["read in slices", "read at once"])
def test_the_bytes_of_a_large_envelope_count_until_the_last_slice_of_what_it_brought(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, elements_at_once: int
) -> None:
    """Else whoever reaches a controller has it keep as much as it likes, one envelope after the other."""
    sent = envelope(at_broker(rig, deletion(), 6))
    monkeypatch.setattr(k58_envelope, "ELEMENTS_AT_ONCE", elements_at_once)
    turns = at_controller(rig, sent)
    assert turns.context is not None
    turns.until(lambda: turns.ended > 0)
    assert turns.ended == 1
    assert turns.count("_delete") > 1
    assert not turns.count("_answer")
    turns.until()
    assert turns.ended == 1
    [reply] = turns.found
    assert isinstance(reply, Reply)


@pytest.mark.parametrize("cut", [1, 20_000])
def test_a_large_request_that_cannot_be_read_is_refused_as_a_small_one(rig: Rig, cut: int) -> None:
    sent = envelope(at_broker(rig, deletion(), 6))
    sent.request_data = sent.request_data[:-cut]
    assert refusal(at_controller(rig, sent)) == Code.UNSUPPORTED_VERSION


def test_a_controller_that_resigns_while_it_reads_sends_the_broker_on(rig: Rig) -> None:
    """A request that half of the reading was done for is decided on by nobody who may not."""
    sent = envelope(at_broker(rig, deletion(), 6))
    turns = at_controller(rig, sent)
    turns.until(lambda: turns.count("_read of") == 3)
    controller = rig[CONTROLLER].controller
    controller.quorum.stop(rig.now_ms)
    assert refusal(turns) == Code.NOT_CONTROLLER


def test_nothing_is_forwarded_for_a_client_that_hung_up_meanwhile(rig: Rig) -> None:
    turns = at_broker(rig, deletion(), 6)
    turns.until(lambda: turns.count("_Forwarded._written") == 3)
    turns.line.closed = True
    assert turns.until().found == []


def test_what_a_broker_refuses_itself_stands_between_what_the_controller_says(rig: Rig) -> None:
    named = [(OF_TOPIC, name) for name in NAMES]
    named.insert(700, (OF_BROKER, "99"))
    request = alteration(*named)
    answer = rig.ask(BROKER, request, 1)
    assert [(row.resource_type, row.resource_name) for row in answer.responses] == named
    codes = [row.error_code for row in answer.responses]
    assert codes.pop(700) == Code.INVALID_REQUEST
    assert set(codes) == {Code.UNKNOWN_TOPIC_OR_PARTITION}


def test_settings_that_a_broker_refuses_all_reach_no_controller(rig: Rig) -> None:
    turns = at_broker(rig, alteration(*([(OF_BROKER, "99")] * 1_200)), 1).until()
    [reply] = turns.found
    assert isinstance(reply, Reply)
    assert {row.error_code for row in reply.message.responses} == {Code.INVALID_REQUEST}  # type: ignore[attr-defined]
    assert len(reply.message.responses) == 1_200  # type: ignore[attr-defined]


def test_a_large_answer_is_passed_on_in_the_buffer_that_it_came_in(rig: Rig) -> None:
    """Goal: a broker copies no controller's answer of many megabytes. Method: whose bytes are sent."""
    turns = at_broker(rig, deletion(), 6)
    [send] = [each for each in turns.until().found if isinstance(each, Send)]
    came = bytearray((7).to_bytes(4, "big") + b"\0" + b"rows" * 100_000)
    reply = only(send.then(EnvelopeResponse(response_data=memoryview(came)), rig.now_ms), Reply)
    parts = turns.line.dispatcher.encode(reply)
    assert [part.obj for part in parts if isinstance(part, memoryview)] == [came]
    assert b"".join(map(bytes, parts)) == len(came).to_bytes(4, "big") + came  # type: ignore[arg-type]


def test_a_large_envelope_is_read_where_it_came(rig: Rig) -> None:
    """Goal: a controller copies no megabytes. Method: what its first step allocates; who has the buffer."""
    states = [DeleteTopicState(name=f"none-{n:0200}") for n in range(MANY)]
    sent = envelope(at_broker(rig, DeleteTopicsRequest(topics=states, timeout_ms=1_000), 6))
    turns = at_controller(rig, sent)  # the first time its classes are compiled
    turns.until()
    frame = bytearray(encode_request(sent, version=0, correlation_id=7, client_id="c")[4:])
    tracemalloc.start()
    effects = turns.line.dispatcher.on_frame(
        turns.line, memoryview(frame), rig.now_ms, owns_bytes=True
    )
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most_bytes < len(frame) // 2
    with pytest.raises(BufferError):
        frame.clear()
    turns.take(effects)
    turns.found.clear()
    turns.until()
    frame.clear()
    [reply] = turns.found
    assert isinstance(reply, Reply)


def test_a_large_answer_is_put_into_its_envelope_in_slices(rig: Rig) -> None:
    """Goal: a controller copies no megabytes in a step. Method: what each step of the encoding allocates."""
    states = [DeleteTopicState(name=f"none-{n:0200}") for n in range(MANY)]
    sent = envelope(at_broker(rig, DeleteTopicsRequest(topics=states, timeout_ms=1_000), 6))
    turns = at_controller(rig, sent).until()
    [reply] = turns.found
    assert isinstance(reply, Reply)
    complete = b"".join(map(bytes, turns.line.dispatcher.encode(reply)))  # type: ignore[arg-type]
    again = at_controller(rig, sent).until()
    [reply] = again.found
    assert isinstance(reply, Reply)
    parts: list[Any] = []

    def encoding() -> Iterator[int]:
        parts.extend((yield from again.line.dispatcher.encoding(reply)))

    most_bytes = []
    steps = encoding()
    is_over = False
    tracemalloc.start()
    while not is_over:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        is_over = next(steps, _END) is _END
        most_bytes.append(tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    assert b"".join(map(bytes, parts)) == complete
    assert max(most_bytes) < len(complete) // 2
