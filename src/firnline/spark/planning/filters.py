"""What filters of a query say about offsets, times, partitions and topics. PURE.

Spark hands the filters of a query to the reader, which then plans fewer segments. Spark applies them again to
the rows, so a plan may hold rows that no filter takes, but it must not lack one that all of them take.
Source: Spark's Data Source V2, `SupportsPushDownFilters`.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from firnline.base.units import INT64_MAX

# [start, end) each, ascending, with something between any two.
Spans = tuple[tuple[int, int], ...]

_LOWEST, _BEYOND = -INT64_MAX - 1, INT64_MAX + 1
EVERYTHING: Spans = ((_LOWEST, _BEYOND),)
NOTHING: Spans = ()
_MICROS = 1000
# Of the filters of many queries: 200 kB of text, which each plan reads.
SPANS_MAX = 10_000


def spans_of(operator: str, values: Iterable[int]) -> Spans:
    """Return the numbers that a comparison takes; `operator` is one of =, <, <=, >, >= and in."""
    found = []
    for value in values:
        start, end = {
            "=": (value, value + 1),
            "in": (value, value + 1),
            "<": (_LOWEST, value),
            "<=": (_LOWEST, value + 1),
            ">": (value + 1, _BEYOND),
            ">=": (value, _BEYOND),
        }[operator]
        found.append((max(start, _LOWEST), min(end, _BEYOND)))
    return _joined(found)


def _joined(spans: Iterable[tuple[int, int]]) -> Spans:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


def _either(some: Spans, others: Spans) -> Spans:
    """Return the numbers that are in one of both, and those between them if there would be too many spans."""
    joined = _joined((*some, *others))
    return joined if len(joined) <= SPANS_MAX else ((joined[0][0], joined[-1][1]),)


def overlap(some: Spans, others: Spans) -> Spans:
    """Return the numbers that are in both."""
    if others == EVERYTHING:
        return some
    return tuple(span for start, end in some for span in within(others, start, end))


def within(spans: Spans, start: int, end: int) -> Spans:
    """Return the numbers of `spans` in [start, end)."""
    if len(spans) == 1:  # mostly, and then for each segment of a plan
        low, high = max(spans[0][0], start), min(spans[0][1], end)
        return ((low, high),) if low < high else ()
    first = max(bisect_right(spans, (start, _BEYOND)) - 1, 0)
    last = bisect_right(spans, (end, _LOWEST))
    inside = ((max(low, start), min(high, end)) for low, high in spans[first:last])
    return tuple(span for span in inside if span[0] < span[1])


def without(some: Spans, others: Iterable[tuple[int, int]]) -> Spans:
    """Return the numbers of `some` that are not in `others`, which may be in any order."""
    joined = _joined(others)
    if len(joined) == 1 and some and joined[0][0] <= some[0][0] and some[-1][1] <= joined[0][1]:
        return ()  # mostly: nothing is missing
    found, at = [], _LOWEST
    for start, end in joined:
        if at < start:
            found.append((at, start))
        at = end
    return overlap(some, (*found, (at, _BEYOND)) if at < _BEYOND else tuple(found))


def touches(spans: Spans, low: int | None, high: int | None) -> bool:
    """Whether a number of `spans` may lie in [low, high], both inclusive; None: unknown."""
    if spans == EVERYTHING:
        return True
    low = _LOWEST if low is None else low
    high = INT64_MAX if high is None else high
    return bool(within(spans, low, high + 1))


class Filters(NamedTuple):
    """The rows that a query can use at most: those that all its filters take.

    times_ms  timestamps in ms since 1970
    topics    comparisons of the topic's name: operator, and the values it is compared with
    """

    offsets: Spans = EVERYTHING
    times_ms: Spans = EVERYTHING
    partitions: Spans = EVERYTHING
    topics: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def is_contradiction(self) -> bool:
        """Whether no row can pass, whatever the topics are."""
        return not (self.offsets and self.times_ms and self.partitions)

    def takes_topic(self, topic: str) -> bool:
        """Whether rows of this topic can pass."""
        return not self.is_contradiction and all(
            any(_compares(topic, operator, value) for value in values)
            for operator, values in self.topics
        )

    def takes_partition(self, partition: int) -> bool:
        """Whether rows of this partition can pass."""
        return touches(self.partitions, partition, partition)

    def and_offset(self, operator: str, values: Iterable[int]) -> "Filters":
        """Return the filters with one more comparison of the column `offset`."""
        return self._replace(offsets=overlap(self.offsets, spans_of(operator, values)))

    def and_partition(self, operator: str, values: Iterable[int]) -> "Filters":
        """Return the filters with one more comparison of the column `partition`."""
        return self._replace(partitions=overlap(self.partitions, spans_of(operator, values)))

    def and_time(self, operator: str, values_micros: Iterable[int]) -> "Filters":
        """Return the filters with one more comparison of the column `timestamp`.

        Timestamps of records are whole milliseconds; Spark compares microseconds.
        """
        spans = (
            (_ceil_ms(start), _ceil_ms(end)) for start, end in spans_of(operator, values_micros)
        )
        return self._replace(times_ms=overlap(self.times_ms, _joined(spans)))

    def or_else(self, other: "Filters") -> "Filters":
        """Return filters that take each row of either: of topics nothing is said unless both say the same."""
        return Filters(
            _either(self.offsets, other.offsets),
            _either(self.times_ms, other.times_ms),
            _either(self.partitions, other.partitions),
            self.topics if self.topics == other.topics else (),
        )

    def and_topic(self, operator: str, values: Iterable[str]) -> "Filters":
        """Return the filters with one more comparison of the column `topic`, `starts` included."""
        return self._replace(topics=(*self.topics, (operator, tuple(values))))


def _ceil_ms(micros: int) -> int:
    return micros if micros in (_LOWEST, _BEYOND) else -(-micros // _MICROS)


def _compares(topic: str, operator: str, value: str) -> bool:
    """Compare as Spark does: the bytes of UTF-8."""
    ours, theirs = topic.encode(), value.encode(errors="surrogatepass")
    if operator == "starts":
        return ours.startswith(theirs)
    order = (ours > theirs) - (ours < theirs)
    return order in {
        "=": (0,), "in": (0,), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1),
    }[operator]  # fmt: skip
