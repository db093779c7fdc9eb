"""What a broker and the active controller tell each other of replicas: who is in sync, which directory. PURE.

`replica` proposes and `controller` decides; neither knows the other, and both know these. Source: KIP-497,
KIP-858, KIP-903.
"""

from typing import NamedTuple

from firnline.base.ids import NO_BROKER_EPOCH, Uuid


class IsrMember(NamedTuple):
    """A replica to be in sync.

    broker_epoch  of the incarnation that the leader heard from; -1 where it could not tell: then the
                  controller does not check it (I10, I17)
    """

    broker_id: int
    broker_epoch: int = NO_BROKER_EPOCH


class IsrChange(NamedTuple):
    """What the leader of a partition proposes, and the state it believes the partition to be in.

    leader_epoch           in which it leads
    partition_epoch        of the latest change that it knows of
    new_isr                the in-sync replicas from now on, ascending by id but where the order is the change
    leader_recovery_state  0: the leader has recovered; 1: it still recovers from an unclean election
    """

    topic_id: Uuid
    partition: int
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[IsrMember, ...]
    leader_recovery_state: int = 0


class IsrAnswer(NamedTuple):
    """The partition as the controller has it once the proposal is decided; fields as in its image."""

    leader_id: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    leader_recovery_state: int = 0


class DirectoryAssignment(NamedTuple):
    """A replica of the broker that says so is in that directory of its own, or in `LOST_DIRECTORY`."""

    topic_id: Uuid
    partition: int
    directory: Uuid
