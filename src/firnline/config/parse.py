"""Parse, check and print values by Kafka's rules. PURE.

Source: observed on Apache Kafka 4.3.1; ranges are in Kafka's notation.
"""

import re
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from functools import cache
from typing import Any

from firnline.base.errors import ConfigError
from firnline.config.define import ConfigKey, Value
from firnline.config.providers import HIDDEN
from firnline.config.topic import LEASES_MAX, parse_lease

Check = Callable[[Any], str | None]

_INT_BITS = {"SHORT": 16, "INT": 32, "LONG": 64}
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_REAL = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?\Z"
)
_RANGE = re.compile(
    r"\[(-?[0-9.]+),\.\.\.(?:,(-?[0-9.]+))?\](?: or (-?[0-9]+))?\Z"  # [0,...] [1,...,9] or -1
)
_THROTTLED = re.compile(r"[0-9]+:[0-9]+\Z")
_JAVA_MAX = "1.7976931348623157E308"
ALIKE = 0.6  # how much two names have in common to be taken for one another
_SHORT = 4
_ONE_LETTER_WORD = re.compile(r"(?:^|(?<=[._-])).(?:$|(?=[._-]))")


def parse(key: ConfigKey, text: str, *, is_hidden: bool = False) -> Value:
    """Parse and check the value of `key`. Raises ConfigError naming key and value.

    is_hidden  a provider returned the value: the error does not show it
    """
    displayed = HIDDEN if is_hidden or key.is_sensitive else text.strip()
    value = _parse_type(key, text.strip(), displayed)
    problem = fault(key, value)
    if problem:
        raise ConfigError(f"{key.name}={displayed}: {problem}")
    return value


def _parse_type(key: ConfigKey, text: str, displayed: str) -> Value:
    if key.type == "BOOLEAN":
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{key.name}={displayed}: expected true or false")
        return text.lower() == "true"
    if key.type == "LIST":
        return tuple(part.strip() for part in text.split(",")) if text else ()
    if key.type == "DOUBLE":
        if not _REAL.match(text):
            raise ConfigError(f"{key.name}={displayed}: expected a number")
        return float(text.rstrip("fFdD") if text.strip("+-") not in ("NaN", "Infinity") else text)
    if key.type in _INT_BITS:
        bound = 1 << (_INT_BITS[key.type] - 1)
        if not _INTEGER.match(text) or not -bound <= int(text) < bound:
            raise ConfigError(
                f"{key.name}={displayed}: expected a whole number of {_INT_BITS[key.type]} bits"
            )
        return int(text)
    return text


def text_of(key: ConfigKey, value: Value) -> str | None:
    """Print a value as Kafka does in DescribeConfigs; None for null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if key.type == "DOUBLE":
        number = float(value)
        return _JAVA_MAX if number == float(_JAVA_MAX) else repr(number)
    return str(value)


def fault(key: ConfigKey, value: Value) -> str | None:
    """Return what is wrong with a value by the key's own range, or None."""
    if not key.valid or value is None:
        return None
    return _checker(key.valid)(value)


@cache
def _checker(valid: str) -> Check:
    """Return the check for a range in Kafka's notation."""
    numbers = _RANGE.match(valid)
    if numbers:
        return _in_range(*numbers.groups())
    if valid == "non-empty string":
        return lambda value: None if value else "must not be empty"
    if valid.startswith("[partitionId]"):
        return _throttled_fault
    if valid.startswith("[name]:[ms]"):
        return _lease_fault
    if valid in ("non-null string", "non-empty list"):
        return lambda value: None  # they refuse only null, which no text can mean
    folds = valid.startswith("(case insensitive) ")
    allowed = tuple(valid.removeprefix("(case insensitive) ").strip("[]").split(", "))
    return _one_of(allowed, folds)


def _in_range(low_text: str, high_text: str | None, also_text: str | None) -> Check:
    low, high = float(low_text), float(high_text) if high_text else None

    def check(value: float) -> str | None:
        if also_text and value == float(also_text):
            return None
        if value < low:
            return f"must be at least {low_text}" + (f" or {also_text}" if also_text else "")
        if high is not None and value > high:
            return f"must be at most {high_text}" + (f" or {also_text}" if also_text else "")
        return None if value == value else "must be a number"

    return check


def _one_of(allowed: tuple[str, ...], folds: bool) -> Check:
    def check(value: str | tuple[str, ...]) -> str | None:
        for item in (value,) if isinstance(value, str) else value:
            if (item.upper() if folds else item) not in allowed:
                return f"must be one of {', '.join(allowed)}"
        return None

    return check


def _throttled_fault(value: tuple[str, ...]) -> str | None:
    if value == ("*",) or all(_THROTTLED.match(item) for item in value):
        return None
    return "must be * or a list of partition:broker"


def _lease_fault(value: tuple[str, ...]) -> str | None:
    if len(value) > LEASES_MAX:
        return f"must be at most {LEASES_MAX} leases: remove those that have ended"
    if all(parse_lease(item) for item in value):
        return None
    return "must be a list of name:milliseconds since 1970"


def nearest(name: str, known: Iterable[str], *, alike: float = ALIKE) -> str | None:
    """Return the known name that `name` was probably meant to be; None if none is like it.

    alike  how much the two have in common at least, from 0 to 1 (Ratcliff and Obershelp)

    Upper and lower case make no difference, nor does the order of what is known.
    """
    typed = name.casefold()
    best, best_ratio = None, alike
    matcher = SequenceMatcher(b=typed)
    for each in sorted(known):
        if is_slip(name, each):
            return each
        matcher.set_seq1(each.casefold())
        if matcher.real_quick_ratio() < best_ratio or matcher.quick_ratio() < best_ratio:
            continue
        ratio = matcher.ratio()
        if ratio > best_ratio or (best is None and ratio == best_ratio):
            best, best_ratio = each, ratio
    return best


def is_slip(name: str, other: str) -> bool:
    """Are two names one another but for the case, or one slip of the fingers?

    A slip is a letter too many, a letter that is missing, a wrong one, or two that changed places. Digits and
    words of one letter are meant as they are: events-1 is no slip for events-2. Short names are, too.
    """
    one, two = sorted((name.casefold(), other.casefold()), key=len)
    if one == two:
        return name != other
    if len(one) < _SHORT or len(two) - len(one) > 1:
        return False
    at = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), len(one))
    if len(two) > len(one):
        return two[at + 1 :] == one[at:] and not two[at].isdigit()
    if one[at].isdigit() or two[at].isdigit() or _ONE_LETTER_WORD.match(one, at):
        return False
    has_swapped = one[at : at + 2] == two[at : at + 2][::-1] and one[at + 2 :] == two[at + 2 :]
    return has_swapped or one[at + 1 :] == two[at + 1 :]
