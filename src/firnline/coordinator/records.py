"""The records of classic groups in `__consumer_offsets`: keys, values and their encoding. PURE.

A key begins with an int16, the type of the record; a value begins with an int16, its version. A null value
deletes. Type 0 is the commit from before 0.9: we read it and never write it. The newer group protocols use
the same topic; their types decode to None and are no error. Source: KIP-211, KIP-320, KIP-915;
`CoordinatorRecordType` of Kafka 4.3.1.
"""

import struct
from typing import TypeVar

from firnline.base.errors import ProtocolError
from firnline.base.ports import Buffer
from firnline.protocol.schema import Message, Struct, f

_PREFIX = struct.Struct(">h")
M = TypeVar("M", bound=Message)


class OffsetCommitKey(Message, key=1, valid="0", flexible="none"):
    group = f("string", "0", "Group id.")
    topic = f("string", "0", "Topic name.")
    partition = f("int32", "0", "Partition number.")


class OffsetCommitValue(Message, key=1, valid="0-4", flexible="4+"):
    offset = f("int64", "0+", "Committed offset.")
    leader_epoch = f("int32", "3+", "Leader epoch; -1 when unknown.", default=-1)
    metadata = f("string", "0+", "Text kept beside the offset.")
    commit_timestamp = f("int64", "0+", "When it was committed, ms.")
    expire_timestamp = f(
        "int64", "1", "When it expires, ms; -1 for the broker's setting.", default=-1
    )
    topic_id = f("uuid", "4+", "Topic id.", tag=0)


class GroupMetadataKey(Message, key=2, valid="0", flexible="none"):
    group = f("string", "0", "Group id.")


class GroupMember(Struct):
    member_id = f("string", "0+", "Member id.")
    group_instance_id = f(
        "string", "3+", "Static member's id; null for a dynamic one.", default=None, nullable="3+"
    )
    client_id = f("string", "0+", "Client id.")
    client_host = f("string", "0+", "Address of the client.")
    rebalance_timeout = f(
        "int32", "1+", "Time to rejoin in a rebalance, ms; -1 for the session's.", default=-1
    )
    session_timeout = f("int32", "0+", "Silence after which the member is out, ms.")
    subscription = f("bytes", "0+", "Subscription of the member.")
    assignment = f("bytes", "0+", "The member's share.")


class GroupMetadataValue(Message, key=2, valid="0-4", flexible="4+"):
    protocol_type = f("string", "0+", "Kind of group, such as consumer.")
    generation = f("int32", "0+", "Generation of the group.")
    protocol = f("string", "0+", "Assignor chosen; null when empty.", nullable="0+")
    leader = f("string", "0+", "Member id of the leader.", nullable="0+")
    current_state_timestamp = f(
        "int64", "2+", "When the state was entered, ms; -1 when unknown.", default=-1
    )
    members = f([GroupMember], "0+", "Members of the group.")


class LegacyOffsetCommitKey(Message, key=0, valid="0", flexible="none"):
    group = f("string", "0", "Group id.")
    topic = f("string", "0", "Topic name.")
    partition = f("int32", "0", "Partition number.")


class LegacyOffsetCommitValue(Message, key=0, valid="0", flexible="none"):
    offset = f("int64", "0", "Committed offset.")
    metadata = f("string", "0", "Text kept beside the offset.")
    commit_timestamp = f("int64", "0", "When it was committed, ms.")


GroupRecordKey = OffsetCommitKey | GroupMetadataKey | LegacyOffsetCommitKey
GroupRecordValue = OffsetCommitValue | GroupMetadataValue | LegacyOffsetCommitValue

# Type id, the prefix of the key -> (key, value).
TYPES: dict[int, tuple[type[GroupRecordKey], type[GroupRecordValue]]] = {
    0: (LegacyOffsetCommitKey, LegacyOffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
}
# What Kafka 4.3.1 writes (observed): offsets at version 4, or 1 with an expiry time of their own; groups at
# 3, because an older broker could not read version 4 (KIP-915).
OFFSET_COMMIT_VALUE_VERSION = 4
GROUP_METADATA_VALUE_VERSION = 3


def encode_key(key: GroupRecordKey) -> bytes:
    """Return the key of a record: its type, then the fields."""
    return _PREFIX.pack(key.key) + key.write(0)


def encode_value(value: GroupRecordValue, version: int) -> bytes:
    """Return the value of a record: its version, then the fields."""
    return _PREFIX.pack(version) + value.write(version)


def decode_key(data: Buffer) -> GroupRecordKey | None:
    """Decode a key; None for a type of another group protocol.

    Raises ProtocolError for bytes that are not a key.
    """
    types = TYPES.get(_prefix(data))
    if types is None:
        return None
    return _decode_strict(types[0], data, 0)


def decode_value(key: GroupRecordKey, data: Buffer) -> GroupRecordValue:
    """Decode the value that belongs to `key`; ProtocolError for an unknown version or malformed bytes."""
    return _decode_strict(TYPES[key.key][1], data, _prefix(data))


def _prefix(data: Buffer) -> int:
    if len(data) < _PREFIX.size:
        raise ProtocolError("a group record without its type or version", size=len(data))
    prefix: int = _PREFIX.unpack_from(data)[0]
    return prefix


def _decode_strict(kind: type[M], data: Buffer, version: int) -> M:
    if version not in kind.valid:
        raise ProtocolError(
            "unknown version of a group record", type=kind.__name__, version=version
        )
    message, end = kind.read(data, version, _PREFIX.size)
    if end != len(data):
        raise ProtocolError("bytes after a group record", type=kind.__name__, left=len(data) - end)
    return message
