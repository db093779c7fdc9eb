"""A broker with many partitions comes or goes: a part at a time, with others heard between the parts."""

from itertools import pairwise

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.controller import sweeps
from firnline.controller.brokers import Heartbeat
from firnline.controller.controller import Controller
from firnline.controller.topics import NewTopic
from firnline.metadata.image import NO_LEADER, PartitionImage
from firnline.metadata.records import PartitionChangeRecord, decode
from firnline.metadata.result import ControllerResult
from tests.worlds.chance import CountingRng
from tests.worlds.decoded import all_records
from tests.worlds.quorum import Cluster, broker_config

PARTITIONS = 10
PART = 3
SESSION_MS = 9000


class World:
    """Brokers 1, 2 and 3. Topics a and b: ten partitions each, led by 1 and followed by 2 and 3."""

    def __init__(self, partitions: int = PARTITIONS) -> None:
        self.cluster = Cluster(broker_config()).with_brokers(1, 2, 3)
        for name in ("a", "b"):
            assignments = dict.fromkeys(range(partitions), (1, 2, 3))
            topic = NewTopic(name, assignments=assignments)
            self.cluster.write(self.controller.create_topics([topic]))

    @property
    def controller(self) -> Controller:
        return self.cluster.controller

    def partitions(self) -> list[PartitionImage]:
        topics = self.cluster.quorum.image.topics_by_name
        return [each for name in ("a", "b") for each in topics[name].partitions.values()]

    def knowing(self, broker_id: int) -> int:
        """How many partitions know that this broker has gone."""
        return sum(broker_id not in p.isr and p.leader != broker_id for p in self.partitions())

    def sweep(self) -> bool:
        more: bool = self.cluster.write(self.controller.sweep())
        assert more is self.controller.is_sweeping
        return more

    def sweep_all(self) -> int:
        parts = 0
        while self.controller.is_sweeping:
            self.sweep()
            parts += 1
            assert parts < 100
        return parts

    def silence(self, *alive: int) -> None:
        """A session passes, in which only these are heard."""
        for _ in range(4):
            self.cluster.loop.now_ms += SESSION_MS // 3
            for node_id in alive:
                self.cluster.heartbeat(node_id)

    def fence_stale(self) -> int | None:
        result = self.controller.fence_stale(self.cluster.loop.now_ms)
        fenced: int | None = self.cluster.write(result)
        return fenced

    def fails_over(self) -> None:
        """Another controller, with nothing in its memory but the log."""
        self.controller.deactivate()
        self.cluster.controller = Controller(
            config=self.cluster.config, rng=CountingRng(1_001), metadata=self.cluster.quorum
        )
        self.controller.activate(self.cluster.loop.now_ms)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(sweeps, "CHANGES_PER_PART_MAX", PART)
    return World()


def test_fencing_a_broker_of_many_partitions_lets_others_be_served(world: World) -> None:
    world.silence(2, 3)
    assert world.fence_stale() == 1
    seen = [world.knowing(1)]
    while world.controller.is_sweeping:
        assert not world.cluster.heartbeat(2).is_fenced
        world.sweep()
        seen.append(world.knowing(1))
    assert seen[0] == PART
    assert all(after - before <= PART for before, after in pairwise(seen))
    assert seen[-1] == 2 * PARTITIONS
    assert {p.leader for p in world.partitions()} == {2}
    assert {p.isr for p in world.partitions()} == {(2, 3)}


def test_every_controller_writes_the_same_records_in_the_same_order(world: World) -> None:
    """That of the partitions; a map has the order of their hashes."""
    world.cluster.write(
        world.controller.create_topics(
            [NewTopic("c", assignments=dict.fromkeys(range(40), (1, 2)))]
        )
    )
    before = len(world.cluster.log.batches)
    world.cluster.heartbeat(1, want_fence=True)
    world.sweep_all()
    records = [
        decode(row.value or b"")
        for batch in world.cluster.log.batches[before:]
        for row in all_records(batch)
    ]
    topic_id = world.cluster.quorum.image.topics_by_name["c"].topic_id
    written = [
        record.partition_id
        for record in records
        if isinstance(record, PartitionChangeRecord) and record.topic_id == topic_id
    ]
    assert written == list(range(40))


