"""A byte flips in a log while it is served: that replica is lost, and nothing else of the node."""

from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.errors import Code, SegmentDamaged, StorageError
from firnline.base.ids import LOST_DIRECTORY
from firnline.log.log import Log
from firnline.replica.partition import Partition
from tests.unit.broker.test_directories import (
    directory,
    replica_of,
    state,
    write,
)
from tests.unit.broker.test_replication import BROKERS, ROLES, SESSION_MS
from tests.worlds.cluster import Rig
from tests.worlds.harness import METADATA_VERSION

LOOK_MS = 500


def two_partitions(*, metadata_version: int = METADATA_VERSION) -> Rig:
    """Three brokers of one log directory each, with both partitions of t."""
    settings = {"log_retention_check_interval_ms": str(LOOK_MS)}
    rig = Rig(ROLES, metadata_version=metadata_version, **settings).start()
    made = rig.create_topic(4, "t", replicas=3, partitions=2)
    assert made.error_code == 0, made
    rig.until(lambda: all(("t", 1) in rig[n].broker.partitions for n in BROKERS))
    return rig


def damage(monkeypatch: pytest.MonkeyPatch, lost: Partition) -> None:
    """Let the next job of retention find the log damaged."""
    real: Callable[..., Any] = Log.delete_due_segments

    def find(log: Log, *times: Any) -> Any:
        if log is lost.log:
            raise SegmentDamaged("a segment is damaged below its recovery point", path=log.path)
        return real(log, *times)

    monkeypatch.setattr(Log, "delete_due_segments", find)


def test_a_damaged_leader_is_replaced_and_the_broker_serves_all_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The only log directory would fail as a whole, and a flipped byte end a node."""
    rig = two_partitions()
    node_id = state(rig).leader
    lost = replica_of(rig, node_id, 0)
    damage(monkeypatch, lost)
    assert rig.until(lambda: state(rig).leader != node_id) < 2 * LOOK_MS + 1_000
    assert (lost.is_damaged, directory(rig, node_id)) == (True, LOST_DIRECTORY)
    assert node_id not in state(rig).isr
    assert write(rig, state(rig).leader, 0) == Code.NONE
    rig.pass_time(4 * SESSION_MS)
    assert directory(rig, node_id) == LOST_DIRECTORY, (
        "it does not report the replica as there again"
    )
    assert node_id not in state(rig).isr
    assert not rig[node_id].broker.image.brokers[node_id].fenced
    assert node_id in state(rig, index=1).isr
    assert not rig[node_id].broker.storage.failed_directories


def test_a_damaged_replica_is_found_again_after_a_clean_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A marker of a clean stop would let the next start trust files that are known to be damaged."""
    rig = two_partitions()
    node_id = BROKERS[0]
    damage(monkeypatch, replica_of(rig, node_id, 0))
    rig.until(lambda: replica_of(rig, node_id, 0).is_offline)
    storage = rig[node_id].broker.storage
    storage.close(7)
    (kept,) = storage.directories
    assert not rig[node_id].fs.exists(f"{kept.path}/.kafka_cleanshutdown")


def test_a_controller_that_cannot_be_told_of_it_is_left_by_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Below 3.7-IV2 the broker would remain the leader of what it cannot serve."""
    rig = two_partitions(metadata_version=16)
    damage(monkeypatch, replica_of(rig, BROKERS[0], 0))
    with pytest.raises(StorageError, match="out of use"):
        rig.pass_time(2 * LOOK_MS)
