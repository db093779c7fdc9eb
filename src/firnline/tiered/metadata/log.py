"""Remote log metadata in the topic `__remote_log_metadata`: publish, apply, answer. PURE.

Theory of operation. The node consumes every metadata partition to which a hosted partition maps, and every
one that it leads, completely and from the start. So a partition that is added later finds its history (X37),
and a deletion finds all segments of partitions that no broker hosts (T55). A publish appends a record at the
leader of its metadata partition, and is complete when the record is committed and applied here (T21). Queries
about a partition are answered once everything that was committed at its assignment is applied. Source:
KIP-405 'RemoteLogMetadataManager implemented with an internal topic'; spec 3.12.
"""

from collections.abc import Callable, Sequence
from functools import partial

from firnline.base.effects import (
    Append,
    Appended,
    CancelTimer,
    Effects,
    EnsureTopic,
    SetTimer,
)
from firnline.base.errors import CannotGoOn, Code, KafkaError, ProtocolError, StorageError
from firnline.base.ids import (
    NO_EPOCH,
    REMOTE_LOG_METADATA_TOPIC,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from firnline.base.log_lines.tier import (
    TIER_METADATA_LOST,
    TIER_METADATA_NOT_CREATED,
    TIER_METADATA_READ_AGAIN,
    TIER_METADATA_UNREADABLE,
)
from firnline.base.units import KIB, MIB
from firnline.protocol.schema import Message
from firnline.records.batch import BatchHeader, headers
from firnline.records.build import NewRecord, build_batch
from firnline.records.record import records
from firnline.tiered.metadata.cache import MetadataCache
from firnline.tiered.metadata.changes import (
    delete_record,
    from_record,
    segment_record,
    update_record,
)
from firnline.tiered.metadata.consumed import Consumed, why_not_next
from firnline.tiered.metadata.partitioner import metadata_partition_of
from firnline.tiered.metadata.records import decode, encode
from firnline.tiered.metadata.topic_reader import MetadataTopicReader
from firnline.tiered.settings import TierSettings
from firnline.tiered.spi import (
    DeleteState,
    Look,
    Mark,
    PartitionDelete,
    Published,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    Totals,
)

# The bytes that one step applies, so that a long history does not block the loop.
STEP_BYTES = 16 * KIB
DROPPED_KEPT = 1000
# The maximum size of a decompressed batch; brokers write a few hundred bytes in each.
BATCH_BYTES_MAX = 4 * MIB
UNREADABLE = "metadata of the tier cannot be read"


class HistoryUnknown(StorageError):
    """Some records of the metadata topic about a partition cannot be read."""


NOT_READY = KafkaError(
    Code.REPLICA_NOT_AVAILABLE, "the metadata of the remote log is not loaded yet"
)
_DROPPED = KafkaError(
    Code.INVALID_REQUEST, "the change of remote log metadata does not follow what is known"
)
_LATE = KafkaError(
    Code.REQUEST_TIMED_OUT, "the metadata record was appended but not applied here in time"
)


class TopicMetadataLog:
    """KIP-405's topic-based RemoteLogMetadataManager. See `spi.RemoteLogMetadata`."""

    def __init__(self, feed: MetadataTopicReader, settings: TierSettings) -> None:
        self._feed = feed
        self._settings = settings
        self._consumed: dict[int, Consumed] = {}
        # The offset up to which the metadata must be applied before queries about a partition are answered.
        self._targets: dict[TopicIdPartition, int | None] = {}
        self._awaiting: dict[int, dict[TopicIdPartition, None]] = {}
        self._behind: dict[int, None] = {}  # metadata partitions with more to apply, in turn
        self._dropped: dict[tuple[int, int], None] = {}
        self._is_started = False
        self._started_ms = 0
        self.is_initialised = False
        self._not_created: str | None = None
        self.on_applied: Callable[[TopicIdPartition, int], Effects] | None = None

    # ------------------------------------------------------------------------------------- start

    def start(self, now_ms: int) -> Effects:
        """Create the topic if it does not exist; retry until it does, or the time is over (spec T17)."""
        assert not self._is_started
        self._is_started = True
        self._started_ms = now_ms
        return self._ensure(now_ms)

    def _ensure(self, now_ms: int) -> Effects:
        return [EnsureTopic(name=REMOTE_LOG_METADATA_TOPIC, then=self._ensured)]

    def _ensured(self, error: KafkaError | None, now_ms: int) -> Effects:
        count = self._feed.partition_count() if error is None else None
        if count is None:
            effects: Effects = []
            if now_ms - self._started_ms >= self._settings.metadata_init_retry_max_ms:
                problem = f"{REMOTE_LOG_METADATA_TOPIC} could not be created: {error}"
                if self._not_created is None:
                    topic = REMOTE_LOG_METADATA_TOPIC
                    effects.append(TIER_METADATA_NOT_CREATED(topic=topic, error=error))
                self._not_created = problem
            at_ms, key = now_ms + self._settings.metadata_init_retry_ms, ("tier-metadata", "init")
            return [*effects, SetTimer(key=key, at_ms=at_ms, then=self._ensure)]
        wanted = self._settings.metadata_partitions
        if count != wanted:  # it decides which partition has the records of a topic
            raise CannotGoOn(
                f"{REMOTE_LOG_METADATA_TOPIC} has {count} partitions, and"
                f" remote.log.metadata.topic.num.partitions is {wanted}: set it to {count} (with the prefix"
                " of remote.log.metadata.manager.impl.prefix). Nothing was changed"
            )
        self._not_created = None
        self.is_initialised = True
        for partition in range(count):
            if self._feed.leads(partition):
                self._consume(partition)
        for where in self._targets:
            self._consume(self.partition_of(where))
        return self.poll_all(now_ms)

    @property
    def problem(self) -> str | None:
        """What keeps all of it, or a partition, from being used; None: nothing does."""
        if self._not_created is not None:
            return self._not_created
        for partition, consumed in self._consumed.items():
            if consumed.ends_at_offset is not None:
                return (
                    f"{REMOTE_LOG_METADATA_TOPIC}-{partition} lost committed records: it ends at offset"
                    f" {consumed.ends_at_offset}, and was read up to {consumed.next_offset}. Nothing is"
                    " copied or deleted for its partitions"
                )
        return None

    # -------------------------------------------------------------------------------- assignment

    def partition_of(self, where: TopicIdPartition) -> int:
        """Return the metadata partition of `where`."""
        return metadata_partition_of(where, self._settings.metadata_partitions)

    def assign(self, where: TopicIdPartition, now_ms: int) -> Effects:
        """Answer queries about `where` once everything that is committed now is applied (T22, F11)."""
        self._targets[where] = None
        self._awaiting.setdefault(self.partition_of(where), {})[where] = None
        if not self.is_initialised:
            return []
        partition = self.partition_of(where)
        self._consume(partition)
        return self._ask([partition], now_ms, is_fresh=True) + self.poll(partition, now_ms)

    def unassign(self, where: TopicIdPartition) -> None:
        """Do not answer queries about `where` any more."""
        self._targets.pop(where, None)

    def applied_offset(self, where: TopicIdPartition) -> tuple[int, int]:
        """Return the metadata partition of `where`, and its last applied offset, -1 for none."""
        partition = self.partition_of(where)
        consumed = self._consumed.get(partition)
        return partition, consumed.next_offset - 1 if consumed else -1

    def on_leadership(self, partition: int, now_ms: int) -> Effects:
        """The leader of a metadata partition has changed: consume it if this node leads it."""
        if not self.is_initialised:
            return []
        if self._feed.leads(partition):
            self._consume(partition)
        return self.poll(partition, now_ms) if partition in self._consumed else []

    def _consume(self, partition: int) -> Consumed:
        found = self._consumed.get(partition)
        if found is None:
            found = self._consumed[partition] = Consumed(partition)
        return found

    # -------------------------------------------------------------------------------------- apply

    def poll_all(self, now_ms: int) -> Effects:
        """Apply new records of all consumed metadata partitions; see `_catch_up`."""
        self._behind.update(dict.fromkeys(self._consumed))
        return self._ask(list(self._consumed), now_ms) + self._catch_up(now_ms)

    def _ask(self, partitions: Sequence[int], now_ms: int, *, is_fresh: bool = False) -> Effects:
        """Read the partitions that other brokers lead."""
        found = {partition: self._consumed[partition] for partition in partitions}
        positions = {partition: (c.next_offset, c.epoch) for partition, c in found.items()}
        return self._feed.catch_up(positions, self.poll, now_ms, is_fresh=is_fresh)

    def _catch_up(self, now_ms: int) -> Effects:
        """Apply one step of new records, of all partitions together; a timer continues at once.

        A start applies the complete history: the loop serves requests between two steps.
        """
        effects: Effects = []
        applied_bytes = 0
        while self._behind and applied_bytes < STEP_BYTES:
            partition = next(iter(self._behind))
            del self._behind[partition]
            made, size_bytes = self._step(partition, now_ms)
            effects += made
            applied_bytes += size_bytes
        return effects + self._go_on(now_ms)

    def _go_on(self, now_ms: int) -> Effects:
        if not self._behind:
            return []
        return [SetTimer(key=("tier-metadata", "behind"), at_ms=now_ms, then=self._catch_up)]

    def poll(self, partition: int, now_ms: int) -> Effects:
        """Apply at most a step of new records of one partition; a timer continues at once."""
        effects, _ = self._step(partition, now_ms)
        return effects + self._go_on(now_ms)

    def _step(self, partition: int, now_ms: int) -> tuple[Effects, int]:
        """Apply a step; return its effects and the number of bytes."""
        consumed = self._consumed.get(partition)
        if consumed is None:
            return [], 0
        fork = self._feed.fork(partition, consumed.next_offset, consumed.epoch)
        if fork is not None:
            return self._start_over(partition, consumed, fork, now_ms), 0
        bounds = self._feed.bounds(partition)
        if bounds is None:
            return [], 0
        log_start, high_watermark = bounds
        lost = self._note_end(partition, consumed, high_watermark)
        if consumed.ends_at_offset is not None:
            return lost, 0
        if log_start > consumed.next_offset:
            consumed.has_forgotten = consumed.has_forgotten or consumed.next_offset > 0
            consumed.next_offset, consumed.epoch = log_start, NO_EPOCH
            consumed.damage = None
        touched: dict[TopicIdPartition, None] = {}
        data = b""
        effects: Effects = []
        if consumed.next_offset < high_watermark:
            try:
                data = self._feed.read(partition, consumed.next_offset, STEP_BYTES)
            except StorageError as problem:
                return self._read_failed(partition, consumed, problem, now_ms), 0
            was_known = self._unknown(partition, consumed) is None
            effects = self._apply(partition, consumed, data, touched)
            if was_known and self._unknown(partition, consumed) is not None:
                touched.update(dict.fromkeys(consumed.caches))  # the record may be about any
        self._note_targets(partition, consumed, high_watermark, touched)
        if self.on_applied is not None:
            for where in touched:
                effects += self.on_applied(where, now_ms)
        effects += self._release(partition, consumed, now_ms)
        if consumed.next_offset < high_watermark and consumed.damage is None:
            if data:
                self._behind[partition] = None
            else:
                effects += self._ask([partition], now_ms)
        return effects, len(data)

    def _read_failed(
        self, partition: int, consumed: Consumed, problem: StorageError, now_ms: int
    ) -> Effects:
        """The next poll tries again; by then another broker may lead the partition."""
        if problem.is_passing or problem.has_lost_nothing:
            return []
        effects = self._damaged(partition, consumed, str(problem))
        return effects + self._feed.read_failed(partition, problem, now_ms)

    def _start_over(self, partition: int, consumed: Consumed, fork: int, now_ms: int) -> Effects:
        """The applied records are not the leader's history: read everything again, from the leader's log.

        Until then queries about its partitions are not answered, and no task acts on them.
        """
        self._consumed[partition] = Consumed(partition)
        for key in [key for key in self._dropped if key[0] == partition]:
            del self._dropped[key]
        line = TIER_METADATA_READ_AGAIN(
            topic=REMOTE_LOG_METADATA_TOPIC,
            partition=partition,
            read_to_offset=consumed.next_offset,
            read_epoch=consumed.epoch,
            leader_has_to_offset=fork,
        )
        effects: Effects = [line]
        for where in self._targets:
            if self.partition_of(where) == partition:
                self._targets[where] = None
                self._awaiting.setdefault(partition, {})[where] = None
                if self.on_applied is not None:
                    effects += self.on_applied(where, now_ms)
        for offset, then in consumed.waiting:
            effects.append(CancelTimer(key=("tier-metadata", "wait", partition, offset)))
            effects += then(NOT_READY, now_ms)
        self._behind[partition] = None
        return effects + self._ask([partition], now_ms, is_fresh=True)

    def _note_end(self, partition: int, consumed: Consumed, end_offset: int) -> Effects:
        """Decide nothing while the partition ends below what was applied: committed records are lost (F28).

        An answer that was wrong is over with the next right one: that the history is still the same is known
        by its epochs (`fork`).
        """
        before = consumed.ends_at_offset
        consumed.ends_at_offset = end_offset if end_offset < consumed.next_offset else None
        if before is not None or consumed.ends_at_offset is None:
            return []
        where = {"topic": REMOTE_LOG_METADATA_TOPIC, "partition": partition}
        read_to_offset = consumed.next_offset
        return [
            TIER_METADATA_LOST(
                **where, read_to_offset=read_to_offset, leader_has_to_offset=end_offset
            )
        ]

    def _note_targets(
        self,
        partition: int,
        consumed: Consumed,
        high_watermark: int,
        touched: dict[TopicIdPartition, None],
    ) -> None:
        """Set up to where metadata must be applied before queries of newly assigned partitions are answered.

        A later end that is lower counts: records above it were lost, or never there.
        """
        for where in self._awaiting.pop(partition, {}):
            if where in self._targets:
                self._targets[where] = high_watermark
                consumed.loading[where] = None
            touched[where] = None
            consumed.loaded_at_offset = max(consumed.loaded_at_offset, high_watermark)
        if high_watermark < consumed.loaded_at_offset:
            for where in consumed.loading:
                if (target := self._targets.get(where)) is not None:
                    self._targets[where] = min(target, high_watermark)
            consumed.loaded_at_offset = high_watermark
        if consumed.loading and consumed.next_offset >= consumed.loaded_at_offset:
            touched.update(consumed.loading)
            consumed.loading.clear()
            consumed.loaded_at_offset = 0

    def _apply(
        self,
        partition: int,
        consumed: Consumed,
        data: bytes,
        touched: dict[TopicIdPartition, None],
    ) -> Effects:
        """Apply readable records; skip unreadable ones, or wait if only this replica is damaged."""
        try:
            for header in headers(data):
                why = why_not_next(data, header, consumed.next_offset)
                if why is not None:
                    return self._damaged(partition, consumed, why)
                consumed.epoch = header.leader_epoch
                if not header.is_control:
                    self._apply_batch(partition, consumed, data, header, touched)
                consumed.next_offset = max(consumed.next_offset, header.next_offset)
        except KafkaError as problem:
            return self._damaged(partition, consumed, str(problem))
        consumed.damage = None
        return consumed.unreadable.take_warnings()

    def _damaged(self, partition: int, consumed: Consumed, why: str) -> Effects:
        """This replica has damaged bytes. Another one has the right ones, so nothing is skipped."""
        effects = consumed.unreadable.take_warnings()
        if consumed.damage != why:
            consumed.damage = why
            where = {"topic": REMOTE_LOG_METADATA_TOPIC, "partition": partition}
            from_offset = consumed.next_offset
            effects.append(TIER_METADATA_UNREADABLE(**where, from_offset=from_offset, error=why))
        return effects

    def _apply_batch(
        self,
        partition: int,
        consumed: Consumed,
        data: bytes,
        header: BatchHeader,
        touched: dict[TopicIdPartition, None],
    ) -> None:
        expected = header.base_offset
        try:
            for record in records(data, header, limit_bytes=BATCH_BYTES_MAX):
                if not expected <= record.offset <= header.last_offset:
                    raise KafkaError(Code.CORRUPT_MESSAGE, "offsets that do not ascend")
                expected = record.offset + 1
                if record.offset < consumed.next_offset:
                    continue  # a batch may start below the requested offset
                consumed.next_offset = expected
                try:
                    is_taken = self._apply_one(consumed, record.value, touched)
                except (ProtocolError, ValueError) as problem:
                    is_taken = False
                    consumed.unreadable.note(record.offset, record.offset, problem)
                if not is_taken:
                    self._note_dropped(partition, record.offset)
        except KafkaError as problem:
            first = max(expected, consumed.next_offset)
            consumed.unreadable.note(first, max(first, header.last_offset), problem)
            for offset, _ in consumed.waiting:
                if first <= offset <= header.last_offset:
                    self._note_dropped(partition, offset)

    def _apply_one(
        self, consumed: Consumed, value: bytes | None, touched: dict[TopicIdPartition, None]
    ) -> bool:
        """Apply one record; False for an illegal transition. ProtocolError or ValueError: unreadable."""
        if value is None:
            raise ValueError("a record without a value, which no broker writes")
        change = from_record(decode(value))
        if change is None:
            return True
        where = TopicIdPartition(change.topic_id, change.partition)
        cache = consumed.caches.setdefault(where, MetadataCache())
        consumed.topics[where] = change.topic
        touched[where] = None
        if isinstance(change, RemoteSegment):
            return cache.add(change)
        if isinstance(change, SegmentUpdate):
            return cache.update(change)
        return cache.apply_delete(change)

    def _note_dropped(self, partition: int, offset: int) -> None:
        self._dropped[partition, offset] = None
        if len(self._dropped) > DROPPED_KEPT:
            del self._dropped[next(iter(self._dropped))]

    # ------------------------------------------------------------------------------------ publish

    def add(self, segment: RemoteSegment, then: Published, now_ms: int) -> Effects:
        """Publish a new segment. See `spi.RemoteLogMetadata`."""
        assert segment.state == SegmentState.COPY_STARTED, "only a new copy is added"
        return self._publish(segment.topic_id_partition, segment_record(segment), then, now_ms)

    def update(self, change: SegmentUpdate, then: Published, now_ms: int) -> Effects:
        """Publish a change of a segment's state. See `spi.RemoteLogMetadata`."""
        assert change.state != SegmentState.COPY_STARTED, "a new copy is added"
        where = TopicIdPartition(change.topic_id, change.partition)
        return self._publish(where, update_record(change), then, now_ms)

    def put_partition_delete(
        self, change: PartitionDelete, then: Published, now_ms: int
    ) -> Effects:
        """Publish a change of a partition's deletion. See `spi.RemoteLogMetadata`."""
        where = TopicIdPartition(change.topic_id, change.partition)
        return self._publish(where, delete_record(change), then, now_ms)

    def _publish(
        self, where: TopicIdPartition, record: Message, then: Published, now_ms: int
    ) -> Effects:
        if not self.is_initialised:
            return then(NOT_READY, now_ms)
        partition = self.partition_of(where)
        self._consume(partition)
        batch = build_batch([NewRecord(None, encode(record), now_ms)])
        return [
            Append(
                topic_partition=TopicPartition(REMOTE_LOG_METADATA_TOPIC, partition),
                batch=batch,
                then=partial(self._appended, partition, then),
            )
        ]

    def _appended(
        self, partition: int, then: Published, result: Appended | KafkaError, now_ms: int
    ) -> Effects:
        if isinstance(result, KafkaError):
            return then(result, now_ms)
        consumed = self._consume(partition)
        consumed.waiting.append((result.last_offset, then))
        consumed.waiting.sort(key=lambda entry: entry[0])
        effects = self._ask([partition], now_ms) + self.poll(partition, now_ms)
        if any(waiting is then for _, waiting in consumed.waiting):
            effects.append(
                SetTimer(
                    key=("tier-metadata", "wait", partition, result.last_offset),
                    at_ms=now_ms + self._settings.metadata_consume_wait_ms,
                    then=partial(self._overdue, partition, then),
                )
            )
        return effects

    def _release(self, partition: int, consumed: Consumed, now_ms: int) -> Effects:
        """Call back the publishes whose records are applied."""
        done = [entry for entry in consumed.waiting if entry[0] < consumed.next_offset]
        consumed.waiting = [e for e in consumed.waiting if e[0] >= consumed.next_offset]
        effects: Effects = []
        for offset, then in done:
            effects.append(CancelTimer(key=("tier-metadata", "wait", partition, offset)))
            is_dropped = self._dropped.pop((partition, offset), False) is None
            effects += then(_DROPPED if is_dropped else None, now_ms)
        return effects

    def _overdue(self, partition: int, then: Published, now_ms: int) -> Effects:
        consumed = self._consumed[partition]
        if all(waiting is not then for _, waiting in consumed.waiting):
            return []
        consumed.waiting = [entry for entry in consumed.waiting if entry[1] is not then]
        return then(_LATE, now_ms)

    # ---------------------------------------------------------------------------------- questions

    def is_ready(self, where: TopicIdPartition) -> bool:
        """Whether queries about the partition can be answered (T22)."""
        return self._cache(where) is not None

    def withheld(self, where: TopicIdPartition) -> HistoryUnknown | None:
        """Return an error if nothing of a partition may be copied or deleted.

        An unreadable record may have been a COPY_FINISHED, so that a local segment can be deleted, or a
        deletion, so that it must not.
        """
        partition = self.partition_of(where)
        consumed = self._consumed.get(partition)
        return None if consumed is None else self._unknown(partition, consumed)

    def _unknown(self, partition: int, consumed: Consumed) -> HistoryUnknown | None:
        if consumed.damage is not None:
            return HistoryUnknown(
                f"{UNREADABLE}: a copy of it is damaged, so nothing of this partition is copied or deleted",
                metadata_partition=f"{REMOTE_LOG_METADATA_TOPIC}-{partition}",
                next_offset=consumed.next_offset,
                remedy="let another replica lead it, and have the damaged copy fetched anew",
            )
        if not consumed.unreadable.spans:
            return None
        span = consumed.unreadable.first_not_in(self._feed.given_up(partition))
        if span is None:
            return None
        key = f"firnline.remote.log.metadata.given.up={partition}:{span[0]}-{span[1]}"
        return HistoryUnknown(
            f"{UNREADABLE}, so nothing of this partition is copied or deleted",
            metadata_partition=f"{REMOTE_LOG_METADATA_TOPIC}-{partition}",
            first_offset=span[0],
            last_offset=span[1],
            remedy=f"docs/OPERATIONS.md, {key}",
        )

    @property
    def unreadable_offsets(self) -> int:
        """The number of unreadable offsets that this node has skipped."""
        return sum(consumed.unreadable.offset_count for consumed in self._consumed.values())

    def lookup(
        self, where: TopicIdPartition, *, epoch: int, offset: int
    ) -> RemoteSegment | KafkaError | None:
        """Return the finished segment with `offset` of that leader epoch, if any."""
        cache = self._cache(where)
        return NOT_READY if cache is None else cache.lookup(epoch, offset)

    def highest_offset(self, where: TopicIdPartition, epoch: int) -> int | KafkaError | None:
        """Return the highest offset of that leader epoch that has ever been copied."""
        cache = self._cache(where)
        return NOT_READY if cache is None else cache.highest_offset(epoch)

    def segments(
        self, where: TopicIdPartition, epoch: int | None = None
    ) -> Sequence[RemoteSegment] | KafkaError:
        """Return all segments that are not deleted, or those of `epoch`, ascending by offset."""
        cache = self._cache(where)
        return NOT_READY if cache is None else cache.segments(epoch)

    def finished(
        self, where: TopicIdPartition, reaching: int = 0
    ) -> list[RemoteSegment] | KafkaError:
        """Return the finished segments that end at or above an offset, ascending by end offset."""
        cache = self._cache(where)
        return NOT_READY if cache is None else cache.finished(reaching)

    def unfinished(self, where: TopicIdPartition) -> list[RemoteSegment] | KafkaError:
        """Return the segments that are being copied or deleted, ascending by offset."""
        cache = self._cache(where)
        return NOT_READY if cache is None else cache.unfinished()

    def look(self, where: TopicIdPartition, since: Mark | None) -> Look | KafkaError:
        """Return the changes of finished segments. See `spi.RemoteLogMetadata`."""
        cache = self._cache(where)
        return NOT_READY if cache is None else cache.look(since)

    def totals(self, where: TopicIdPartition) -> Totals | KafkaError:
        """Return the totals of a partition, without a walk over its segments."""
        cache = self._cache(where)
        return NOT_READY if cache is None else cache.totals()

    def get(self, where: TopicIdPartition, segment_id: Uuid) -> RemoteSegment | None:
        """Return one segment, from the records applied so far."""
        consumed = self._consumed.get(self.partition_of(where))
        cache = consumed.caches.get(where) if consumed else None
        return cache.get(segment_id) if cache else None

    def was_deleted(self, where: TopicIdPartition, segment_id: Uuid) -> bool:
        """Whether the segment is one of the latest whose deletion is finished."""
        consumed = self._consumed.get(self.partition_of(where))
        cache = consumed.caches.get(where) if consumed else None
        return cache is not None and cache.was_deleted(segment_id)

    def has_history(self, where: TopicIdPartition) -> bool:
        """Whether there are applied records about the partition."""
        consumed = self._consumed.get(self.partition_of(where))
        return consumed is not None and where in consumed.topics

    def deletions(self) -> Sequence[PartitionDelete]:
        """Return the unfinished deletions in the metadata partitions that this node leads.

        And finished ones with new segments, of a leader that did not know of the deletion.
        """
        return [
            cache.delete
            for cache in self._led_caches().values()
            if cache.delete is not None
            and (cache.delete.state != DeleteState.FINISHED or cache.segment_count > 0)
        ]

    def undeleted(self) -> Sequence[tuple[TopicIdPartition, str]]:
        """Return (partition, topic name) of this node's partitions that are not marked for deletion.

        Those without a segment, too: they have a catalog.
        """
        named = (
            (where, cache, self._consumed[self.partition_of(where)].topics.get(where))
            for where, cache in self._led_caches().items()
        )
        return [
            (where, topic)
            for where, cache, topic in named
            if cache.delete is None and topic is not None
        ]

    def removes(self, where: TopicIdPartition) -> bool:
        """Whether this node has to carry out the deletion of the partition, and knows all of its metadata."""
        partition = self.partition_of(where)
        return self._feed.leads(partition) and self._knows_all(partition)

    def segments_to_remove(self, where: TopicIdPartition) -> Sequence[RemoteSegment] | KafkaError:
        """Return all segments of a partition, hosted here or not (T55)."""
        partition = self.partition_of(where)
        consumed = self._consumed.get(partition)
        if consumed is None or not self._knows_all(partition):
            return NOT_READY
        cache = consumed.caches.get(where)
        return cache.segments() if cache else []

    def delete_state(self, where: TopicIdPartition) -> DeleteState | None:
        """Return the state of the partition's deletion, from the records applied so far."""
        consumed = self._consumed.get(self.partition_of(where))
        cache = consumed.caches.get(where) if consumed else None
        return cache.delete_state if cache else None

    def _led_caches(self) -> dict[TopicIdPartition, MetadataCache]:
        return {
            where: cache
            for partition, consumed in self._consumed.items()
            if self._feed.leads(partition) and self._knows_all(partition)
            for where, cache in consumed.caches.items()
        }

    def _knows_all(self, partition: int) -> bool:
        """Whether everything is applied and readable: only then is anything removed."""
        consumed = self._consumed.get(partition)
        is_known = consumed is not None and self._unknown(partition, consumed) is None
        return is_known and self._is_caught_up(partition)

    def _is_caught_up(self, partition: int) -> bool:
        consumed = self._consumed.get(partition)
        bounds = self._feed.bounds(partition) if consumed else None
        if consumed is None or bounds is None or consumed.is_incomplete:
            return False
        return consumed.next_offset >= bounds[1]

    def _cache(self, where: TopicIdPartition) -> MetadataCache | None:
        """Return the segments of a partition, if they are complete."""
        target = self._targets.get(where)
        consumed = self._consumed.get(self.partition_of(where))
        if target is None or consumed is None:
            return None
        if consumed.next_offset < target or consumed.is_incomplete:
            return None
        return consumed.caches.setdefault(where, MetadataCache())
