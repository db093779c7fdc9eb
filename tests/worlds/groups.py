"""A group coordinator with its timers and its log, in which time passes when told."""

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from firnline.base.effects import Append, Appended, Effect, Effects
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.config.broker import BrokerConfig
from firnline.coordinator.groups import CommitRequest, GroupCoordinator, NewCommit
from firnline.coordinator.membership import (
    JoinRequest,
    JoinResult,
    LeaveResult,
    ListedGroup,
    MemberIdentity,
    Protocol,
    SyncRequest,
    SyncResult,
)
from firnline.records.batch import headers, set_offset_and_epoch
from tests.worlds.chance import CountingRng
from tests.worlds.effects import World, carried_out
from tests.worlds.quorum import broker_config
from tests.worlds.timers import WorldTimers

GROUP = "g"


def subscription(*topics: str) -> bytes:
    """A consumer's subscription: version 0, topics, no user data."""
    names = b"".join(len(t).to_bytes(2, "big") + t.encode() for t in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def group_config(**changed: int) -> BrokerConfig:
    """Return the settings of a broker, with one partition of offsets unless something else is said."""
    config: dict[str, Any] = {"offsets_topic_num_partitions": 1, **changed}
    return replace(broker_config(), **config)


class Reported(NamedTuple):
    """An answer that went out."""

    who: str
    result: Any


def _reported(who: str, result: Any) -> Any:
    """Stand in for the Reply: the world keeps it."""
    return Reported(who, result)


def in_one_go(slices: Generator[Effects, int, Effects], now_ms: int) -> Effects:
    """Do all slices of a request; return what follows from them."""
    effects: Effects = []
    try:
        effects += next(slices)
        while True:
            effects += slices.send(now_ms)
    except StopIteration as done:
        return effects + list(done.value)


def load_into(groups: GroupCoordinator, partition: int, *batches: bytes) -> None:
    """Load a partition to the end; fail where it cannot be read."""
    said: list[StorageError | None] = []

    def loaded(problem: StorageError | None, now_ms: int) -> Effects:
        said.append(problem)
        return []

    # To the end of the work, which is after the answer: another partition begins then.
    carried_out(groups.load_partition(partition, batches, loaded, 0), 0)
    assert said == [None]


def check_counts(groups: GroupCoordinator) -> None:
    """Fail where what is counted of members as they come and go is not what a look at all of them finds."""
    memberships = [group.members for s in groups._shards.values() for group in s.groups.values()]
    assert groups._member_counts.pending == sum(
        len(membership.pending) for membership in memberships
    )
    held_bytes = 0
    for membership in memberships:
        members = list(membership.by_id.values())
        held_bytes += sum(m.held_bytes for m in members)
        assert membership.joined_count == sum(m.join_answer is not None for m in members)
        kinds = [(tuple(p.name for p in m.protocols), m.rebalance_timeout_ms) for m in members]
        assert membership._kinds == Counter(kinds)
        assert membership._supported == Counter(name for names, _ in kinds for name in names)
        assert membership.rebalance_timeout_ms == max((ms for _, ms in kinds), default=0)
        assert membership.assigned_bytes == sum(len(m.assignment) for m in members)
        static = {m.instance_id: m.member_id for m in members if m.instance_id is not None}
        assert (membership.instances, membership._static_count) == (static, len(static))
    assert groups.members_held_bytes == held_bytes


class GroupWorld(World):
    """Executes effects: timers when time passes, appends at once unless `holds_appends`."""

    def __init__(self, **settings: int) -> None:
        super().__init__(1_000_000)
        self.settings = group_config(**settings)
        self.rng = CountingRng()
        self.log = bytearray()  # committed batches of the one partition
        self.next_offset = 0
        self.reported: list[Reported] = []
        self._begin()

    def _begin(self) -> None:
        self.timers, self.appends = WorldTimers(), []
        self.groups = GroupCoordinator(self.settings, self.rng)
        self.run(self.groups.start(self.now_ms))
        self.load(bytes(self.log))

    def load(self, *batches: bytes) -> list[StorageError | None]:
        """Have the partition loaded, to the end; return what the coordinator said of it."""
        said: list[StorageError | None] = []

        def loaded(problem: StorageError | None, now_ms: int) -> Effects:
            said.append(problem)
            return []

        self.run(self.groups.load_partition(0, batches, loaded, self.now_ms))
        self.pass_time(0)
        return said

    def unload(self) -> None:
        """Leave the partition to another node."""
        self.run(self.groups.unload_partition(0, self.now_ms))
        self.pass_time(0)

    # ------------------------------------------------------------------------------------- effects

    def on_other(self, effect: Effect) -> None:
        assert isinstance(effect, Reported), effect
        self.reported.append(effect)

    def commit_appends(self, count: int = 1_000_000) -> None:
        """Commit the oldest appends that are held, in order."""
        while self.appends and count:
            count -= 1
            self.append_once()

    def appended(self, append: Append) -> Appended:
        (header,) = headers(append.batch)
        first = self.next_offset
        set_offset_and_epoch(append.batch, 0, first, 0)
        self.next_offset += header.record_count
        self.log += append.batch
        return Appended(
            base_offset=first,
            last_offset=self.next_offset - 1,
            log_append_time_ms=-1,
            log_start_offset=0,
        )

    def write_silently(self, count: int) -> None:
        """Let the oldest appends reach the log, and nobody hear of it: a crash follows."""
        for append in self.appends[:count]:
            self.appended(append)
        self.appends.clear()

    def fail_appends(self, code: Code) -> None:
        """Fail every append that is held."""
        held, self.appends = self.appends, []
        for append in held:
            self.complete_with(append, KafkaError(code))

    def one_slice(self) -> None:
        """Fire the first timer that is due now."""
        timer = self.next_timer()
        assert timer is not None
        assert timer.at_ms <= self.now_ms
        self.fire(timer.key)

    def crash(self) -> None:
        """Lose everything but the log, and load it: kill -9 and a start."""
        self._begin()

    def take_reported(self) -> list[Reported]:
        reported, self.reported = self.reported, []
        return reported

    def answer_to(self, who: str) -> Any:
        """Take the one answer that `who` got; fail when there is none or several."""
        (mine,) = [t for t in self.reported if t.who == who]
        self.reported.remove(mine)
        return mine.result

    def is_waiting(self, who: str) -> bool:
        return not any(t.who == who for t in self.reported)

    # ------------------------------------------------------------------------------------ requests

    def join(
        self,
        who: str,
        member_id: str = "",
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocols: Sequence[str] = ("range",),
        metadata: bytes = b"",
        protocol_type: str = "consumer",
        session_ms: int = 30_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
        host: str = "/127.0.0.1",
    ) -> None:
        request = JoinRequest(
            group_id=group,
            member_id=member_id,
            instance_id=instance,
            client_id=who,
            client_host=host,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=tuple(Protocol(p, metadata) for p in protocols),
            needs_known_member_id=version >= 4,
            may_skip_assignment=version >= 9,
        )
        self.run(self.groups.join(request, lambda result: _reported(who, result), self.now_ms))

    def enter(self, who: str, **options: Any) -> str:
        """Join without an id, take the id that is given, join again with it; return it."""
        self.join(who, **options)
        asked = self.answer_to(who)
        assert asked.code is Code.MEMBER_ID_REQUIRED, asked
        self.join(who, asked.member_id, **options)
        return str(asked.member_id)

    def sync(
        self,
        who: str,
        member_id: str,
        generation: int,
        *,
        group: str = GROUP,
        instance: str | None = None,
        assignments: dict[str, bytes] | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> None:
        request = SyncRequest(
            group_id=group,
            member_id=member_id,
            instance_id=instance,
            generation_id=generation,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=dict(assignments or {}),
            assigned_bytes=sum(map(len, (assignments or {}).values())),
        )
        self.run(self.groups.sync(request, lambda result: _reported(who, result), self.now_ms))

    def heartbeat(
        self, member_id: str, generation: int, *, group: str = GROUP, instance: str | None = None
    ) -> Code:
        self.run(
            self.groups.heartbeat(
                group,
                member_id,
                instance_id=instance,
                generation_id=generation,
                answer=lambda code: _reported("heartbeat", code),
                now_ms=self.now_ms,
            )
        )
        code = self.answer_to("heartbeat")
        assert isinstance(code, Code)
        return code

    def leave(self, *leavers: tuple[str, str | None], group: str = GROUP) -> list[Code]:
        identities = [MemberIdentity(*leaver) for leaver in leavers]
        left: list[LeaveResult] = []
        slices = self.groups.leave(
            group, identities, left.extend, lambda code: _reported("leave", code), self.now_ms
        )
        self.run(in_one_go(slices, self.now_ms))
        code = self.answer_to("leave")
        return [one.code for one in left] if code is Code.NONE else [code]

    def commit(
        self,
        who: str,
        *offsets: tuple[str, int, int],
        member_id: str = "",
        generation: int = -1,
        group: str = GROUP,
        instance: str | None = None,
        metadata: str = "",
        retention_ms: int = -1,
        host: str = "/127.0.0.1",
    ) -> None:
        request = CommitRequest(
            client_host=host,
            group_id=group,
            member_id=member_id,
            instance_id=instance,
            generation_id=generation,
            commits=[NewCommit(t, p, offset, -1, metadata) for t, p, offset in offsets],
            retention_ms=retention_ms,
        )
        self.run(self.groups.commit(request, lambda codes: [_reported(who, codes)], self.now_ms))

    def fetched(self, group: str = GROUP) -> dict[tuple[str, int], int]:
        """All committed offsets of a group."""
        found = self.groups.fetch(group, None, require_stable=False)
        assert found.code is Code.NONE, found.code
        return {
            (topic, row.partition): row.commit.offset
            for topic, rows in found.topics
            for row in rows
            if row.commit is not None
        }

    def listed(self, **filters: Any) -> tuple[Code, list[ListedGroup]]:
        """What ListGroups tells."""
        code, found = self.groups.list_groups(**filters)
        return code, [group for group in found if group is not None]

    def delete(self, *group_ids: str) -> None:
        """Delete groups; told is one answer, with all their codes."""
        names = list(dict.fromkeys(group_ids))
        codes: dict[str, Code] = {}

        def settle(group_id: str, code: Code) -> list[Any]:
            codes[group_id] = code
            answer = [(name, codes[name]) for name in names if name in codes]
            return [_reported("delete", answer)] if len(codes) == len(names) else []

        for name in names:
            self.run(self.groups.delete_group(name, partial(settle, name), self.now_ms))

    # ---------------------------------------------------------------------------------- scenarios

    def stable(self, *names: str, group: str = GROUP, **options: Any) -> dict[str, str]:
        """Make a Stable group of these clients; return their member ids, the leader first."""
        ids = {name: self.enter(name, group=group, **options) for name in names}
        self.pass_time(self.settings.group_initial_rebalance_delay_ms * 4)
        results: dict[str, JoinResult] = {name: self.answer_to(name) for name in names}
        generation = results[names[0]].generation_id
        leader = next(n for n, r in results.items() if r.leader == r.member_id)
        parts = {ids[name]: f"part of {name}".encode() for name in names}
        for name in (*(n for n in names if n != leader), leader):
            self.sync(name, ids[name], generation, group=group, assignments=parts)
        for name in names:
            got: SyncResult = self.answer_to(name)
            assert got.code is Code.NONE, got
            assert got.assignment == parts[ids[name]]
        return {leader: ids[leader], **ids}

    def state(self, group: str = GROUP) -> str:
        return self.groups.describe(group).state

    def generation(self, group: str = GROUP) -> int:
        shard = self.groups._shards[0]
        return shard.groups[group].generation
