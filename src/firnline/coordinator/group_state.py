"""The states of a classic group, all transitions between them, and the error codes of each state. PURE.

`coordinator/group.py` uses this table. Source: the consumer rebalance protocol as Apache Kafka 4.3.1 runs it
(KIP-62, KIP-134, KIP-345, KIP-394); spec C15.
"""

from enum import Enum

from firnline.base.errors import Bug, Code


class GroupState(Enum):
    """Kafka's names, as ListGroups and DescribeGroups print them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Cause(Enum):
    """Why a group changes its state."""

    MEMBERS_CHANGED = "members changed"  # a member joined, left, or changed its subscription
    ALL_JOINED = "all joined"  # every remaining member has joined: a new generation
    DESERTED = "deserted"  # the join phase ends without members
    ASSIGNED = "assigned"  # the leader's assignment is committed
    REMOVED = "removed"  # deleted, expired, or no longer coordinated by this node


E, P, C, S, D = GroupState
X = None  # illegal: a bug of ours, never of a member

TRANSITIONS: dict[GroupState, dict[Cause, GroupState | None]] = {
    state: dict(zip(Cause, row, strict=True))
    for state, row in {
        #   MEMBERS_CHANGED  ALL_JOINED  DESERTED  ASSIGNED  REMOVED
        E: (P,               X,          X,        X,        D),
        P: (X,               C,          E,        X,        D),
        C: (P,               X,          X,        S,        D),
        S: (P,               X,          X,        X,        D),
        D: (X,               X,          X,        X,        D),
    }.items()
}  # fmt: skip

# The error code for a member with the right id and generation.
HEARTBEAT_ANSWER: dict[GroupState, Code] = {
    E: Code.UNKNOWN_MEMBER_ID,
    P: Code.REBALANCE_IN_PROGRESS,
    C: Code.NONE,
    S: Code.NONE,
    D: Code.COORDINATOR_NOT_AVAILABLE,
}
COMMIT_ANSWER: dict[GroupState, Code] = {
    E: Code.NONE,
    P: Code.NONE,
    C: Code.REBALANCE_IN_PROGRESS,
    S: Code.NONE,
    D: Code.COORDINATOR_NOT_AVAILABLE,
}
SYNC_ANSWER: dict[GroupState, Code] = {
    E: Code.UNKNOWN_MEMBER_ID,
    P: Code.REBALANCE_IN_PROGRESS,
    C: Code.NONE,
    S: Code.NONE,
    D: Code.COORDINATOR_NOT_AVAILABLE,
}


def next_state(state: GroupState, cause: Cause) -> GroupState:
    """Return the state after `cause`; raise Bug for a cell marked X."""
    after = TRANSITIONS[state][cause]
    if after is None:
        raise Bug("illegal group transition", state=state.value, cause=cause.value)
    return after


def may_rebalance(state: GroupState) -> bool:
    """Whether a change of members begins a new join phase in this state."""
    return TRANSITIONS[state][Cause.MEMBERS_CHANGED] is not None
