"""The voter set of the quorum. PURE. Source: KIP-595 'Configurations'; spec Q2.

A static voter set comes from `controller.quorum.voters`. A voter set in control records (KIP-853) has
directory ids too; `metadata/loader.py` refuses a log that contains one.
"""

from collections.abc import Iterable
from typing import NamedTuple

from firnline.base.effects import Peer
from firnline.base.errors import ConfigError

_KEY = "controller.quorum.voters"


class Voter(NamedTuple):
    """One voter and its address."""

    node_id: int
    host: str
    port: int


class VoterSet:
    """The voters, by node id in ascending order; immutable."""

    __slots__ = ("node_ids", "voters")

    def __init__(self, voters: Iterable[Voter]) -> None:
        self.voters = tuple(sorted(voters))
        self.node_ids = tuple(voter.node_id for voter in self.voters)

    @property
    def majority(self) -> int:
        """The number of votes that decide."""
        return len(self.voters) // 2 + 1

    def peer(self, node_id: int) -> Peer | None:
        """The address of the voter with that id; None if it is no voter."""
        for voter in self.voters:
            if voter.node_id == node_id:
                return Peer(*voter)
        return None

    def others(self, node_id: int) -> tuple[Peer, ...]:
        """The voters except `node_id`."""
        return tuple(Peer(*voter) for voter in self.voters if voter.node_id != node_id)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self.node_ids

    def is_sole(self, node_id: int) -> bool:
        """Is `node_id` the only voter?"""
        return self.node_ids == (node_id,)


def parse_voters(entries: Iterable[str]) -> VoterSet:
    """Parse `id@host:port` entries; IPv6 hosts are in brackets. Raises ConfigError naming the entry."""
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
