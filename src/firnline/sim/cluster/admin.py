"""An administrator who makes the topics of a seed, and then changes the cluster under everybody's feet. SIM.

Topics come and go, grow, move to other brokers; preferred leaders are elected, settings changed, records
deleted, metadata.version raised. All of it goes to some broker, which passes it on to the controller.
Source: KIP-107, KIP-455, KIP-460, KIP-584.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from firnline.base.effects import Effects, SetTimer, Unanswered
from firnline.base.errors import Code
from firnline.base.ids import Uuid
from firnline.metadata.image import METADATA_VERSION
from firnline.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from firnline.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from firnline.protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from firnline.protocol.messages.k43_elect_leaders import ElectionTopic, ElectLeadersRequest
from firnline.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from firnline.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from firnline.protocol.messages.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from firnline.sim.cluster.client import Client, PartitionLeader
from firnline.sim.cluster.shape import ALWAYS, IF_ASKED, UNCLEAN_KEY, Shape, TopicShape
from firnline.sim.options import Options
from firnline.sim.world import Chance

_TIMEOUT_MS = 10_000
_PARTITIONS_MAX = 9  # in all topics together
_CHURNED_MAX = 2
_PREFERRED, _UNCLEAN = 0, 1
_TOPIC, _SET = 2, 0
_RETRY_MS = 300
# Smaller than segment.bytes may be.
_SEGMENT_BYTES = "internal.segment.bytes"

# A lagging replica could miss an expired tombstone, so here none ever expires.
_COMPACTED: dict[str, int | str] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": 1 << 60,
}


class Admin(Client):
    """`made`, `gone`: topics that certainly exist, or do not (rel-Q16); by id.

    level   the metadata.version that the cluster certainly has, or exceeds
    """

    def __init__(self, options: Options, chance: Chance) -> None:
        super().__init__(options, chance)
        self.is_on = True
        self.changes = 0
        self.made: dict[Uuid, str] = {}
        self.gone: dict[Uuid, str] = {}
        self._missing = {topic.name: topic for topic in self.shape.topics}
        self._factors = {topic.name: topic.replication_factor for topic in self.shape.topics}
        self._asked = [topic.name for topic in self.shape.topics if topic.unclean == IF_ASKED]
        self._names = 0
        self.level, *self._levels = self.shape.levels
        gap_ms = options.chaos_s * 1000 // (len(self._levels) + 1)
        self._raises_ms = (gap_ms // 4, gap_ms)  # between two raises
        self._raise_chance = Chance(gap_ms, "raise")
        self._doubtful: dict[Uuid, str] = {}
        self._menu: Sequence[Callable[[int], Effects]] = (
            [self._reassign] * 4
            + [self._elect] * 4
            + [self._create] * 2
            + [self._delete] * 2
            + [self._delete_records] * 2
            + [self._configure] * 2
            + [self._grow]
            + [self._elect_unclean] * (4 * len(self._asked))
        )

    def start(self, now_ms: int) -> Effects:
        return [*super().start(now_ms), *self._create_first(now_ms)]

    # ---- the topics of the seed

    def _create_first(self, now_ms: int) -> Effects:
        topics = [self._topic(topic) for topic in self._missing.values()]
        return self._ask(CreateTopicsRequest(topics=topics, timeout_ms=2_000), self._created_first)

    def _created_first(self, answer: Any, now_ms: int) -> Effects:
        for row in () if isinstance(answer, Unanswered) else answer.topics:
            if row.error_code in (Code.NONE, Code.TOPIC_ALREADY_EXISTS):
                self._missing.pop(row.name, None)
        if self._missing:
            # It is too early while there are fewer brokers than replicas.
            return [SetTimer(key="create", at_ms=now_ms + _RETRY_MS, then=self._create_first)]
        effects = [*self.refresh_soon(now_ms), self._heartbeat(now_ms)]
        return [*effects, self._raise_later(now_ms)] if self._levels else effects

    # ---- metadata.version

    def _raise_later(self, now_ms: int) -> SetTimer:
        delay_ms = self._raise_chance.between(*self._raises_ms)
        return SetTimer(key="raise", at_ms=now_ms + delay_ms, then=self._raise)

    def _raise(self, now_ms: int) -> Effects:
        """Raise the level; retry until it is acknowledged, as an operator would."""
        if not self.is_on:
            return []
        row = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=self._levels[0])
        request = UpdateFeaturesRequest(timeout_ms=5_000, feature_updates=[row])
        return self._ask(request, self._raised)

    def _raised(self, answer: Any, now_ms: int) -> Effects:
        if isinstance(answer, Unanswered) or answer.error_code:
            return [SetTimer(key="raise", at_ms=now_ms + _RETRY_MS, then=self._raise)]
        self.changes += 1
        self.level = self._levels.pop(0)
        return [self._raise_later(now_ms)] if self._levels else []

    # ---- churn

    def _heartbeat(self, now_ms: int) -> SetTimer:
        gap_ms = self.chance.between(1, 2 * self.shape.admin_gap_ms)
        return SetTimer(key="beat", at_ms=now_ms + gap_ms, then=self._act)

    def _act(self, now_ms: int) -> Effects:
        effects: Effects = [self._heartbeat(now_ms)]
        if self.is_on and self.places:
            effects += self.chance.pick(self._menu)(now_ms)
        return effects

    def _ask(self, request: Any, then: Any) -> Effects:
        where = self.any_broker()
        return [self.ask(where, request, then, channel="admin", timeout_ms=_TIMEOUT_MS)]

    def _on_response(self, answer: Any, now_ms: int) -> Effects:
        """No promise was made."""
        self.changes += not isinstance(answer, Unanswered)
        return []

    def _place(self) -> PartitionLeader:
        """Choose a partition of a topic that stays."""
        names = list(self._factors)
        places = [place for place in self.places.values() if place.topic in names]
        return self.chance.pick(places or list(self.places.values()))

    def _create(self, now_ms: int) -> Effects:
        if len(self.made) >= _CHURNED_MAX or len(self.places) >= _PARTITIONS_MAX:
            return []
        self._names += 1
        factor = self.chance.between(1, min(3, len(self._brokers)))
        topic = TopicShape(f"c{self._names}", 1, factor, min(factor, self.chance.between(1, 2)))
        topic = topic._replace(is_tiered=self.shape.tier is not None)

        def created(answer: Any, at_ms: int) -> Effects:
            if not isinstance(answer, Unanswered) and not answer.topics[0].error_code:
                self.changes += 1
                self.made[answer.topics[0].topic_id] = topic.name
            return self.refresh_soon(at_ms)

        return self._ask(
            CreateTopicsRequest(topics=[self._topic(topic)], timeout_ms=5_000), created
        )

    def _delete(self, now_ms: int) -> Effects:
        if not self.made:
            return []
        topic_id = self.chance.pick(list(self.made))
        self._doubtful[topic_id] = self.made.pop(topic_id)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=5_000
        )
        return self._ask(request, partial(self._deleted, topic_id))

    def _deleted(self, topic_id: Uuid, answer: Any, now_ms: int) -> Effects:
        if not isinstance(answer, Unanswered) and not answer.responses[0].error_code:
            self.changes += 1
            self.gone[topic_id] = self._doubtful.pop(topic_id)
        return self.refresh_soon(now_ms)

    def _grow(self, now_ms: int) -> Effects:
        name = self._place().topic
        count = sum(place.topic == name for place in self.places.values())
        if len(self.places) >= _PARTITIONS_MAX:
            return []
        topic = CreatePartitionsTopic(name=name, count=count + 1, assignments=None)
        return self._ask(
            CreatePartitionsRequest(topics=[topic], timeout_ms=5_000), self._on_response
        )

    def _reassign(self, now_ms: int) -> Effects:
        """Move to any set of brokers of the same size, or back."""
        place = self._place()
        left = list(self._brokers)
        replicas: list[int] | None = None
        if not self.chance.happens(15):
            replicas = []
            for _ in range(min(len(left), self._factors.get(place.topic, 1))):
                replicas.append(self.chance.pick(left))
                left.remove(replicas[-1])
        row = ReassignablePartition(partition_index=place.partition, replicas=replicas)
        topic = ReassignableTopic(name=place.topic, partitions=[row])
        request = AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=5_000)
        return self._ask(request, self._on_response)

    def _elect(self, now_ms: int) -> Effects:
        return self._ask_for_leader(self._place(), _PREFERRED)

    def _elect_unclean(self, now_ms: int) -> Effects:
        """Elect any leader rather than none, where the topic allows it."""
        places = [place for place in self.places.values() if place.topic in self._asked]
        return self._ask_for_leader(self.chance.pick(places), _UNCLEAN) if places else []

    def _ask_for_leader(self, place: PartitionLeader, election_type: int) -> Effects:
        topics = [ElectionTopic(topic=place.topic, partitions=[place.partition])]
        request = ElectLeadersRequest(
            election_type=election_type, topic_partitions=topics, timeout_ms=5_000
        )
        return self._ask(request, self._on_response)

    def _configure(self, now_ms: int) -> Effects:
        row = AlterableConfig(
            name=_SEGMENT_BYTES,
            config_operation=_SET,
            value=str(self.chance.spread(2_048, 65_536)),
        )
        resource = AlterConfigsResource(
            resource_type=_TOPIC, resource_name=self._place().topic, configs=[row]
        )
        return self._ask(IncrementalAlterConfigsRequest(resources=[resource]), self._on_response)

    def _delete_records(self, now_ms: int) -> Effects:
        place = self._place()
        if place.leader_id < 0:
            return []
        row = DeleteRecordsPartition(
            partition_index=place.partition, offset=self.chance.below(3_000)
        )
        topic = DeleteRecordsTopic(name=place.topic, partitions=[row])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=5_000)
        return [self.ask(place.leader_id, request, self._on_response, channel="admin")]

    def _topic(self, topic: TopicShape) -> CreatableTopic:
        configs = topic_configs(self.shape, topic)
        return CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            configs=[
                CreatableTopicConfig(name=name, value=value) for name, value in configs.items()
            ],
        )


def topic_configs(shape: Shape, topic: TopicShape) -> dict[str, str]:
    """Return the settings with which a topic is created."""
    configs: dict[str, int | str] = {
        "min.insync.replicas": topic.min_isr,
        _SEGMENT_BYTES: shape.segment_bytes,
    }
    if topic.unclean == ALWAYS:
        configs[UNCLEAN_KEY] = "true"
    if topic.is_compacted:
        configs |= _COMPACTED
    if topic.is_tiered and shape.tier is not None:
        configs |= {
            "remote.storage.enable": "true",
            "local.retention.bytes": shape.tier.local_retention_bytes,
            "retention.bytes": topic.retention_bytes,
            # Clocks jump by days, and nothing may expire because of that.
            "retention.ms": "-1",
        }
    return {name: str(value) for name, value in configs.items()}
