"""The members of a group, its pending members and its leader. PURE. Source: KIP-345, KIP-394; rel-C6."""

from collections.abc import Iterator, Sequence

from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.coordinator.membership import (
    DescribedGroup,
    DescribedMember,
    Ends,
    JoinAnswer,
    JoinedMember,
    JoinResult,
    Member,
    MemberCounts,
    Protocol,
    choose_protocol,
)

# Half a millisecond.
_FILLED_PER_SLICE = 200
# What the common assignors and the rebalance timeout are computed from: a member's assignors and its timeout.
_Kind = tuple[tuple[str, ...], int]


class GroupMembers:
    """The members of one group, and totals over all of them, updated with each change.

    Invariants (checked after every change, for what changed):
      I1  the leader is a member, and there is one whenever there are members.
      I2  no member is also pending; an instance id names exactly one member.

    by_id           the members by member id, in the order they joined
    instances       instance id -> member id of each static member; of no other (I2)
    pending         member ids that were handed out and that nobody has joined with yet (KIP-394). They hold
                    up the end of a join phase until their session ends
    leader          the member that assigns partitions; None exactly if there are no members (I1)
    joined_count    members whose join waits for a response. At most all members; the join phase ends early
                    when it is all
    assigned_bytes  size of all assignments; groups compare it with a new one to bound their memory
    changes         grows with each change of a member or the leader. In CompletingRebalance it stays (I5):
                    the leader assigned to the members that it saw
    """

    __slots__ = (
        "_kinds",
        "_static_count",
        "_supported",
        "_member_counts",
        "assigned_bytes",
        "changes",
        "instances",
        "joined_count",
        "leader",
        "by_id",
        "pending",
    )

    def __init__(self, member_counts: MemberCounts) -> None:
        self.by_id: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        self.pending: dict[str, None] = {}
        self.leader: str | None = None
        self.joined_count = self.assigned_bytes = self.changes = 0
        self._member_counts = member_counts
        self._static_count = 0  # members with an instance id
        self._supported: dict[str, int] = {}  # assignor -> number of members that support it
        self._kinds: dict[_Kind, int] = {}  # number of members of each kind; usually all are of one

    def check_identity(self, member_id: str, instance_id: str | None) -> Code:
        """Return NONE if the member has this id and instance id, else the error."""
        if instance_id is not None:
            owner = self.instances.get(instance_id)
            if owner is not None and owner != member_id:
                return Code.FENCED_INSTANCE_ID
            if owner is None:
                return Code.UNKNOWN_MEMBER_ID
        return Code.NONE if member_id in self.by_id else Code.UNKNOWN_MEMBER_ID

    def fill(self, members: Sequence[Member], leader: str | None) -> Iterator[None]:
        """Restore the members of a record; yields after some members."""
        for place, member in enumerate(members, 1):
            self.add(member)
            if place % _FILLED_PER_SLICE == 0:
                yield
        # A log from before KIP-394 may name a leader that had left; any member will do.
        if leader in self.by_id:
            self.leader = leader

    def add_pending(self, member_id: str, *, host: str, size_bytes: int, ends: Ends) -> None:
        """Add a pending member with that address; `ends` forgets it."""
        self.pending[member_id] = None
        self._member_counts.add(member_id, host=host, size_bytes=size_bytes, ends=ends)

    def evict_pending(self, count_max: int, now_ms: int) -> Effects:
        """Forget the oldest pending member if there are too many."""
        if len(self.pending) < count_max:
            return []
        return self._member_counts.evict(next(iter(self.pending)), now_ms)

    def add(self, member: Member) -> None:
        self.by_id[member.member_id] = member
        self._note(member)
        self._forget_pending(member.member_id)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
            self._static_count += 1
        if self.leader is None:
            self.leader = member.member_id
        self._check(member.member_id)

    def replace(self, old_id: str, new: Member) -> None:
        """Put the new incarnation of a static member in the old one's place."""
        assert new.instance_id is not None
        old = self.by_id.pop(old_id)
        assert old.join_answer is None, "it is answered first"
        self._forget(old)
        self.by_id[new.member_id] = new
        self._note(new)
        self.instances[new.instance_id] = new.member_id
        if self.leader == old_id:
            self.leader = new.member_id
        self._check(new.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or a pending id; return the member, if it was one."""
        self._forget_pending(member_id)
        member = self.by_id.pop(member_id, None)
        if member is None:
            return None
        assert member.join_answer is None, "it is answered first"
        self._forget(member)
        if member.instance_id is not None:
            del self.instances[member.instance_id]
            self._static_count -= 1
        if self.leader == member_id:
            self.leader = next(iter(self.by_id), None)
        self._check()
        return member

    def subscribe(
        self, member: Member, protocols: tuple[Protocol, ...], rebalance_timeout_ms: int
    ) -> None:
        """The member has joined again, maybe with another subscription."""
        self._forget(member)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        self._note(member)

    def await_join(self, member: Member, answer: JoinAnswer) -> None:
        """The member has joined; the response waits until the generation begins."""
        assert member.join_answer is None, "answered before"
        member.join_answer = answer
        self.joined_count += 1

    def answer_join(self, member: Member, result: JoinResult) -> Effects:
        """Answer the member's waiting join, if there is one."""
        answer, member.join_answer = member.join_answer, None
        if answer is None:
            return []
        self.joined_count -= 1
        return [answer(result)]

    def assign(self, member: Member, assignment: bytes) -> None:
        self.assigned_bytes += len(assignment) - len(member.assignment)
        member.assignment = assignment
        self._member_counts.count(member)

    def assign_all(self, parts: dict[str, bytes]) -> Iterator[Member]:
        """Give each member its assignment. Nobody sees it before the group is Stable."""
        for member in list(self.by_id.values()):
            self.assign(member, parts.pop(member.member_id, b""))
            yield member

    def has_room(self, member_id: str, count_max: int, is_joining: bool) -> bool:
        """Whether one more member, or this one again, stays within `count_max`.

        While joining, only members that have joined count: a group that is too large loses its last ones.
        """
        member = self.by_id.get(member_id)
        if is_joining:
            has_joined = member is not None and member.join_answer is not None
            return has_joined or self.joined_count < count_max
        return member is not None or len(self.by_id) < count_max

    def elect_leader_that_joined(self) -> bool:
        """Keep the leader if it has joined, else choose the first member that has; False if none has."""
        if not self.joined_count:
            return False
        if self.leader is not None and self.by_id[self.leader].join_answer is not None:
            return True
        joined = (m.member_id for m in self.by_id.values() if m.join_answer is not None)
        self.leader = next(joined)
        self._check()
        return True

    @property
    def all_joined(self) -> bool:
        return not self.pending and self.joined_count == len(self.by_id)

    def absent(self) -> list[Member]:
        """Return the members that have not joined, except static ones, which may come back."""
        if self.joined_count == len(self.by_id):
            return []
        members = self.by_id.values()
        return [m for m in members if m.join_answer is None and m.instance_id is None]

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((timeout_ms for _, timeout_ms in self._kinds), default=0)

    def shares_a_protocol(self, protocols: Sequence[Protocol]) -> bool:
        count = len(self.by_id)
        return any(self._supported.get(p.name, 0) == count for p in protocols)

    def choose_protocol(self) -> str:
        assert self.leader is not None
        named_by_leader = [p.name for p in self.by_id[self.leader].protocols]
        count = len(self.by_id)
        shared = {name for name in named_by_leader if self._supported[name] == count}
        wishes = ((names, count) for (names, _), count in self._kinds.items())
        return choose_protocol(wishes, named_by_leader, shared)

    def seen_by_leader(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(m.member_id, m.instance_id, m.metadata_for(protocol_name))
            for m in self.by_id.values()
        )

    def described(
        self, protocol_name: str | None, *, is_stable: bool
    ) -> tuple[DescribedMember, ...]:
        """Return the members for DescribeGroups; with subscriptions and assignments only when Stable."""
        return tuple(
            DescribedMember(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.metadata_for(protocol_name) if is_stable else b"",
                m.assignment if is_stable else b"",
            )
            for m in self.by_id.values()
        )

    @property
    def count(self) -> int:
        return len(self.by_id)

    def describe(
        self, group_id: str, state: str, kind: str | None, protocol: str | None, *, is_stable: bool
    ) -> DescribedGroup:
        """Return the group for DescribeGroups; `kind` is its protocol type."""
        return DescribedGroup(
            code=Code.NONE,
            group_id=group_id,
            state=state,
            protocol_type=kind or "",
            protocol_data=(protocol or "") if is_stable else "",
            members=self.described(protocol, is_stable=is_stable),
        )

    def _note(self, member: Member) -> None:
        supported = self._supported
        kind = _kind_of(member)
        self._kinds[kind] = self._kinds.get(kind, 0) + 1
        for name in dict.fromkeys(kind[0]):
            supported[name] = supported.get(name, 0) + 1
        self.assigned_bytes += len(member.assignment)
        self._member_counts.count(member)

    def _forget(self, member: Member) -> None:
        supported = self._supported
        kind = _kind_of(member)
        self._kinds[kind] -= 1
        if not self._kinds[kind]:
            del self._kinds[kind]
        for name in dict.fromkeys(kind[0]):
            supported[name] -= 1
            if not supported[name]:
                del supported[name]
        self.assigned_bytes -= len(member.assignment)
        self._member_counts.discount(member)

    def _forget_pending(self, member_id: str) -> None:
        if member_id in self.pending:
            del self.pending[member_id]
            self._member_counts.remove(member_id)

    def _check(self, changed: str = "") -> None:
        """Check what the change of one member may have broken; not everything, as a thousand may leave at
        once.
        """
        self.changes += 1
        assert 0 <= self.joined_count <= len(self.by_id), "only members wait for a join (I3)"
        assert (self.leader in self.by_id) == bool(self.by_id), "I1"
        assert changed not in self.pending or changed not in self.by_id, "I2"
        assert len(self.instances) == self._static_count, "I2"


def _kind_of(member: Member) -> _Kind:
    return tuple(p.name for p in member.protocols), member.rebalance_timeout_ms
