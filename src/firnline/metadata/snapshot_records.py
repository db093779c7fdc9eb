"""Writes an image as records: replaying them gives the image again. PURE. Source: KIP-630; spec Q32.

The order is stable, so two nodes with the same image write the same records: first features, because other
records may depend on them, then nodes, topics by name, configurations, ids, and records that are only kept.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, TypeVar

from firnline.metadata import records as r
from firnline.metadata.features import DIRECTORIES_SINCE
from firnline.metadata.image import (
    METADATA_VERSION,
    NO_PRODUCER_IDS,
    BrokerImage,
    ClusterImage,
    ControllerImage,
    PartitionImage,
    TopicImage,
)
from firnline.protocol.schema import Message

K = TypeVar("K")

RECORDS_PER_STEP = 100
_KEYS_PER_RUN = 2000


def image_steps(image: ClusterImage) -> Iterator[list[Message]]:
    """Yield lists of records that take about a millisecond each to make, some empty (Q53).

    Sorting is sliced too: a million names are not sorted in one step.
    """
    step: list[Message] = []
    for record in _records(image):
        if record is not None:
            step.append(record)
        if record is None or len(step) >= RECORDS_PER_STEP:
            yield step
            step = []
    yield step


def _records(image: ClusterImage) -> Iterator[Message | None]:
    """Yield the records in order; None after as much work without a record."""
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION, name)):
        yield r.FeatureLevelRecord(name=name, feature_level=image.features[name])
    for broker_id in sorted(image.brokers):
        yield register_broker_record(image.brokers[broker_id])
    for controller_id in sorted(image.controllers):
        yield register_controller_record(image.controllers[controller_id])
    for topic_name in _in_order(image.topics_by_name):
        if topic_name is None:
            yield None
            continue
        topic = image.topics_by_name[topic_name]
        yield from _topic_records(topic, image.metadata_version, has_elr=image.has_elr)
    for resource in _in_order(image.configs):
        if resource is None:
            yield None
            continue
        settings = image.configs[resource]
        for key in sorted(settings):
            yield r.ConfigRecord(
                resource_type=resource.resource_type,
                resource_name=resource.name,
                name=key,
                value=settings[key],
            )
    if image.next_producer_id != NO_PRODUCER_IDS:
        # No node needs to know which broker got the block.
        yield r.ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id
        )
    for kept_key in _in_order(image.kept, order=lambda key: (key[0], repr(key[1]))):
        yield None if kept_key is None else image.kept[kept_key]


def _in_order(keys: Iterable[K], order: Callable[[K], Any] | None = None) -> Iterator[K | None]:
    """Yield `keys` sorted, and None after each sorted run: the runs are sorted one by one, then merged."""
    waiting = iter(keys)
    runs = []
    while run := list(islice(waiting, _KEYS_PER_RUN)):
        runs.append(sorted(run, key=order))  # type: ignore[type-var, arg-type]
        yield None
    yield from merge(*runs, key=order)  # type: ignore[arg-type]


def register_broker_record(broker: BrokerImage) -> r.RegisterBrokerRecord:
    """Return the record that registers `broker` as it is."""
    return r.RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            r.BrokerEndpoint(
                name=e.listener, host=e.host, port=e.port, security_protocol=e.security_protocol
            )
            for e in broker.endpoints
        ],
        features=[
            r.BrokerFeature(
                name=name,
                min_supported_version=broker.features[name].lowest,
                max_supported_version=broker.features[name].highest,
            )
            for name in sorted(broker.features)
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
        cordoned_log_dirs=broker.cordoned_log_dirs,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
    )


def register_controller_record(controller: ControllerImage) -> r.RegisterControllerRecord:
    """Return the record that registers `controller` as it is."""
    return r.RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            r.ControllerEndpoint(
                name=e.listener, host=e.host, port=e.port, security_protocol=e.security_protocol
            )
            for e in controller.endpoints
        ],
        features=[
            r.ControllerFeature(
                name=name,
                min_supported_version=controller.features[name].lowest,
                max_supported_version=controller.features[name].highest,
            )
            for name in sorted(controller.features)
        ],
    )


def partition_record(
    topic_id: bytes, number: int, partition: PartitionImage, metadata_version: int
) -> r.PartitionRecord:
    """Return the record that creates `partition` as it is."""
    has_directories = metadata_version >= DIRECTORIES_SINCE
    return r.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories if has_directories else (),
        eligible_leader_replicas=partition.elr or None,
        last_known_elr=partition.last_known_elr or None,
    )


def _topic_records(
    topic: TopicImage, metadata_version: int, *, has_elr: bool
) -> Iterator[Message | None]:
    yield r.TopicRecord(name=topic.name, topic_id=topic.topic_id)
    is_large = len(topic.partitions) > _KEYS_PER_RUN
    for number in _in_order(topic.partitions):
        if number is None:
            if is_large:
                yield None
            continue
        partition = topic.partitions[number]
        if not has_elr and (partition.elr or partition.last_known_elr):
            partition = partition._replace(elr=(), last_known_elr=())
        yield partition_record(topic.topic_id, number, partition, metadata_version)
