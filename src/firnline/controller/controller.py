"""The active controller's decisions: every change of the cluster is decided here. PURE.

Each method reads the newest image, which includes records that are written and not committed yet. It returns
records and a response. `MetadataQuorum.write` appends the records in the same step and replays them into the
newest image, so the next decision sees them. The response is sent once the records are committed. A
controller that loses its leadership before that sends none. Source: KIP-500, KIP-631.
"""

from collections.abc import Callable, Generator, Iterator, Sequence

from firnline.base.background import run_to_completion
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import ProducerIdBlock, Uuid
from firnline.base.ports import Rng
from firnline.base.replicas import DirectoryAssignment, IsrAnswer, IsrChange
from firnline.base.units import INT32_MAX
from firnline.config.broker import BrokerConfig
from firnline.config.layers import broker_config
from firnline.controller import (
    configs,
    elections,
    feature_levels,
    ids,
    isr_changes,
    reassignments,
    topics,
)
from firnline.controller.brokers import Brokers, Heartbeat, HeartbeatAnswer, Registration
from firnline.controller.configs import Alteration
from firnline.controller.directories import assign_directories
from firnline.controller.elections import Elected
from firnline.controller.feature_levels import FeatureUpdate
from firnline.controller.reassignments import Reassignment
from firnline.controller.sweeps import Newest
from firnline.controller.topics import Answer, CreatedTopic, NewPartitions, NewTopic, TopicRef
from firnline.metadata.image import (
    ConfigResource,
    ControllerImage,
    ResourceType,
)
from firnline.metadata.quorum import MetadataQuorum
from firnline.metadata.records import PartitionRecord
from firnline.metadata.result import ControllerResult


