"""The interfaces for plug-ins of the tier: RemoteStorage, RemoteLogMetadata. PURE.

Methods of RemoteStorage block, and are called only from worker threads (`Submit`). Those of RemoteLogMetadata
are called on the thread of the event loop, and call back with their results. Source: KIP-405 'Public
Interfaces'; spec 3.9, 3.10, T53, T56.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol, runtime_checkable

from firnline.base.effects import Effects
from firnline.base.errors import FirnlineError, KafkaError, StorageError
from firnline.base.ids import TopicIdPartition, Uuid
from firnline.base.ports import Buffer, File
from firnline.formats.leader_epoch_checkpoint import Epochs


class DamagedObject(StorageError):
    """An object of the tier does not have the bytes that were put: fail closed (rel-T20)."""


class DamagedSegment(StorageError):
    """A local segment is damaged: it is not copied, and another replica should lead."""


class CustomMetadataTooLarge(StorageError):
    """A plug-in returned more custom metadata than the limit: its copy task stops (spec T10, 3.4-7)."""


# ---------------------------------------------------------------------------------- remote segments


class SegmentState(IntEnum):
    """State of a remote segment; ids as on the wire (spec 3.10)."""

    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2
    DELETE_FINISHED = 3


class DeleteState(IntEnum):
    """State of the deletion of a whole partition; ids as on the wire (spec 3.10)."""

    MARKED = 0
    STARTED = 1
    FINISHED = 2


class RemoteSegment(NamedTuple):
    """Metadata of one remote segment. Offsets are inclusive; times are ms since 1970, or -1."""

    topic_id: Uuid
    topic: str
    partition: int
    segment_id: Uuid
    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    epochs: Epochs
    broker_id: int
    event_timestamp_ms: int
    state: SegmentState = SegmentState.COPY_STARTED
    custom_metadata: bytes | None = None
    txn_index_empty: bool = False
    # The copy was not finished, and is deleted: a put of it may still be in progress, of another broker, or
    # of a process of the same broker that was killed.
    is_abandoned: bool = False

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, self.partition)

    @property
    def largest_time_ms(self) -> int:
        """The timestamp for retention: the greatest one of its records; if unknown, the time of its copy."""
        return self.max_timestamp_ms if self.max_timestamp_ms >= 0 else self.event_timestamp_ms


class SegmentUpdate(NamedTuple):
    """A change of a segment's state; never COPY_STARTED."""

    topic_id: Uuid
    topic: str
    partition: int
    segment_id: Uuid
    state: SegmentState
    broker_id: int
    event_timestamp_ms: int
    custom_metadata: bytes | None = None
    # Of DELETE_STARTED: it was decided about a copy that seemed abandoned, and is refused if the copy was
    # finished meanwhile.
    only_if_unfinished: bool = False


class PartitionDelete(NamedTuple):
    """A change of a partition's deletion."""

    topic_id: Uuid
    topic: str
    partition: int
    state: DeleteState
    broker_id: int
    event_timestamp_ms: int


class IndexKind(IntEnum):
    """The kinds of indexes of a remote segment."""

    OFFSET = 0
    TIMESTAMP = 1
    PRODUCER_SNAPSHOT = 2
    TRANSACTION = 3
    LEADER_EPOCH = 4


class Source(NamedTuple):
    """Bytes to copy: their number, and an iterator of chunks, which is read once, in a worker thread.

    open_file  opens a local file that has these bytes, for a storage that lets the kernel copy them. Only the
               chunks are checked while they are read: so whoever uses it compares what is stored with the
               fingerprint. None: there is no such file
    """

    size_bytes: int
    chunks: Callable[[], Iterable[Buffer]]
    open_file: Callable[[], File] | None = None


def bytes_source(data: Buffer) -> Source:
    """Return a source of bytes in memory."""
    return Source(len(data), lambda: (data,))


class SegmentData(NamedTuple):
    """The six objects of one remote segment; `txn_index` is None if there is none."""

    log: Source
    offset_index: Source
    time_index: Source
    producer_snapshot: Source
    leader_epochs: Source
    txn_index: Source | None
    # The fingerprint of all, for a storage that can keep it as custom metadata (objects/fingerprint.py).
    fingerprint: bytes | None = None


class RemoteStorage(Protocol):
    """KIP-405's RemoteStorageManager in Python. Called from worker threads; may block.

    Errors: ObjectMissing if the object does not exist; RemoteStorageError for everything else.
    """

    def configure(self, settings: Mapping[str, str]) -> None:
        """Take the settings with the configured prefix, and those of the node. Source: spec T53.

        `broker.id` and `cluster.id` are those of the node. `tier.in.use` is "true" if the node has records of
        segments in the tier, so that an empty store is not its tier. A FirnlineError, which should have a
        remedy, prevents the start of the node.
        """
        ...

    def copy_segment(self, segment: RemoteSegment, data: SegmentData) -> bytes | None:
        """Put all objects of `data`, and check their sizes; return custom metadata or None.

        Idempotent: objects of an earlier, failed copy with the same id are overwritten.
        """
        ...

    def fetch_segment(self, segment: RemoteSegment, position: int, size_bytes: int) -> Buffer:
        """Return bytes of the log; a range beyond its end is clamped (spec T58)."""
        ...

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        """Return one complete index; ObjectMissing if there is none, never None."""
        ...

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Delete all objects of the segment; succeeds if there are none."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class DeletesSegments(Protocol):
    """What a RemoteStorage may have besides: it deletes several segments in fewer requests."""

    def delete_segments(self, segments: Sequence[RemoteSegment]) -> None:
        """Delete all objects of the segments, as `delete_segment` does for one. May block.

        After an error any of them may be deleted: the caller deletes them one at a time then.
        """
        ...


