"""A proxy in front of a node that can keep requests back, and let them arrive when all has changed. WORLD.

    with Proxy(("127.0.0.1", port)) as proxy:      # others are told `proxy.port`
        proxy.keep_back("alter", lambda passing: isinstance(passing.request, AlterPartitionRequest))
        late = proxy.await_kept("alter")
        late.release()
        answer = late.await_answer()

What comes behind a request on its connection waits with it, as on a slow network. A request that is kept
outlives its sender: the connection to the node stays until it is answered. Nothing here waits for a time.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from firnline.protocol.schema import Message
from tests.peers.sniffer import read_request, read_response

_PATIENCE_S = 60.0


class Passing:
    """One request on its way: its key and version, what it says, and its answer once there is one."""

    def __init__(self, frame: bytes) -> None:
        header, self.request = read_request(frame)
        self.number: int = header.correlation_id
        self.key: int = header.request_api_key
        self.version: int = header.request_api_version
        self.answer: Message | bytes | None = None
        self._may_pass = threading.Event()
        self._is_answered = threading.Event()
        self._is_dropped = False

    def release(self) -> None:
        """Let it arrive."""
        self._may_pass.set()

    def drop(self) -> None:
        """It never arrives, and its connection breaks."""
        self._is_dropped = True
        self._may_pass.set()

    def waits(self) -> bool:
        """Return when it may go on: whether it is to arrive."""
        self._may_pass.wait()
        return not self._is_dropped

    def answered(self, answer: Message | bytes | None) -> None:
        self.answer = answer
        self._is_answered.set()

    def await_answer(self) -> Any:
        """Return what the node said to it; None where its connection broke instead."""
        assert self._is_answered.wait(_PATIENCE_S), f"no answer to {self.request!r}"
        return self.answer


Rule = Callable[[Passing], bool]


class Proxy:
    """Listens on a port of its own. `seen` has every request that passed, in the order it came."""

    def __init__(self, to: tuple[str, int]) -> None:
        self._to = to
        self._rules: dict[str, Rule] = {}
        self._kept: dict[str, list[Passing]] = {}
        self._change = threading.Condition()
        self.seen: list[Passing] = []
        self._open: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for passing in [each for kept in self._kept.values() for each in kept]:
            passing.drop()
        for one in [self._listening, *self._open]:
            _close(one)

    # ---- what a test says

    def keep_back(self, name: str, rule: Rule) -> None:
        """Keep back what the rule says, from now on."""
        with self._change:
            self._kept.setdefault(name, [])
            self._rules[name] = rule

    def kept(self, name: str) -> list[Passing]:
        """What was kept back by that name, the first one first."""
        with self._change:
            return list(self._kept.get(name, ()))

    def await_kept(self, name: str) -> Passing:
        """Return the newest that is kept back, as soon as there is one."""
        deadline = time.monotonic() + _PATIENCE_S
        with self._change:
            while not self._kept.get(name):
                left_s = deadline - time.monotonic()
                assert left_s > 0, f"nothing was kept back as {name!r}"
                self._change.wait(left_s)
            return self._kept[name][-1]

    def let_go(self, name: str) -> None:
        """Keep nothing back by that name any more, and let arrive what was."""
        with self._change:
            self._rules.pop(name, None)
            kept = self._kept.pop(name, [])
        for passing in kept:
            passing.release()

    # ---- the way of a frame

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._to, 1)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open += [client, server]
            _Pipe(client, server, self._check)

    def _check(self, frame: bytes) -> Passing:
        """Note a request, and see whether it may go on."""
        passing = Passing(frame)
        with self._change:
            self.seen.append(passing)
            for name, rule in self._rules.items():
                if rule(passing):
                    self._kept[name].append(passing)
                    self._change.notify_all()
                    return passing
        passing.release()
        return passing


class _Pipe:
    """A connection of a client, and the one behind it to the node."""

    def __init__(
        self, client: socket.socket, server: socket.socket, check: Callable[[bytes], Passing]
    ) -> None:
        self._client, self._server, self._check = client, server, check
        self._waiting: dict[int, Passing] = {}
        self._change = threading.Condition()
        for work in (self._requests, self._answers):
            threading.Thread(target=work, daemon=True).start()

    def _requests(self) -> None:
        with contextlib.suppress(OSError):
            while (frame := _frame(self._client)) is not None:
                passing = self._check(frame[4:])
                if not passing.waits():
                    break
                with self._change:
                    self._waiting[passing.number] = passing
                try:
                    self._server.sendall(frame)
                except OSError:
                    passing.answered(None)
                    raise
        # The client may be dead: what it asked is answered all the same.
        with self._change:
            self._change.wait_for(lambda: not self._waiting, _PATIENCE_S)
        _close(self._server)
        _close(self._client)

    def _answers(self) -> None:
        with contextlib.suppress(OSError):
            while (frame := _frame(self._server)) is not None:
                with self._change:
                    passing = self._waiting.pop(int.from_bytes(frame[4:8], "big"))
                    self._change.notify_all()
                passing.answered(read_response(frame[4:], passing.key, passing.version))
                with contextlib.suppress(OSError):
                    self._client.sendall(frame)
        with self._change:
            for passing in self._waiting.values():
                passing.answered(None)
            self._waiting.clear()
            self._change.notify_all()
        _close(self._client)


def _frame(from_: socket.socket) -> bytes | None:
    """Read one frame with its length; None where the other side closed."""
    head = _exactly(from_, 4)
    if head is None:
        return None
    body = _exactly(from_, int.from_bytes(head, "big"))
    return None if body is None else head + body


def _exactly(from_: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = from_.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
