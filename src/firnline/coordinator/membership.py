"""What members ask of a group and what they hear, as values; and the member itself. PURE.

Times are milliseconds, metadata and assignments are the assignor's bytes and never looked into here
(KIP-62: the broker is a mailbox between the members). Source: spec C15; KIP-345 (static members),
KIP-394 (known member ids), KIP-559 (protocol type and name), KIP-814 (skip assignment).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from firnline.base.effects import Effect
from firnline.base.errors import Code
from firnline.base.event import event
from firnline.base.limits import STRING_BYTES_MAX

NO_GENERATION = -1
UNKNOWN_MEMBER = ""
# The protocol type whose subscriptions name topics.
CONSUMERS = "consumer"


class Protocol(NamedTuple):
    """One assignor a member can run, with its subscription for it."""

    name: str
    metadata: bytes


@event
class JoinRequest:
    """One JoinGroup. The two `may` and `needs` flags stand for what the request's version can do."""

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
    """A member as its leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@event
class JoinResult:
    """The answer to a join. `members` only for the leader."""

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
    """One SyncGroup. Protocol type and name are None where the version has none."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@event
class SyncResult:
    """The answer to a sync."""

    code: Code
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Identity(NamedTuple):
    """Who is to leave: by member id, by instance id alone, or both."""

    member_id: str
    instance_id: str | None


class Left(NamedTuple):
    """What became of one leaver."""

    who: Identity
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


class Tally:
    """Ids handed out over all groups of the node, for which no member has come yet."""

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending = 0


class Member:
    """One member of one group, and the requests of it that wait for an answer.

    is_being_told  its answer is decided on, and goes out in one of the next slices
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_being_told",
        "is_new",
        "join_answer",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_answer",
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
        self.is_new = False
        self.is_being_told = False
        self.join_answer: JoinAnswer | None = None
        self.sync_answer: SyncAnswer | None = None

    @property
    def is_waiting(self) -> bool:
        waits = self.join_answer is not None or self.sync_answer is not None
        return waits or self.is_being_told

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """Return the subscription the member sent for that assignor, or nothing."""
        return next((p.metadata for p in self.protocols if p.name == protocol_name), b"")

    def supports(self, protocol_name: str) -> bool:
        return any(p.name == protocol_name for p in self.protocols)


def made_member_id(stem: str, unique: str) -> str:
    """Return the id of a new member: who it says it is, and what nobody else has.

    The stem is cut where the whole would not go into an answer or a record. Kafka 4.3.1 takes the member in,
    and then cannot tell it so.
    """
    room = STRING_BYTES_MAX - len(unique) - 1
    if len(stem) > room // 4:  # may be too long: a character has four bytes at most
        stem = stem.encode()[:room].decode(errors="ignore")
    return f"{stem}-{unique}"


def choose_protocol(members: Sequence[Member], leader_id: str) -> str:
    """Return the assignor that most members prefer among those that all of them can run.

    Each member votes for the first of its list that all can run; a draw goes to the one the leader
    names first. There is one at least: nobody joins who shares none with the others.
    """
    shared = [p.name for p in members[0].protocols if all(m.supports(p.name) for m in members)]
    assert shared, "members without a common protocol"
    votes = dict.fromkeys(shared, 0)
    for member in members:
        votes[next(p.name for p in member.protocols if p.name in votes)] += 1
    leader = next((m for m in members if m.member_id == leader_id), members[0])
    order = {p.name: place for place, p in reversed(list(enumerate(leader.protocols)))}
    return min(shared, key=lambda name: (-votes[name], order[name]))


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a consumer's subscription, or None when the bytes are no such thing.

    Layout of every version: version int16, then an array of strings. Source: ConsumerProtocolSubscription.
    """
    count = int.from_bytes(metadata[2:6], "big", signed=True)
    position, topics = 6, []
    if len(metadata) < 6 or not 0 <= count * 2 <= len(metadata) - 6:
        return None
    for _ in range(count):
        end = position + 2 + int.from_bytes(metadata[position : position + 2], "big")
        if end > len(metadata):
            return None
        try:
            topics.append(metadata[position + 2 : end].decode())
        except UnicodeDecodeError:
            return None
        position = end
    return frozenset(topics)
