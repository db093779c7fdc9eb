"""The roles of a voter and what moves between them, as a table. PURE. Source: KIP-595; spec 1.3, Q15."""

from enum import Enum

from firnline.base.errors import Bug


class Role(Enum):
    """What a node is in its epoch."""

    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"


class Cause(Enum):
    """What makes a node change its role."""

    NEWER_EPOCH = "newer-epoch"
    LEADER_FOUND = "leader-found"
    ELECTION_TIMEOUT = "election-timeout"
    MAJORITY = "majority"
    RESIGNATION = "resignation"


_U, _F, _C, _L, _R = Role.UNATTACHED, Role.FOLLOWER, Role.CANDIDATE, Role.LEADER, Role.RESIGNED
_X = None  # illegal: taking it is our bug, not a peer's

# One row per role, one column per cause. A candidate whose election times out is a candidate of the
# next epoch; a leader that hears of a leader in its own epoch has found two leaders.
TRANSITIONS: dict[Role, dict[Cause, Role | None]] = {
    role: dict(zip(Cause, row, strict=True))
    for role, row in {
        #    NEWER_EPOCH LEADER_FOUND ELECTION_TIMEOUT MAJORITY RESIGNATION
        _U: (_U, _F, _C, _X, _U),
        _F: (_U, _F, _C, _X, _F),
        _C: (_U, _F, _C, _L, _C),
        _L: (_U, _X, _X, _X, _R),
        _R: (_U, _F, _C, _X, _R),
    }.items()
}


def next_role(role: Role, cause: Cause) -> Role:
    """Return the role after `cause`; raise `Bug` for a cell that must not be taken."""
    after = TRANSITIONS[role][cause]
    if after is None:
        raise Bug("illegal quorum transition", role=role.value, cause=cause.value)
    return after
