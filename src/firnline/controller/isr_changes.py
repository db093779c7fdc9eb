"""AlterPartition: the controller decides on the ISR that a partition's leader proposes. PURE.

A proposal names the leader epoch and the partition epoch on which it is based, and the broker epoch of each
proposed member. The controller checks it against the newest image, in Kafka's order, so that the leader
learns the most fundamental problem first: that this controller is outdated, that the sender leads no more,
that the partition has changed since, and last that a replica is not eligible. A valid proposal is applied:
the new state gets a new partition epoch, so of two proposals with the same partition epoch only one can win.
A proposal of the present ISR gets a new partition epoch too, which makes every earlier request of that leader
fail. A replica joins only with the broker epoch of its registration (KIP-903). Source: KIP-497, KIP-841,
KIP-903; spec 2.3, I8-I11.
"""

from collections.abc import Sequence

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import NO_BROKER_EPOCH
from firnline.base.replicas import IsrAnswer, IsrChange
from firnline.config.broker import BrokerConfig
from firnline.controller.ids import epoch_problem
from firnline.controller.partition_change import (
    RECOVERED,
    RECOVERING,
    PartitionChanges,
    Target,
)
from firnline.metadata.image import ClusterImage, PartitionImage
from firnline.metadata.result import ControllerResult


def alter_partitions(
    image: ClusterImage,
    config: BrokerConfig,
    *,
    broker_id: int,
    broker_epoch: int,
    wanted: Sequence[IsrChange],
) -> ControllerResult[list[IsrAnswer | KafkaError] | KafkaError]:
    """Decide on each proposal of one leader; answers in the order of `wanted`.

    An answer is the state of the partition after the change. NEW_LEADER_ELECTED comes with a change as well:
    the proposal completed a reassignment and the sender leads no more (I8). STALE_BROKER_EPOCH is for all.
    """
    problem = epoch_problem(image, broker_id=broker_id, broker_epoch=broker_epoch)
    if problem is not None:
        return ControllerResult([], problem)
    changes = PartitionChanges(image, config)
    answers = [_alter(changes, broker_id, proposal) for proposal in wanted]
    return ControllerResult(changes.records, answers, is_atomic=False)


def _alter(changes: PartitionChanges, sender: int, proposal: IsrChange) -> IsrAnswer | KafkaError:
    topic = changes.image.topics_by_id.get(proposal.topic_id)
    if topic is None:
        return KafkaError(Code.UNKNOWN_TOPIC_ID, "no topic has this id")
    before = changes.partition(proposal.topic_id, proposal.partition)
    if before is None:
        return KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
    problem = (
        _epoch_problem(before, sender, proposal)
        or _isr_problem(before, proposal)
        or _eligibility_problem(changes.image, proposal)
    )
    if problem is not None:
        return problem
    isr = tuple(member.broker_id for member in proposal.new_isr)
    after = changes.change(
        proposal.topic_id,
        proposal.partition,
        Target(isr=isr, recovery_state=proposal.leader_recovery_state),
        changes.election_of(topic.name),
    )
    if after is None:
        # The leader proposes the present ISR because an earlier request of its own may still arrive. A new
        # partition epoch makes that one fail (I9, rel-R7).
        return _answer(changes.restate(proposal.topic_id, proposal.partition))
    assert after.partition_epoch > before.partition_epoch, (
        "each change has a partition epoch of its own (rel-R16)"
    )
    assert after.leader_epoch >= before.leader_epoch, "leader epochs never fall (rel-R16)"
    assert after.isr, "an ISR is never empty (rel-R17)"
    assert all(each in after.replicas for each in after.isr), (
        "only replicas are in the ISR (rel-R17)"
    )
    if after.leader != sender:
        why = f"the reassignment is complete, and broker {after.leader} leads now"
        return KafkaError(Code.NEW_LEADER_ELECTED, why)
    return _answer(after)


def _answer(partition: PartitionImage) -> IsrAnswer:
    """The answer to the leader: the state of the partition."""
    return IsrAnswer(
        partition.leader,
        partition.leader_epoch,
        partition.isr,
        partition.partition_epoch,
        partition.leader_recovery_state,
    )


def _epoch_problem(before: PartitionImage, sender: int, proposal: IsrChange) -> KafkaError | None:
    """Checks 2 to 6: is the proposal based on the present state, and from the leader?"""
    if proposal.leader_epoch > before.leader_epoch:
        why = f"leader epoch {proposal.leader_epoch} is later than {before.leader_epoch} here"
        return KafkaError(Code.NOT_CONTROLLER, why)
    if proposal.partition_epoch > before.partition_epoch:
        why = f"partition epoch {proposal.partition_epoch} is later than {before.partition_epoch} here"
        return KafkaError(Code.NOT_CONTROLLER, why)
    if proposal.leader_epoch < before.leader_epoch:
        why = f"leader epoch {proposal.leader_epoch} is over: it is {before.leader_epoch}"
        return KafkaError(Code.FENCED_LEADER_EPOCH, why)
    if sender != before.leader:
        return KafkaError(Code.INVALID_REQUEST, f"broker {before.leader} leads this partition")
    if proposal.partition_epoch < before.partition_epoch:
        why = f"partition epoch {proposal.partition_epoch} is over: it is {before.partition_epoch}"
        return KafkaError(Code.INVALID_UPDATE_VERSION, why)
    return None


def _isr_problem(before: PartitionImage, proposal: IsrChange) -> KafkaError | None:
    """Checks 7 and 8: is the proposed ISR valid for this partition?"""
    ids = [member.broker_id for member in proposal.new_isr]
    if not ids or len(set(ids)) < len(ids) or any(each not in before.replicas for each in ids):
        why = f"{ids} is not a valid ISR of the replicas {list(before.replicas)}"
        return KafkaError(Code.INVALID_REQUEST, why)
    if before.leader not in ids:
        return KafkaError(Code.INVALID_REQUEST, f"{ids} leaves out the leader {before.leader}")
    if proposal.leader_recovery_state not in (RECOVERED, RECOVERING):
        return KafkaError(Code.INVALID_REQUEST, "unknown leader recovery state")
    if proposal.leader_recovery_state == RECOVERING:
        if len(ids) > 1:
            why = "no replica may join while the leader recovers from an unclean election"
            return KafkaError(Code.INVALID_REQUEST, why)
        if before.leader_recovery_state == RECOVERED:
            return KafkaError(
                Code.INVALID_REQUEST, "a recovered leader cannot go back to recovering"
            )
    return None


def _eligibility_problem(image: ClusterImage, proposal: IsrChange) -> KafkaError | None:
    """Check 9: is each member active, and the incarnation that fetched from the leader? (rel-R1)"""
    for broker_id, broker_epoch in proposal.new_isr:
        broker = image.brokers.get(broker_id)
        if broker is None:
            why = "is not registered"
        elif broker.fenced:
            why = "is fenced"
        elif broker.in_controlled_shutdown:
            why = "is shutting down"
        elif broker_epoch not in (NO_BROKER_EPOCH, broker.epoch):
            why = f"has broker epoch {broker.epoch}; the proposal names {broker_epoch}"
        else:
            continue
        return KafkaError(Code.INELIGIBLE_REPLICA, f"broker {broker_id} {why}")
    return None
