"""The group coordinator of a node: finds the shard of a group and checks that it is loaded. PURE.

Requests of a group go to the shard of partition `partition_for(group)`. The error is
COORDINATOR_LOAD_IN_PROGRESS while this node loads the shard, NOT_COORDINATOR if it does not lead it.
Source: spec C15; KIP-848 'Group Coordinator'; rel-C5, rel-C6.
"""

from collections.abc import Callable, Collection, Container, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from firnline.base.background import Background, SlicedTask
from firnline.base.counting.aging import NOT_DOUBTED, Aging
from firnline.base.effects import Effect, Effects, SetTimer
from firnline.base.errors import Code, KafkaError, ProtocolError, StorageError
from firnline.base.event import event
from firnline.base.ids import ZERO_UUID, TopicPartition, Uuid
from firnline.base.ports import Buffer, Rng
from firnline.base.units import INT64_MAX
from firnline.config.broker import BrokerConfig
from firnline.coordinator.commits import NO_EXPIRY, CommittedOffset
from firnline.coordinator.group_state import GroupState
from firnline.coordinator.membership import (
    UNKNOWN_MEMBER,
    DescribedGroup,
    JoinAnswer,
    JoinRequest,
    JoinResult,
    LeaveResult,
    ListedGroup,
    MemberCounts,
    MemberIdentity,
    SyncAnswer,
    SyncRequest,
    SyncResult,
    size_of,
)
from firnline.coordinator.policy import GroupPolicy
from firnline.coordinator.shard import Shard
from firnline.coordinator.subscriptions import Subscribed, find_subscribed

GROUP_TYPE = "classic"
# A millisecond or less.
_LEAVERS_PER_SLICE = 100
_EXPIRY_TIMER = ("group", "expiry")


class NewCommit(NamedTuple):
    """One offset to commit. `metadata` may be null on the wire, which means the empty string."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: Uuid = ZERO_UUID


@event
class CommitRequest:
    """One OffsetCommit. `retention_ms` -1: the broker's setting. Generation -1: not a member."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation_id: int
    commits: Sequence[NewCommit]
    retention_ms: int = -1
    knows_group_id_not_found: bool = False  # from version 9 on
    client_host: str = ""


class FetchedOffset(NamedTuple):
    """One partition's result; `commit` None if nothing is committed."""

    partition: int
    commit: CommittedOffset | None
    code: Code


class FetchedOffsets(NamedTuple):
    """One group's result by topic: those asked for, in that order, or all."""

    code: Code
    topics: tuple[tuple[str, tuple[FetchedOffset, ...]], ...] = ()


Loaded = Callable[[StorageError | None, int], Effects]


class _Load:
    """A partition that is being loaded. Topics that are deleted meanwhile are forgotten afterwards."""

    __slots__ = ("deleted_topics", "shard", "work")

    def __init__(self, shard: Shard, work: SlicedTask) -> None:
        self.shard = shard
        self.work = work
        self.deleted_topics: set[str] = set()


def java_hash(text: str) -> int:
    """Return Java's String.hashCode: over UTF-16 units, as a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2]):
        value = value * 31 + (high << 8 | low) & 0xFFFFFFFF
    return value - (value >> 31 << 32)


def utf16_length(text: str) -> int:
    """Return Java's String.length."""
    return len(text.encode("utf-16-be", "surrogatepass")) // 2


