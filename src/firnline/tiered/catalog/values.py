"""Values in the JSON of a catalog, checked. PURE.

Each function raises ValueError or TypeError for what no catalog has; `format.py` says where that was.
"""

import json
from collections.abc import Collection
from functools import lru_cache
from itertools import chain
from typing import Any

from firnline.base.units import INT64_MAX

Json = Any  # Any: a value of JSON, whose type is what is checked here

_JSON = json.JSONDecoder()


def line_value(text: str, at: int) -> tuple[Json, int]:
    """Return the value of the line at `at`, and its end; ValueError if it is not one value in JSON."""
    value, end = _JSON.raw_decode(text, at)
    after = text.index("\n", at) + 1
    if after != end + 1 and (after <= end or not text[end:after].isspace()):
        raise ValueError("a line is not one value")
    return value, after


def flat_numbers(entries: Collection[Json], width: int) -> list[int]:
    """Return the numbers of all entries, one entry after the other; ValueError if one is not as wide."""
    if entries and set(map(len, entries)) != {width}:
        raise ValueError(f"an entry has not {width} numbers")
    return list(chain.from_iterable(entries))


def check_numbers(numbers: list[int]) -> None:
    """Raise ValueError unless each is an integer that every reader can represent."""
    if set(map(type, numbers)) != {int}:
        raise ValueError("a number that is no integer")
    if min(numbers) < -INT64_MAX or max(numbers) > INT64_MAX:
        raise ValueError("a number beyond 64 bits")


@lru_cache(maxsize=256)
def suffixes_in(names: tuple[Json, ...]) -> tuple[str, ...]:
    """Return suffixes that are text; equal ones are one object."""
    if not all(isinstance(name, str) for name in names):
        raise ValueError("a suffix that is no text")
    return tuple(map(text_in, names))


def digest_in(value: Json) -> int:
    """Return a digest of 64 bits."""
    if not isinstance(value, str) or len(value) != 16:
        raise ValueError("a digest is 16 hexadecimal digits")
    return int.from_bytes(bytes.fromhex(value), "big")


def int_in(value: Json) -> int:
    """Return a number of at most 64 bits, which every reader can represent."""
    number = int(value)
    if not -INT64_MAX <= number <= INT64_MAX:
        raise ValueError("a number beyond 64 bits")
    return number


def optional_int_in(value: Json) -> int | None:
    """As `int_in`; None for a null."""
    return None if value is None else int_in(value)


def text_in(value: Json) -> str:
    """Return text without lone surrogates, which JSON allows and names do not."""
    text = str(value)
    text.encode()
    return text
