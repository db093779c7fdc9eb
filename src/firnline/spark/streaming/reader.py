"""The reader of `spark.readStream.format("firnline")`. SPARK; imports PySpark.

Spark starts a process of Python for each run of a query and asks this reader there. So nothing that matters
may be known to the process alone: what a stream has read is in the offsets in Spark's checkpoint.
Executors get a copy of the reader that only reads. Source: PySpark's `DataSourceStreamReader`.
"""

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from firnline.base.errors import ConfigError
from firnline.base.ids import Uuid
from firnline.spark.access.advice import advised
from firnline.spark.access.tier import open_tier
from firnline.spark.brokers.cluster import NoAnswer, NotReached
from firnline.spark.gaps.causes import EXPLAIN, FAIL, is_refused, is_reported
from firnline.spark.log_lines import warn
from firnline.spark.options.brokers import BROKER, BrokerSettings
from firnline.spark.options.parse import EARLIEST, LATEST, Options
from firnline.spark.options.triggers import Triggers
from firnline.spark.planning.cut import Bounds, Cut, TopicCut
from firnline.spark.planning.plan import TailTask, Task
from firnline.spark.planning.scan import Plan, plan_read
from firnline.spark.schema import DataLoss, ReadSettings
from firnline.spark.streaming.admission import (
    Beginning,
    Loss,
    PartitionEnds,
    begin_after,
    doubtful,
    is_too_little,
    limited,
)
from firnline.spark.streaming.ends import Ends, ends_of
from firnline.spark.streaming.offsets import Key, StreamOffsets, by_topic, initial, parse
from firnline.stores.port import ObjectStore, RemoteStorageError, StoreRefused

_log = logging.getLogger(__name__)
T = TypeVar("T")
_ASK_AGAIN_S = 1.0
_MOVING = ("log_start", "end")
_SAID_MAX = 1_000
# Brokers or a store that may answer later. `StoreRefused` is one of the last, and will not.
_AWAY = (NoAnswer, NotReached, RemoteStorageError)


class TaskReader(Protocol):
    """Makes Spark partitions of tasks, and reads them."""

    how: ReadSettings

    def packed(self, tasks: list[Task | TailTask]) -> list[InputPartition]: ...

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]: ...


class FirnlineStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says which offsets the next micro-batch takes, and plans it. Not thread-safe.

    reader  of the same options; it reads the tasks
    """

    def __init__(self, options: Options, triggers: Triggers, reader: TaskReader) -> None:
        self._options, self._triggers, self._reader = options, triggers, reader
        for note in options.notes:
            warn(_log, "note about the options", note=note)
        self._store: ObjectStore | None = None
        self._ends: Ends | None = None
        self._has_target = False
        self._target: list[PartitionEnds] | None = None
        self._newest: list[PartitionEnds] = []
        self._starting: dict[Key, int] | None = None
        self._triggered_s: float | None = None
        self._said: set[str] = set()

    # ------------------------------------------------------------------------------- which offsets

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query; its numbers are in the end of the first micro-batch."""
        return initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one of the limits of the options. Spark knows only one, and hands it back."""
        triggers = self._triggers
        if triggers.max_offsets is not None:
            return ReadMaxRows(triggers.max_offsets)
        if triggers.max_bytes is not None:
            return ReadMaxBytes(triggers.max_bytes)
        if triggers.min_offsets is not None:
            return ReadMinRows(triggers.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix where the query ends.

        Spark does not say here whether the query is a new one, which would have to fail at once if nobody
        answers. `latestOffset` knows that, and asks then.
        """
        self._has_target = True
        with contextlib.suppress(*_AWAY):
            self._target = self._asked().now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the micro-batch that begins at `start` ends; `start` itself if there is nothing.

        Raises DataLoss for what the stream cannot read any more, and the errors of `plan_read`.
        """
        before = parse(start)
        starting = self._starts() if before is None else {}
        if self._has_target and self._target is None:
            self._target = self._now()
        self._newest = self._now() if self._target is None else self._target
        begin = self._begin(before, starting)
        ends = {
            one.key: max(one.end_offset, begin.offsets[one.key])
            for one in self._newest
            if one.key in begin.offsets
        }
        # A limit of the options does not count if Spark asks for everything.
        triggers = Triggers() if isinstance(limit, ReadAllAvailable) else self._triggers
        if self._target is None and is_too_little(
            triggers, begin.offsets, ends, waited_ms=self._waited_ms()
        ):
            return start
        ids = _ids(self._newest)

        def end_after(key: Key, low: int, high: int, size_bytes: int) -> int:
            return self._asked().end_after(ids[key[0]], key, low, high, size_bytes)

        ends = limited(triggers, begin.offsets, ends, end_after)
        if before is not None and before.ends == ends and before.ids == ids and not begin.fresh:
            return start
        self._triggered_s = time.monotonic()
        begins = {key: offset for key, offset in begin.offsets.items() if key in begin.fresh}
        epochs = _epochs(before, self._newest, ends)
        return StreamOffsets(ends, ids, begins, epochs).json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return what there was when Spark asked last, for the progress of the query."""
        newest = {one.key: one.end_offset for one in self._newest}
        return dict(by_topic(newest)) or None

    def _begin(self, before: StreamOffsets | None, starting: Mapping[Key, int]) -> Beginning:
        """Return where the micro-batch begins; raise or log what is lost."""
        if before is None:
            first = {
                # With a fixed end, the query may begin later than it ends.
                one.key: min(starting.get(one.key, one.log_start_offset), one.end_offset)
                for one in self._newest
            }
            return Beginning(first, frozenset(first), [])
        begin = begin_after(before, self._newest, self._forked(before))
        for loss in begin.losses:
            self._lose(loss)
        for topic, partition in sorted(begin.ahead):
            self._say(
                "the tier does not have yet what the stream has read; it waits for the tier",
                topic=topic, partition=partition, read=before.ends[topic, partition],
                advice=f"`firnline tier flush {topic}` copies what brokers have",
            )  # fmt: skip
        return begin

    def _forked(self, before: StreamOffsets) -> dict[Key, int]:
        """Return where each epoch up to which the stream has read ends, if there may be another history."""
        asked = doubtful(before, self._newest)
        if not asked:
            return {}
        return self._patiently(lambda: self._asked().forks(asked, self._newest))

    def _lose(self, loss: Loss) -> None:
        """Raise or log what the stream cannot read any more, as the options say."""
        options, why, facts = self._options, loss.problem.why, loss.problem.facts
        remedy = _remedy_of(options.on_gap)
        if not _selects(options, str(facts["topic"])):
            why = "the checkpoint has a topic that the query does not read"
            remedy = f"a checkpoint of its own, if this one is another query's; {remedy}"
        if options.on_gap is not None:
            facts = facts | {"cause": loss.cause, "onGap": options.on_gap}
        if is_refused(
            options.on_gap, fail_on_data_loss=options.fail_on_data_loss, cause=loss.cause
        ):
            raise DataLoss(why, **facts, remedy=remedy)
        if is_reported(options.on_gap, loss.cause):
            self._say(why, **facts)

    def _say(self, message: str, **fields: object) -> None:
        """Log a warning once: Spark asks a stream that waits up to 100 times a second.

        The ends of a log that moves meanwhile do not make it another warning.
        """
        text = (
            f"{message} { {name: value for name, value in fields.items() if name not in _MOVING} }"
        )
        if text not in self._said:
            if len(self._said) >= _SAID_MAX:
                self._said.clear()
            self._said.add(text)
            warn(_log, message, **fields)

    def _starts(self) -> dict[Key, int]:
        """Return where a new query begins: once, whatever is written until its first micro-batch."""
        if self._starting is None:
            self._starting = self._asked().starting()
        return self._starting

    def _waited_ms(self) -> int | None:
        if self._triggered_s is None:
            return None
        return int((time.monotonic() - self._triggered_s) * 1000)

    # ------------------------------------------------------------------------------- the plan

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the micro-batch from `start` to `end`, the same one each time."""
        if start == end:
            return []
        last = parse(end)
        if last is None:
            return []
        ids = last.ids
        if not ids:  # an end of the official source
            ids = {one.topic: one.topic_id for one in self._now()}
        begins = self._begins(parse(start), last, ids)
        topics: dict[str, dict[int, Bounds]] = {}
        for key, high in last.ends.items():
            low = begins[key]
            if low < high:
                epoch = last.epochs.get(key, -1)
                topics.setdefault(key[0], {})[key[1]] = Bounds(low, high, low, epoch)
        absent = sorted(set(topics) - set(ids))
        if absent:
            raise DataLoss(
                "a topic of the stream is gone", topic=", ".join(absent), remedy=_remedy_of(None)
            )
        cut = Cut(
            {topic: TopicCut(ids[topic], row) for topic, row in topics.items()},
            self._options.read_committed,
        )
        return self._reader.packed(self._planned(cut).tasks) if topics else []

    def _begins(
        self, first: StreamOffsets | None, last: StreamOffsets, ids: Mapping[str, Uuid]
    ) -> dict[Key, int]:
        """Return where a micro-batch begins in each partition of its end."""
        found = dict(last.begins)
        missing = []
        for key in last.ends:
            if key in found:
                continue
            known = None if first is None else first.ends.get(key)
            if known is None:
                missing.append(key)
            else:
                found[key] = known
        if missing:  # the end is one of the official source
            if first is None and self._options.starting != EARLIEST:
                raise ConfigError(
                    "the checkpoint does not say where its first micro-batch begins: let the source"
                    " that began it complete it, or start with another checkpoint"
                )
            there = {one.key: one.log_start_offset for one in self._now()}
            found |= {key: there.get(key, 0) for key in missing}
        return found

    def _planned(self, cut: Cut) -> Plan:
        options = self._options._replace(
            topics=tuple(cut.topics), pattern=None, assigned=None,
            starting=EARLIEST, ending=LATEST, as_of=cut, notes=(),
        )  # fmt: skip
        try:
            return self._plan(options)
        except ConfigError:
            if options.fail_on_data_loss:
                raise
        # A topic was deleted after the end of the micro-batch was written to the checkpoint.
        ids = {one.topic: one.topic_id for one in self._now()}
        kept = {t: each for t, each in cut.topics.items() if ids.get(t) == each.topic_id}
        for topic in sorted(set(cut.topics) - set(kept)):
            warn(_log, "a topic of the stream is gone", topic=topic)
        if not kept:
            return Plan([], Cut({}, cut.read_committed))
        options = options._replace(topics=tuple(kept), as_of=cut._replace(topics=kept))
        return self._plan(options)

    def _plan(self, options: Options) -> Plan:
        """Plan what is left of the offsets; DataLoss, with what to do, unless a loss is allowed."""

        def plan(chosen: Options) -> Plan:
            columns = self._reader.how.columns
            return self._patiently(lambda: plan_read(self._opened(), chosen, columns=columns))

        try:
            return plan(options)
        except DataLoss as loss:
            if options.fail_on_data_loss or options.on_gap is not None:
                remedy = _remedy_of(options.on_gap)
                raise DataLoss(loss.why, **{**loss.facts, "remedy": remedy}) from None
        # Rows of two histories are no cut, but the stream goes on: what it leaves out is said.
        return plan(options._replace(on_gap=EXPLAIN))

    # ------------------------------------------------------------------------------- the rest

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield RecordBatches. Runs on executors."""
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark keeps what a stream has read."""

    def stop(self) -> None:
        """Close the store."""
        if self._store is not None:
            self._store.close()

    def _now(self) -> list[PartitionEnds]:
        return self._patiently(self._asked().now)

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask; while no broker answers, or the store fails, ask again, as long as a task waits for a leader.

        So a stream outlives brokers that restart, and a store that is away. Raises the last error.
        """
        wait_s = (self._options.brokers or BrokerSettings("")).poll_timeout_ms / 1000
        began_s, is_said = time.monotonic(), False
        while True:
            try:
                with advised(self._options.tier_uri):
                    return ask()
            except StoreRefused:  # to ask again does not help
                raise
            except _AWAY as problem:
                if time.monotonic() - began_s >= wait_s:
                    raise
                if not is_said:
                    warn(
                        _log, "brokers or the tier do not answer; the stream asks again",
                        for_s=wait_s, problem=problem,
                    )  # fmt: skip
                is_said = True
            time.sleep(_ASK_AGAIN_S)

    def _asked(self) -> Ends:
        if self._ends is None:
            self._ends = ends_of(self._opened(), self._options)
        return self._ends

    def _opened(self) -> ObjectStore | None:
        options = self._options
        if options.read_from == BROKER:
            return None
        if self._store is None:
            self._store = open_tier(options.tier_uri, options.store_settings)
        return self._store


def _ids(there: Sequence[PartitionEnds]) -> dict[str, Uuid]:
    return {one.topic: one.topic_id for one in there}


def _epochs(
    before: StreamOffsets | None, there: Sequence[PartitionEnds], ends: Mapping[Key, int]
) -> dict[Key, int]:
    """Return a leader epoch for the end of each partition, where one is known.

    What ends above all that there is now was read before, when there was more.
    """
    known = {} if before is None else before.epochs
    found = {
        one.key: one.leader_epoch if ends[one.key] <= one.end_offset else known.get(one.key, -1)
        for one in there
        if one.key in ends
    }
    return {key: epoch for key, epoch in found.items() if epoch >= 0}


def _selects(options: Options, topic: str) -> bool:
    """Whether the options name a topic, which may not exist."""
    if options.pattern is not None:
        return re.search(options.pattern, topic) is not None
    return topic in (options.topics if options.assigned is None else options.assigned)


def _remedy_of(on_gap: str | None) -> str:
    """Return what to do about a loss that ends a stream."""
    if on_gap == FAIL:
        return "onGap=explain goes on, and says what it leaves out; a loss needs failOnDataLoss=false too"
    return "failOnDataLoss=false goes on without what is lost, and the log says what that is"
