"""The roles of a replica of the quorum, and the transitions between them, as a table. PURE.

Source: KIP-595, KIP-996; spec 1.3, Q15, Q46.
"""

from enum import Enum

from firnline.base.errors import Bug


class Role(Enum):
    """The role of a node in its epoch. An observer is only ever unattached or a follower (Q2)."""

    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"


class Cause(Enum):
    """Why a node changes its role."""

    NEWER_EPOCH = "newer-epoch"
    LEADER_FOUND = "leader-found"
    TIMEOUT = "timeout"
    PRE_MAJORITY = "pre-majority"
    MAJORITY = "majority"
    RESIGNATION = "resignation"


_U, _F, _P = Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE
_C, _L, _R = Role.CANDIDATE, Role.LEADER, Role.RESIGNED
_X = None  # illegal: only a bug of ours can cause it, not a peer

# One row per role, one column per cause. A majority of pre-votes makes a candidate, and only a candidate
# raises the epoch (Q46); a candidate that does not win asks for pre-votes again. A leader that resigns never
# leads that epoch again (Q15, X1). A leader does not follow another leader of its own epoch.
TRANSITIONS: dict[Role, dict[Cause, Role | None]] = {
    role: dict(zip(Cause, row, strict=True))
    for role, row in {
        #    NEWER_EPOCH LEADER_FOUND TIMEOUT PRE_MAJORITY MAJORITY RESIGNATION
        _U: (_U, _F, _P, _X, _X, _X),
        _F: (_U, _F, _P, _X, _X, _X),
        _P: (_U, _F, _U, _C, _X, _X),
        _C: (_U, _F, _P, _X, _L, _X),
        _L: (_U, _X, _X, _X, _X, _R),
        _R: (_U, _X, _P, _X, _X, _X),
    }.items()
}


def next_role(role: Role, cause: Cause) -> Role:
    """Return the role after `cause`; raise `Bug` for an illegal transition."""
    after = TRANSITIONS[role][cause]
    if after is None:
        raise Bug("illegal quorum transition", role=role.value, cause=cause.value)
    return after
