"""One partition of `__consumer_offsets` that this node leads: its groups and all their writes. PURE.

A change is appended, and answered once it is committed. Loading replays the same records. They are Kafka's,
so a data directory can move either way. Records of the newer group protocols are left alone; the offsets of
their groups are served like any others. Source: KIP-848 'Group Coordinator' (one shard per partition),
KIP-915 (record versions); rel-C5.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count as counting
from itertools import pairwise
from typing import TypeVar

from firnline.base.background import SlicedTask, run_to_completion
from firnline.base.counting.aging import Aging
from firnline.base.effects import Append, Appended, Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import OFFSETS_TOPIC, TopicPartition
from firnline.base.ports import Buffer, Rng
from firnline.coordinator.commits import CommittedOffset
from firnline.coordinator.for_each_member import Later
from firnline.coordinator.group import Group, Written
from firnline.coordinator.group_state import GroupState
from firnline.coordinator.loading import Replay
from firnline.coordinator.membership import CONSUMERS, Member, MemberCounts
from firnline.coordinator.offsets import Offsets, is_expired
from firnline.coordinator.policy import GroupPolicy
from firnline.coordinator.rows import (
    commit_row,
    group_batch_in_slices,
    group_row,
    in_batches,
    tombstone,
)
from firnline.coordinator.subscriptions import Subscribed, find_subscribed
from firnline.records.build import NewRecord, build_batch
from firnline.records.unreadable import UnreadableRecords

# About a millisecond each: timers set or cancelled, offsets examined and deleted, offsets forgotten.
_EFFECTS_PER_SLICE = 200
_OFFSETS_PER_SLICE = 200
_DROPS_PER_SLICE = 2_000

_MEANING = (
    "Groups are served without it: members join again, and where a commit is gone, a group begins where"
    " auto.offset.reset says, unless its offsets are set (firnline group reset)"
)

After = Callable[[Appended | KafkaError, int], Effects]

# The error for a client of the group after a failed append. Other codes are passed on.
_APPEND_FAILURES = {
    Code.UNKNOWN_TOPIC_OR_PARTITION: Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_ENOUGH_REPLICAS: Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Code.COORDINATOR_NOT_AVAILABLE,
    Code.REQUEST_TIMED_OUT: Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_LEADER_OR_FOLLOWER: Code.NOT_COORDINATOR,
    Code.KAFKA_STORAGE_ERROR: Code.NOT_COORDINATOR,
    Code.MESSAGE_TOO_LARGE: Code.UNKNOWN_SERVER_ERROR,
    Code.RECORD_LIST_TOO_LARGE: Code.UNKNOWN_SERVER_ERROR,
    Code.INVALID_FETCH_SIZE: Code.UNKNOWN_SERVER_ERROR,
}


def append_code(result: Appended | KafkaError) -> Code:
    """Return NONE, or the error for a client of the group after a failed append."""
    if not isinstance(result, KafkaError):
        return Code.NONE
    return _APPEND_FAILURES.get(result.code, result.code)


def commit_code(result: KafkaError) -> Code:
    """Return the error for OffsetCommit after a failed append."""
    if result.code in (Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE):
        return Code.INVALID_COMMIT_OFFSET_SIZE
    return append_code(result)


Tombstone = tuple[str, TopicPartition | None]  # one offset of a group, or None: the group itself
Dead = tuple[
    Group | str, Sequence[TopicPartition]
]  # a group with its offsets, or some offsets of one


T = TypeVar("T")


def _portions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), _EFFECTS_PER_SLICE):
        yield items[first : first + _EFFECTS_PER_SLICE]


def _nobody(_: Code) -> Effects:
    """Nobody waits for these tombstones."""
    return []


class Shard:
    """The groups and offsets of one partition.

    groups      the groups by id, none of them Dead: a deleted group leaves at once, so that a join makes a
                new one after the tombstone
    offsets     committed offsets. A group with offsets is in `groups`, unless its deletion is being written
    unreadable  records that the load skipped
    is_closed   another node coordinates them now, and for good: nothing more is written, and writes in
                progress answer NOT_COORDINATOR
    """

    def __init__(
        self,
        partition: int,
        *,
        policy: GroupPolicy,
        member_counts: MemberCounts,
        rng: Rng,
        aging: Aging,
        later: Later,
    ) -> None:
        self.topic_partition = TopicPartition(OFFSETS_TOPIC, partition)
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self.unreadable = UnreadableRecords(self.topic_partition, _MEANING)
        self.is_closed = False
        self._policy = policy
        self._member_counts = member_counts
        self._rng, self._aging = rng, aging
        self._later = later

    # ------------------------------------------------------------------------------------- groups

    def group(self, group_id: str) -> Group:
        """Return the group; creates an empty one if needed."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(
                group_id,
                policy=self._policy,
                member_counts=self._member_counts,
                new_id=self._new_id,
                persist=self._persist,
                persist_in_slices=self._persist_in_slices,
                on_unused=self._on_unused,
                later=self._later,
            )
        return group

    def keeps(self, group_id: str) -> bool:
        """Whether a group exists, or soon will, that stays even if no pending member joins it."""
        group = self.groups.get(group_id)
        has_members = group is not None and group.protocol_type is not None
        offsets = self.offsets
        return has_members or bool(offsets.partitions(group_id) or offsets.under_way(group_id))

    def write_group(self, group: Group, now_ms: int) -> Effects:
        """Write a group that was just created, so that it is known after a load."""
        group.state_since_ms = now_ms
        return self._persist(group, {}, lambda code, now: [], now_ms)

    def _new_id(self) -> str:
        digits = self._rng.uuid().hex()
        cuts = (0, 8, 12, 16, 20, 32)
        return "-".join(digits[a:b] for a, b in pairwise(cuts))

    # -------------------------------------------------------------------------------------- writes

    def write(self, rows: Sequence[NewRecord], after: After, now_ms: int) -> Effects:
        """Append `rows` as one batch; `after` runs once they are committed, or have failed."""
        if self.is_closed:
            return after(KafkaError(Code.NOT_COORDINATOR), now_ms)
        batch = build_batch(rows, codec=self._policy.topic_compression_codec)
        return self._append(batch, after)

    def _append(self, batch: bytearray, after: After) -> Effects:
        assert not self.is_closed, "another node writes here now"

        def done(result: Appended | KafkaError, now_ms: int) -> Effects:
            # Another node, or a later load on this one, coordinates these groups now.
            gone = KafkaError(Code.NOT_COORDINATOR)
            return after(gone if self.is_closed else result, now_ms)

        return [Append(topic_partition=self.topic_partition, batch=batch, then=done)]

    def commit(
        self,
        group_id: str,
        commits: Mapping[TopicPartition, CommittedOffset],
        answer: Callable[[Code], Effects],
        now_ms: int,
    ) -> Effects:
        """Write commits that passed all checks, make them visible, then answer."""
        rows = [commit_row(group_id, tp, commit, now_ms) for tp, commit in commits.items()]
        self.offsets.begin(group_id, commits)

        def after(result: Appended | KafkaError, _: int) -> Effects:
            self.offsets.end(group_id, commits)
            if isinstance(result, KafkaError):
                return answer(commit_code(result))
            self.group(group_id)
            for place, (tp, commit) in enumerate(commits.items()):
                at = result.base_offset + place
                self.offsets.put(group_id, tp, commit._replace(record_offset=at))
            return answer(Code.NONE)

        return self.write(rows, after, now_ms)

    def _persist(
        self, group: Group, assignments: Mapping[str, bytes], written: Written, now_ms: int
    ) -> Effects:
        row = group_row(group, assignments, now_ms)
        return self.write([row], lambda result, now: written(append_code(result), now), now_ms)

    def _persist_in_slices(
        self,
        group: Group,
        members: Iterator[Member],
        is_wanted: Callable[[], bool],
        written: Written,
        now_ms: int,
    ) -> Effects:
        """Like `_persist`, for all members with their assignments, while the group still wants it."""
        codec = self._policy.topic_compression_codec
        steps = group_batch_in_slices(group, members, codec, now_ms)
        return self._later(self._write_in_slices(steps, is_wanted, written), now_ms)

    def _write_in_slices(
        self,
        steps: Generator[None, None, bytearray],
        is_wanted: Callable[[], bool],
        written: Written,
    ) -> SlicedTask:
        yield []
        # It is over: the rebalance or `close` that ended it answers the waiting members.
        while is_wanted() and not self.is_closed:
            try:
                next(steps)
            except StopIteration as end:
                return self._append(end.value, lambda r, now: written(append_code(r), now))
            yield []
        return []

    # --------------------------------------------------------------------------- delete and expire

    def delete(self, group_id: str, answer: Callable[[Code], Effects], now_ms: int) -> Effects:
        """Delete a group without members, with its offsets; answer once that is committed."""
        group = self.groups.get(group_id)
        if group is None:
            return answer(Code.GROUP_ID_NOT_FOUND)
        if not group.is_deserted:
            return answer(Code.NON_EMPTY_GROUP)
        partitions = dict.fromkeys(
            (*self.offsets.partitions(group_id), *self.offsets.under_way(group_id))
        )
        return self._delete_all([(group, list(partitions))], answer, now_ms)

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        subscribed: Subscribed | None,
        answer: Callable[[Code, Sequence[Code]], Effects],
        now_ms: int,
    ) -> Effects:
        """Delete a group's offsets for some partitions, except for topics its members subscribe to.

        `subscribed` is the result of `find_subscribed`; if a generation has begun since, the client must
        retry. `answer(code, codes)` comes once that is committed: the code of the group and, if that is NONE,
        of each partition.
        """
        group = self.groups.get(group_id)
        if group is None:
            return answer(Code.GROUP_ID_NOT_FOUND, ())
        in_use: frozenset[str] | None = frozenset()
        if group.state is not GroupState.EMPTY:
            if group.protocol_type != CONSUMERS:
                return answer(Code.NON_EMPTY_GROUP, ())
            if subscribed is None or subscribed.generation != group.generation:
                return answer(Code.COORDINATOR_NOT_AVAILABLE, ())
            in_use = subscribed.topics
        may_go = [in_use is not None and tp.topic not in in_use for tp in partitions]
        known, under_way = self.offsets.partitions(group_id), self.offsets.under_way(group_id)
        gone = dict.fromkeys(tp for tp, may in zip(partitions, may_go, strict=True) if may)
        tombstones = [(group_id, tp) for tp in gone if tp in known or tp in under_way]
        codes = [Code.NONE if may else Code.GROUP_SUBSCRIBED_TO_TOPIC for may in may_go]
        return self._write_tombstones(tombstones, lambda code: answer(code, codes), now_ms)

    def is_large(self, group_id: str) -> bool:
        """Whether deleting the group in one step would take too long."""
        return len(self.offsets.partitions(group_id)) > _OFFSETS_PER_SLICE

    def delete_in_slices(self, group_id: str, answer: Callable[[Code], Effects]) -> SlicedTask:
        """Like `delete`, some offsets at a time; what is committed meanwhile stays."""
        now_ms = yield []
        left, worst = 1, Code.NONE

        def settle(code: Code) -> Effects:
            nonlocal left, worst
            left -= 1
            worst = worst if code is Code.NONE else code
            if left:
                return []
            if worst is not Code.NONE and not self.is_closed:
                self._restore_groups([group])
            return answer(worst)

        found = self.groups.get(group_id)
        if self.is_closed:
            return answer(Code.NOT_COORDINATOR)
        if found is None or not found.is_deserted or not self.is_large(group_id):
            return self.delete(group_id, answer, now_ms)
        group = found
        newest_offset = self.offsets.newest_offset
        under_way = list(self.offsets.under_way(group_id))
        # Remove it from memory now, as in `_delete_all`; its own tombstone comes last.
        effects = group.close(now_ms)
        del self.groups[group_id]
        tombstones: list[Tombstone] = [(group_id, tp) for tp in under_way]
        for portion in list(self._portions(group_id)):
            tombstones += [
                (group_id, tp) for tp in portion if self._is_old(group_id, tp, newest_offset)
            ]
            left += 1
            effects += self._write_tombstones(tombstones, settle, now_ms)
            now_ms = yield effects
            tombstones, effects = [], []
        # A member that joined meanwhile has written the group again; a commit has not.
        anew = self.groups.get(group_id)
        if anew is None or anew.is_simple:
            left += 1
            effects = self._write_tombstones([(group_id, None)], settle, now_ms)
        return effects + settle(Code.NONE)

    def expire(self) -> Generator[Effects, int, None]:
        """Write tombstones for offsets that have expired, and for empty groups."""
        now_ms = yield []
        dead: list[Dead] = []
        count, names = 0, counting(1)
        for group in list(self.groups.values()):
            subscribed = None
            if group.state is GroupState.STABLE:
                subscribed, now_ms = yield from self._find_subscribed(group, names, dead, now_ms)
            for portion in self._portions(group.group_id):
                if self.is_closed:
                    return
                if self.groups.get(group.group_id) is group:
                    dead += self._dead(group, portion, subscribed, now_ms)
                count += len(portion) + 1
                if count >= _OFFSETS_PER_SLICE:
                    now_ms = yield self._delete_all(dead, _nobody, now_ms)
                    dead, count = [], 0
        yield self._delete_all(dead, _nobody, now_ms)

    def _find_subscribed(
        self, group: Group, names: Iterator[int], dead: list[Dead], now_ms: int
    ) -> Generator[Effects, int, tuple[Subscribed, int]]:
        """Find which topics with offsets of a group are in use. Writes finished tombstones before each
        pause.
        """
        topics = {tp.topic for tp in self.offsets.partitions(group.group_id)}
        steps = find_subscribed(group, topics, names)
        while True:
            try:
                next(steps)
            except StopIteration as found:
                return found.value, now_ms
            now_ms = yield self._delete_all(dead, _nobody, now_ms)
            dead.clear()

    def forget_topics(
        self, topics: frozenset[str], newest_offset: int
    ) -> Generator[Effects, int, None]:
        """Write tombstones for every offset of these topics whose record is not above `newest_offset`.

        Later commits are for new topics with the names of deleted ones.
        """
        now_ms = yield []
        dead: list[Dead] = []
        count = 0
        for group_id in list(self.offsets.by_group):
            for portion in self._portions(group_id):
                if self.is_closed:
                    return
                gone = [tp for tp in portion if tp.topic in topics]
                gone = [tp for tp in gone if self._is_old(group_id, tp, newest_offset)]
                if gone:
                    dead.append((group_id, gone))
                count += len(portion) + 1
                if count >= _OFFSETS_PER_SLICE:
                    now_ms = yield self._delete_all(dead, _nobody, now_ms)
                    dead, count = [], 0
        yield self._delete_all(dead, _nobody, now_ms)

    def _portions(self, group_id: str) -> Iterator[list[TopicPartition]]:
        """Split the partitions of a group into lists, at least one. They may change meanwhile."""
        partitions = list(self.offsets.partitions(group_id))
        for first in range(0, max(len(partitions), 1), _OFFSETS_PER_SLICE):
            yield partitions[first : first + _OFFSETS_PER_SLICE]

    def _is_old(self, group_id: str, partition: TopicPartition, newest_offset: int) -> bool:
        if partition in self.offsets.under_way(group_id):
            return False
        is_there = partition in self.offsets.partitions(group_id)
        return is_there and self.offsets.record_offset(group_id, partition) <= newest_offset

    def _dead(
        self,
        group: Group,
        portion: Sequence[TopicPartition],
        subscribed: Subscribed | None,
        now_ms: int,
    ) -> Sequence[Dead]:
        """Return what of a group has expired: the group, some of its offsets, or nothing."""
        name = group.group_id
        expired = self._expired(group, portion, subscribed, now_ms)
        if expired is None:
            return ()
        # A group of several portions is deleted by the next check, when its offsets are gone.
        kept = len(self.offsets.partitions(name)) - len(expired)
        busy = self.offsets.under_way(name)
        if group.is_deserted and not kept and not busy and not self.offsets.has_unstable(name):
            return ((group, expired),)
        return ((name, expired),) if expired else ()

    def _expired(
        self,
        group: Group,
        portion: Sequence[TopicPartition],
        subscribed: Subscribed | None,
        now_ms: int,
    ) -> list[TopicPartition] | None:
        """Return the expired offsets; None if the group's state keeps all of them."""
        since_ms: int | None = None
        in_use: frozenset[str] = frozenset()
        if group.protocol_type is not None:
            if group.state is GroupState.EMPTY:
                since_ms = group.state_since_ms if group.state_since_ms >= 0 else None
            elif group.state is GroupState.STABLE and subscribed is not None:
                # A generation that began since may use other topics; the next check finds out.
                if subscribed.topics is None or subscribed.generation != group.generation:
                    return None
                in_use = subscribed.topics
            else:
                return None
        busy = self.offsets.under_way(group.group_id)
        commits = ((tp, self.offsets.get(group.group_id, tp)) for tp in portion)
        return [
            tp
            for tp, commit in commits
            if commit is not None
            and tp.topic not in in_use
            and tp not in busy
            and is_expired(
                commit,
                since_ms=since_ms,
                now_ms=self._aging.time_ms(now_ms),
                retention_ms=self._policy.retention_ms,
            )
            and not self.offsets.is_unstable(group.group_id, tp)
        ]

    def _on_unused(self, group: Group, now_ms: int) -> Effects:
        """Forget a group that no member ever joined (rel d 55)."""
        name = group.group_id
        has_offsets = self.offsets.partitions(name) or self.offsets.under_way(name)
        if has_offsets or self.groups.get(name) is not group:
            return []
        return self._delete_all([(group, [])], _nobody, now_ms)

    def _delete_all(
        self,
        dead: Sequence[Dead],
        answer: Callable[[Code], Effects],
        now_ms: int,
    ) -> Effects:
        """Write tombstones in batches. A Group is deleted with all its offsets, a group id keeps its group.

        The group is removed from memory now, so a join creates a new one after the tombstone.
        """
        effects: Effects = []
        tombstones: list[Tombstone] = []
        gone: list[Group] = []
        for group, partitions in dead:
            name = group if isinstance(group, str) else group.group_id
            tombstones += [(name, tp) for tp in partitions]
            if isinstance(group, Group):
                assert group.is_deserted, "a group with members is not deleted"
                assert self.groups.get(name) is group, "it is deleted once"
                tombstones.append((name, None))
                gone.append(group)
                effects += group.close(now_ms)
                del self.groups[name]

        def done(code: Code) -> Effects:
            if code is not Code.NONE:
                self._restore_groups(gone)
            return answer(code)

        return effects + self._write_tombstones(tombstones, done, now_ms)

    def _write_tombstones(
        self, tombstones: Sequence[Tombstone], answer: Callable[[Code], Effects], now_ms: int
    ) -> Effects:
        """Write tombstones in batches; `answer` once all are committed, or one has failed."""
        parts = list(in_batches([(each, tombstone(*each, now_ms)) for each in tombstones]))
        if not parts:
            return answer(Code.NONE)
        left, worst = len(parts), Code.NONE

        def after(part: list[Tombstone], result: Appended | KafkaError, _: int) -> Effects:
            nonlocal left, worst
            left -= 1
            if isinstance(result, KafkaError):
                worst = append_code(result)
            else:
                self._apply_tombstones(part, result.base_offset)
            return [] if left else answer(worst)

        effects: Effects = []
        for part in parts:
            written = partial(after, [each for each, _ in part])
            effects += self.write([row for _, row in part], written, now_ms)
        return effects

    def _apply_tombstones(self, tombstones: list[Tombstone], base_offset: int) -> None:
        for place, (name, tp) in enumerate(tombstones):
            if tp is not None:
                self.offsets.drop(name, tp, base_offset + place)
                continue
            # A commit that was written before the tombstone may have created the group again.
            group = self.groups.get(name)
            in_use = self.offsets.partitions(name) or self.offsets.under_way(name)
            if group is not None and group.is_simple and not in_use:
                del self.groups[name]

    def _restore_groups(self, gone: list[Group]) -> None:
        """A tombstone could not be written, so the group is still in the log: bring it back."""
        for group in gone:
            if group.group_id not in self.groups:
                fresh = self.group(group.group_id)
                steps = fresh.restore(
                    generation=group.generation,
                    protocol_type=group.protocol_type,
                    protocol_name=None,
                    leader=None,
                    state_since_ms=group.state_since_ms,
                    members=[],
                )
                run_to_completion(steps)

    # ------------------------------------------------------------------------- to and from memory

    def load(self, batches: Iterable[Buffer]) -> Iterator[None]:
        """Apply complete batches in log order; yields after each slice. KafkaError for damaged bytes."""
        return Replay(self.groups, self.offsets, self.group, self.unreadable).steps(batches)

    def start(self, now_ms: int) -> Generator[Effects, int, int]:
        """Start the sessions of loaded members."""
        effects: Effects = []
        for group in list(self.groups.values()):
            for some in _portions(list(group.members.by_id.values())):
                effects += group.begin_sessions(some, now_ms)
                if len(effects) >= _EFFECTS_PER_SLICE:
                    now_ms = yield effects
                    effects = []
            effects += group.shrink(now_ms)
        now_ms = yield effects
        return now_ms

    def close(self, code: Code) -> Generator[Effects, int, None]:
        """Answer all waiting requests with `code`, and forget everything, once `is_closed` is set."""
        now_ms = yield []
        effects: Effects = []
        while self.groups:
            _, group = self.groups.popitem()
            effects += group.close(now_ms)
            for ids in _portions([*group.members.by_id, *group.members.pending]):
                effects += group.dismiss(ids, code)
                if len(effects) >= _EFFECTS_PER_SLICE:
                    now_ms = yield effects
                    effects = []
        count = 0
        by_group = self.offsets.by_group
        while by_group:
            _, of_group = by_group.popitem()
            while of_group:
                of_group.popitem()
                count += 1
                if count % _DROPS_PER_SLICE == 0:
                    yield effects
                    effects = []
        yield effects
