"""What can be plugged into the tier: object stores, RemoteStorage, RemoteLogMetadata. PURE.

Everything here that touches a store blocks and is called from worker threads only (`Submit`); the
metadata protocol is called on the node's one thread and answers through continuations.
Source: KIP-405 'Public Interfaces'; spec 3.9, 3.10, T53, T56.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from firnline.base.effects import Effects
from firnline.base.errors import KafkaError, StorageError
from firnline.base.ids import TopicIdPartition, Uuid
from firnline.base.ports import Buffer
from firnline.formats.leader_epoch_checkpoint import Epochs


class ObjectMissing(StorageError):
    """There is no object of that name. Distinct from a store that does not answer (spec 3.9)."""


class RemoteStorageError(StorageError):
    """The store refused, failed or could not be reached; a later try may succeed."""


class DamagedObject(StorageError):
    """An object of the tier is not the bytes that were put there: fail closed (rel-T20)."""


class DamagedSegment(StorageError):
    """A local segment is not what was written: it is not copied, and another replica should lead."""


class CustomMetadataTooLarge(StorageError):
    """A plug-in returned more custom metadata than the limit: its copy task stops (spec T10, 3.4-7)."""


# ------------------------------------------------------------------------------------ object stores


class ObjectInfo(NamedTuple):
    """One listed object."""

    key: str
    size_bytes: int


class ObjectStore(Protocol):
    """A flat name space of immutable byte strings: a directory, S3, GCS, Azure, HDFS.

    Keys use '/' between folders. No atomic precondition is asked for, and `list_prefix` may lag
    behind `put` and `delete`: no decision of a broker hangs on either (ecosystem 1.2).
    Errors: ObjectMissing, RemoteStorageError. Must be usable from several threads at once.
    """

    def put(self, key: str, chunks: Iterable[Buffer], *, size_bytes: int) -> None:
        """Store the concatenation of `chunks`, visible only when complete and durable.

        `size_bytes` is what they must add up to; RemoteStorageError, and nothing visible, if not.
        A repeated put of the same bytes under the same key is fine.
        """
        ...

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        """Return `size_bytes` from `position`, fewer only where the object ends; None: all the rest."""
        ...

    def list_prefix(self, prefix: str) -> list[ObjectInfo]:
        """Return every object below the folder `prefix` (which ends with '/'), sorted by key."""
        ...

    def delete(self, key: str) -> None:
        """Remove the object; one that is not there is a success."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


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
    # Its copy was not finished, and another broker than the copier deletes it: a put may still be under way.
    is_abandoned: bool = False

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, self.partition)

    @property
    def largest_time_ms(self) -> int:
        """Its age for retention: its greatest timestamp; where none is known, when it was copied."""
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


class PartitionDelete(NamedTuple):
    """A change of a partition's deletion."""

    topic_id: Uuid
    topic: str
    partition: int
    state: DeleteState
    broker_id: int
    event_timestamp_ms: int


class IndexKind(IntEnum):
    """What a remote segment has beside its log."""

    OFFSET = 0
    TIMESTAMP = 1
    PRODUCER_SNAPSHOT = 2
    TRANSACTION = 3
    LEADER_EPOCH = 4


class Source(NamedTuple):
    """Bytes to copy: their number, and how to read them in chunks. Read once, in a worker thread."""

    size_bytes: int
    chunks: Callable[[], Iterable[Buffer]]


def bytes_source(data: Buffer) -> Source:
    """Return a source of bytes that are in memory."""
    return Source(len(data), lambda: (data,))


class SegmentData(NamedTuple):
    """The six things one copied segment consists of; `txn_index` is None where there is none."""

    log: Source
    offset_index: Source
    time_index: Source
    producer_snapshot: Source
    leader_epochs: Source
    txn_index: Source | None
    # What was seen of them all, for a storage that can keep it as custom metadata (objects/fingerprint.py).
    fingerprint: bytes | None = None


class RemoteStorage(Protocol):
    """KIP-405's RemoteStorageManager, Python-shaped. Called from worker threads; may block.

    Errors: ObjectMissing when the thing asked for is not there; RemoteStorageError for all else.
    """

    def configure(self, settings: Mapping[str, str]) -> None:
        """Take the settings below the configured prefix, and those of the node. Source: spec T53.

        `broker.id` and `cluster.id` say whose tier it is; `tier.in.use` is there, and "true", where the node
        has records of what lies in the tier, so that an empty store is not the one that it had. Refuse with a
        FirnlineError that says what to do: the node does not start.
        """
        ...

    def copy_segment(self, segment: RemoteSegment, data: SegmentData) -> bytes | None:
        """Store everything of `data`, confirmed in length; return custom metadata or None.

        Idempotent: whatever an earlier, broken copy of the same id left behind is overwritten.
        """
        ...

    def fetch_segment(self, segment: RemoteSegment, position: int, size_bytes: int) -> bytes:
        """Return bytes of the log; a range that passes its end is clamped (spec T58)."""
        ...

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        """Return one whole index; ObjectMissing where there is none, never None."""
        ...

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Remove everything of the segment; what is not there is a success."""
        ...

    def close(self) -> None: ...


# ----------------------------------------------------------------------------------------- metadata

Published = Callable[[KafkaError | None, int], Effects]


class Mark(NamedTuple):
    """Up to where somebody has seen the changes of a partition's finished segments."""

    feed: object
    position: int