def test_no_batch_of_a_sweep_has_more_than_a_part(world: World) -> None:
    before = len(world.cluster.log.batches)
    world.cluster.heartbeat(1, want_fence=True)
    world.sweep_all()
    counts = [
        sum(isinstance(decode(row.value or b""), PartitionChangeRecord) for row in all_records(b))
        for b in world.cluster.log.batches[before:]
    ]
    assert sum(counts) == 2 * PARTITIONS
    assert max(counts) == PART


def test_the_next_silent_broker_waits_until_all_is_done_for_the_one_before(world: World) -> None:
    """I6: what the first fence left is seen by the second."""
    world.silence(3)
    assert world.fence_stale() in (1, 2)
    while world.controller.is_sweeping:
        assert world.fence_stale() is None
        world.sweep()
    assert world.fence_stale() in (1, 2)
    world.sweep_all()
    assert {(p.leader, p.isr) for p in world.partitions()} == {(3, (3,))}


def test_a_broker_that_asks_to_go_in_the_middle_of_a_sweep_waits_its_turn(world: World) -> None:
    world.cluster.heartbeat(1, want_fence=True)
    world.cluster.heartbeat(2, want_fence=True)
    assert world.knowing(1) == 2 * PART
    assert world.knowing(2) < world.knowing(1)
    world.sweep_all()
    assert {(p.leader, p.isr) for p in world.partitions()} == {(3, (3,))}


def test_a_new_controller_finishes_what_a_dead_one_left(world: World) -> None:
    world.cluster.heartbeat(1, want_fence=True)
    assert 0 < world.knowing(1) < 2 * PARTITIONS
    world.fails_over()
    assert world.controller.is_sweeping
    world.sweep_all()
    assert world.knowing(1) == 2 * PARTITIONS


def test_a_new_controller_finishes_elections_that_a_dead_one_left(world: World) -> None:
    for node_id in (1, 2, 3):
        world.cluster.heartbeat(node_id, want_fence=True)
        world.sweep_all()
    assert {p.leader for p in world.partitions()} == {NO_LEADER}
    world.cluster.heartbeat(3)
    led = [p.leader for p in world.partitions()]
    assert 0 < led.count(3) < 2 * PARTITIONS
    world.fails_over()
    world.sweep_all()
    assert {p.leader for p in world.partitions()} == {3}


def test_nobody_is_let_go_while_partitions_do_not_know_that_it_goes(world: World) -> None:
    assert not world.cluster.heartbeat(1, want_shut_down=True).should_shut_down
    while world.controller.is_sweeping:
        assert not world.cluster.heartbeat(1, want_shut_down=True).should_shut_down
        for other in (2, 3):
            world.cluster.heartbeat(other)
        world.sweep()
    assert world.knowing(1) == 2 * PARTITIONS
    # The others have not seen the last part yet.
    assert not world.cluster.heartbeat(1, want_shut_down=True).should_shut_down
    for other in (2, 3):
        world.cluster.heartbeat(other)
    assert world.cluster.heartbeat(1, want_shut_down=True).should_shut_down


