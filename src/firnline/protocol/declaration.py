"""What a declaration of a message consists of: fields, with the versions that have them. PURE.

Declarations are written with `protocol/schema.py`; `protocol/compile.py` makes readers and writers of them.
"""

from typing import Any, ClassVar, NamedTuple

from firnline.base.ids import ZERO_UUID

NO_DEFAULT: Any = object()


class Versions(NamedTuple):
    """An inclusive range of versions; `last` is large for an open range."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


OPEN = 32767
NEVER = Versions(OPEN, -1)


def parse_versions(text: str) -> Versions:
    """Parse Kafka's spelling: "0+", "1-3", "2" or "none"."""
    if text == "none":
        return NEVER
    if text.endswith("+"):
        return Versions(int(text[:-1]), OPEN)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


class Field(NamedTuple):
    """One declared field. `kind` is a primitive's name, a Struct, or a one-element list of either."""

    kind: Any
    versions: Versions
    doc: str
    default: Any
    nullable: Versions
    tag: int | None
    kafka_name: str | None
    flexible: Versions | None


_ZEROS: dict[str, Any] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": ZERO_UUID,
    "float64": 0.0,
}


def _default(field: Field) -> Any:
    if field.default is not NO_DEFAULT:
        return field.default
    if isinstance(field.kind, list):
        return ()
    if isinstance(field.kind, str):
        return _ZEROS.get(field.kind, 0)
    return None if field.nullable is not NEVER else _frozen(field.kind)


def _frozen(kind: "type[Struct]") -> "Struct":
    """Return the default of a struct field. All messages share it, so it must not be changed."""

    def refuse(self: Struct, name: str, value: object) -> None:
        raise AttributeError(f"a shared default {kind.__name__}: set the whole field instead")

    body = {"__setattr__": refuse, "__module__": kind.__module__}
    frozen: type[Struct] = type(kind.__name__, (kind,), body)
    frozen.fields = kind.fields
    return frozen()


class Struct:
    """A group of fields. Instances are plain: create them with keywords, read and set attributes."""

    fields: ClassVar[dict[str, Field]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
        cls.fields = {**cls.fields, **own}
        for name, field in own.items():
            setattr(cls, name, _default(field))

    def __init__(self, **values: Any) -> None:
        known = self.fields
        for name in values:
            if name not in known:
                raise TypeError(f"{type(self).__name__} has no {name}")
        if values:
            self.__dict__ = values

    def __eq__(self, other: object) -> bool:
        # `fields` is one dictionary per declaration; a shared default has that of its struct.
        return getattr(other, "fields", None) is self.fields and all(
            _plain(getattr(self, name)) == _plain(getattr(other, name)) for name in self.fields
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.__dict__.items())
        return f"{type(self).__name__}({shown})"


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class Declaration(Struct):
    """A struct with a key and versions."""

    key: ClassVar[int]
    valid: ClassVar[Versions]
    flexible: ClassVar[Versions]
