"""Copies of a proposal that brought no answer: the controller may still take one of them. PURE.

A request that is sent again leaves the first copy on its way: in a queue, in a socket, on a connection that
is lost. A refusal of the second says nothing of the first. Whoever a copy would take into the ISR counts for
the high watermark until committed metadata says what the controller's checks of AlterPartition refuse for
ever:

  a newer partition epoch  whatever wrote it (check 6)
  a newer leader epoch     (check 4), or another leader, which comes with one (check 5)
  a newer broker epoch     of the leader, so that its requests of before are stale, or of any other member
                           whose epoch the copy names (check 9)
  no such broker           the same: it would be registered again with a newer epoch
  no such topic            its id never returns (check 1)

That a member is fenced, or shuts down, ends as it began, with no newer epoch: it says nothing. Nor does a new
controller: the old one may be elected again. Source: rel-R7; spec 2.3, I19.
"""

from collections.abc import Iterable, Sequence

from firnline.base.ids import NO_BROKER_EPOCH
from firnline.base.replicas import IsrChange
from firnline.replica.isr import Brokers


def still_possible(
    copies: Iterable[IsrChange],
    *,
    node_id: int,
    leader_epoch: int,
    partition_epoch: int,
    brokers: Brokers,
) -> tuple[IsrChange, ...]:
    """Return those that a controller may still take; the epochs are those of committed metadata."""
    return tuple(
        copy
        for copy in copies
        if copy.leader_epoch == leader_epoch
        and copy.partition_epoch == partition_epoch
        and not any(_is_gone(each, epoch, node_id, brokers) for each, epoch in copy.new_isr)
    )


def _is_gone(broker_id: int, epoch: int, node_id: int, brokers: Brokers) -> bool:
    """Whether the incarnation that a copy names is none that could come back."""
    if epoch == NO_BROKER_EPOCH:
        return False  # the controller checks none
    if broker_id == node_id:
        return brokers.own_epoch > epoch
    fact = brokers.fact(broker_id)
    return fact is None or fact.epoch > epoch


def widened(isr: Sequence[int], copies: Iterable[IsrChange]) -> tuple[int, ...]:
    """Return an ISR with all whom the copies would take into it."""
    members = dict.fromkeys(isr)
    for copy in copies:
        members.update(dict.fromkeys(broker_id for broker_id, _ in copy.new_isr))
    return tuple(members)


def in_another_order(change: IsrChange, isr: Sequence[int]) -> IsrChange:
    """Return a proposal that names its members in another order than `isr`, if there are two of them.

    A list in another order is a change to be written down, for Kafka's controllers as for ours. Of one member
    there is one order: ours write that down as well, Kafka's answer that nothing changes.
    """
    if [broker_id for broker_id, _ in change.new_isr] != list(isr):
        return change
    return change._replace(new_isr=change.new_isr[::-1])
