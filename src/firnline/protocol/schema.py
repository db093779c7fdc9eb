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
from typing import Any, Literal, Self, TypeVar, overload

from firnline.base.ids import ZERO_UUID
from firnline.base.limits import ARRAY_ELEMENTS_MAX
from firnline.base.ports import Buffer
from firnline.base.slices import FileSlice, Records
from firnline.protocol.compile import reader, writer
from firnline.protocol.declaration import (
    NEVER,
    NO_DEFAULT,
    OPEN,
    Declaration,
    Field,
    Struct,
    Versions,
    parse_versions,
)

# Those who declare messages, or look at declarations, need this module alone.
__all__ = ["NEVER", "OPEN", "Field", "Message", "Part", "Struct", "Versions", "f", "parse_versions"]

Part = Buffer | FileSlice
IntKind = Literal["int8", "int16", "uint16", "int32", "uint32", "int64"]

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


class Message(Declaration):
    """A request, a response, or a record's value."""

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
        return reader(cls, version)(data, position, len(data), [ARRAY_ELEMENTS_MAX])

    def parts(self, version: int) -> list[Part]:
        """Encode as a list of byte strings and file slices, in order."""
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
