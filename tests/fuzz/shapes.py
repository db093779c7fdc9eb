"""Requests of any API at any version from its declaration, with what no writer of ours would write.

The bytes are made here and not by the project's writers: those refuse what is to be sent.
"""

import struct
from typing import Any, NamedTuple

from firnline.protocol.compile import FIXED
from firnline.protocol.messages import messages_of
from firnline.protocol.primitives import uvarint
from firnline.protocol.schema import NEVER, Field, Message, Struct
from firnline.protocol.session import API_VERSIONS_KEY

CORRELATION_ID = 77
FRAME_BYTES_MAX = 1 << 20


class Plan(NamedTuple):
    """How the fields of one request are filled.

    text      what strings say; None: null where that may be
    count     elements of the outer arrays, or of the inner ones where `is_deep`; -1: so says the count
    number    of whole numbers
    named     what single fields say in place of that; 16 bytes for a uuid, True for a flag. Times are short
              where nothing else is said
    """

    name: str
    text: str | None = ""
    count: int = 1
    number: int | bytes = 0
    is_deep: bool = False
    named: tuple[tuple[str, Any], ...] = ()


# What a request may ask to wait for, and what a member must say to be let in.
_TIMES = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 100}
_SHORT_MS = 1


def frame(key: int, version: int, plan: Plan, client_id: str | None) -> bytes:
    """Return a whole frame, of no more than FRAME_BYTES_MAX."""
    request = messages_of(key)[0]
    is_flexible = version in request.flexible
    head = struct.pack(">hhi", key, version, CORRELATION_ID)
    head += _text(client_id, is_flexible=False)
    if is_flexible:
        head += b"\0"
    room = FRAME_BYTES_MAX - len(head)
    body = _struct(request, version, is_flexible, plan, room, depth=0)
    while len(body) > room:  # what stands beside the arrays was not reckoned with
        plan = plan._replace(count=plan.count // 2)
        body = _struct(request, version, is_flexible, plan, room, depth=0)
    return struct.pack(">i", len(head) + len(body)) + head + body


def answer_head(key: int, version: int) -> int:
    """Return how many bytes of an answer come before its body: the correlation id, and empty tags."""
    request = messages_of(key)[0]
    return 5 if version in request.flexible and key != API_VERSIONS_KEY else 4


def _struct(
    cls: type[Struct] | type[Message],
    version: int,
    flexible: bool,
    plan: Plan,
    room: int,
    depth: int,
) -> bytes:
    named = dict(plan.named)
    out = []
    for name, field in cls.fields.items():
        if version not in field.versions or field.tag is not None:
            continue
        one = plan
        if name in named:
            value = named[name]
            is_text = value is None or isinstance(value, str)
            one = plan._replace(text=value) if is_text else plan._replace(number=value)
        elif name == "acks":
            one = plan._replace(number=-1)  # with 0 there is no answer
        elif name.endswith("_ms"):
            one = plan._replace(number=_TIMES.get(name, _SHORT_MS))
        compact = flexible if field.flexible is None else version in field.flexible
        out.append(_value(field, field.kind, version, compact, one, room, depth))
    return b"".join(out) + (b"\0" if flexible else b"")


def _value(
    field: Field, kind: Any, version: int, flexible: bool, plan: Plan, room: int, depth: int
) -> bytes:
    is_nullable = version in field.nullable
    if isinstance(kind, list):
        return _array(field, kind[0], version, flexible, plan, room, depth)
    if isinstance(kind, type):
        if is_nullable and plan.text is None:
            return b"\xff"
        inner = _struct(kind, version, flexible, plan, room, depth)
        return (b"\1" if is_nullable else b"") + inner
    if kind in FIXED:
        return _fixed(kind, plan.number)
    if kind == "string":
        return _text(None if is_nullable and plan.text is None else plan.text or "", flexible)
    data = None if is_nullable and plan.text is None else (plan.text or "").encode()
    if data is None:
        return b"\0" if flexible else b"\xff" * 4
    return (uvarint(len(data) + 1) if flexible else struct.pack(">i", len(data))) + data


def _array(
    field: Field, element: Any, version: int, flexible: bool, plan: Plan, room: int, depth: int
) -> bytes:
    has_more_inside = isinstance(element, type) and any(
        isinstance(x.kind, list) and version in x.versions
        for x in element.fields.values()  # type: ignore[attr-defined]
    )
    is_here = not has_more_inside if plan.is_deep else depth == 0
    count = plan.count if is_here else min(plan.count, 1)
    is_null = plan.count < 0 or (plan.text is None and version in field.nullable)
    if is_null:
        return b"\0" if flexible else b"\xff" * 4
    bare = field._replace(nullable=NEVER) if version in field.nullable else field
    one = _value(bare, element, version, flexible, plan, room, depth + 1)
    count = min(count, max(1, room // max(len(one), 1))) if count > 1 else count
    return (uvarint(count + 1) if flexible else struct.pack(">i", count)) + one * count


def _text(text: str | None, is_flexible: bool) -> bytes:
    if text is None:
        return b"\0" if is_flexible else b"\xff\xff"
    data = text.encode()
    if is_flexible:
        return uvarint(len(data) + 1) + data
    return struct.pack(">h", len(data)) + data


def _fixed(kind: str, number: int | bytes) -> bytes:
    letter, size = FIXED[kind]
    if kind == "uuid":
        return number if isinstance(number, bytes) else bytes(size)
    if kind == "bool":
        return b"\1" if number is True else b"\0"
    if isinstance(number, bytes):
        number = 0
    if kind.startswith("u"):
        number = max(number, 0)
    bits = size * 8 - 1
    if kind != "float64":
        number = max(-(1 << bits), min(number, (1 << bits) - 1))
    return struct.pack(">" + letter, number)
