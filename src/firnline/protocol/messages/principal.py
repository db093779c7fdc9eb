"""The principal in an Envelope: two bytes of version, then this message. PURE. Source: KIP-590."""

import struct

from firnline.base.errors import ProtocolError
from firnline.base.ports import Buffer
from firnline.protocol.schema import Message, f

_VERSION = struct.Struct(">h")


class DefaultPrincipalData(Message, key=-1, valid="0", flexible="0+"):
    type = f("string", "0+", "Kind of principal, such as User.")
    name = f("string", "0+", "Name of the principal.")
    token_authenticated = f("bool", "0+", "The principal was authenticated by a delegation token.")


def encode_principal(principal: str) -> bytes:
    """Return `principal`, KIND:NAME, as an Envelope carries it."""
    kind, _, name = principal.partition(":")
    return _VERSION.pack(0) + DefaultPrincipalData(type=kind, name=name).write(0)


def decode_principal(data: Buffer) -> str:
    """Return the principal, KIND:NAME, that an Envelope carries. Raises ProtocolError."""
    try:
        (version,) = _VERSION.unpack_from(data)
    except struct.error:
        raise ProtocolError("not a principal: it ends early", size=len(data)) from None
    if version != 0:
        raise ProtocolError("unknown version of a principal", version=version)
    found, end = DefaultPrincipalData.read(data, 0, _VERSION.size)
    if end != len(data):
        raise ProtocolError("bytes after a principal", left=len(data) - end)
    return f"{found.type}:{found.name}"