def test_nobody_is_let_go_by_what_others_had_seen_in_an_earlier_reign(world: World) -> None:
    world.cluster.heartbeat(1, want_shut_down=True)
    world.sweep_all()
    world.cluster.heartbeat(1, want_shut_down=True)
    for other in (2, 3):
        world.cluster.heartbeat(other)
    seen = world.cluster.quorum.image.offset
    world.controller.deactivate()
    world.controller.activate(world.cluster.loop.now_ms)
    world.sweep_all()
    assert not world.cluster.heartbeat(1, want_shut_down=True).should_shut_down, (
        "nobody said anything"
    )
    world.controller.activate(world.cluster.loop.now_ms)
    assert world.controller.is_sweeping
    world.controller.deactivate()
    assert not world.controller.is_sweeping
    world.cluster.write(world.controller.create_topics([NewTopic("c", assignments={0: (2,)})]))
    world.controller.activate(world.cluster.loop.now_ms)
    world.sweep_all()
    for offset, is_known in ((seen, False), (world.cluster.quorum.image.offset, True)):
        for other in (2, 3):
            epoch = world.cluster.quorum.image.brokers[other].epoch
            heartbeat = Heartbeat(other, epoch, offset)
            world.cluster.write(world.controller.heartbeat(heartbeat, world.cluster.loop.now_ms))
        assert world.cluster.heartbeat(1, want_shut_down=True).should_shut_down is is_known


def test_nobody_is_let_go_while_it_is_in_isrs_though_it_leads_nothing(world: World) -> None:
    topic = NewTopic("0", assignments={0: (2, 3)})
    world.cluster.write(world.controller.create_topics([topic]))
    world.fails_over()
    world.sweep_all()
    first = world.cluster.heartbeat(2, want_shut_down=True)
    while world.controller.is_sweeping:
        assert not first.should_shut_down
        for other in (1, 3):
            world.cluster.heartbeat(other)
        if "0" in world.cluster.quorum.image.topics_by_name:
            world.cluster.write(world.controller.delete_topics(["0"]))  # it leads nothing now
        first = world.cluster.heartbeat(2, want_shut_down=True)
        world.sweep()
    assert world.knowing(2) == 2 * PARTITIONS


def test_the_next_incarnation_does_not_lead_what_the_dead_one_did_not_lose_yet(
    world: World,
) -> None:
    """One record number and epoch for two records would be the end of it."""
    world.cluster.heartbeat(1, want_fence=True)
    assert world.knowing(1) < 2 * PARTITIONS
    world.cluster.loop.now_ms += SESSION_MS
    while isinstance(world.cluster.register(1, 2), KafkaError):
        world.sweep()
    assert world.knowing(1) == 2 * PARTITIONS
    assert not world.controller.is_sweeping, "all of it is done"
    assert {p.isr for p in world.partitions()} == {(2, 3)}


def test_a_broker_that_comes_back_in_time_keeps_what_it_has_not_lost(world: World) -> None:
    world.cluster.heartbeat(1, want_fence=True)
    kept = 2 * PARTITIONS - world.knowing(1)
    assert not world.cluster.heartbeat(1).is_fenced
    world.sweep_all()
    assert 2 * PARTITIONS - world.knowing(1) == kept
    assert {p.leader for p in world.partitions()} == {1, 2}


def test_a_broker_that_is_forgotten_leaves_no_work(world: World) -> None:
    world.cluster.heartbeat(1, want_fence=True)
    assert world.cluster.write(world.controller.unregister_broker(1)) is None
    assert world.knowing(1) == 2 * PARTITIONS
    assert not world.controller.is_sweeping


def test_topics_that_go_in_the_middle_of_a_sweep_are_no_trouble(world: World) -> None:
    world.cluster.heartbeat(1, want_fence=True)
    world.cluster.write(world.controller.delete_topics(["a"]))
    world.sweep_all()
    topic = world.cluster.quorum.image.topics_by_name["b"]
    assert {p.isr for p in topic.partitions.values()} == {(2, 3)}


def test_looking_in_vain_takes_its_time_in_parts_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cluster.heartbeat(1, want_fence=True)
    world.sweep_all()
    monkeypatch.setattr(sweeps, "CHECKS_PER_PART_MAX", PARTITIONS)
    monkeypatch.setattr(sweeps, "_CHECKS_PER_STEP", PARTITIONS)
    world.fails_over()
    assert world.sweep_all() == 3, "two topics in vain, and the end"


