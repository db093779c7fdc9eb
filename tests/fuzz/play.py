"""Plays bursts of requests against a node, and looks at what becomes of it. WORLD.

    python -m tests.fuzz.play --seed 7 [--bursts 3000] [--only 17,23-40]

A round: bursts by number, each a function of seed and number, on 32 connections; then what they made is
deleted, memory and descriptors are compared, the node is restarted, and its records are read. What is found
is played again with fewer bursts, as few as forty plays allow.
"""

import argparse
import contextlib
import selectors
import socket
import struct
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firnline.base.errors import ProtocolError
from firnline.protocol.messages import messages_of
from tests.fuzz.grammar import Asked, Burst, burst, is_controllers
from tests.fuzz.node import Finding, Node, Slow, others
from tests.fuzz.shapes import answer_head

# As many wait for a group or for records as are served.
LANES = {False: 24, True: 8}  # those of clients, and those to the listener of controllers
PARKED_MAX = 40
# Whoever hears nothing for so long is left alone, its connection open.
PATIENCE_S = 0.4
LOOK_S = 0.25
_PATIENCE_LOOK_S = 0.05
SHRINK_PLAYS = 40
_API_VERSIONS = 18
_RECEIVE_BYTES = 1 << 18
_JOINED_BYTES_MAX = 1 << 16


@dataclass
class Tally:
    """What was asked, and what became of it.

    requests   that the node took up: answered, hung up on or left waiting, and those that want no answer
    codes      of answers that were decoded: how many of each listener, API key and first error code
    """

    requests: int = 0
    answered: int = 0
    hung_up: int = 0
    left_waiting: int = 0
    slowest_s: float = 0.0
    codes: Counter[tuple[bool, int, int]] = field(default_factory=Counter)


