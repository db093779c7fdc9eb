"""How much a micro-batch of a stream takes at most, and for how much it waits. PURE.

Source: Spark's guide 'Structured Streaming + Kafka Integration'.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from firnline.base.errors import ConfigError
from firnline.base.units import GIB, INT64_MAX, KIB, MIB

MAX_OFFSETS, MIN_OFFSETS, MAX_DELAY = (
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"
)  # fmt: skip
MAX_BYTES = "maxBytesPerTrigger"
_UNITS_MS = {
    "us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000
}  # fmt: skip
_SIZES = {"": 1, "b": 1, "k": KIB, "m": MIB, "g": GIB}


class Triggers(NamedTuple):
    """The limits of a micro-batch; None: no limit.

    max_offsets   the most offsets
    max_bytes     about the most bytes of the tier's segments, as they lie there
    min_offsets   for how many offsets to wait, but not longer than `max_delay_ms`
    """

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 15 * 60_000


def parse_triggers(given: Mapping[str, str]) -> Triggers:
    """Read the limits of a stream. Raises ConfigError, which names the option."""
    options = {name.lower(): value.strip() for name, value in given.items()}
    triggers = Triggers(
        max_offsets=_count(options, MAX_OFFSETS),
        max_bytes=_bytes(options),
        min_offsets=_count(options, MIN_OFFSETS),
        max_delay_ms=_delay_ms(options.get(MAX_DELAY.lower(), "15m")),
    )
    least, most = triggers.min_offsets, triggers.max_offsets
    if least is not None and most is not None and least > most:
        raise ConfigError(f"{MIN_OFFSETS} is higher than {MAX_OFFSETS}", least=least, most=most)
    return triggers


def number(text: str, name: str) -> int:
    """Read a whole number; `name` is the option's."""
    if not re.fullmatch(r"[+-]?\d{1,19}", text):
        raise ConfigError(f"{name} must be a whole number", given=text)
    return int(text)


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    value = number(text, name)
    if not 0 < value <= INT64_MAX:
        raise ConfigError(f"{name} must be a whole number from 1 to {INT64_MAX}", given=text)
    return value


def _bytes(options: Mapping[str, str]) -> int | None:
    text = options.get(MAX_BYTES.lower())
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,15})\s*([bkmg]?)b?", text.lower())
    value = int(found[1]) * _SIZES[found[2]] if found else 0
    if not value:
        raise ConfigError(f"{MAX_BYTES} must be a positive number such as 64m", given=text)
    return value


def _delay_ms(text: str) -> int:
    """Read a duration as Spark does: a whole number and a unit; without one, milliseconds."""
    found = re.fullmatch(r"(\d{1,12})\s*([a-z]*)", text.lower())
    unit = None if found is None else _UNITS_MS.get(found[2] or "ms")
    if found is None or unit is None:
        raise ConfigError(f"{MAX_DELAY} must be a duration such as 15m or 500ms", given=text)
    return int(int(found[1]) * unit)
