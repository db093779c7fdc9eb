"""An answer that cannot be made or encoded costs one connection, whatever step it comes in."""

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from firnline.api.context import RequestContext
from firnline.base.effects import CloseConnection, Effects, Reply, SetTimer
from firnline.base.errors import Bug, CannotGoOn
from firnline.protocol.schema import Part
from firnline.runtime.logs.formats import TextFormatter
from tests.unit.runtime.echo import Echo, Running, frame, is_closed, read_frame


class Clumsy(Echo):
    """A dispatcher with requests that go wrong after a moment.

    t too long an answer | m its answer cannot be made | a first that of `t`, then that of all who hold (h)
    o what a peer that asks for others hears in place of an answer
    u a bug in a machine's own step | i an invariant that is found broken while an answer is encoded
    """

    def __init__(self, big: Path) -> None:
        super().__init__(big)
        self.holding: list[Any] = []

    def name_of(self, context: Any) -> str:
        return "join_group"

    def on_frame(
        self, connection: Any, frame: memoryview, now_ms: int, *, owns_bytes: bool = False
    ) -> list[Any]:
        body = bytes(frame)
        context: Any = _Context(connection, body)
        command = body[:1]
        if command == b"h":
            self.holding.append(context)
            return []
        if command == b"e":
            return [context.reply(1)]

        def then(_: int) -> Effects:
            if command == b"u":
                raise AssertionError("a state that cannot be")
            if command == b"o":
                instead: Any = context.reply(1)
                return [
                    CloseConnection(
                        context=context, problem=ValueError("too long"), instead=instead
                    )
                ]
            answer = context.makes_reply(lambda: context.reply(1 // (command != b"m")))
            held, self.holding = self.holding, []
            return [answer(), *(each.reply(1) for each in held)]

        return [SetTimer(key=("clumsy", id(context)), at_ms=now_ms + 1, then=then)]

    def encode(self, reply: Reply) -> list[Part]:
        command = reply.context.body[:1]
        if command == b"i":
            raise Bug("two leaders")
        if command == b"c":
            raise CannotGoOn("the cluster runs features that this release does not act on")
        if command in (b"t", b"a"):
            raise ValueError("a string of 32804 bytes is too long to be sent")
        return super().encode(reply)


class _Context(RequestContext):
    __slots__ = ("body",)

    def __init__(self, connection: Any, body: bytes) -> None:
        super().__init__(connection, 11, 2, 1, "a client \x1b[2J" + "c" * 32_000, 0)
        self.body = body


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Running]:
    big = tmp_path / "big"
    big.write_bytes(b"")
    running = Running(big)
    running.runtime.dispatcher = running.server.dispatcher = Clumsy(big)  # type: ignore[assignment]
    running.thread.start()
    yield running
    if running.thread.is_alive():
        running.on_loop(running.loop.stop)
    running.thread.join(20)
    running.runtime.close()


@pytest.mark.parametrize("command", [b"t", b"m"])
def test_an_answer_that_fails_in_a_later_step_costs_one_connection(
    node: Running, command: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: no request stops the node. Method: its answer fails when a timer brings it; another client is
    served before and after, and the operator reads whose request it was."""
    with node.connect() as good, node.connect() as bad:
        bad.sendall(frame(command + b" a join"))
        assert is_closed(bad)
        good.sendall(frame(b"e-still-here"))
        assert read_frame(good) == b"e-still-here"
    assert node.runtime.failure is None
    assert node.runtime.failed_requests.counts == {"JoinGroup": 1}
    (reported,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    line = TextFormatter().format(reported).splitlines()[0]
    assert 'client_id="a client \\x1b[2Jcc' in line
    assert "... api=JoinGroup version=2 error=" in line.replace('"', "")
    assert len(line) < 600
    assert reported.exc_info is not None


def test_a_peer_that_asks_for_others_learns_of_it_and_stays(node: Running) -> None:
    with node.connect() as broker:
        for request in (b"o envelope", b"e-still-here"):
            broker.sendall(frame(request))
            assert read_frame(broker) == request
    assert node.runtime.failed_requests.counts == {"JoinGroup": 1}


def test_those_who_are_answered_in_the_same_step_are_answered(node: Running) -> None:
    """A generation begins for all its members: one whose answer fails takes no other with it."""
    with node.connect() as first, node.connect() as last, node.connect() as bad:
        for each in (first, last):
            each.sendall(frame(b"h-member"))
        dispatcher: Any = node.runtime.dispatcher
        while len(dispatcher.holding) < 2:
            node.on_loop(lambda: None)
        bad.sendall(frame(b"a generation"))
        assert is_closed(bad)
        assert [read_frame(each) for each in (first, last)] == [b"h-member"] * 2
    assert node.runtime.failure is None


def test_a_thousand_failures_are_counted_and_reported_once_a_second(
    node: Running, caplog: pytest.LogCaptureFixture
) -> None:
    context: Any = SimpleNamespace(api_version=3, client_id=None)
    for _ in range(1000):
        node.runtime.failed_requests.add("fetch", "host", context, KeyError("x"))
    assert node.runtime.failed_requests.counts["Fetch"] == 1000
    assert len(caplog.records) <= 2


@pytest.mark.parametrize("command", [b"u", b"i", b"c"])
def test_a_broken_machine_is_not_taken_for_a_strange_request(node: Running, command: bytes) -> None:
    with node.connect() as sock:
        sock.sendall(frame(command + b" unsound"))
        node.thread.join(20)
    assert not node.thread.is_alive()
    assert isinstance(node.runtime.failure, (AssertionError, Bug, CannotGoOn))
