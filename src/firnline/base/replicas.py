"""What brokers and the active controller exchange about replicas: ISR changes and log directories. PURE.

The package `replica` proposes and the package `controller` decides. Neither imports the other; both import
these types. Source: KIP-497, KIP-858, KIP-903.
"""

from typing import NamedTuple

from firnline.base.ids import NO_BROKER_EPOCH, Uuid


class IsrMember(NamedTuple):
    """A member of a proposed ISR.

    broker_epoch  that of the incarnation which last fetched from the leader; -1 where the leader does not
                  know it: then the controller does not check it (I10, I17)
    """

    broker_id: int
    broker_epoch: int = NO_BROKER_EPOCH


class IsrChange(NamedTuple):
    """The proposal of a partition's leader, and the state that it believes the partition to be in.

    leader_epoch           the epoch in which it leads
    partition_epoch        that of the latest change that it knows of
    new_isr                the proposed ISR, ascending by id unless the order itself is the change
    leader_recovery_state  0: the leader has recovered; 1: it still recovers from an unclean election
    """

    topic_id: Uuid
    partition: int
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[IsrMember, ...]
    leader_recovery_state: int = 0


class IsrAnswer(NamedTuple):
    """The state of the partition after the controller's decision; fields as in the metadata image."""

    leader_id: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    leader_recovery_state: int = 0


class DirectoryAssignment(NamedTuple):
    """The sending broker's replica of a partition is in that log directory of the broker.

    `LOST_DIRECTORY` where its directory has failed.
    """

    topic_id: Uuid
    partition: int
    directory: Uuid
