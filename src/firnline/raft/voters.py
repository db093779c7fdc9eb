"""Who votes. PURE. Source: KIP-595 'Configurations'; spec Q2.

A static voter set comes from `controller.quorum.voters`. A set that changes by control records
(KIP-853) has directory ids as well; a log that contains one is refused by `metadata/loader.py`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from firnline.base.effects import Peer
from firnline.base.errors import ConfigError

_KEY = "controller.quorum.voters"


class Voter(NamedTuple):
    """One replica that votes, and where it listens."""

    node_id: int
    host: str
    port: int


class VoterSet:
    """The voters, by node id in ascending order; a set that changes is another one."""

    __slots__ = ("node_ids", "voters")

    def __init__(self, voters: Iterable[Voter]) -> None:
        self.voters = tuple(sorted(voters))
        self.node_ids = tuple(voter.node_id for voter in self.voters)

    @property
    def majority(self) -> int:
        """How many voters decide."""
        return len(self.voters) // 2 + 1

    def peer(self, node_id: int) -> Peer | None:
        """Where the voter of that id listens; None for nobody of these."""
        for voter in self.voters:
            if voter.node_id == node_id:
                return Peer(*voter)
        return None

    def others(self, node_id: int) -> tuple[Peer, ...]:
        """The voters but for `node_id`."""
        return tuple(Peer(*voter) for voter in self.voters if voter.node_id != node_id)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self.node_ids

    def is_sole(self, node_id: int) -> bool:
        """Does `node_id` vote, and nobody else?"""
        return self.node_ids == (node_id,)


def parse_voters(entries: Iterable[str]) -> VoterSet:
    """Parse `id@host:port` entries; IPv6 hosts stand in brackets. Raises ConfigError naming the entry."""
    voters = []
    for entry in entries:
        node, at, address = entry.strip().partition("@")
        host, colon, port = address.rpartition(":")
        if not (at and colon and host and node.isdecimal() and port.isdecimal()):
            raise ConfigError(f"{_KEY}: {entry!r} is not id@host:port")
        if not 0 < int(port) <= 65535:
            raise ConfigError(f"{_KEY}: {entry!r} names a port outside 1-65535")
        voters.append(Voter(int(node), host.removeprefix("[").removesuffix("]"), int(port)))
    found = VoterSet(voters)
    if len(set(found.node_ids)) != len(voters):
        raise ConfigError(f"{_KEY}: a node id occurs twice", ids=found.node_ids)
    return found
