"""How many bytes of answers a node holds: those that are being made, and those that wait to be read. WORLD.

A request of a few kilobytes may ask for an answer of gigabytes, and whoever asks need not read it. So all
answers together have a bound, and one answer alone may not pass it: that costs its connection. Where the
bound is reached one answer goes on, so that there is always one that can end, and the others wait between
two of their slices. A quarter above it no answer begins that may be large. A connection whose peer does not
read what waits for it is closed then, the one with the most bytes first. Decision 0026.

The objects of a large request count with its answer, until they are freed (runtime/bounds/freeing). What says
that it comes from a replica or a broker does not wait for clients: it has as much room again (decision 0027),
and is never too large.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Protocol

from firnline.base.effects import Effects
from firnline.base.errors import ProtocolError
from firnline.base.limits import READER_BYTES_PER_LOOK
from firnline.base.units import MIB
from firnline.runtime.bounds.freeing import Freeing, Kept
from firnline.runtime.bounds.looks import Looks, slow_ones
from firnline.runtime.poll import PollLoop

ANSWERS_BYTES_MAX = 512 * MIB
# Looks after which a reader is closed: where one answer can go on, where none can, and where none may begin.
_LOOKS_OF_A_SLOW_READER, _LOOKS_WHILE_NONE_GOES_ON, _LOOKS_WITHOUT_ROOM = 10, 3, 1
_CLOSED_PER_LOOK = 100
# Some 12,000 rows: they are freed in 2 ms.
_KEPT_BYTES_MIN = 4 * MIB
# Up to so many times the bound replicas and brokers go on.
_ROOM_OF_BROKERS = 2
Again = Callable[[int], Effects]


class Reader(Protocol):
    """A connection."""

    def close_slow(self) -> None:
        """Close it, because its peer does not read."""
        ...


class Share:
    """What the answers of one connection hold.

    making_bytes  an estimate of the objects of request and answer, and what is encoded of it
    asking_bytes  how much of that is the request: it has come, and is not refused for it
    unsent_bytes  what the socket did not take yet, but for what is still in files
    is_urgent     the answer that is made is for a replica or a broker, as far as is known
    """

    __slots__ = (
        "_answers",
        "_kept",
        "_seen_taken",
        "asking_bytes",
        "is_urgent",
        "looks",
        "making_bytes",
        "reader",
        "taken",
        "unsent_bytes",
    )

    def __init__(self, answers: "Answers", reader: Reader) -> None:
        self._answers = answers
        self.reader: Reader | None = reader
        self.making_bytes = self.asking_bytes = self.unsent_bytes = 0
        self.taken = self._seen_taken = 0  # bytes that the socket took of what had to wait
        self.looks = 0  # how many found that it took next to nothing
        self.is_urgent = False
        self._kept: Kept | None = None

    def keeps(self, container: object) -> None:
        """Free what the request, or its answer, has in `container` in portions, when it is over.

        Not where they hold so little that one step does it.
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
        """The answer that is being made holds so much more. ProtocolError: that is more than one may."""
        if self.reader is None:
            return  # it has closed: what comes late, from the tier, is dropped
        self.making_bytes += size_bytes
        self._answers.making_grew(self, size_bytes)

    def hold(self, size_bytes: int) -> None:
        """The request that is answered holds so much more."""
        if self.reader is None:
            return
        self.asking_bytes += size_bytes
        self.grow(size_bytes)

    def must_wait(self) -> bool:
        """Whether the answer is not to go on now."""
        return not self._answers.may_go_on(self)

    def must_wait_to_begin(self) -> bool:
        """Whether the answer is not to begin now. One that holds something has begun: its work has parts."""
        answers = self._answers
        if self.making_bytes or answers.one is self:
            return False
        return not answers.has_room_for_brokers if self.is_urgent else answers.is_without_room

    def wait(self, again: Again, *, to_begin: bool = False) -> None:
        """Have `again(now_ms)` called once there is room, or the connection has closed."""
        self._answers.wait(self, again, to_begin=to_begin)

    def give_way(self) -> None:
        """It goes on whatever there is room for, and may wait for others: another one is to go on."""
        self._answers.give_way(self)

    def made(self) -> None:
        """The answer is whole, or there will be none: from here on what is unsent of it counts."""
        if self._kept is not None:
            self._answers.freeing.end(self._kept, self.making_bytes)
            self._kept = None
        self.waits()

    def waits(self) -> None:
        """The request waits for what may take long: what it holds does not count meanwhile."""
        if self.making_bytes or self._answers.one is self:
            held, self.making_bytes, self.asking_bytes = self.making_bytes, 0, 0
            self._answers.making_shrank(self, held)

    def unsent(self, size_bytes: int) -> None:
        """So many bytes wait for the peer to read; fewer than before where it has read."""
        more = size_bytes - self.unsent_bytes
        if more < 0:
            self.taken -= more
        self.unsent_bytes = size_bytes
        self._answers.unsent_changed(self, more)

    def close(self) -> None:
        """Its connection has gone. What changes something goes on, and may keep more."""
        kept = self._kept
        self.made()
        self._kept = kept
        self.unsent(0)
        self._answers.forget(self)
        self.reader = None  # it refers to us: memory comes back at once

    def look(self) -> None:
        """Note whether the peer reads: called once a second while there is too little room."""
        is_slow = self.taken - self._seen_taken < READER_BYTES_PER_LOOK
        self.looks = self.looks + 1 if is_slow else 0
        self._seen_taken = self.taken


