"""Applies the cluster's metadata to the partitions of this node: host, lead, follow, drop. PURE.

Theory of operation. Each committed change of the metadata names the topics it touches; only those are
examined. Nothing is applied before this node's own registration is in the image (rel-R4). Changes are applied
in order, a large one in slices; each partition goes directly to its state in the newest image. A partition
whose log is not open is opened in slices, and is not served before that. The observer (`PartitionEvents` of
broker/wiring) learns when a partition begins or stops leading: it informs the coordinators and the tier.
Source: KIP-631; house, walks through the broker.
"""

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

from firnline.base.background import Background
from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import StorageError
from firnline.base.ids import INTERNAL_TOPICS, LOST_DIRECTORY, PartitionKey, TopicPartition, Uuid
from firnline.base.log_lines.storage import LOG_NOT_DELETED, PARTITION_NOT_SERVED
from firnline.base.log_lines.tier import TIERED_WITHOUT_TIER
from firnline.base.ports import File
from firnline.base.waits import At, Wait
from firnline.broker.leaders import ActedOn
from firnline.broker.tier import disabled
from firnline.config.broker import BrokerConfig
from firnline.config.layers import broker_config, topic_config
from firnline.config.topic import TopicConfig
from firnline.log.recovery import recovery_warnings
from firnline.metadata.delta import ClusterDelta
from firnline.metadata.image import (
    EMPTY_IMAGE,
    NO_LEADER,
    ClusterImage,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from firnline.metadata.loader import difference_steps
from firnline.replica.hosted import HostedPartitions, PartitionObserver
from firnline.replica.isr import NO_BROKERS, Brokers
from firnline.replica.opening import Begun, Job, LogsOpenCallback, Opening, Urgency
from firnline.replica.partition import FsyncRule, Partition

if TYPE_CHECKING:
    from firnline.log.log import Log

_AGAIN_MS = 5_000
_AGAIN = ("hosting", "open again")
# Partitions that are changed in one step, which takes some milliseconds; a deletion takes longest.
AT_ONCE = 64


class LogStore(Protocol):
    """Opens, keeps and deletes logs: `broker/storage.py`."""

    def open_steps(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: TopicConfig,
        now_ms: int,
        *,
        directory_id: Uuid | None = None,
        may_make: bool = True,
    ) -> "Generator[At | Wait | None, None, Log]":
        """Return the log of a partition; create it if it does not exist and `may_make`. Else StorageError.

        Yields its directory first, then after each slice of a recovery.
        """
        ...

    def healthy_paths(self) -> Sequence[str]:
        """The paths of the log directories that have not failed."""
        ...

    def unsynced(self, log: "Log") -> Sequence[File]:
        """Return, once, the files to sync before the log is served."""
        ...

    def still_unsynced(self, log: "Log", files: Sequence[File]) -> None:
        """It is unknown whether these files are synced: sync them at the latest when the store closes."""
        ...

    def directory_of(self, log: "Log") -> Uuid | None:
        """Return the id of the log's directory; None if that has failed."""
        ...

    def let_go(self, log: "Log") -> Effects:
        """Stop serving the log; its files stay."""
        ...

    def is_unmade(self, topic_partition: TopicPartition, said: StorageError) -> bool:
        """Whether a new replica could not be created in the directory of `said`, and another may take it."""
        ...

    def drop(self, log: "Log", now_ms: int) -> Effects:
        """Delete a log; its files later, in the background."""
        ...

    def drop_unopened(
        self, topic_partition: TopicPartition, topic_id: Uuid, now_ms: int
    ) -> Effects:
        """Delete the files of a partition that could not be opened. StorageError: not possible now."""
        ...


class _Unserved(NamedTuple):
    """A partition whose log could not be opened, and the error."""

    name: TopicPartition
    problem: StorageError


class Hosting:
    """Keeps `hosted` in the state of the committed image.

    A deleted topic is refused from the start of its change on, even if its partitions are dropped in slices.
    Logs are opened in slices, and wait for the disk off the loop. Until a log is open, its partition answers
    NOT_LEADER_OR_FOLLOWER, and clients retry. Logs that a client has requested come first, then internal
    topics and partitions that this node leads with records in them, then the others.

    had_records     whether a replica on this node had records on disk at the last stop; None if there are no
                    files of it
    is_in           whether the broker with this node's id in an image is this process. If another process has
                    replaced it, nothing is led or followed here
    observer        is called when partitions change
    acted_on        has the latest image that all partitions have applied
    """

    def __init__(
        self,
        *,
        node_id: int,
        config: BrokerConfig,
        hosted: HostedPartitions,
        store: LogStore,
        fsync_rule: FsyncRule,
        observer: PartitionObserver,
        acted_on: ActedOn,
        brokers: Brokers = NO_BROKERS,
        had_records: Callable[[TopicPartition], bool | None] = lambda _: None,
        is_in: Callable[[ClusterImage], bool] = lambda _: True,
    ) -> None:
        self._node_id = node_id
        self._config = config
        self._hosted = hosted
        self._store = store
        self._fsync_rule: FsyncRule = fsync_rule
        self._brokers = brokers
        self._had_records = had_records
        self._is_in = is_in
        self._observer = observer
        self._acted_on = acted_on
        # Partitions that are not served. One of another node stays here until its files are deleted.
        self.failed: dict[PartitionKey, _Unserved] = {}
        self._image = EMPTY_IMAGE
        self._changes = Background("hosting")
        self._changes_left = 0
        # Partitions of deleted topics that were led, and are not dropped yet.
        self._refused: dict[TopicPartition, None] = {}
        self._is_stopped = False
        # Partitions whose metadata has changed while their logs are being truncated.
        self._being_truncated: dict[TopicPartition, None] = {}
        # Lost replicas of which it is not known yet whether they exist here.
        self._lost_before: dict[PartitionKey, None] = {}
        self._opening = Opening(self._begin, self._finish, self._place, store.healthy_paths)
        self._topic_config: tuple[ClusterImage, str, TopicConfig] | None = None
        self._altered: tuple[Mapping[str, str], Mapping[str, str], BrokerConfig] | None = None

    @property
    def acted_on(self) -> ClusterImage:
        """The latest image that all partitions have applied."""
        return self._acted_on.image

    def apply(self, delta: ClusterDelta, image: ClusterImage, now_ms: int) -> Effects:
        """Apply one committed change; `when_settled` calls back when that is done."""
        if self._is_stopped:
            return []
        self._image = image
        self._refuse_deleted(delta)
        is_large = _is_large(delta) or self._is_taken(delta)
        if not self._changes_left and not is_large:
            self._acted_on.image = image
        return self._change(self._acts(delta), now_ms, is_long=is_large)

    def take(self, image: ClusterImage, now_ms: int) -> Effects:
        """Apply a complete image; no partition is hosted yet."""
        self._image = image
        partitions = (len(topic.partitions) for topic in image.topics_by_id.values())
        is_long = any(count > AT_ONCE for count in accumulate(partitions))
        return self._change(self._acts_on_all(image), now_ms, is_long=is_long)

    def when_applied(self, then: LogsOpenCallback, now_ms: int) -> Effects:
        """Call `then(now_ms)` once all changes so far are applied, except that logs may not be open yet."""
        return self._change(iter([then]), now_ms)

    def when_settled(
        self, then: LogsOpenCallback, now_ms: int, *, at_most_ms: int | None = None
    ) -> Effects:
        """Call `then(now_ms)` once all changes so far are applied and logs open, or after `at_most_ms`."""

        def applied(at_ms: int) -> Effects:
            left_ms = None if at_most_ms is None else max(0, now_ms + at_most_ms - at_ms)
            return self._opening.when_done(then, at_ms, at_most_ms=left_ms)

        return self.when_applied(applied, now_ms)

    def when_ready(self, then: LogsOpenCallback, now_ms: int, *, at_most_ms: int) -> Effects:
        """As `when_settled`, before the broker is unfenced.

        Waits for the search of lost replicas however long it takes: the controller elects a replica that has
        come back when it unfences the broker, and not later.
        """

        def settled(at_ms: int) -> Effects:
            if not self._lost_before:
                return then(at_ms)
            return self.when_settled(then, at_ms)

        return self.when_settled(settled, now_ms, at_most_ms=at_most_ms)

    def _change(
        self, acts: Iterator[LogsOpenCallback | None], now_ms: int, *, is_long: bool = False
    ) -> Effects:
        """Run `acts` after all earlier changes: now, or in slices from the next turn on."""
        effects: Effects = []
        if not self._changes_left and not is_long:
            for act in acts:
                effects += [] if act is None else act(now_ms)
            return effects
        self._changes_left += 1
        work = _partitions_in_turn(self._until_stopped(chain(acts, [self._changed])))
        return self._changes.begin(work, now_ms)

    def _until_stopped(
        self, acts: Iterator[LogsOpenCallback | None]
    ) -> Iterator[LogsOpenCallback | None]:
        for act in acts:
            if self._is_stopped:
                return
            yield act

    def _changed(self, now_ms: int) -> Effects:
        self._changes_left -= 1
        return []

    def _acts_on_all(self, image: ClusterImage) -> Iterator[LogsOpenCallback | None]:
        """Yield the steps for a complete image; None to give way to other work."""
        steps = difference_steps(EMPTY_IMAGE, image)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                yield from self._acts(end.value)
                return
            yield None

    def _acts(self, delta: ClusterDelta) -> Iterator[LogsOpenCallback]:
        """Yield the steps for a change, one for each partition."""
        held_up: list[Partition] = []
        for gone in delta.deleted_topics:
            for index in sorted(gone.partitions):
                yield partial(self._drop_deleted, gone, index)
        for changed in delta.topics:
            for index in changed.partitions:
                yield partial(self._apply_partition, changed.after, index, held_up)
        for resource in delta.configs:
            if resource.resource_type == ResourceType.TOPIC:
                topic = self._image.topics_by_name.get(resource.name)
                for index in sorted(topic.partitions if topic is not None else ()):
                    yield partial(self._configure, resource.name, index)
            elif resource.resource_type == ResourceType.BROKER:  # they include defaults of topics
                for name, index in list(self._hosted.by_name):
                    yield partial(self._configure, name, index)
        if self._is_taken(delta):
            for partition in self._hosted:
                yield partial(self._again_if_hosted, partition)
        yield partial(self._all_acted_on, delta.after, held_up)

    def _is_taken(self, delta: ClusterDelta) -> bool:
        """Whether the change replaces or removes the registration of this process."""
        return self._node_id in delta.brokers and not self._is_in(delta.after)

    def _all_acted_on(
        self, image: ClusterImage, held_up: Sequence[Partition], now_ms: int
    ) -> Effects:
        effects: Effects = []
        if self._acted_on.image is not image:
            self._acted_on.image = image
            for partition in held_up:
                effects += self._again_if_hosted(partition, now_ms)
        return effects + self._opening.go(now_ms)

    def _again_if_hosted(self, partition: Partition, now_ms: int) -> Effects:
        """Apply the partition's state again: the facts about other brokers are newer now."""
        name = partition.topic_partition
        found = self._state((partition.topic_id, name.partition))
        is_here = self._hosted.by_name.get(name) is partition and partition.log.truncation is None
        return self._update(partition, found[1], now_ms) if is_here and found is not None else []

    def _refuse_deleted(self, delta: ClusterDelta) -> None:
        """Refuse deleted topics at once: from here on their names belong to the topics that replaced them."""
        for gone in delta.deleted_topics:
            for index in gone.partitions:
                partition = self._hosted.by_id.get((gone.topic_id, index))
                if partition is None:
                    continue
                if partition.is_leader:
                    self._refused[partition.topic_partition] = None
                partition.retire()

    def leave(self, then: LogsOpenCallback, now_ms: int) -> Effects:
        """Stop serving, answer waiting requests, then call `then(now_ms)`, which closes the logs.

        Deleted partitions are dropped first. Partitions that the controller has not moved in time are still
        led by this node, as far as it knows.
        """
        return self.when_applied(partial(self._leave, then), now_ms)

    def _leave(self, then: LogsOpenCallback, now_ms: int) -> Effects:
        self.stop()
        acts: list[LogsOpenCallback] = [
            partial(self._retire, partition) for partition in self._hosted
        ]
        if len(acts) <= AT_ONCE:
            return [effect for act in (*acts, then) for effect in act(now_ms)]
        return Background("hosting: leave").begin(_partitions_in_turn([*acts, then]), now_ms)

    def stop(self) -> None:
        """Open no more logs and apply no more changes: the next start does."""
        self._is_stopped = True
        for job in self._opening.stop():
            self._store.still_unsynced(job.partition.log, job.files)

    def _apply_partition(
        self, topic: TopicImage, index: int, held_up: list[Partition], now_ms: int
    ) -> Effects:
        key = (topic.topic_id, index)
        hosted = self._hosted.by_id.get(key)
        if hosted is not None and hosted.log.truncation is not None:
            return self._when_truncated(hosted, now_ms)
        found = self._state(key)
        if found is None:
            if key in self.failed:
                self._opening.add(key)
            # A later change that deletes the topic also drops the partition.
            is_moved = hosted is not None and topic.topic_id in self._image.topics_by_id
            return self._drop(hosted, now_ms) if is_moved and hosted is not None else []
        if hosted is None:
            self._opening.add(key, self._urgency(*found, index))
            return []
        effects = self._update(hosted, found[1], now_ms)
        if hosted.unanswered_proposals:
            held_up.append(hosted)
        return effects

    def _urgency(self, topic: TopicImage, state: PartitionImage, index: int) -> Urgency:
        """How urgent it is to open a log. A partition without a leader may be led by this node soon."""
        if state.directories[state.replicas.index(self._node_id)] == LOST_DIRECTORY:
            self._lost_before[(topic.topic_id, index)] = None
            return Urgency.ASKED_FOR
        if topic.name in INTERNAL_TOPICS:
            return Urgency.ASKED_FOR  # members of groups wait for it, although no request names it
        had_records = self._had_records(TopicPartition(topic.name, index))
        if had_records is None:
            return Urgency.LIKELY
        leaders = state.isr if state.leader == NO_LEADER else (state.leader,)
        return Urgency.LIKELY if had_records and self._node_id in leaders else Urgency.IDLE

    def asked_for(self, topic: str, index: int) -> None:
        """A client has requested the partition: open its log next if it is not open."""
        found = self._image.topics_by_name.get(topic)
        if found is not None:
            self._opening.prefer((found.topic_id, index))

    # ------------------------------------------------------------------------- opening logs

    def _state(self, key: PartitionKey) -> tuple[TopicImage, PartitionImage] | None:
        """The partition in the newest image; None if this node is not a replica."""
        topic = self._image.topics_by_id.get(key[0])
        state = None if topic is None else topic.partitions.get(key[1])
        if topic is None or state is None or self._node_id not in state.replicas:
            return None
        return topic, state

    def _place(self, key: PartitionKey) -> Hashable:
        """The name of its files: a topic may be deleted and created again while its log is being opened."""
        topic = self._image.topics_by_id.get(key[0])
        return key if topic is None else (topic.name, key[1])

    def _begin(self, key: PartitionKey, now_ms: int) -> Begun:
        """Open the log of a partition."""
        begun = yield from self._open(key, now_ms)
        if not isinstance(begun, Job):
            self._lost_before.pop(key, None)
        return begun

    def _open(self, key: PartitionKey, now_ms: int) -> Begun:
        found = self._state(key)
        if found is None:
            return self._give_up(key, now_ms)
        name = TopicPartition(found[0].name, key[1])
        hosted = self._hosted.by_name.get(name)
        if hosted is not None:  # its state changed while it was being opened
            if hosted.log.truncation is not None:
                return self._when_truncated(hosted, now_ms)
            return self._update(hosted, found[1], now_ms)
        said = found[1].directories[found[1].replicas.index(self._node_id)]
        # An empty log that leads would lose all acknowledged records. A new partition has none.
        had_some = found[1].partition_epoch > 0 and self._had_records(name)
        may_make = found[1].isr != (self._node_id,) or (said != LOST_DIRECTORY and not had_some)
        config = self._config_of(name.topic)
        if disabled.needs_disabled_tier(
            self._config, name.topic, self._image.topic_config_overrides(name.topic)
        ):
            problem = disabled.not_served()
            return self._not_served(
                key, name, problem, now_ms, is_lost=found[1].isr != (self._node_id,)
            )
        try:
            log = yield from self._store.open_steps(
                name, key[0], config, now_ms, directory_id=said, may_make=may_make
            )
        except StorageError as problem:
            return self._not_opened(key, name, problem, now_ms)
        partition = Partition(
            log, node_id=self._node_id, fsync_rule=self._fsync_rule, brokers=self._brokers
        )
        return Job(key, partition, self._store.unsynced(log))

    def _finish(self, job: Job, problem: StorageError | None, now_ms: int) -> Effects:
        """The log is synced: serve the partition in its state in the newest image, if it still has it."""
        partition, found = job.partition, self._state(job.key)
        if job.key not in self._opening:
            self._lost_before.pop(job.key, None)
        log = partition.log
        if problem is None and self._store.directory_of(log) is None:
            problem = StorageError("its log directory failed meanwhile", path=log.path)
        if problem is None:
            try:
                log.flushed(log.log_end_offset)
            except StorageError as refused:
                problem = refused
        if problem is not None:
            name, effects = partition.topic_partition, self._store.let_go(log)
            if problem.has_lost_nothing:
                effects += self._not_served(job.key, name, problem, now_ms)
                return [*effects, self._timer(now_ms)]
            effects += self._disk_failed(job.key, name, problem, now_ms)
            return effects + (self._give_up(job.key, now_ms) if found is None else [])
        self.failed.pop(job.key, None)
        if found is None:
            return self._remove(job.key, log, now_ms)
        log.config = self._config_of(found[0].name)
        self._hosted.add(partition)
        warnings = recovery_warnings(log)
        if job.key in self._opening:
            return warnings  # its state changed again: it is opened again in its turn
        return warnings + self._update(partition, found[1], now_ms)

    def _not_opened(
        self, key: PartitionKey, name: TopicPartition, problem: StorageError, now_ms: int
    ) -> Effects:
        """Handle a log that could not be opened: damaged files, a failed disk, or no space or descriptor now.

        A partition that stays unopened is out of its ISR, or without a leader, until the next start.
        """
        if not problem.is_passing and problem.facts.get("error") is not None:
            effects = self._disk_failed(key, name, problem, now_ms)
        else:
            effects = self._not_served(key, name, problem, now_ms)
            if problem.is_passing and self._state(key) is not None:
                effects.append(self._timer(now_ms))
        if self._state(key) is None:  # it has been deleted or moved meanwhile
            effects += self._give_up(key, now_ms)
        return effects

    def _disk_failed(
        self, key: PartitionKey, name: TopicPartition, problem: StorageError, now_ms: int
    ) -> Effects:
        """A disk failed under a log that is not served yet; create a new log in another directory, if any.

        If it were reported as lost, the controller would wait for it, not knowing that it never had a record.
        """
        effects = self._observer.disk_failed(problem, now_ms)
        if self._store.is_unmade(name, problem):
            self._opening.add(key)
            return effects
        return self._not_served(key, name, problem, now_ms) + effects

    def _give_up(self, key: PartitionKey, now_ms: int) -> Effects:
        """Delete the files of an unopened partition that this node does not have any more."""
        found = self.failed.pop(key, None)
        return [] if found is None else self._remove_unopened(key, found.name, now_ms)

    def _remove_unopened(self, key: PartitionKey, name: TopicPartition, now_ms: int) -> Effects:
        try:
            return self._store.drop_unopened(name, key[0], now_ms)
        except StorageError as problem:
            if problem.is_passing:
                self.failed[key] = _Unserved(name, problem)
                return [self._timer(now_ms)]
            return [LOG_NOT_DELETED(**name._asdict(), error=problem)]

    def _timer(self, now_ms: int) -> SetTimer:
        return SetTimer(key=_AGAIN, at_ms=now_ms + _AGAIN_MS, then=self._again)

    def _again(self, now_ms: int) -> Effects:
        for key, found in self.failed.items():
            if found.problem.is_passing:
                self._opening.add(key)
        return self._opening.go(now_ms)

    def _not_served(
        self,
        key: PartitionKey,
        name: TopicPartition,
        problem: StorageError,
        now_ms: int,
        *,
        is_lost: bool = True,
    ) -> Effects:
        before, self.failed[key] = self.failed.get(key), _Unserved(name, problem)
        effects: Effects = []
        if before is None or str(before.problem) != str(problem):
            effects.append(PARTITION_NOT_SERVED(**name._asdict(), error=problem))
        if is_lost and not problem.is_passing:
            effects += self._observer.partition_lost(key, now_ms)
        return effects

    def _config_of(self, topic: str) -> TopicConfig:
        """Return the configuration of a topic, one object for all its partitions."""
        known = self._topic_config
        if known is None or known[0] is not self._image or known[1] != topic:
            overrides = self._image.topic_config_overrides(topic)
            known = self._image, topic, topic_config(self._defaults(), overrides)
            self._topic_config = known
        return known[2]

    def _defaults(self) -> BrokerConfig:
        """The broker's configuration with its dynamic configs."""
        cluster, node = (
            self._image.config(ResourceType.BROKER, name) for name in ("", str(self._node_id))
        )
        known = self._altered
        if known is None or known[0] is not cluster or known[1] is not node:
            known = self._altered = cluster, node, broker_config(self._config, cluster, node)
        return known[2]

    # --------------------------------------------------------------------- applying changes

    def _update(self, partition: Partition, state: PartitionImage, now_ms: int) -> Effects:
        was_leader = partition.is_leader
        high_before = partition.log.high_watermark
        leads_anew = partition.update(
            leader_id=state.leader if self._is_in(self._image) else NO_LEADER,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=state.replicas,
            isr=state.isr,
            now_ms=now_ms,
        )
        effects = self._observer.partition_updated(partition, now_ms)
        if not partition.is_leader:
            effects += partition.release_all(now_ms)
        elif partition.log.high_watermark > high_before:
            effects += partition.produce_waiters.passed(partition.log.high_watermark, now_ms)
            effects += partition.fetch_waiters.all_at_once(now_ms)
        # No request waits for a replica without a log.
        if partition.is_leader and partition.deletion_waiters:
            effects += partition.deletion_waiters.passed(partition.low_watermark, now_ms)
        if leads_anew:
            effects += self._observer.leadership_began(partition, now_ms)
        elif was_leader and not partition.is_leader:
            effects += self._observer.leadership_ended(partition, now_ms)
        return effects

    def _configure(self, topic: str, index: int, now_ms: int) -> Effects:
        partition = self._hosted.by_name.get((topic, index))
        if partition is None or topic not in self._image.topics_by_name:
            return []
        config = self._config_of(topic)
        if partition.log.config == config:
            return []
        effects: Effects = []
        overrides = self._image.topic_config_overrides(topic)
        was_tiered = partition.log.config.remote_storage_enable
        if not was_tiered and disabled.needs_disabled_tier(self._config, topic, overrides):
            where = partition.topic_partition._asdict()
            effects.append(TIERED_WITHOUT_TIER(**where, setting=disabled.SWITCH))
        partition.log.config = config
        return effects + self._observer.partition_configured(partition, now_ms)

    def _drop_deleted(self, topic: TopicImage, index: int, now_ms: int) -> Effects:
        key = (topic.topic_id, index)
        if key in self.failed:
            self._opening.add(key)  # in its turn: its log may be in another attempt
        partition = self._hosted.by_id.get(key)
        if partition is None:
            return self._drop_unopened(key, TopicPartition(topic.name, index), now_ms)
        if partition.log.truncation is not None:
            return self._when_truncated(partition, now_ms)
        return self._drop(partition, now_ms)

    def _drop_unopened(self, key: PartitionKey, name: TopicPartition, now_ms: int) -> Effects:
        """Delete the files of a partition that was deleted before its log was opened."""
        if key in self.failed or not self._opening.gives_up(key):
            return []
        self._lost_before.pop(key, None)
        return self._remove_unopened(key, name, now_ms)

    def _when_truncated(self, partition: Partition, now_ms: int) -> Effects:
        """Its log is being truncated: apply its state in the image once that is over."""
        if partition.topic_partition in self._being_truncated:
            return []
        self._being_truncated[partition.topic_partition] = None
        return partition.log.after_truncation(partial(self._truncated, partition), now_ms)

    def _truncated(self, partition: Partition, now_ms: int) -> Effects:
        name = partition.topic_partition
        del self._being_truncated[name]
        if self._is_stopped or self._hosted.by_name.get(name) is not partition:
            return []
        found = self._state((partition.topic_id, name.partition))
        if found is not None:
            return self._update(partition, found[1], now_ms)
        effects = self._drop(partition, now_ms)
        successor = self._image.topics_by_name.get(name.topic)
        if successor is not None:
            self._opening.add((successor.topic_id, name.partition))
        return effects + self._opening.go(now_ms)

    def _drop(self, partition: Partition, now_ms: int) -> Effects:
        """Stop serving a partition, answer its waiting requests, then delete its files."""
        self._hosted.remove(partition)
        effects = self._retire(partition, now_ms)
        effects += self._observer.partition_dropped(partition, now_ms)
        key = (partition.topic_id, partition.topic_partition.partition)
        return effects + self._remove(key, partition.log, now_ms)

    def _remove(self, key: PartitionKey, log: "Log", now_ms: int) -> Effects:
        """Delete a log. If the disk is too full to rename it, retry as for a partition that is not served."""
        name = log.topic_partition
        try:
            return self._store.drop(log, now_ms)
        except StorageError as problem:
            if problem.is_passing:
                self.failed[key] = _Unserved(name, problem)
                return [self._timer(now_ms)]
            return [
                LOG_NOT_DELETED(**name._asdict(), error=problem),
                *self._observer.disk_failed(problem, now_ms),
            ]

    def _retire(self, partition: Partition, now_ms: int) -> Effects:
        was_leader = partition.is_leader
        if partition.topic_partition in self._refused:
            was_leader = True
            del self._refused[partition.topic_partition]
        partition.retire()
        effects = partition.release_all(now_ms)
        if was_leader:
            effects += self._observer.leadership_ended(partition, now_ms)
        return effects


def _partitions_in_turn(acts: Iterable[LogsOpenCallback | None]) -> Generator[Effects, int, None]:
    """Run steps in slices; None ends a slice."""
    now_ms = yield []
    effects: Effects = []
    for count, act in enumerate(acts, 1):
        if act is not None:
            effects += act(now_ms)
        if act is None or count % AT_ONCE == 0:
            now_ms = yield effects
            effects = []
    yield effects


def _is_large(delta: ClusterDelta) -> bool:
    """Whether a change has more partitions than one step applies."""
    count = 0
    for gone in delta.deleted_topics:
        count += len(gone.partitions)
    for changed in delta.topics:
        count += len(changed.partitions)
    for resource in delta.configs:
        if resource.resource_type == ResourceType.BROKER:
            return True
        topic = delta.after.topics_by_name.get(resource.name)
        count += len(topic.partitions) if topic is not None else 0
    return count > AT_ONCE
