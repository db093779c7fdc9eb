"""Random lives of a group, with crashes: what was answered stays true. rel-C5, rel-C6; rel d 55."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from firnline.base.errors import Code
from firnline.coordinator import for_each_member, generation
from firnline.coordinator import group as group_module
from firnline.coordinator.group import Group
from firnline.coordinator.group_state import GroupState
from firnline.coordinator.membership import JoinResult, SyncResult
from tests.worlds.groups import GROUP, GroupWorld, check_counts

NAMES = st.sampled_from("abcd")
FAILURES = (Code.NOT_ENOUGH_REPLICAS, Code.KAFKA_STORAGE_ERROR)
PARTITIONS = 6
ASSIGNORS = (("range",), ("roundrobin", "range"))


class Client:
    """A consumer as clients write them: what it was told, and what it does about it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.instance = name if name == "d" else None
        self.member_id = ""
        self.generation = -1
        self.synced_generation = -1
        self.is_asking = False

    def forget(self) -> None:
        self.member_id, self.generation = "", -1


class Life(RuleBasedStateMachine):
    """Clients, a coordinator that may crash, and a book of what was promised."""

    @initialize(max_size=st.sampled_from([2, 100]))
    def begin(self, max_size: int) -> None:
        self.world = GroupWorld(group_max_size=max_size)
        self.clients = {name: Client(name) for name in "abcd"}
        self.commits: dict[tuple[str, int], int] = {}  # answered
        self.unsure: dict[tuple[str, int], set[int]] = {}  # written, answer unknown
        self.serial = 0
        # An emptied group whose record failed is Empty here and as it was in the log: no promise.
        self.has_failed = False
        self.completing: tuple[Any, ...] | None = None
        self.owners: dict[tuple[int, int], str] = {}  # (generation, partition) -> member id
        self.loaded, self.loaded_bytes = GroupWorld(), -1  # what a load of the log gives

    # ----------------------------------------------------------------------------------- clients

    @rule(name=NAMES)
    def join(self, name: str) -> None:
        client = self.clients[name]
        if not client.is_asking:
            client.is_asking = True
            self.serial += 1
            self.world.join(
                name,
                client.member_id,
                instance=client.instance,
                protocols=ASSIGNORS[self.serial % 7 // 5],
                rebalance_ms=60_000 - self.serial % 5 // 4 * 15_000,
            )
            self.receive()

    @rule(name=NAMES, is_late=st.booleans())
    def sync(self, name: str, is_late: bool) -> None:
        client = self.clients[name]
        if client.is_asking or client.generation < 0:
            return
        client.is_asking = True
        client.synced_generation = client.generation - is_late
        self.world.sync(
            name,
            client.member_id,
            client.synced_generation,
            instance=client.instance,
            assignments=self.plan(),
        )
        self.receive()

    def plan(self) -> dict[str, bytes]:
        members = [m.member_id for m in self.world.groups.describe(GROUP).members]
        return {m: bytes(range(i, PARTITIONS, len(members))) for i, m in enumerate(members)}

    @rule(names=st.lists(NAMES, min_size=1, max_size=4, unique=True))
    def settle(self, names: list[str]) -> None:
        """These clients do what clients do: join until a generation is there, then sync."""
        for _ in range(2):
            for name in names:
                self.join(name)
        self.wait(10)
        for name in names:
            self.sync(name, is_late=False)

    @rule(name=NAMES)
    def heartbeat(self, name: str) -> None:
        client = self.clients[name]
        if client.member_id:
            code = self.world.heartbeat(
                client.member_id, client.generation, instance=client.instance
            )
            if code in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID):
                client.forget()

    @rule(name=NAMES)
    def leave(self, name: str) -> None:
        client = self.clients[name]
        if client.member_id:
            self.world.leave((client.member_id, client.instance))
            client.forget()
            self.receive()

    @rule(name=NAMES)
    def restart(self, name: str) -> None:
        """The process is killed: it forgets its id, and its request has nobody to answer to."""
        client = self.clients[name]
        client.forget()
        client.is_asking = False
        self.world.reported = [t for t in self.world.reported if t.who != name]

    @rule(name=NAMES, partition=st.integers(0, PARTITIONS - 1), group=st.sampled_from([GROUP, "s"]))
    def commit(self, name: str, partition: int, group: str) -> None:
        client = self.clients[name]
        self.serial += 1
        member_id, generation = (
            (client.member_id, client.generation) if group == GROUP else ("", -1)
        )
        key = (group, partition)
        self.unsure.setdefault(key, set()).add(self.serial)
        self.world.commit(
            f"commit {group} {partition} {self.serial}",
            ("t", partition, self.serial),
            member_id=member_id,
            generation=generation,
            group=group,
            instance=client.instance if generation >= 0 else None,
        )
        self.receive()

    @rule(group=st.sampled_from([GROUP, "s"]))
    def delete(self, group: str) -> None:
        if not self.world.holds_appends:
            self.world.delete(group)
            ((_, code),) = self.world.answer_to("delete")
            if code is Code.NONE:
                gone = [k for k in (*self.commits, *self.unsure) if k[0] == group]
                for key in gone:
                    self.commits.pop(key, None)
                    self.unsure.pop(key, None)

    # ------------------------------------------------------------------------------------- world

    @rule(seconds=st.sampled_from([1, 3, 10, 31, 61]))
    def wait(self, seconds: int) -> None:
        self.world.pass_time(seconds * 1000)
        self.receive()

    @rule()
    def one_slice(self) -> None:
        """Of what a large group has done in slices one is done."""
        due = self.world.timers.pop(("group", "background"), None)
        if due is not None:
            self.world.run(due.then(self.world.now_ms))
            self.receive()

    @rule()
    def hold(self) -> None:
        self.world.holds_appends = True

    @rule(count=st.integers(1, 3))
    def commit_some(self, count: int) -> None:
        self.world.commit_appends(count)
        self.receive()

    @rule()
    def release(self) -> None:
        self.world.holds_appends = False
        self.world.commit_appends()
        self.receive()

    @rule(code=st.sampled_from(FAILURES))
    def fail(self, code: Code) -> None:
        self.has_failed |= bool(self.world.appends)
        self.world.fail_appends(code)
        self.receive()

    @rule(written=st.integers(0, 3))
    def crash(self, written: int) -> None:
        """Some of what was on its way reached the log; nobody heard of it."""
        self.world.write_silently(written)
        self.world.crash()
        self.world.holds_appends = False
        self.has_failed = False
        self.world.reported.clear()
        for client in self.clients.values():
            client.is_asking = False

    # -------------------------------------------------------------------------------------- book

    def receive(self) -> None:
        for reported in self.world.take_reported():
            if reported.who.startswith("commit "):
                self._on_commit(reported.who, reported.result)
            elif reported.who in self.clients:
                self._on_answer(self.clients[reported.who], reported.result)

    def _on_commit(self, who: str, codes: list[Code]) -> None:
        _, group, partition, serial = who.split()
        key = (group, int(partition))
        if codes == [Code.NONE]:
            self.commits[key] = int(serial)
            self.unsure[key] = {s for s in self.unsure.get(key, ()) if s > int(serial)}

    def _on_answer(self, client: Client, result: Any) -> None:
        client.is_asking = False
        if result.code in (
            Code.UNKNOWN_MEMBER_ID,
            Code.FENCED_INSTANCE_ID,
            Code.GROUP_MAX_SIZE_REACHED,
        ):
            client.forget()
        elif isinstance(result, JoinResult) and result.member_id:
            client.member_id = result.member_id
            if result.code is Code.NONE:
                client.generation = result.generation_id
        elif isinstance(result, SyncResult) and result.code is Code.NONE:
            self._on_assignment(client, result)

    def _on_assignment(self, client: Client, result: SyncResult) -> None:
        """rel-C6: within a generation a partition never has two owners, static restarts excepted."""
        for partition in result.assignment:
            key = (client.synced_generation, partition)
            owner = self.owners.setdefault(key, client.name)
            assert owner == client.name, (key, owner, client.name)

    # -------------------------------------------------------------------------------- invariants

    @invariant()
    def answered_commits_are_returned(self) -> None:
        """rel-C5: the last answered commit, or a later one whose answer nobody heard."""
        if not hasattr(self, "world"):
            return
        for group in (GROUP, "s"):
            found = self.world.fetched(group)
            for (of_group, partition), serial in self.commits.items():
                if of_group == group:
                    allowed = {serial} | self.unsure.get((group, partition), set())
                    assert found.get(("t", partition)) in allowed

    @invariant()
    def a_load_of_the_log_is_what_we_are(self) -> None:
        if not hasattr(self, "world") or self.world.appends:
            return
        if len(self.world.log) != self.loaded_bytes:
            self.loaded = GroupWorld()
            self.loaded.log = self.world.log
            self.loaded.crash()
            self.loaded_bytes = len(self.world.log)
        other = self.loaded
        mine, theirs = self.world.groups._shards[0], other.groups._shards[0]
        for group in (GROUP, "s"):
            assert other.fetched(group) == self.world.fetched(group)
        for group_id, group_here in mine.groups.items():
            if self.has_failed:
                break
            if group_here.state in (GroupState.STABLE, GroupState.EMPTY):
                assert kept(group_here) == kept(theirs.groups[group_id])

    @invariant()
    def members_are_counted(self) -> None:
        if not hasattr(self, "world"):
            return
        groups = self.world.groups
        if GROUP not in groups._shards[0].groups:
            self.owners.clear()  # a new group counts its generations from 1
        check_counts(groups)

    @invariant()
    def members_stay_while_their_assignment_is_taken_in(self) -> None:
        """A change of them begins a rebalance: what is written in slices is of one state of the group."""
        if not hasattr(self, "world"):
            return
        group = self.world.groups._shards[0].groups.get(GROUP)
        if group is None or group.state is not GroupState.COMPLETING_REBALANCE:
            self.completing = None
            return
        members = [(m, m.protocols) for m in group.members.by_id.values()]
        now = (group, group.generation, group.members.leader, group.state_since_ms, members)
        before = self.completing
        if before is not None and before[:2] == now[:2]:
            assert before == now
        self.completing = now


def kept(group: Group) -> object:
    """What of a group outlives the process."""
    return (
        group.state,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.members.leader,
        [(m.member_id, m.instance_id, m.assignment) for m in group.members.by_id.values()],
    )


@pytest.mark.hypothesis
@pytest.mark.parametrize("is_large", [False, True])
def test_whatever_happens_answers_stay_true(
    is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large group takes an assignment in, and tells of it, in slices: here each member is one."""
    if is_large:
        monkeypatch.setattr(group_module, "_MANY_MEMBERS", 1)
        monkeypatch.setattr(generation, "_WRITTEN_PER_SLICE", 1)
        monkeypatch.setattr(for_each_member, "MEMBERS_PER_SLICE", 1)
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=150,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


# Ten minutes of computing: what ends it in the middle looks to Hypothesis like a test that changes its mind.
@pytest.mark.timeout(7200)
@pytest.mark.soak
def test_whatever_happens_answers_stay_true_for_long() -> None:
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=5_000,
            stateful_step_count=80,
            deadline=None,
            derandomize=False,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
