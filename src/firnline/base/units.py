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


def wrap_int64(value: int) -> int:
    """Return a sum or difference of timestamps in 64 bits, as Kafka and its clients compute it.

    A producer may write any timestamps: where a difference wraps, the sum that wraps back is right again.
    """
    return (value + 2**63) % 2**64 - 2**63
