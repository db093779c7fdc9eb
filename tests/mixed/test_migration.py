"""A cluster of Kafka's moves over to ours while it is written to and read, as docs/MIGRATION.md says."""

import pytest

from tests.mixed.migration import COMBINED_NODES, Migration
from tests.mixed.replicas import Report
from tests.peers.nodes import FIRNLINE, KAFKA

pytestmark = [pytest.mark.peer, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    migration = Migration(tmp_path_factory.mktemp("migration"), COMBINED_NODES)
    with migration.replicas.running():
        migration.check_settings()
        migration.lower_features()
        migration.to_ours()
        assert {node.kind for node in migration.cluster.nodes.values()} == {FIRNLINE}
        migration.back()
        assert {node.kind for node in migration.cluster.nodes.values()} == {KAFKA}
        migration.raise_features()
    print(migration.report)
    return migration.report


def test_a_cluster_moves_over_and_back_and_nothing_acknowledged_is_lost(report: Report) -> None:
    """Goal: no error at a producer but those that it tries again, each record once and in order."""
    assert report.records == []
    assert report.faults == 6
    assert set(report.led) == {FIRNLINE, KAFKA}


def test_a_group_goes_on_while_its_cluster_moves(report: Report) -> None:
    """Goal: no error at a consumer but those that it tries again, no rebalance, no commit lost."""
    assert report.group == []
    assert set(report.coordinated) == {FIRNLINE, KAFKA}


def test_copies_leaders_and_metadata_are_the_same_on_all_nodes_afterwards(report: Report) -> None:
    assert report.logs == []
    assert report.views == []
    assert report.metadata == []
    assert report.tidy == []
