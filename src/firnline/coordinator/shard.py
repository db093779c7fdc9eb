"""One partition of `__consumer_offsets` that this node leads: its groups, and every write of them. PURE.

Write, then answer: a change is appended and answered once it is committed. Load: the same records,
replayed. Records are Kafka's own, so that a data directory moves either way. A record of the newer
group protocols is left alone; its group's offsets are served like any other's.
Source: KIP-848 'Group Coordinator' (one shard per partition), KIP-915 (record versions); rel-C5.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise

from firnline.base.effects import Append, Appended, Effects
from firnline.base.errors import Code, KafkaError, ProtocolError
from firnline.base.ids import OFFSETS_TOPIC, TopicPartition
from firnline.base.ports import Buffer, Rng
from firnline.coordinator.group import Group, Written
from firnline.coordinator.group_state import GroupState
from firnline.coordinator.membership import Tally
from firnline.coordinator.offsets import Commit, CommittedOffset, Offsets, is_expired
from firnline.coordinator.policy import GroupPolicy
from firnline.coordinator.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    decode_key,
    decode_value,
)
from firnline.coordinator.rows import (
    commit_row,
    committed,
    group_row,
    in_batches,
    members_of,
    tombstone,
)
from firnline.records.batch import BatchHeader, headers
from firnline.records.build import NewRecord, build_batch
from firnline.records.record import Record, records

After = Callable[[Appended | KafkaError, int], Effects]

# What a failed append means to a client of the group. Others go out as they are.
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
    """Return NONE, or what the client of a group is to hear about a failed append."""
    if not isinstance(result, KafkaError):
        return Code.NONE
    return _APPEND_FAILURES.get(result.code, result.code)


def commit_code(result: KafkaError) -> Code:
    """Return what a committer is to hear about a failed append."""
    if result.code in (Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE):
        return Code.INVALID_COMMIT_OFFSET_SIZE
    return append_code(result)


Tomb = tuple[str, TopicPartition | None]  # a group's offset, or None: the group itself


class Shard:
    """Groups and offsets whose ids fall on one partition."""

    def __init__(self, partition: int, *, policy: GroupPolicy, tally: Tally, rng: Rng) -> None:
        self.topic_partition = TopicPartition(OFFSETS_TOPIC, partition)
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self.is_closed = False
        self._policy = policy
        self._tally = tally
        self._rng = rng

    # ------------------------------------------------------------------------------------- groups

    def group(self, group_id: str) -> Group:
        """Return the group, made empty if it is not there."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(
                group_id,
                policy=self._policy,
                tally=self._tally,
                new_id=self._new_id,
                persist=self._persist,
                on_unused=self._on_unused,
            )
        return group

    def write_group(self, group: Group, now_ms: int) -> Effects:
        """Write a group that was just made, so that it is known after a load too."""
        group.state_since_ms = now_ms
        return self._persist(group, {}, lambda code, now: [], now_ms)

    def close(self, code: Code, now_ms: int) -> Effects:
        """Stop: whoever waits hears `code`; writes under way answer NOT_COORDINATOR."""
        self.is_closed = True
        return [e for g in list(self.groups.values()) for e in g.close(code, now_ms)]

    def start(self, now_ms: int) -> Effects:
        """Begin the sessions of what was loaded."""
        return [e for g in list(self.groups.values()) for e in g.start(now_ms)]

    def _new_id(self) -> str:
        digits = self._rng.uuid().hex()
        cuts = (0, 8, 12, 16, 20, 32)
        return "-".join(digits[a:b] for a, b in pairwise(cuts))

    # -------------------------------------------------------------------------------------- writes

    def write(self, rows: Sequence[NewRecord], after: After) -> Effects:
        """Append `rows` as one batch; `after` runs once they are committed, or cannot be."""
        batch = build_batch(rows, codec=self._policy.topic_compression_codec)

        def done(result: Appended | KafkaError, now_ms: int) -> Effects:
            # Another node, or a later load here, answers for these groups now.
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
        """Write commits that were found right, make them visible, then answer."""
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

        return self.write(rows, after)

    def _persist(
        self, group: Group, assignments: Mapping[str, bytes], written: Written, now_ms: int
    ) -> Effects:
        row = group_row(group, assignments, now_ms)
        return self.write([row], lambda result, now: written(append_code(result), now))

    # --------------------------------------------------------------------------- delete and expire

    def delete(self, group_id: str, answer: Callable[[Code], Effects], now_ms: int) -> Effects:
        """Delete a group that has no members, with its offsets; answer when that is committed."""
        group = self.groups.get(group_id)
        if group is None:
            return answer(Code.GROUP_ID_NOT_FOUND)
        if not group.is_deserted:
            return answer(Code.NON_EMPTY_GROUP)
        partitions = dict.fromkeys((*self.offsets.of(group_id), *self.offsets.under_way(group_id)))
        return self._bury([(group, list(partitions))], answer, now_ms)

    def expire(self, now_ms: int) -> Effects:
        """Write tombstones for offsets that have outlived their group, and for empty groups."""
        dead: list[tuple[Group | str, list[TopicPartition]]] = []
        for group in list(self.groups.values()):
            expired = self._expired(group, now_ms)
            if expired is None:
                continue
            kept = len(self.offsets.of(group.group_id)) - len(expired)
            busy = self.offsets.under_way(group.group_id)
            is_over = group.is_deserted and not kept and not busy
            if is_over and not self.offsets.has_unstable(group.group_id):
                dead.append((group, expired))
            elif expired:
                dead.append((group.group_id, expired))
        return self._bury(dead, lambda code: [], now_ms) if dead else []

    def forget_topics(self, topics: frozenset[str], now_ms: int) -> Effects:
        """Write tombstones for every offset of these topics."""
        dead = [
            (group_id, [tp for tp in self.offsets.of(group_id) if tp.topic in topics])
            for group_id in self.offsets.groups()
        ]
        return self._bury([d for d in dead if d[1]], lambda code: [], now_ms)

    def _expired(self, group: Group, now_ms: int) -> list[TopicPartition] | None:
        """Return which offsets are over; None where a group's state keeps all of them."""
        since_ms: int | None = None
        in_use: frozenset[str] = frozenset()
        if group.protocol_type is not None:
            if group.state is GroupState.EMPTY:
                since_ms = group.state_since_ms if group.state_since_ms >= 0 else None
            elif group.state is GroupState.STABLE:
                topics = group.topics_in_use()
                if topics is None:
                    return None
                in_use = topics
            else:
                return None
        busy = self.offsets.under_way(group.group_id)
        return [
            tp
            for tp, commit in self.offsets.of(group.group_id).items()
            if tp.topic not in in_use
            and tp not in busy
            and not self.offsets.is_unstable(group.group_id, tp)
            and is_expired(
                commit,
                since_ms=since_ms,
                now_ms=now_ms,
                retention_ms=self._policy.retention_ms,
            )
        ]

    def _on_unused(self, group: Group, now_ms: int) -> Effects:
        """A group that nobody ever came to is forgotten at once (rel d 55)."""
        has_offsets = self.offsets.of(group.group_id) or self.offsets.under_way(group.group_id)
        if has_offsets or self.groups.get(group.group_id) is not group:
            return []
        return self._bury([(group, [])], lambda code: [], now_ms)

    def _bury(
        self,
        dead: Sequence[tuple[Group | str, Sequence[TopicPartition]]],
        answer: Callable[[Code], Effects],
        now_ms: int,
    ) -> Effects:
        """Write tombstones in batches; a whole Group goes with its own, a name keeps its group.

        The group is out of reach from now on, so that a join makes a new one behind the tombstone.
        """
        effects: Effects = []
        tombs: list[Tomb] = []
        gone: list[Group] = []
        for group, partitions in dead:
            name = group if isinstance(group, str) else group.group_id
            tombs += [(name, tp) for tp in partitions]
            if isinstance(group, Group):
                tombs.append((name, None))
                gone.append(group)
                effects += group.close(Code.COORDINATOR_NOT_AVAILABLE, now_ms)
                del self.groups[name]
        parts = list(in_batches([(tomb, tombstone(*tomb, now_ms)) for tomb in tombs]))
        left, worst = len(parts), Code.NONE

        def after(part: list[Tomb], result: Appended | KafkaError, _: int) -> Effects:
            nonlocal left, worst
            left -= 1
            if isinstance(result, KafkaError):
                worst = append_code(result)
            else:
                self._entomb(part, result.base_offset)
            if left:
                return []
            if worst is not Code.NONE:
                self._revive(gone)
            return answer(worst)

        for part in parts:
            written = partial(after, [tomb for tomb, _ in part])
            effects += self.write([row for _, row in part], written)
        return effects

    def _entomb(self, tombs: list[Tomb], base_offset: int) -> None:
        for place, (name, tp) in enumerate(tombs):
            if tp is not None:
                self.offsets.drop(name, tp, base_offset + place)
                continue
            # A commit written before the tombstone may have made the group anew meanwhile.
            group = self.groups.get(name)
            in_use = self.offsets.of(name) or self.offsets.under_way(name)
            if group is not None and group.is_simple and not in_use:
                del self.groups[name]

    def _revive(self, gone: list[Group]) -> None:
        """A tombstone could not be written: what is in the log is what counts."""
        for group in gone:
            if group.group_id not in self.groups:
                fresh = self.group(group.group_id)
                fresh.restore(
                    generation=group.generation,
                    protocol_type=group.protocol_type,
                    protocol_name=None,
                    leader=None,
                    state_since_ms=group.state_since_ms,
                    members=[],
                )

    # ---------------------------------------------------------------------------------------- load

    def load(self, data: Buffer) -> None:
        """Replay whole batches, in log order. Raises KafkaError or ProtocolError for other bytes."""
        for header in headers(data):
            if header.is_control:
                self._replay_marker(data, header)
                continue
            for record in records(data, header):
                self._replay(record, header.producer_id if header.is_transactional else None)

    def _replay_marker(self, data: Buffer, header: BatchHeader) -> None:
        for record in records(data, header):
            # Key of a marker: version int16, then 0 for abort or 1 for commit.
            is_committed = record.key is not None and record.key[2:4] == b"\x00\x01"
            for commit in self.offsets.decide(header.producer_id, is_committed=is_committed):
                self._take(commit, record.offset)

    def _replay(self, record: Record, producer_id: int | None) -> None:
        if record.key is None:
            raise ProtocolError("a group record without a key", offset=record.offset)
        key = decode_key(record.key)
        if key is None:
            return
        value = None if record.value is None else decode_value(key, record.value)
        if isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._take_group(key.group, value)
            return
        assert not isinstance(value, GroupMetadataValue)
        tp = TopicPartition(key.topic, key.partition)
        taken = None if value is None else committed(value, record.offset)
        if producer_id is None:
            self._take((key.group, tp, taken), record.offset)
        else:
            self.offsets.hold(producer_id, (key.group, tp, taken))

    def _take(self, commit: Commit, record_offset: int) -> None:
        group_id, tp, committed = commit
        if committed is None:
            self.offsets.drop(group_id, tp, record_offset)
        else:
            self.group(group_id)
            self.offsets.put(group_id, tp, committed)

    def _take_group(self, group_id: str, value: GroupMetadataValue | None) -> None:
        self.groups.pop(group_id, None)
        if value is None:
            if self.offsets.of(group_id):
                self.group(group_id)  # its offsets stay readable
            return
        self.group(group_id).restore(
            generation=value.generation,
            protocol_type=value.protocol_type or None,
            protocol_name=value.protocol,
            leader=value.leader,
            state_since_ms=value.current_state_timestamp,
            members=members_of(value),
        )
