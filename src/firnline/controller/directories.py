"""AssignReplicasToDirs: a broker reports which log directory holds each replica. PURE.

Source: KIP-858; error codes as in Apache Kafka 4.3.1.
"""

from collections.abc import Sequence

from firnline.base.errors import Code, KafkaError
from firnline.base.replicas import DirectoryAssignment
from firnline.config.broker import BrokerConfig
from firnline.controller.ids import epoch_problem
from firnline.controller.partition_change import AS_IT_IS, PartitionChanges, Target
from firnline.metadata.features import DIRECTORIES_SINCE
from firnline.metadata.image import NO_LEADER, ClusterImage
from firnline.metadata.result import ControllerResult


def assign_directories(
    image: ClusterImage,
    config: BrokerConfig,
    *,
    broker_id: int,
    broker_epoch: int,
    wanted: Sequence[DirectoryAssignment],
) -> ControllerResult[list[KafkaError | None] | KafkaError]:
    """Record the directories of replicas. The answers are in the order of `wanted`; None means success.

    A replica in a lost or offline directory leaves the ISR and loses leadership. When a directory is online
    again and its partition has no leader, an election follows at once.
    """
    if image.metadata_version < DIRECTORIES_SINCE:
        why = "the cluster's metadata.version does not support directories"
        return ControllerResult([], KafkaError(Code.UNSUPPORTED_VERSION, why))
    problem = epoch_problem(image, broker_id=broker_id, broker_epoch=broker_epoch)
    if problem is not None:
        return ControllerResult([], problem)
    changes = PartitionChanges(image, config)
    answers = [_assign(changes, broker_id, assignment) for assignment in wanted]
    for assignment, answer in zip(wanted, answers, strict=True):
        if answer is not None:
            continue
        if image.brokers[broker_id].has_online(assignment.directory):
            _lead(changes, assignment)
        else:
            _leave(changes, broker_id, assignment)
    return ControllerResult(changes.records, answers, is_atomic=False)


def _assign(
    changes: PartitionChanges, broker_id: int, assignment: DirectoryAssignment
) -> KafkaError | None:
    if assignment.topic_id not in changes.image.topics_by_id:
        return KafkaError(Code.UNKNOWN_TOPIC_ID, "no topic has this id")
    before = changes.partition(assignment.topic_id, assignment.partition)
    if before is None:
        return KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
    if broker_id not in before.replicas:
        why = "the broker has no replica of this partition"
        return KafkaError(Code.NOT_LEADER_OR_FOLLOWER, why)
    target = Target(directory=(broker_id, assignment.directory))
    changes.change(assignment.topic_id, assignment.partition, target)
    return None


def _lead(changes: PartitionChanges, assignment: DirectoryAssignment) -> None:
    """Elect a leader if there is none: the last ISR member may only have lacked a directory."""
    before = changes.partition(assignment.topic_id, assignment.partition)
    assert before is not None
    if before.leader == NO_LEADER:
        changes.change(assignment.topic_id, assignment.partition, AS_IT_IS)


def _leave(changes: PartitionChanges, broker_id: int, assignment: DirectoryAssignment) -> None:
    """Take the replica out of the ISR, unless it is the last member (I25)."""
    before = changes.partition(assignment.topic_id, assignment.partition)
    assert before is not None
    if broker_id in before.isr or before.leader == broker_id:
        isr = tuple(node_id for node_id in before.isr if node_id != broker_id)
        election = changes.election_of(changes.image.topics_by_id[assignment.topic_id].name)
        changes.change(assignment.topic_id, assignment.partition, Target(isr=isr), election)
