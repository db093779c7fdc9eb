"""Reads from the tier: records by offset, the first record of a timestamp, auxiliary state. PURE.

The steps of a read: find the segment by (epoch, offset) in the metadata; the position in its index; fetch a
range from the store; check the CRC of complete batches, up to the offset at which the segment leaves the
log's lineage (rel-T9); continue in the next segment of the lineage if records are missing. The event loop
only decides; workers move all bytes. Errors are values, one code for each cause (T59):

    metadata not loaded            9 REPLICA_NOT_AVAILABLE
    no segment, or it expired      1 OFFSET_OUT_OF_RANGE
    metadata may lack segments    56 KAFKA_STORAGE_ERROR
    store fails after retries     56 KAFKA_STORAGE_ERROR
    store hangs                   56 KAFKA_STORAGE_ERROR, to the second Fetch that waits (late_reads)
    object missing                -1 UNKNOWN_SERVER_ERROR
    damaged bytes                  2 CORRUPT_MESSAGE
    read pool full                78 OFFSET_NOT_AVAILABLE

Source: spec 3.14-3.16, T35-T41, T58; F14-F17.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from firnline.base.effects import CancelTimer, Effects, SetTimer
from firnline.base.errors import Code, FirnlineError, KafkaError, WorkTimedOut
from firnline.base.ids import TopicIdPartition, Uuid, uuid_text
from firnline.base.log_lines.tier import REMOTE_SEGMENT_DAMAGED
from firnline.base.slices import Records
from firnline.formats.transaction_index import AbortedTxn
from firnline.stores.port import ObjectMissing
from firnline.tiered.circuits import StoreUnavailable
from firnline.tiered.hosted import Hosted, Services
from firnline.tiered.lineage import ranges, shared_end
from firnline.tiered.objects.aux_state import AuxState, fetch_aux_state
from firnline.tiered.objects.batches import Batches, Misled, find_timestamp, read_batches
from firnline.tiered.reads.aborted_search import AbortedSearch, OpenTransactions
from firnline.tiered.reads.index_cache import FOLLOWERS, IndexCache
from firnline.tiered.reads.indexes import SegmentIndexes
from firnline.tiered.reads.late_reads import LateReads
from firnline.tiered.reads.read_ahead import ReadAhead
from firnline.tiered.reads.read_ends import ReadEnds
from firnline.tiered.reads.shared_reads import RangeKey, SharedReads
from firnline.tiered.settings import store_timeout_ms
from firnline.tiered.spi import DamagedObject, RemoteSegment, as_error

READ_COMMITTED = 1
_WARNED_MAX = 1024


class RemoteLogReadResult(NamedTuple):
    """Complete batches from the tier; `aborted` is None for read_uncommitted."""

    records: Records
    aborted: Sequence[AbortedTxn] | None


class RemoteOffset(NamedTuple):
    """The first record at or after a timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


Read = Callable[[RemoteLogReadResult | KafkaError, int], Effects]
TimestampCallback = Callable[[RemoteOffset | KafkaError | None, int], Effects]
Built = Callable[[AuxState | KafkaError, int], Effects]