# ----------------------------------------------------------------------------------------- metadata

Published = Callable[[KafkaError | None, int], Effects]


class Mark(NamedTuple):
    """A position in the changes of a partition's finished segments."""

    feed: object
    position: int


class Everything(NamedTuple):
    """All known segments of a partition at one moment."""

    segments: Sequence[RemoteSegment]  # not deleted, in any state
    deleted: Collection[Uuid]  # the latest ones whose deletion is finished


class Look(NamedTuple):
    """The changes of a partition's finished segments since an earlier mark.

    mark        for the next look
    changed     the present state of new segments, None for those that are not finished any more
    everything  instead of the changes, if they are not known any more, or there is no earlier mark
    """

    mark: Mark
    changed: Mapping[Uuid, RemoteSegment | None]
    everything: Everything | None


class Totals(NamedTuple):
    """How many segments of a partition are known, and how many bytes of records they have.

    Those that are being copied are counted among all only.
    """

    segments: int = 0
    finished_segments: int = 0
    finished_bytes: int = 0
    deleting_segments: int = 0
    deleting_bytes: int = 0


class RemoteLogMetadata(Protocol):
    """KIP-405's RemoteLogMetadataManager: strongly consistent metadata of remote segments.

    Queries read the records that this node has applied, and return KafkaError REPLICA_NOT_AVAILABLE as a
    value while those are not complete (spec T22): so "unknown" is never mistaken for "none". A write calls
    `then(None, now_ms)` once its record is committed and applied here (T21, X36). The tier sets
    `on_applied(partition, now_ms)`; it is called for each partition with newly applied records, before the
    `then` of the write.
    """

    on_applied: Callable[[TopicIdPartition, int], Effects] | None

    def assign(self, where: TopicIdPartition, now_ms: int) -> Effects:
        """Answer queries about `where` from now on, once all records that are committed now are applied."""
        ...

    def unassign(self, where: TopicIdPartition) -> None:
        """Do not answer queries about `where` any more."""
        ...

    def add(self, segment: RemoteSegment, then: Published, now_ms: int) -> Effects:
        """Publish a new segment, only with COPY_STARTED (assertion)."""
        ...

    def update(self, change: SegmentUpdate, then: Published, now_ms: int) -> Effects:
        """Publish a change of state, never to COPY_STARTED (assertion)."""
        ...

    def put_partition_delete(
        self, change: PartitionDelete, then: Published, now_ms: int
    ) -> Effects:
        """Publish a change of a partition's deletion."""
        ...

    def is_ready(self, where: TopicIdPartition) -> bool:
        """Whether queries about the partition can be answered."""
        ...

    def lookup(
        self, where: TopicIdPartition, *, epoch: int, offset: int
    ) -> RemoteSegment | KafkaError | None:
        """Return the finished segment with `offset` of that leader epoch, if any."""
        ...

    def highest_offset(self, where: TopicIdPartition, epoch: int) -> int | KafkaError | None:
        """Return the highest offset of that leader epoch that has ever been copied."""
        ...

    def segments(
        self, where: TopicIdPartition, epoch: int | None = None
    ) -> Sequence[RemoteSegment] | KafkaError:
        """Return all segments that are not deleted, or those of `epoch`, ascending by offset."""
        ...

    def finished(
        self, where: TopicIdPartition, reaching: int = 0
    ) -> list[RemoteSegment] | KafkaError:
        """Return the finished segments that end at or above an offset, ascending by end offset."""
        ...

    def unfinished(self, where: TopicIdPartition) -> Sequence[RemoteSegment] | KafkaError:
        """Return the segments that are being copied or deleted, ascending by offset."""
        ...

    def look(self, where: TopicIdPartition, since: Mark | None) -> Look | KafkaError:
        """Return the changes of finished segments since a mark; its cost follows their number."""
        ...

    def totals(self, where: TopicIdPartition) -> Totals | KafkaError:
        """Return the totals of a partition, without a walk over its segments."""
        ...

    def get(self, where: TopicIdPartition, segment_id: Uuid) -> RemoteSegment | None:
        """Return one segment that is not deleted, from the records applied so far."""
        ...

    def was_deleted(self, where: TopicIdPartition, segment_id: Uuid) -> bool:
        """Whether the segment's deletion is finished; also False if that is too long ago."""
        ...

    def has_history(self, where: TopicIdPartition) -> bool:
        """Whether there are records about the partition."""
        ...

    def applied_offset(self, where: TopicIdPartition) -> tuple[int, int]:
        """Return (partition, last applied offset) of the metadata log; -1 for none."""
        ...

    def removes(self, where: TopicIdPartition) -> bool:
        """Whether this node has to remove the partition if its topic is deleted."""
        ...

    def segments_to_remove(self, where: TopicIdPartition) -> Sequence[RemoteSegment] | KafkaError:
        """Return all segments that are not deleted of a partition, hosted here or not (T55)."""
        ...

    def deletions(self) -> Sequence[PartitionDelete]:
        """Return the deletions that have begun, and that this node has to carry out."""
        ...

    def undeleted(self) -> Sequence[tuple[TopicIdPartition, str]]:
        """Return (partition, topic name) of this node's partitions that are not marked for deletion."""
        ...

    def delete_state(self, where: TopicIdPartition) -> DeleteState | None:
        """Return the state of the partition's deletion."""
        ...


def as_error(problem: Exception) -> FirnlineError:
    """Return an exception of a worker as one of our errors: plug-ins may raise any (F8, F34)."""
    if isinstance(problem, FirnlineError):
        return problem
    return StorageError(f"{type(problem).__name__}: {problem}")
