"""In which directory of its broker a replica is. PURE. Source: KIP-858; codes as Apache Kafka 4.3.1's."""

from collections.abc import Sequence
from typing import NamedTuple

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import Uuid
from firnline.controller.ids import epoch_problem
from firnline.metadata import records as r
from firnline.metadata.features import DIRECTORIES_SINCE
from firnline.metadata.image import ClusterImage, PartitionImage
from firnline.metadata.result import ControllerResult
from firnline.protocol.schema import Message


class Place(NamedTuple):
    """A replica of one partition is, or is to be, in that directory of the broker that says so."""

    topic_id: Uuid
    partition: int
    directory: Uuid


def assign_directories(
    image: ClusterImage, *, broker_id: int, broker_epoch: int, wanted: Sequence[Place]
) -> ControllerResult[list[KafkaError | None] | KafkaError]:
    """Write down where replicas are; an answer is None for done, in the order asked."""
    if image.metadata_version < DIRECTORIES_SINCE:
        why = "the cluster's metadata.version knows no directories"
        return ControllerResult([], KafkaError(Code.UNSUPPORTED_VERSION, why))
    problem = epoch_problem(image, broker_id=broker_id, broker_epoch=broker_epoch)
    if problem is not None:
        return ControllerResult([], problem)
    records: list[Message] = []
    answers: list[KafkaError | None] = []
    for place in wanted:
        made = _assign(image, broker_id, place)
        if isinstance(made, KafkaError):
            answers.append(made)
            continue
        answers.append(None)
        if made is not None:
            records.append(made)
    return ControllerResult(records, answers, is_atomic=False)


def _assign(
    image: ClusterImage, broker_id: int, place: Place
) -> r.PartitionChangeRecord | KafkaError | None:
    topic = image.topics_by_id.get(place.topic_id)
    if topic is None:
        return KafkaError(Code.UNKNOWN_TOPIC_ID, "no topic has this id")
    partition = topic.partitions.get(place.partition)
    if partition is None:
        return KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
    if broker_id not in partition.replicas:
        return KafkaError(
            Code.NOT_LEADER_OR_FOLLOWER, "the broker has no replica of this partition"
        )
    return _change(partition, broker_id, place)


def _change(before: PartitionImage, broker_id: int, place: Place) -> r.PartitionChangeRecord | None:
    index = before.replicas.index(broker_id)
    if before.directories[index] == place.directory:
        return None
    after = list(before.directories)
    after[index] = place.directory
    return r.PartitionChangeRecord(
        topic_id=place.topic_id, partition_id=place.partition, directories=after
    )