class GroupCoordinator:
    """Groups and offsets of this node. Changes call `answer` with their result; reads return values.

    policy      the settings, as they were at the start
    _shards     the shards that are served, by partition; none of them is closed
    _loads      the shards that are being loaded. A partition is in one of the two at most
    _not_ready  the error for partitions that are not served: they load, or their load failed
    _made       groups that each client address created since the last expiry check, above 0. An address may
                create as many as there is room for, so that no other is locked out for long
    """

    def __init__(self, config: BrokerConfig, rng: Rng, aging: Aging = NOT_DOUBTED) -> None:
        self.policy = GroupPolicy.from_config(config)
        self._rng, self._aging = rng, aging
        self._member_counts = MemberCounts()
        self._shards: dict[int, Shard] = {}
        self._loads: dict[int, _Load] = {}
        self._not_ready: dict[int, Code] = {}
        self._background = Background("group")
        self._made: dict[str, int] = {}

    def partition_for(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that holds the group."""
        hashed = java_hash(group_id)
        # As in Kafka: the one number without an absolute value counts as 0.
        return (0 if hashed == -(2**31) else abs(hashed)) % self.policy.topic_num_partitions

    @property
    def group_count(self) -> int:
        """The number of groups on this node."""
        return sum(len(shard.groups) for shard in self._shards.values())

    @property
    def pending_members(self) -> int:
        """The number of pending members."""
        return self._member_counts.pending

    @property
    def evicted_members(self) -> int:
        """The number of pending members that were forgotten early to make room for others."""
        return self._member_counts.evicted

    @property
    def members_held_bytes(self) -> int:
        """Memory of all members, approximately."""
        return self._member_counts.held_bytes

    @property
    def refused_members(self) -> int:
        """The number of members' requests that were refused for lack of room."""
        return self._member_counts.refused

    @property
    def unreadable_records(self) -> int:
        """The number of records that were skipped because they cannot be read."""
        return sum(shard.unreadable.offset_count for shard in self._shards.values())

    # -------------------------------------------------------------------------------------- life

    def start(self, now_ms: int) -> Effects:
        """Start the periodic expiry of offsets and groups."""
        return [
            SetTimer(
                key=_EXPIRY_TIMER,
                at_ms=now_ms + self.policy.retention_check_interval_ms,
                then=self._on_expiry_due,
            )
        ]

    def load_partition(
        self, partition: int, batches: Iterable[Buffer], then: Loaded, now_ms: int
    ) -> Effects:
        """Load a partition that this node now leads, in slices, by replaying its batches in log order; then
        serve it.

        Until then the error is COORDINATOR_LOAD_IN_PROGRESS. `then` gets None once the partition is served,
        or the StorageError if this replica is damaged (a failed read, a wrong CRC): the error is then
        NOT_COORDINATOR, because another replica may serve it. Records with a right CRC that cannot be decoded
        are logged and skipped. `then` is not called if another load or `unload_partition` comes first.
        """
        effects = self.unload_partition(partition, now_ms)
        self._not_ready[partition] = Code.COORDINATOR_LOAD_IN_PROGRESS
        # Members do not wait for the load. Responses that were decided before come before their shard is
        # closed.
        later = partial(self._background.begin, is_urgent=True)
        shard = Shard(
            partition,
            policy=self.policy,
            member_counts=self._member_counts,
            rng=self._rng,
            aging=self._aging,
            later=later,
        )
        load = _Load(shard, self._load(partition, shard, batches, then))
        self._loads[partition] = load
        return effects + self._background.begin(load.work, now_ms)

    def _load(
        self, partition: int, shard: Shard, batches: Iterable[Buffer], then: Loaded
    ) -> Generator[Effects, int, None]:
        now_ms = yield []
        try:
            for _ in shard.load(batches):
                now_ms = yield []
        except (KafkaError, ProtocolError, StorageError) as problem:
            del self._loads[partition]
            self._not_ready[partition] = Code.NOT_COORDINATOR
            said = StorageError(
                "a partition of group records cannot be loaded",
                partition=shard.topic_partition,
                problem=problem,
            )
            yield then(said, now_ms) + self._close(shard, now_ms)
            return
        now_ms = yield from shard.start(now_ms)
        load = self._loads.pop(partition)
        assert load.shard is shard, "a partition has one load at a time"
        assert partition not in self._shards, "a shard is closed before the next one is served"
        del self._not_ready[partition]
        self._shards[partition] = shard
        warnings = shard.unreadable.take_warnings()
        yield warnings + then(None, now_ms) + self._forget(shard, load.deleted_topics, now_ms)

    def unload_partition(self, partition: int, now_ms: int) -> Effects:
        """Forget a partition that another node leads now; waiting requests are answered NOT_COORDINATOR."""
        self._not_ready.pop(partition, None)
        load = self._loads.pop(partition, None)
        if load is not None:
            self._background.cancel(load.work)
            return self._close(load.shard, now_ms)
        shard = self._shards.pop(partition, None)
        return [] if shard is None else self._close(shard, now_ms)

    def _close(self, shard: Shard, now_ms: int) -> Effects:
        served = self._shards.get(shard.topic_partition.partition)
        assert served is not shard, "a closed shard serves nobody"
        shard.is_closed = True
        # Before its next load: the timers of its groups have the same names.
        return self._background.begin(shard.close(Code.NOT_COORDINATOR), now_ms, is_urgent=True)

    def _on_expiry_due(self, now_ms: int) -> Effects:
        effects = self.start(now_ms)
        self._made.clear()
        for shard in self._shards.values():
            effects += self._background.begin(shard.expire(), now_ms)
        return effects

    def _shard_of(self, group_id: str) -> Shard | Code:
        partition = self.partition_for(group_id)
        shard = self._shards.get(partition)
        return shard or self._not_ready.get(partition, Code.NOT_COORDINATOR)

    # ----------------------------------------------------------------------------------- members

    def join(self, request: JoinRequest, answer: JoinAnswer, now_ms: int) -> Effects:
        """Take a member into its group. The response may wait for the whole group."""
        refusal = self._join_refusal(request)
        shard = self._shard_of(request.group_id)
        if refusal is Code.NONE and isinstance(shard, Code):
            refusal = shard
        if refusal is not Code.NONE or isinstance(shard, Code):
            return [answer(JoinResult(code=refusal, member_id=request.member_id))]
        group = shard.groups.get(request.group_id)
        member = None if group is None else group.members.by_id.get(request.member_id)
        more_bytes = size_of(request.protocols) - (0 if member is None else member.counted_bytes)
        if not self._has_room(request.client_host, more_bytes):
            code = Code.COORDINATOR_NOT_AVAILABLE
            refused = answer(JoinResult(code=code, member_id=request.member_id))
            return [refused, *self._member_counts.refuse(request.client_host, now_ms)]
        is_new = not shard.keeps(request.group_id)
        if is_new and not self._may_make_a_group(request.client_host):
            code = Code.COORDINATOR_NOT_AVAILABLE
            refused = answer(JoinResult(code=code, member_id=request.member_id))
            return [refused, *self._member_counts.refuse(request.client_host, now_ms)]
        effects = self._evict_pending_members(shard, request, now_ms)
        effects += self._join(shard, request, answer, now_ms)
        if is_new and shard.keeps(request.group_id):
            self._note_made(request.client_host, 1)
        return effects

    def _has_room(self, host: str, more_bytes: int) -> bool:
        return self._member_counts.has_room(host, more_bytes, self.policy.members_bytes_max)

    def _evict_pending_members(self, shard: Shard, request: JoinRequest, now_ms: int) -> Effects:
        """Forget the oldest pending members if there are too many, so that new ones are not locked out."""
        is_unknown = request.member_id == UNKNOWN_MEMBER and request.instance_id is None
        if not (is_unknown and request.needs_known_member_id):
            return []
        policy = self.policy
        group = shard.groups.get(request.group_id)
        effects: Effects = []
        if group is not None:
            effects += group.members.evict_pending(policy.pending_of_group_max, now_ms)
        count_max, bytes_max = policy.pending_members_max, policy.pending_bytes_max
        return effects + self._member_counts.make_room(count_max, bytes_max, now_ms)

    def _join(self, shard: Shard, request: JoinRequest, answer: JoinAnswer, now_ms: int) -> Effects:
        group = shard.groups.get(request.group_id)
        if group is not None:
            return group.join(request, answer, now_ms)
        if request.member_id != UNKNOWN_MEMBER:
            refused = JoinResult(code=Code.UNKNOWN_MEMBER_ID, member_id=request.member_id)
            return [answer(refused)]
        group = shard.group(request.group_id)
        effects = group.join(request, answer, now_ms)
        if group.is_simple:  # it was refused: nothing was begun
            del shard.groups[request.group_id]
            return effects
        return effects + shard.write_group(group, now_ms)

    def _join_refusal(self, request: JoinRequest) -> Code:
        policy = self.policy
        if not request.group_id:
            return Code.INVALID_GROUP_ID
        low, high = policy.min_session_timeout_ms, policy.max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            return Code.INVALID_SESSION_TIMEOUT
        if len(request.protocols) > policy.protocols_max:
            return Code.INCONSISTENT_GROUP_PROTOCOL
        return Code.NONE

    def sync(self, request: SyncRequest, answer: SyncAnswer, now_ms: int) -> Effects:
        """Take the leader's assignment, or hand one out."""
        shard = self._shard_of(request.group_id)
        if not request.group_id:
            shard = Code.INVALID_GROUP_ID
        if isinstance(shard, Code):
            return [answer(SyncResult(code=shard))]
        group = shard.groups.get(request.group_id)
        if group is None:
            return [answer(SyncResult(code=Code.UNKNOWN_MEMBER_ID))]
        member = group.members.by_id.get(request.member_id)
        if member is not None and request.assignments:
            # The old assignments still count, so an address at its limit may go on with what it has.
            more_bytes = request.assigned_bytes - group.members.assigned_bytes
            if not self._has_room(member.client_host, more_bytes):
                refused = answer(SyncResult(code=Code.COORDINATOR_NOT_AVAILABLE))
                return [refused, *self._member_counts.refuse(member.client_host, now_ms)]
        return group.sync(request, answer, now_ms)

    def heartbeat(
        self,
        group_id: str,
        member_id: str,
        *,
        instance_id: str | None,
        generation_id: int,
        answer: Callable[[Code], Effect],
        now_ms: int,
    ) -> Effects:
        """Keep a member's session alive, and say whether it must join again."""
        shard = self._shard_of(group_id)
        if not group_id:
            return [answer(Code.INVALID_GROUP_ID)]
        if isinstance(shard, Code):
            # Sessions do not run during a load, so the heartbeat succeeds, as in Kafka.
            loading = shard is Code.COORDINATOR_LOAD_IN_PROGRESS
            return [answer(Code.NONE if loading else shard)]
        group = shard.groups.get(group_id)
        if group is None:
            return [answer(Code.UNKNOWN_MEMBER_ID)]
        code, effects = group.heartbeat(
            member_id, instance_id=instance_id, generation_id=generation_id, now_ms=now_ms
        )
        return [*effects, answer(code)]

    def leave(
        self,
        group_id: str,
        leavers: Iterable[MemberIdentity],
        on_left: Callable[[list[LeaveResult]], None],
        answer: Callable[[Code], Effect],
        now_ms: int,
    ) -> Generator[Effects, int, Effects]:
        """Remove members in slices of a hundred. `on_left` gets each result, `answer` the request's code.

        The first slice begins a rebalance, which waits for the members of later slices: one rebalance for
        all. If this node stops being the coordinator meanwhile, all get that error: the next coordinator
        still knows them.
        """
        who_is_left = iter(leavers)
        portion = list(islice(who_is_left, _LEAVERS_PER_SLICE))
        while True:
            shard = self._shard_of(group_id) if group_id else Code.INVALID_GROUP_ID
            if isinstance(shard, Code):
                return [answer(shard)]
            group = shard.groups.get(group_id)
            effects: Effects = []
            if group is None:
                on_left([LeaveResult(who, Code.UNKNOWN_MEMBER_ID) for who in portion])
            else:
                results, effects = group.leave(portion, now_ms)
                on_left(results)
            portion = list(islice(who_is_left, _LEAVERS_PER_SLICE))
            if not portion:
                return [answer(Code.NONE), *effects]
            now_ms = yield effects

    # ----------------------------------------------------------------------------------- offsets

    def commit(
        self, request: CommitRequest, answer: Callable[[list[Code]], Effects], now_ms: int
    ) -> Effects:
        """Commit offsets. `answer` gets one code per commit, in order, once all are committed."""
        count = len(request.commits)
        shard = self._shard_of(request.group_id)
        refusal = shard if isinstance(shard, Code) else self._commit_refusal(shard, request)
        if refusal is not Code.NONE or isinstance(shard, Code):
            return answer([refusal] * count)
        host, group = request.client_host, shard.groups.get(request.group_id)
        effects = [] if group is None else group.touch(request.member_id, now_ms)
        codes, commits = self._check_commits(request, now_ms)
        if not commits:
            return effects + answer(codes)
        is_new = not shard.keeps(request.group_id)
        if is_new:
            if not self._may_make_a_group(host):
                warnings = self._member_counts.refuse(host, now_ms)
                return answer([Code.COORDINATOR_NOT_AVAILABLE] * count) + warnings
            self._note_made(host, 1)

        def done(code: Code) -> Effects:
            if is_new and code is not Code.NONE:
                self._note_made(host, -1)
            return answer([code if c is Code.NONE else c for c in codes])

        return effects + shard.commit(request.group_id, commits, done, now_ms)

    def _may_make_a_group(self, host: str) -> bool:
        """Whether a client address may create one more group. In one period it may create as many as are
        left.

        Groups with commits stay for offsets.retention.minutes, those without until the next check, and no
        group may be removed earlier to make room.
        """
        return self._made.get(host, 0) < self.policy.groups_max - self.group_count

    def _note_made(self, host: str, more: int) -> None:
        made = self._made.pop(host, 0) + more
        if made > 0:  # the last check may already have counted a group whose creation failed
            self._made[host] = made

    def _commit_refusal(self, shard: Shard, request: CommitRequest) -> Code:
        group = shard.groups.get(request.group_id)
        if group is not None:
            return group.commit_refusal(
                request.member_id,
                instance_id=request.instance_id,
                generation_id=request.generation_id,
            )
        if request.generation_id < 0:
            return Code.NONE  # a simple consumer creates its group by committing
        if request.knows_group_id_not_found:
            return Code.GROUP_ID_NOT_FOUND
        return Code.ILLEGAL_GENERATION

    def _check_commits(
        self, request: CommitRequest, now_ms: int
    ) -> tuple[list[Code], dict[TopicPartition, CommittedOffset]]:
        codes: list[Code] = []
        commits: dict[TopicPartition, CommittedOffset] = {}
        expires = NO_EXPIRY
        # Up to 2^63 - 1, which overflows in Kafka 4.3.1, so that the commit expires at once
        if request.retention_ms >= 0:
            expires = min(now_ms + request.retention_ms, INT64_MAX)
        for c in request.commits:
            if utf16_length(c.metadata) > self.policy.metadata_max_chars:
                codes.append(Code.OFFSET_METADATA_TOO_LARGE)
                continue
            codes.append(Code.NONE)
            commits[TopicPartition(c.topic, c.partition)] = CommittedOffset(
                c.offset, c.leader_epoch, c.metadata, now_ms, expires, c.topic_id
            )
        return codes, commits

    def fetch(
        self,
        group_id: str,
        wanted: Sequence[tuple[str, Sequence[int]]] | None,
        *,
        require_stable: bool,
    ) -> FetchedOffsets:
        """Return committed offsets of the given partitions; None for all of the group."""
        shard = self._shard_of(group_id)
        if isinstance(shard, Code):
            return FetchedOffsets(shard)
        if wanted is None:
            wanted = self.committed(group_id)
        topics = []
        for topic, partitions in wanted:
            rows = []
            for partition in partitions:
                tp = TopicPartition(topic, partition)
                if require_stable and shard.offsets.is_unstable(group_id, tp):
                    rows.append(FetchedOffset(partition, None, Code.UNSTABLE_OFFSET_COMMIT))
                else:
                    known = shard.offsets.get(group_id, tp)
                    rows.append(FetchedOffset(partition, known, Code.NONE))
            topics.append((topic, tuple(rows)))
        return FetchedOffsets(Code.NONE, tuple(topics))

    def committed(self, group_id: str) -> list[tuple[str, list[int]]]:
        """Return the partitions, by topic, for which a group has committed offsets."""
        shard = self._shard_of(group_id)
        by_topic: dict[str, list[int]] = {}
        if not isinstance(shard, Code):
            for topic, partition in sorted(shard.offsets.partitions(group_id)):
                by_topic.setdefault(topic, []).append(partition)
        return list(by_topic.items())

    def offset_count(self, group_id: str) -> int:
        """The number of partitions for which a group has committed offsets."""
        shard = self._shard_of(group_id)
        return 0 if isinstance(shard, Code) else len(shard.offsets.partitions(group_id))

    # ------------------------------------------------------------------------------------ groups

    def describe(self, group_id: str) -> DescribedGroup:
        """Return the group; GROUP_ID_NOT_FOUND and state Dead if there is none (KIP-1043)."""
        shard = self._shard_of(group_id)
        if isinstance(shard, Code):
            return DescribedGroup(code=shard, group_id=group_id, state="")
        group = shard.groups.get(group_id)
        if group is None:
            return DescribedGroup(
                code=Code.GROUP_ID_NOT_FOUND, group_id=group_id, state=GroupState.DEAD.value
            )
        return group.describe()

    def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> tuple[Code, Iterator[ListedGroup | None]]:
        """Yield the groups of this node in those states and of those types, in any case; () for all.

        Each group is looked up when the iterator reaches it: None if its state differs or it is gone.
        """
        if Code.COORDINATOR_LOAD_IN_PROGRESS in self._not_ready.values():
            return Code.COORDINATOR_LOAD_IN_PROGRESS, iter(())
        wanted = {state.lower() for state in states}
        if types and GROUP_TYPE not in {name.lower() for name in types}:
            return Code.NONE, iter(())
        known = [(shard, list(shard.groups.values())) for shard in self._shards.values()]
        return Code.NONE, (
            ListedGroup(g.group_id, g.protocol_type or "", g.state.value, GROUP_TYPE)
            if shard.groups.get(g.group_id) is g
            and not shard.is_closed
            and (not wanted or g.state.value.lower() in wanted)
            else None
            for shard, groups in known
            for g in groups
        )

    def delete_group(
        self, group_id: str, answer: Callable[[Code], Effects], now_ms: int
    ) -> Effects:
        """Delete a group without members, with its offsets; answer once that is committed."""
        shard = self._shard_of(group_id)
        if isinstance(shard, Code):
            return answer(shard)
        if shard.is_large(group_id):
            work = shard.delete_in_slices(group_id, answer)
            return self._background.begin(work, now_ms, is_urgent=True)
        return shard.delete(group_id, answer, now_ms)

    def find_subscribed(
        self, group_id: str, among: Container[str]
    ) -> Generator[None, None, Subscribed | None]:
        """Find which of those topics the members of a group subscribe to; None if there are no members."""
        shard = self._shard_of(group_id)
        group = None if isinstance(shard, Code) else shard.groups.get(group_id)
        if group is None or group.state is GroupState.EMPTY:
            return None
        return (yield from find_subscribed(group, among))

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        subscribed: Subscribed | None,
        answer: Callable[[Code, Sequence[Code]], Effects],
        now_ms: int,
    ) -> Effects:
        """Delete offsets of a group, except for topics in use (KIP-496); see `Shard.delete_offsets`."""
        shard = self._shard_of(group_id) if group_id else Code.INVALID_GROUP_ID
        if isinstance(shard, Code):
            return answer(shard, ())
        return shard.delete_offsets(group_id, partitions, subscribed, answer, now_ms)

    def on_topics_deleted(self, topics: Sequence[str], now_ms: int) -> Effects:
        """Delete the offsets committed for topics that no longer exist."""
        effects: Effects = []
        for load in self._loads.values():
            load.deleted_topics.update(topics)
        for shard in self._shards.values():
            effects += self._forget(shard, topics, now_ms)
        return effects

    def _forget(self, shard: Shard, topics: Collection[str], now_ms: int) -> Effects:
        if not topics:
            return []
        work = shard.forget_topics(frozenset(topics), shard.offsets.newest_offset)
        return self._background.begin(work, now_ms)
