"""What the cluster's metadata means for the partitions on this node: host, lead, follow, drop. PURE.

Each committed change names the topics it touched; only those are looked at. Nothing is acted on before
this node's own registration is in the image (rel-R4). Who needs to know that we lead a partition, or no
longer do, is told here: coordinators, the tier. Source: KIP-631; house, walks through the broker.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from firnline.base.effects import Effects, SetTimer, Warn
from firnline.base.errors import StorageError
from firnline.base.ids import LOST_DIRECTORY, TopicPartition, Uuid
from firnline.base.ports import File
from firnline.broker.tier import absence
from firnline.config.broker import BrokerConfig
from firnline.config.layers import topic_config
from firnline.config.topic import TopicConfig
from firnline.log.recovery import told_of_recovery
from firnline.metadata.delta import ClusterDelta, TopicDelta
from firnline.metadata.image import (
    EMPTY_IMAGE,
    ClusterImage,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from firnline.replica.hosted import HostedPartitions
from firnline.replica.isr import NO_BROKERS, Brokers
from firnline.replica.opening import Job, Key, Opening, Then
from firnline.replica.partition import FsyncRule, Partition

if TYPE_CHECKING:
    from firnline.log.log import Log

Told = Callable[[Partition, int], Effects]
# What the operator may end while we run; whatever else a disk answers means that it failed (rel-P9).
_PASSING = ("ENOSPC", "EDQUOT", "EMFILE", "ENFILE")
_AGAIN_MS = 5_000
_AGAIN = ("hosting", "open again")


class LogStore(Protocol):
    """Where logs are: `broker/storage.py`."""

    def open(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: TopicConfig,
        now_ms: int,
        *,
        directory_id: Uuid | None = None,
        may_make: bool = True,
    ) -> "Log":
        """Return the log of a partition, made if it is not there and `may_make`. StorageError else."""
        ...

    def unsynced(self, log: "Log") -> Sequence[File]:
        """Return, once, what has to be synced before the log is served."""
        ...

    def directory_of(self, log: "Log") -> Uuid | None:
        """Return the id of the directory that the log is in; None where that failed."""
        ...

    def let_go(self, log: "Log") -> None:
        """Serve the log no more; its files stay."""
        ...

    def drop(self, log: "Log", now_ms: int) -> Effects:
        """Delete a log, its files at leisure."""
        ...


class Hosting:
    """Keeps `hosted` as the committed image says.

    Logs are opened in slices, and what waits for the disk waits off the loop: until then the partition is not
    led here, which clients ask again about.

    on_updated      told of each whose leader, epoch, replicas or ISR metadata changed, before the others
    on_leading      told of each partition that we lead in a new epoch
    on_not_leading  told of each that we led and do not any more, deleted ones included
    on_dropped      told of each that is gone from this node
    on_configured   told of each whose topic's settings changed
    on_lost         told of each that cannot be served, by its key
    on_disk_failed  told what a disk answered when a log was opened or made durable
    """

    def __init__(
        self,
        *,
        node_id: int,
        config: BrokerConfig,
        hosted: HostedPartitions,
        store: LogStore,
        fsync_rule: FsyncRule,
        on_disk_failed: Callable[[StorageError, int], Effects],
        brokers: Brokers = NO_BROKERS,
    ) -> None:
        self._node_id = node_id
        self._config = config
        self._hosted = hosted
        self._store = store
        self._fsync_rule: FsyncRule = fsync_rule
        self._brokers = brokers
        self._on_disk_failed = on_disk_failed
        self.on_updated: list[Told] = []
        self.on_leading: list[Told] = []
        self.on_not_leading: list[Told] = []
        self.on_dropped: list[Told] = []
        self.on_configured: list[Told] = []
        self.on_lost: list[Callable[[Key, int], Effects]] = []
        # Partitions whose log could not be opened: (topic id, index) -> why. They are not served.
        self.failed: dict[Key, StorageError] = {}
        self._image = EMPTY_IMAGE
        self._is_stopped = False
        self._being_cut: dict[TopicPartition, None] = {}  # and there is news of them
        self._opening = Opening(self._begin, self._finish)
        self._topic_config: tuple[ClusterImage, str, TopicConfig] | None = None

    def apply(self, delta: ClusterDelta, image: ClusterImage, now_ms: int) -> Effects:
        """Act on one committed change; `when_settled` tells when it is done with."""
        if self._is_stopped:
            return []
        self._image = image
        effects: Effects = []
        for gone in delta.deleted_topics:
            effects += self._drop_topic(gone, now_ms)
        for changed in delta.topics:
            effects += self._apply_topic(changed, now_ms)
        for resource in delta.configs:
            if resource.resource_type == ResourceType.TOPIC:
                effects += self._configure(resource.name, now_ms)
        return effects + self._opening.go(now_ms)

    def when_settled(self, then: Then, now_ms: int, *, at_most_ms: int | None = None) -> Effects:
        """Run `then(now_ms)` once all that was applied so far is acted on, or after `at_most_ms`."""
        return self._opening.when_done(then, now_ms, at_most_ms=at_most_ms)

    def leave(self, now_ms: int) -> Effects:
        """Serve nothing any more, and tell who waits: the logs are about to be closed.

        What no controller took from us in time is still led here as far as we know.
        """
        self.stop()
        effects: Effects = []
        for partition in list(self._hosted.by_name.values()):
            effects += self._retire(partition, now_ms)
        return effects

    def stop(self) -> None:
        """Open nothing more, and act on no change: the next start does."""
        self._is_stopped = True
        self._opening.stop()

    def _apply_topic(self, changed: TopicDelta, now_ms: int) -> Effects:
        topic = changed.after
        effects: Effects = []
        for index in changed.partitions:
            state = topic.partitions[index]
            found = self._hosted.by_name.get((topic.name, index))
            if found is not None and found.log.truncation is not None:
                effects += self._when_whole(found, now_ms)
                continue
            if self._node_id not in state.replicas:
                if found is not None:
                    effects += self._drop(found, now_ms)
                continue
            if found is None:
                self._opening.add((topic.topic_id, index))
            else:
                effects += self._update(found, state, now_ms)
        return effects

    # ---------------------------------------------------------------- what needs the disk

    def _state(self, key: Key) -> tuple[TopicImage, PartitionImage] | None:
        """What the newest image says of a partition; None when it is not ours."""
        topic = self._image.topics_by_id.get(key[0])
        state = None if topic is None else topic.partitions.get(key[1])
        if topic is None or state is None or self._node_id not in state.replicas:
            return None
        return topic, state

    def _begin(self, key: Key, now_ms: int) -> Job | Effects:
        """Open the log of a partition."""
        found = self._state(key)
        if found is None:
            self.failed.pop(key, None)
            return []
        name = TopicPartition(found[0].name, key[1])
        hosted = self._hosted.by_name.get(name)
        if hosted is not None:  # it changed while it was opened
            if hosted.log.truncation is not None:
                return self._when_whole(hosted, now_ms)
            return self._update(hosted, found[1], now_ms)
        said = found[1].directories[found[1].replicas.index(self._node_id)]
        # In an empty log that leads, nothing would be left of what was acknowledged.
        may_make = said != LOST_DIRECTORY or found[1].isr != (self._node_id,)
        config = self._config_of(name.topic)
        if absence.is_beyond(
            self._config, name.topic, self._image.topic_config_overrides(name.topic)
        ):
            problem = absence.not_served()
            return self._not_served(
                key, name, problem, now_ms, is_lost=found[1].isr != (self._node_id,)
            )
        try:
            log = self._store.open(
                name, key[0], config, now_ms, directory_id=said, may_make=may_make
            )
        except StorageError as problem:
            return self._not_opened(key, name, problem, now_ms)
        partition = Partition(
            log, node_id=self._node_id, fsync_rule=self._fsync_rule, brokers=self._brokers
        )
        return Job(key, partition, self._store.unsynced(log))

    def _finish(self, job: Job, problem: StorageError | None, now_ms: int) -> Effects:
        """It is on disk: serve the partition as the newest image says, unless that took it away."""
        partition, found = job.partition, self._state(job.key)
        log = partition.log
        if problem is None and self._store.directory_of(log) is None:
            problem = StorageError("its log directory failed meanwhile")
        if problem is not None:
            self._store.let_go(log)
            effects = self._not_served(job.key, partition.topic_partition, problem, now_ms)
            return effects + self._on_disk_failed(problem, now_ms)
        self.failed.pop(job.key, None)
        log.flushed(log.log_end_offset)
        if found is None:
            return self._store.drop(log, now_ms)
        log.config = self._config_of(found[0].name)
        self._hosted.add(partition)
        told = told_of_recovery(log)
        if job.key in self._opening:
            return told  # it changed again: its turn comes
        return told + self._update(partition, found[1], now_ms)

    def _not_opened(
        self, key: Key, name: TopicPartition, problem: StorageError, now_ms: int
    ) -> Effects:
        """Its files are damaged, which concerns nobody else; or a disk failed, or has no room now.

        A partition that is left lying here is out of its ISR, or led by nobody, for as long as we run.
        """
        effects = self._not_served(key, name, problem, now_ms)
        error = problem.facts.get("error")
        if error in _PASSING:
            return [*effects, SetTimer(key=_AGAIN, at_ms=now_ms + _AGAIN_MS, then=self._again)]
        return effects if error is None else effects + self._on_disk_failed(problem, now_ms)

    def _again(self, now_ms: int) -> Effects:
        for key, problem in self.failed.items():
            if problem.facts.get("error") in _PASSING:
                self._opening.add(key)
        return self._opening.go(now_ms)

    def _not_served(
        self,
        key: Key,
        name: TopicPartition,
        problem: StorageError,
        now_ms: int,
        *,
        is_lost: bool = True,
    ) -> Effects:
        before, self.failed[key] = self.failed.get(key), problem
        effects: Effects = []
        if str(before) != str(problem):
            effects.append(Warn(line=f"{name} is not served: {problem}"))
        if is_lost and problem.facts.get("error") not in _PASSING:
            for told in self.on_lost:
                effects += told(key, now_ms)
        return effects

    def _config_of(self, topic: str) -> TopicConfig:
        """One object for all partitions of a topic."""
        known = self._topic_config
        if known is None or known[0] is not self._image or known[1] != topic:
            overrides = self._image.topic_config_overrides(topic)
            known = self._image, topic, topic_config(self._config, overrides)
            self._topic_config = known
        return known[2]

    # ---------------------------------------------------------------- what does not

    def _update(self, partition: Partition, state: PartitionImage, now_ms: int) -> Effects:
        was_leader = partition.is_leader
        high_before = partition.log.high_watermark
        leads_anew = partition.update(
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=state.replicas,
            isr=state.isr,
            now_ms=now_ms,
        )
        effects = _tell(self.on_updated, partition, now_ms)
        if not partition.is_leader:
            effects += partition.release_all(now_ms)
        elif partition.log.high_watermark > high_before:
            effects += partition.produce_waiters.passed(partition.log.high_watermark, now_ms)
            effects += partition.fetch_waiters.all_at_once(now_ms)
        if (
            partition.is_leader and partition.deletion_waiters
        ):  # nobody waits for a replica that is gone
            effects += partition.deletion_waiters.passed(partition.low_watermark, now_ms)
        if leads_anew:
            effects += _tell(self.on_leading, partition, now_ms)
        elif was_leader and not partition.is_leader:
            effects += _tell(self.on_not_leading, partition, now_ms)
        return effects

    def _configure(self, topic: str, now_ms: int) -> Effects:
        found = self._image.topics_by_name.get(topic)
        if found is None:
            return []
        config = self._config_of(topic)
        effects: Effects = []
        is_beyond = absence.is_beyond(
            self._config, topic, self._image.topic_config_overrides(topic)
        )
        for index in sorted(found.partitions):
            partition = self._hosted.by_name.get((topic, index))
            if partition is not None and partition.log.config != config:
                if is_beyond and not partition.log.config.remote_storage_enable:
                    effects.append(
                        Warn(line=absence.tiered_meanwhile(str(partition.topic_partition)))
                    )
                partition.log.config = config
                effects += _tell(self.on_configured, partition, now_ms)
        return effects

    def _drop_topic(self, topic: TopicImage, now_ms: int) -> Effects:
        effects: Effects = []
        for index in sorted(topic.partitions):
            self.failed.pop((topic.topic_id, index), None)
            partition = self._hosted.by_name.get((topic.name, index))
            if partition is None:
                continue
            if partition.log.truncation is not None:
                effects += self._when_whole(partition, now_ms)
                continue
            assert partition.topic_id == topic.topic_id, "a name has one topic at a time"
            effects += self._drop(partition, now_ms)
        return effects

    def _when_whole(self, partition: Partition, now_ms: int) -> Effects:
        """Its log is being cut: act on what the image says of it when that is over, all at once."""
        if partition.topic_partition in self._being_cut:
            return []
        self._being_cut[partition.topic_partition] = None
        return partition.log.when_whole(partial(self._is_whole, partition), now_ms)

    def _is_whole(self, partition: Partition, now_ms: int) -> Effects:
        name = partition.topic_partition
        del self._being_cut[name]
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
        """Serve it no more, tell who waits for it, then give its files up."""
        self._hosted.remove(partition)
        effects = self._retire(partition, now_ms)
        effects += _tell(self.on_dropped, partition, now_ms)
        return effects + self._store.drop(partition.log, now_ms)

    def _retire(self, partition: Partition, now_ms: int) -> Effects:
        was_leader = partition.is_leader
        partition.retire()
        effects = partition.release_all(now_ms)
        return effects + _tell(self.on_not_leading, partition, now_ms) if was_leader else effects


def _tell(listeners: list[Told], partition: Partition, now_ms: int) -> Effects:
    effects: Effects = []
    for told in listeners:
        effects += told(partition, now_ms)
    return effects
