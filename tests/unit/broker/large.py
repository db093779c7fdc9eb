"""Requests about all of a large node, and a node that counts what each of its steps does."""

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from firnline.base.background import Background
from firnline.base.effects import Reply
from firnline.protocol.messages.headers import RequestHeader
from firnline.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from firnline.protocol.schema import Message, Part
from tests.worlds.harness import Connection, Harness
from tests.worlds.timers import WorldTimers

TOPICS, PARTITIONS = 12, 100
NAMES = [f"t{n:02d}" for n in range(TOPICS)]


class LargeNode(Harness):
    """A node with topics of PARTITIONS partitions each.

    steps  how many functions each step called since the last `ask`: its work, however busy the machine is
    """

    def __init__(self, names: Sequence[str] = NAMES) -> None:
        self.steps: list[int] = []
        super().__init__()
        self.fs.kept.files_max = 100_000  # as many descriptors as logs, as a server has them
        for name in names:
            topic = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
            self.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
            self.pass_time(1_000)

    def ask(self, request: Message, version: int) -> Any:
        """Return the answer to one request; nothing else is due meanwhile."""
        connection = self.begin(request, version)
        self.finish()
        assert len(connection.answers) == 1
        return connection.answers[0]

    def begin(self, request: Message, version: int, memory: Any = None) -> Connection:
        """Do the first slice of a request; `memory` counts what its answer holds."""
        self.steps = []
        connection = Connection()
        connection.response_memory = memory
        header = RequestHeader(
            request_api_key=request.key, request_api_version=version, client_id="large"
        )
        is_flexible = version in type(request).flexible
        frame = bytearray(header.write(2 if is_flexible else 1) + request.write(version))
        view = memoryview(frame)
        self.run(self._step(self.dispatcher.on_frame, connection, view, self.now_ms))
        view.release()
        frame.clear()  # BufferError if anybody kept a view of the receive buffer
        return connection

    def send_only(
        self, request: Message, version: int, connection: Connection | None = None
    ) -> None:
        """Send another request. Of those under way no slice is done."""
        turns = self.node.sliced_tasks
        self.node.sliced_tasks = Background("others")
        due = self.timers
        self.timers = WorldTimers()
        self.send(request, version, connection)
        self.node.sliced_tasks = turns
        self.timers = WorldTimers(due | self.timers)

    def finish(self) -> None:
        """Do all slices that are left."""
        while self.one_more():
            pass

    def one_more(self) -> bool:
        """Do a slice of a request, if one is due now."""
        due = self.due_timer()
        if due is None:
            return False
        del self.timers[due.key]
        self.run(self._step(due.then, self.now_ms))
        return True

    def encode(self, reply: Reply) -> list[Part]:
        """As the runtime does it."""
        if not reply.context.is_large:
            parts: list[Part] = self._step(self.dispatcher.encode, reply)
            return parts
        encoding = self.dispatcher.encoding(reply)
        try:
            while True:
                self._step(next, encoding)
        except StopIteration as done:
            return list(done.value)

    def _step(self, call: Callable[..., Any], *args: Any) -> Any:
        count = 0

        def seen(frame: FrameType, event: str, arg: Any) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(seen)
        try:
            return call(*args)
        finally:
            sys.setprofile(before)
            self.steps.append(count)
