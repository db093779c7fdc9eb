"""Counts the error codes in responses, as Kafka's ErrorsPerSec does. PURE.

Where a declaration has fields named `error_code` is found out once for each kind of response.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from firnline.protocol.declaration import Struct

# What one response may cost: some 50 us.
ELEMENTS_MAX = 1_000


class _Place(NamedTuple):
    """Where a struct has error codes: in itself, and in the structs or lists of structs in these fields."""

    is_here: bool
    below: tuple[tuple[str, bool, "_Place"], ...]


def _place(kind: type[Struct]) -> _Place | None:
    below = []
    for name, field in kind.fields.items():
        is_list = isinstance(field.kind, list)
        inner = field.kind[0] if is_list else field.kind
        found = _place(inner) if isinstance(inner, type) and issubclass(inner, Struct) else None
        if found is not None:
            below.append((name, is_list, found))
    is_here = "error_code" in kind.fields
    return _Place(is_here, tuple(below)) if is_here or below else None


_place_of: Callable[[Any], _Place | None] = cache(_place)


def count_errors(message: object, errors: dict[int, int]) -> bool:
    """Add the error codes in a response to `errors`; return whether there are any.

    A response that is encoded already has none, as far as this can tell. So has the part of a response after
    its first ELEMENTS_MAX elements.
    """
    if not isinstance(message, Struct):
        return False
    place = _place_of(type(message))
    codes: list[int] = []
    if place is not None:
        _collect(message, place, codes, ELEMENTS_MAX)
    for code in codes:
        errors[code] = errors.get(code, 0) + 1
    return bool(codes)


def _collect(struct: Any, place: _Place, codes: list[int], left: int) -> int:
    """Add the codes in `struct`; return how many more elements may be looked at."""
    if place.is_here and struct.error_code:
        codes.append(struct.error_code)
    for name, is_list, inner in place.below:
        found: Sequence[Any] | None = getattr(struct, name)
        if not found:
            continue
        each: Sequence[Any] = found[:left] if is_list else [found]
        left -= len(each)
        if inner.below:
            for element in each:
                left = _collect(element, inner, codes, left)
        else:
            codes += [element.error_code for element in each if element.error_code]
    return left
