"""Brokers that do nothing but register and send heartbeats: the company of bench/scale.py.

Run as `python -m bench.heartbeats PORT CLUSTER_ID BROKERS INTERVAL_MS`. Commands come on stdin, one answer
a line:

    times        how long heartbeats took since the last such question, as JSON: count, p50, p99, max in ms
    unfenced     how many brokers may serve
    silence ID   that broker says nothing from now on
    speak ID     it begins again

A heartbeat counts from the moment it was due, and those that could not be sent because one was on its way
count too, each from its own moment: a controller that does not answer for a second is not measured by one of
them.
"""

import heapq
import json
import os
import select
import socket
import sys
import time

from firnline.client.wire import decode_answer, encode_request
from firnline.protocol.messages.k62_broker_registration import (
    BrokerListener,
    BrokerRegistrationRequest,
    BrokerSupportedFeature,
)
from firnline.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from firnline.protocol.schema import Message

VERSIONS = {62: 4, 63: 1}
FIRST_ID = 1000
_FOREVER = 1 << 62
_RETRY_S = 0.2


class Stub:
    """One broker: a socket, at most one request on its way."""

    def __init__(self, node_id: int, port: int, cluster_id: str) -> None:
        self.node_id, self.port = node_id, port
        self.is_silent, self.is_fenced = False, True
        self.is_due = True  # in the heap of those that will be sent
        self.epoch = -1
        self.sock: socket.socket | None = None
        self.asked: Message | None = None
        self.due_s = 0.0  # of the request on its way
        self._serial = 0
        self._received = bytearray()
        self._registration = BrokerRegistrationRequest(
            broker_id=node_id,
            cluster_id=cluster_id,
            incarnation_id=os.urandom(16),
            listeners=[
                BrokerListener(
                    name="PLAINTEXT", host="127.0.0.1", port=node_id, security_protocol=0
                )
            ],
            features=[
                BrokerSupportedFeature(
                    name="metadata.version", min_supported_version=1, max_supported_version=30
                )
            ],
            rack=None,
            log_dirs=[b"scale stub " + node_id.to_bytes(5, "big")],
        )

    def next_request(self) -> Message:
        if self.epoch < 0:
            return self._registration
        return BrokerHeartbeatRequest(
            broker_id=self.node_id, broker_epoch=self.epoch, current_metadata_offset=_FOREVER
        )

    def send(self, due_s: float) -> None:
        """Send what is next. OSError when nobody is there."""
        if self.sock is None:
            self.sock = socket.create_connection(("127.0.0.1", self.port), 5)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._serial += 1
        self.asked, self.due_s = self.next_request(), due_s
        version = VERSIONS[self.asked.key]
        data = encode_request(
            self.asked, version=version, correlation_id=self._serial, client_id="heartbeats"
        )
        self.sock.sendall(data)

    def receive(self) -> bool:
        """Take what came; return whether that was an answer. OSError when the other side has gone."""
        assert self.sock is not None
        data = self.sock.recv(65536)
        if not data:
            raise ConnectionResetError
        self._received += data
        if len(self._received) < 4:
            return False
        size = int.from_bytes(self._received[:4], "big")
        if len(self._received) < 4 + size:
            return False
        frame, self._received = bytes(self._received[4:]), bytearray()
        asked, self.asked = self.asked, None
        assert asked is not None
        answer: object = decode_answer(
            asked, VERSIONS[asked.key], frame, correlation_id=self._serial
        )
        self._take(asked, answer)
        return True

    def _take(self, asked: Message, answer: object) -> None:
        if getattr(answer, "error_code", 0):
            return
        if asked.key == BrokerRegistrationRequest.key:
            self.epoch = getattr(answer, "broker_epoch", -1)
        else:
            self.is_fenced = bool(getattr(answer, "is_fenced", True))

    def hang_up(self) -> None:
        if self.sock is not None:
            self.sock.close()
        self.sock = self.asked = None
        self._received.clear()


class Company:
    """All the stubs, on one poller."""

    def __init__(self, port: int, cluster_id: str, count: int, interval_s: float) -> None:
        self.stubs = {n: Stub(n, port, cluster_id) for n in range(FIRST_ID, FIRST_ID + count)}
        self.interval_s = interval_s
        self.took_s: list[float] = []
        self._poller = select.epoll()
        self._by_fd: dict[int, Stub] = {}
        now = time.monotonic()
        self._due = [
            (now + interval_s * n / count, node_id) for n, node_id in enumerate(self.stubs)
        ]
        heapq.heapify(self._due)

    def run(self) -> None:
        """Until stdin ends."""
        self._poller.register(0, select.EPOLLIN)
        while True:
            wait_s = max(0.0, self._due[0][0] - time.monotonic()) if self._due else 1.0
            for fd, _ in self._poller.poll(wait_s):
                if fd == 0:
                    line = sys.stdin.readline()
                    if not line:
                        return
                    print(self._obey(line.split()), flush=True)
                elif fd in self._by_fd:
                    self._on_readable(fd)
            while self._due and self._due[0][0] <= time.monotonic():
                self._send(*heapq.heappop(self._due))

    def _send(self, due_s: float, node_id: int) -> None:
        stub = self.stubs[node_id]
        stub.is_due = False
        if stub.is_silent:
            return
        try:
            stub.send(due_s)
            assert stub.sock is not None
            fd = stub.sock.fileno()
            if fd not in self._by_fd:
                self._by_fd[fd] = stub
                self._poller.register(fd, select.EPOLLIN)
        except OSError:
            self._lose(stub)

    def _on_readable(self, fd: int) -> None:
        stub = self._by_fd[fd]
        was_registered = stub.epoch >= 0
        try:
            if not stub.receive():
                return
        except OSError:
            self._lose(stub)
            return
        now, due_s = time.monotonic(), stub.due_s
        while due_s < now:
            if was_registered:
                self.took_s.append(now - due_s)
            due_s += self.interval_s
        self._schedule(stub, due_s)

    def _schedule(self, stub: Stub, due_s: float) -> None:
        if not stub.is_due:
            stub.is_due = True
            heapq.heappush(self._due, (due_s, stub.node_id))

    def _lose(self, stub: Stub) -> None:
        """The controller is gone: come again soon, and count no heartbeat."""
        if stub.sock is not None and self._by_fd.pop(stub.sock.fileno(), None) is not None:
            self._poller.unregister(stub.sock.fileno())
        stub.hang_up()
        self._schedule(stub, time.monotonic() + _RETRY_S)

    def _obey(self, words: list[str]) -> str:
        if words[0] == "times":
            took, self.took_s = sorted(self.took_s), []
            if not took:
                return json.dumps({"heartbeats": 0})
            return json.dumps(
                {
                    "heartbeats": len(took),
                    "p50 ms": round(took[len(took) // 2] * 1000, 2),
                    "p99 ms": round(took[len(took) * 99 // 100] * 1000, 1),
                    "max ms": round(took[-1] * 1000, 1),
                }
            )
        if words[0] == "unfenced":
            return str(sum(not stub.is_fenced for stub in self.stubs.values()))
        stub = self.stubs[int(words[1])]
        stub.is_silent = words[0] == "silence"
        if not stub.is_silent:
            self._schedule(stub, time.monotonic())
        return "ok"


def main() -> None:
    port, cluster_id, count, interval_ms = sys.argv[1:]
    Company(int(port), cluster_id, int(count), int(interval_ms) / 1000).run()


if __name__ == "__main__":
    main()