class Answers:
    """All shares of a node.

    resume(again)  calls a continuation and carries out what it returns
    """

    def __init__(self, loop: PollLoop, resume: Callable[[Again], None], bytes_max: int) -> None:
        self._loop = loop
        self._resume = resume
        self.bytes_max = bytes_max
        self.making_bytes = self.unsent_bytes = 0
        self.refused = self.slow_readers = 0
        # Whose answer goes on where the bound is reached.
        self.one: Share | None = None
        self._unsent: dict[Share, None] = {}
        self._going_on: dict[Share, Again] = {}
        self._beginning: dict[Share, Again] = {}
        self._urgent: dict[Share, Again] = {}
        self._was_urgent = False  # the last one that was let in
        self._is_due = False
        self._looks = Looks(loop, self._look)
        self.freeing = Freeing(loop, self._go_on)

    @property
    def held_bytes(self) -> int:
        return self.making_bytes + self.unsent_bytes + self.freeing.held_bytes

    @property
    def waiting(self) -> int:
        """How many answers wait for room."""
        return len(self._going_on) + len(self._beginning) + len(self._urgent)

    @property
    def is_without_room(self) -> bool:
        """Whether not even the first slice of an answer is to be made."""
        return self.held_bytes >= self.bytes_max + self.bytes_max // 4

    @property
    def has_room_for_brokers(self) -> bool:
        """Whether what comes from replicas and brokers goes on."""
        return self.held_bytes < self.bytes_max * _ROOM_OF_BROKERS

    def share(self, reader: Reader) -> Share:
        return Share(self, reader)

    def may_go_on(self, share: Share) -> bool:
        if share.reader is None:
            return True  # it has closed, and ends with its next look
        if self.held_bytes < self.bytes_max:
            self.one = None
            return True
        if share.is_urgent and self.has_room_for_brokers:
            return True
        self._looks.soon()
        if self.one is None and self.unsent_bytes < self.bytes_max:
            self.one = share
        return self.one is share

    def making_grew(self, share: Share, size_bytes: int) -> None:
        self.making_bytes += size_bytes
        if share.making_bytes - share.asking_bytes > self.bytes_max and not share.is_urgent:
            self.refused += 1
            why = "its answer is larger than all answers may be: ask for less at a time, or raise"
            raise ProtocolError(f"{why} firnline.answers.max.bytes", limit=self.bytes_max)

    def making_shrank(self, share: Share, size_bytes: int) -> None:
        self.making_bytes -= size_bytes
        if self.one is share:
            self.one = None
        self._go_on()

    def give_way(self, share: Share) -> None:
        if self.one is share:
            self.one = None
            self._go_on()

    def unsent_changed(self, share: Share, size_bytes: int) -> None:
        self.unsent_bytes += size_bytes
        if not share.unsent_bytes:
            self._unsent.pop(share, None)
            share.looks = 0
        elif share not in self._unsent:
            self._unsent[share] = None
        if size_bytes < 0:
            self._go_on()
        elif self.held_bytes >= self.bytes_max:
            self._looks.soon()

    def wait(self, share: Share, again: Again, *, to_begin: bool) -> None:
        if share.reader is None:
            self._loop.call_soon(self._resume, again)
            return
        queue = self._urgent if share.is_urgent else self._beginning if to_begin else self._going_on
        queue[share] = _both(queue[share], again) if share in queue else again
        self._looks.soon()

    def forget(self, share: Share) -> None:
        """Let what waits for room end, for nobody wants it any more."""
        for queue in (self._urgent, self._beginning, self._going_on):
            again = queue.pop(share, None)
            if again is not None:
                self._loop.call_soon(self._resume, again)

    # ---- room

    def _next_queue(self) -> dict[Share, Again] | None:
        """Who is next, where there is room for him."""
        may_be_one = self.one is None and self.unsent_bytes < self.bytes_max
        clients = None
        if self._beginning and not self.is_without_room:
            clients = self._beginning
        elif self._going_on and (self.held_bytes < self.bytes_max or may_be_one):
            clients = self._going_on
        if self._urgent and (self.has_room_for_brokers or may_be_one):
            # In turns with clients: however many say that they are replicas, nobody waits for ever.
            return clients if clients and self._was_urgent else self._urgent
        return clients

    def _go_on(self) -> None:
        if not self._is_due and self.waiting and self._next_queue() is not None:
            self._is_due = True
            self._loop.call_soon(self._admit)

    def _admit(self) -> None:
        """Let one in: the next one in another turn, if it leaves room."""
        self._is_due = False
        queue = self._next_queue()
        if queue is None:
            return
        share = next(iter(queue))
        again = queue.pop(share)
        self._was_urgent = queue is self._urgent
        if queue is not self._beginning:
            self.may_go_on(share)  # it is the one, before another asks
        self._resume(again)
        self._go_on()

    def _look(self) -> None:
        """Close who does not read, as far as others wait for the bytes that are kept for him."""
        if self.held_bytes < self.bytes_max and not self.waiting:
            return
        self._looks.soon()
        looks = _LOOKS_OF_A_SLOW_READER
        if self.is_without_room:
            looks = _LOOKS_WITHOUT_ROOM
        elif self.unsent_bytes >= self.bytes_max:
            looks = _LOOKS_WHILE_NONE_GOES_ON
        slow = slow_ones(self._unsent, looks, attrgetter("unsent_bytes"))
        for share in slow[:_CLOSED_PER_LOOK]:
            if self.held_bytes < self.bytes_max // 2:
                break
            if share.reader is not None:
                self.slow_readers += 1
                share.reader.close_slow()
        self._go_on()

    def close(self) -> None:
        self._looks.close()
        self.freeing.close()


def _both(first: Again, second: Again) -> Again:
    return lambda now_ms: first(now_ms) + second(now_ms)
