"""Members of groups, and their requests and responses as values. PURE.

Times are milliseconds. Metadata and assignments are bytes of the assignor, which the broker does not decode
(KIP-62: it only carries them between the members). Source: spec C15; KIP-345 (static members),
KIP-394 (known member ids), KIP-559 (protocol type and name), KIP-814 (skip assignment).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from firnline.base.effects import Effect, Effects
from firnline.base.errors import Code
from firnline.base.event import event
from firnline.base.limits import STRING_BYTES_MAX
from firnline.base.log_lines.broker import (
    GROUPS_REFUSED,
    MEMBER_IDS_FORGOTTEN,
    REBALANCE_BEGAN,
    REBALANCE_ENDED,
)
from firnline.base.log_lines.line import Log, LogLine
from firnline.base.owners import Owners

NO_GENERATION = -1
UNKNOWN_MEMBER = ""
_WARN_EVERY_MS = 10_000
# The memory of a member besides its bytes, in a group of its own; and of each assignor that it names.
_MEMBER_BYTES = 3_000
_PROTOCOL_BYTES = 200
# The protocol type whose subscriptions name topics.
CONSUMERS = "consumer"


class Protocol(NamedTuple):
    """An assignor that a member supports, with its subscription for it."""

    name: str
    metadata: bytes


@event
class JoinRequest:
    """One JoinGroup. The flags `may...` and `needs...` say what the request's version supports."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    needs_known_member_id: bool
    may_skip_assignment: bool


class JoinedMember(NamedTuple):
    """A member as the group leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@event
class JoinResult:
    """The response to a join. `members` only for the leader."""

    code: Code
    member_id: str = UNKNOWN_MEMBER
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = UNKNOWN_MEMBER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@event
class SyncRequest:
    """One SyncGroup. Protocol type and name are None in versions without them.

    assignments     by member; the group removes those it uses
    assigned_bytes  their size
    """

    group_id: str
    member_id: str
    instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]
    assigned_bytes: int

    def names_another(self, protocol_type: str | None, protocol_name: str | None) -> bool:
        """Whether it names a protocol, and not this one."""
        named = (self.protocol_type, protocol_type), (self.protocol_name, protocol_name)
        return any(said is not None and said != known for said, known in named)


@event
class SyncResult:
    """The response to a sync."""

    code: Code
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class MemberIdentity(NamedTuple):
    """A member that is to leave: by member id, by instance id only, or both."""

    member_id: str
    instance_id: str | None


class LeaveResult(NamedTuple):
    """The result of one leave."""

    who: MemberIdentity
    code: Code


class DescribedMember(NamedTuple):
    """A member as DescribeGroups prints it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@event
class DescribedGroup:
    """A group as DescribeGroups prints it."""

    code: Code
    group_id: str
    state: str
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedMember, ...] = ()


