"""Hypothesis strategies for every declared message, at every version, from the declaration itself."""

from typing import Any

from hypothesis import strategies as st

from firnline.protocol.schema import Message, Struct

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}
# Lengths on both sides of one and two bytes of varint, plus one, as compact lengths count.
_EDGES = (0, 1, 126, 127, 128, 16382, 16383)
_CHARACTERS = st.characters(codec="utf-8")


def _integers(kind: str) -> st.SearchStrategy[int]:
    bits = _BITS[kind]
    low, high = (
        (0, 2**bits - 1) if kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )
    return st.one_of(
        st.integers(max(low, -2), 3), st.sampled_from([low, high]), st.integers(low, high)
    )


def _scalars(kind: str, tame: bool) -> st.SearchStrategy[Any]:
    if kind in _BITS:
        return st.integers(0, 100) if tame else _integers(kind)
    if kind == "bool":
        return st.booleans()
    if kind == "float64":
        return st.floats(allow_nan=False, allow_infinity=False)
    if kind == "uuid":
        return st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16))
    if kind == "string":
        edges = st.sampled_from(_EDGES).map(lambda size: "k" * size)
        return st.one_of(st.text(_CHARACTERS, max_size=8), st.text(_CHARACTERS, max_size=8), edges)
    assert kind in ("bytes", "records"), kind
    long = st.sampled_from(_EDGES).map(lambda size: b"Z" * size)
    return st.one_of(st.binary(max_size=8), st.binary(max_size=8), long)


def _values(kind: Any, version: int, tame: bool) -> st.SearchStrategy[Any]:
    if isinstance(kind, list):
        return st.lists(_values(kind[0], version, tame), max_size=3)
    if isinstance(kind, type):
        return structs(kind, version, tame=tame)
    return _scalars(kind, tame)


def structs(cls: type[Struct], version: int, *, tame: bool = False) -> st.SearchStrategy[Any]:
    """Instances of `cls` with any value in each field that `version` carries, null where it may be.

    `tame` keeps numbers in 0..100, for readers that make times and error codes of them.
    """
    rows: dict[str, st.SearchStrategy[Any]] = {}
    for name, field in cls.fields.items():
        if version not in field.versions:
            continue
        made = _values(field.kind, version, tame)
        if version in field.nullable:
            made = st.one_of(st.none(), made)
        if field.tag is not None and not isinstance(field.kind, type):
            made = st.one_of(st.just(getattr(cls, name)), made)
        rows[name] = made
    return st.builds(cls, **rows)


def messages(cls: type[Message], version: int, *, tame: bool = False) -> st.SearchStrategy[Any]:
    """Messages of `cls` as they can be at `version`."""
    assert version in cls.valid
    return structs(cls, version, tame=tame)


def versions(cls: type[Message]) -> range:
    """Return all versions of a message, low to high."""
    return range(cls.valid.first, cls.valid.last + 1)
