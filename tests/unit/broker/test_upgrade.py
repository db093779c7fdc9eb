"""A cluster that is upgraded under load: older controllers, and metadata.version raised step by step."""

from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.base.ids import NO_BROKER_EPOCH
from firnline.metadata.features import METADATA_VERSIONS
from firnline.metadata.image import METADATA_VERSION, PartitionImage
from firnline.protocol.messages.k01_fetch import FetchRequest
from firnline.protocol.messages.k56_alter_partition import AlterPartitionRequest
from firnline.protocol.messages.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from firnline.protocol.schema import Versions
from tests.unit.broker.test_replication import (
    BROKERS,
    all_equal,
    contents,
    isr,
    leader,
    led,
    produce,
    values,
)
from tests.worlds.cluster import Rig

CONTROLLERS = (1, 2, 3)
ROLES = {**dict.fromkeys(CONTROLLERS, "controller"), **dict.fromkeys(BROKERS, "broker")}
ALTER_PARTITION = 56
# 3.5-IV0: Fetch says who follows, and not yet which incarnation of it.
BEFORE_EPOCHS, SINCE_EPOCHS = 9, 10


def started(metadata_version: int = 30) -> Rig:
    rig = Rig(ROLES, metadata_version=metadata_version).start()
    made = rig.create_topic(4, "t", replicas=3, configs={"min_insync_replicas": "2"})
    assert made.error_code == 0, made
    rig.until(lambda: all(("t", 0) in rig[n].broker.partitions for n in BROKERS))
    rig.until(lambda: isr(rig) == BROKERS)
    return rig


def state(rig: Rig) -> PartitionImage:
    active = rig.active()
    assert active is not None
    found = rig[active].controller.image.partition("t", 0)
    assert found is not None
    return found


def upgrade(rig: Rig, level: int, node_id: int = 5) -> Any:
    row = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=level, upgrade_type=1)
    return rig.ask(node_id, UpdateFeaturesRequest(feature_updates=[row], timeout_ms=60_000), 1)


def replica_fetches(rig: Rig, since: int = 0) -> list[tuple[int, int]]:
    """(version, epoch of the follower as it travelled) of the Fetches among brokers."""
    return [
        (e.version, e.request.replica_state.replica_epoch)
        for e in rig.answered[since:]
        if isinstance(e.request, FetchRequest) and e.target in BROKERS and e.asker in BROKERS
    ]


def test_followers_say_who_they_are_once_the_cluster_is_new_enough_and_no_isr_is_lost() -> None:
    """I32: from 3.5-IV0 to 3.5-IV1 while records are written with acks=all."""
    rig = started(BEFORE_EPOCHS)
    assert produce(rig, "before").error_code == 0
    assert {version for version, _ in replica_fetches(rig)} == {14}
    followers = led(rig).followers
    assert {f.broker_epoch for f in followers.values()} == {NO_BROKER_EPOCH}
    before, seen = state(rig), len(rig.answered)
    assert upgrade(rig, SINCE_EPOCHS).error_code == 0
    sent = ["before"]

    def epochs_are_known() -> bool:
        sent.append(f"v{len(sent)}")
        assert produce(rig, sent[-1]).error_code == 0
        assert state(rig) == before, "nobody left the ISR, and nobody had to join it"
        known = {n: f.broker_epoch for n, f in led(rig).followers.items()}
        return known == {n: rig[n].broker.broker_epoch for n in known}

    rig.until(epochs_are_known)
    assert values(rig) == sent  # also gives parked Fetches the time to be answered
    epochs = {f.broker_epoch for f in followers.values()}
    rig.until(lambda: {each for each in replica_fetches(rig, seen) if each[0] == 15})
    assert {epoch for version, epoch in replica_fetches(rig, seen) if version == 15} <= epochs
    rig.until(lambda: all_equal(rig))


def test_a_follower_without_an_epoch_joins_and_one_that_restarts_after_the_upgrade_has_its_own() -> (
    None
):
    """Both ways into the ISR across the upgrade: unchecked before it, with the new epoch behind it."""
    rig = started(BEFORE_EPOCHS)
    follower = next(n for n in BROKERS if n != leader(rig))
    for is_upgraded in (False, True):
        rig[follower].kill()
        rig.until(lambda: follower not in isr(rig))
        if is_upgraded:
            assert upgrade(rig, SINCE_EPOCHS, node_id=next(iter(set(BROKERS) - {follower})))
        rig[follower].format()
        rig[follower].start()
        rig.until(lambda: rig[follower].is_running and isr(rig) == BROKERS)
        [row] = _last_alter(rig).topics[0].partitions
        epochs = {m.broker_id: m.broker_epoch for m in row.new_isr_with_epochs}
        own = rig[follower].broker.broker_epoch if is_upgraded else NO_BROKER_EPOCH
        assert epochs[follower] == own
    assert all_equal(rig)


def _last_alter(rig: Rig) -> AlterPartitionRequest:
    found = [m for _, _, m in rig.sent if isinstance(m, AlterPartitionRequest)]
    return found[-1]


def test_every_level_is_reached_one_by_one_while_records_are_written() -> None:
    levels = [level for level in METADATA_VERSIONS if level >= BEFORE_EPOCHS]
    rig = started(levels[0])
    sent = []
    for level in levels[1:]:
        # Above 3.7 no level is raised before all controllers have registered.
        rig.until(lambda at=level: upgrade(rig, at).error_code == 0)
        rig.until(lambda at=level: all(rig[n].node.image.metadata_version == at for n in ROLES))  # type: ignore[union-attr]
        sent.append(f"at {level}")
        assert produce(rig, sent[-1]).error_code == 0
        assert tuple(sorted(state(rig).isr)) == BROKERS
    assert values(rig) == sent
    assert upgrade(rig, max(levels) + 1).error_code == Code.INVALID_UPDATE_VERSION
    rig.until(lambda: all_equal(rig))


@pytest.mark.parametrize("spoken_first", [2, 3])
def test_each_controller_is_asked_in_the_newest_version_that_it_knows(spoken_first: int) -> None:
    """I31: ids alone to a controller that knows no epochs; with epochs to the next one, or the other way."""
    rig = started()
    first = rig.active()
    assert first is not None
    spoken_then = 5 - spoken_first
    for n in CONTROLLERS:
        newest = spoken_first if n == first else spoken_then
        rig.spoken[n] = {ALTER_PARTITION: Versions(2, newest)}
    follower = next(n for n in BROKERS if n != leader(rig))
    held = contents(led(rig))
    for spoken in (spoken_first, spoken_then):
        seen = len(rig.answered)
        rig[follower].kill()
        rig.until(lambda: follower not in isr(rig))
        rig[follower].start()
        rig.until(lambda: rig[follower].is_running and isr(rig) == BROKERS)
        alters = [e for e in rig.answered[seen:] if isinstance(e.request, AlterPartitionRequest)]
        assert {e.version for e in alters} == {spoken}
        if spoken == spoken_first:
            rig[first].kill()
            rig.until(lambda: rig.active() not in (None, first))
    assert contents(led(rig)) == held
