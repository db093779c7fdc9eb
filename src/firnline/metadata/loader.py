"""Turns batches of the metadata log, or a snapshot, into an image, in steps. PURE.

The records between BeginTransaction and EndTransaction appear together or, after AbortTransaction, never. A
step handles a limited number of records, so that a long log does not delay other tasks of the thread. Source:
KIP-630, KIP-631, KIP-868; spec Q7, Q8, Q13, Q37, Q39, Q49.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from firnline.base.background import run_to_completion
from firnline.base.errors import ConfigError, KafkaError, ProtocolError, StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.metadata import records as r
from firnline.metadata.batch_records import batch_records
from firnline.metadata.delta import TOPICS_PER_STEP, ClusterDelta, Replay, TopicDelta
from firnline.metadata.image import EMPTY_IMAGE, ClusterImage, TopicImage
from firnline.metadata.snapshot_file import snapshot_name
from firnline.protocol.schema import Message
from firnline.raft.ports import ReplicatedLog, SnapshotFile
from firnline.records.batch import LOG_OVERHEAD_BYTES, BatchHeader, crc_is_right, headers
from firnline.records.control import (
    ControlType,
    KRaftVersionRecord,
    SnapshotHeaderRecord,
    decode_key,
    decode_value,
)
from firnline.records.record import records

# A few milliseconds of work.
RECORDS_PER_STEP = 300
# After more records than these, computing the delta is a step of its own.
_FEW_RECORDS = 100
# Bytes of a log or a snapshot to read at a time.
READ_BYTES = 256 * 1024
_RESTORE = "restore the metadata log directory from a copy, or empty it if other voters have it all"


def refuse_dynamic_voters(kraft_version: int) -> None:
    """Raise ConfigError for a quorum with its voters in the log (KIP-853)."""
    if kraft_version > 0:
        raise ConfigError(
            "the metadata quorum of this directory has dynamic voters, which this release does not"
            " run; it runs a quorum of controller.quorum.voters",
            kraft_version=kraft_version,
        )


class Loader:
    """Follows the log from its start, or from an image, batch by batch.

    Invariant: `next_offset` is that of the first record not applied; the image is that at the end of a batch,
    or before an open transaction.
    """

    def __init__(self, image: ClusterImage = EMPTY_IMAGE) -> None:
        self._settled = image  # at the last point outside a transaction
        self._replay: Replay | None = None
        self._deltas: list[ClusterDelta] = []
        self._last = (image.offset, image.epoch)
        self.is_in_transaction = False
        self.is_batch_end = True  # of the image: False only before a transaction within a batch
        self._weight = 0  # records since the last step
        self.last_timestamp_ms = 0
        self.bytes_seen = 0

    @property
    def next_offset(self) -> int:
        """The offset of the first record that is not applied."""
        return self._last[0] + 1

    def load(self, content: Iterable[Message], *, offset: int, epoch: int) -> None:
        """Start over from the records of a snapshot; `offset` is the last one that it contains, inclusive."""
        self._replay = Replay(EMPTY_IMAGE)
        for record in content:
            self._replay.apply(record)
        self._last = (offset, epoch)
        self._settle()

    def apply(self, data: bytes) -> None:
        """Apply the complete batches of `data` at once. Raises like `steps`."""
        for _ in self.steps(data):
            pass

    def steps(self, data: bytes, *, end_offset: int | None = None) -> Generator[None, None, None]:
        """Apply the complete batches of `data` that begin below `end_offset`; yields after each step.

        StorageError for damaged or unreadable records, ConfigError for dynamic voters.
        """
        for header in _headers(data):
            if end_offset is not None and header.base_offset >= end_offset:
                break
            if not header.base_offset <= self.next_offset <= header.last_offset:
                raise StorageError(
                    "the metadata log has a gap", at=header.base_offset, expected=self.next_offset
                )
            if not crc_is_right(data, header):
                raise StorageError(
                    "the metadata log is damaged", offset=header.base_offset, remedy=_RESTORE
                )
            try:
                if header.is_control:
                    _look_at_controls(data, header)
                else:
                    yield from self._batch_steps(data, header)
            except (KafkaError, ProtocolError, StorageError) as problem:
                raise StorageError(
                    "the metadata log holds what this release cannot act on",
                    offset=header.base_offset,
                    problem=problem,
                    remedy=_RESTORE,
                ) from None
            self._last = (header.last_offset, header.leader_epoch)
            self.last_timestamp_ms = header.max_timestamp
            self.bytes_seen += header.size_bytes
        if not self.is_in_transaction:
            yield from self._settle_steps()
        if self._weight > _FEW_RECORDS:
            self._weight = 0
            yield

    def image(self) -> ClusterImage:
        """Return the image after the last batch; inside a transaction, the one before it."""
        return self._settled

    def take_deltas(self) -> list[ClusterDelta]:
        """Return the deltas since the last call, in order. Not within a batch."""
        deltas, self._deltas = self._deltas, []
        return deltas

    def _batch_steps(self, data: bytes, header: BatchHeader) -> Iterator[None]:
        first_offset = self.next_offset
        for some in batch_records(data, header, at_most=RECORDS_PER_STEP):
            for offset, record in some:
                if offset < first_offset:
                    continue  # the image already has it: a transaction began in the middle of this batch
                kind = type(record)
                if kind is r.BeginTransactionRecord:
                    self._begin(offset, header)
                elif kind is r.EndTransactionRecord or kind is r.AbortTransactionRecord:
                    self._end(is_aborted=kind is r.AbortTransactionRecord)
                else:
                    if self._replay is None:
                        self._replay = Replay(self._settled)
                    self._replay.apply(record)
            self._weight += len(some)
            if self._weight >= RECORDS_PER_STEP:
                self._weight = 0
                yield

    def _begin(self, offset: int, header: BatchHeader) -> None:
        if self.is_in_transaction:
            raise ProtocolError("a metadata transaction begins within another", offset=offset)
        if offset > header.base_offset:
            self._last = (offset - 1, header.leader_epoch)
        self._settle()
        self.is_batch_end = offset == header.base_offset
        self.is_in_transaction = True

    def _end(self, *, is_aborted: bool) -> None:
        if not self.is_in_transaction:
            raise ProtocolError("a metadata transaction ends that did not begin")
        self.is_in_transaction = False
        self.is_batch_end = True
        if is_aborted:
            self._replay = None

    def _settle(self) -> None:
        run_to_completion(self._settle_steps())

    def _settle_steps(self) -> Generator[None, None, None]:
        offset, epoch = self._last
        if self._replay is None:
            if offset == self._settled.offset:
                return
            self._replay = Replay(self._settled)
        delta = yield from self._replay.finish_steps(offset=offset, epoch=epoch)
        self._replay = None
        self._settled = delta.after
        self._deltas.append(delta)


def _headers(data: bytes) -> Iterator[BatchHeader]:
    """Yield the headers of the complete batches; StorageError for one that is impossible."""
    try:
        yield from headers(data)
    except KafkaError as problem:
        raise StorageError(
            "the metadata log is damaged", problem=problem, remedy=_RESTORE
        ) from None


def _look_at_controls(data: bytes, header: BatchHeader) -> None:
    for row in records(data, header):
        if decode_key(row.key) == ControlType.KRAFT_VERSION:
            value = decode_value(ControlType.KRAFT_VERSION, row.value)
            assert isinstance(value, KRaftVersionRecord)
            refuse_dynamic_voters(value.kraft_version)


def last_level(log: ReplicatedLog, names: Sequence[str], last_offset: int) -> int | None:
    """Return the offset of the last record up to `last_offset` that sets one of these features; None if a
    snapshot does."""
    found, at = None, log.start_offset
    while at <= last_offset and (data := log.read(at, max_bytes=READ_BYTES)):
        for header in headers(data):
            at = header.next_offset
            rows = (
                () if header.is_control else batch_records(data, header, at_most=RECORDS_PER_STEP)
            )
            for offset, record in chain.from_iterable(rows):
                if isinstance(record, r.FeatureLevelRecord) and offset <= last_offset:
                    found = offset if record.name in names else found
    return found


# ------------------------------------------------------------------------------------- snapshots


class SnapshotLoader:
    """Reads a snapshot into a new image, in steps; checks every CRC, the header and the footer."""

    def __init__(self, snapshot_id: OffsetAndEpoch, file: SnapshotFile) -> None:
        self.snapshot_id = snapshot_id
        self.last_contained_ms = 0
        self.record_count = 0  # without control records
        self._file = file
        self._replay = Replay(EMPTY_IMAGE)
        self._has_header = self._has_footer = False
        self._image: ClusterImage | None = None
        self._weight = 0

    def steps(self) -> Generator[None, None, None]:
        """Load; yields after each step. The file is closed at the end, or with the iterator.

        StorageError for anything but a complete snapshot, ConfigError for dynamic voters.
        """
        position = 0
        try:
            for data, header in _batches(self._file):
                position = header.base_offset
                yield from self._batch_steps(data, header)
            if not self._has_footer:
                raise StorageError("no footer: the file ends early")
            end_offset, epoch = self.snapshot_id
            delta = yield from self._replay.finish_steps(offset=end_offset - 1, epoch=epoch)
            self._image = delta.after
        except (KafkaError, ProtocolError, StorageError) as problem:
            raise StorageError(
                "a snapshot of the metadata is damaged",
                snapshot=snapshot_name(self.snapshot_id),
                record=position,
                problem=problem,
                remedy=_RESTORE,
            ) from None
        finally:
            self._file.close()

    def image(self) -> ClusterImage:
        """Return the image after the last step; its offset is that of the last record contained."""
        assert self._image is not None
        return self._image

    def _batch_steps(self, data: bytes, header: BatchHeader) -> Iterator[None]:
        if not crc_is_right(data, header):
            raise StorageError("a batch has another CRC than it says")
        if self._has_footer:
            raise StorageError("a batch after the footer")
        if header.is_control:
            self._look_at_controls(data, header)
            return
        if not self._has_header:
            raise StorageError("records before the header")
        apply = self._replay.apply
        for some in batch_records(data, header, at_most=RECORDS_PER_STEP):
            for _, record in some:
                apply(record)
            self.record_count += len(some)
            self._weight += len(some)
            if self._weight >= RECORDS_PER_STEP:
                self._weight = 0
                yield

    def _look_at_controls(self, data: bytes, header: BatchHeader) -> None:
        for row in records(data, header):
            kind = decode_key(row.key)
            if kind == ControlType.SNAPSHOT_HEADER:
                value = decode_value(kind, row.value)
                assert isinstance(value, SnapshotHeaderRecord)
                self.last_contained_ms = value.last_contained_log_timestamp
                self._has_header = True
            elif kind == ControlType.SNAPSHOT_FOOTER:
                self._has_footer = self._has_header
        _look_at_controls(data, header)


def _batches(file: SnapshotFile) -> Iterator[tuple[bytes, BatchHeader]]:
    """Yield the complete batches of a file; StorageError for an incomplete one."""
    position, size_bytes = 0, file.size_bytes
    wanted = READ_BYTES
    while position < size_bytes:
        data = file.read(position, wanted)
        end = 0
        for header in headers(data):
            yield data, header
            end = header.position + header.size_bytes
        position += end
        if end:
            wanted = READ_BYTES
            continue
        length = int.from_bytes(data[8:LOG_OVERHEAD_BYTES], "big") + LOG_OVERHEAD_BYTES
        if len(data) < LOG_OVERHEAD_BYTES or position + length > size_bytes or length <= wanted:
            raise StorageError("a batch is cut", position=position)
        wanted = length


# -------------------------------------------------------------------------------------- images


def difference(before: ClusterImage, after: ClusterImage) -> ClusterDelta:
    """Return the delta between two images; it compares every topic, so it is for loading only."""
    return run_to_completion(difference_steps(before, after))


def difference_steps(
    before: ClusterImage, after: ClusterImage
) -> Generator[None, None, ClusterDelta]:
    """Return the delta between two images; yields after some topics at a time."""
    topics = []
    for count, topic_id in enumerate(sorted(after.topics_by_id), 1):
        topic, old = after.topics_by_id[topic_id], before.topics_by_id.get(topic_id)
        if topic is not old:
            changed = _changed_partitions(old, topic)
            if old is None or changed:
                topics.append(TopicDelta(old, topic, changed))
        if count % TOPICS_PER_STEP == 0:
            yield
    deleted = [
        before.topics_by_id[topic_id]
        for topic_id in sorted(before.topics_by_id)
        if topic_id not in after.topics_by_id
    ]
    return ClusterDelta(
        before=before,
        after=after,
        topics=tuple(topics),
        deleted_topics=tuple(deleted),
        brokers=_changed_keys(before.brokers, after.brokers),
        configs=_changed_keys(before.configs, after.configs),
        features=_changed_keys(before.features, after.features),
    )


def _changed_partitions(old: TopicImage | None, new: TopicImage) -> tuple[int, ...]:
    if old is None:
        return tuple(sorted(new.partitions))
    before = old.partitions
    return tuple(n for n in sorted(new.partitions) if before.get(n) != new.partitions[n])


def _changed_keys(before: Any, after: Any) -> tuple[Any, ...]:
    keys = sorted({**dict(before), **dict(after)})
    return tuple(key for key in keys if before.get(key) != after.get(key))
