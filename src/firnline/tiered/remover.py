"""Deletes the remote segments of deleted topics: the RemotePartitionRemover of KIP-405. PURE.

Theory of operation. It runs on the broker that leads the metadata partition of the deleted partition, and
needs no replica of it. After a crash it continues from the state in the metadata: MARKED -> STARTED -> every
segment -> the remaining objects -> FINISHED. Shipped Kafka deletes on the partition's leader, and leaks
objects if that crashes (T27). Source: KIP-405 'Topic deletion lifecycle'; T26, T54-T56.
"""

from collections.abc import Callable
from functools import partial

from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import FirnlineError, KafkaError, StorageError, WorkTimedOut
from firnline.base.ids import TopicIdPartition, Uuid
from firnline.base.units import SECOND_MS
from firnline.tiered.expiry import SegmentRemoval
from firnline.tiered.hosted import Services, TaskCallback
from firnline.tiered.objects.names import mark_deleted, sweep_partition
from firnline.tiered.settings import store_timeout_ms
from firnline.tiered.spi import DeleteState, PartitionDelete, as_error

_TIMER = ("tier", "remover")
# Consecutive scans in which a topic must be unknown before its remote segments are deleted.
SCANS_BEFORE_REMOVAL = 2
# The leader of the metadata partition is behind its own log for a moment after each record.
_MARK_AGAIN_MS = SECOND_MS


