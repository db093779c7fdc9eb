"""Produce: appends the batches of one request and decides when to answer it. PURE.

Each partition has its own outcome, and errors are values: a bad batch never prevents the append of another
partition. The order of events is: check the partition and the batch, compress the batch again if its codec
differs from the topic's `compression.type`, append, then wait for what `acks` demands.

acks=0 and acks=1 wait for no follower. acks=all waits until every high watermark has passed its batch. Where
`firnline.acks.fsync` applies, the answer also waits for a sync. A delayed Produce ends with the last of
these events, with a change of leader, or with REQUEST_TIMED_OUT; the appended records stay in the log.

Compressing again takes a millisecond for some 30 KiB. Threads do it for any batch larger than a few KiB. That
connection waits meanwhile, as in Apache Kafka, so that a producer's batches keep their order. Leadership is
checked at the append. Source: spec C13; rel-R13; design 'Durable acks'; decision 0030, KIP-390.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Literal

from firnline.base.background import AwaitThread
from firnline.base.effects import Appended, CancelTimer, Effects, Flush, SetTimer
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC, SYSTEM_TOPICS
from firnline.base.ports import File
from firnline.base.units import KIB, MIB
from firnline.log.log import Log
from firnline.records.batch import COMPRESSION_MASK, TRANSACTIONAL_MASK
from firnline.records.compression import GZIP, LZ4, USUAL_LEVELS, ZSTD
from firnline.records.recompress import Target, recompress
from firnline.records.validate import BatchLimits
from firnline.replica.partition import ACKS_ALL, Partition

# Indexes of the fields in a BatchHeader.
_ATTRIBUTES, _RECORD_COUNT = 5, 12
# Who sent the batch: a client, another broker (as far as the listener shows), or a coordinator of this node.
Origin = Literal["client", "broker", "coordinator"]
Outcome = Appended | KafkaError
# Position of the low byte of a batch's attributes.
_ATTRIBUTES_AT = 22
# Batches up to this size are compressed on the event loop: 6 us with snappy, 0.3 ms with gzip (measured). A
# trip to a thread and back costs as much. For a batch that arrives compressed the limit is half of this.
_SMALL_BYTES = 4 * KIB
# What a thread compresses, and the loop appends, before others get their turn. A batch of a kilobyte may
# become a mebibyte in its topic's codec.
_BATCHES_PER_TURN = 8
_MADE_BYTES_PER_TURN = MIB
# The partition or the error of its lookup; and its batch, which is writable, or None if null on the wire.
Write = tuple[Partition | KafkaError, bytearray | memoryview | None]
_Job = tuple[int, Partition, Target, BatchLimits]
ProduceCallback = Callable[[list[Outcome], int], Effects]
# The compressed batches or their errors: a prefix of the batches that the thread was given.
Compression = AwaitThread[list[bytearray | KafkaError]]


class Producing:
    """Appends batches of clients and of this node's coordinators."""

    __slots__ = ("_is_for_brokers", "_on_storage_error", "_serial")

    def __init__(
        self,
        on_storage_error: Callable[[Partition, int], Effects],
        is_for_brokers: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`on_storage_error(partition, now_ms)` is called for each partition whose files failed.

        is_for_brokers  whether other brokers connect to the listener of that name
        """
        self._serial = 0
        self._is_for_brokers = is_for_brokers
        self._on_storage_error = on_storage_error

    def origin_at(self, listener: str) -> Origin:
        """Return who sends requests to that listener, as far as one can tell without authentication."""
        return "broker" if self._is_for_brokers(listener) else "client"

    def append_checked(
        self,
        partition: Partition,
        batch: memoryview,
        header: tuple[int, ...],
        acks: int,
        completed: Effects,
        now_ms: int,
    ) -> Outcome | None:
        """Append the one batch of a client's request. The caller has checked its shape and CRC.

        `header` has the batch's fields. Effects of delayed fetches go into `completed`. The caller calls
        `await_answer` next if the answer has to wait for a sync or for followers. None: not the common case,
        and nothing was done.
        """
        attributes = header[_ATTRIBUTES]
        codec = partition.log.settings.stored_codec
        if (
            attributes & TRANSACTIONAL_MASK
            or (codec is not None and attributes & COMPRESSION_MASK != codec)
            or partition.topic_partition.topic in SYSTEM_TOPICS
        ):
            return None
        traffic = partition.traffic
        traffic.produces += 1
        if not partition.is_alone or partition.refusal or partition.fetch_waiters.waiting:
            return self._append(partition, batch, acks, "client", completed, now_ms, header)
        outcome = partition.append(batch, acks, now_ms, "client", header)
        if type(outcome) is Appended:
            traffic.bytes_in += len(batch)
            traffic.messages_in += header[_RECORD_COUNT]
        else:
            completed += self._refused(partition, outcome, len(batch), now_ms)
        return outcome

    def await_answer(
        self,
        partition: Partition,
        outcome: Appended,
        acks: int,
        until_ms: int,
        answer: ProduceCallback,
        now_ms: int,
    ) -> Effects:
        """Call `answer` with the outcome once `acks` is satisfied."""
        flushes = (0,) if partition.needs_flush(acks) else ()
        commits = acks == ACKS_ALL and not partition.is_committed(outcome.last_offset + 1)
        pending = _Pending([outcome], answer, self._on_storage_error)
        pending.add(((partition, None),))
        effects = self._wait(pending, flushes, (0,) if commits else (), until_ms, now_ms)
        return effects if pending.left else effects + pending.answer(pending.outcomes, now_ms)

    def report_if_offline(self, partition: Partition, now_ms: int) -> Effects:
        """Report the partition if the append took it offline."""
        return self._on_storage_error(partition, now_ms) if partition.is_offline else []

    def produce(
        self,
        writes: Sequence[Write],
        *,
        acks: int,
        timeout_ms: int,
        answer: ProduceCallback,
        now_ms: int,
        origin: Origin = "client",
    ) -> Effects:
        """Append `writes`. Call `answer(outcomes, now_ms)`, in the same order, once `acks` is satisfied.

        The batches are stored unchanged. Batches of clients may have to be compressed again:
        they go through `produce_in_slices`.

        acks        0, 1 or -1; anything else is INVALID_REQUIRED_ACKS for every partition
        timeout_ms  how long acks=all waits for followers before REQUEST_TIMED_OUT
        """
        if acks not in (0, 1, ACKS_ALL):
            return answer([_BAD_ACKS] * len(writes), now_ms)
        outcomes: list[Outcome] = []
        completed, flushes, commits = self._append_all(writes, outcomes, acks, origin, now_ms)
        if not flushes and not commits:
            effects = answer(outcomes, now_ms)
            return effects + completed if completed else effects
        pending = _Pending(outcomes, answer, self._on_storage_error)
        pending.add(writes)
        waits = self._wait(pending, flushes, commits, now_ms + timeout_ms, now_ms)
        if not pending.left:
            return completed + pending.answer(outcomes, now_ms)
        return completed + waits

    def produce_in_slices(
        self,
        slices: Iterable[list[Write]],
        *,
        acks: int,
        timeout_ms: int,
        answer: ProduceCallback,
        now_ms: int,
        origin: Origin = "client",
    ) -> Generator[Effects | Compression, int, Effects]:
        """Do the same as `produce` for a client, one of `slices` at a time.

        Batches in the wrong codec are compressed first, by threads if they are large. Waiters are registered
        right after each slice's append, so that no event between two slices is missed. Each list is emptied
        when it is done.
        """
        outcomes: list[Outcome] = []
        pending = _Pending(outcomes, answer, self._on_storage_error)
        pending.left = 1  # no answer before the last slice
        until_ms = now_ms + timeout_ms
        for writes in slices:
            if acks not in (0, 1, ACKS_ALL):
                pending.add(writes)
                outcomes += [_BAD_ACKS] * len(writes)
                continue
            while writes:
                again = Recompression(writes, now_ms)
                if again and not again.compress_small():
                    compression = again.for_thread()
                    now_ms = yield compression
                    ready = again.finished(compression)
                else:
                    ready = writes[:]
                del writes[: len(ready)]
                pending.add(ready)
                completed, flushes, commits = self._append_all(
                    ready, outcomes, acks, origin, now_ms
                )
                ready.clear()  # others are served next, and may reuse the receive buffer of these views
                now_ms = yield completed + self._wait(pending, flushes, commits, until_ms, now_ms)
        return pending.one_less(now_ms)

    def _append_all(
        self,
        writes: Sequence[Write],
        outcomes: list[Outcome],
        acks: int,
        origin: Origin,
        now_ms: int,
    ) -> tuple[Effects, list[int], list[int]]:
        """Append `writes` and add their outcomes.

        Returns the effects of completed fetches, and the indexes of the outcomes that wait for a sync and
        for the high watermark.
        """
        completed: Effects = []
        flushes: list[int] = []
        commits: list[int] = []
        for index, (partition, batch) in enumerate(writes, len(outcomes)):
            if type(partition) is KafkaError:
                outcomes.append(partition)
                continue
            assert isinstance(partition, Partition)
            partition.traffic.produces += 1
            if batch is None or not batch:
                outcomes.append(_EMPTY)
                continue
            if origin != "coordinator":
                refusal = _write_error(partition.topic_partition.topic, origin)
                if refusal is not None:
                    outcomes.append(refusal)
                    continue
                if len(batch) > _ATTRIBUTES_AT and batch[_ATTRIBUTES_AT] & TRANSACTIONAL_MASK:
                    outcomes.append(_NO_TRANSACTION)
                    continue
            outcome = self._append(partition, batch, acks, origin, completed, now_ms)
            outcomes.append(outcome)
            if acks == 0 or type(outcome) is KafkaError:
                continue
            if partition.needs_flush(acks):
                flushes.append(index)
            if acks == ACKS_ALL and not partition.is_committed(outcome.last_offset + 1):  # type: ignore[union-attr]
                commits.append(index)
        return completed, flushes, commits

    def _append(
        self,
        partition: Partition,
        batch: bytearray | memoryview,
        acks: int,
        origin: Origin,
        completed: Effects,
        now_ms: int,
        header: tuple[int, ...] | None = None,
    ) -> Outcome:
        """Append the batch. The effects of the delayed fetches that it completes go into `completed`."""
        validated_as: Literal["client", "coordinator"] = "client"
        if origin == "coordinator":
            validated_as = origin
        traffic = partition.traffic
        if partition.refusal is not None:
            return partition.refusal
        if partition.is_alone and not partition.fetch_waiters:
            outcome = partition.append(batch, acks, now_ms, validated_as, header)
        else:
            log = partition.log
            stable, high = log.last_stable_offset, log.high_watermark
            outcome = partition.append(batch, acks, now_ms, validated_as, header)
            completed += partition.grown(len(batch), stable, high, now_ms)
        if type(outcome) is Appended:
            traffic.bytes_in += len(batch)
            traffic.messages_in += outcome.last_offset - outcome.base_offset + 1
        else:
            completed += self._refused(partition, outcome, len(batch), now_ms)
        return outcome

    def _refused(
        self, partition: Partition, outcome: Outcome, size_bytes: int, now_ms: int
    ) -> Effects:
        """Count a batch that was too large; report the partition if the append took it offline."""
        if isinstance(outcome, KafkaError) and outcome.code in _TOO_LARGE:
            partition.traffic.bytes_rejected += size_bytes
        return self.report_if_offline(partition, now_ms)

    def _wait(
        self,
        pending: "_Pending",
        flushes: Sequence[int],
        commits: Sequence[int],
        until_ms: int,
        now_ms: int,
    ) -> Effects:
        """Start waiting for syncs and commits; `pending.left` counts them."""
        files: list[File] = []
        ends: list[_End] = []
        effects: Effects = []
        for index in flushes:
            partition = pending.partition(index)
            dirty, failed = pending.dirty_files(index, now_ms)
            effects += failed
            if dirty:
                files += dirty
                ends.append((index, partition.log.log_end_offset, partition.leader_epoch))
        commits = [index for index in commits if type(pending.outcomes[index]) is not KafkaError]
        pending.left += len(commits) + (1 if files else 0)
        if commits:
            pending.uncommitted.update(dict.fromkeys(commits))
            for index in commits:
                pending.await_commit(index)
            if pending.timer is None:
                self._serial += 1
                pending.timer = ("produce", self._serial)
                effects.append(SetTimer(key=pending.timer, at_ms=until_ms, then=pending.timed_out))
        if files:
            effects.append(
                Flush(files=files, then=lambda error, now: pending.flushed(ends, error, now))
            )
        return effects


# Index of the write, log end offset that the sync covers, and leader epoch at the append.
_End = tuple[int, int, int]


class _Pending:
    """A delayed Produce. `left` counts the events it still waits for; -1 once it is answered."""

    __slots__ = (
        "_on_storage_error",
        "_partitions",
        "answer",
        "left",
        "outcomes",
        "timer",
        "uncommitted",
    )

    def __init__(
        self,
        outcomes: list[Outcome],
        answer: ProduceCallback,
        on_storage_error: Callable[[Partition, int], Effects],
    ) -> None:
        self._partitions: list[Partition | KafkaError] = []
        self.outcomes = outcomes
        self.answer = answer
        self.left = 0
        self.timer: tuple[str, int] | None = None
        self.uncommitted: dict[int, None] = {}
        self._on_storage_error = on_storage_error

    def add(self, writes: Sequence[Write]) -> None:
        """Add the partitions of more outcomes.

        It does not keep the batches: they are views of a buffer that is reused before the answer.
        """
        self._partitions += [partition for partition, _ in writes]

    def partition(self, index: int) -> Partition:
        found = self._partitions[index]
        assert isinstance(found, Partition)
        return found

    def dirty_files(self, index: int, now_ms: int) -> tuple[Sequence[File], Effects]:
        """Return the files to sync for an outcome, and the effects of a storage error.

        After an error nothing shows that the records are on disk. The write fails, and the producer retries.
        """
        partition = self.partition(index)
        try:
            return partition.dirty_files(), []
        except StorageError as problem:
            self.outcomes[index] = _STORAGE_FAILED
            if problem.is_passing or partition.is_offline:
                return (), []
            partition.go_offline(problem)
        return (), self._on_storage_error(partition, now_ms)

    def await_commit(self, index: int) -> None:
        outcome = self.outcomes[index]
        assert isinstance(outcome, Appended)
        self.partition(index).produce_waiters.add(
            outcome.last_offset + 1, lambda now_ms: self._committed(index, now_ms)
        )

    def _committed(self, index: int, now_ms: int) -> Effects:
        """Handle that the high watermark passed the batch, or that the partition changed."""
        if index not in self.uncommitted:
            return []  # timed out meanwhile
        del self.uncommitted[index]
        partition = self.partition(index)
        error = partition.commit_error()
        if error is not None:
            self.outcomes[index] = error
            return self.one_less(now_ms)
        return self._kept(index, partition, now_ms)

    def _kept(self, index: int, partition: Partition, now_ms: int) -> Effects:
        """Finish a committed write. If only this replica is left in the ISR, the records must be on disk."""
        outcome = self.outcomes[index]
        assert isinstance(outcome, Appended)
        end = (index, partition.log.log_end_offset, partition.leader_epoch)
        is_durable = partition.log.recovery_point > outcome.last_offset
        if is_durable or not partition.needs_flush(ACKS_ALL):
            return self.one_less(now_ms)
        files, effects = self.dirty_files(index, now_ms)
        if not files:
            return effects + self.one_less(now_ms)
        return [Flush(files=files, then=lambda error, now: self.flushed([end], error, now))]

    def flushed(self, ends: "list[_End]", error: StorageError | None, now_ms: int) -> Effects:
        """Handle the end of a sync. After a failed sync a retry proves nothing: the files are lost (rel-P9).

        If the leader epoch has changed meanwhile, a new leader may have another lineage, so the write fails.
        """
        effects: Effects = []
        for index, end_offset, leader_epoch in ends:
            partition = self.partition(index)
            if error is None and partition.note_flushed(end_offset):
                if partition.leader_epoch != leader_epoch:
                    self.outcomes[index] = partition.refusal or _EPOCH_OVER
                continue
            self.outcomes[index] = _STORAGE_FAILED
            is_asked_again = error is not None and error.has_lost_nothing
            if not (partition.is_offline or is_asked_again):
                partition.go_offline(error)
                effects += self._on_storage_error(partition, now_ms)
        return effects + self.one_less(now_ms)

    def timed_out(self, now_ms: int) -> Effects:
        """Fail the writes that followers did not confirm in time. Their records stay in the log."""
        self.timer = None
        late = list(self.uncommitted)
        self.uncommitted.clear()
        effects: Effects = []
        for index in late:
            self.outcomes[index] = _TIMED_OUT
            effects += self.one_less(now_ms)
        return effects

    def one_less(self, now_ms: int) -> Effects:
        assert self.left > 0
        self.left -= 1
        if self.left:
            return []
        self.left = -1
        effects = self.answer(self.outcomes, now_ms)
        if self.timer is not None:
            return [CancelTimer(key=self.timer), *effects]
        return effects


def is_in_its_codec(log: Log, attributes: int) -> bool:
    """Whether the log stores a batch with these attributes without compressing it again."""
    return log.settings.stored_codec in (None, attributes & COMPRESSION_MASK)


class Recompression:
    """The batches among `writes` that have to be compressed again. Falsy if there are none.

    `compress_small` compresses a single small batch at once and puts the result into `writes`. Else
    `for_thread` returns work for a thread, and `finished` then returns the finished writes. A result is a
    batch or an error.
    """

    __slots__ = ("_jobs", "_now_ms", "_writes")

    def __init__(self, writes: list[Write], now_ms: int) -> None:
        self._writes = writes
        self._now_ms = now_ms
        self._jobs: list[_Job] = []
        for place, (partition, batch) in enumerate(writes):
            if isinstance(partition, KafkaError) or batch is None or len(batch) <= _ATTRIBUTES_AT:
                continue
            attributes = batch[_ATTRIBUTES_AT]
            if (
                is_in_its_codec(partition.log, attributes)
                or attributes & TRANSACTIONAL_MASK
                or partition.refusal is not None
                or partition.topic_partition.topic in SYSTEM_TOPICS
            ):
                continue
            self._jobs.append(
                (place, partition, _target(partition.log), partition.log.settings.limits)
            )

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def compress_small(self) -> bool:
        """Compress the batch at once if it is a single small one. False: nothing was done."""
        if len(self._jobs) != 1:
            return False
        place, partition, target, limits = self._jobs[0]
        batch = self._writes[place][1]
        assert batch is not None
        is_open = not batch[_ATTRIBUTES_AT] & COMPRESSION_MASK
        if len(batch) > (_SMALL_BYTES if is_open else _SMALL_BYTES // 2) or not _is_quick(target):
            return False
        found = recompress(batch, target, limits, self._now_ms, opened_bytes_max=_SMALL_BYTES)
        if isinstance(found, KafkaError):
            return (
                False  # it may only be too large when decompressed: a thread reports the real error
            )
        self._writes[place] = partition, found
        return True

    def for_thread(self) -> Compression:
        """Return the work for a thread. Call `finished` with it when it is done.

        This copies the batches out of the receive buffer, which is reused meanwhile.
        """
        for place, (partition, batch) in enumerate(self._writes):
            if isinstance(batch, memoryview):
                self._writes[place] = partition, bytearray(batch)
        asked = [
            (self._writes[place][1], target, limits)
            for place, _, target, limits in self._jobs[:_BATCHES_PER_TURN]
        ]
        now_ms = self._now_ms

        def work() -> list[bytearray | KafkaError]:
            made: list[bytearray | KafkaError] = []
            size = 0
            for batch, target, limits in asked:
                assert batch is not None
                found = recompress(batch, target, limits, now_ms)
                made.append(found)
                size += 0 if isinstance(found, KafkaError) else len(found)
                if size >= _MADE_BYTES_PER_TURN:
                    break
            return made

        return AwaitThread("compress batches", "codec", work)

    def finished(self, done: Compression) -> list[Write]:
        """Return the first writes, with the thread's results. The other writes are for another turn."""
        results = done.result
        if isinstance(results, KafkaError):
            results = [_BUSY] * len(self._jobs)
        elif isinstance(results, Exception):
            raise results
        assert results is not None, "it is done"
        ready = self._writes[: (*(job[0] for job in self._jobs), len(self._writes))[len(results)]]
        for (place, partition, _, _), result in zip(self._jobs, results, strict=False):
            if isinstance(result, KafkaError):
                ready[place] = result, None
            else:
                ready[place] = partition, result
        return ready


def _target(log: Log) -> Target:
    codec, config = log.settings.stored_codec, log.config
    assert codec is not None, "a log without a codec of its own compresses nothing again"
    levels = {
        GZIP: config.compression_gzip_level,
        LZ4: config.compression_lz4_level,
        ZSTD: config.compression_zstd_level,
    }
    return Target(codec, levels.get(codec))


def _is_quick(target: Target) -> bool:
    """Whether the level is not one of those that take many times as long."""
    limit = USUAL_LEVELS.get(target.codec)
    return limit is None or target.level is None or target.level <= limit


def _write_error(topic: str, origin: Origin) -> KafkaError | None:
    """Return why `origin` may not write to the topic. Only the system itself writes to system topics."""
    if topic not in SYSTEM_TOPICS:
        return None
    if topic == REMOTE_LOG_METADATA_TOPIC:
        return None if origin == "broker" else _BROKERS_ALONE
    return _INTERNAL


_TOO_LARGE = (Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE)
_BAD_ACKS = KafkaError(Code.INVALID_REQUIRED_ACKS, "acks must be 0, 1 or -1")
_INTERNAL = KafkaError(Code.INVALID_TOPIC_EXCEPTION, "clients do not write to internal topics")
_BROKERS_ALONE = KafkaError(
    Code.INVALID_TOPIC_EXCEPTION,
    "only brokers write to this topic, through the inter-broker listener",
)
# There is no transaction coordinator yet. A transaction would never end, and would block every
# read_committed consumer (reliability d 37).
_NO_TRANSACTION = KafkaError(Code.INVALID_TXN_STATE, "no transaction was begun for this partition")
_EMPTY = KafkaError(Code.INVALID_RECORD, "a Produce partition holds exactly one record batch")
_STORAGE_FAILED = KafkaError(Code.KAFKA_STORAGE_ERROR, "the log directory failed")
_EPOCH_OVER = KafkaError(
    Code.NOT_LEADER_OR_FOLLOWER, "the leader epoch changed before the sync ended"
)
_TIMED_OUT = KafkaError(Code.REQUEST_TIMED_OUT, "followers did not confirm in time")
_BUSY = KafkaError(Code.REQUEST_TIMED_OUT, "too many batches wait for compression: retry")
