"""A member of a consumer group: it joins, gets its assignment, commits, and now and then leaves or dies. SIM.

It commits made-up positions: the records do not matter here. Each commit has a unique number in its metadata,
so that a reader knows which commit it is. Source: KIP-394, KIP-211; spec C15.
"""

import json
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

from firnline.base.effects import Effects, SetTimer, Unanswered
from firnline.base.errors import Code
from firnline.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from firnline.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
)
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from firnline.protocol.messages.k12_heartbeat import HeartbeatRequest
from firnline.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from firnline.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from firnline.sim.cluster.client import Client
from firnline.sim.options import Options
from firnline.sim.world import Chance

GROUP = "group"
SESSION_MS = 6_000
_REBALANCE_MS = 5_000
_TIMEOUT_MS = 10_000
_RETRY_MS = 300
_NO_GENERATION = -1
TopicAndPartition = tuple[str, int]  # topic and partition


class Phase(Enum):
    """What it does next."""

    FIND = "find"
    JOIN = "join"
    SYNC = "sync"
    FETCH = "fetch"
    MEMBER = "member"


class Member(Client):
    """`share`: what it owns in `generation`, and the position of each partition.

    is_on   whether it commits and leaves; otherwise it only stays
    """

    def __init__(self, number: int, options: Options, chance: Chance) -> None:
        super().__init__(options, chance)
        self.number = number
        self.is_on = True
        self.phase = Phase.FIND
        self.generation = _NO_GENERATION
        self.share: dict[TopicAndPartition, int] = {}
        self._names = [topic.name for topic in self.shape.topics]
        self._coordinator = -1
        self._member_id = ""
        self._assignments: list[SyncGroupRequestAssignment] = []
        self._has_share = False
        self._shared: list[TopicAndPartition] | None = (
            None  # what it assigned, if it leads the group
        )
        self._former: tuple[str, int, list[TopicAndPartition]] | None = (
            None  # as who it may still believe to commit
        )
        self._commits = 0
        self._version_max = chance.pick((9, 9, 7, 5))

    def start(self, now_ms: int) -> Effects:
        return [*super().start(now_ms), self._soon(now_ms)]

    @property
    def is_settled(self) -> bool:
        return self.phase is Phase.MEMBER

    def spots(self) -> list[TopicAndPartition]:
        """All partitions that the group reads."""
        found = [(each.topic, each.partition) for each in self.places.values()]
        return sorted(spot for spot in found if spot[0] in self._names)

    # ---- the protocol, step by step

    def _soon(self, now_ms: int, delay_ms: int = _RETRY_MS) -> SetTimer:
        at_ms = now_ms + delay_ms + self.chance.below(delay_ms)
        return SetTimer(key="member", at_ms=at_ms, then=self._go)

    def _go(self, now_ms: int) -> Effects:
        begin: dict[Phase, Callable[[int], Effects]] = {
            Phase.FIND: self._find,
            Phase.JOIN: self._join,
            Phase.SYNC: self._sync,
            Phase.FETCH: self._fetch,
            Phase.MEMBER: self._act,
        }
        return begin[self.phase](now_ms)

    def _ask(self, request: Any, then: Any) -> Effects:
        """Send a request to the coordinator; if that is none, look for it again."""

        def on_response(answer: Any, now_ms: int) -> Effects:
            code = _code(answer)
            if code in _ELSEWHERE:
                self.phase = Phase.FIND
            elif code in _OUT:
                self._is_out(code)
            elif code != Code.COORDINATOR_LOAD_IN_PROGRESS:
                effects: Effects = then(answer, code, now_ms)
                return effects
            return [self._soon(now_ms)]

        version = min(self._version_max, type(request).valid.last)
        where = self._coordinator
        return [
            self.ask(
                where,
                request,
                on_response,
                channel="group",
                timeout_ms=_TIMEOUT_MS,
                version_max=version,
            )
        ]

    def _is_out(self, code: int) -> None:
        """It is no member of that generation any more."""
        if self.generation != _NO_GENERATION and self.share:
            self._former = (self._member_id, self.generation, list(self.share))
        if code == Code.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        self.phase, self.generation, self.share = Phase.JOIN, _NO_GENERATION, {}

    def _find(self, now_ms: int) -> Effects:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        return [self.ask(self.any_broker(), request, self._found, channel="find")]

    def _found(self, answer: Any, now_ms: int) -> Effects:
        if isinstance(answer, Unanswered) or answer.coordinators[0].error_code:
            return [self._soon(now_ms)]
        self._coordinator = answer.coordinators[0].node_id
        # A member stays one under the next coordinator, and asks what that one knows.
        if self.generation == _NO_GENERATION:
            self.phase = Phase.JOIN
        else:
            self.phase = Phase.FETCH if self._has_share else Phase.SYNC
        return self._go(now_ms)

    def _join(self, now_ms: int) -> Effects:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="turns", metadata=b"")],
        )
        return self._ask(request, self._joined)

    def _joined(self, answer: Any, code: int, now_ms: int) -> Effects:
        if code == Code.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            return self._join(now_ms)
        if code:
            return [self._soon(now_ms)]
        self._member_id, self.generation = answer.member_id, answer.generation_id
        self._assignments, self._shared, self._has_share = [], None, False
        if answer.leader == answer.member_id:
            self._shared = self.spots()
            ids = [member.member_id for member in answer.members]
            shares: dict[str, list[TopicAndPartition]] = {each: [] for each in ids}
            for turn, spot in enumerate(self._shared):
                shares[ids[turn % len(ids)]].append(spot)
            self._assignments = [
                SyncGroupRequestAssignment(member_id=each, assignment=json.dumps(share).encode())
                for each, share in shares.items()
            ]
        self.phase = Phase.SYNC
        return self._sync(now_ms)

    def _sync(self, now_ms: int) -> Effects:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name="turns",
            assignments=self._assignments,
        )
        return self._ask(request, self._synced)

    def _synced(self, answer: Any, code: int, now_ms: int) -> Effects:
        if code:
            self._is_out(code)
            return [self._soon(now_ms)]
        self.share, self._has_share = dict.fromkeys(spots_of(answer.assignment), 0), True
        self.phase = Phase.FETCH
        return self._fetch(now_ms)

    def _fetch(self, now_ms: int) -> Effects:
        """Continue where the last owner committed."""
        by_topic: dict[str, list[int]] = {}
        for topic, index in self.share:
            by_topic.setdefault(topic, []).append(index)
        topics = [
            OffsetFetchRequestGroupTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic.items()
        ]
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        return [
            self.ask(
                self._coordinator,
                request,
                self._fetched,
                channel="group",
                timeout_ms=_TIMEOUT_MS,
                version_max=9,
            )
        ]

    def _fetched(self, answer: Any, now_ms: int) -> Effects:
        if isinstance(answer, Unanswered) or answer.groups[0].error_code:
            self.phase = Phase.FIND
            return [self._soon(now_ms)]
        for topic in answer.groups[0].topics:
            for row in topic.partitions:
                self.share[(topic.name, row.partition_index)] = max(0, row.committed_offset)
        self.phase = Phase.MEMBER
        return [self._soon(now_ms)]

    # ---- a member

    def _act(self, now_ms: int) -> Effects:
        """Commit, or only send a heartbeat; seldom leave, or come back as a new member."""
        if self._shared is not None and self.spots() != self._shared:
            self._is_out(Code.REBALANCE_IN_PROGRESS)
            return self._join(now_ms)
        if not self.is_on or not self.share:
            return self._heartbeat(now_ms)
        what = self.chance.below(100)
        if what < 2:
            return self._leave(now_ms)
        if what < 4:
            # As after a crash: the coordinator waits for the session of the old member.
            self._is_out(Code.UNKNOWN_MEMBER_ID)
            return self._join(now_ms)
        if what < 10 and self._former is not None:
            member_id, generation, spots = self._former
            places = [(spot, 1_000_000) for spot in spots]
            return self._commit(member_id, generation, places, self._refused)
        if what < 30:
            return self._heartbeat(now_ms)
        for spot in self.share:
            self.share[spot] += self.chance.between(1, 9)
        places = list(self.share.items())
        return self._commit(self._member_id, self.generation, places, self._on_response)

    def _heartbeat(self, now_ms: int) -> Effects:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self._member_id
        )
        return self._ask(request, self._on_response)

    def _commit(
        self,
        member_id: str,
        generation: int,
        places: list[tuple[TopicAndPartition, int]],
        then: Any,
    ) -> Effects:
        self._commits += 1
        number = f"{self.number}/{self._commits}".ljust(self.shape.commit_bytes)
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, index), offset in places:
            row = OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_metadata=number,
            )
            by_topic.setdefault(topic, []).append(row)
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[
                OffsetCommitRequestTopic(name=topic, partitions=rows)
                for topic, rows in by_topic.items()
            ],
        )
        if then == self._on_response:
            return self._ask(request, then)
        return [self.ask(self._coordinator, request, then, channel="group", version_max=9)]

    def _refused(self, answer: Any, now_ms: int) -> Effects:
        """What it tried as its old member."""
        self._former = None
        return [self._soon(now_ms, self.shape.commit_gap_ms)]

    def _on_response(self, answer: Any, code: int, now_ms: int) -> Effects:
        if code == Code.REBALANCE_IN_PROGRESS:
            self._is_out(code)
        return [self._soon(now_ms, self.shape.commit_gap_ms)]

    def _leave(self, now_ms: int) -> Effects:
        request = LeaveGroupRequest(
            group_id=GROUP, members=[MemberIdentity(member_id=self._member_id)]
        )
        if self._version_max < LeaveGroupRequest.valid.last:
            request = LeaveGroupRequest(group_id=GROUP, member_id=self._member_id)
        self._is_out(Code.UNKNOWN_MEMBER_ID)
        then = partial(self._left)
        version = 5 if request.members else 2
        return [self.ask(self._coordinator, request, then, channel="group", version_max=version)]

    def _left(self, answer: Any, now_ms: int) -> Effects:
        return [self._soon(now_ms)]


def spots_of(assignment: bytes | None) -> list[TopicAndPartition]:
    """The partitions in an assignment."""
    return [(topic, index) for topic, index in json.loads(bytes(assignment or b"[]") or b"[]")]


def _code(answer: Any) -> int:
    """The error code of a response; of a commit, the first error."""
    if isinstance(answer, Unanswered):
        return Code.NETWORK_EXCEPTION
    code: int = getattr(answer, "error_code", 0)
    rows = [row for topic in getattr(answer, "topics", ()) for row in topic.partitions]
    return next((row.error_code for row in rows if row.error_code), code)


_ELSEWHERE = (Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE, Code.NETWORK_EXCEPTION)
_OUT = (Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION)
