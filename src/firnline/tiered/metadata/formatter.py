"""Text of the records of `__remote_log_metadata`, for people. PURE.

Two forms: that of Apache Kafka 4.3.1's own formatter, character for character, and that of KIP-405, whose
fields may be chosen. Source: KIP-405 'Formatter for remote log metadata topic'; spec T25.
"""

from collections.abc import Mapping
from typing import NamedTuple

from firnline.base.ids import uuid_text
from firnline.tiered.spi import (
    DeleteState,
    PartitionDelete,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)

Event = RemoteSegment | SegmentUpdate | PartitionDelete
Content = Mapping[str, object]  # names and values; None is not shown

_SEGMENT_STATES = {
    SegmentState.COPY_STARTED: "COPY_SEGMENT_STARTED",
    SegmentState.COPY_FINISHED: "COPY_SEGMENT_FINISHED",
    SegmentState.DELETE_STARTED: "DELETE_SEGMENT_STARTED",
    SegmentState.DELETE_FINISHED: "DELETE_SEGMENT_FINISHED",
}
_DELETE_STATES = {
    DeleteState.MARKED: "DELETE_PARTITION_MARKED",
    DeleteState.STARTED: "DELETE_PARTITION_STARTED",
    DeleteState.FINISHED: "DELETE_PARTITION_FINISHED",
}
# The version of each record type; there is only one.
_VERSION = 0


class KipFields(NamedTuple):
    """What KIP-405's form shows, besides the type and the event."""

    separator: str = ","
    partition: bool = False
    message_offset: bool = False
    version: bool = False
    all_event_value_fields: bool = False


# ------------------------------------------------------------------------------------- Kafka 4.3.1


def kafka_text(partition: int, offset: int, event: Event) -> str:
    """Return the line that the formatter of Kafka 4.3.1 prints for a record."""
    return f"partition: {partition}, offset: {offset}, value: {_kafka_value(event)}"


def _kafka_value(event: Event) -> str:
    where = f"{uuid_text(event.topic_id)}:{event.topic}-{event.partition}"
    if isinstance(event, PartitionDelete):
        return (
            f"RemotePartitionDeleteMetadata{{topicPartition={where}, state={_DELETE_STATES[event.state]},"
            f" eventTimestampMs={event.event_timestamp_ms}, brokerId={event.broker_id}}}"
        )
    segment_id = f"RemoteLogSegmentId{{topicIdPartition={where}, id={uuid_text(event.segment_id)}}}"
    state = _SEGMENT_STATES[event.state]
    if isinstance(event, SegmentUpdate):
        return (
            f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={segment_id},"
            f" customMetadata={_custom(event.custom_metadata)}, state={state},"
            f" eventTimestampMs={event.event_timestamp_ms}, brokerId={event.broker_id}}}"
        )
    epochs = ", ".join(f"{epoch}={start}" for epoch, start in sorted(event.epochs))
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={segment_id}, startOffset={event.base_offset},"
        f" endOffset={event.end_offset}, brokerId={event.broker_id}, maxTimestampMs={event.max_timestamp_ms},"
        f" eventTimestampMs={event.event_timestamp_ms}, segmentLeaderEpochs={{{epochs}}},"
        f" segmentSizeInBytes={event.size_bytes}, customMetadata={_custom(event.custom_metadata)},"
        f" state={state}, txnIdxEmpty={_lower(event.txn_index_empty)}}}"
    )


def _custom(value: bytes | None) -> str:
    return "Optional.empty" if value is None else f"Optional[CustomMetadata{{{len(value)} bytes}}]"


def _lower(value: bool) -> str:
    return str(value).lower()


# ----------------------------------------------------------------------------------------- KIP-405


def kip_text(partition: int, offset: int, event: Event, fields: KipFields) -> str:
    """Return the line that KIP-405 describes for a record.

    Its `leader-epoch` is the newest epoch in the segment; the records of changes have none any more.
    """
    kinds: dict[type[Event], str] = {
        RemoteSegment: "RemoteLogSegmentMetadata",
        SegmentUpdate: "RemoteLogSegmentMetadataUpdate",
        PartitionDelete: "DeletePartitionState",
    }
    parts = [
        ("partition", partition if fields.partition else None),
        ("message-offset", offset if fields.message_offset else None),
        ("type", kinds[type(event)]),
        ("version", _VERSION if fields.version else None),
        ("event-value", _kip_value(event, fields)),
    ]
    shown = (f"{name}:{value}" for name, value in parts if value is not None)
    return fields.separator.join(shown)


def _kip_value(event: Event, fields: KipFields) -> str:
    def braces(content: Content) -> str:
        pairs = (f"{name}:{value}" for name, value in content.items() if value is not None)
        return "{" + fields.separator.join(pairs) + "}"

    where: Content = {
        "topicId": uuid_text(event.topic_id),
        "topicName": event.topic,
        "partition": event.partition,
    }
    if isinstance(event, PartitionDelete):
        shown: Content = {
            "topic-id-partition": braces(where),
            "remote-partition-delete-state": _DELETE_STATES[event.state],
        }
    else:
        segment_id: Content = {"id": uuid_text(event.segment_id), **where}
        shown = {
            "remote-log-segment-id": braces(segment_id),
            **(_of_segment(event) if isinstance(event, RemoteSegment) else {}),
            "remote-log-segment-state": _SEGMENT_STATES[event.state],
        }
    return braces({**shown, **_all_of(event)} if fields.all_event_value_fields else shown)


def _of_segment(event: RemoteSegment) -> Content:
    return {
        "start-offset": event.base_offset,
        "end-offset": event.end_offset,
        "leader-epoch": max(event.epochs)[0],
    }


def _all_of(event: Event) -> Content:
    """Return the fields that KIP-405's default form leaves out."""
    more: Content = {"broker-id": event.broker_id, "event-timestamp-ms": event.event_timestamp_ms}
    if isinstance(event, PartitionDelete):
        return more
    custom = None if event.custom_metadata is None else event.custom_metadata.hex()
    if isinstance(event, SegmentUpdate):
        return {**more, "custom-metadata": custom}
    return {
        **more,
        "max-timestamp-ms": event.max_timestamp_ms,
        "segment-leader-epochs": " ".join(f"{epoch}={start}" for epoch, start in event.epochs),
        "segment-size-in-bytes": event.size_bytes,
        "custom-metadata": custom,
        "txn-index-empty": _lower(event.txn_index_empty),
    }
