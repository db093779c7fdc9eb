"""The records of `__remote_log_metadata`, and their encoding. PURE.

A record's key is null, its value is framed (`protocol/record_value.py`). Source: KIP-405, KIP-1058;
spec T19.
"""

from firnline.base.ports import Buffer
from firnline.protocol.record_value import decode_value, encode_value
from firnline.protocol.schema import Message, Struct, f

# The tag of the only field that Kafka does not have; its brokers keep it and ignore it.
OWN_TAG = 4050


class TopicIdPartitionEntry(Struct):
    name = f("string", "0+", "Topic name.")
    id = f("uuid", "0+", "Topic id.")
    partition = f("int32", "0+", "Partition number.")


class RemoteLogSegmentIdEntry(Struct):
    topic_id_partition = f(TopicIdPartitionEntry, "0+", "Which partition.")
    id = f("uuid", "0+", "Segment id.")


class SegmentLeaderEpochEntry(Struct):
    leader_epoch = f("int32", "0+", "Leader epoch; -1 when unknown.")
    offset = f("int64", "0+", "First offset of the epoch.")


class RemoteLogSegmentMetadataRecord(Message, key=0, valid="0", flexible="0+"):
    remote_log_segment_id = f(RemoteLogSegmentIdEntry, "0+", "Which segment.")
    start_offset = f("int64", "0+", "First offset, inclusive.")
    end_offset = f("int64", "0+", "Last offset, inclusive.")
    broker_id = f("int32", "0+", "Node id of the publisher.")
    max_timestamp_ms = f("int64", "0+", "Largest record timestamp.")
    event_timestamp_ms = f("int64", "0+", "When this was published.")
    segment_leader_epochs = f([SegmentLeaderEpochEntry], "0+", "Leader epochs in the segment.")
    segment_size_in_bytes = f("int32", "0+", "Size of the log file in bytes.")
    custom_metadata = f(
        "bytes", "0+", "What the storage wants to keep; null for none.", default=None, nullable="0+"
    )
    remote_log_segment_state = f("int8", "0+", "State of the segment.")
    txn_index_empty = f("bool", "0+", "Has it no aborted transactions. KIP-1058.", tag=0)


class RemoteLogSegmentMetadataUpdateRecord(Message, key=1, valid="0", flexible="0+"):
    remote_log_segment_id = f(RemoteLogSegmentIdEntry, "0+", "Which segment.")
    broker_id = f("int32", "0+", "Node id of the publisher.")
    event_timestamp_ms = f("int64", "0+", "When this was published.")
    custom_metadata = f(
        "bytes", "0+", "What the storage wants to keep; null for none.", default=None, nullable="0+"
    )
    remote_log_segment_state = f("int8", "0+", "State of the segment.")
    only_if_unfinished = f(
        "bool",
        "0+",
        "Is it refused for a finished segment. Of Firnline: Kafka ignores it.",
        tag=OWN_TAG,
    )


class RemotePartitionDeleteMetadataRecord(Message, key=2, valid="0", flexible="0+"):
    topic_id_partition = f(TopicIdPartitionEntry, "0+", "Which partition.")
    broker_id = f("int32", "0+", "Node id of the publisher.")
    event_timestamp_ms = f("int64", "0+", "When this was published.")
    remote_partition_delete_state = f("int8", "0+", "State of the deletion.")


class RemoteLogSegmentMetadataSnapshotRecord(Message, key=3, valid="0", flexible="0+"):
    segment_id = f("uuid", "0+", "Segment id.")
    start_offset = f("int64", "0+", "First offset, inclusive.")
    end_offset = f("int64", "0+", "Last offset, inclusive.")
    broker_id = f("int32", "0+", "Node id of the publisher.")
    max_timestamp_ms = f("int64", "0+", "Largest record timestamp.")
    event_timestamp_ms = f("int64", "0+", "When this was published.")
    segment_leader_epochs = f([SegmentLeaderEpochEntry], "0+", "Leader epochs in the segment.")
    segment_size_in_bytes = f("int32", "0+", "Size of the log file in bytes.")
    custom_metadata = f(
        "bytes", "0+", "What the storage wants to keep; null for none.", default=None, nullable="0+"
    )
    remote_log_segment_state = f("int8", "0+", "State of the segment.")
    txn_index_empty = f("bool", "0+", "Has it no aborted transactions. KIP-1058.", tag=0)


TYPES: dict[int, type[Message]] = {
    record.key: record
    for record in (
        RemoteLogSegmentMetadataRecord,
        RemoteLogSegmentMetadataUpdateRecord,
        RemotePartitionDeleteMetadataRecord,
        RemoteLogSegmentMetadataSnapshotRecord,
    )
}


def encode(record: Message) -> bytes:
    """Return the value of a remote log metadata record."""
    assert TYPES[record.key] is type(record)
    return encode_value(record, 0)


def decode(value: Buffer) -> Message:
    """Return the record in a value; ProtocolError for an unknown frame, type or version."""
    return decode_value(TYPES, value)
