"""Deletes the remote segments of deleted topics: the RemotePartitionRemover of KIP-405. PURE.

Theory of operation. It runs on the broker that leads the metadata partition of the deleted partition, and
needs no replica of it. After a crash it continues from the state in the metadata: MARKED -> STARTED -> every
segment -> the remaining objects -> FINISHED. Shipped Kafka deletes on the partition's leader, and leaks
objects if that crashes (T27). Source: KIP-405 'Topic deletion lifecycle'; T26, T54-T56.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import FirnlineError, KafkaError, StorageError, WorkTimedOut
from firnline.base.ids import TopicIdPartition, Uuid, uuid_text
from firnline.base.log_lines.tier import DELETED_TOPICS_REMOVED, REMOVAL_FAILS
from firnline.base.units import SECOND_MS
from firnline.tiered import coroutines
from firnline.tiered.circuits import StoreUnavailable
from firnline.tiered.coroutines import Run, Steps
from firnline.tiered.hosted import Services, TaskCallback
from firnline.tiered.objects.names import mark_deleted, sweep_partition
from firnline.tiered.objects.probe import Operation
from firnline.tiered.segment_removal import SegmentRemoval
from firnline.tiered.settings import store_timeout_ms
from firnline.tiered.spi import DeleteState, PartitionDelete, RemoteSegment, as_error

_TIMER = ("tier", "remover")
# Consecutive scans in which a topic must be unknown before its remote segments are deleted.
SCANS_BEFORE_REMOVAL = 2
# Partitions that are removed at a time: each waits for the metadata log and for the store most of the time.
REMOVED_AT_ONCE = 4
Outcome = Steps[FirnlineError | None]
# The leader of the metadata partition is behind its own log for a moment after each record.
_MARK_AGAIN_MS = SECOND_MS


class Remover:
    """The remover of a node: a few partitions at a time; failures are retried after a backoff.

    topic_exists  whether the committed image has a topic id
    """

    def __init__(self, services: Services, topic_exists: Callable[[Uuid], bool]) -> None:
        self._services = services
        self._topic_exists = topic_exists
        # (topic, whether it was tiered, remaining scans) of partitions to mark. They are marked as soon as
        # this node is their remover and has all their metadata. An entry that is not is dropped after some
        # scans, because another node removes the partition.
        self._to_mark: dict[TopicIdPartition, tuple[str, bool, int]] = {}
        # Partitions with segments whose topic the image does not have, and the number of consecutive scans
        # that found them so. One scan is not enough: an image that is behind does not have new topics yet.
        self._missing: dict[TopicIdPartition, int] = {}
        # The partitions that are being removed. The worker threads are those of expiration.
        self._removing: dict[TopicIdPartition, None] = {}
        self._is_beginning = False
        # Grows with each failure, and is 0 once no deletion remains. It determines the backoff. A partition
        # that is skipped because of a copy in progress makes it at least 1.
        self._failures = 0
        # The remaining partitions of this pass. A partition that fails is not in it again before the next
        # pass, so that it does not block the others.
        # Partitions that the last pass has left.
        self._left = 0
        self._queue: OrderedDict[TopicIdPartition, PartitionDelete] = OrderedDict()
        # Partitions with work that has timed out and has not ended: nothing else is done about them before.
        self._hanging: dict[TopicIdPartition, None] = {}
        # Partitions of which only unfinished copies are left, and when their objects are deleted once more: a
        # put of a broker that was killed may still be on its way to the store.
        self._waiting: dict[TopicIdPartition, int] = {}
        # Partitions whose topic has its marker of a deleted one, and when this process first saw that.
        self._marked_ms: dict[TopicIdPartition, int] = {}
        # Partitions that were removed, and when their folders are emptied once more; in that order.
        self._to_sweep: dict[TopicIdPartition, tuple[int, PartitionDelete]] = {}
        self._is_sweeping = False
        # Partitions that were removed since the log had a line about that, and the kinds of errors in it.
        self._removed = 0
        self._logged: dict[type[FirnlineError], None] = {}
        # The latest error, for the operator; None once no deletion remains.
        self.problem: str | None = None

    @property
    def pending(self) -> int:
        """The number of partitions that wait for their removal."""
        return len(self._to_mark) + len(self._services.metadata.deletions())

    @property
    def backlog(self) -> int:
        """As `pending`, without a look at all partitions: with as many failed ones as there were last."""
        return len(self._to_mark) + len(self._queue) + len(self._removing) + self._left

    def topic_deleted(
        self, topic_id: Uuid, topic: str, partitions: int, *, was_tiered: bool, now_ms: int
    ) -> Effects:
        """A topic is deleted from the image, and no replica of this node serves it any more (T54)."""
        for partition in range(partitions):
            where = TopicIdPartition(topic_id, partition)
            self._to_mark[where] = (topic, was_tiered, SCANS_BEFORE_REMOVAL)
        return [*self.pump(now_ms), *self._mark_later(_MARK_AGAIN_MS, now_ms)]

    def _mark_later(self, wait_ms: int, now_ms: int) -> Effects:
        """Look again soon, and then ever later: the node that removes may still read the last records."""
        if not self._to_mark or wait_ms >= self._services.settings.remover_interval_ms:
            return []

        def look(at_ms: int) -> Effects:
            return [*self.pump(at_ms), *self._mark_later(2 * wait_ms, at_ms)]

        return [SetTimer(key=(*_TIMER, "mark"), at_ms=now_ms + wait_ms, then=look)]

    def scan(self, now_ms: int) -> Effects:
        """The periodic run: the remaining work of earlier ones, and segments of unknown topics."""
        metadata = self._services.metadata
        missing: dict[TopicIdPartition, int] = {}
        for where, topic in metadata.undeleted():
            if self._topic_exists(where.topic_id):
                continue
            missing[where] = self._missing.get(where, 0) + 1
            if missing[where] >= SCANS_BEFORE_REMOVAL:
                self._to_mark.setdefault(where, (topic, True, SCANS_BEFORE_REMOVAL))
        self._missing = missing
        aged = {
            where: (topic, was_tiered, scans - 1)
            for where, (topic, was_tiered, scans) in self._to_mark.items()
        }
        self._to_mark = {where: entry for where, entry in aged.items() if entry[2] >= 0}
        interval_ms = self._services.settings.remover_interval_ms
        timer = SetTimer(key=(*_TIMER, "scan"), at_ms=now_ms + interval_ms, then=self.scan)
        return [timer, *self.pump(now_ms)]

    def pump(self, now_ms: int) -> Effects:
        """Continue all work that can continue."""
        effects: Effects = []
        for where in list(self._to_mark):
            effects += self._mark(where, now_ms)
        if not self._removing:
            self._left = 0
            for delete in self._services.metadata.deletions():
                self._queue[TopicIdPartition(delete.topic_id, delete.partition)] = delete
            effects += self._begin_some(now_ms)
        return effects

    def _mark(self, where: TopicIdPartition, now_ms: int) -> Effects:
        """Publish MARKED, once, if this node removes the partition."""
        metadata = self._services.metadata
        if not metadata.removes(where):
            return []  # another node does, or the metadata is loading: `_mark_later`, each scan
        topic, was_tiered, _ = self._to_mark.pop(where)
        if metadata.delete_state(where) is not None:
            return []
        if not was_tiered and not metadata.has_history(where):
            return []
        change = self._change(where, topic, DeleteState.MARKED, now_ms)
        return metadata.put_partition_delete(change, partial(self._marked, change), now_ms)

    def _marked(self, change: PartitionDelete, error: KafkaError | None, now_ms: int) -> Effects:
        where = TopicIdPartition(change.topic_id, change.partition)
        if error is not None:
            self._to_mark[where] = (change.topic, True, SCANS_BEFORE_REMOVAL)
            self.problem = str(error)
            return self._retry_later(now_ms)
        if where not in self._removing:
            self._queue.setdefault(where, change)
        return self._begin_some(now_ms)

    def _change(
        self, where: TopicIdPartition, topic: str, state: DeleteState, now_ms: int
    ) -> PartitionDelete:
        return PartitionDelete(
            topic_id=where.topic_id,
            topic=topic,
            partition=where.partition,
            state=state,
            broker_id=self._services.settings.node_id,
            event_timestamp_ms=now_ms,
        )

    # ------------------------------------------------------------------------- the partitions

    def _begin_some(self, now_ms: int) -> Effects:
        """Begin the next partitions of the queue that have no copy in progress."""
        if self._is_beginning:
            return []  # a removal has ended at once: the loop below goes on
        self._is_beginning = True
        effects: Effects = []
        while self._queue and len(self._removing) < REMOVED_AT_ONCE:
            refused = self._services.circuits.refusal("delete", now_ms)
            if refused is not None and self._queue:
                self._queue.clear()
                self.problem = str(refused)
                self._failures += 1
                break
            where, delete = self._queue.popitem(last=False)
            if now_ms < self._waiting.get(where, 0):
                continue
            if where in self._hanging or self._is_copying(where):
                self._failures = max(self._failures, 1)
                continue
            self._removing[where] = None
            ended = partial(self._ended, where)
            effects += coroutines.run(partial(self._remove, delete), now_ms, ended)
        self._is_beginning = False
        return effects if self._removing else effects + self._pass_ended(now_ms)

    def _is_copying(self, where: TopicIdPartition) -> bool:
        """Whether a worker of this process still puts objects of the partition."""
        metadata = self._services.metadata
        return any(metadata.get(where, each) for each in self._services.copying.of(where))

    def _ended(self, where: TopicIdPartition, error: FirnlineError | None, now_ms: int) -> Effects:
        """Continue with the next partition; the one that failed is retried in the next pass."""
        del self._removing[where]
        logged: Effects = []
        if error is None:
            self._removed += where not in self._waiting
        else:
            self.problem = str(error)
            self._failures += 1
            logged = self._log_failure(where, error)
        return logged + self._begin_some(now_ms)

    def _log_failure(self, where: TopicIdPartition, error: FirnlineError) -> Effects:
        """Log the first failure of each kind, until everything is removed; the circuits log a store's."""
        if isinstance(error, StoreUnavailable) or type(error) in self._logged:
            return []
        self._logged[type(error)] = None
        topic_id = uuid_text(where.topic_id)
        return [REMOVAL_FAILS(topic_id=topic_id, partition=where.partition, error=error)]

    def _log_end(self) -> Effects:
        if not self._removed:
            return []
        removed, self._removed = self._removed, 0
        return [DELETED_TOPICS_REMOVED(partitions=removed)]

    def _pass_ended(self, now_ms: int) -> Effects:
        deletions = self._services.metadata.deletions()
        self._left = len(deletions)
        left = [TopicIdPartition(each.topic_id, each.partition) for each in deletions]
        self._waiting = {each: self._waiting[each] for each in left if each in self._waiting}
        self._marked_ms = {each: self._marked_ms[each] for each in left if each in self._marked_ms}
        logged = self._log_end()
        # One that has waited, and was not begun or has failed early, is as any other that failed: without the
        # backoff this node would do nothing else until the store answers.
        has_due = any(at_ms <= now_ms for at_ms in self._waiting.values())
        if has_due or len(self._waiting) < len(left):
            return logged + self._retry_later(now_ms)
        self._failures = 0
        self.problem = None
        self._logged.clear()
        return logged + [self._pump_at(at_ms) for at_ms in sorted(self._waiting.values())[:1]]

    def _retry_later(self, now_ms: int) -> Effects:
        self._failures = max(self._failures, 1)
        return [self._pump_at(now_ms + self._services.backoff_ms(self._failures))]

    def _pump_at(self, at_ms: int) -> SetTimer:
        return SetTimer(key=(*_TIMER, "retry"), at_ms=at_ms, then=self.pump)

    # -------------------------------------------------------------------------- one partition

    def _remove(self, delete: PartitionDelete, run: Run) -> Outcome:
        """Delete everything of a partition in the tier; return the error that prevents it."""
        where = TopicIdPartition(delete.topic_id, delete.partition)
        metadata, store = self._services.metadata, self._services.catalog
        error: FirnlineError | None
        if delete.state == DeleteState.MARKED:
            error = yield from self._put_state(run, delete, DeleteState.STARTED)
            if error is not None:
                return error
        if store is not None:
            mark = partial(
                mark_deleted,
                store,
                topic=delete.topic,
                topic_id=delete.topic_id,
                now_ms=run.now_ms,
            )
            error = yield from self._do(run, delete, "write", f"mark {delete.topic} deleted", mark)
            if error is not None:
                return error
        segments = metadata.segments_to_remove(where)
        if isinstance(segments, KafkaError):
            return segments
        if segments and self._may_be_read(where, run.now_ms):
            return None
        is_last = self._has_waited(where, segments, run.now_ms)
        removal = SegmentRemoval(
            self._services,
            [each for each in segments if is_last or not each.is_abandoned],
            may_go_on=lambda: metadata.removes(where),
            between=_at_once,
        )
        error = yield from run.call(removal.begin)
        error = error or self._why_not_empty(where)
        if error is not None:
            return error
        error = yield from self._sweep(delete, run)
        # A leader that had not heard of the deletion may have begun a copy meanwhile.
        error = error or self._why_not_empty(where)
        if error is not None:
            return error
        if metadata.segments_to_remove(where):
            self._waiting.setdefault(where, run.now_ms + self._services.settings.late_put_ms)
            return None
        if delete.state != DeleteState.FINISHED:
            error = yield from self._put_state(run, delete, DeleteState.FINISHED)
        if error is None:
            run.emit(self._sweep_later(delete, run.now_ms))
        return error

    def _why_not_empty(self, where: TopicIdPartition) -> FirnlineError | None:
        """Return an error while the partition has segments other than abandoned copies."""
        left = self._services.metadata.segments_to_remove(where)
        if isinstance(left, KafkaError):
            return left
        if all(each.is_abandoned for each in left):
            return None
        return StorageError("segments are left")

    def _may_be_read(self, where: TopicIdPartition, now_ms: int) -> bool:
        """Whether who has found the topic before it was marked as deleted may still read it."""
        if self._services.catalog is None:
            return False
        since_ms = self._marked_ms.setdefault(where, now_ms)
        due_ms = since_ms + self._services.settings.delete_delay_ms
        if now_ms < due_ms:
            self._waiting[where] = due_ms
            return True
        if self._waiting.get(where) == due_ms:
            del self._waiting[where]
        return False

    def _has_waited(
        self, where: TopicIdPartition, segments: Sequence[RemoteSegment], now_ms: int
    ) -> bool:
        """Wait until no put of unfinished copies whose objects were deleted can be on its way any more.

        The clock of the broker that deleted them may be ahead. That of this one may have jumped before its
        start.
        """
        begun_ms = [each.event_timestamp_ms for each in segments if each.is_abandoned]
        if begun_ms:
            services = self._services
            since_ms = min(now_ms, max(*begun_ms, services.started_ms))
            self._waiting.setdefault(where, since_ms + services.settings.late_put_ms)
        if now_ms < self._waiting.get(where, 0):
            return False
        self._waiting.pop(where, None)
        return True

    def _sweep(self, delete: PartitionDelete, run: Run) -> Outcome:
        """Delete what is left of the partition: its catalog, if there is one."""
        store = self._services.catalog
        if store is None:
            return None
        name = f"remove the catalog of {delete.topic}-{delete.partition}"
        sweep = partial(sweep_partition, store, delete)
        return (yield from self._do(run, delete, "delete", name, sweep))

    def _sweep_later(self, delete: PartitionDelete, now_ms: int) -> Effects:
        """Sweep once more: a leader that had not heard of the deletion may put a catalog meanwhile."""
        if self._services.catalog is None:
            return []
        is_first = not self._to_sweep
        where = TopicIdPartition(delete.topic_id, delete.partition)
        self._to_sweep.pop(where, None)
        self._to_sweep[where] = now_ms + self._services.settings.late_put_ms, delete
        return self._sweep_next(now_ms) if is_first else []

    def _sweep_next(self, now_ms: int) -> Effects:
        """Sweep the first partition that is due, one at a time: nobody waits for it."""
        if not self._to_sweep or self._is_sweeping:
            return []
        at_ms, delete = next(iter(self._to_sweep.values()))
        if now_ms < at_ms:
            return [SetTimer(key=(*_TIMER, "sweep"), at_ms=at_ms, then=self._sweep_next)]
        self._is_sweeping = True
        return coroutines.run(partial(self._sweep, delete), now_ms, partial(self._swept, delete))

    def _swept(self, delete: PartitionDelete, error: FirnlineError | None, now_ms: int) -> Effects:
        self._is_sweeping = False
        self._to_sweep.pop(TopicIdPartition(delete.topic_id, delete.partition), None)
        effects = [] if error is None else self._sweep_later(delete, now_ms)
        return effects + self._sweep_next(now_ms)

    def _put_state(self, run: Run, delete: PartitionDelete, state: DeleteState) -> Outcome:
        where = TopicIdPartition(delete.topic_id, delete.partition)
        change = self._change(where, delete.topic, state, run.now_ms)
        put = partial(self._services.metadata.put_partition_delete, change)
        error: FirnlineError | None = yield from run.call(put)
        return error

    def _do(
        self,
        run: Run,
        delete: PartitionDelete,
        operation: Operation,
        name: str,
        work: Callable[[], None],
    ) -> Outcome:
        """Do work for the partition in a worker thread."""
        where = TopicIdPartition(delete.topic_id, delete.partition)

        def begin(then: Callable[[Exception | None, int], Effects], now_ms: int) -> Effects:
            return self._services.circuits.submit(
                operation,
                now_ms,
                name=name,
                pool="expire",
                work=work,
                then=then,
                run_timeout_ms=store_timeout_ms(),
                ended=partial(self._ended_late, where),
            )

        result = yield from run.call(begin)
        if isinstance(result, WorkTimedOut):
            self._hanging[where] = None
        return None if result is None else as_error(result)

    def _ended_late(self, where: TopicIdPartition, now_ms: int) -> Effects:
        self._hanging.pop(where, None)
        return []


def _at_once(then: TaskCallback, now_ms: int) -> Effects:
    return then(None, now_ms)
