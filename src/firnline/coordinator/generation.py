"""A group's generation as the bytes of its record, and back, member by member. PURE.

A group may have a thousand members, and one record holds all of them. So version 3, which 4.3.1 writes, is
encoded and decoded here by byte position. All other versions use the schema in `coordinator/records.py`.
"""

import struct
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import NamedTuple

from firnline.base.errors import ProtocolError
from firnline.base.units import MIB
from firnline.coordinator.membership import Member, Protocol
from firnline.coordinator.records import (
    GROUP_METADATA_VALUE_VERSION,
    GroupMetadataKey,
    GroupMetadataValue,
    decode_value,
)

_KEY = GroupMetadataKey(group="")
_VERSION_3 = GROUP_METADATA_VALUE_VERSION.to_bytes(2, "big")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_INT64_INT32 = struct.Struct(">qi")
_TIMEOUTS = struct.Struct(">ii")
_TIMEOUTS_INT32 = struct.Struct(">iii")
_NULL_STRING = b"\xff\xff"
# A member has at least five lengths and two times.
_MEMBER_BYTES_MIN = 24
# Half a millisecond: to decode them, or to give them their assignments and encode them.
_MEMBERS_PER_SLICE = 200
_WRITTEN_PER_SLICE = 250
_BYTES_PER_SLICE = MIB


class Generation(NamedTuple):
    """The content of a group's record. Its `members` support only the chosen protocol."""

    generation: int
    protocol_type: str
    protocol_name: str | None
    leader: str | None
    state_since_ms: int
    members: list[Member]


def generation_value(
    *,
    generation: int,
    protocol_type: str,
    protocol_name: str | None,
    leader: str | None,
    state_since_ms: int,
    members: Sequence[tuple[Member, bytes]],
) -> bytes:
    """Return the value of a group's record, version 3, for members with their assignments."""
    parts = [value_front(generation, protocol_type, protocol_name, leader, state_since_ms)]
    parts.append(_INT32.pack(len(members)))
    _write_members(parts, protocol_name, members, {None: _NULL_STRING})
    return b"".join(parts)


def value_front(
    generation: int,
    protocol_type: str,
    protocol_name: str | None,
    leader: str | None,
    state_since_ms: int,
) -> bytes:
    """Return the part of the value before the number of members."""
    parts = (
        _VERSION_3,
        _string(protocol_type),
        _INT32.pack(generation),
        _string(protocol_name),
        _string(leader),
        _INT64.pack(state_since_ms),
    )
    return b"".join(parts)


def generation_value_in_slices(
    front: bytes, protocol_name: str | None, count: int, members: Iterable[Member]
) -> Generator[None, None, deque[bytes]]:
    """Like `generation_value`, in parts, for members that have their assignments.

    Yields after some hundred members, or a megabyte. Takes each member from `members` when it encodes it.
    """
    written = deque([front + _INT32.pack(count)])
    known: dict[str | None, bytes] = {None: _NULL_STRING}
    for some in _portions(protocol_name, members):
        parts: list[bytes] = []
        _write_members(parts, protocol_name, [(each, each.assignment) for each in some], known)
        written.append(b"".join(parts))
        yield
    return written


def _portions(protocol_name: str | None, members: Iterable[Member]) -> Iterator[list[Member]]:
    some: list[Member] = []
    size = 0
    for member in members:
        some.append(member)
        size += len(member.metadata_for(protocol_name)) + len(member.assignment)
        if len(some) >= _WRITTEN_PER_SLICE or size >= _BYTES_PER_SLICE:
            yield some
            some, size = [], 0
    if some:
        yield some


def _write_members(
    parts: list[bytes],
    protocol_name: str | None,
    members: Sequence[tuple[Member, bytes]],
    known: dict[str | None, bytes],
) -> None:
    """Add the bytes of members. `known` caches names, because members of one client share most of them."""
    int16, int32, sizes = _INT16.pack, _INT32.pack, _TIMEOUTS_INT32.pack
    for member, assignment in members:
        subscription = member.metadata_for(protocol_name)
        member_id = member.member_id.encode()
        client_id, host, instance_id = member.client_id, member.client_host, member.instance_id
        parts += (
            int16(len(member_id)),
            member_id,
            _NULL_STRING if instance_id is None else _string(instance_id),
            known.get(client_id) or known.setdefault(client_id, _string(client_id)),
            known.get(host) or known.setdefault(host, _string(host)),
            sizes(member.rebalance_timeout_ms, member.session_timeout_ms, len(subscription)),
            subscription,
            int32(len(assignment)),
            assignment,
        )