class Remover:
    """The remover of a node: one partition at a time; failures are retried after a backoff.

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
        # A partition is being removed; there is one at a time. The worker threads are those of expiration.
        self._is_running = False
        # Grows with each failure, and is 0 once no deletion remains. It determines the backoff. A partition
        # that is skipped because of a copy in progress makes it at least 1.
        self._failures = 0
        # The remaining partitions of this pass. A partition that fails is not in it again before the next
        # pass, so that it does not block the others.
        self._queue: list[PartitionDelete] = []
        # Partitions with work that has timed out and has not ended: nothing else is done about them before.
        self._hanging: dict[TopicIdPartition, None] = {}
        # The latest error, for the operator; None once no deletion remains.
        self.problem: str | None = None

    @property
    def pending(self) -> int:
        """The number of partitions that wait for their removal."""
        return len(self._to_mark) + len(self._services.metadata.deletions())

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
        if not self._is_running:
            self._queue = list(self._services.metadata.deletions())
            effects += self._next(now_ms)
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
        then = partial(self._marked, where, topic)
        return metadata.put_partition_delete(
            self._change(where, topic, DeleteState.MARKED, now_ms), then, now_ms
        )

    def _marked(
        self, where: TopicIdPartition, topic: str, error: KafkaError | None, now_ms: int
    ) -> Effects:
        if error is not None:
            self._to_mark[where] = (topic, True, SCANS_BEFORE_REMOVAL)
            return self._retry_later(error, now_ms)
        return self.pump(now_ms)

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

    # -------------------------------------------------------------------------- one partition

    def _next(self, now_ms: int) -> Effects:
        """Begin the next partition of the queue without a copy in progress."""
        refused = self._services.circuits.refusal("delete", now_ms)
        if refused is not None and self._queue:
            self._is_running, self._queue = False, []
            self._failures += 1
            return self._retry_later(refused, now_ms)
        while self._queue:
            delete = self._queue.pop(0)
            where = TopicIdPartition(delete.topic_id, delete.partition)
            if where in self._hanging or self._is_copying(where):
                self._failures = max(self._failures, 1)
                continue
            self._is_running = True
            if delete.state != DeleteState.MARKED:
                return self._started(delete, None, now_ms)
            change = self._change(where, delete.topic, DeleteState.STARTED, now_ms)
            then = partial(self._started, delete)
            return self._services.metadata.put_partition_delete(change, then, now_ms)
        self._is_running = False
        if self._services.metadata.deletions():
            return self._retry_later(None, now_ms)
        self._failures = 0
        self.problem = None
        return []

    def _is_copying(self, where: TopicIdPartition) -> bool:
        """Whether a worker of this process still puts objects of the partition."""
        metadata = self._services.metadata
        return any(metadata.get(where, each) for each in self._services.copying.of(where))

    def _started(self, delete: PartitionDelete, error: KafkaError | None, now_ms: int) -> Effects:
        if error is not None:
            return self._failed(error, now_ms)
        store = self._services.catalog
        if store is None:
            return self._remove_segments(delete, None, now_ms)
        return self._services.circuits.submit(
            "write",
            now_ms,
            name=f"mark {delete.topic} deleted",
            pool="expire",
            work=partial(
                mark_deleted,
                store,
                topic=delete.topic,
                topic_id=delete.topic_id,
                now_ms=now_ms,
            ),
            then=partial(self._remove_segments, delete),
            run_timeout_ms=store_timeout_ms(),
            ended=partial(self._ended_late, delete),
        )

    def _remove_segments(
        self, delete: PartitionDelete, result: Exception | None, now_ms: int
    ) -> Effects:
        if isinstance(result, Exception):
            return self._work_failed(delete, result, now_ms)
        where = TopicIdPartition(delete.topic_id, delete.partition)
        segments = self._services.metadata.segments_to_remove(where)
        if isinstance(segments, KafkaError):
            return self._failed(segments, now_ms)
        removal = SegmentRemoval(
            self._services,
            segments,
            may_go_on=lambda: self._services.metadata.removes(where),
            between=_at_once,
            done=partial(self._segments_gone, delete),
        )
        return removal.begin(now_ms)

    def _segments_gone(
        self, delete: PartitionDelete, error: FirnlineError | None, now_ms: int
    ) -> Effects:
        where = TopicIdPartition(delete.topic_id, delete.partition)
        left = self._services.metadata.segments_to_remove(where)
        if error is not None or isinstance(left, KafkaError) or left:
            return self._failed(error or StorageError("segments are left"), now_ms)
        store = self._services.catalog
        if store is None:
            return self._swept(delete, None, now_ms)
        return self._services.circuits.submit(
            "delete",
            now_ms,
            name=f"remove the catalog of {delete.topic}-{delete.partition}",
            pool="expire",
            work=partial(sweep_partition, store, delete),
            then=partial(self._swept, delete),
            run_timeout_ms=store_timeout_ms(),
            ended=partial(self._ended_late, delete),
        )

    def _swept(self, delete: PartitionDelete, result: Exception | None, now_ms: int) -> Effects:
        if isinstance(result, Exception):
            return self._work_failed(delete, result, now_ms)
        if delete.state == DeleteState.FINISHED:
            return self._next(now_ms)
        where = TopicIdPartition(delete.topic_id, delete.partition)
        change = self._change(where, delete.topic, DeleteState.FINISHED, now_ms)
        return self._services.metadata.put_partition_delete(change, self._finished, now_ms)

    def _finished(self, error: KafkaError | None, now_ms: int) -> Effects:
        return self._failed(error, now_ms) if error is not None else self._next(now_ms)

    def _work_failed(self, delete: PartitionDelete, problem: Exception, now_ms: int) -> Effects:
        if isinstance(problem, WorkTimedOut):
            self._hanging[TopicIdPartition(delete.topic_id, delete.partition)] = None
        return self._failed(as_error(problem), now_ms)

    def _ended_late(self, delete: PartitionDelete, now_ms: int) -> Effects:
        self._hanging.pop(TopicIdPartition(delete.topic_id, delete.partition), None)
        return []

    def _failed(self, error: FirnlineError, now_ms: int) -> Effects:
        """Continue with the next partition; the failed one is retried later."""
        self.problem = str(error)
        self._failures += 1
        return self._next(now_ms)

    def _retry_later(self, error: FirnlineError | None, now_ms: int) -> Effects:
        if error is not None:
            self.problem = str(error)
        self._failures = max(self._failures, 1)
        wait_ms = self._services.backoff_ms(self._failures)
        return [SetTimer(key=(*_TIMER, "retry"), at_ms=now_ms + wait_ms, then=self.pump)]


def _at_once(then: TaskCallback, now_ms: int) -> Effects:
    return then(None, now_ms)
