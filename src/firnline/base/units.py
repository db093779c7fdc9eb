"""Sizes, durations and exact arithmetic on them. PURE."""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
PORT_MAX = 65535


def ceil_div(dividend: int, divisor: int) -> int:
    """Return the quotient rounded up; `divisor` > 0."""
    assert divisor > 0
    return -(-dividend // divisor)
