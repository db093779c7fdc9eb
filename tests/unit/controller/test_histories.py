"""Random histories of a small cluster: whatever brokers, leaders and operators do, some things hold."""

from random import Random
from typing import Any

import pytest

from firnline.base.errors import KafkaError
from firnline.base.replicas import IsrChange, IsrMember
from firnline.controller.partition_change import RECOVERING
from firnline.controller.reassignments import Reassignment
from firnline.controller.topics import NewTopic
from firnline.metadata.image import NO_LEADER, ClusterImage, PartitionImage
from tests.worlds.quorum import Cluster

BROKERS = (1, 2, 3, 4)
STEPS = 120


class History:
    """One cluster, one seed. Every step is checked against the image before it."""

    def __init__(self, seed: int, *, is_unclean: bool) -> None:
        self.random = Random(seed)
        self.cluster = Cluster().with_brokers(*BROKERS)
        self.is_unclean = is_unclean
        configs: dict[str, str | None] = (
            {"unclean.leader.election.enable": "true"} if is_unclean else {}
        )
        topic = NewTopic("t", assignments={0: (1, 2, 3), 1: (3, 4, 1)}, configs=configs)
        self.cluster.write(self.cluster.controller.create_topics([topic]))
        self.incarnation = 1
        # Epochs that brokers had once: what a late request may carry.
        self.old_epochs: list[tuple[int, int]] = []
        self.epochs = {each: self.image.brokers[each].epoch for each in BROKERS}

    @property
    def image(self) -> ClusterImage:
        return self.cluster.quorum.image

    def partitions(self) -> dict[int, PartitionImage]:
        return dict(self.image.topics_by_name["t"].partitions)

    def step(self) -> None:
        before = self.partitions()
        acts = (
            self.heartbeat,
            self.heartbeat,
            self.heartbeat,
            self.restart,
            self.alter,
            self.alter,
            self.alter,
        )
        act = self.random.choice((*acts, self.silence, self.elect, self.move, self.balance))
        allowed = act()
        for number, after in self.partitions().items():
            self.check(before[number], after, allowed)

    # ------------------------------------------------------------------------------------ steps

    def heartbeat(self) -> None:
        node_id = self.random.choice(BROKERS)
        broker = self.image.brokers[node_id]
        if broker.fenced and broker.in_controlled_shutdown:
            self.restart(node_id)  # it went: who beats next is another
        self.cluster.heartbeat(
            node_id,
            want_fence=self.random.random() < 0.1,
            want_shut_down=self.random.random() < 0.1,
        )

    def silence(self) -> None:
        """Somebody is fenced for it, perhaps all."""
        self.cluster.loop.now_ms += self.random.choice((3_000, 10_000))
        self.cluster.write(self.cluster.controller.fence_stale(self.cluster.loop.now_ms))

    def restart(self, node_id: int | None = None) -> None:
        self.incarnation += 1
        node_id = self.random.choice(BROKERS) if node_id is None else node_id
        holds_lock = self.random.random() < 0.3
        answer = self.cluster.register(
            node_id, self.incarnation, replaces_dead_incarnation=holds_lock
        )
        if isinstance(answer, int):
            assert answer > self.epochs[node_id], "rel-R3"
            self.old_epochs.append((node_id, self.epochs[node_id]))
            self.epochs[node_id] = answer

    def alter(self) -> frozenset[int]:
        """A proposal, right or with something wrong; returns who was named with the present epoch."""
        number = self.random.choice((0, 1))
        now = self.partitions()[number]
        sender = now.leader if self.random.random() < 0.9 else self.random.choice(BROKERS)
        if sender == NO_LEADER:
            return frozenset()
        size = self.random.randint(0, len(now.replicas))
        named = {sender, *self.random.sample(now.replicas, size)}
        members = []
        for node_id in sorted(named):
            old = [epoch for owner, epoch in self.old_epochs if owner == node_id]
            is_late = bool(old) and self.random.random() < 0.3
            epoch = self.random.choice(old) if is_late else self.epochs[node_id]
            members.append(IsrMember(node_id, epoch))
        change = IsrChange(
            self.image.topics_by_name["t"].topic_id,
            number,
            now.leader_epoch + self.random.choice((0,) * 8 + (-1, 1)),
            now.partition_epoch + self.random.choice((0,) * 8 + (-1, 1)),
            tuple(members),
            0,
        )
        self.cluster.write(
            self.cluster.controller.alter_partitions(
                broker_id=sender, broker_epoch=self.epochs[sender], wanted=[change]
            )
        )
        return frozenset(
            member.broker_id
            for member in members
            if member.broker_epoch == self.epochs[member.broker_id]
        )

    def elect(self) -> None:
        kind = 1 if self.is_unclean and self.random.random() < 0.5 else 0
        self.cluster.write(self.cluster.controller.elect_leaders(kind, None))

    def balance(self) -> None:
        self.cluster.write(self.cluster.controller.balance_leaders())
        self.cluster.write(self.cluster.controller.elect_unclean_leaders())

    def move(self) -> None:
        number = self.random.choice((0, 1))
        replicas: Any = tuple(self.random.sample(BROKERS, self.random.randint(1, 3)))
        wanted = Reassignment("t", number, None if self.random.random() < 0.3 else replicas)
        self.cluster.write(self.cluster.controller.alter_reassignments([wanted]))

    # ------------------------------------------------------------------------------------ what holds

    def check(
        self, before: PartitionImage, after: PartitionImage, allowed: frozenset[int] | None
    ) -> None:
        assert after.isr, "rel-R17"
        assert set(after.isr) <= set(after.replicas), "rel-R17"
        assert len(set(after.replicas)) == len(after.replicas) == len(after.directories)
        assert set(after.adding_replicas) | set(after.removing_replicas) <= set(after.replicas)
        assert after.leader == NO_LEADER or after.leader in after.isr
        if after != before:
            assert after.partition_epoch > before.partition_epoch, "rel-R16"
        if after.leader != before.leader or not set(before.replicas) <= set(after.replicas):
            assert after.leader_epoch > before.leader_epoch, "I11"
        brokers = self.image.brokers
        if after.leader != NO_LEADER:
            assert brokers[after.leader].is_active
        gone = [each for each in after.isr if not brokers[each].is_active]
        assert not gone or len(after.isr) == 1, "only the last member stays in an ISR (I25)"
        joined = set(after.isr) - set(before.isr)
        if after.leader_recovery_state == RECOVERING:
            assert self.is_unclean
        elif joined:
            assert joined <= (allowed or frozenset()), "rel-R1: only a proposal with its epoch"


@pytest.mark.parametrize("is_unclean", [False, True], ids=["clean", "unclean"])
@pytest.mark.parametrize("seed", range(12))
def test_no_history_breaks_an_isr(seed: int, is_unclean: bool) -> None:
    history = History(seed, is_unclean=is_unclean)
    for _ in range(STEPS):
        history.step()


def test_histories_reach_what_they_are_for() -> None:
    """A walk that never joins, moves or loses a leader would show nothing."""
    leaderless = joins = moves = refusals = 0
    for seed in range(9):
        history = History(100 + seed, is_unclean=False)
        for _ in range(STEPS):
            before = history.partitions()
            history.step()
            for number, after in history.partitions().items():
                leaderless += after.leader == NO_LEADER != before[number].leader
                joins += not set(after.isr) <= set(before[number].isr)
                done = before[number].removing_replicas and not after.removing_replicas
                moves += bool(done)
        refusals += len(history.old_epochs)
    assert min(leaderless, joins, moves, refusals) >= 10, (leaderless, joins, moves, refusals)


def test_a_refusal_is_an_error_and_no_exception() -> None:
    history = History(7, is_unclean=False)
    answer = history.cluster.register(1, 99)
    assert isinstance(answer, KafkaError)
