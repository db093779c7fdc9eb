"""How partitions, offsets and times are written on the command line, and how a person agrees. WORLD.

events            all partitions of a topic
events:0,2-4      some of them
"""

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import click

from firnline.base.errors import KafkaError
from firnline.base.ids import TopicPartition

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHORT = re.compile(r"(\d+)(ms|s|min|m|h|d)")
_ISO = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,3})?)S)?)?", re.IGNORECASE
)
_RANGE_MAX = 100_000
_DIGITS_MAX = 19  # a number with fewer fits into 64 bits


def partitions_of(words: Sequence[str], option: str) -> dict[str, set[int] | None]:
    """Parse `topic` and `topic:0,2-4`; None stands for all partitions of a topic."""
    found: dict[str, set[int] | None] = {}
    for word in words:
        name, colon, numbers = word.partition(":")
        if not name:
            raise click.BadParameter(f"{word!r} names no topic", param_hint=option)
        if not colon:
            found[name] = None
            continue
        some = _numbers(word, numbers, option)
        known = found.get(name, set())
        found[name] = None if known is None else known | some
    return found


def _numbers(word: str, numbers: str, option: str) -> set[int]:
    some: set[int] = set()
    for piece in numbers.split(","):
        first, dash, last = piece.partition("-")
        ends = (first, last if dash else first)
        if not all(end.isascii() and end.isdigit() for end in ends):
            raise click.BadParameter(f"{word!r} is not like topic:0,2-4", param_hint=option)
        begin, end = map(int, ends)
        if not begin <= end < begin + _RANGE_MAX:
            raise click.BadParameter(f"{piece!r} is not a range of partitions", param_hint=option)
        some |= set(range(begin, end + 1))
    return some


def place_of(word: str, option: str) -> TopicPartition:
    """Parse `topic:0`."""
    name, _, number = word.rpartition(":")
    if not name or not (number.isascii() and number.isdigit()):
        raise click.BadParameter(f"{word!r} is not like topic:0", param_hint=option)
    return TopicPartition(name, int(number))


def time_ms_of(text: str, option: str) -> int:
    """Parse ms since 1970, or a time of ISO 8601; one without a zone is in UTC."""
    if text.isascii() and text.isdigit() and len(text) < _DIGITS_MAX:
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        why = f"{text!r} is not a time: give 2026-01-31T12:00:00Z, or ms since 1970"
        raise click.BadParameter(why, param_hint=option) from None
    at_ms = int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    if at_ms < 0:
        raise click.BadParameter(f"{text!r} is before 1970", param_hint=option)
    return at_ms


def duration_ms_of(text: str, option: str) -> int:
    """Parse 90s, 15m, 1h, 2d, or a duration of ISO 8601 such as PT1H or P1DT12H."""
    short, iso = _SHORT.fullmatch(text), _ISO.fullmatch(text)
    if short:
        return int(short[1]) * _UNITS_MS[short[2]]
    if iso and any(iso.groups()):
        days, hours, minutes, seconds = iso.groups(default="0")
        minutes_ms = (int(days) * 1_440 + int(hours) * 60 + int(minutes)) * 60_000
        return minutes_ms + round(float(seconds) * 1000)
    raise click.BadParameter(f"{text!r} is not a duration: give 1h or PT1H", param_hint=option)


def count_of(number: int, what: str) -> str:
    """Return a count for people: 1 partition, 3 partitions."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def agree(question: str, is_agreed: bool) -> None:
    """Ask on a terminal, unless it was agreed to by --yes. Without a terminal and --yes: a usage error."""
    if is_agreed:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Agree with --yes: there is no terminal to ask on.")
    click.confirm(question, abort=True, err=True)


def said_of(outcome: object) -> str | None:
    """Return what is wrong with one partition, for a row; None if nothing is."""
    return str(outcome) if isinstance(outcome, KafkaError) else None
