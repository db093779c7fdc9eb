"""The election state that survives a crash: epoch, vote, leader; the highest epochs; the file. PURE.

`quorum-state` is JSON of `data_version` 0 for static voters, as Kafka 4.3.1 writes it: -1 is no node; a
follower keeps its vote in the epoch of its leader.

An epoch is a number of 31 bits, it never falls, and each election needs the next one. Any client that can
connect to the controllers' listener can name any epoch. Apache Kafka 4.3.1 accepts the last one, and its
quorum then never elects again (tested). Here:

E1  Up to EPOCH_FREE_MAX a node accepts every epoch, so that a node that was away can come back.
E2  Above it an epoch rises by one at a time, and other nodes can raise it at most once in an election
    timeout. With the elections that follow, using up the last 2^20 epochs takes six days without a pause,
    at the default of one second.
E3  A request that names a higher epoch is refused and changes nothing. A response that names a higher epoch
    counts as the highest that E1 and E2 allow, without its leader and its records: so a node that was away
    catches up, one epoch after the other.
E4  At EPOCH_MAX there are no elections: the leader goes on, it gets no successor, and no node stops.
E5  A node accepts each valid epoch on its own disk; an invalid one is damage.

Source: KIP-595 'Quorum State'; spec Q10; docs/decisions/0028-epochs-have-an-end.md.
"""

import json
from typing import Any, NamedTuple

from firnline.base.errors import ConfigError, StorageError
from firnline.base.units import INT32_MAX

NOBODY = -1
EPOCH_MAX = INT32_MAX
EPOCH_FREE_MAX = 2**31 - 2**20
_STATIC_VOTERS, _DYNAMIC_VOTERS = 0, 1


class ElectionState(NamedTuple):
    """Epoch, its leader, and this node's vote in it; -1 for none."""

    epoch: int
    leader_id: int = NOBODY
    voted_id: int = NOBODY


def is_epoch(number: int) -> bool:
    """Is the number a valid epoch?"""
    return 0 <= number <= EPOCH_MAX


def highest_to_take(own: int, *, since_risen_ms: int | None, pause_ms: int) -> int:
    """Return the highest epoch that a node in epoch `own` accepts from others now; E1, E2, E4.

    since_risen_ms  the time since others last raised its epoch; None for never
    pause_ms        how long the epoch must stay as it is above EPOCH_FREE_MAX
    """
    if own < EPOCH_FREE_MAX:
        return EPOCH_FREE_MAX
    if since_risen_ms is not None and since_risen_ms < pause_ms:
        return own
    return min(own + 1, EPOCH_MAX)


def may_elect_in(own: int) -> bool:
    """Is there an epoch after `own` for an election? E4."""
    return own < EPOCH_MAX


def encode_election_state(state: ElectionState, voter_ids: tuple[int, ...]) -> bytes:
    """Return the content of `quorum-state`, as Kafka writes it for static voters."""
    return json.dumps(
        {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter_id} for voter_id in voter_ids],
            "data_version": _STATIC_VOTERS,
        },
        separators=(",", ":"),
    ).encode()


def decode_election_state(data: bytes, *, path: str) -> ElectionState:
    """Parse `quorum-state`. Raises StorageError when damaged, ConfigError for dynamic voters."""
    try:
        fields: dict[str, Any] = json.loads(data)
        version = fields["data_version"]
        state = ElectionState(
            int(fields["leaderEpoch"]), int(fields["leaderId"]), int(fields["votedId"])
        )
    except (ValueError, KeyError, TypeError) as problem:
        raise _damaged(path, problem=repr(problem)) from None
    if version == _DYNAMIC_VOTERS:
        raise ConfigError(
            "the metadata quorum of this directory has dynamic voters (kraft.version 1), which this"
            " release does not run; it runs a quorum of controller.quorum.voters",
            path=path,
        )
    if version != _STATIC_VOTERS or not is_epoch(state.epoch):
        raise _damaged(path, version=version, epoch=state.epoch)
    return state


def _damaged(path: str, **facts: object) -> StorageError:
    # A node that lost its vote might vote twice in an epoch.
    remedy = (
        "restore it from a copy, or format this directory anew while every other voter runs and is"
        " level with the leader"
    )
    return StorageError("quorum-state is damaged", path=path, **facts, remedy=remedy)