class RemoteReader:
    """All remote reads of the node. `is_distant`: whether to read ahead."""

    def __init__(self, services: Services, indexes: IndexCache, *, is_distant: bool) -> None:
        self.services = services
        self.indexes = indexes
        self.open_transactions = OpenTransactions(services)
        self.shared = SharedReads(services)
        self.late = LateReads()
        self.ends = ReadEnds()
        self.ahead = ReadAhead(services, indexes, self.shared, self.ends, is_distant=is_distant)
        self._reads: dict[Read, _OneRead] = {}  # those that are not answered, by their callback
        self._serial = 0
        self._warned: dict[Uuid, None] = {}  # damaged segments that are logged already

    def serial(self) -> int:
        """Return a number that no other read of this node has."""
        self._serial += 1
        return self._serial

    def read(
        self,
        hosted: Hosted,
        *,
        offset: int,
        max_bytes: int,
        isolation: int,
        then: Read,
        now_ms: int,
    ) -> Effects:
        """Read about `max_bytes` of complete batches, from the one with `offset` on, at least one."""
        services = self.services
        services.counters.add(hosted.topic, "fetch_requests")
        throttle_ms = services.fetch_rate.throttle_ms(now_ms)
        if throttle_ms:
            services.fetch_throttle.note(throttle_ms, now_ms)
            is_committed = isolation == READ_COMMITTED
            return then(RemoteLogReadResult(b"", [] if is_committed else None), now_ms)  # T38
        one = _OneRead(self, hosted, offset, max_bytes, isolation, partial(self._answer, then))
        self._reads[then] = one
        self.late.begin(one.place, now_ms)
        effects = one.begin(now_ms)
        return [*effects, *self._limit(one, then, now_ms)] if then in self._reads else effects

    def _limit(self, one: "_OneRead", then: Read, now_ms: int) -> Effects:
        """Where a Fetch that is repeated would wait longer than its answer may take, answer it in time."""
        wait_ms = self.services.settings.fetch_max_wait_ms
        at_ms = self.late.error_at_ms(one.place, wait_ms)
        if at_ms is None or not now_ms < at_ms < now_ms + wait_ms:
            return []
        one.timer = ("tier", "late read", self.serial())
        return [SetTimer(key=one.timer, at_ms=at_ms, then=partial(self.stop_read, then))]

    def _answer(self, then: Read, result: RemoteLogReadResult | KafkaError, now_ms: int) -> Effects:
        one = self._reads.pop(then, None)
        if one is None:
            return then(result, now_ms)
        self.late.answered(one.place)
        return [*one.cancel_timer(), *then(result, now_ms)]

    def stop_read(self, then: Read, now_ms: int) -> Effects:
        """The caller of the read with this callback does not wait any more.

        `then` is called only if the read has outlived an earlier Fetch, too: with the error for that.
        """
        one = self._reads.pop(then, None)
        if one is None:
            return []
        effects = [*one.cancel_timer(), *one.stop()]
        late_ms = self.late.error_at_ms(one.place, self.services.settings.fetch_max_wait_ms)
        self.late.left(one.place, now_ms)
        if late_ms is None or now_ms < late_ms:
            return effects
        self.services.counters.add(one.topic, "fetch_errors")
        return [*effects, *then(_TOO_LATE, now_ms)]

    def offset_for_timestamp(
        self, hosted: Hosted, timestamp_ms: int, then: TimestampCallback, now_ms: int
    ) -> Effects:
        """Find the first record at or after the timestamp; None if only local files can have it."""
        return _TimeSearch(self, hosted, timestamp_ms, then).next(now_ms)

    def aux_state(
        self, hosted: Hosted, *, epoch: int, offset: int, then: Built, now_ms: int
    ) -> Effects:
        """Fetch the leader epochs and the producer state at the end of the segment with `offset` (T30)."""
        services = self.services
        services.counters.add(hosted.topic, "aux_state_requests")
        segment = services.metadata.lookup(hosted.where, epoch=epoch, offset=offset)
        if isinstance(segment, KafkaError):
            return then(segment, now_ms)
        if segment is None:
            return then(KafkaError(Code.OFFSET_OUT_OF_RANGE, "no remote segment has it"), now_ms)
        return services.circuits.submit(
            "read",
            now_ms,
            name=f"auxiliary state of {segment.topic}-{segment.partition}",
            pool="index",
            work=partial(fetch_aux_state, services.storage, segment),
            then=partial(self._built, segment, then),
            owner=FOLLOWERS,
            run_timeout_ms=store_timeout_ms(),
        )

    def _built(
        self, segment: RemoteSegment, then: Built, result: AuxState | Exception, now_ms: int
    ) -> Effects:
        if isinstance(result, Exception):
            error = as_error(result)
            self.services.counters.add(segment.topic, "aux_state_errors")
            return [*self.warn(segment, error), *then(code_of(error), now_ms)]
        return then(result, now_ms)

    def warn(self, segment: RemoteSegment, error: FirnlineError) -> Effects:
        """Log a damaged segment, once, as clients retry."""
        if not isinstance(error, DamagedObject | ObjectMissing):
            return []
        if segment.segment_id in self._warned:
            return []
        if len(self._warned) >= _WARNED_MAX:
            self._warned.clear()
        self._warned[segment.segment_id] = None
        self.services.counters.add(segment.topic, "damaged_segments")
        return [
            REMOTE_SEGMENT_DAMAGED(
                topic=segment.topic,
                partition=segment.partition,
                segment_id=uuid_text(segment.segment_id),
                base_offset=segment.base_offset,
                end_offset=segment.end_offset,
                error=error,
            )
        ]


