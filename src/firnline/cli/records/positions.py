"""Where `firnline consume` begins and ends: kcat's `-o`, and lists of partitions. WORLD."""

from collections.abc import Sequence
from typing import NamedTuple

from firnline.cli.records.times import time_ms

OFFSETS = (
    "beginning, end, stored, an offset, -N (the last N), @TIME or s@TIME (from), e@TIME (until)"
)
_BEGINNING = ("beginning", "earliest", "start", "oldest")
_END = ("end", "latest", "newest")
_OFFSET_MAX = (1 << 63) - 1


class Start(NamedTuple):
    """Where to begin. kind: beginning, end, stored, offset, last (so many before the end), time (ms)."""

    kind: str
    value: int = 0


BEGINNING = Start("beginning")


class Span(NamedTuple):
    """Where to begin, None where nobody said; and the time in milliseconds to end before, None for no end."""

    start: Start | None
    until_ms: int | None


def span_of(texts: Sequence[str], now_ms: int) -> Span:
    """Parse every `-o` of a command. Raises ValueError, which says what there is."""
    starts: list[Start] = []
    ends: list[int] = []
    for text in texts:
        if text.startswith("e@"):
            ends.append(time_ms(text[2:], now_ms))
        else:
            starts.append(_start(text, now_ms))
    if len(starts) > 1 or len(ends) > 1:
        raise ValueError("one place to begin and one e@TIME to end are enough")
    return Span(starts[0] if starts else None, ends[0] if ends else None)


def _start(text: str, now_ms: int) -> Start:
    if text in _BEGINNING:
        return BEGINNING
    if text in _END:
        return Start("end")
    if text == "stored":
        return Start("stored")
    if text.startswith(("@", "s@")):
        return Start("time", time_ms(text.partition("@")[2], now_ms))
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and int(digits) <= _OFFSET_MAX:
        return Start("last" if text.startswith("-") else "offset", int(digits))
    raise ValueError(f"{text!r} is not a place to begin: {OFFSETS}")


def partitions_of(texts: Sequence[str]) -> list[int]:
    """Parse partitions such as 0, 0,2 or 4-7. Raises ValueError."""
    found: set[int] = set()
    for text in ",".join(texts).split(",") if texts else []:
        first, dash, last = text.strip().partition("-")
        if not (first.isascii() and first.isdigit()) or (dash and not last.isdigit()):
            raise ValueError(f"{text!r} is not a partition, as 0 or 0,2 or 4-7")
        span = range(int(first), int(last if dash else first) + 1)
        if not span or len(span) > 100_000 or span[-1] >= 1 << 31:
            raise ValueError(f"{text!r} is not a range of partitions")
        found.update(span)
    return sorted(found)
