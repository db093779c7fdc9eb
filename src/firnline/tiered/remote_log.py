"""The tier of one node: runs its copies, expirations and removals, and serves reads. PURE.

`RemoteLog` is the interface for `broker/`. It has a set of tasks for each hosted tiered partition, which is
replaced with each leader epoch; each task has a timer of its own. It does nothing for topics that are not
tiered (T4). Source: KIP-405 'RemoteLogManager'; spec 3.3, T8-T11, T49.
"""

from collections.abc import Callable, Collection, Generator, Iterator
from functools import partial
from typing import NamedTuple

from firnline.base.background import SlicedTask
from firnline.base.counting.aging import NOT_DOUBTED, Aging
from firnline.base.effects import CancelTimer, Effects, SetTimer
from firnline.base.errors import Code, FirnlineError, KafkaError
from firnline.base.ids import TopicIdPartition, TopicPartition, Uuid
from firnline.base.log_lines.tier import UPLOADS_ABORTED, UPLOADS_NOT_ABORTED
from firnline.base.ports import Fs, Rng
from firnline.base.units import HOUR_MS, SECOND_MS
from firnline.log.log import Log
from firnline.stores.port import ObjectStore
from firnline.tiered.catalog.keeper import CatalogKeeper
from firnline.tiered.catalog.lineage_repair import LineageRepair
from firnline.tiered.copier import Copier, Flush, Flushed, task_key, why_late
from firnline.tiered.counters import Counters
from firnline.tiered.expiry import Expiry
from firnline.tiered.hosted import Hosted, Services
from firnline.tiered.local_audit import LocalAudit
from firnline.tiered.metadata.log import TopicMetadataLog
from firnline.tiered.metadata.topic_reader import MetadataTopicReader
from firnline.tiered.objects.storage import ObjectStorage
from firnline.tiered.objects.unfinished import UNFINISHED_HOURS, abort_unfinished
from firnline.tiered.reads.index_cache import IndexCache
from firnline.tiered.reads.reader import Built, Read, RemoteReader, TimestampCallback
from firnline.tiered.remover import Remover
from firnline.tiered.settings import TierSettings, store_timeout_ms
from firnline.tiered.spi import RemoteLogMetadata, RemoteStorage
from firnline.tiered.status import Gauges, StatusRow, gauges, status_rows
from firnline.tiered.unconfirmed_copies import UnconfirmedCopies

# The interval of polls of the metadata topic without any notification.
POLL_MS = SECOND_MS
# Partitions that one step lets retry, once the store answers again.
RETRIED_IN_STEP = 200
FLUSH_WAIT_MS = 60 * SECOND_MS
NEWS_WAIT_MS = 10 * SECOND_MS
UNFINISHED_INTERVAL_MS = 24 * HOUR_MS


class _NewsWaiter(NamedTuple):
    """A follower that retries when more metadata is applied; `then` is called if its wait ends without."""

    look: Callable[[int], Effects]
    then: Built


class _Tasks:
    """One hosted partition with its tasks and its waiting flushes."""

    def __init__(self, services: Services, hosted: Hosted, unconfirmed: UnconfirmedCopies) -> None:
        self.hosted = hosted
        self.catalog = CatalogKeeper(services, hosted)
        hosted.explains_all = self.catalog.explains_all
        repair = LineageRepair(services, hosted)
        self.copier = Copier(services, hosted, self.catalog, unconfirmed, repair)
        self.expiry = Expiry(services, hosted, self.catalog, repair)
        self.copy_failures = 0
        self.expiry_failures = 0
        # Whether the topic's configuration let this node copy when it was last looked at.
        self.could_copy = hosted.may_copy
        # (offset that has to be in the tier, who waits for that)
        self.flushes: list[tuple[int, Flush]] = []


