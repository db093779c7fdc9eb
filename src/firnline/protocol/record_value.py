"""The frame around a message that is stored as a record's value. PURE.

Unsigned varints for frame version (1), type and message version, then the message. The metadata log and the
remote log metadata topic use it. Source: KIP-631; spec Q13, T19.
"""

from collections.abc import Mapping
from typing import Any

from firnline.base.errors import ProtocolError
from firnline.base.ports import Buffer
from firnline.protocol.primitives import read_uvarint, uvarint
from firnline.protocol.schema import Message

_FRAME_VERSION = 1


def encode_value(record: Message, version: int) -> bytes:
    """Encode `record` at `version`, with its frame."""
    if record.key < 128 and version < 128:
        return bytes((_FRAME_VERSION, record.key, version)) + record.write(version)
    return uvarint(_FRAME_VERSION) + uvarint(record.key) + uvarint(version) + record.write(version)


def decode_value(types: Mapping[int, type[Message]], value: Buffer) -> Message:
    """Decode the record in the frame of `value`.

    Raises ProtocolError for another frame version, a type that is not in `types`, an unknown version of the
    type, and missing or extra bytes.
    """
    kind, version, position = _read_frame(types, value)
    record, end = kind.read(value, version, position)
    if end != len(value):
        raise ProtocolError("bytes after a record", type=kind.__name__, left=len(value) - end)
    return record


def _read_frame(types: Mapping[int, type[Message]], value: Any) -> tuple[type[Message], int, int]:
    try:
        frame_version, position = read_uvarint(value, 0)
        key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except IndexError:
        raise ProtocolError("a record value ends in its frame", size=len(value)) from None
    if frame_version != _FRAME_VERSION:
        raise ProtocolError("unknown frame version of a record", version=frame_version)
    kind = types.get(key)
    if kind is None:
        raise ProtocolError("unknown record type", type=key)
    if version not in kind.valid:
        raise ProtocolError("unknown record version", type=kind.__name__, version=version)
    return kind, version, position