class Lane:
    """One connection, and what it waits for."""

    def __init__(self, address: tuple[str, int], *, is_controllers: bool) -> None:
        self.is_controllers = is_controllers
        self.socket = socket.create_connection(address, 5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.asked: deque[Asked] = deque()
        self.pieces: deque[memoryview] = deque()
        self.received = bytearray()
        self.received_at = 0.0
        self.closes = False
        self.is_last = False

    def reset(self) -> None:
        """Close it so that the node knows at once that no answer is wanted any more."""
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    @property
    def is_busy(self) -> bool:
        return bool(self.asked or self.pieces or self.is_last)


class Player:
    """Sends bursts on several connections, and reads and checks what comes back."""

    def __init__(self, node: Node, seed: int) -> None:
        self._node = node
        self._seed = seed
        self.known = node.known()
        self.tally = Tally()
        self._selector = selectors.DefaultSelector()
        self._lanes: list[Lane] = []
        self._parked: deque[Lane] = deque()
        self._patient_until = 0.0
        self.recent: list[int] = []  # bursts since the last look but one
        self._before: list[int] = []

    def play(self, numbers: Iterable[int]) -> None:
        """Play these bursts. Raises Finding."""
        left = {kind: deque(n for n in numbers if is_controllers(n) == kind) for kind in LANES}
        looked_at = time.monotonic()
        try:
            while any(left.values()) or any(lane.is_busy for lane in self._lanes):
                now = time.monotonic()
                if now - looked_at > LOOK_S:
                    self._node.look()
                    self._before, self.recent = self.recent, []
                    looked_at = now
                self._begin(left, now)
                self._turn()
        except OSError as problem:
            self._node.look_at_its_end()
            raise Finding(f"it takes no connections: {problem!r}") from problem
        finally:
            self.recent = self._before + self.recent
            for lane in [*self._lanes, *self._parked]:
                lane.reset()
            self._selector.close()
        self._node.look()

    def _begin(self, left: dict[bool, deque[int]], now: float) -> None:
        """Give each idle lane its next burst."""
        for kind, wanted in LANES.items():
            there = sum(lane.is_controllers == kind for lane in self._lanes)
            for _ in range(min(wanted, len(left[kind])) - there):
                address = self._node.controllers_address if kind else self._node.address
                lane = Lane(address, is_controllers=kind)
                self._lanes.append(lane)
                self._selector.register(lane.socket, selectors.EVENT_READ, lane)
        for lane in self._lanes:
            numbers = left[lane.is_controllers]
            if numbers and not lane.is_busy:
                self._load(lane, burst(self._seed, numbers.popleft(), self.known), now)

    def _load(self, lane: Lane, one: Burst, now: float) -> None:
        self.recent.append(one.number)
        self.tally.requests += one.is_last
        lane.asked.extend(one.asked)
        lane.pieces.extend(memoryview(piece) for piece in one.pieces)
        lane.closes, lane.is_last, lane.received_at = one.closes, one.is_last, now
        if not one.is_last:  # its answer says that all before it were answered
            number = -1 - one.number
            lane.asked.append(Asked(_API_VERSIONS, 0, number, {}))
            last = struct.pack(">ihhih", 10, _API_VERSIONS, 0, number, -1)
            if len(lane.pieces) == 1 and len(lane.pieces[0]) < _JOINED_BYTES_MAX:
                lane.pieces[0] = memoryview(bytes(lane.pieces[0]) + last)
            else:
                lane.pieces.append(memoryview(last))

    def _turn(self) -> None:
        waiting = False
        for lane in list(self._lanes):
            if lane.pieces and not self._send(lane):
                waiting = True
        for key, _ in self._selector.select(0.001 if waiting else 0.05):
            lane = key.data
            if lane in self._lanes:
                self._receive(lane)
        now = time.monotonic()
        if now < self._patient_until:
            return
        self._patient_until = now + _PATIENCE_LOOK_S
        for lane in list(self._lanes):
            if lane.is_busy and now - lane.received_at > PATIENCE_S:
                self._leave(lane, parked=True)
                self.tally.left_waiting += 1
                self.tally.requests += 1

    def _send(self, lane: Lane) -> bool:
        """Send a piece, or a part of it; False where some is left."""
        piece = lane.pieces[0]
        try:
            sent = lane.socket.send(piece)
        except BlockingIOError:
            return False
        except OSError:
            lane.pieces.clear()  # what was answered before is still to be read
            return True
        if sent < len(piece):
            lane.pieces[0] = piece[sent:]
            return False
        lane.pieces.popleft()
        if not lane.pieces and lane.closes:
            self._leave(lane, parked=False)
        return not lane.pieces

    def _receive(self, lane: Lane) -> None:
        try:
            data = lane.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            if lane.asked:
                self.tally.hung_up += 1
                self.tally.requests += 1
            self._leave(lane, parked=False)
            return
        lane.received_at = time.monotonic()
        received = lane.received
        received += data
        place = 0
        while len(received) - place >= 4:
            size = struct.unpack_from(">i", received, place)[0]
            if len(received) - place - 4 < size:
                break
            if not lane.is_last:
                self._take(lane, bytes(received[place + 4 : place + 4 + size]))
            place += 4 + size
        del received[:place]

    def _take(self, lane: Lane, said: bytes) -> None:
        """Check one answer, and learn from it."""
        if len(said) < 4:
            raise Finding(f"an answer of {len(said)} bytes")
        number = struct.unpack_from(">i", said)[0]
        place = 0
        if lane.asked and lane.asked[0].correlation_id != number:
            place = next(
                (i for i, one in enumerate(lane.asked) if one.correlation_id == number), -1
            )
        if place < 0 or not lane.asked:
            if all(one.correlation_id is not None for one in lane.asked):
                raise Finding(f"an answer of number {number}, which nobody asked for")
            return
        for _ in range(place):  # no answer was wanted
            lane.asked.popleft()
        asked = lane.asked.popleft()
        self.tally.requests += place
        if number < 0:
            return
        self.tally.requests += 1
        self.tally.answered += 1
        if not asked.is_read:
            return
        answer = _decoded(asked, said)
        key = (lane.is_controllers, asked.key, _first_code(answer, 3))
        self.tally.codes[key] += 1
        if asked.focus is not None:
            self.known.learn(asked.key, asked.focus, answer, is_controllers=lane.is_controllers)

    def _leave(self, lane: Lane, *, parked: bool) -> None:
        self._lanes.remove(lane)
        self._selector.unregister(lane.socket)
        if not parked:
            lane.socket.close()
            return
        self._parked.append(lane)
        if len(self._parked) > PARKED_MAX:
            self._parked.popleft().socket.close()


def _decoded(asked: Asked, said: bytes) -> Any:
    """Decode an answer. Raises Finding."""
    response = messages_of(asked.key)[1]
    try:
        answer, end = response.read(said, asked.version, answer_head(asked.key, asked.version))
    except ProtocolError as problem:
        raise Finding(f"an answer of API {asked.key} v{asked.version}: {problem}") from None
    if end != len(said):
        left = f"{len(said) - end} bytes after an answer"
        raise Finding(f"{left} of API {asked.key} v{asked.version}: {said[:2000].hex()}")
    return answer


def _first_code(answer: object, depth: int) -> int:
    """The first error code in an answer that is not 0."""
    found = getattr(answer, "error_code", 0)
    if found or depth == 0:
        return int(found)
    for name, one in getattr(type(answer), "fields", {}).items():
        if isinstance(one.kind, list) and isinstance(one.kind[0], type):
            for row in (getattr(answer, name) or ())[:2]:
                found = _first_code(row, depth - 1)
                if found:
                    return found
    return 0


@dataclass
class Outcome:
    """What a play came to. `found` says what must not be; `recent` are the bursts that may have done it."""

    tally: Tally
    found: str = ""
    is_slow: bool = False
    recent: Sequence[int] = ()


def play(base: Path, seed: int, numbers: Sequence[int], *, rounds: int = 1) -> Outcome:
    """Play bursts against a new node, in rounds.

    After each round memory and files are compared, the node is restarted and its records are read.
    """
    outcome = Outcome(Tally())
    try:
        with Node(base) as node:
            node.remember()
            share = -(-len(numbers) // rounds)
            for first in range(0, len(numbers), share):
                _round(node, seed, numbers[first : first + share], outcome)
    except Finding as finding:
        outcome.found, outcome.is_slow = str(finding), isinstance(finding, Slow)
    return outcome


def _round(node: Node, seed: int, numbers: Sequence[int], outcome: Outcome) -> None:
    player = Player(node, seed)
    with others(node) as asking:
        try:
            player.play(numbers)
        finally:
            outcome.recent = player.recent
            _add(outcome.tally, player.tally)
    outcome.recent = ()
    outcome.tally.slowest_s = max(outcome.tally.slowest_s, *asking.waited_s, 0.0)
    asking.are_unharmed()
    node.settle()
    node.restart()
    node.all_are_there()
    node.remember()


def _add(all_of_it: Tally, one: Tally) -> None:
    all_of_it.requests += one.requests
    all_of_it.answered += one.answered
    all_of_it.hung_up += one.hung_up
    all_of_it.left_waiting += one.left_waiting
    all_of_it.codes += one.codes


def shrink(seed: int, numbers: Sequence[int], recent: Sequence[int]) -> list[int]:
    """Return fewer bursts that find something too, or all of them."""
    plays = 0

    def finds(some: Sequence[int]) -> bool:
        nonlocal plays
        plays += 1
        with tempfile.TemporaryDirectory(prefix="firnline-fuzz-") as directory:
            return bool(play(Path(directory), seed, some).found)

    best = list(numbers)
    if recent and finds(recent):
        best = list(recent)
    size = len(best) // 2
    while size and plays < SHRINK_PLAYS:
        for first in range(0, len(best), size):
            fewer = best[:first] + best[first + size :]
            if plays >= SHRINK_PLAYS or not fewer:
                break
            if finds(fewer):
                best = fewer
                break
        else:
            size //= 2
            continue
        size = min(size, len(best) // 2)
    return best


def command(seed: int, numbers: Sequence[int]) -> str:
    """Say how these bursts are played again."""
    return f"python -m tests.fuzz.play --seed {seed} --only {spans(numbers)}"


def spans(numbers: Sequence[int]) -> str:
    """Write 1, 2, 3, 7 as 1-3,7."""
    out: list[list[int]] = []
    for number in sorted(numbers):
        if out and out[-1][1] == number - 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def numbers_of(text: str) -> list[int]:
    """Read what `spans` wrote."""
    pairs = (part.partition("-") for part in text.split(","))
    return [n for a, _, b in pairs for n in range(int(a), int(b or a) + 1)]


def main() -> int:
    """Play as the command says; 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.play")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--bursts", type=int, default=1000)
    parser.add_argument("--only", help="numbers of bursts: 17,23-40")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--no-shrink", action="store_true")
    given = parser.parse_args()
    numbers = numbers_of(given.only) if given.only else list(range(given.bursts))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="firnline-fuzz-") as directory:
        outcome = play(Path(directory), given.seed, numbers, rounds=given.rounds)
    took_s = time.monotonic() - began
    tally = outcome.tally
    print(f"{tally.requests} requests in {took_s:.1f} s: {tally.answered} answered,"
          f" {tally.hung_up} hung up on, {tally.left_waiting} left waiting")  # fmt: skip
    for (is_theirs, key, code), count in sorted(tally.codes.items()):
        print(f"  {'controllers, ' if is_theirs else ''}API {key}, error {code}: {count}")
    if not outcome.found:
        return 0
    print(outcome.found)
    if not given.no_shrink and len(numbers) > 1:
        numbers = shrink(given.seed, numbers, outcome.recent)
    print(f"again: {command(given.seed, numbers)}")
    return 1


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
