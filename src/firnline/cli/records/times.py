"""Points in time as people write them: milliseconds, ISO 8601, or a duration before now. WORLD."""

import re
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|min|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_MS_MAX = (1 << 63) - 1
TIMES = "milliseconds since 1970, ISO 8601 such as 2026-01-31T12:00:00Z, or -1h (ms, s, m, h, d)"


def time_ms(text: str, now_ms: int) -> int:
    """Return a point in time in milliseconds since 1970. Without a zone it is local time, as in `date -d`.

    Raises ValueError, which says what a time looks like.
    """
    if text == "now":
        return now_ms
    if text.isascii() and text.isdigit() and int(text) <= _MS_MAX:
        return int(text)
    if found := _DURATION.fullmatch(text):
        return max(0, now_ms - round(float(found.group(1)) * _UNIT_MS[found.group(2)]))
    try:
        stated = datetime.fromisoformat(text)
        return max(0, (stated.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1))
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is not a time: {TIMES}") from None


def iso_text(timestamp_ms: int) -> str:
    """Return a timestamp as ISO 8601 in UTC; `-` where there is none, and a number beyond the year 9999."""
    if timestamp_ms == -1:
        return "-"
    try:
        text = (_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return str(timestamp_ms)
    return text.removesuffix("+00:00") + "Z"
