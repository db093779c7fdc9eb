"""Requests of very many elements are read a thousand at a time, with others in between."""

from types import SimpleNamespace
from typing import Any

import pytest

from firnline.api import dispatch
from firnline.api.dispatch import Dispatcher
from firnline.base.background import Background
from firnline.base.effects import CloseConnection, Effects
from firnline.base.errors import ProtocolError
from firnline.client.wire import encode_request
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from firnline.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from firnline.protocol.schema import Message
from firnline.protocol.versions import SERVED
from tests.worlds.slices import SliceRunner

_SIZE_BYTES = 4
MANY = 20_000


class Asked(SliceRunner):
    """A node that keeps what its handlers are called with, and has slices done when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.sliced_tasks = Background("requests", is_round_robin=True)
        node: Any = self
        self.dispatcher = Dispatcher(node, SERVED)
        self.requests: list[Any] = []
        self.ended = 0
        self.connection: Any = SimpleNamespace(closed=False, principal="", peer_host="")
        find = dispatch.find_api

        def found(*which: Any) -> Any:
            api = find(*which)
            api.handle = self._handle
            return api

        monkeypatch.setattr(dispatch, "find_api", found)

    def _handle(self, node: Any, context: Any, request: Message, now_ms: int) -> Effects:
        self.requests.append(request)
        return []

    def send(self, request: Message, version: int) -> None:
        self.send_bytes(
            encode_request(request, version=version, correlation_id=1, client_id="c")[_SIZE_BYTES:]
        )

    def send_bytes(self, data: bytes) -> None:
        frame = memoryview(bytearray(data))
        self.take(self.dispatcher.on_frame(self.connection, frame, 0))
        frame[:] = bytes(len(frame))  # the next one comes into the same memory
        context = self.dispatcher.sliced_request
        if context is not None:
            context.on_end = self._on_end

    def _on_end(self) -> None:
        self.ended += 1


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


def names(count: int) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=f"t{number}") for number in range(count)]


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (MetadataRequest(topics=names(MANY)), 12),
        (MetadataRequest(topics=names(MANY)), 8),
        (DeleteGroupsRequest(groups_names=[f"g{number}" for number in range(MANY)]), 2),
        (
            ProduceRequest(
                acks=1,
                topic_data=[
                    TopicProduceData(
                        name="t",
                        partition_data=[
                            PartitionProduceData(index=number, records=b"x" * 3)
                            for number in range(MANY)
                        ],
                    )
                ],
            ),
            9,
        ),
    ],
)
def test_a_large_request_is_read_in_slices_and_is_what_was_sent(
    asked: Asked, request_: Message, version: int
) -> None:
    asked.send(request_, version)
    assert asked.requests == []
    assert asked.finish() >= MANY // 500
    assert asked.requests == [request_]
    assert (asked.found, asked.ended) == ([], 1)


def test_a_small_request_is_handled_at_once(asked: Asked) -> None:
    asked.send(MetadataRequest(topics=names(900)), 12)
    assert len(asked.requests) == 1
    assert not asked.due


def test_what_a_large_request_names_twice_is_folded(asked: Asked) -> None:
    groups = [f"g{number % 1_500}" for number in range(MANY)]
    asked.send(DeleteGroupsRequest(groups_names=groups), 2)
    asked.finish()
    assert asked.requests[0].groups_names == groups[:1_500]


def test_others_have_their_turn_while_a_large_request_is_read(asked: Asked) -> None:
    asked.send(MetadataRequest(topics=names(MANY)), 12)
    assert asked.one_more()
    asked.connection = SimpleNamespace(closed=False, principal="", peer_host="")
    asked.send(MetadataRequest(topics=names(3)), 12)
    assert [len(request.topics) for request in asked.requests] == [3]
    asked.finish()
    assert [len(request.topics) for request in asked.requests] == [3, MANY]


def test_who_hangs_up_while_its_request_is_read_is_not_read_on(asked: Asked) -> None:
    asked.send(MetadataRequest(topics=names(MANY)), 12)
    assert asked.one_more()
    asked.connection.closed = True
    assert asked.finish() == 1
    assert (asked.requests, asked.ended) == ([], 1)


@pytest.mark.parametrize("size", [0.3, 0.9])
def test_a_large_request_that_ends_early_costs_its_connection(asked: Asked, size: float) -> None:
    data = encode_request(
        MetadataRequest(topics=names(MANY)), version=12, correlation_id=1, client_id="c"
    )[_SIZE_BYTES:]
    # As many topics are announced as there can be in what is left of it.
    short = data[: int(len(data) * size)]
    try:
        asked.send_bytes(short)
    except ProtocolError:
        return
    asked.finish()
    [reported] = asked.found
    assert isinstance(reported, CloseConnection)
    assert isinstance(reported.problem, ProtocolError)
    assert (asked.requests, asked.ended) == ([], 1)


def test_more_elements_than_there_may_be_are_refused(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "ARRAY_ELEMENTS_MAX", MANY - 1)
    asked.send(MetadataRequest(topics=names(MANY)), 12)
    asked.finish()
    [reported] = asked.found
    assert isinstance(reported.problem, ProtocolError)
    assert asked.requests == []


def test_a_handler_that_fails_on_a_large_request_costs_its_connection(asked: Asked) -> None:
    def fails(node: Any, context: Any, request: Message, now_ms: int) -> Effects:
        raise ValueError("a defect")

    asked._handle = fails  # type: ignore[method-assign]
    asked.send(MetadataRequest(topics=names(MANY)), 12)
    asked.finish()
    [reported] = asked.found
    assert isinstance(reported.problem, ValueError)
    assert asked.ended == 1
