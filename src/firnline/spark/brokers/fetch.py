"""Executor side: offsets that the tier does not have -> RecordBatches, from the partition's leader. SPARK.

While leaders move or do not answer, a task tries again until it has got nothing for `poll_timeout_ms`. What
arrives is checked: the CRC of each batch, the order of offsets, and leader epochs, which show that an unclean
election replaced records. Source: KIP-74, KIP-98 (aborted transactions), KIP-101, KIP-516 (topic ids).
"""

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from firnline.base.errors import Code, FirnlineError, KafkaError, ProtocolError
from firnline.base.units import INT64_MAX
from firnline.client.admin import EARLIEST, Admin
from firnline.client.connection import Connection, Unreachable
from firnline.client.wire import refuse
from firnline.formats.transaction_index import AbortedTxn
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.records.batch import CONTROL_MASK
from firnline.spark.brokers.cluster import PASSING, NoAnswer
from firnline.spark.decode import decode_frames
from firnline.spark.frames import Frames, check_crcs, find_frames
from firnline.spark.gaps.causes import (
    EXPIRED_OR_DELETED,
    LOST,
    TOPIC_DELETED,
    TRUNCATED,
    is_refused,
    is_reported,
)
from firnline.spark.gaps.holes import Account, Refusal, hole_at_leader
from firnline.spark.log_lines import warn_of
from firnline.spark.options.brokers import BrokerSettings
from firnline.spark.planning.plan import TailTask
from firnline.spark.schema import BROKER, CorruptSegment, DataLoss, OpenTxn, ReadSettings, Wanted

_MAX_WAIT_MS = 500
_PAUSE_S = 0.1
_GONE = (Code.UNKNOWN_TOPIC_ID, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INCONSISTENT_TOPIC_ID)
# A broker may not know yet of a topic or of its new leader. After so many such answers, the topic is gone.
_GONE_ANSWERS = 10
_log = logging.getLogger(__name__)


class Fetched(NamedTuple):
    """What one answer has of a partition.

    aborted             producer ids and first offsets of transactions that were aborted
    last_stable_offset  records at or above it may be of transactions that are not over
    """

    data: memoryview
    aborted: tuple[tuple[int, int], ...]
    last_stable_offset: int


class Answer(NamedTuple):
    """Batches that the leader gave when it was asked for offset `at`; the first may begin below it.

    last_stable_offset  as in `Fetched`
    """

    at: int
    data: memoryview
    frames: Frames
    aborted: tuple[AbortedTxn, ...]
    last_stable_offset: int


class Gone(NamedTuple):
    """Offsets [start, end) that the leader does not have any more, and what it said."""

    start_offset: int
    end_offset: int
    cause: str
    detail: str
    why: str
    log_start_offset: int


