"""The language of message declarations: one class per message, one line per field, all versions. PURE.

A declaration costs nothing until it is used: `protocol/compile.py` compiles readers and writers for (message,
version) on first use. A field that a version lacks keeps its default when read and is left out when written.
Defaults are class attributes, so an absent field costs nothing either.

    class WantedPartition(Struct):
        partition = f("int32", "0+", "Always 0 for the metadata log.")

    class FetchSnapshotRequest(Message, key=59, valid="0-1", flexible="0+"):
        cluster_id = f("string", "0+", "Refuse if it is not ours.", tag=0, nullable="0+", default=None)
        topics = f([WantedTopic], "0+", "What to send.")

Source: KIP-482 (flexible versions), KIP-631 (records in the same language).
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar, overload

from firnline.base.ids import ZERO_UUID
from firnline.base.limits import ARRAY_ELEMENTS_MAX
from firnline.base.ports import Buffer
from firnline.base.slices import FileSlice, Records

Part = Buffer | FileSlice
IntKind = Literal["int8", "int16", "uint16", "int32", "uint32", "int64"]
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

S = TypeVar("S", bound="Struct")


@overload
def f(
    kind: IntKind,
    versions: str,
    doc: str,
    *,
    default: int = 0,
    tag: int | None = None,
    name: str | None = None,
) -> int: ...
@overload
def f(
    kind: Literal["bool"],
    versions: str,
    doc: str,
    *,
    default: bool = False,
    tag: int | None = None,
    name: str | None = None,
) -> bool: ...
@overload
def f(
    kind: Literal["float64"],
    versions: str,
    doc: str,
    *,
    default: float = 0.0,
    tag: int | None = None,
    name: str | None = None,
) -> float: ...
@overload
def f(
    kind: Literal["uuid"],
    versions: str,
    doc: str,
    *,
    default: bytes = ZERO_UUID,
    tag: int | None = None,
    name: str | None = None,
) -> bytes: ...
@overload
def f(
    kind: Literal["string"],
    versions: str,
    doc: str,
    *,
    default: str = "",
    tag: int | None = None,
    name: str | None = None,
) -> str: ...
@overload
def f(
    kind: Literal["string"],
    versions: str,
    doc: str,
    *,
    nullable: str,
    default: str | None = "",
    tag: int | None = None,
    name: str | None = None,
    flexible: str | None = None,
) -> str | None: ...
@overload
def f(
    kind: Literal["bytes"],
    versions: str,
    doc: str,
    *,
    default: bytes = b"",
    tag: int | None = None,
    name: str | None = None,
) -> Buffer: ...
@overload
def f(
    kind: Literal["bytes"],
    versions: str,
    doc: str,
    *,
    nullable: str,
    default: bytes | None = b"",
    tag: int | None = None,
    name: str | None = None,
) -> Buffer | None: ...
@overload
def f(
    kind: Literal["records"],
    versions: str,
    doc: str,
    *,
    nullable: str = "0+",
    default: None = None,
    tag: int | None = None,
    name: str | None = None,
) -> Records | None: ...
@overload
def f(
    kind: list[IntKind], versions: str, doc: str, *, tag: int | None = None, name: str | None = None
) -> Sequence[int]: ...
@overload
def f(
    kind: list[IntKind],
    versions: str,
    doc: str,
    *,
    nullable: str,
    default: None | tuple[()] = (),
    tag: int | None = None,
    name: str | None = None,
) -> Sequence[int] | None: ...
@overload
def f(
    kind: list[Literal["string"]],
    versions: str,
    doc: str,
    *,
    tag: int | None = None,
    name: str | None = None,
) -> Sequence[str]: ...
@overload
def f(
    kind: list[Literal["string"]],
    versions: str,
    doc: str,
    *,
    nullable: str,
    default: None | tuple[()] = (),
    tag: int | None = None,
    name: str | None = None,
) -> Sequence[str] | None: ...
@overload
def f(
    kind: list[Literal["uuid"]],
    versions: str,
    doc: str,
    *,
    tag: int | None = None,
    name: str | None = None,
) -> Sequence[bytes]: ...
@overload
def f(
    kind: list[Literal["uuid"]],
    versions: str,
    doc: str,
    *,
    nullable: str,
    default: None | tuple[()] = (),
    tag: int | None = None,
    name: str | None = None,
) -> Sequence[bytes] | None: ...
@overload
def f(
    kind: type[S], versions: str, doc: str, *, tag: int | None = None, name: str | None = None
) -> S: ...
@overload
def f(
    kind: type[S],
    versions: str,
    doc: str,
    *,
    nullable: str,
    default: None = None,
    tag: int | None = None,
    name: str | None = None,
) -> S | None: ...
@overload
def f(
    kind: list[type[S]], versions: str, doc: str, *, tag: int | None = None, name: str | None = None
) -> Sequence[S]: ...
@overload
def f(
    kind: list[type[S]],
    versions: str,
    doc: str,
    *,
    nullable: str,
    default: None | tuple[()] = (),
    tag: int | None = None,
    name: str | None = None,
) -> Sequence[S] | None: ...
def f(
    kind: Any,
    versions: str,
    doc: str,
    *,
    default: Any = NO_DEFAULT,
    nullable: str = "none",
    tag: int | None = None,
    name: str | None = None,
    flexible: str | None = None,
) -> Any:
    """Declare a field.

    kind      "int32", ..., a Struct class, or a list of one of these for an array
    versions  of the message that have the field
    doc       one sentence of our own
    default   the value in versions without the field; zero, empty or null unless given
    nullable  versions in which null may be sent
    tag       number in the tagged section, for a tagged field
    name      Kafka's name if it is not our name in camel case
    flexible  versions with the compact encoding, if they differ from the message's
    """
    own = None if flexible is None else parse_versions(flexible)
    null = parse_versions(nullable)
    return Field(kind, parse_versions(versions), doc, default, null, tag, name, own)


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


class Message(Struct):
    """A struct with a key and versions: a request, a response, or a record's value."""

    key: ClassVar[int]
    valid: ClassVar[Versions]
    flexible: ClassVar[Versions]

    def __init_subclass__(cls, *, key: int, valid: str, flexible: str, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.key = key
        cls.valid = parse_versions(valid)
        cls.flexible = parse_versions(flexible)

    @classmethod
    def read(cls, data: Buffer, version: int, position: int = 0) -> tuple[Self, int]:
        """Decode from `position`; return the message and the position after it.

        Fields of kind bytes and records are views of `data`. Raises ProtocolError for malformed bytes; never
        allocates more than the received bytes justify.
        """
        from firnline.protocol.compile import reader  # the compiler imports this module

        return reader(cls, version)(data, position, len(data), [ARRAY_ELEMENTS_MAX])

    def parts(self, version: int) -> list[Part]:
        """Encode as a list of byte strings and file slices, in order."""
        from firnline.protocol.compile import writer

        out: list[Part] = []
        writer(type(self), version)(self, out.append)
        return out

    def write(self, version: int) -> bytes:
        """Encode as one byte string; reads the file slices."""
        parts = self.parts(version)
        try:
            return b"".join(parts)  # type: ignore[arg-type]
        except TypeError:
            return b"".join(p.read() if isinstance(p, FileSlice) else p for p in parts)