def code_of(error: FirnlineError) -> KafkaError:
    """Return the client's error for a failed remote read."""
    if isinstance(error, KafkaError):
        if error.code == Code.THROTTLING_QUOTA_EXCEEDED:
            return KafkaError(Code.OFFSET_NOT_AVAILABLE, "too many reads of the tier are waiting")
        return error
    if isinstance(error, ObjectMissing):
        return KafkaError(Code.UNKNOWN_SERVER_ERROR, "an object of the tier is missing")
    if isinstance(error, DamagedObject):
        return KafkaError(Code.CORRUPT_MESSAGE, "an object of the tier is damaged")
    return KafkaError(Code.KAFKA_STORAGE_ERROR, "the tier cannot be read now")


class _Attempts:
    """Retries within `remote.fetch.max.wait.ms`: after an outage with backoff, after damage once."""

    def __init__(self, reader: RemoteReader) -> None:
        self._reader = reader
        self._began_ms: int | None = None  # the first attempt, else the first failure
        self._attempt_ms: int | None = None  # the last attempt
        self._failures = 0
        self._has_refetched = False
        self._has_rebuilt = False

    def begin(self, now_ms: int) -> None:
        """A Fetch waits for an attempt that begins now."""
        self._attempt_ms = now_ms
        self._began_ms = now_ms if self._began_ms is None else self._began_ms

    def again(
        self,
        segment: RemoteSegment,
        error: FirnlineError,
        retry: Callable[[int], Effects],
        now_ms: int,
    ) -> Effects | None:
        """Return the effects of another attempt, or None if `error` has to be reported."""
        if isinstance(error, KafkaError | WorkTimedOut | StoreUnavailable):
            return None  # a read that timed out has taken longer than any fetch waits
        if isinstance(error, Misled) and not self._has_rebuilt:
            self._has_rebuilt = True
            self._reader.indexes.distrust(segment.segment_id)
            return retry(now_ms)
        if isinstance(error, DamagedObject | ObjectMissing):
            if self._has_refetched:
                return None
            self._has_refetched = True
            self._reader.indexes.remove(segment.segment_id)
            return retry(now_ms)
        self._failures += 1
        self._began_ms = now_ms if self._began_ms is None else self._began_ms
        services = self._reader.services
        limit_ms = services.settings.fetch_max_wait_ms
        wait_ms = min(services.backoff_ms(self._failures), limit_ms // 4)
        # Another attempt takes about as long as this one. If the Fetch does not wait for its end, this error
        # has to be reported now: otherwise the client gets an empty response, and repeats it at once.
        took_ms = 0 if self._attempt_ms is None else now_ms - self._attempt_ms
        if now_ms + wait_ms + took_ms - self._began_ms >= limit_ms:
            return None
        key = ("tier", "read", self._reader.serial())
        return [SetTimer(key=key, at_ms=now_ms + wait_ms, then=retry)]


class _OneRead:
    """The read of one partition of one Fetch."""

    def __init__(
        self,
        reader: RemoteReader,
        hosted: Hosted,
        offset: int,
        max_bytes: int,
        isolation: int,
        then: Read,
    ) -> None:
        self._reader = reader
        self._services = reader.services
        self._hosted = hosted
        self._wanted = self._offset = offset
        self._max_bytes = max_bytes
        self._isolation = isolation
        self._then = then
        self._attempts = _Attempts(reader)
        self._segment: RemoteSegment | None = None
        self._upto_offset = offset
        self._key: RangeKey | None = None  # of the range that it waits for
        self._is_stopped = False
        self.timer: tuple[str, str, int] | None = None  # ends it before its Fetch does

    @property
    def place(self) -> tuple[TopicIdPartition, int]:
        """The partition and the offset that the Fetch asks for."""
        return self._hosted.where, self._wanted

    @property
    def topic(self) -> str:
        return self._hosted.topic

    def cancel_timer(self) -> Effects:
        return [] if self.timer is None else [CancelTimer(key=self.timer)]

    def begin(self, now_ms: int) -> Effects:
        """Find the segment with the offset in this log's lineage."""
        hosted, log = self._hosted, self._hosted.log
        if self._is_stopped:
            return []
        self._attempts.begin(now_ms)
        if not log.log_start_offset <= self._offset < log.log_end_offset:
            return self._fail(_OUT_OF_RANGE, now_ms)
        epoch = log.epochs.epoch_at(self._offset)
        if epoch is None:
            is_lost = hosted.lineage_problem(self._services.metadata) is not None
            return self._fail(_UNEXPLAINED if is_lost else _OUT_OF_RANGE, now_ms)
        segment = self._services.metadata.lookup(hosted.where, epoch=epoch, offset=self._offset)
        if isinstance(segment, KafkaError):
            return self._fail(segment, now_ms)
        if segment is None:
            if self._offset > self._wanted:
                return self._answer(b"", self._offset, now_ms)
            is_gone = hosted.is_gone(self._offset, self._services.metadata)
            return self._fail(_OUT_OF_RANGE if is_gone else _UNEXPLAINED, now_ms)
        self._segment = segment
        self._upto_offset = shared_end(segment, log.epochs.entries(), self._offset)
        if self._upto_offset <= self._offset:
            return self._fail(_OUT_OF_RANGE, now_ms)
        key = self._key = RangeKey(segment.segment_id, self._offset, self._upto_offset)
        ahead = self._reader.ahead
        batches = ahead.take(segment.topic, key, self._max_bytes)
        if batches is not None:
            return self._came(batches, now_ms)
        if ahead.join(key, self._ahead_came, self._max_bytes):
            return []
        return self._reader.indexes.load(segment, self._indexed, now_ms)

    def stop(self) -> Effects:
        """Nobody waits for the result any more."""
        self._is_stopped = True
        if self._key is None:
            return []
        self._reader.ahead.leave(self._key, self._ahead_came)
        return self._reader.shared.leave(self._key, self._came)

    def _ahead_came(self, result: Batches | FirnlineError | None, now_ms: int) -> Effects:
        """The range that was being read ahead has come, or has to be read now."""
        assert self._segment is not None
        if result is None:
            return self._reader.indexes.load(self._segment, self._indexed, now_ms)
        return self._came(result, now_ms)

    def _indexed(self, result: SegmentIndexes | FirnlineError, now_ms: int) -> Effects:
        segment = self._segment
        assert segment is not None
        if self._is_stopped:
            return []
        if isinstance(result, FirnlineError):
            return self._retry_or_fail(result, now_ms)
        work = partial(
            read_batches,
            self._services.storage,
            segment,
            start=self._reader.ends.start_for(segment.segment_id, self._offset, result),
            offset=self._offset,
            upto_offset=self._upto_offset,
            max_bytes=self._max_bytes,
        )
        assert self._key is not None
        return self._reader.shared.read(
            self._key, segment.topic, work, self._max_bytes, self._came, now_ms
        )

    def _came(self, result: Batches | Exception, now_ms: int) -> Effects:
        self._key = None
        if isinstance(result, Exception):
            return self._retry_or_fail(as_error(result), now_ms)
        assert self._segment is not None
        self._reader.ends.note(self._segment.segment_id, result)
        data, end_offset, _ = result
        if not data:  # the segment ends before the offset: continue in the next one (T39)
            self._offset = self._upto_offset
            if self._offset >= self._hosted.log.local_log_start_offset:
                return self._answer(b"", self._offset, now_ms)
            return self.begin(now_ms)
        ahead = self._reader.ahead.answered(
            self._hosted, self._wanted, result, self._max_bytes, now_ms
        )
        return [*self._answer(data, end_offset, now_ms), *ahead]

    def _retry_or_fail(self, error: FirnlineError, now_ms: int) -> Effects:
        segment = self._segment
        assert segment is not None
        # If the segment expired during the read, the retry finds the offset below the log start (T59).
        again = self._attempts.again(segment, error, self.begin, now_ms)
        if again is not None:
            return again
        return [*self._reader.warn(segment, error), *self._fail(code_of(error), now_ms)]

    def _fail(self, error: KafkaError, now_ms: int) -> Effects:
        if error.code != Code.OFFSET_OUT_OF_RANGE:
            self._services.counters.add(self._hosted.topic, "fetch_errors")
        return self._then(error, now_ms)

    # -------------------------------------------------------------------- aborted transactions

    def _answer(self, data: bytes, end_offset: int, now_ms: int) -> Effects:
        if self._isolation != READ_COMMITTED:
            return self._then(RemoteLogReadResult(data, None), now_ms)
        if not data:
            return self._then(RemoteLogReadResult(data, []), now_ms)
        search = AbortedSearch(
            self._services,
            self._reader.indexes,
            self._reader.open_transactions,
            self._hosted,
            self._wanted,
            end_offset,
            partial(self._aborted_came, data),
            serial=self._reader.serial(),
        )
        return search.next(now_ms)

    def _aborted_came(
        self, data: bytes, result: Sequence[AbortedTxn] | FirnlineError, now_ms: int
    ) -> Effects:
        if self._is_stopped:
            return []
        if isinstance(result, FirnlineError):
            return self._fail(code_of(result), now_ms)
        return self._then(RemoteLogReadResult(data, result), now_ms)


class _TimeSearch:
    """Finds the first record at or after a timestamp, in finished segments of the lineage (3.16)."""

    def __init__(
        self, reader: RemoteReader, hosted: Hosted, timestamp_ms: int, then: TimestampCallback
    ) -> None:
        self._reader = reader
        self._hosted = hosted
        self._timestamp_ms = timestamp_ms
        self._then = then
        self._below = self._upto = hosted.log.log_start_offset
        self._attempts = _Attempts(reader)

    def next(self, now_ms: int) -> Effects:
        """Search the next segment that can have such a record."""
        log, metadata = self._hosted.log, self._reader.services.metadata
        finished = metadata.finished(self._hosted.where, self._below)
        if isinstance(finished, KafkaError):
            return self._then(finished, now_ms)
        # Skip all segments below the first that can have one.
        first = min(
            (s.base_offset for s in finished if s.max_timestamp_ms >= self._timestamp_ms),
            default=log.local_log_start_offset,
        )
        for segment, start_offset, end_offset in ranges(
            finished,
            log.epochs.entries(),
            start_offset=max(self._below, first),
            end_offset=log.local_log_start_offset,  # local files have the records from there on (X43)
        ):
            if segment.max_timestamp_ms >= self._timestamp_ms:
                if self._may_lack_a_segment(finished, start_offset):
                    return self._then(_UNEXPLAINED, now_ms)
                self._below, self._upto = start_offset, end_offset
                then = partial(self._indexed, segment)
                return self._reader.indexes.load(segment, then, now_ms)
        if self._may_lack_a_segment(finished, log.local_log_start_offset):
            return self._then(_UNEXPLAINED, now_ms)
        return self._then(None, now_ms)

    def _may_lack_a_segment(self, finished: Sequence[RemoteSegment], upto_offset: int) -> bool:
        """Whether the metadata may have lost a segment of the range that has not been searched.

        That segment may have an earlier record of the timestamp. `finished` ascends by end offset.
        """
        metadata = self._reader.services.metadata
        if self._hosted.is_leader and self._hosted.is_gone(self._below, metadata):
            return False  # of a leader it is known for all offsets at once: there is no need for a walk
        served_from = upto_offset
        for segment in reversed(finished):
            if segment.end_offset + 1 < served_from or served_from <= self._below:
                break
            served_from = min(served_from, segment.base_offset)
        if served_from <= self._below:
            return False
        return not self._hosted.is_gone(served_from - 1, metadata)

    def _indexed(
        self, segment: RemoteSegment, result: SegmentIndexes | FirnlineError, now_ms: int
    ) -> Effects:
        if isinstance(result, FirnlineError):
            return self._retry_or_fail(segment, result, now_ms)
        work = partial(
            find_timestamp,
            self._reader.services.storage,
            segment,
            start=result.start_for_time(self._timestamp_ms),
            timestamp_ms=self._timestamp_ms,
            from_offset=self._below,
            upto_offset=self._upto,
        )
        limit_ms = self._reader.services.settings.list_offsets_timeout_ms
        return self._reader.services.circuits.submit(
            "read",
            now_ms,
            name=f"time {self._timestamp_ms} in {segment.topic}-{segment.partition}",
            pool="read",
            work=work,
            then=partial(self._came, segment),
            # The request is answered by then, whatever is found.
            run_timeout_ms=limit_ms,
            queue_timeout_ms=limit_ms,
        )

    def _came(
        self, segment: RemoteSegment, result: tuple[int, int] | Exception | None, now_ms: int
    ) -> Effects:
        if isinstance(result, Exception):
            return self._retry_or_fail(segment, as_error(result), now_ms)
        if result is None:
            self._below = self._upto
            return self.next(now_ms)
        offset, timestamp_ms = result
        epoch = self._hosted.log.epochs.epoch_at(offset)
        return self._then(
            RemoteOffset(offset, timestamp_ms, -1 if epoch is None else epoch), now_ms
        )

    def _retry_or_fail(self, segment: RemoteSegment, error: FirnlineError, now_ms: int) -> Effects:
        again = self._attempts.again(segment, error, self.next, now_ms)
        if again is not None:
            return again
        return [*self._reader.warn(segment, error), *self._then(code_of(error), now_ms)]


_UNEXPLAINED = KafkaError(Code.KAFKA_STORAGE_ERROR, "the metadata of the tier may lack its segment")
_TOO_LATE = KafkaError(Code.KAFKA_STORAGE_ERROR, "the store of the tier does not answer in time")
_OUT_OF_RANGE = KafkaError(Code.OFFSET_OUT_OF_RANGE, "the offset is not in the log")