def read_tail(
    task: TailTask, how: ReadSettings, settings: BrokerSettings, *, start_offset: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task in offset order, from `start_offset` on if it is given.

    Raises DataLoss for offsets that the partition no longer has, CorruptSegment for bytes that are damaged,
    NoAnswer if nothing arrives for too long, and KafkaError for a refusal that lasts.
    """
    at = task.start_offset if start_offset is None else start_offset
    wanted = _wanted(task, how, at)
    account = None if how.on_gap is None else Account(wanted, hole_at_leader(task))
    refusal = Refusal(how, task.topic, task.partition)
    for answer in answers(task, how, settings, at):
        if isinstance(answer, Gone):
            _leave_out(task, how, answer)
            if account is not None:
                account.at = answer.end_offset
            continue
        wanted = _wanted(task, how, answer.at, answer)
        if how.verify_crc:
            check_crcs(answer.data, answer.frames, wanted)
        if account is not None:
            refusal.note(account.note(answer.data, answer.frames, wanted))
        yield from decode_frames(answer.data, answer.frames, wanted)
    refusal.report()


def answers(
    task: TailTask, how: ReadSettings, settings: BrokerSettings, at: int
) -> Iterator["Answer | Gone"]:
    """Yield what the leader has from offset `at` to the end of a task, checked, and what it no longer has.

    Errors as of `read_tail`, except DataLoss for what is `Gone`.
    """
    with _Leader(task, how, settings) as leader:
        while at < task.end_offset:
            try:
                fetched = leader.fetch(at)
            except _OutOfRange as problem:
                gone = _gone(task, at, problem)
                yield gone
                at = gone.end_offset
                continue
            frames = find_frames(fetched.data, source=task.source)
            if not len(frames.begins):
                raise _damage("an answer has no complete batch", task, at, size=len(fetched.data))
            check_answer(frames, task, at)
            aborted = aborted_ranges(fetched.aborted, frames)
            yield Answer(at, fetched.data, frames, aborted, fetched.last_stable_offset)
            at = int(frames.heads["base_offset"][-1] + frames.heads["last_offset_delta"][-1]) + 1


def _wanted(task: TailTask, how: ReadSettings, at: int, answer: "Answer | None" = None) -> Wanted:
    """Return what to decode of an answer, from offset `at` on."""
    stable = -1 if answer is None else answer.last_stable_offset
    return Wanted(
        task.topic,
        task.partition,
        how.columns,
        start_offset=at,
        end_offset=task.end_offset,
        aborted=() if answer is None else answer.aborted,
        verify_crc=False,  # done for every batch
        chunk_bytes=how.chunk_bytes,
        source=task.source,
        segment_id=None,
        unfinished=(OpenTxn(stable),) if stable >= 0 else (),
        keeps_aborted=how.keeps_aborted,
        read_from=BROKER,
        decoder=how.decoder,
    )


def aborted_ranges(aborted: Sequence[tuple[int, int]], frames: Frames) -> tuple[AbortedTxn, ...]:
    """Return aborted transactions with the offset of their markers, as far as `frames` has these.

    aborted  producer ids and first offsets. A producer has one transaction at a time, so the next marker of
             the same producer ends it. Without one, it goes on beyond these batches.
    """
    if not aborted:
        return ()
    is_control = (frames.column("attributes") & CONTROL_MASK) != 0
    markers = frames.column("base_offset")[is_control]
    producers = frames.column("producer_id")[is_control]
    found = []
    for producer_id, first_offset in aborted:
        its = markers[(producers == producer_id) & (markers >= first_offset)]
        last = int(its[0]) if len(its) else INT64_MAX
        found.append(AbortedTxn(producer_id, first_offset, last, last))
    return tuple(found)


def check_answer(frames: Frames, task: TailTask, at: int) -> None:
    """Compare the batches of an answer with each other and with what was asked for.

    Raises CorruptSegment for batches out of order, DataLoss for those of another history.
    """
    base = frames.column("base_offset")
    last = base + frames.column("last_offset_delta")
    wrong = np.flatnonzero((last < base) | (base < np.concatenate(([base[0]], last[:-1] + 1))))
    if len(wrong) or last[-1] < at:  # batches below it do no harm
        number = int(wrong[0]) if len(wrong) else 0
        raise _damage("a batch is not where it belongs", task, int(base[number]), expected=at)
    if task.leader_epoch < 0:
        return
    inside = base < task.end_offset
    later = np.flatnonzero(inside & (frames.column("leader_epoch") > task.leader_epoch))
    if len(later):
        raise DataLoss(
            "an unclean election has replaced records since the read was planned",
            topic=task.topic, partition=task.partition, from_offset=int(base[later[0]]),
            leader_epoch=int(frames.heads["leader_epoch"][later[0]]), planned=task.leader_epoch,
        )  # fmt: skip


def _damage(why: str, task: TailTask, offset: int, **facts: object) -> CorruptSegment:
    return CorruptSegment(
        why, topic=task.topic, partition=task.partition, broker=task.source, offset=offset, **facts
    )


def _gone(task: TailTask, at: int, problem: "_OutOfRange") -> Gone:
    """Return what a refused offset says: the log begins later, or ends before it, or is another topic's."""
    start, end = problem.log_start_offset, task.end_offset
    if start > at:
        detail = f"the log start moved to {start} after the read was planned"
        return Gone(at, min(start, end), EXPIRED_OR_DELETED, detail, problem.why, start)
    if start < 0:
        cause = TOPIC_DELETED if problem.is_topic_gone else LOST
        return Gone(at, end, cause, problem.why, problem.why, start)
    detail = "the leader's log ends below: an unclean election has shortened it since the read was planned"
    return Gone(at, end, TRUNCATED, detail, problem.why, start)


def _leave_out(task: TailTask, how: ReadSettings, gone: Gone) -> None:
    """Raise DataLoss, or log it, as the options say."""
    loss = DataLoss(
        gone.why, topic=task.topic, partition=task.partition, from_offset=gone.start_offset,
        to_offset=task.end_offset, log_start=gone.log_start_offset,
    )  # fmt: skip
    if is_refused(how.on_gap, fail_on_data_loss=how.fail_on_data_loss, cause=gone.cause):
        raise loss
    if is_reported(how.on_gap, gone.cause):
        warn_of(_log, loss)


class _OutOfRange(Exception):
    """The leader does not have an offset. `log_start_offset` is -1 if it does not say what it has."""

    def __init__(
        self, why: str, log_start_offset: int = -1, *, is_topic_gone: bool = False
    ) -> None:
        super().__init__(why)
        self.why, self.log_start_offset = why, log_start_offset
        self.is_topic_gone = is_topic_gone


class _Leader:
    """Fetches from whichever broker leads the partition."""

    def __init__(self, task: TailTask, how: ReadSettings, settings: BrokerSettings) -> None:
        self._task, self._how, self._settings = task, how, settings
        self._admin: Admin | None = None
        self._connection: Connection | None = None
        # A fetch of committed records also lists the aborted transactions.
        self._reads_committed = not how.keeps_aborted or "transaction" in how.columns
        self._unstable_from = -1
        self._gone = 0

    def __enter__(self) -> "_Leader":
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def fetch(self, offset: int) -> Fetched:
        """Return batches from `offset` on, at least one; waits for them."""
        problem: FirnlineError = FirnlineError("the leader sends no records")
        deadline_s = time.monotonic() + self._settings.poll_timeout_ms / 1000
        while True:
            try:
                found = self._fetch_once(offset)
                if found is not None:
                    return found
                problem = FirnlineError("the leader sends no records")
            except (Unreachable, ProtocolError) as silent:
                problem = silent
                self._leave()
            except KafkaError as refused:
                if refused.code not in PASSING:
                    raise
                problem = refused
                self._leave()
            if time.monotonic() >= deadline_s:
                task = self._task
                raise NoAnswer(
                    "the partition's leader gave no records within kafkaConsumer.pollTimeoutMs",
                    topic=task.topic, partition=task.partition, offset=offset,
                    timeout_ms=self._settings.poll_timeout_ms, problem=problem,
                )  # fmt: skip
            if self._connection is None:
                time.sleep(_PAUSE_S)

    def _fetch_once(self, offset: int) -> Fetched | None:
        """Return what one request gives; None for no complete batch."""
        task = self._task
        if self._connection is None:
            self._connection = self._find_leader()
        leader = self._connection
        is_committed = self._reads_committed and not 0 <= self._unstable_from <= offset
        row = FetchPartition(
            partition=task.partition,
            fetch_offset=offset,
            partition_max_bytes=self._how.window_bytes,
        )
        request = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self._how.window_bytes,
            isolation_level=int(is_committed),
            topics=[FetchTopic(topic=task.topic, topic_id=task.topic_id, partitions=[row])],
        )
        timeout_s = self._settings.timeout_s + _MAX_WAIT_MS / 1000
        answer = leader.ask(request, timeout_s=timeout_s)
        what = f"partition {task.partition} of topic {task.topic}"
        if answer.error_code:
            refuse(answer.error_code, None, what)
        (part,) = answer.responses[0].partitions
        if part.error_code == Code.OFFSET_OUT_OF_RANGE:
            raise _OutOfRange("the partition does not have these offsets", self._log_start())
        self._refuse_gone(part.error_code in _GONE)
        refuse(part.error_code, None, what)
        return self._take(part, offset, is_committed=is_committed)

    def _take(self, part: Any, offset: int, *, is_committed: bool) -> Fetched | None:
        if not part.records:
            stable = part.last_stable_offset
            if is_committed and self._how.keeps_aborted and 0 <= stable <= offset:
                # From here on, transactions are not over: read what there is.
                self._unstable_from = offset
            return None
        aborted = tuple((t.producer_id, t.first_offset) for t in part.aborted_transactions or ())
        return Fetched(memoryview(part.records), aborted, self._unstable_from)

    def _find_leader(self) -> Connection:
        task = self._task
        if self._admin is None:
            self._admin = Admin(self._settings.servers, timeout_s=self._settings.timeout_s)
        answer = self._admin.metadata([task.topic])
        (topic,) = answer.topics
        is_gone = topic.error_code in _GONE
        self._refuse_gone(is_gone or (not topic.error_code and topic.topic_id != task.topic_id))
        refuse(topic.error_code, None, f"topic {task.topic}")
        addresses = {row.node_id: (row.host, row.port) for row in answer.brokers}
        for part in topic.partitions:
            if part.partition_index == task.partition and part.leader_id in addresses:
                return self._admin.node(part.leader_id, *addresses[part.leader_id])
        raise KafkaError(
            Code.LEADER_NOT_AVAILABLE, f"partition {task.partition} of topic {task.topic}"
        )

    def _log_start(self) -> int:
        """Return the partition's log start offset; -1 if the leader does not say it."""
        task = self._task
        assert self._admin is not None
        assert self._connection is not None
        found = self._admin.offsets(self._connection, task.topic, [task.partition], EARLIEST)
        return found.get(task.partition, -1)

    def _refuse_gone(self, is_gone: bool) -> None:
        self._gone = self._gone + 1 if is_gone else 0
        if self._gone >= _GONE_ANSWERS:
            why = "the topic is gone, or is another one of this name now"
            raise _OutOfRange(why, is_topic_gone=True)
        if is_gone:
            raise KafkaError(Code.LEADER_NOT_AVAILABLE, f"topic {self._task.topic}")

    def _leave(self) -> None:
        """Close the connections; the next fetch looks for the leader again."""
        if self._admin is not None:
            self._admin.close()
        self._admin = self._connection = None
