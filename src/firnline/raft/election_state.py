"""What a voter must remember across a crash: epoch, vote, leader; and its file's one line. PURE.

`quorum-state` is JSON of `data_version` 0 while voters are static, as Kafka 4.3.1 writes it: -1 is nobody; a
follower keeps the vote it gave in the epoch of its leader. Source: KIP-595 'Quorum State'; spec Q10.
"""

import json
from typing import Any, NamedTuple

from firnline.base.errors import ConfigError, StorageError

NOBODY = -1
_STATIC_VOTERS, _DYNAMIC_VOTERS = 0, 1


class ElectionState(NamedTuple):
    """Epoch, who leads it, whom this node voted for; -1 for nobody."""

    epoch: int
    leader_id: int = NOBODY
    voted_id: int = NOBODY


def encode_election_state(state: ElectionState, voter_ids: tuple[int, ...]) -> bytes:
    """Return the content of `quorum-state` as Kafka writes it for static voters."""
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
    if version != _STATIC_VOTERS or state.epoch < 0:
        raise _damaged(path, version=version, epoch=state.epoch)
    return state


def _damaged(path: str, **facts: object) -> StorageError:
    # Without its vote this node might vote twice in an epoch.
    remedy = (
        "restore it from a copy, or format this directory anew while every other voter runs and is"
        " level with the leader"
    )
    return StorageError("quorum-state is damaged", path=path, **facts, remedy=remedy)