class RemoteLog:
    """The tier of one node.

    storage       configured; an `ObjectStorage` also has the store of the catalog
    feed          reads `__remote_log_metadata`
    topic_exists  whether the committed image has a topic id
    log_dir       the directory of the index cache, the first of log.dirs; None: memory only
    metadata      a user's metadata manager instead of the topic-based one
    on_damaged    called for a damaged local segment, so that another replica leads
    aging         by which time remote segments age
    """

    def __init__(
        self,
        settings: TierSettings,
        *,
        storage: RemoteStorage,
        feed: MetadataTopicReader,
        fs: Fs,
        rng: Rng,
        topic_exists: Callable[[Uuid], bool],
        log_dir: str | None,
        catalog: ObjectStore | None = None,
        metadata: RemoteLogMetadata | None = None,
        on_damaged: Callable[[TopicIdPartition, FirnlineError, int], Effects] | None = None,
        aging: Aging = NOT_DOUBTED,
    ) -> None:
        check_owner = None
        if isinstance(storage, ObjectStorage):
            catalog = storage.store if catalog is None else catalog
            check_owner = storage.check_owner
        self._topic_metadata = TopicMetadataLog(feed, settings) if metadata is None else None
        chosen = metadata if self._topic_metadata is None else self._topic_metadata
        assert chosen is not None
        self.services = Services(
            settings=settings,
            metadata=chosen,
            storage=storage,
            catalog=catalog,
            fs=fs,
            rng=rng,
            check_owner=check_owner,
            on_damaged=_nobody_else_leads if on_damaged is None else on_damaged,
            aging=aging,
        )
        if self._topic_metadata is not None:
            self.services.withheld = self._topic_metadata.withheld
        chosen.on_applied = self._on_applied
        self.services.circuits.on_answering = self._store_answers
        self.indexes = IndexCache(self.services, log_dir)
        # What a user's own class reads from is taken for distant.
        is_distant = catalog is None or catalog.is_distant
        self.reader = RemoteReader(self.services, self.indexes, is_distant=is_distant)
        self.remover = Remover(self.services, topic_exists)
        self.unconfirmed_copies = UnconfirmedCopies(self.services)
        self._tasks: dict[TopicIdPartition, _Tasks] = {}
        self._by_topic: dict[Uuid, dict[TopicIdPartition, _Tasks]] = {}
        self.local_audit = LocalAudit(
            lambda: (tasks.hosted for tasks in self._tasks.values()), self.services.sliced_tasks
        )
        self._is_started = False
        self._flush_count = 0
        # Why unfinished uploads could not be aborted the last time: each reason is logged once.
        self._uploads_problem: str | None = None
        # Followers that wait until all metadata that is committed now is applied.
        self._wait_for_news: dict[TopicIdPartition, list[_NewsWaiter]] = {}

    @property
    def problem(self) -> str | None:
        """A problem of the node's tier as a whole for the operator, or None."""
        metadata = self._topic_metadata
        known = (metadata.problem if metadata else None, self.remover.problem)
        return next((p for p in known if p is not None), self.local_audit.problem)

    @property
    def unreadable_offsets(self) -> int:
        """The number of unreadable offsets of the metadata topic on this node."""
        return 0 if self._topic_metadata is None else self._topic_metadata.unreadable_offsets

    # ---------------------------------------------------------------------------------- lifecycle

    def start(self, now_ms: int) -> Effects:
        """Start: create the metadata topic, open the index cache. Called when the listeners are open (T9)."""
        assert not self._is_started
        self._is_started = True
        self.services.started_ms = now_ms
        self.indexes.open()
        effects: Effects = []
        if self._topic_metadata is not None:
            effects += self._topic_metadata.start(now_ms)
            effects.append(self._poll_timer(now_ms))
        for tasks in list(self._tasks.values()):
            effects += self._begin(tasks, now_ms)
        if isinstance(self.services.storage, ObjectStorage) and self.services.storage.problem:
            problem = self.services.storage.problem  # of the check at the start of the process
            effects += self.services.circuits.open("read", problem, now_ms)
        interval_ms = self.services.settings.remover_interval_ms
        first_ms = now_ms + min(interval_ms, self.services.settings.task_interval_ms)
        settings = self.services.settings
        effects += self.local_audit.start(settings.local_audit_interval_ms, now_ms)
        scan = SetTimer(key=("tier", "remover", "scan"), at_ms=first_ms, then=self.remover.scan)
        if self.services.catalog is not None:
            effects.append(self._uploads_timer(first_ms))
        return [*effects, scan]

    def _poll_timer(self, now_ms: int) -> SetTimer:
        return SetTimer(key=("tier", "poll"), at_ms=now_ms + POLL_MS, then=self._poll)

    def _poll(self, now_ms: int) -> Effects:
        assert self._topic_metadata is not None
        return [*self._topic_metadata.poll_all(now_ms), self._poll_timer(now_ms)]

    def _uploads_timer(self, at_ms: int) -> SetTimer:
        return SetTimer(key=("tier", "uploads"), at_ms=at_ms, then=self._abort_uploads)

    def _abort_uploads(self, now_ms: int) -> Effects:
        """Abort uploads of killed brokers: they cost money, and no listing shows them."""
        store = self.services.catalog
        assert store is not None
        submitted = self.services.circuits.submit(
            "delete",
            now_ms,
            name="abort unfinished uploads",
            pool="expire",
            work=partial(abort_unfinished, store),
            then=self._uploads_aborted,
            run_timeout_ms=store_timeout_ms(calls=1000),
        )
        return [*submitted, self._uploads_timer(now_ms + UNFINISHED_INTERVAL_MS)]

    def _uploads_aborted(self, result: int | str | Exception, _now_ms: int) -> Effects:
        """Log what was done, or why it was not; a store that fails is logged by its circuits."""
        if isinstance(result, Exception):
            return []
        before, self._uploads_problem = self._uploads_problem, None
        if isinstance(result, str):
            self._uploads_problem = result
            return [] if result == before else [UPLOADS_NOT_ABORTED(error=result)]
        return [UPLOADS_ABORTED(count=result, unfinished_h=UNFINISHED_HOURS)] if result else []

    def apply_settings(self, settings: TierSettings, now_ms: int) -> Effects:
        """Use other limits from now on: those that an operator may change at run time."""
        services = self.services
        services.settings = settings
        services.copy_rate.bytes_per_second = settings.copy_bytes_per_second
        services.fetch_rate.bytes_per_second = settings.fetch_bytes_per_second
        self.reader.ahead.shrink()
        return services.sliced_tasks.begin(self.indexes.shrink_steps(), now_ms)

    def close(self) -> None:
        """Begin no more work; work in progress ends by itself. Whoever made the storage closes it."""
        self.services.circuits.close()
        for tasks in self._tasks.values():
            tasks.hosted.is_over = True

    def on_leadership(
        self, log: Log, *, is_leader: bool, leader_epoch: int, now_ms: int
    ) -> Effects:
        """This node leads or follows the partition from now on, or its topic's configuration has changed.

        Called for every partition of the node; those that are not tiered are ignored. A copy of an earlier
        role ends by itself, and begins no other (T8).
        """
        where = TopicIdPartition(log.topic_id, log.topic_partition.partition)
        known = self._tasks.get(where)
        if not self._concerns_us(log):
            return [] if known is None else self.on_stop(where, now_ms)
        given_up: Effects = []
        if known is not None:
            old = known.hosted
            if (old.is_leader, old.leader_epoch) == (is_leader, leader_epoch) and old.log is log:
                return self._configured(known, now_ms)
            old.is_over = True
            self.reader.ahead.forget(where)
            given_up = known.copier.give_up(now_ms)
        hosted = Hosted(
            log,
            is_leader=is_leader,
            leader_epoch=leader_epoch,
            is_store_down=lambda: self.services.circuits.is_any_open,
        )
        hosted.begin_deciding(has_catalog=self.services.catalog is not None)
        tasks = self._tasks[where] = _Tasks(self.services, hosted, self.unconfirmed_copies)
        self._by_topic.setdefault(where.topic_id, {})[where] = tasks
        self.services.counters.by_topic.setdefault(hosted.topic, Counters())
        if known is not None:
            tasks.flushes, known.flushes = known.flushes, []
        return given_up + (self._begin(tasks, now_ms) if self._is_started else [])

    def _configured(self, tasks: _Tasks, now_ms: int) -> Effects:
        """Begin with what has waited until it may be copied. All else tasks read in their next run."""
        could_copy, tasks.could_copy = tasks.could_copy, tasks.hosted.may_copy
        begins = tasks.could_copy and not could_copy and self._is_started
        return [self._timer("copy", tasks, now_ms)] if begins else []

    @staticmethod
    def _concerns_us(log: Log) -> bool:
        """Whether the topic is tiered, or is disabled and its remote segments have to be deleted (T49)."""
        config = log.config
        return config.remote_storage_enable or config.remote_log_delete_on_disable

    def _begin(self, tasks: _Tasks, now_ms: int) -> Effects:
        where = tasks.hosted.where
        effects = self.services.metadata.assign(where, now_ms)
        effects.append(self._timer("copy", tasks, now_ms))
        if tasks.hosted.is_leader:
            effects.append(self._timer("expire", tasks, now_ms))
        return effects

    def on_stop(self, where: TopicIdPartition, now_ms: int) -> Effects:
        """This node does not serve the partition any more. Its remote segments stay (T28)."""
        effects: Effects = []
        for waiter in self._wait_for_news.pop(where, []):
            effects += waiter.then(_NOT_HERE, now_ms)
        tasks = self._tasks.pop(where, None)
        if tasks is None:
            return effects
        of_topic = self._by_topic[where.topic_id]
        del of_topic[where]
        if not of_topic:
            del self._by_topic[where.topic_id]
            self.services.counters.by_topic.pop(tasks.hosted.topic, None)
        tasks.hosted.is_over = True
        self.reader.ahead.forget(where)
        effects += tasks.copier.give_up(now_ms)
        self.services.metadata.unassign(where)
        effects += [CancelTimer(key=task_key(what, where)) for what in ("copy", "expire")]
        for _, flush in tasks.flushes:
            effects += flush.arrived(where.partition, _NOT_HERE, now_ms)
        return effects

    def on_topic_deleted(
        self, topic_id: Uuid, topic: str, partitions: int, *, was_tiered: bool, now_ms: int
    ) -> Effects:
        """The topic is deleted. Called on every broker, after its replicas are stopped (T54)."""
        effects: Effects = []
        for partition in range(partitions):
            effects += self.on_stop(TopicIdPartition(topic_id, partition), now_ms)
        return effects + self.remover.topic_deleted(
            topic_id, topic, partitions, was_tiered=was_tiered, now_ms=now_ms
        )

    def on_metadata_leadership(self, partition: int, now_ms: int) -> Effects:
        """The leader of a partition of `__remote_log_metadata` has changed."""
        if self._topic_metadata is None:
            return []
        return [
            *self._topic_metadata.on_leadership(partition, now_ms),
            *self.remover.pump(now_ms),
        ]

    def _on_applied(self, where: TopicIdPartition, now_ms: int) -> Effects:
        tasks = self._tasks.get(where)
        if tasks is not None:
            tasks.hosted.metadata_version += 1
            self.reader.ahead.metadata_changed(tasks.hosted)
            if self.services.withheld(where) is not None:
                # An unreadable record may be a deletion: so no local segment is deleted because of the tier.
                tasks.hosted.log.set_highest_remote(-1)
        if where not in self._wait_for_news or not self.services.metadata.is_ready(where):
            return []
        return [CancelTimer(key=task_key("news", where)), *self._retry_waiters(where, now_ms)]

    def _retry_waiters(self, where: TopicIdPartition, now_ms: int) -> Effects:
        """Let waiting followers retry: new metadata is applied, or their wait has ended."""
        effects: Effects = []
        for waiter in self._wait_for_news.pop(where, []):
            effects += waiter.look(now_ms)
        return effects

    # -------------------------------------------------------------------------------------- tasks

    def _timer(self, what: str, tasks: _Tasks, at_ms: int) -> SetTimer:
        run = self._copy if what == "copy" else self._expire
        key = task_key(what, tasks.hosted.where)
        return SetTimer(key=key, at_ms=at_ms, then=partial(run, tasks))

    def _copy(self, tasks: _Tasks, now_ms: int) -> Effects:
        hosted = tasks.hosted
        if hosted.is_over or tasks.copier.is_running:
            return []
        if hosted.is_leader:
            return tasks.copier.run(now_ms, partial(self._copy_done, tasks))
        covered = hosted.covered_offset(self.services.metadata)
        if not isinstance(covered, KafkaError) and self.services.withheld(hosted.where) is None:
            hosted.log.set_highest_remote(covered)
        return [self._timer("copy", tasks, now_ms + self._interval(covered))]

    def _interval(self, outcome: object) -> int:
        """A follower that is still loading retries soon."""
        s = self.services.settings
        return s.retry_backoff_ms if isinstance(outcome, KafkaError) else s.task_interval_ms

    def _copy_done(self, tasks: _Tasks, error: FirnlineError | None, now_ms: int) -> Effects:
        wait_ms = self._next_wait_ms(error, tasks.copy_failures)
        tasks.copy_failures = 0 if error is None else tasks.copy_failures + 1
        effects: Effects = []
        if tasks.hosted.leads and tasks.catalog.is_begun and not tasks.catalog.is_current:
            effects += tasks.catalog.request(_ignore, now_ms)
        effects += self._answer_flushes(tasks, error, now_ms)
        if not tasks.hosted.is_over:
            if tasks.flushes:
                wait_ms = min(wait_ms, self.services.settings.retry_backoff_ms)
            effects.append(self._timer("copy", tasks, now_ms + wait_ms))
        return effects

    def _expire(self, tasks: _Tasks, now_ms: int) -> Effects:
        if tasks.hosted.is_over or tasks.expiry.is_running:
            return []
        return tasks.expiry.run(now_ms, partial(self._expire_done, tasks))

    def _expire_done(self, tasks: _Tasks, error: FirnlineError | None, now_ms: int) -> Effects:
        wait_ms = self._next_wait_ms(error, tasks.expiry_failures)
        tasks.expiry_failures = 0 if error is None else tasks.expiry_failures + 1
        if tasks.hosted.is_over:
            return []
        return [self._timer("expire", tasks, now_ms + wait_ms)]

    def _next_wait_ms(self, error: FirnlineError | None, failures: int) -> int:
        if error is None:
            return self.services.settings.task_interval_ms
        if isinstance(error, KafkaError) and error.code == Code.REPLICA_NOT_AVAILABLE:
            return self.services.backoff_ms(1)  # loading is no failure
        return self.services.backoff_ms(failures + 1)

    def _store_answers(self, now_ms: int) -> Effects:
        """The store is back: what has failed goes on now, and not after a wait that grew for hours."""
        return self.services.sliced_tasks.begin(self._retry_all(), now_ms)

    def _retry_all(self) -> SlicedTask:
        now_ms = yield []
        effects: Effects = self.remover.pump(now_ms)
        for count, where in enumerate(list(self._tasks), 1):
            tasks = self._tasks.get(where)
            if tasks is not None and tasks.copy_failures:
                tasks.copy_failures = 0
                effects.append(self._timer("copy", tasks, now_ms))
            if tasks is not None and tasks.expiry_failures:
                tasks.expiry_failures = 0
                effects.append(self._timer("expire", tasks, now_ms))
            if count % RETRIED_IN_STEP == 0:
                now_ms = yield effects
                effects = []
        return effects

    # -------------------------------------------------------------------------------------- flush

    def flush(
        self,
        topic_id: Uuid,
        then: Flushed,
        now_ms: int,
        *,
        partitions: Collection[int] = (),
        timeout_ms: int = FLUSH_WAIT_MS,
    ) -> Effects:
        """Roll and copy the led partitions of the topic; call back when tier and catalog have them.

        partitions  only these; empty: all of the topic
        timeout_ms  then it calls back in any case; copies that have begun go on

        `then` gets an outcome for each led partition: None, or an error.
        """
        led = [
            tasks
            for where, tasks in self._by_topic.get(topic_id, {}).items()
            if tasks.hosted.leads and (not partitions or where.partition in partitions)
        ]
        if not led:
            return then({}, now_ms)
        self._flush_count += 1
        flush = Flush(self._flush_count, [tasks.hosted.where.partition for tasks in led], then)
        effects: Effects = []
        for tasks in led:
            log = tasks.hosted.log
            log.roll(now_ms)
            tasks.flushes.append((log.log_end_offset - 1, flush))
            tasks.copy_failures = 0
        for tasks in led:
            effects += self._copy(tasks, now_ms)
        late = partial(self._flush_is_late, topic_id, timeout_ms)
        return effects + flush.deadline(now_ms + timeout_ms, late)

    def _flush_is_late(self, topic_id: Uuid, timeout_ms: int, flush: Flush, now_ms: int) -> Effects:
        errors: dict[int, FirnlineError] = dict.fromkeys(flush.waiting, _NOT_HERE)
        for where, tasks in self._by_topic.get(topic_id, {}).items():
            if where.partition not in flush.waiting:
                continue
            tasks.flushes = [(offset, each) for offset, each in tasks.flushes if each is not flush]
            errors[where.partition] = why_late(
                self.services,
                tasks.hosted,
                is_copying=tasks.copier.is_running,
                timeout_ms=timeout_ms,
                now_ms=now_ms,
            )
        return flush.end(errors, now_ms)

    def _answer_flushes(self, tasks: _Tasks, error: FirnlineError | None, now_ms: int) -> Effects:
        """Answer waiting flushes: tier and catalog have the offset, or after an error."""
        if not tasks.flushes:
            return []
        partition = tasks.hosted.where.partition
        covered = tasks.hosted.covered_offset(self.services.metadata)
        effects: Effects = []
        waiting, tasks.flushes = tasks.flushes, []
        for offset, flush in waiting:
            then = partial(flush.arrived, partition)
            if isinstance(covered, int) and covered >= min(
                offset, tasks.hosted.log.log_end_offset - 1
            ):
                effects += tasks.catalog.request(then, now_ms)
            elif error is not None and not _is_loading(error):
                effects += then(error, now_ms)
            elif not tasks.hosted.may_copy:
                effects += then(_NO_COPY, now_ms)
            else:
                tasks.flushes.append((offset, flush))
        return effects

    # --------------------------------------------------------------------------------- reads

    def read(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        offset: int,
        epoch: int,
        max_bytes: int,
        isolation: int,
        then: Read,
        now_ms: int,
    ) -> Effects:
        """Read a partition below its local log start offset. Errors are values; see `reader` for the codes.

        epoch      of `offset` in the caller's log; the tier reads it from the same log
        isolation  0 read_uncommitted, 1 read_committed
        """
        tasks = self._tasks.get(TopicIdPartition(topic_id, topic_partition.partition))
        if tasks is None:
            return then(_NOT_HERE, now_ms)
        return self.reader.read(
            tasks.hosted,
            offset=offset,
            max_bytes=max_bytes,
            isolation=isolation,
            then=then,
            now_ms=now_ms,
        )

    def stop_read(self, then: Read, now_ms: int) -> Effects:
        """See `RemoteReader.stop_read`."""
        return self.reader.stop_read(then, now_ms)

    def offset_for_timestamp(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        timestamp: int,
        then: TimestampCallback,
        now_ms: int,
    ) -> Effects:
        """Find the first record at or after a timestamp in the tier; None: search the local log."""
        tasks = self._tasks.get(TopicIdPartition(topic_id, topic_partition.partition))
        if tasks is None:
            return then(_NOT_HERE, now_ms)
        return self.reader.offset_for_timestamp(tasks.hosted, timestamp, then, now_ms)

    def aux_state(
        self, where: TopicIdPartition, *, epoch: int, offset: int, then: Built, now_ms: int
    ) -> Effects:
        """Fetch the auxiliary state for a follower that starts above `offset` of that epoch (T30, T31).

        The leader has deleted the offset locally because the tier has it, and the metadata shows that. If the
        offset is not found, the search is repeated once all metadata that is committed now is applied; with
        an open end the follower would never catch up with a leader that keeps copying.
        """
        tasks, metadata = self._tasks.get(where), self.services.metadata
        if tasks is None:
            return then(_NOT_HERE, now_ms)

        def look(at_ms: int) -> Effects:
            return self.reader.aux_state(
                tasks.hosted, epoch=epoch, offset=offset, then=then, now_ms=at_ms
            )

        if metadata.lookup(where, epoch=epoch, offset=offset) is not None:
            return look(now_ms)
        self._wait_for_news.setdefault(where, []).append(_NewsWaiter(look, then))
        timeout = SetTimer(
            key=task_key("news", where),
            at_ms=now_ms + NEWS_WAIT_MS,
            then=partial(self._retry_waiters, where),
        )
        return [timeout, *metadata.assign(where, now_ms)]

    def highest_remote(self, where: TopicIdPartition) -> tuple[int, int]:
        """Return (highest remote offset, epoch) of this lineage; (-1, -1) if none. For timestamp -5."""
        tasks = self._tasks.get(where)
        return (-1, -1) if tasks is None else tasks.hosted.highest_remote(self.services.metadata)

    def status(self, topic_id: Uuid | None = None) -> list[StatusRow]:
        """Return a row for each hosted partition, by topic and partition."""
        steps = self.status_steps(topic_id)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                rows: list[StatusRow] = end.value
                return rows

    def status_steps(self, topic_id: Uuid | None = None) -> Generator[None, None, list[StatusRow]]:
        """As `status`, in slices."""
        return status_rows(self.services, self._present(topic_id))

    def gauges(self, now_ms: int) -> Iterator[Gauges]:
        """Iterate over the gauges of all partitions, which may leave the node meanwhile."""
        return (gauges(self.services, hosted, now_ms) for hosted in self._present(None))

    def copy_problems(self) -> Iterator[tuple[str, str]]:
        """Iterate over the partitions with something that fails in the tier: their names, and why."""
        for hosted in self._present(None):
            if hosted.problem is not None:
                yield str(hosted.log.topic_partition), hosted.problem.text

    def decision_times(self) -> Iterator[tuple[str, int]]:
        """Iterate over led partitions: their topics, and how many ms the last decision about each took."""
        for hosted in self._present(None):
            if hosted.leads:
                yield hosted.topic, self._tasks[hosted.where].expiry.decided_in_ms

    def _present(self, topic_id: Uuid | None) -> Iterator[Hosted]:
        """Iterate over the partitions. Some may leave the node meanwhile."""
        for where in list(self._tasks if topic_id is None else self._by_topic.get(topic_id, {})):
            tasks = self._tasks.get(where)
            if tasks is not None:
                yield tasks.hosted


def _ignore(_error: FirnlineError | None, _now_ms: int) -> Effects:
    return []


def _is_loading(error: FirnlineError) -> bool:
    return isinstance(error, KafkaError) and error.code == Code.REPLICA_NOT_AVAILABLE


_NOT_HERE = KafkaError(Code.NOT_LEADER_OR_FOLLOWER, "this node does not serve the partition")
_NO_COPY = KafkaError(Code.INVALID_REQUEST, "copying to the tier is disabled for the topic")


def _nobody_else_leads(_where: TopicIdPartition, _problem: FirnlineError, _now_ms: int) -> Effects:
    return []
