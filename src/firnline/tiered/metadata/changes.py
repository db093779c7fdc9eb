"""Converts between segments of the tier and the records of `__remote_log_metadata`. PURE.

Source: KIP-405; spec 3.10, T19.
"""

from firnline.base.ids import Uuid
from firnline.protocol.schema import Message
from firnline.tiered.metadata.records import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
)
from firnline.tiered.spi import (
    DeleteState,
    PartitionDelete,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)


def segment_record(segment: RemoteSegment) -> RemoteLogSegmentMetadataRecord:
    """Return the record of a segment."""
    return RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=_segment_id(
            segment.topic, segment.topic_id, segment.partition, segment.segment_id
        ),
        start_offset=segment.base_offset,
        end_offset=segment.end_offset,
        broker_id=segment.broker_id,
        max_timestamp_ms=segment.max_timestamp_ms,
        event_timestamp_ms=segment.event_timestamp_ms,
        segment_leader_epochs=[
            SegmentLeaderEpochEntry(leader_epoch=epoch, offset=offset)
            for epoch, offset in segment.epochs
        ],
        segment_size_in_bytes=segment.size_bytes,
        custom_metadata=segment.custom_metadata,
        remote_log_segment_state=int(segment.state),
        txn_index_empty=segment.txn_index_empty,
    )


def _segment_id(
    topic: str, topic_id: Uuid, partition: int, segment_id: Uuid
) -> RemoteLogSegmentIdEntry:
    where = TopicIdPartitionEntry(name=topic, id=topic_id, partition=partition)
    return RemoteLogSegmentIdEntry(topic_id_partition=where, id=segment_id)


def update_record(change: SegmentUpdate) -> RemoteLogSegmentMetadataUpdateRecord:
    """Return the record of a change of a segment's state."""
    return RemoteLogSegmentMetadataUpdateRecord(
        remote_log_segment_id=_segment_id(
            change.topic, change.topic_id, change.partition, change.segment_id
        ),
        broker_id=change.broker_id,
        event_timestamp_ms=change.event_timestamp_ms,
        custom_metadata=change.custom_metadata,
        remote_log_segment_state=int(change.state),
        only_if_unfinished=change.only_if_unfinished,
    )


def delete_record(change: PartitionDelete) -> RemotePartitionDeleteMetadataRecord:
    """Return the record of a change of a partition's deletion."""
    return RemotePartitionDeleteMetadataRecord(
        topic_id_partition=TopicIdPartitionEntry(
            name=change.topic, id=change.topic_id, partition=change.partition
        ),
        broker_id=change.broker_id,
        event_timestamp_ms=change.event_timestamp_ms,
        remote_partition_delete_state=int(change.state),
    )


def from_record(record: Message) -> RemoteSegment | SegmentUpdate | PartitionDelete | None:
    """Return the content of a record of the metadata topic; None for a kind that is ignored.

    ValueError for an unknown state, and for a segment that no broker can have copied.
    """
    if isinstance(record, RemoteLogSegmentMetadataRecord):
        where = record.remote_log_segment_id.topic_id_partition
        _refuse_impossible(record)
        return RemoteSegment(
            topic_id=bytes(where.id),
            topic=where.name,
            partition=where.partition,
            segment_id=bytes(record.remote_log_segment_id.id),
            base_offset=record.start_offset,
            end_offset=record.end_offset,
            size_bytes=record.segment_size_in_bytes,
            max_timestamp_ms=record.max_timestamp_ms,
            epochs=tuple((e.leader_epoch, e.offset) for e in record.segment_leader_epochs),
            broker_id=record.broker_id,
            event_timestamp_ms=record.event_timestamp_ms,
            state=SegmentState(record.remote_log_segment_state),
            custom_metadata=_bytes(record.custom_metadata),
            txn_index_empty=record.txn_index_empty,
        )
    if isinstance(record, RemoteLogSegmentMetadataUpdateRecord):
        where = record.remote_log_segment_id.topic_id_partition
        return SegmentUpdate(
            topic_id=bytes(where.id),
            topic=where.name,
            partition=where.partition,
            segment_id=bytes(record.remote_log_segment_id.id),
            state=SegmentState(record.remote_log_segment_state),
            broker_id=record.broker_id,
            event_timestamp_ms=record.event_timestamp_ms,
            custom_metadata=_bytes(record.custom_metadata),
            only_if_unfinished=record.only_if_unfinished,
        )
    if isinstance(record, RemotePartitionDeleteMetadataRecord):
        where = record.topic_id_partition
        return PartitionDelete(
            topic_id=bytes(where.id),
            topic=where.name,
            partition=where.partition,
            state=DeleteState(record.remote_partition_delete_state),
            broker_id=record.broker_id,
            event_timestamp_ms=record.event_timestamp_ms,
        )
    return None


def _bytes(value: object) -> bytes | None:
    return None if value is None else bytes(value)  # type: ignore[call-overload]


def _refuse_impossible(record: RemoteLogSegmentMetadataRecord) -> None:
    """Raise ValueError for offsets, epochs or a size that no segment has."""
    first, last = record.start_offset, record.end_offset
    if not 0 <= first <= last:
        raise ValueError(f"a remote segment of offsets {first} to {last}")
    if record.segment_size_in_bytes < 0:
        raise ValueError(f"a remote segment of {record.segment_size_in_bytes} bytes")
    epochs = sorted((each.leader_epoch, each.offset) for each in record.segment_leader_epochs)
    starts = [offset for _, offset in epochs]
    if not epochs or starts != sorted(starts) or starts[-1] > last:
        raise ValueError(f"a remote segment of offsets {first} to {last} with epochs {epochs[:8]}")
