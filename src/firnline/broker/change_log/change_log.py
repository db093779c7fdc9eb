"""Tells in the log what each committed change of the metadata means: every node, of the same change. PURE.

The machines that decide need not tell anything: a change is the difference of two images, which also shows
its reason. A node tells changes of brokers, topics and settings; of partitions those with a replica on it,
and all of them while it is the active controller. It begins once its own registration is in the metadata:
what came before is the past, which it reads again at each start.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from firnline.base.background import Background, SlicedTask
from firnline.base.effects import Effects
from firnline.base.ids import Uuid, uuid_text
from firnline.base.log_lines import cluster as lines
from firnline.base.log_lines.line import Log
from firnline.broker.change_log.bundles import Bundles
from firnline.broker.change_log.partition_lines import NONE, LagOf, PartitionLines
from firnline.config.broker import broker_keys
from firnline.metadata.delta import ClusterDelta, TopicDelta
from firnline.metadata.image import (
    BrokerImage,
    ClusterImage,
    ConfigResource,
    ResourceType,
)
from firnline.metadata.partition_counts import PartitionCounts

_KINDS = {
    ResourceType.TOPIC: "topic",
    ResourceType.BROKER: "broker",
    ResourceType.CLIENT_METRICS: "client-metrics",
    ResourceType.GROUP: "group",
}
HIDDEN = "[hidden]"
# So many changes are told at once, in some 2 ms. A broker that is fenced changes all its partitions.
AT_ONCE = 200


def nobody_lags(topic: str, partition: int, broker_id: int, now_ms: int) -> str | None:
    """The `LagOf` of a node that leads no partitions."""
    return None


class ChangeLog:
    """What one node tells.

    is_part        whether this node is a part of the cluster, by now
    is_registered  whether the broker of its id in the metadata is this process
    decides        whether it is the active controller
    counts         the counts of the committed image
    lag_of         how a follower of a partition that this node leads fell behind
    """

    def __init__(
        self,
        node_id: int,
        *,
        is_part: Callable[[], bool],
        decides: Callable[[], bool],
        counts: Callable[[], PartitionCounts],
        lag_of: LagOf = nobody_lags,
        is_registered: Callable[[], bool] = lambda: True,
    ) -> None:
        self._node_id = node_id
        self._is_part = is_part
        self._decides = decides
        self._counts = counts
        self._bundles = Bundles("changes")
        self._partitions = PartitionLines(node_id, self._bundles, lag_of, is_registered)
        self._is_registered = is_registered
        self._has_begun = False
        self._background = Background("change log")
        self._large_changes = 0  # that are being told

    def published(self, delta: ClusterDelta, now_ms: int) -> Effects:
        """Return the lines for a change that is committed."""
        if not self._has_begun:
            if not self._is_part():
                return []
            self._has_begun = True
            own = [each for each in delta.brokers if each == self._node_id]
            return [_caught_up(delta.after, self._counts()), *_brokers(delta, own)]
        if delta.is_empty:
            return []
        # At a start the controller fences the process before this one, which is no news.
        past = None if self._is_registered() else self._node_id
        effects = _brokers(delta, delta.brokers, past)
        for name in delta.features:
            level, was = (image.features.get(name, 0) for image in (delta.after, delta.before))
            if level != was:
                offset = delta.after.offset
                effects.append(
                    lines.FEATURE_CHANGED(
                        feature=name, level=level, was=was, metadata_offset=offset
                    )
                )
        found = self._lines(delta, now_ms, of_all=self._decides())
        if self._large_changes or _size(delta) > AT_ONCE:
            return effects + self._background.begin(self._in_slices(found), now_ms)
        for each in found:
            effects += each
        return effects

    def _in_slices(self, found: Iterator[Effects]) -> SlicedTask:
        """Tell a large change after the ones before it, so that lines stay in order."""
        self._large_changes += 1
        yield []
        effects: Effects = []
        for count, each in enumerate(found, 1):
            effects += each
            if count % AT_ONCE == 0:
                yield effects
                effects = []
        self._large_changes -= 1
        return effects

    def _lines(self, delta: ClusterDelta, now_ms: int, *, of_all: bool) -> Iterator[Effects]:
        yield from self._topics(delta, now_ms, of_all=of_all)
        yield from self._configs(delta, now_ms)

    def _topics(self, delta: ClusterDelta, now_ms: int, *, of_all: bool) -> Iterator[Effects]:
        at = delta.after.offset
        for gone in delta.deleted_topics:
            facts = {
                "topic": gone.name,
                "topic_id": uuid_text(gone.topic_id),
                "partitions": len(gone.partitions),
                "metadata_offset": at,
            }
            yield self._bundles.add(
                lines.TOPIC_DELETED,
                facts,
                total=lines.TOPICS_DELETED,
                shared={},
                name=gone.name,
                metadata_offset=at,
                now_ms=now_ms,
            )
        for topic in delta.topics:
            if topic.before is None:
                yield self._created(delta, topic, now_ms)
                continue
            was, count = len(topic.before.partitions), len(topic.after.partitions)
            if count != was:
                yield [
                    lines.PARTITIONS_ADDED(
                        topic=topic.after.name,
                        topic_id=uuid_text(topic.after.topic_id),
                        partitions=count,
                        was=was,
                        metadata_offset=at,
                    )
                ]
            yield from self._partitions.of_topic(delta, topic, now_ms, of_all=of_all)

    def _created(self, delta: ClusterDelta, topic: TopicDelta, now_ms: int) -> Effects:
        image, name = topic.after, topic.after.name
        overrides = delta.after.topic_config_overrides(name)
        first = next(iter(image.partitions.values()), None)
        facts = {
            "topic": name,
            "topic_id": uuid_text(image.topic_id),
            "partitions": len(image.partitions),
            "replication_factor": None if first is None else len(first.replicas),
            "configs": tuple(f"{key}={overrides[key]}" for key in sorted(overrides)) or None,
            "metadata_offset": delta.after.offset,
        }
        return self._bundles.add(
            lines.TOPIC_CREATED,
            facts,
            total=lines.TOPICS_CREATED,
            shared={},
            name=name,
            metadata_offset=delta.after.offset,
            now_ms=now_ms,
        )

    def _configs(self, delta: ClusterDelta, now_ms: int) -> Iterator[Effects]:
        deleted = {gone.name for gone in delta.deleted_topics}
        new = {topic.after.name for topic in delta.topics if topic.before is None}
        for resource in delta.configs:
            is_topic = resource.resource_type == ResourceType.TOPIC
            if is_topic and (resource.name in deleted or resource.name in new):
                continue  # its line has them, or they went with it
            name = _resource_text(resource)
            changes = config_changes(
                resource,
                delta.before.configs.get(resource, {}),
                delta.after.configs.get(resource, {}),
            )
            facts = {"resource": name, "changes": changes, "metadata_offset": delta.after.offset}
            if changes:
                yield self._bundles.add(
                    lines.CONFIG_CHANGED,
                    facts,
                    total=lines.CONFIGS_CHANGED,
                    shared={},
                    name=name,
                    metadata_offset=delta.after.offset,
                    now_ms=now_ms,
                )


def _size(delta: ClusterDelta) -> int:
    """Return about how many lines a change may have."""
    changed = sum(len(topic.partitions) if topic.before else 1 for topic in delta.topics)
    return changed + len(delta.deleted_topics) + len(delta.configs)


def _resource_text(resource: ConfigResource) -> str:
    kind = _KINDS.get(ResourceType(resource.resource_type), "resource")
    return f"{kind}:{resource.name}" if resource.name else f"all {kind}s"


def config_changes(
    resource: ConfigResource, before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[str, ...]:
    """Return what changed, as `key=new (was old)`, without secrets."""
    is_broker = resource.resource_type == ResourceType.BROKER
    found: list[str] = []
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if is_broker and _is_secret(key):
            old, new = (None if value is None else HIDDEN for value in (old, new))
        text = f"{key} unset" if new is None else f"{key}={new}"
        found.append(text if old is None else f"{text} (was {old})")
    return tuple(found)


def _is_secret(key: str) -> bool:
    known = broker_keys().get(key)
    return known is None or known.is_sensitive


def _caught_up(image: ClusterImage, counts: PartitionCounts) -> Log:
    return lines.METADATA_CAUGHT_UP(
        brokers=len(image.brokers),
        fenced=sum(broker.fenced for broker in image.brokers.values()),
        topics=len(image.topics_by_id),
        partitions=counts.partitions,
        offline=counts.offline,
        metadata_offset=image.offset,
    )


def _brokers(delta: ClusterDelta, broker_ids: Iterable[int], past: int | None = None) -> Effects:
    """`past`: a broker that may be fenced without a line."""
    effects: Effects = []
    for broker_id in broker_ids:
        before, after = delta.before.brokers.get(broker_id), delta.after.brokers.get(broker_id)
        known = after or before
        if known is None:
            continue  # it came and went within one change
        facts = {
            "broker": broker_id,
            "broker_epoch": known.epoch,
            "metadata_offset": delta.after.offset,
        }
        if after is None:
            effects.append(lines.BROKER_UNREGISTERED(**facts))
        elif before is None or before.epoch != after.epoch:
            effects.append(_registered(before, after, facts))
            if not after.fenced:
                effects.append(lines.BROKER_UNFENCED(**facts))
        else:
            effects += _changed(before, after, facts, is_past=broker_id == past)
    return effects


def _registered(before: BrokerImage | None, after: BrokerImage, facts: Mapping[str, object]) -> Log:
    return lines.BROKER_REGISTERED(
        **facts,
        was_epoch=None if before is None else before.epoch,
        incarnation=uuid_text(after.incarnation_id),
        listeners=tuple(f"{e.listener}://{e.host}:{e.port}" for e in after.endpoints),
        fenced=after.fenced,
    )


def _changed(
    before: BrokerImage, after: BrokerImage, facts: Mapping[str, object], *, is_past: bool
) -> Effects:
    effects: Effects = []
    if after.in_controlled_shutdown and not before.in_controlled_shutdown:
        effects.append(lines.BROKER_LEAVING(**facts))
    if after.fenced and not before.fenced:
        if after.in_controlled_shutdown:
            effects.append(lines.BROKER_STOPPED(**facts))
        elif not is_past:
            reason = "no heartbeat within its session, or it started again"
            effects.append(lines.BROKER_FENCED(**facts, reason=reason))
    if before.fenced and not after.fenced:
        effects.append(lines.BROKER_UNFENCED(**facts))
    if after.log_dirs != before.log_dirs:
        gone = [each for each in before.log_dirs if each not in after.log_dirs]
        effects.append(
            lines.DIRECTORIES_CHANGED(**facts, online=_texts(after.log_dirs), gone=_texts(gone))
        )
    return effects


def _texts(ids: Iterable[Uuid]) -> tuple[str, ...] | str:
    return tuple(uuid_text(each) for each in ids) or NONE