class Everything(NamedTuple):
    """All that is known of a partition's segments at one moment."""

    segments: Sequence[RemoteSegment]  # not deleted, in any state
    deleted: Collection[Uuid]  # the newest ones whose deletion was finished


class Look(NamedTuple):
    """What one look at a partition's finished segments says, given the mark of an earlier one.

    mark        for a later look
    changed     segments as they are now that came, None for those that are not finished any more
    everything  instead of what changed, where that is not known any more, or nobody has looked before
    """

    mark: Mark
    changed: Mapping[Uuid, RemoteSegment | None]
    everything: Everything | None


class RemoteLogMetadata(Protocol):
    """KIP-405's RemoteLogMetadataManager: strongly consistent metadata of remote segments.

    Questions answer from what this node has applied and return KafkaError REPLICA_NOT_AVAILABLE as
    a value while that is not complete (spec T22): an absent answer is never mistaken for "none".
    A write calls `then(None, now_ms)` only once its record is committed and visible here (T21, X36).
    `on_applied(partition, now_ms)` is set by the tier and called for each partition of which something
    was applied, before the `then` of the write that said it.
    """

    on_applied: Callable[[TopicIdPartition, int], Effects] | None

    def assign(self, where: TopicIdPartition, now_ms: int) -> Effects:
        """Answer questions about `where` from now on, once all that is committed by now is applied."""
        ...

    def unassign(self, where: TopicIdPartition) -> None:
        """No longer answer questions about `where`."""
        ...

    def add(self, segment: RemoteSegment, then: Published, now_ms: int) -> Effects:
        """Publish a new segment; COPY_STARTED only (assertion)."""
        ...

    def update(self, change: SegmentUpdate, then: Published, now_ms: int) -> Effects:
        """Publish a change of state; never COPY_STARTED (assertion)."""
        ...

    def put_partition_delete(
        self, change: PartitionDelete, then: Published, now_ms: int
    ) -> Effects:
        """Publish a change of a partition's deletion."""
        ...

    def is_ready(self, where: TopicIdPartition) -> bool:
        """Whether questions about that partition can be answered."""
        ...

    def lookup(
        self, where: TopicIdPartition, *, epoch: int, offset: int
    ) -> RemoteSegment | KafkaError | None:
        """Return the finished segment that holds `offset` of that leader epoch, if any."""
        ...

    def highest_offset(self, where: TopicIdPartition, epoch: int) -> int | KafkaError | None:
        """Return the highest offset of that leader epoch that was ever copied."""
        ...

    def segments(
        self, where: TopicIdPartition, epoch: int | None = None
    ) -> Sequence[RemoteSegment] | KafkaError:
        """Return all segments not yet deleted; with `epoch` those of it, ascending by offset."""
        ...

    def finished(
        self, where: TopicIdPartition, reaching: int = 0
    ) -> list[RemoteSegment] | KafkaError:
        """Return the finished segments that end at or above an offset, ascending by their ends."""
        ...

    def unfinished(self, where: TopicIdPartition) -> Sequence[RemoteSegment] | KafkaError:
        """Return the segments that are being copied or deleted, ascending by offset."""
        ...

    def look(self, where: TopicIdPartition, since: Mark | None) -> Look | KafkaError:
        """Return which finished segments came or went since an earlier look; the cost follows these."""
        ...

    def get(self, where: TopicIdPartition, segment_id: Uuid) -> RemoteSegment | None:
        """Return one segment that is not deleted, as far as it is known, ready or not."""
        ...

    def was_deleted(self, where: TopicIdPartition, segment_id: Uuid) -> bool:
        """Whether that segment's deletion is finished; False too where it is too long ago to be known."""
        ...

    def has_history(self, where: TopicIdPartition) -> bool:
        """Whether anything was ever said about that partition."""
        ...

    def applied_offset(self, where: TopicIdPartition) -> tuple[int, int]:
        """Return (partition, last applied offset) of the metadata log; -1 where there is none."""
        ...

    def removes(self, where: TopicIdPartition) -> bool:
        """Whether it is this node that has to remove that partition if its topic is deleted."""
        ...

    def segments_to_remove(self, where: TopicIdPartition) -> Sequence[RemoteSegment] | KafkaError:
        """Return all segments not yet deleted of a partition that need not be hosted here (T55)."""
        ...

    def deletions(self) -> Sequence[PartitionDelete]:
        """Return the partitions whose deletion has begun and which this node has to carry out."""
        ...

    def undeleted(self) -> Sequence[tuple[TopicIdPartition, str]]:
        """Return (partition, topic name) of all that this node removes and that is not yet marked."""
        ...

    def delete_state(self, where: TopicIdPartition) -> DeleteState | None:
        """Return how far the deletion of that partition got."""
        ...
