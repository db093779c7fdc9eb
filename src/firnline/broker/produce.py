"""Appends the batches of a Produce request, and decides when it may be answered. PURE.

The order of events: append to each partition; answer the Fetches that the new records complete; then wait for
what `acks` and `firnline.acks.fsync` require, and answer. acks=0 and acks=1 wait for nothing, or for a sync.
acks=all waits until every partition is committed, and synced where one replica holds the records alone.
Errors are values, one for each partition: a bad batch never prevents the append to another partition.

A batch in another codec than its topic's `compression.type` is decompressed and compressed again, which takes
a millisecond for about 30 KiB. Threads do it for batches of more than a few KiB, while other connections go
on. The connection of the request waits, as in Apache Kafka, so the batches of a producer keep their order.
Leadership is checked at the append. Source: spec C13; rel-R13; design 'Durable acks'; decision 0030, KIP-390.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Literal

from firnline.base.background import Beside
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

_ATTRIBUTES = 5  # their index in a BatchHeader
# Any client; another broker, as far as its listener tells; a coordinator of this node.
Origin = Literal["client", "broker", "coordinator"]
Outcome = Appended | KafkaError
# The position of the low byte of a batch's attributes.
_ATTRIBUTES_AT = 22
# Batches up to this size are compressed on the event loop: 6 us with snappy, 0.3 ms with gzip (measured). A
# thread would take no less. A batch that is compressed already may have half of this size.
_SMALL_BYTES = 4 * KIB
# A thread compresses this much before it serves other requests, and the loop appends as much in one step. A
# batch of a kilobyte may become one of a mebibyte in its topic's codec.
_BATCHES_PER_TURN = 8
_MADE_BYTES_PER_TURN = MIB
# The partition or the error of its lookup, and its batch: writable, None if it was null on the wire.
Write = tuple[Partition | KafkaError, bytearray | memoryview | None]
_Job = tuple[int, Partition, Target, BatchLimits]
ProduceCallback = Callable[[list[Outcome], int], Effects]
# The compressed batches, or their errors, in order; perhaps fewer than requested.
Compression = Beside[list[bytearray | KafkaError]]


class Producing:
    """Appends for clients and for the coordinators of this node."""

    __slots__ = ("_is_for_brokers", "_on_storage_error", "_serial")

    def __init__(
        self,
        on_storage_error: Callable[[Partition, int], Effects],
        is_for_brokers: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Configure the appends.

        on_storage_error  called as (partition, now_ms) for each partition whose files failed
        is_for_brokers    whether other brokers connect to the listener of a name
        """
        self._serial = 0
        self._is_for_brokers = is_for_brokers
        self._on_storage_error = on_storage_error

    def origin_at(self, listener: str) -> Origin:
        """Return the origin of requests on a listener, as far as it is known without authentication."""
        return "broker" if self._is_for_brokers(listener) else "client"

    def append_checked(
        self,
        partition: Partition,
        batch: memoryview,
        header: tuple[int, ...],
        acks: int,
        woken: Effects,
        now_ms: int,
    ) -> Outcome | None:
        """Append the one batch of a client's request. Its shape and CRC are checked; `header` has its fields.

        Adds the effects for other requests to `woken`. Call `await_answer` afterwards if the response has to
        wait for a sync or for followers. None: nothing was done, and the request needs `produce_in_slices`.
        """
        attributes = header[_ATTRIBUTES]
        codec = partition.log.settings.stored_codec
        if (
            attributes & TRANSACTIONAL_MASK
            or (codec is not None and attributes & COMPRESSION_MASK != codec)
            or partition.topic_partition.topic in SYSTEM_TOPICS
        ):
            return None
        if not partition.is_alone or partition.refusal or partition.fetch_waiters.waiting:
            return self._append(partition, batch, acks, "client", woken, now_ms, header)
        outcome = partition.append(batch, acks, now_ms, "client", header)
        if type(outcome) is KafkaError:
            woken += self.effects_of_failure(partition, now_ms)
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

    def effects_of_failure(self, partition: Partition, now_ms: int) -> Effects:
        """Return the effects of a failed append that took the partition offline; none if it did not."""
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
        """Append `writes`; call `answer(outcomes, now_ms)`, in their order, once `acks` is satisfied.

        The batches are stored as they are. `produce_in_slices` takes those that may need another codec.

        acks        0, 1 or -1; any other value is INVALID_REQUIRED_ACKS for every partition
        timeout_ms  how long acks=all waits for followers before REQUEST_TIMED_OUT
        """
        if acks not in (0, 1, ACKS_ALL):
            return answer([_BAD_ACKS] * len(writes), now_ms)
        outcomes: list[Outcome] = []
        woken, flushes, commits = self._append_all(writes, outcomes, acks, origin, now_ms)
        if not flushes and not commits:
            effects = answer(outcomes, now_ms)
            return effects + woken if woken else effects
        pending = _Pending(outcomes, answer, self._on_storage_error)
        pending.add(writes)
        waits = self._wait(pending, flushes, commits, now_ms + timeout_ms, now_ms)
        if not pending.left:
            return woken + pending.answer(outcomes, now_ms)
        return woken + waits

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
        """As `produce` for a client; `slices` are looked up and appended one after the other.

        Batches that need another codec are compressed first, by threads if they are large. After each slice
        the request waits for what the slice appended, so that it misses nothing between two slices. Each list
        is emptied after its slice.
        """
        outcomes: list[Outcome] = []
        pending = _Pending(outcomes, answer, self._on_storage_error)
        pending.left = 1  # no response before the last slice
        until_ms = now_ms + timeout_ms
        for writes in slices:
            if acks not in (0, 1, ACKS_ALL):
                pending.add(writes)
                outcomes += [_BAD_ACKS] * len(writes)
                continue
            while writes:
                again = Recompression(writes, now_ms)
                if again and not again.here():
                    beside = again.beside()
                    now_ms = yield beside
                    ready = again.placed(beside)
                else:
                    ready = writes[:]
                del writes[: len(ready)]
                pending.add(ready)
                woken, flushes, commits = self._append_all(ready, outcomes, acks, origin, now_ms)
                ready.clear()  # keep no view of the receive buffer while other requests run
                now_ms = yield woken + self._wait(pending, flushes, commits, until_ms, now_ms)
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

        Returns the effects of completed Fetches, and the indexes of the outcomes that wait for a sync and of
        those that wait for a commit.
        """
        woken: Effects = []
        flushes: list[int] = []
        commits: list[int] = []
        for index, (partition, batch) in enumerate(writes, len(outcomes)):
            if type(partition) is KafkaError:
                outcomes.append(partition)
                continue
            assert isinstance(partition, Partition)
            if batch is None or not batch:
                outcomes.append(_EMPTY)
                continue
            if origin != "coordinator":
                refusal = _not_theirs(partition.topic_partition.topic, origin)
                if refusal is not None:
                    outcomes.append(refusal)
                    continue
                if len(batch) > _ATTRIBUTES_AT and batch[_ATTRIBUTES_AT] & TRANSACTIONAL_MASK:
                    outcomes.append(_NO_TRANSACTION)
                    continue
            outcome = self._append(partition, batch, acks, origin, woken, now_ms)
            outcomes.append(outcome)
            if acks == 0 or type(outcome) is KafkaError:
                continue
            if partition.needs_flush(acks):
                flushes.append(index)
            if acks == ACKS_ALL and not partition.is_committed(outcome.last_offset + 1):  # type: ignore[union-attr]
                commits.append(index)
        return woken, flushes, commits

    def _append(
        self,
        partition: Partition,
        batch: bytearray | memoryview,
        acks: int,
        origin: Origin,
        woken: Effects,
        now_ms: int,
        header: tuple[int, ...] | None = None,
    ) -> Outcome:
        """Append a batch; add the effects of the Fetches that it completes to `woken`."""
        judged_as: Literal["client", "coordinator"] = "client"
        if origin == "coordinator":
            judged_as = origin
        if partition.refusal is not None:
            return partition.refusal
        if partition.is_alone and not partition.fetch_waiters:
            outcome = partition.append(batch, acks, now_ms, judged_as, header)
        else:
            log = partition.log
            stable, high = log.last_stable_offset, log.high_watermark
            outcome = partition.append(batch, acks, now_ms, judged_as, header)
            woken += partition.grown(len(batch), stable, high, now_ms)
        if type(outcome) is KafkaError:
            woken += self.effects_of_failure(partition, now_ms)
        return outcome

    def _wait(
        self,
        pending: "_Pending",
        flushes: Sequence[int],
        commits: Sequence[int],
        until_ms: int,
        now_ms: int,
    ) -> Effects:
        """Wait for syncs and commits; `pending.left` counts them."""
        files: list[File] = []
        ends: list[_End] = []
        effects: Effects = []
        for index in flushes:
            partition = pending.partition(index)
            dirty, told = pending.dirty_files(index, now_ms)
            effects += told
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


# The index of a write, the end of the log that is synced for it, and the leader epoch of its append.
_End = tuple[int, int, int]


class _Pending:
    """A Produce that waits. `left` counts the syncs and commits that are outstanding; -1 after the answer."""

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
        """Add the partitions of more writes.

        Not the batches, which are views of a buffer that is used again before the answer.
        """
        self._partitions += [partition for partition, _ in writes]

    def partition(self, index: int) -> Partition:
        found = self._partitions[index]
        assert isinstance(found, Partition)
        return found

    def dirty_files(self, index: int, now_ms: int) -> tuple[Sequence[File], Effects]:
        """Return the files to sync for an outcome, and the effects if they cannot be determined.

        In that case the outcome is an error, as the records may not survive; the producer sends them again.
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
        """The high watermark has passed the append, or the partition has changed: set the outcome."""
        if index not in self.uncommitted:
            return []  # timed out already
        del self.uncommitted[index]
        partition = self.partition(index)
        error = partition.commit_error()
        if error is not None:
            self.outcomes[index] = error
            return self.one_less(now_ms)
        return self._kept(index, partition, now_ms)

    def _kept(self, index: int, partition: Partition, now_ms: int) -> Effects:
        """The append is committed. Sync it first if the ISR has shrunk to this node meanwhile."""
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
        """A sync has ended. After a failure the files are lost, whatever a second sync returns (rel-P9).

        If the leader epoch has ended, the new leader may have another lineage: the outcome is an error.
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
        """Followers did not confirm in time. The records stay in the log; the producer may retry."""
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
    """Whether the log stores a batch with these attributes as it came."""
    return log.settings.stored_codec in (None, attributes & COMPRESSION_MASK)


class Recompression:
    """The batches of `writes` that have to be compressed again. False if there are none.

    `here` compresses one small batch at once, and puts the result into `writes`. Otherwise threads compress
    some batches (`beside`), and `placed` returns the writes that are ready. A result is a batch, or an error.
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

    def here(self) -> bool:
        """Compress the one batch if it is small; False: nothing was done."""
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
            return False  # larger than expected, or an error: a thread repeats it
        self._writes[place] = partition, found
        return True

    def beside(self) -> Compression:
        """Return the work for threads; call `placed` with it afterwards.

        Copies the batches, because the receive buffer is used again meanwhile.
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

        return Beside("compress batches", "codec", work)

    def placed(self, done: Compression) -> list[Write]:
        """Return the writes that are ready, with their results. The rest needs another round."""
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
    assert codec is not None, "a log that keeps the producers' codec compresses nothing again"
    levels = {
        GZIP: config.compression_gzip_level,
        LZ4: config.compression_lz4_level,
        ZSTD: config.compression_zstd_level,
    }
    return Target(codec, levels.get(codec))


def _is_quick(target: Target) -> bool:
    """Whether the level is not one of those that take many times as long as the default."""
    usual = USUAL_LEVELS.get(target.codec)
    return usual is None or target.level is None or target.level <= usual


def _not_theirs(topic: str, origin: Origin) -> KafkaError | None:
    """Refuse writes of clients to the topics whose records this system acts on."""
    if topic not in SYSTEM_TOPICS:
        return None
    if topic == REMOTE_LOG_METADATA_TOPIC:
        return None if origin == "broker" else _BROKERS_ALONE
    return _INTERNAL


_BAD_ACKS = KafkaError(Code.INVALID_REQUIRED_ACKS, "acks must be 0, 1 or -1")
_INTERNAL = KafkaError(Code.INVALID_TOPIC_EXCEPTION, "clients do not write to internal topics")
_BROKERS_ALONE = KafkaError(
    Code.INVALID_TOPIC_EXCEPTION,
    "only brokers write to this topic, on the listener for brokers",
)
# There is no transaction coordinator yet. A transaction would never end, and would block every consumer that
# reads committed records (reliability d 37).
_NO_TRANSACTION = KafkaError(Code.INVALID_TXN_STATE, "no transaction was begun for this partition")
_EMPTY = KafkaError(
    Code.INVALID_RECORD, "a partition of a Produce request has exactly one record batch"
)
_STORAGE_FAILED = KafkaError(Code.KAFKA_STORAGE_ERROR, "the log directory failed")
_EPOCH_OVER = KafkaError(Code.NOT_LEADER_OR_FOLLOWER, "another leader epoch began meanwhile")
_TIMED_OUT = KafkaError(Code.REQUEST_TIMED_OUT, "followers did not confirm in time")
_BUSY = KafkaError(Code.REQUEST_TIMED_OUT, "too many batches wait to be compressed: send it again")
