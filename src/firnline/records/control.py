"""Control records: transaction markers, and what the metadata quorum writes about itself. PURE.

A key is an int16 version (0) and an int16 type. A value written by the quorum begins with its own version,
an ordinary first field, which also says how to read the rest. A transaction marker has its version in front
of the message instead; the bytes are the same. Readers skip unknown types (Q8).
Source: KIP-98, KIP-595, KIP-630, KIP-853; spec Q7, Q8.
"""

import struct
from enum import IntEnum

from firnline.base.errors import ProtocolError
from firnline.base.ports import Buffer
from firnline.protocol.schema import Message, Struct, f

_KEY = struct.Struct(">hh")
_VERSION = struct.Struct(">h")
_KEY_VERSION = 0


class ControlType(IntEnum):
    """The type of a control record. Types that a newer peer adds stay plain ints."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTxnMarker(Message, key=0, valid="0", flexible="none"):
    coordinator_epoch = f("int32", "0+", "Epoch of the transaction coordinator.")


class LeaderChangeVoter(Struct):
    voter_id = f("int32", "0+", "Node id of the voter.")
    voter_directory_id = f("uuid", "1+", "Metadata log directory of the voter. KIP-853.")


class LeaderChangeMessage(Message, key=2, valid="0-1", flexible="0+"):
    version = f("int16", "0+", "Version of this record.")
    leader_id = f("int32", "0+", "Node id of the leader; -1 when unknown.")
    voters = f([LeaderChangeVoter], "0+", "Voters of the epoch.")
    granting_voters = f([LeaderChangeVoter], "0+", "Who voted for the leader.")


class SnapshotHeaderRecord(Message, key=3, valid="0", flexible="0+"):
    version = f("int16", "0+", "Version of this record.")
    last_contained_log_timestamp = f("int64", "0+", "Append time of the last record contained, ms.")


class SnapshotFooterRecord(Message, key=4, valid="0", flexible="0+"):
    version = f("int16", "0+", "Version of this record.")


class KRaftVersionRecord(Message, key=5, valid="0", flexible="0+"):
    version = f("int16", "0+", "Version of this record.")
    kraft_version = f("int16", "0+", "kraft.version in force.", name="KRaftVersion")


class VoterEndpoint(Struct):
    name = f("string", "0+", "Listener name.")
    host = f("string", "0+", "Host name or address.")
    port = f("uint16", "0+", "TCP port.")


class KRaftVersionFeature(Struct):
    min_supported_version = f("int16", "0+", "Lowest level.")
    max_supported_version = f("int16", "0+", "Highest level.")


class Voter(Struct):
    voter_id = f("int32", "0+", "Node id of the voter.")
    voter_directory_id = f("uuid", "0+", "Metadata log directory of the voter. KIP-853.")
    endpoints = f([VoterEndpoint], "0+", "Addresses by listener.")
    kraft_version_feature = f(
        KRaftVersionFeature,
        "0+",
        "kraft.version levels the voter can run.",
        name="KRaftVersionFeature",
    )


class VotersRecord(Message, key=6, valid="0", flexible="0+"):
    version = f("int16", "0+", "Version of this record.")
    voters = f([Voter], "0+", "Voters of the epoch.")


ControlRecord = (
    EndTxnMarker
    | LeaderChangeMessage
    | SnapshotHeaderRecord
    | SnapshotFooterRecord
    | KRaftVersionRecord
    | VotersRecord
)

TYPES: dict[int, type[ControlRecord]] = {
    ControlType.ABORT: EndTxnMarker,
    ControlType.COMMIT: EndTxnMarker,
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}


def encode_key(control_type: ControlType) -> bytes:
    """Return the key of a control record."""
    return _KEY.pack(_KEY_VERSION, control_type)


def decode_key(data: Buffer | None) -> int:
    """Return the control type in a key. It may be one that `ControlType` lacks.

    A key of a later version begins like version 0, so the rest is ignored. Raises ProtocolError for bytes
    that are not a key.
    """
    if data is None or len(data) < _KEY.size:
        raise ProtocolError("not a control record key")
    version, control_type = _KEY.unpack_from(data)
    if version < 0:
        raise ProtocolError("negative version of a control record key", version=version)
    return int(control_type)


def encode_value(record: ControlRecord, version: int = 0) -> bytes:
    """Encode a control record at `version`; its `version` field must say the same.

    Kafka 4.3.1 writes and reads version 0 only, although its schemas allow more.
    """
    if isinstance(record, EndTxnMarker):
        return _VERSION.pack(version) + record.write(version)
    assert record.version == version, "a control record states the version it is written at"
    return record.write(version)


def decode_value(control_type: int, data: Buffer | None) -> ControlRecord:
    """Decode the value of a control record whose type is in `TYPES`.

    A value of a later version is read as the latest version we know, as Kafka does; the rest is ignored.
    Raises ProtocolError for bytes that are not such a value.
    """
    kind = TYPES[control_type]
    if data is None or len(data) < _VERSION.size:
        raise ProtocolError("not a control record value", type=control_type)
    (stated,) = _VERSION.unpack_from(data)
    if stated < 0:
        raise ProtocolError("negative version of a control record", version=stated)
    version = min(stated, kind.valid.last)
    record, end = kind.read(data, version, _VERSION.size if kind is EndTxnMarker else 0)
    if end != len(data) and version == stated:
        raise ProtocolError("bytes after a control record", left=len(data) - end)
    return record