class ListedGroup(NamedTuple):
    """A group as ListGroups prints it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


JoinAnswer = Callable[[JoinResult], Effect]
SyncAnswer = Callable[[SyncResult], Effect]
Ends = Callable[[int], Effects]


class MemberCounts:
    """Counts members and pending members of all groups of the node by client address.

    evicted  pending members that were forgotten early to make room for others
    refused  requests that were refused because their address had no room
    """

    __slots__ = (
        "_ends",
        "_held_of",
        "_hosts",
        "_ids",
        "_said_ms",
        "_unsaid",
        "evicted",
        "held_bytes",
        "refused",
    )

    def __init__(self) -> None:
        self._ids: Owners[str] = Owners()
        self._hosts: dict[str, str] = {}
        self._ends: dict[str, Ends] = {}
        self._held_of: dict[str, int] = {}  # by address: the memory of its members
        self.held_bytes = 0
        self.evicted = self.refused = 0
        self._unsaid = 0
        self._said_ms: int | None = None

    @property
    def pending(self) -> int:
        return self._ids.count

    def add(self, member_id: str, *, host: str, size_bytes: int, ends: "Ends") -> None:
        """Count a pending member of that address; `ends(now_ms)` makes its group forget it."""
        self._ids.add(host, member_id, size_bytes)
        self._hosts[member_id] = host
        self._ends[member_id] = ends

    def remove(self, member_id: str) -> None:
        """A pending member was forgotten, or has joined."""
        self._ids.remove(self._hosts.pop(member_id), member_id)
        del self._ends[member_id]

    def make_room(self, count_max: int, bytes_max: int, now_ms: int) -> Effects:
        """Forget pending members until there is room for one more: the oldest of the address that has
        most.
        """
        effects: Effects = []
        while self._ids.count >= count_max or self._ids.size >= bytes_max:
            found = self._ids.oldest_of_largest()
            assert found is not None
            host, member_id = found
            effects += self.evict(member_id, now_ms)
            effects += self._warn(MEMBER_IDS_FORGOTTEN, {"host": _address(host)}, now_ms)
        return effects

    def evict(self, member_id: str, now_ms: int) -> Effects:
        """Forget a pending member early. If it joins later, the error is UNKNOWN_MEMBER_ID."""
        self.evicted += 1
        return self._ends[member_id](now_ms)

    def count(self, member: "Member") -> None:
        """Count a new member, or one whose memory changed."""
        self.discount(member)
        host, size_bytes = member.client_host, member.held_bytes
        member.counted_bytes = size_bytes
        self.held_bytes += size_bytes
        self._held_of[host] = self._held_of.get(host, 0) + size_bytes

    def discount(self, member: "Member") -> None:
        """A member has gone."""
        size_bytes, member.counted_bytes = member.counted_bytes, 0
        if not size_bytes:
            return
        self.held_bytes -= size_bytes
        left_bytes = self._held_of.pop(member.client_host) - size_bytes
        assert 0 <= left_bytes <= self.held_bytes, "what goes was counted, for this address"
        if left_bytes:
            self._held_of[member.client_host] = left_bytes

    def has_room(self, host: str, more_bytes: int, bytes_max: int) -> bool:
        """Whether members of an address may use so much more memory: not more than what is left for all
        others.
        """
        of_host = self._held_of.get(host, 0)
        return more_bytes <= 0 or of_host + more_bytes <= bytes_max - self.held_bytes

    def refuse(self, host: str, now_ms: int) -> Effects:
        """Count a request that found no room, and warn the operator."""
        self.refused += 1
        held = {"host_bytes": self._held_of.get(host, 0), "bytes": self.held_bytes}
        return self._warn(GROUPS_REFUSED, {"host": _address(host), **held}, now_ms)

    def _warn(self, line: LogLine, fields: dict[str, object], now_ms: int) -> Effects:
        self._unsaid += 1
        if self._said_ms is not None and now_ms - self._said_ms < _WARN_EVERY_MS:
            return []
        count, self._unsaid, self._said_ms = self._unsaid, 0, now_ms
        return [line(count=count, **fields)]


class Member:
    """One member of a group, and its requests that wait for a response.

    member_id        its key in the group, for good: a static member that restarts becomes another Member
    instance_id      group.instance.id of a static member, else None (KIP-345)
    protocols        the assignors that it supports, in its order, with its subscription for each
    assignment       its part of the last assignment; nobody sees it before the group is Stable
    counted_bytes    its memory as MemberCounts has counted it; 0: not counted
    is_new           its first join waits: its session ends although it waits, as nobody knows its id yet
    join_answer      of its waiting join, or None. Set only by its GroupMembers, which counts those that wait
    sync_answer      of its waiting sync, or None
    sync_generation  the generation of its latest sync: the assignment of another one does not answer it (I4)
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "counted_bytes",
        "instance_id",
        "is_new",
        "join_answer",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_answer",
        "sync_generation",
    )

    def __init__(
        self,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: Sequence[Protocol],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = tuple(protocols)
        self.assignment = assignment
        self.counted_bytes = 0  # as MemberCounts has counted it
        self.is_new = False
        self.join_answer: JoinAnswer | None = None
        self.sync_answer: SyncAnswer | None = None
        self.sync_generation = NO_GENERATION

    @property
    def is_waiting(self) -> bool:
        return self.join_answer is not None or self.sync_answer is not None

    @property
    def held_bytes(self) -> int:
        """Its memory, approximately."""
        names = len(self.member_id) + len(self.client_id) + len(self.instance_id or "")
        return _MEMBER_BYTES + names + size_of(self.protocols) + len(self.assignment)

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """Return the member's subscription for that assignor, or b""."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""


def member_of(member_id: str, request: JoinRequest) -> Member:
    """Return the member that a JoinGroup describes, with that id."""
    return Member(
        member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
    )


# Why a rebalance begins, and the member that is the reason, if one is.
RebalanceCause = tuple[str, Member | None]
NO_CAUSE: RebalanceCause = ("", None)


def rebalance_began(group_id: str, generation: int, members: int, cause: RebalanceCause) -> Log:
    """Return the line for a rebalance; `generation` and `members` are those of the group before it."""
    reason, member = cause
    return REBALANCE_BEGAN(
        group=group_id,
        reason=reason,
        member=None if member is None else member.member_id,
        client_id=None if member is None else member.client_id,
        host=None if member is None else _address(member.client_host),
        members=members,
        generation=generation,
    )


def _address(client_host: str) -> str:
    """Return an address as all lines have it: without the slash that Kafka puts before it in groups."""
    return client_host.removeprefix("/")


def rebalance_ended(
    group_id: str, generation: int, members: int, protocol: str | None, took_ms: int
) -> Log:
    """Return the line for a rebalance whose assignment is committed."""
    return REBALANCE_ENDED(
        group=group_id, generation=generation, members=members, protocol=protocol, took_ms=took_ms
    )


def size_of(protocols: Sequence[Protocol]) -> int:
    """Return the memory of a member's assignors, approximately."""
    return sum(_PROTOCOL_BYTES + len(p.name) + len(p.metadata) for p in protocols)


def new_member_id(stem: str, unique: str) -> str:
    """Return the id of a new member: a stem from its client, and a unique part.

    The stem is shortened if the id would not fit into a response or a record. Kafka 4.3.1 accepts such a
    member and then cannot send it the id.
    """
    room = STRING_BYTES_MAX - len(unique) - 1
    if len(stem) > room // 4:  # may be too long: a character has at most four bytes
        stem = stem.encode()[:room].decode(errors="ignore")
    return f"{stem}-{unique}"


def choose_protocol(
    wishes: Iterable[tuple[Sequence[str], int]],
    named_by_leader: Sequence[str],
    shared: Collection[str],
) -> str:
    """Return the assignor that most members prefer among `shared`, those that all of them support.

    Each member votes for the first in its list that all support. In a tie, the leader's order decides. There
    is at least one: a member that shares no assignor with the others is refused.

    wishes  lists of assignors, and how many members have each
    """
    assert shared, "members without a common protocol"
    votes = dict.fromkeys(shared, 0)
    for names, count in wishes:
        votes[next(name for name in names if name in votes)] += count
    order = {name: place for place, name in reversed(list(enumerate(named_by_leader)))}
    return min(shared, key=lambda name: (-votes[name], order[name]))
