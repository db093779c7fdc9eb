"""One classic group: members join, sync, heartbeat and leave; each rebalance begins a generation. PURE.

The broker chooses the protocol and the leader and carries bytes between members; the leader assigns
partitions. One record per completed generation survives a crash. It is written before any member gets its
assignment. Source: KIP-62, KIP-134, KIP-345, KIP-394, KIP-814 as 4.3.1 runs them; spec C15, rel-C6.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial

from firnline.base.effects import CancelTimer, Effects, SetTimer
from firnline.base.errors import Code
from firnline.base.log_lines.broker import GROUP_EMPTY
from firnline.base.units import INT32_MAX
from firnline.coordinator.for_each_member import Later, answer_sync, for_each
from firnline.coordinator.group_members import GroupMembers
from firnline.coordinator.group_state import (
    COMMIT_ANSWER,
    HEARTBEAT_ANSWER,
    SYNC_ANSWER,
    Cause,
    GroupState,
    may_rebalance,
    next_state,
)
from firnline.coordinator.membership import (
    NO_CAUSE,
    UNKNOWN_MEMBER,
    DescribedGroup,
    JoinAnswer,
    JoinRequest,
    JoinResult,
    LeaveResult,
    Member,
    MemberCounts,
    MemberIdentity,
    SyncAnswer,
    SyncRequest,
    SyncResult,
    member_of,
    new_member_id,
    rebalance_began,
    rebalance_ended,
)
from firnline.coordinator.policy import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupPolicy

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState
# A client may set a rebalance timeout near zero; without a minimum the timer would fire all the time.
_LOOK_AGAIN_MS = 1_000
# Assignments of so many members are read and written in slices.
_MANY_MEMBERS = 1_000
# The memory of a pending member besides its id: a group that may be its own, and a timer.
_PENDING_BYTES = 2_000

# Writes the group with these assignments; calls back with NONE once they are committed, or with the error.
Written = Callable[[Code, int], Effects]
Persist = Callable[["Group", Mapping[str, bytes], Written, int], Effects]
# The same for these members with their present assignments, in slices, while the predicate is true.
PersistInSlices = Callable[["Group", Iterator[Member], Callable[[], bool], Written, int], Effects]


class Group:
    """Members, generation and state of one group id.

    Invariants (GroupMembers has those of the members):
      I3  a member waits for its join response only while joining, until the response is sent, or while its
          replacement is written.
      I4  a member waits for the sync response of this generation in CompletingRebalance, or until it is sent.
      I5  in CompletingRebalance members and leader stay: any change of them begins a rebalance.
      I6  no member gets an assignment before the record of its generation is committed.

    state           changes only by the table in `group_state`. DEAD is final: a join makes a new Group
    state_since_ms  when it last changed; the offsets of an empty group expire by it. -1: not known
    generation      one more with each completed join phase; a request of another generation is refused
    protocol_type   of the first member, and all others must have it; None: no member ever joined
    protocol_name   the assignor of the present generation; None without members
    unsynced        members of this generation that have not synced; empty: the sync timer is off
    """

    def __init__(
        self,
        group_id: str,
        *,
        policy: GroupPolicy,
        member_counts: MemberCounts,
        new_id: Callable[[], str],
        persist: Persist,
        persist_in_slices: PersistInSlices,
        on_unused: Callable[["Group", int], Effects],
        later: Later,
    ) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.state_since_ms = -1
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = GroupMembers(member_counts)
        self.unsynced: dict[str, None] = {}
        self._is_first_rebalance = False  # this join phase began in an empty group (KIP-134)
        self._came_in_delay = False  # a member joined during that delay, so it is prolonged
        self._cause, self._began_ms = NO_CAUSE, 0  # of the next rebalance; when the last one began
        self._generation_in_writing = -1  # whose assignment is being written; -1: none
        self._changes_before = 0  # `members.changes` when the generation began (I5)
        self._policy = policy
        self._new_id = new_id
        self._persist = persist
        self._persist_in_slices = persist_in_slices
        self._on_unused = on_unused
        self._later = later

    # ------------------------------------------------------------------------------------- requests

    def join(self, request: JoinRequest, answer: JoinAnswer, now_ms: int) -> Effects:
        """Add a member, or refuse it. The response may wait for the other members."""
        member_id = request.member_id
        if self.state is DEAD:
            return [answer(JoinResult(code=Code.COORDINATOR_NOT_AVAILABLE, member_id=member_id))]
        is_joining = self.state is PREPARING
        size_max = self._policy.max_size
        if self.state is not EMPTY and not self.members.has_room(member_id, size_max, is_joining):
            gone = self._remove(member_id, Code.GROUP_MAX_SIZE_REACHED)
            settled = self._end_join_phase_if_all_joined(now_ms)
            return [*gone, answer(JoinResult(code=Code.GROUP_MAX_SIZE_REACHED)), *settled]
        if not self._can_work_with(request):
            code = Code.INCONSISTENT_GROUP_PROTOCOL
            return [answer(JoinResult(code=code, member_id=member_id))]
        if member_id == UNKNOWN_MEMBER:
            return self._join_newcomer(request, answer, now_ms)
        if member_id in self.members.pending and request.instance_id is None:
            return self._add(member_id, request, answer, now_ms)
        return self._rejoin(request, answer, now_ms)

    def sync(self, request: SyncRequest, answer: SyncAnswer, now_ms: int) -> Effects:
        """Take the leader's assignment, or a follower's request for its part of it."""
        refusal = self._sync_refusal(request)
        if refusal is not Code.NONE:
            return [answer(SyncResult(code=refusal))]
        member = self.members.by_id[request.member_id]
        effects = self._mark_synced(member)
        if self.state is STABLE:
            return [
                *effects,
                answer(self._synced(member)),
                self._expect_heartbeat(member, now_ms),
            ]
        assert self.state is COMPLETING, "only an assignment that is to come is waited for (I4)"
        effects += answer_sync(member, SyncResult(code=Code.REBALANCE_IN_PROGRESS))
        member.sync_answer, member.sync_generation = answer, self.generation
        # A leader that sends its assignment again while it is being written changes nothing.
        if (
            member.member_id != self.members.leader
            or self._generation_in_writing == self.generation
        ):
            return effects
        generation = self._generation_in_writing = self.generation
        if len(self.members.by_id) >= _MANY_MEMBERS:
            members = self.members.assign_all(request.assignments)
            is_wanted = partial(self._is_completing, generation)
            written = partial(self._on_assigned, generation, {})
            return effects + self._persist_in_slices(self, members, is_wanted, written, now_ms)
        parts = {m: request.assignments.get(m, b"") for m in self.members.by_id}
        return effects + self._persist(
            self, parts, lambda code, now: self._on_assigned(generation, parts, code, now), now_ms
        )

    def heartbeat(
        self, member_id: str, *, instance_id: str | None, generation_id: int, now_ms: int
    ) -> tuple[Code, Effects]:
        """Return the response to a heartbeat, and restart the member's session."""
        if self.state is DEAD:
            return Code.COORDINATOR_NOT_AVAILABLE, []
        refusal = self.members.check_identity(member_id, instance_id)
        if refusal is Code.NONE and generation_id != self.generation:
            refusal = Code.ILLEGAL_GENERATION
        if refusal is not Code.NONE:
            return refusal, []
        answer = HEARTBEAT_ANSWER[self.state]
        if answer is Code.UNKNOWN_MEMBER_ID:
            return answer, []
        return answer, [self._expect_heartbeat(self.members.by_id[member_id], now_ms)]

    def leave(
        self, leavers: Sequence[MemberIdentity], now_ms: int
    ) -> tuple[list[LeaveResult], Effects]:
        """Remove members. One rebalance follows for all of them."""
        left: list[LeaveResult] = []
        effects: Effects = []
        before = len(self.members.by_id)
        for who in leavers:
            member_id = who.member_id
            if member_id == UNKNOWN_MEMBER and who.instance_id is not None:
                # Instance id only: an administrator removes a static member (KIP-345).
                member_id = self.members.instances.get(who.instance_id, UNKNOWN_MEMBER)
            code = Code.NONE
            if self.state is DEAD:
                code = Code.COORDINATOR_NOT_AVAILABLE
            elif member_id not in self.members.pending:
                code = self.members.check_identity(member_id, who.instance_id)
            left.append(LeaveResult(who, code))
            if code is Code.NONE:
                self._cause = ("member left", self.members.by_id.get(member_id))
                effects += self._remove(member_id, Code.UNKNOWN_MEMBER_ID)
        return left, effects + self._after_removal(before, now_ms)

    def commit_refusal(
        self, member_id: str, *, instance_id: str | None, generation_id: int
    ) -> Code:
        """Return why these commits are refused, or NONE. Generation -1: a simple consumer (C15)."""
        if self.state is DEAD:
            return Code.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and self.state is EMPTY:
            return Code.NONE
        if generation_id < 0 and not member_id and instance_id is None:
            return Code.UNKNOWN_MEMBER_ID  # only members may commit while there are members
        refusal = self.members.check_identity(member_id, instance_id)
        if refusal is Code.NONE and generation_id != self.generation:
            refusal = Code.ILLEGAL_GENERATION
        return COMMIT_ANSWER[self.state] if refusal is Code.NONE else refusal

    def touch(self, member_id: str, now_ms: int) -> Effects:
        """Restart the member's session: a commit counts as a heartbeat."""
        member = self.members.by_id.get(member_id)
        if member is None or self.state not in (STABLE, PREPARING):
            return []
        return [self._expect_heartbeat(member, now_ms)]

    def describe(self) -> DescribedGroup:
        """Return the group for DescribeGroups; with subscriptions and assignments only when Stable."""
        kind, name, state = self.protocol_type, self.protocol_name, self.state
        is_stable = state is STABLE
        return self.members.describe(self.group_id, state.value, kind, name, is_stable=is_stable)

    @property
    def is_deserted(self) -> bool:
        """No member is in the group, and none is pending."""
        return self.state is EMPTY and not self.members.pending

    @property
    def is_simple(self) -> bool:
        """The group exists only for its offsets: no member ever joined."""
        return self.is_deserted and self.protocol_type is None

    # ------------------------------------------------------------------------ begin and end of life

    def restore(
        self,
        *,
        generation: int,
        protocol_type: str | None,
        protocol_name: str | None,
        leader: str | None,
        state_since_ms: int,
        members: list[Member],
    ) -> Generator[None, None, None]:
        """Restore the state of a record: Stable with those members, or Empty; yields after some members."""
        self.generation = generation
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.state_since_ms = state_since_ms
        yield from self.members.fill(members, leader)
        self.state = STABLE if members else EMPTY

    def begin_sessions(self, members: Sequence[Member], now_ms: int) -> Effects:
        """Start the sessions of loaded members."""
        return [self._expect_heartbeat(member, now_ms) for member in members]

    def shrink(self, now_ms: int) -> Effects:
        """Begin a rebalance if a loaded group is larger than group.max.size."""
        too_large = len(self.members.by_id) > self._policy.max_size
        self._cause = ("the group is larger than group.max.size", None)
        return self._rebalance(now_ms) if too_large else []

    def close(self, now_ms: int) -> Effects:
        """End the group. The caller then dismisses the members that are left."""
        self._enter(Cause.REMOVED, now_ms)
        return [CancelTimer(key=self._key("join")), CancelTimer(key=self._key("sync"))]

    def dismiss(self, member_ids: Sequence[str], code: Code) -> Effects:
        """Answer waiting requests of these members with `code`, after `close`; no timer fires any more."""
        effects: Effects = []
        for member_id in member_ids:
            effects += self._remove(member_id, code)
        return effects

    # ------------------------------------------------------------------------------ kinds of join

    def _can_work_with(self, request: JoinRequest) -> bool:
        if self.state is EMPTY:
            return bool(request.protocol_type and request.protocols)
        same_type = request.protocol_type == self.protocol_type
        return same_type and self.members.shares_a_protocol(request.protocols)

    def _join_newcomer(self, request: JoinRequest, answer: JoinAnswer, now_ms: int) -> Effects:
        stem = request.client_id if request.instance_id is None else request.instance_id
        member_id = new_member_id(stem, self._new_id())
        if request.instance_id is not None:
            if request.instance_id in self.members.instances:
                return self._replace_static(member_id, request, answer, now_ms)
            return self._add(member_id, request, answer, now_ms)
        if not request.needs_known_member_id:
            return self._add(member_id, request, answer, now_ms)
        # KIP-394: the client has to come back with this id, so a lost response leaves no member behind.
        ends = partial(self._on_session_end, member_id)
        size_bytes = _PENDING_BYTES + len(member_id) + len(self.group_id)
        host = request.client_host
        self.members.add_pending(member_id, host=host, size_bytes=size_bytes, ends=ends)
        at_ms = now_ms + request.session_timeout_ms
        return [
            SetTimer(key=self._key("member", member_id), at_ms=at_ms, then=ends),
            answer(JoinResult(code=Code.MEMBER_ID_REQUIRED, member_id=member_id)),
        ]

    def _add(
        self, member_id: str, request: JoinRequest, answer: JoinAnswer, now_ms: int
    ) -> Effects:
        member = member_of(member_id, request)
        member.is_new = True
        if not self.members.by_id:
            self.protocol_type = request.protocol_type
        if self.state is PREPARING and self._is_first_rebalance:
            self._came_in_delay = True
        self.members.add(member)
        self.members.await_join(member, answer)
        self._cause = ("member joined", member)
        # A member cannot heartbeat before it knows its id, and we do not see its connection close.
        session = self._expect_heartbeat(member, now_ms, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return [session, *self._rebalance_or_settle(member, now_ms)]

    def _rejoin(self, request: JoinRequest, answer: JoinAnswer, now_ms: int) -> Effects:
        member_id = request.member_id
        refusal = self.members.check_identity(member_id, request.instance_id)
        if refusal is Code.NONE and self.state is EMPTY:
            refusal = Code.UNKNOWN_MEMBER_ID
        if refusal is not Code.NONE:
            return [answer(JoinResult(code=refusal, member_id=member_id))]
        member = self.members.by_id[member_id]
        is_leader = member_id == self.members.leader
        if member.protocols == request.protocols and (
            self.state is COMPLETING or (self.state is STABLE and not is_leader)
        ):
            # The response was lost, or nothing changed: answer with the running generation again.
            # A leader that joins a stable group wants a rebalance, whatever its subscription.
            return [answer(self._joined(member))]
        is_same = member.protocols == request.protocols
        self._cause = ("member joined again" if is_same else "subscription changed", member)
        effects = self._update(member, request, answer)
        return effects + self._rebalance_or_settle(member, now_ms)

    def _update(self, member: Member, request: JoinRequest, answer: JoinAnswer) -> Effects:
        # A member has one waiting join. The older request gets an error, so that its client tries again.
        effects = self.members.answer_join(member, JoinResult(code=Code.REBALANCE_IN_PROGRESS))
        self.members.subscribe(member, request.protocols, request.rebalance_timeout_ms)
        member.session_timeout_ms = request.session_timeout_ms
        self.members.await_join(member, answer)
        return effects

    def _replace_static(
        self, member_id: str, request: JoinRequest, answer: JoinAnswer, now_ms: int
    ) -> Effects:
        """A static member came back without its id: it gets a new one, and the old one is fenced."""
        assert request.instance_id is not None
        old_id = self.members.instances[request.instance_id]
        old, old_leader = self.members.by_id[old_id], self.members.leader
        effects = self._fence(old)
        new = member_of(member_id, request)
        new.assignment = old.assignment
        self.members.replace(old_id, new)
        self.members.await_join(new, answer)
        if old_id in self.unsynced:
            self.unsynced[member_id] = self.unsynced.pop(old_id)
        effects.append(self._expect_heartbeat(new, now_ms))
        if self.state is STABLE and self.protocol_name == self.members.choose_protocol():
            skips = request.may_skip_assignment
            leader = self.members.leader if skips else old_leader
            return effects + self._write_replaced(new, leader, skips, now_ms)
        # The leader may have assigned partitions to the old id already, so only a new generation is safe.
        self._cause = ("static member came back", new)
        return effects + self._rebalance_or_settle(new, now_ms)

    def _write_replaced(
        self, new: Member, shown_leader: str | None, skips: bool, now_ms: int
    ) -> Effects:
        """Write the running generation with a new member in the place of the one it replaces."""
        is_wanted = partial(self._is_being_replaced, new, self.generation)
        written = partial(self._on_replaced, is_wanted, new, shown_leader, skips)
        members = list(self.members.by_id.values())
        if len(members) >= _MANY_MEMBERS:
            return self._persist_in_slices(self, iter(members), is_wanted, written, now_ms)
        parts = {member.member_id: member.assignment for member in members}
        return self._persist(self, parts, written, now_ms)

    def _is_being_replaced(self, new: Member, generation: int) -> bool:
        """Whether it still counts: no rebalance has begun, and no other member took the place."""
        is_same = self.state is STABLE and self.generation == generation
        return is_same and new.join_answer is not None

    def _on_replaced(
        self,
        is_wanted: Callable[[], bool],
        member: Member,
        shown_leader: str | None,
        skips: bool,
        code: Code,
        now_ms: int,
    ) -> Effects:
        if not is_wanted():
            return []
        session = self._expect_heartbeat(member, now_ms)
        if code is not Code.NONE:
            return [session, *self.members.answer_join(member, JoinResult(code=code))]
        result = self._joined(member, shown_leader, skips=skips)
        return [session, *self.members.answer_join(member, result)]

    def _fence(self, old: Member) -> Effects:
        """Remove the old incarnation of a static member, and fence its waiting requests."""
        code = Code.FENCED_INSTANCE_ID
        return [
            CancelTimer(key=self._key("member", old.member_id)),
            *self.members.answer_join(old, JoinResult(code=code, member_id=old.member_id)),
            *answer_sync(old, SyncResult(code=code)),
        ]

    # ------------------------------------------------------------------------------- rebalancing

    def _rebalance_or_settle(self, member: Member, now_ms: int) -> Effects:
        """Begin a rebalance because `member` joined, or go on with the one that it joined."""
        begin_or_end = (
            self._rebalance if may_rebalance(self.state) else self._end_join_phase_if_all_joined
        )
        effects = begin_or_end(now_ms)
        is_joining = self.state in (PREPARING, COMPLETING)  # the latter sends it in slices, if many
        assert member.join_answer is None or is_joining, "a join waits only while joining (I3)"
        return effects

    def _rebalance(self, now_ms: int) -> Effects:
        """Begin a join phase: members that wait for an assignment must join again."""
        effects: Effects = [CancelTimer(key=self._key("sync"))]
        if self.state is COMPLETING:
            effects += self._answer_all_syncs(Code.REBALANCE_IN_PROGRESS, now_ms)
        self._is_first_rebalance = self.state is EMPTY
        self._enter(Cause.MEMBERS_CHANGED, now_ms)
        self._began_ms = now_ms
        cause, self._cause = self._cause, NO_CAUSE
        effects.append(rebalance_began(self.group_id, self.generation, self.members.count, cause))
        if self._is_first_rebalance:
            # KIP-134: the first join of a new group waits a little for other members.
            delay = self._policy.initial_rebalance_delay_ms
            left = max(self.members.rebalance_timeout_ms - delay, 0)
            return [*effects, self._delay_first_join(delay, left, now_ms)]
        if self.members.all_joined:
            return effects + self._end_join_phase(now_ms)
        return [*effects, self._await_joins(now_ms)]

    def _delay_first_join(self, delay_ms: int, left_ms: int, now_ms: int) -> SetTimer:
        self._came_in_delay = False
        return SetTimer(
            key=self._key("join"),
            at_ms=now_ms + delay_ms,
            then=lambda now: self._on_first_delay_end(delay_ms, left_ms, now),
        )

    def _on_first_delay_end(self, delay_ms: int, left_ms: int, now_ms: int) -> Effects:
        if self.state is not PREPARING:
            return []
        if self._came_in_delay:
            longer = min(self._policy.initial_rebalance_delay_ms, left_ms)
            return [self._delay_first_join(longer, max(left_ms - delay_ms, 0), now_ms)]
        return self._end_join_phase(now_ms)

    def _await_joins(self, now_ms: int, at_least_ms: int = 0) -> SetTimer:
        return SetTimer(
            key=self._key("join"),
            at_ms=now_ms + max(self.members.rebalance_timeout_ms, at_least_ms),
            then=partial(self._end_join_phase_of, self.generation),
        )

    def _end_join_phase_if_all_joined(self, now_ms: int) -> Effects:
        # The first rebalance of a group always takes the whole delay.
        if self.state is PREPARING and not self._is_first_rebalance and self.members.all_joined:
            return self._end_join_phase(now_ms)
        return []

    def _end_join_phase(self, now_ms: int) -> Effects:
        """Remove members that did not join, begin the next generation, and answer all joins."""
        effects: Effects = [CancelTimer(key=self._key("join"))]
        absent = self.members.absent()
        if absent:
            then = partial(self._end_join_phase_of, self.generation)
            return effects + self._drop_absent(absent, then, now_ms)
        if self.members.by_id and not self.members.elect_leader_that_joined():
            # Only static members are left and none has joined: their sessions decide.
            return [*effects, self._await_joins(now_ms, _LOOK_AGAIN_MS)]
        self.generation = self.generation % INT32_MAX + 1
        self.unsynced = dict.fromkeys(self.members.by_id)
        if not self.members.by_id:
            self.protocol_name = None
            self._enter(Cause.DESERTED, now_ms)
            effects.append(GROUP_EMPTY(group=self.group_id, generation=self.generation))
            return effects + self._persist(self, {}, lambda code, now: [], now_ms)
        self.protocol_name = self.members.choose_protocol()
        self._enter(Cause.ALL_JOINED, now_ms)
        self._changes_before = self.members.changes
        members = list(self.members.by_id.values())
        effects += for_each(members, self._answer_join_of, self._later, now_ms)
        generation = self.generation
        effects.append(
            SetTimer(
                key=self._key("sync"),
                at_ms=now_ms + self.members.rebalance_timeout_ms,
                then=lambda now: self._on_sync_timeout(generation, now),
            )
        )
        return effects

    def _end_join_phase_of(self, generation: int, now_ms: int) -> Effects:
        return self._end_join_phase(now_ms) if self._is_joining_after(generation) else []

    def _is_joining_after(self, generation: int) -> bool:
        """Whether the join phase that followed that generation is still on."""
        return self.state is PREPARING and self.generation == generation

    def _drop_absent(
        self, members: Sequence[Member], then: Callable[[int], Effects], now_ms: int
    ) -> Effects:
        """Remove members that have not joined. In a large group each is checked when its slice comes."""
        generation = self.generation

        def drop(member: Member, _: int) -> Effects:
            if member.join_answer is not None or not self._is_joining_after(generation):
                return []
            return self._remove(member.member_id, Code.UNKNOWN_MEMBER_ID)

        return for_each(members, drop, self._later, now_ms, then)

    def _answer_join_of(self, member: Member, now_ms: int) -> Effects:
        """Answer a member's join with the current generation, and start its session.

        If another rebalance has begun, the join counts for that one and keeps waiting.
        """
        is_in = self.members.by_id.get(member.member_id) is member
        if not is_in or self.state not in (COMPLETING, STABLE):
            return []
        member.is_new = False
        session = self._expect_heartbeat(member, now_ms)
        if member.join_answer is None:
            return [session]
        return [*self.members.answer_join(member, self._joined(member)), session]

    # -------------------------------------------------------------------------------- assignment

    def _sync_refusal(self, request: SyncRequest) -> Code:
        if self.state is DEAD:
            return Code.COORDINATOR_NOT_AVAILABLE
        refusal = self.members.check_identity(request.member_id, request.instance_id)
        if refusal is not Code.NONE:
            return refusal
        if request.generation_id != self.generation:
            return Code.ILLEGAL_GENERATION
        if request.names_another(self.protocol_type, self.protocol_name):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        return SYNC_ANSWER[self.state]

    def _mark_synced(self, member: Member) -> Effects:
        self.unsynced.pop(member.member_id, None)
        return [] if self.unsynced else [CancelTimer(key=self._key("sync"))]

    def _is_completing(self, generation: int) -> bool:
        return self.state is COMPLETING and self.generation == generation

    def _on_assigned(
        self, generation: int, parts: Mapping[str, bytes], code: Code, now_ms: int
    ) -> Effects:
        """The assignment is committed, or has failed."""
        if self._generation_in_writing == generation:
            self._generation_in_writing = -1
        if not self._is_completing(generation):
            return []  # another rebalance has begun, and the syncs are answered
        if code is not Code.NONE:
            self._cause = ("the assignment was not written", None)
            return [*self._answer_all_syncs(code, now_ms), *self._rebalance(now_ms)]
        assert self.members.changes == self._changes_before, "members and leader stayed (I5)"
        for member_id, part in parts.items():
            self.members.assign(self.members.by_id[member_id], part)
        self._enter(Cause.ASSIGNED, now_ms)
        took_ms, size, name = now_ms - self._began_ms, self.members.count, self.protocol_name
        ended = rebalance_ended(self.group_id, self.generation, size, name, took_ms)
        return [ended, *self._answer_all_syncs(Code.NONE, now_ms)]

    def _answer_all_syncs(self, code: Code, now_ms: int) -> Effects:
        notify = partial(self._answer_sync_of, self.generation, code)
        return for_each(list(self.members.by_id.values()), notify, self._later, now_ms)

    def _answer_sync_of(self, generation: int, code: Code, member: Member, now_ms: int) -> Effects:
        """Answer a member's waiting sync of that generation, and start its session."""
        if member.sync_answer is None or member.sync_generation != generation:
            return []
        if self.generation != generation:
            code = Code.REBALANCE_IN_PROGRESS
        result = self._synced(member) if code is Code.NONE else SyncResult(code=code)
        return [*answer_sync(member, result), self._expect_heartbeat(member, now_ms)]

    def _on_sync_timeout(self, generation: int, now_ms: int) -> Effects:
        """Remove members that joined and did not sync."""
        is_over = generation != self.generation or not self.unsynced
        if is_over or self.state not in (COMPLETING, STABLE):
            return []
        absent = [self.members.by_id[member_id] for member_id in self.unsynced]
        self._cause = ("member did not sync", absent[0])
        # Before anything else: members do not change in CompletingRebalance (I5).
        effects = self._rebalance(now_ms)
        then = partial(self._await_joins_of, generation)
        return effects + self._drop_absent(absent, then, now_ms)

    def _await_joins_of(self, generation: int, now_ms: int) -> Effects:
        """Wait for the members that are left."""
        if not self._is_joining_after(generation):
            return []
        return self._end_join_phase_if_all_joined(now_ms) or [self._await_joins(now_ms)]

    # ------------------------------------------------------------------------ sessions and removal

    def _expect_heartbeat(
        self, member: Member, now_ms: int, timeout_ms: int | None = None
    ) -> SetTimer:
        member_id = member.member_id
        return SetTimer(
            key=self._key("member", member_id),
            at_ms=now_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms),
            then=lambda now: self._on_session_end(member_id, now),
        )

    def _on_session_end(self, member_id: str, now_ms: int) -> Effects:
        member = self.members.by_id.get(member_id)
        # A member that waits for our response cannot heartbeat. A new one is removed all the same.
        if member is not None and member.is_waiting and not member.is_new:
            return []
        if member is None and member_id not in self.members.pending:
            return []
        before = len(self.members.by_id)
        self._cause = ("session expired", member)
        effects = self._remove(member_id, Code.UNKNOWN_MEMBER_ID)
        return effects + self._after_removal(before, now_ms)

    def _after_removal(self, members_before: int, now_ms: int) -> Effects:
        if self.state in (STABLE, COMPLETING) and len(self.members.by_id) < members_before:
            return self._rebalance(now_ms)
        if self.is_simple:
            return self._on_unused(self, now_ms)
        return self._end_join_phase_if_all_joined(now_ms)

    def _remove(self, member_id: str, code: Code) -> Effects:
        """Remove a member or a pending id; its waiting requests are answered with `code`."""
        effects: Effects = [CancelTimer(key=self._key("member", member_id))]
        self.unsynced.pop(member_id, None)
        member = self.members.by_id.get(member_id)
        # A thousand members may go at once, and most have no waiting request: make no response for nobody.
        if member is not None and member.join_answer is not None:
            effects += self.members.answer_join(member, JoinResult(code=code))
        if member is not None and member.sync_answer is not None:
            effects += answer_sync(member, SyncResult(code=code))
        self.members.remove(member_id)
        return effects

    # ----------------------------------------------------------------------------------- answers

    def _joined(
        self, member: Member, shown_leader: str | None = None, *, skips: bool | None = None
    ) -> JoinResult:
        """`skips`: of a static member that came back, whether it does without an assignment."""
        is_leader = member.member_id == self.members.leader
        sees_all = is_leader and skips is not False
        return JoinResult(
            code=Code.NONE,
            member_id=member.member_id,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=shown_leader or self.members.leader or UNKNOWN_MEMBER,
            skip_assignment=is_leader and skips is True,
            members=self.members.seen_by_leader(self.protocol_name) if sees_all else (),
        )

    def _synced(self, member: Member) -> SyncResult:
        assert self.state is not COMPLETING, "its assignment is not written yet (I6)"
        return SyncResult(
            code=Code.NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    # ------------------------------------------------------------------------------------ internal

    def _key(self, what: str, member_id: str = "") -> tuple[str, str, str, str]:
        return ("group", self.group_id, what, member_id)

    def _enter(self, cause: Cause, now_ms: int) -> None:
        self.state = next_state(self.state, cause)
        self.state_since_ms = now_ms