@pytest.fixture
def large() -> World:
    return World(400)


# Records that are decided and written in a step: some 20 us each.
STEP_MAX = 200


def test_no_part_is_longer_than_others_can_wait(large: World) -> None:
    large.cluster.heartbeat(1, want_fence=True)
    parts = 0
    while large.controller.is_sweeping:
        result = large.controller.sweep()
        assert len(result.records) <= STEP_MAX
        large.cluster.write(result)
        parts += 1
    assert parts >= 3
    assert large.knowing(1) == 800


def test_leaders_are_balanced_again_in_parts_that_are_as_short(large: World) -> None:
    """A broker that comes back is given its leaderships minutes later, all of them at once."""
    large.cluster.heartbeat(1, want_fence=True)
    large.sweep_all()
    large.cluster.heartbeat(1)
    for topic in list(large.cluster.quorum.image.topics_by_name.values()):
        changes = [
            PartitionChangeRecord(partition_id=n, topic_id=topic.topic_id, isr=[1, 2, 3])
            for n in topic.partitions
        ]
        large.cluster.write(ControllerResult(changes, None))
    parts, has_more = 0, True
    while has_more:
        result = large.controller.balance_leaders()
        assert len(result.records) <= STEP_MAX
        has_more = large.cluster.write(result)
        parts += 1
    assert parts >= 4
    assert all(partition.leader == 1 for partition in large.partitions())


def test_many_small_topics_without_a_leader_are_looked_at_in_large_parts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        assignments = {0: (1,)} | dict.fromkeys(range(1, PARTITIONS), (2,))
        topic = NewTopic(f"t{number}", assignments=assignments)
        world.cluster.write(world.controller.create_topics([topic]))
    world.cluster.heartbeat(1, want_fence=True)
    world.sweep_all()
    monkeypatch.setattr(sweeps, "CHECKS_PER_PART_MAX", 4 * PARTITIONS)
    monkeypatch.setattr(sweeps, "_CHECKS_PER_STEP", 2 * PARTITIONS)
    world.fails_over()
    assert world.sweep_all() == 5


@pytest.mark.parametrize("was_fenced", [False, True])
def test_a_broker_that_comes_back_at_once_waits_until_all_it_led_is_settled(
    world: World, *, was_fenced: bool
) -> None:
    """Not one step for tens of thousands of partitions; nor may one keep the epoch that it led in."""
    epochs = [each.leader_epoch for each in world.partitions()]
    world.silence(2, 3)
    if was_fenced:
        assert world.fence_stale() == 1
    before = len(world.cluster.log.batches)
    seen = [world.knowing(1)]
    tries = 0
    while isinstance(answer := world.cluster.register(1, 2), KafkaError):
        assert answer.code is Code.REQUEST_TIMED_OUT, "which every broker takes for: ask again"
        assert world.cluster.quorum.image.brokers[1].fenced
        seen.append(world.knowing(1))
        world.sweep()
        seen.append(world.knowing(1))
        tries += 1
        assert tries < 100
    assert tries > 3
    assert all(after - before <= PART for before, after in pairwise(seen))
    counts = [
        sum(isinstance(decode(row.value or b""), PartitionChangeRecord) for row in all_records(b))
        for b in world.cluster.log.batches[before:]
    ]
    assert max(counts) <= PART
    assert world.knowing(1) == 2 * PARTITIONS
    assert not world.controller.is_sweeping
    after = [each.leader_epoch for each in world.partitions()]
    assert all(one > other for one, other in zip(after, epochs, strict=True))
    assert world.cluster.quorum.image.brokers[1].epoch == answer


def test_a_dead_incarnation_that_led_little_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweeps, "CHANGES_PER_PART_MAX", 2 * PARTITIONS)
    world = World()
    world.silence(2, 3)
    assert isinstance(world.cluster.register(1, 2), int)
    assert world.knowing(1) == 2 * PARTITIONS