class Controller:
    """Makes the decisions. Its only own state is the brokers' sessions; all else is in the image.

    room_for_logs()  how many more logs this process may open, as a broker
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        rng: Rng,
        metadata: MetadataQuorum,
        room_for_logs: Callable[[], int] = lambda: INT32_MAX,
    ) -> None:
        self._config = config
        self._rng = rng
        self._metadata = metadata
        self._brokers = Brokers(config, self._newest)
        self._room_for_logs = room_for_logs

    def activate(self, now_ms: int) -> None:
        """Become the active controller. Call it once in each epoch that this node leads."""
        self._brokers.activate(self._metadata.newest, now_ms)

    def deactivate(self) -> None:
        """Stop being the active controller, and forget the sessions. `activate` may follow."""
        self._brokers.deactivate()

    # ------------------------------------------------------------------------------- topics

    def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> ControllerResult[list[CreatedTopic | KafkaError]]:
        """Create topics; answers in the order of `wanted`."""
        return run_to_completion(self.create_topics_steps(wanted, validate_only=validate_only))

    def create_topics_steps(
        self, wanted: Sequence[NewTopic], *, validate_only: bool
    ) -> Generator[None, None, ControllerResult[list[CreatedTopic | KafkaError]]]:
        """As `create_topics`, on the image at the first step; a yield lets other work run."""
        result = yield from topics.create_topics_steps(
            self._metadata.newest,
            self._metadata.index.metric_names,
            self._cluster_config(),
            self._rng,
            wanted,
            validate_only=validate_only,
        )
        return self._with_room(result)

    def partitions_asked(self, wanted: Sequence[NewTopic]) -> list[int]:
        """Return the number of partitions of each topic to be created."""
        return topics.partitions_asked(self._cluster_config(), wanted)

    def delete_topics(
        self, wanted: Sequence[TopicRef]
    ) -> ControllerResult[list[tuple[str, Uuid] | KafkaError]]:
        """Delete topics by name (str) or id (bytes); answers in the order of `wanted`."""
        return topics.delete_topics(
            self._metadata.newest, wanted, is_enabled=self._config.delete_topic_enable
        )

    def create_partitions(
        self,
        wanted: Sequence[NewPartitions],
        *,
        validate_only: bool = False,
        partitions_before: int = 0,
    ) -> ControllerResult[list[KafkaError | None]]:
        """Add partitions to topics; answers in the order of `wanted`."""
        return run_to_completion(
            self.create_partitions_steps(
                wanted, validate_only=validate_only, partitions_before=partitions_before
            )
        )

    def create_partitions_steps(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool, partitions_before: int
    ) -> Generator[None, None, ControllerResult[list[KafkaError | None]]]:
        """As `create_partitions`, on the image at the first step; a yield lets other work run."""
        result = yield from topics.create_partitions_steps(
            self._metadata.newest,
            wanted,
            validate_only=validate_only,
            partitions_before=partitions_before,
        )
        return self._with_room(result)

    def _with_room(
        self, result: ControllerResult[list[Answer | KafkaError]]
    ) -> ControllerResult[list[Answer | KafkaError]]:
        """Refuse partitions for which this process could not open logs."""
        node_id = self._config.node_id
        here = sum(type(r) is PartitionRecord and node_id in r.replicas for r in result.records)
        left = self._room_for_logs() if here else 0
        if here <= left:
            return result
        why = (
            f"node {node_id} may have {max(left, 0)} more logs, and this takes {here}: raise its limit of"
            " open files (ulimit -n, LimitNOFILE), or delete topics"
        )
        return topics.refused(result, KafkaError(Code.POLICY_VIOLATION, why))

    # ------------------------------------------------------------------------------- settings

    def incremental_alter_configs(
        self,
        wanted: Sequence[tuple[ConfigResource, Sequence[Alteration]]],
        *,
        validate_only: bool = False,
    ) -> ControllerResult[list[KafkaError | None]]:
        """Change single settings of topics and brokers; answers in the order of `wanted`."""
        return configs.incremental_alter_configs(
            self._metadata.newest, self._cluster_config(), wanted, validate_only=validate_only
        )

    def replace_configs(
        self,
        wanted: Sequence[tuple[ConfigResource, Sequence[tuple[str, str | None]]]],
        *,
        validate_only: bool = False,
    ) -> ControllerResult[list[KafkaError | None]]:
        """Replace all settings of topics and brokers; answers in the order of `wanted`."""
        return configs.replace_configs(
            self._metadata.newest, self._cluster_config(), wanted, validate_only=validate_only
        )

    def allocate_producer_ids(
        self, *, broker_id: int, broker_epoch: int
    ) -> ControllerResult[ProducerIdBlock | KafkaError]:
        """Allocate the next block of producer ids."""
        return ids.allocate_producer_ids(
            self._metadata.newest, broker_id=broker_id, broker_epoch=broker_epoch
        )

    def assign_directories(
        self, *, broker_id: int, broker_epoch: int, wanted: Sequence[DirectoryAssignment]
    ) -> ControllerResult[list[KafkaError | None] | KafkaError]:
        """Record the log directories of a broker's replicas; answers in the order of `wanted`."""
        return assign_directories(
            self._metadata.newest,
            self._config,
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            wanted=wanted,
        )

    def update_features(
        self,
        wanted: Sequence[FeatureUpdate],
        *,
        voters: Sequence[int],
        validate_only: bool = False,
    ) -> ControllerResult[KafkaError | None]:
        """Change finalized feature levels, all or none. See `feature_levels`."""
        return feature_levels.update_features(
            self._metadata.newest, wanted, voters=voters, validate_only=validate_only
        )

    # ------------------------------------------------------------------------------- partitions

    def alter_partitions(
        self, *, broker_id: int, broker_epoch: int, wanted: Sequence[IsrChange]
    ) -> ControllerResult[list[IsrAnswer | KafkaError] | KafkaError]:
        """Decide on ISR changes that a leader proposes; answers in the order of `wanted`."""
        return isr_changes.alter_partitions(
            self._metadata.newest,
            self._config,
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            wanted=wanted,
        )

    def elect_leaders(
        self, kind: int, wanted: Sequence[tuple[str, int]] | None
    ) -> ControllerResult[list[Elected] | KafkaError]:
        """Elect leaders of (topic, partition) pairs, None for all. See `elections`."""
        return elections.elect_leaders(self._newest(), self._config, kind, wanted)

    def in_need_of_election(self, kind: int) -> Iterator[tuple[str, int]]:
        """Yield the (topic, partition) pairs that may need an election of this kind. See `elections`."""
        return elections.in_need(self._newest(), kind)

    def balance_leaders(self) -> ControllerResult[bool]:
        """Elect some preferred leaders; the answer is True if another round may be needed now."""
        return elections.balance_leaders(self._newest(), self._config)

    def elect_unclean_leaders(self) -> ControllerResult[bool]:
        """Do some unclean elections, where the settings allow them; answers as `balance_leaders`."""
        return elections.elect_unclean_leaders(self._newest(), self._config)

    def alter_reassignments(
        self,
        wanted: Sequence[Reassignment],
        *,
        may_change_factor: bool = True,
        changes_before: int = 0,
    ) -> ControllerResult[list[KafkaError | None]]:
        """Begin or cancel reassignments; answers in the order of `wanted`."""
        return reassignments.alter_reassignments(
            self._metadata.newest,
            self._config,
            wanted,
            may_change_factor=may_change_factor,
            changes_before=changes_before,
        )

    # ------------------------------------------------------------------------------- brokers

    def register_broker(
        self, wanted: Registration, now_ms: int, *, replaces_dead_incarnation: bool = False
    ) -> ControllerResult[int | KafkaError]:
        """Register a broker; the answer is its broker epoch. See `Brokers.register`."""
        return self._brokers.register(
            self._metadata.newest,
            self._metadata.next_offset,
            wanted,
            now_ms,
            replaces_dead_incarnation=replaces_dead_incarnation,
        )

    def register_controller(
        self, controller: ControllerImage
    ) -> ControllerResult[KafkaError | None]:
        """Record the endpoints of a controller."""
        return self._brokers.register_controller(self._metadata.newest, controller)

    def unregister_broker(self, broker_id: int) -> ControllerResult[KafkaError | None]:
        """Remove a broker's registration."""
        return self._brokers.unregister(self._metadata.newest, broker_id)

    def heartbeat(
        self, heartbeat: Heartbeat, now_ms: int
    ) -> ControllerResult[HeartbeatAnswer | KafkaError]:
        """Handle a heartbeat; the answer tells the broker its state."""
        return self._brokers.heartbeat(
            self._metadata.newest, self._metadata.next_offset, heartbeat, now_ms
        )

    def fence_stale(self, now_ms: int) -> ControllerResult[int | None]:
        """Fence one broker whose session expired; the answer is its id, or None."""
        committed_end = self._metadata.image.offset + 1
        return self._brokers.fence_stale(self._metadata.newest, committed_end, now_ms)

    @property
    def is_sweeping(self) -> bool:
        """Whether `sweep` has work left: partitions of brokers that came or went."""
        return self._brokers.is_sweeping

    def sweep(self) -> ControllerResult[bool]:
        """Do a part of that work; the answer: whether more is left."""
        return self._brokers.sweep()

    def _newest(self) -> Newest:
        return Newest(self._metadata.newest, self._metadata.index)

    def _cluster_config(self) -> BrokerConfig:
        """This node's settings, with the dynamic cluster-wide ones."""
        changed = self._metadata.newest.config(ResourceType.BROKER, "")
        return broker_config(self._config, changed) if changed else self._config
