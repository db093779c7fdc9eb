"""ISR proposals that brought no answer: the controller may still apply one of them. PURE.

A request that is sent again leaves its first copy under way: in a queue, a socket or a lost connection. If
the controller refuses the second, it may still apply the first. So each replica that an unanswered proposal
would add counts for the high watermark until committed metadata shows that the controller's checks of
AlterPartition must refuse the proposal:

  a newer partition epoch  whatever changed it (check 6)
  a newer leader epoch     (check 4), or another leader, which has a newer leader epoch (check 5)
  a newer broker epoch     of the leader, whose earlier requests are then stale, or of any other member with
                           a broker epoch in the proposal (check 9)
  no such broker           the same: it would register again with a newer broker epoch
  no such topic            a topic id never returns (check 1)

That a member is fenced or shuts down proves nothing: this state can end without a newer epoch. Nor does a new
controller: the old one may be elected again. Source: rel-R7; spec 2.3, I19.
"""

from collections.abc import Iterable, Sequence

from firnline.base.ids import NO_BROKER_EPOCH
from firnline.base.replicas import IsrChange
from firnline.replica.isr import Brokers


def still_possible(
    proposals: Iterable[IsrChange],
    *,
    node_id: int,
    leader_epoch: int,
    partition_epoch: int,
    brokers: Brokers,
) -> tuple[IsrChange, ...]:
    """Return the proposals that a controller may still apply, given the committed epochs."""
    return tuple(
        proposal
        for proposal in proposals
        if proposal.leader_epoch == leader_epoch
        and proposal.partition_epoch == partition_epoch
        and not any(_is_gone(each, epoch, node_id, brokers) for each, epoch in proposal.new_isr)
    )


def _is_gone(broker_id: int, epoch: int, node_id: int, brokers: Brokers) -> bool:
    """Whether the incarnation that a proposal names can never be active again."""
    if epoch == NO_BROKER_EPOCH:
        return False  # the controller does not check this one
    if broker_id == node_id:
        return brokers.own_epoch > epoch
    fact = brokers.fact(broker_id)
    return fact is None or fact.epoch > epoch


def widened(isr: Sequence[int], proposals: Iterable[IsrChange]) -> tuple[int, ...]:
    """Return `isr` with all members that the proposals would add."""
    members = dict.fromkeys(isr)
    for proposal in proposals:
        members.update(dict.fromkeys(broker_id for broker_id, _ in proposal.new_isr))
    return tuple(members)


def in_another_order(change: IsrChange, isr: Sequence[int]) -> IsrChange:
    """Return the proposal with its members in another order than `isr`, if it has two or more.

    A list in another order is a change, for Kafka's controllers as for ours, and gets a new partition epoch.
    One member has only one order: our controller gives a new partition epoch for that too, Kafka's does not.
    """
    if [broker_id for broker_id, _ in change.new_isr] != list(isr):
        return change
    return change._replace(new_isr=change.new_isr[::-1])
