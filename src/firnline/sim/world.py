"""The simulated world: one heap of events, one clock, one random stream per subsystem. SIM.

Time is virtual microseconds. The digest covers every event in order, so two runs of one seed that differ
anywhere have different digests. Source: reliability (c).
"""

import heapq
from collections.abc import Callable, Sequence
from hashlib import blake2b
from random import Random
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

MS = 1_000
SECOND = 1_000_000
NOWHERE = -1
# 2026-01-01 00:00 UTC, in seconds: when every simulation begins.
EPOCH_S = 1_767_225_600
PPM = 1_000_000


class Chance:
    """The random stream of one subsystem, from the seed and the subsystem's name. One draw more here changes
    no other stream. It is also the `Rng` port of a simulated node.
    """

    __slots__ = ("_bits",)

    def __init__(self, seed: int, *names: object) -> None:
        text = "/".join(map(str, (seed, *names)))
        number = int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "big")
        self._bits = Random(number).getrandbits

    def below(self, bound: int) -> int:
        return self._bits(64) % bound

    def uuid(self) -> bytes:
        """16 random bytes in the form of a version 4 UUID whose text does not begin with a dash."""
        while True:
            number = self._bits(128) & ~(0xF << 76) | 4 << 76
            value = (number & ~(3 << 62) | 2 << 62).to_bytes(16, "big")
            if value[0] >> 2 != 62:
                return value

    def between(self, low: int, high: int) -> int:
        """A number in [low, high], both inclusive."""
        return low + self.below(high - low + 1)

    def happens(self, percent: int) -> bool:
        return self.below(100) < percent

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def spread(self, low: int, high: int) -> int:
        """A number in [low, high]; each order of magnitude is equally likely."""
        assert 0 < low <= high
        doublings = (high // low).bit_length() - 1
        start = low << self.below(doublings + 1)
        return min(high, self.between(start, 2 * start - 1))


class Event:
    """A scheduled action; `cancel` prevents it."""

    __slots__ = ("action", "arguments")

    def __init__(self, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.action: Callable[..., None] | None = action
        self.arguments = arguments

    def cancel(self) -> None:
        self.action = None
        self.arguments = ()


class Line(NamedTuple):
    """One event of the trace: when, on which node (NOWHERE: none), what, and the state of each node before
    it.
    """

    at_us: int
    node_id: int
    text: str
    columns: tuple[str, ...]


class World:
    """The event heap. `note` feeds the digest, and with `keep_story` the trace."""

    def __init__(self, seed: int, *, keep_story: bool = False) -> None:
        self.seed = seed
        self.now_us = 0
        self.events = 0
        self.story: list[Line] = []
        self.keep_story = keep_story
        self.columns: Callable[[], tuple[str, ...]] = tuple
        self.stopped = False
        self._heap: list[tuple[int, int, Event]] = []
        self._count = 0
        self._digest = blake2b(digest_size=16)

    def chance(self, *names: object) -> Chance:
        """The random stream of one subsystem."""
        return Chance(self.seed, *names)

    def at(self, at_us: int, action: Callable[..., None], *arguments: Any) -> Event:
        """Let `action(*arguments)` happen at that time, after what is to happen then already."""
        assert at_us >= self.now_us, "the past is over"
        event = Event(action, arguments)
        self._count += 1
        heapq.heappush(self._heap, (at_us, self._count, event))
        return event

    def after(self, delay_us: int, action: Callable[..., None], *arguments: Any) -> Event:
        """Let `action(*arguments)` happen after `delay_us`."""
        return self.at(self.now_us + delay_us, action, *arguments)

    def note(self, node_id: int, text: str) -> None:
        """Put a line into the digest and, where one is kept, into the story."""
        self._digest.update(f"{self.now_us} {node_id} {text}\n".encode())
        if self.keep_story:
            self.story.append(Line(self.now_us, node_id, text, self.columns()))

    def run_until(self, end_us: int) -> None:
        """Let everything up to `end_us`, inclusive, happen, unless somebody sets `stopped`."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= end_us and not self.stopped:
            at_us, _, event = pop(heap)
            action = event.action
            if action is None:
                continue
            self.now_us = at_us
            self.events += 1
            action(*event.arguments)
        if not self.stopped:
            self.now_us = max(self.now_us, end_us)

    def digest(self) -> str:
        """What happened so far, as 32 hexadecimal digits."""
        return self._digest.hexdigest()


class MachineClock:
    """The clocks of one machine, in seconds: monotonic time that drifts, wall time that jumps as well.

    Nodes see neither: they see `runtime.clock.SteadyClock`, the production class, on top of both.
    `rate_ppm`: microseconds gained per second; negative: lost.
    """

    def __init__(self, world: World, *, rate_ppm: int = 0, offset_s: float = 0.0) -> None:
        self._world = world
        self._since_us = 0
        self._monotonic_us = 0.0
        self.rate_ppm = rate_ppm
        self.offset_s = offset_s

    def monotonic(self) -> float:
        """Seconds since some moment; never back."""
        return self._now_us() / 1e6

    def wall(self) -> float:
        """Seconds since 1970, with whatever the operator or a bad time server made of it."""
        return EPOCH_S + self.offset_s + self._now_us() / 1e6

    def wall_ms(self) -> int:
        return int(self.wall() * 1000)

    def drift(self, rate_ppm: int) -> None:
        """Run faster or slower from now on."""
        self._monotonic_us = self._now_us()
        self._since_us = self._world.now_us
        self.rate_ppm = rate_ppm

    def virtual_us(self, delay_ms: float) -> int:
        """How long this machine's `delay_ms` take in the world's microseconds."""
        return int(delay_ms * 1000 / (1 + self.rate_ppm / PPM)) + 1

    def _now_us(self) -> float:
        passed = self._world.now_us - self._since_us
        return self._monotonic_us + passed * (1 + self.rate_ppm / PPM)
