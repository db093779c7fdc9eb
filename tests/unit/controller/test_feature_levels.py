"""UpdateFeatures: the cluster never runs what one of its nodes cannot (KIP-584, I32)."""

from typing import Any

import pytest
from immutables import Map

from firnline.base.errors import Code, KafkaError
from firnline.controller.feature_levels import FeatureUpdate, UpdateType
from firnline.metadata import records as r
from firnline.metadata.features import METADATA_VERSIONS
from firnline.metadata.image import ControllerImage, FeatureRange
from firnline.metadata.result import ControllerResult
from tests.worlds.quorum import Cluster, MemoryLog, registration

MV = "metadata.version"
UPGRADE, SAFE, UNSAFE = UpdateType.UPGRADE, UpdateType.SAFE_DOWNGRADE, UpdateType.UNSAFE_DOWNGRADE


class World:
    """A cluster at a level of metadata.version; controller 1 has registered where that exists."""

    def __init__(self, level: int) -> None:
        bootstrap = (r.FeatureLevelRecord(name=MV, feature_level=level),)
        self.cluster = Cluster(log=MemoryLog(bootstrap)).start()
        self.register_controller(1)

    def register_controller(self, node_id: int, highest: int = 30) -> None:
        features = Map({MV: FeatureRange(7, highest)})
        image = ControllerImage(node_id, bytes([node_id]) * 16, (), features)
        self.cluster.write(self.cluster.controller.register_controller(image))

    def register_broker(self, node_id: int, highest: int) -> None:
        features = Map({MV: FeatureRange(7, highest)})
        wanted = registration(node_id)._replace(features=features)
        self.cluster.write(self.cluster.controller.register_broker(wanted, 0))

    @property
    def level(self) -> int:
        return self.cluster.quorum.image.metadata_version

    def update(self, *rows: tuple[str, int, int], **options: Any) -> KafkaError | None:
        wanted = [FeatureUpdate(*row) for row in rows]
        result = self.cluster.controller.update_features(wanted, **({"voters": (1,)} | options))
        answer = self.cluster.write(result)
        assert answer is None or isinstance(answer, KafkaError)
        return answer

    def refusal(self, *rows: tuple[str, int, int], **options: Any) -> str:
        """Why nothing was changed."""
        before = self.cluster.quorum.next_offset
        answer = self.update(*rows, **options)
        assert answer is not None
        assert answer.code == Code.INVALID_UPDATE_VERSION
        assert self.cluster.quorum.next_offset == before
        return answer.why


def test_the_level_is_raised_and_records_are_written_as_it_says_from_then_on() -> None:
    world = World(16)
    assert world.update((MV, 17, UPGRADE)) is None
    assert world.level == 17
    world.register_broker(4, 30)
    assert world.cluster.quorum.image.brokers[4].log_dirs, "since 17 a broker's record has them"


def test_a_level_that_a_broker_cannot_act_on_is_refused() -> None:
    world = World(21)
    world.register_broker(4, 25)
    assert "broker 4 supports levels 7 to 25" in world.refusal((MV, 26, UPGRADE))
    assert world.update((MV, 25, UPGRADE)) is None


def test_a_level_that_a_controller_cannot_act_on_is_refused() -> None:
    world = World(21)
    world.register_controller(2, highest=25)
    assert "controller 2 supports" in world.refusal((MV, 26, UPGRADE), voters=(1, 2))
    assert world.update((MV, 25, UPGRADE), voters=(1, 2)) is None


def test_a_voter_that_nobody_knows_holds_the_level() -> None:
    world = World(21)
    assert "controller 3" in world.refusal((MV, 22, UPGRADE), voters=(1, 3))
    world.register_controller(3)
    assert world.update((MV, 22, UPGRADE), voters=(1, 3)) is None


def test_before_controllers_register_none_is_asked_for() -> None:
    world = World(14)
    assert world.update((MV, 15, UPGRADE), voters=(1, 2, 3)) is None
    assert world.level == 15


