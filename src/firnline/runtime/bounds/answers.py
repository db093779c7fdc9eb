"""Bounds the memory of responses: those under construction, and those that peers have not read yet. WORLD.

A request of a few kilobytes may ask for a response of gigabytes, and its client need not read it. So all
responses together have a bound, `bytes_max` (decision 0026):
- A response that alone exceeds the bound costs its connection.
- At the bound only one response, `one`, goes on, so that one can always end. The others wait between slices.
- A quarter above the bound no response begins that may be large.
- At the bound, connections whose peers do not read are closed, those with the most unread bytes first.

Records from the remote tier are bytes in memory, and any number of clients may ask for them. Their bytes are
reserved before a thread reads them. At the bound no read of the tier begins; the Fetch is answered without
these records. What is reserved holds up only other reads of the tier: a store that hangs delays nobody else.

The objects of a large request count with its response until they are freed (runtime/bounds/freeing). A
request that claims to come from a replica or a broker does not wait for clients: such requests go on up to
twice the bound (decision 0027), and their responses are never too large.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Protocol

from firnline.base.effects import Effects
from firnline.base.errors import ProtocolError
from firnline.base.limits import READER_BYTES_PER_CHECK
from firnline.base.units import MIB
from firnline.runtime.bounds.freeing import Freeing, Kept
from firnline.runtime.bounds.slow_peers import SlowPeerCheck, slow_ones
from firnline.runtime.poll import PollLoop

ANSWERS_BYTES_MAX = 512 * MIB
# After so many checks a slow reader is closed: where a response can go on, where none can, and where none may
# begin.
_CHECKS_OF_A_SLOW_READER, _CHECKS_WHILE_NONE_GOES_ON, _CHECKS_WITHOUT_ROOM = 10, 3, 1
_CLOSED_PER_CHECK = 100
# Fewer bytes, some 12,000 rows, are freed in one step of 2 ms.
_KEPT_BYTES_MIN = 4 * MIB
# Requests of replicas and brokers go on up to so many times the bound.
_ROOM_OF_BROKERS = 2
Again = Callable[[int], Effects]


class Reader(Protocol):
    """A connection."""

    def close_slow(self) -> None:
        """Close the connection, because its peer does not read."""
        ...


class ResponseMemory:
    """The memory that the responses of one connection hold.

    making_bytes  estimate of the objects of the request and the response, and the encoded part of it
    asking_bytes  how much of that is the request: it does not count for the limit of one response
    unsent_bytes  what the socket did not take yet, without file slices
    reserved_bytes  for records of the tier that are being read
    is_urgent     the response under construction is, as far as is known, for a replica or a broker
    """

    __slots__ = (
        "_answers",
        "_kept",
        "_seen_taken",
        "asking_bytes",
        "is_urgent",
        "making_bytes",
        "reader",
        "reserved_bytes",
        "slow_checks",
        "taken",
        "unsent_bytes",
    )

    def __init__(self, answers: "Answers", reader: Reader) -> None:
        self._answers = answers
        self.reader: Reader | None = reader
        self.making_bytes = self.asking_bytes = self.unsent_bytes = self.reserved_bytes = 0
        self.taken = self._seen_taken = 0  # bytes that were queued and then sent
        self.slow_checks = 0  # consecutive checks that found the peer slow
        self.is_urgent = False
        self._kept: Kept | None = None

    def keeps(self, container: object) -> None:
        """Free the content of `container`, of the request or its response, in portions once that is over.

        Does nothing where they hold so little that one step frees it.
        """
        freeing = self._answers.freeing
        if self._kept is None or self._kept.is_freed:
            if self.making_bytes < _KEPT_BYTES_MIN and self.reader is not None:
                return
            self._kept = freeing.begin()
        self._kept.add(container)
        if self.reader is None:
            freeing.end(self._kept, 0)

    def grow(self, size_bytes: int) -> None:
        """Count more bytes of the response. ProtocolError: it exceeds the limit of one response."""
        if self.reader is None:
            return  # the connection is closed: a late result, from the remote tier, is dropped
        self.making_bytes += size_bytes
        self._answers.making_grew(self, size_bytes)

    def hold(self, size_bytes: int) -> None:
        """Count more bytes of the request that is handled."""
        if self.reader is None:
            return
        self.asking_bytes += size_bytes
        self.grow(size_bytes)

    def reserve(self, size_bytes: int) -> bool:
        """Set bytes aside for records that a thread is to read from the tier; False: there is no room."""
        if self.reader is None or not self._answers.may_reserve():
            return False
        self.reserved_bytes += size_bytes
        self._answers.reserved_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """Records for which so many bytes were reserved have come, or nobody waits for them."""
        size_bytes = min(size_bytes, self.reserved_bytes)
        self.reserved_bytes -= size_bytes
        self._answers.reserved_bytes -= size_bytes

    def must_wait(self) -> bool:
        """Whether the response has to wait before its next slice."""
        return not self._answers.may_go_on(self)

    def must_wait_to_begin(self) -> bool:
        """Whether the response has to wait before it begins. One that holds memory has begun already."""
        answers = self._answers
        if self.making_bytes or answers.one is self:
            return False
        return not answers.has_room_for_brokers if self.is_urgent else answers.is_without_room

    def wait(self, again: Again, *, to_begin: bool = False) -> None:
        """Call `again(now_ms)` once there is memory, or when the connection closes."""
        self._answers.wait(self, again, to_begin=to_begin)

    def give_way(self) -> None:
        """Let another response be `one`: this one does not need to be, and may wait for others."""
        self._answers.give_way(self)

    def made(self) -> None:
        """The response is complete, or there will be none: from here on its unsent bytes count."""
        if self._kept is not None:
            self._answers.freeing.end(self._kept, self.making_bytes)
            self._kept = None
        self.waits()

    def waits(self) -> None:
        """The request waits for something that may take long: its memory does not count meanwhile."""
        if self.making_bytes or self._answers.one is self:
            held, self.making_bytes, self.asking_bytes = self.making_bytes, 0, 0
            self._answers.making_shrank(self, held)

    def unsent(self, size_bytes: int) -> None:
        """Set how many bytes wait for the peer to read."""
        more = size_bytes - self.unsent_bytes
        if more < 0:
            self.taken -= more
        self.unsent_bytes = size_bytes
        self._answers.unsent_changed(self, more)

    def close(self) -> None:
        """The connection has closed. A request that changes something goes on, and may keep more."""
        kept = self._kept
        self.made()
        self._kept = kept
        self.unsent(0)
        self.release(self.reserved_bytes)
        self._answers.forget(self)
        self.reader = None  # it refers to us: without the cycle our memory is freed at once

    def check(self) -> None:
        """Note whether the peer reads; called once a second while memory is short."""
        is_slow = self.taken - self._seen_taken < READER_BYTES_PER_CHECK
        self.slow_checks = self.slow_checks + 1 if is_slow else 0
        self._seen_taken = self.taken


class Answers:
    """The memory of all responses of a node.

    resume(again)  calls a continuation and carries out its effects
    """

    def __init__(self, loop: PollLoop, resume: Callable[[Again], None], bytes_max: int) -> None:
        self._loop = loop
        self._resume = resume
        self.bytes_max = bytes_max
        self.making_bytes = self.unsent_bytes = self.reserved_bytes = 0
        self.refused = self.slow_readers = 0
        # The only response that goes on at the bound.
        self.one: ResponseMemory | None = None
        self._unsent: dict[ResponseMemory, None] = {}
        self._going_on: dict[ResponseMemory, Again] = {}
        self._beginning: dict[ResponseMemory, Again] = {}
        self._urgent: dict[ResponseMemory, Again] = {}
        self._was_urgent = False  # whether the last admitted one was
        self._is_due = False
        self._slow_check = SlowPeerCheck(loop, self._check)
        self.freeing = Freeing(loop, self._go_on)

    @property
    def held_bytes(self) -> int:
        return self.making_bytes + self.unsent_bytes + self.freeing.held_bytes

    @property
    def waiting(self) -> int:
        """How many responses wait for memory."""
        return len(self._going_on) + len(self._beginning) + len(self._urgent)

    @property
    def is_without_room(self) -> bool:
        """Whether no response may begin."""
        return self.held_bytes >= self.bytes_max + self.bytes_max // 4

    @property
    def has_room_for_brokers(self) -> bool:
        """Whether responses to replicas and brokers go on."""
        return self.held_bytes < self.bytes_max * _ROOM_OF_BROKERS

    def memory_of(self, reader: Reader) -> ResponseMemory:
        return ResponseMemory(self, reader)

    def may_go_on(self, memory: ResponseMemory) -> bool:
        if memory.reader is None:
            return True  # the connection is closed: the request ends with its next step
        if self.held_bytes < self.bytes_max:
            self.one = None
            return True
        if memory.is_urgent and self.has_room_for_brokers:
            return True
        self._slow_check.soon()
        if self.one is None and self.unsent_bytes < self.bytes_max:
            self.one = memory
        return self.one is memory

    def may_reserve(self) -> bool:
        """Whether a read of the tier may begin."""
        if self.held_bytes + self.reserved_bytes < self.bytes_max:
            return True
        self._slow_check.soon()
        return False

    def making_grew(self, memory: ResponseMemory, size_bytes: int) -> None:
        self.making_bytes += size_bytes
        if memory.making_bytes - memory.asking_bytes > self.bytes_max and not memory.is_urgent:
            self.refused += 1
            why = (
                "the response is larger than all responses may be: ask for less at a time, or raise"
            )
            raise ProtocolError(f"{why} firnline.answers.max.bytes", limit=self.bytes_max)

    def making_shrank(self, memory: ResponseMemory, size_bytes: int) -> None:
        self.making_bytes -= size_bytes
        if self.one is memory:
            self.one = None
        self._go_on()

    def give_way(self, memory: ResponseMemory) -> None:
        if self.one is memory:
            self.one = None
            self._go_on()

    def unsent_changed(self, memory: ResponseMemory, size_bytes: int) -> None:
        self.unsent_bytes += size_bytes
        if not memory.unsent_bytes:
            self._unsent.pop(memory, None)
            memory.slow_checks = 0
        elif memory not in self._unsent:
            self._unsent[memory] = None
        if size_bytes < 0:
            self._go_on()
        elif self.held_bytes >= self.bytes_max:
            self._slow_check.soon()

    def wait(self, memory: ResponseMemory, again: Again, *, to_begin: bool) -> None:
        if memory.reader is None:
            self._loop.call_soon(self._resume, again)
            return
        queue = (
            self._urgent if memory.is_urgent else self._beginning if to_begin else self._going_on
        )
        queue[memory] = _both(queue[memory], again) if memory in queue else again
        self._slow_check.soon()

    def forget(self, memory: ResponseMemory) -> None:
        """Resume what waits, so that it ends: its connection has closed."""
        for queue in (self._urgent, self._beginning, self._going_on):
            again = queue.pop(memory, None)
            if again is not None:
                self._loop.call_soon(self._resume, again)

    # ---- admission

    def _next_queue(self) -> dict[ResponseMemory, Again] | None:
        """Return the queue whose first response may go on, None where none may."""
        may_be_one = self.one is None and self.unsent_bytes < self.bytes_max
        clients = None
        if self._beginning and not self.is_without_room:
            clients = self._beginning
        elif self._going_on and (self.held_bytes < self.bytes_max or may_be_one):
            clients = self._going_on
        if self._urgent and (self.has_room_for_brokers or may_be_one):
            # Alternate with clients, so that nobody waits for ever for peers that claim to be replicas.
            return clients if clients and self._was_urgent else self._urgent
        return clients

    def _go_on(self) -> None:
        if not self._is_due and self.waiting and self._next_queue() is not None:
            self._is_due = True
            self._loop.call_soon(self._admit)

    def _admit(self) -> None:
        """Admit one response; the next one in another turn, if memory is left."""
        self._is_due = False
        queue = self._next_queue()
        if queue is None:
            return
        memory = next(iter(queue))
        again = queue.pop(memory)
        self._was_urgent = queue is self._urgent
        if queue is not self._beginning:
            self.may_go_on(memory)  # makes it `one` before another response can become that
        self._resume(again)
        self._go_on()

    def _check(self) -> None:
        """Close connections whose peers do not read, while other responses need the memory."""
        if self.held_bytes < self.bytes_max and not self.waiting:
            return
        self._slow_check.soon()
        checks = _CHECKS_OF_A_SLOW_READER
        if self.is_without_room:
            checks = _CHECKS_WITHOUT_ROOM
        elif self.unsent_bytes >= self.bytes_max:
            checks = _CHECKS_WHILE_NONE_GOES_ON
        slow = slow_ones(self._unsent, checks, attrgetter("unsent_bytes"))
        for memory in slow[:_CLOSED_PER_CHECK]:
            if self.held_bytes < self.bytes_max // 2:
                break
            if memory.reader is not None:
                self.slow_readers += 1
                memory.reader.close_slow()
        self._go_on()

    def close(self) -> None:
        self._slow_check.close()
        self.freeing.close()


def _both(first: Again, second: Again) -> Again:
    return lambda now_ms: first(now_ms) + second(now_ms)
