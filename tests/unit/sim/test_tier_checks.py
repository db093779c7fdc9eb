"""The checks of a simulated tier see what they are for."""

from types import SimpleNamespace
from typing import Any

import pytest

from firnline.base.units import INT64_MAX
from firnline.sim.cluster.ledger import Ledger
from firnline.sim.tier.checks import TierChecks
from firnline.sim.tier.recorded import DELETING, FINISHED, KnownSegment
from firnline.sim.tier.store import SharedStore
from tests.unit.tiered.test_tiered_read import tiered
from tests.worlds.tier import TOPIC_ID, Cluster

KEY = (TOPIC_ID, 0)


class Ground:
    """A leader whose partition has four segments of two records each in the tier."""

    def __init__(self, epochs: tuple[tuple[int, int], ...], log_start: int) -> None:
        self.log = SimpleNamespace(
            is_tiered=True,
            epochs=SimpleNamespace(entries=lambda: epochs),
            log_start_offset=log_start,
            local_log_start_offset=8,
        )
        leader = SimpleNamespace(is_leader=True, leader_id=1, log=self.log)
        dirty: Any = SimpleNamespace(partition=lambda key: SimpleNamespace(leader=1))
        replicas: Any = SimpleNamespace(running=lambda key, node_id: leader)
        self.said: list[str] = []
        self.ledger = Ledger()
        self.checks = TierChecks(
            {}, SharedStore(), self.ledger, dirty, replicas, lambda name, *_: self.said.append(name)
        )
        self.known = [KnownSegment(each) for each in tiered(Cluster()).segments()]
        for each in self.known:
            each.state, each.current_end = FINISHED, each.segment.end_offset + 1
        found = {each.segment.segment_id: each for each in self.known}
        self.checks.recorded.by_partition[KEY] = found

    def delete(self, number: int) -> bool:
        """The deletion of a segment begins; whether that is against rel-T14."""
        known = self.known[number]
        known.state = DELETING
        self.checks.recorded.on_change(KEY, known, FINISHED)
        return "rel-T14" in self.said


@pytest.mark.parametrize("epochs", [((3, 6),), ()], ids=["from local batches", "none"])
@pytest.mark.parametrize("log_start", [0, 2])
def test_a_leader_without_the_epochs_of_what_the_tier_has_may_delete_nothing(
    epochs: tuple[tuple[int, int], ...], log_start: int
) -> None:
    """rel-T14."""
    for number in range(3):
        assert Ground(epochs, log_start).delete(number)


def test_a_segment_of_another_lineage_needs_the_epochs_of_the_rest_as_well() -> None:
    """rel-T14: it seems to be of another lineage to a leader that lacks epochs."""
    ground = Ground(((3, 6),), 0)
    ground.known[1].current_end = ground.known[1].segment.base_offset
    assert ground.delete(1)


@pytest.mark.parametrize(
    ("epochs", "log_start", "decided"),
    [
        (((0, 0),), 0, 0),  # all are known
        (((0, 2), (3, 6)), 2, 0),
        (((3, 1),), 1, 0),  # the log begins there, within a segment
        (((3, 8),), 8, 0),
        (((3, 8),), 0, 8),  # and a crash took its start back
        ((), INT64_MAX, 0),
    ],
)
def test_a_leader_with_all_epochs_above_its_log_start_may_delete(
    epochs: tuple[tuple[int, int], ...], log_start: int, decided: int
) -> None:
    ground = Ground(epochs, log_start)
    ground.ledger.of(KEY).start_offset = decided
    assert not ground.delete(0)


def test_a_topic_that_is_no_longer_tiered_is_deleted_without_epochs() -> None:
    ground = Ground((), 0)
    ground.log.is_tiered = False
    assert not ground.delete(0)
