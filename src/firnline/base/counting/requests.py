"""What is counted of the requests of one API. PURE. Source: KIP-91, `RequestMetrics` of Kafka."""

from typing import NamedTuple

from firnline.base.counting.times import Times


class CopiedTimes(NamedTuple):
    """The counts of `RequestTimes` at one moment, by bucket; empty if nothing was timed."""

    total: tuple[int, ...] = ()
    local: tuple[int, ...] = ()
    remote: tuple[int, ...] = ()

    def plus(self, other: "CopiedTimes") -> "CopiedTimes":
        """Return the sums."""
        return CopiedTimes(*(_sum(one, more) for one, more in zip(self, other, strict=True)))


def _sum(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    if not one or not other:
        return one or other
    return tuple(first + second for first, second in zip(one, other, strict=True))


class RequestTimes:
    """How long requests took, of those that were timed: at most one in each millisecond.

    total   from the first look at the request to its response
    local   the work of the node for it: the call of its handler, and encoding the response
    remote  the rest: waiting for followers, for more records, for a disk, for the tier, for the controller,
            and between the slices of a large request
    """

    __slots__ = ("local", "remote", "total")

    def __init__(self) -> None:
        self.total, self.local, self.remote = Times(), Times(), Times()

    def add(self, total_ms: float, local_ms: float) -> None:
        """Count a request that took `total_ms`, of which the node worked for `local_ms`."""
        self.total.add(total_ms)
        self.local.add(local_ms)
        self.remote.add(total_ms - local_ms)

    def copy(self) -> CopiedTimes:
        """Return the counts as they are now."""
        return CopiedTimes(self.total.copy(), self.local.copy(), self.remote.copy())


class RequestCounts:
    """The requests of one API at one version.

    slow           those on the way for all cases; `slow_answers` of them have their response without an error
    quick          those that a handler took at once; `waited` of them had to wait then, or failed
    of_followers   those Fetches that came from followers, and their times; the others are of consumers
    in_bytes, out_bytes  of frames, without their size
    timed_ms       when the last request was timed
    errors         by error code: how often responses had it (api/error_counts)
    """

    __slots__ = (
        *("errors", "follower_times", "in_bytes", "of_followers", "out_bytes", "quick", "slow"),
        *("slow_answers", "timed_ms", "times", "waited"),
    )

    def __init__(self) -> None:
        self.slow = self.quick = self.waited = self.slow_answers = self.of_followers = 0
        self.in_bytes = self.out_bytes = 0
        self.timed_ms = -1
        self.times, self.follower_times = RequestTimes(), RequestTimes()
        self.errors: dict[int, int] = {}

    @property
    def requests(self) -> int:
        """All requests since the start."""
        return self.slow + self.quick

    @property
    def answers_without_error(self) -> int:
        """The responses without an error."""
        return self.quick - self.waited + self.slow_answers
