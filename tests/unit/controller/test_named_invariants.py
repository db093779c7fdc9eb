"""Each invariant that a docstring names is asserted where it could be broken: here it is broken."""

from collections.abc import Callable
from typing import Any

import pytest

from firnline.controller import brokers
from firnline.controller.brokers import Heartbeat, State
from firnline.controller.partition_change import (
    AS_IT_IS,
    ElectedLeader,
    PartitionChanges,
)
from firnline.metadata.image import PartitionImage
from firnline.metadata.records import PartitionChangeRecord
from tests.unit.controller.test_isr_changes import World
from tests.worlds.quorum import Cluster, broker_config, registration

Change = Callable[[PartitionImage, PartitionImage], PartitionImage]


@pytest.fixture
def world() -> World:
    return World()


def changes_of(world: World) -> PartitionChanges:
    return PartitionChanges(world.cluster.quorum.image, broker_config())


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda before, after: after._replace(partition_epoch=before.partition_epoch), "rel-R16"),
        (lambda before, after: after._replace(leader_epoch=before.leader_epoch - 1), "never fall"),
        (lambda before, after: after._replace(isr=()), "never empty"),
        (lambda before, after: after._replace(isr=(1, 9)), "only replicas"),
    ],
)
def test_the_answer_to_a_leader_keeps_what_epochs_and_isr_promise(
    world: World, monkeypatch: pytest.MonkeyPatch, broken: Change, said: str
) -> None:
    before, right = world.partition, PartitionChanges.change

    def change(self: PartitionChanges, *args: Any) -> PartitionImage:
        after = right(self, *args)
        assert after is not None
        return broken(before, after)

    monkeypatch.setattr(PartitionChanges, "change", change)
    with pytest.raises(AssertionError, match=said):
        world.ask(1, 2, 3)


@pytest.mark.parametrize(("isr", "said"), [((), "never empty"), ((1, 9), "only replicas")])
def test_no_record_leaves_an_isr_without_replicas(
    world: World, isr: tuple[int, ...], said: str
) -> None:
    record = PartitionChangeRecord(partition_id=0, topic_id=world.topic_id, isr=isr)
    with pytest.raises(AssertionError, match=said):
        changes_of(world)._written(world.topic_id, 0, world.partition, record)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"partition_epoch": 0}, "partition epoch of its own"),
        ({"leader": 2}, "leader epoch of its own"),
    ],
)
def test_each_change_has_epochs_of_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch, fields: dict[str, int], said: str
) -> None:
    monkeypatch.setattr(
        "firnline.controller.partition_change.changed_partition",
        lambda before, record: before._replace(
            **{"partition_epoch": before.partition_epoch + 1} | fields
        ),
    )
    with pytest.raises(AssertionError, match=said):
        changes_of(world).restate(world.topic_id, 0)


def test_only_a_member_of_the_isr_leads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "firnline.controller.partition_change.elect",
        lambda *_, **__: ElectedLeader(3, False),
    )
    assert 3 not in world.partition.isr
    with pytest.raises(AssertionError, match="I26"):
        changes_of(world).change(world.topic_id, 0, AS_IT_IS)


def test_broker_epochs_grow() -> None:
    cluster = Cluster().with_brokers(1)
    image = cluster.quorum.image
    with pytest.raises(AssertionError, match="rel-R3"):
        cluster.controller._brokers.register(
            image,
            image.brokers[1].epoch,
            registration(1, 2),
            cluster.loop.now_ms,
            replaces_dead_incarnation=True,
        )


def test_shutdown_now_is_no_state_of_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster().with_brokers(1)
    broker = cluster.quorum.image.brokers[1]
    monkeypatch.setattr(brokers, "_state_of", lambda _: State.SHUTDOWN_NOW)
    with pytest.raises(AssertionError, match="no state"):
        cluster.controller._brokers._next_state(
            cluster.quorum.image, broker, Heartbeat(1, broker.epoch, 0)
        )