@pytest.mark.parametrize("level", [-1, 0, 6, 31, 32767])
def test_a_level_that_does_not_exist_is_refused(level: int) -> None:
    world = World(21)
    world.refusal((MV, level, UPGRADE))
    world.refusal((MV, level, UNSAFE))


def test_features_that_are_not_there_or_not_acted_on_are_refused() -> None:
    world = World(30)
    for name in ("group.version", "kraft.version", "eligible.leader.replicas.version"):
        assert "raise metadata.version by itself" in world.refusal((name, 1, UPGRADE))
    for name in ("nope", ""):
        world.refusal((name, 1, UPGRADE))
    world.refusal(("nope", 0, UPGRADE))
    assert world.update(("group.version", 0, UPGRADE)) is None
    assert world.cluster.quorum.image.features == Map({MV: 30})


@pytest.mark.parametrize("kind", [0, 4, -1])
def test_an_unknown_type_of_update_is_refused(kind: int) -> None:
    World(21).refusal((MV, 22, kind))


def test_an_update_that_goes_the_other_way_than_it_says_is_refused() -> None:
    world = World(21)
    assert "does not allow a downgrade" in world.refusal((MV, 20, UPGRADE))
    assert "no downgrade" in world.refusal((MV, 22, SAFE))
    assert world.update((MV, 21, SAFE)) is None


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_a_downgrade_never_loses_what_records_say(kind: int) -> None:
    """4.3.1 states at which levels its records changed: 30, 23, 17, 15, 14, 13, 11, 8."""
    lossless = {
        high: [low for low in METADATA_VERSIONS if low < high and not any(
            low < changed <= high for changed in (8, 11, 13, 14, 15, 17, 23, 30)
        )]
        for high in (30, 29, 22, 16)
    }  # fmt: skip
    assert lossless == {
        30: [],
        29: [23, 24, 25, 26, 27, 28],
        22: [17, 18, 19, 20, 21],
        16: [15],
    }
    for high, lows in lossless.items():
        for low in METADATA_VERSIONS:
            if low >= high:
                continue
            world = World(high)
            if low in lows:
                assert world.update((MV, low, kind)) is None
                assert world.level == low
            else:
                assert "would be lost" in world.refusal((MV, low, kind))


def test_one_wrong_level_changes_none_of_the_others() -> None:
    world = World(21)
    world.refusal((MV, 22, UPGRADE), ("nope", 1, UPGRADE))
    assert world.level == 21


def test_validation_alone_changes_nothing() -> None:
    world = World(21)
    assert world.update((MV, 22, UPGRADE), validate_only=True) is None
    assert world.level == 21
    world.refusal((MV, 31, UPGRADE), validate_only=True)


def test_a_level_that_is_there_is_no_record() -> None:
    world = World(21)
    offset = world.cluster.quorum.next_offset
    assert world.update((MV, 21, UPGRADE)) is None
    assert world.cluster.quorum.next_offset == offset


def test_the_level_is_raised_in_the_middle_of_what_the_cluster_does() -> None:
    """I32: what was decided before and after it, in one go, is all there, each in its own form."""
    world = World(9)
    before = world.cluster.quorum.next_offset
    writes: list[ControllerResult[Any]] = []
    for node_id in (4, 5):
        wanted = registration(node_id)
        result = world.cluster.controller.register_broker(wanted, 0)
        world.cluster.loop.run(world.cluster.quorum.write(result, lambda a, t: [], 0))
        writes.append(result)
        if node_id == 4:
            raised = world.cluster.controller.update_features([FeatureUpdate(MV, 10)], voters=(1,))
            world.cluster.loop.run(world.cluster.quorum.write(raised, lambda a, t: [], 0))
    world.cluster.loop.sync()
    assert world.level == 10
    assert sorted(world.cluster.quorum.image.brokers) == [4, 5]
    assert world.cluster.quorum.next_offset == before + 3