def read_generation(value: bytes) -> Generator[None, None, Generation]:
    """Decode the value of a group's record; yields after some members at a time.

    ProtocolError for other bytes.
    """
    if value[:2] != _VERSION_3:
        row = decode_value(_KEY, value)
        assert isinstance(row, GroupMetadataValue)
        return Generation(
            row.generation,
            row.protocol_type,
            row.protocol,
            row.leader,
            row.current_state_timestamp,
            list(_members(row)),
        )
    try:
        found, end = yield from _read_3(value)
    except (struct.error, UnicodeDecodeError) as problem:
        raise ProtocolError("not a group record", size=len(value), problem=problem) from None
    if end != len(value):
        raise ProtocolError("bytes after a group record", left=len(value) - end)
    return found


def check_names(members: Sequence[Member]) -> None:
    """Raise ProtocolError if two members have the same id or the same instance id."""
    instances = [each.instance_id for each in members if each.instance_id is not None]
    is_one_each = len({each.member_id for each in members}) == len(members)
    if not is_one_each or len(set(instances)) < len(instances):
        raise ProtocolError("two members with the same id in a group record", members=len(members))


def _read_3(value: bytes) -> Generator[None, None, tuple[Generation, int]]:
    protocol_type, at = _read_string(value, 2)
    (generation,) = _INT32.unpack_from(value, at)
    protocol_name, at = _read_string(value, at + 4)
    leader, at = _read_string(value, at)
    state_since_ms, count = _INT64_INT32.unpack_from(value, at)
    at += 12
    if count < 0 or count > (len(value) - at) // _MEMBER_BYTES_MIN:
        raise ProtocolError("more members than a group record has room for", count=count)
    members: list[Member] = []
    for place in range(1, count + 1):
        member, at = _read_member(value, at, protocol_name or "")
        members.append(member)
        if place % _MEMBERS_PER_SLICE == 0:
            yield
    found = Generation(
        generation, _not_null(protocol_type), protocol_name, leader, state_since_ms, members
    )
    return found, at


def _read_member(value: bytes, at: int, protocol_name: str) -> tuple[Member, int]:
    member_id, at = _read_string(value, at)
    instance_id, at = _read_string(value, at)
    client_id, at = _read_string(value, at)
    client_host, at = _read_string(value, at)
    rebalance_timeout_ms, session_timeout_ms = _TIMEOUTS.unpack_from(value, at)
    subscription, at = _read_bytes(value, at + 8)
    assignment, at = _read_bytes(value, at)
    member = Member(
        _not_null(member_id),
        instance_id=instance_id,
        client_id=_not_null(client_id),
        client_host=_not_null(client_host),
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(rebalance_timeout_ms, session_timeout_ms),
        protocols=(Protocol(protocol_name, subscription),),
        assignment=assignment,
    )
    return member, at


def _members(row: GroupMetadataValue) -> Iterable[Member]:
    for m in row.members:
        yield Member(
            m.member_id,
            instance_id=m.group_instance_id,
            client_id=m.client_id,
            client_host=m.client_host,
            session_timeout_ms=m.session_timeout,
            rebalance_timeout_ms=_rebalance_timeout_ms(m.rebalance_timeout, m.session_timeout),
            protocols=(Protocol(row.protocol or "", bytes(m.subscription)),),
            assignment=bytes(m.assignment),
        )


def _rebalance_timeout_ms(said_ms: int, session_timeout_ms: int) -> int:
    return session_timeout_ms if said_ms < 0 else said_ms


def _string(text: str | None) -> bytes:
    if text is None:
        return _NULL_STRING
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _read_string(value: bytes, at: int) -> tuple[str | None, int]:
    (size,) = _INT16.unpack_from(value, at)
    at += 2
    if size < 0:
        return None, at
    return value[at : _end(value, at, size)].decode(), at + size


def _read_bytes(value: bytes, at: int) -> tuple[bytes, int]:
    (size,) = _INT32.unpack_from(value, at)
    at += 4
    return value[at : _end(value, at, size)], at + size


def _end(value: bytes, at: int, size: int) -> int:
    end = at + size
    if size < 0 or end > len(value):
        raise ProtocolError("a group record ends early", length=size, left=len(value) - at)
    return end


def _not_null(text: str | None) -> str:
    if text is None:
        raise ProtocolError("a null string in a group record")
    return text
