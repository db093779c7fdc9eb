"""A cluster of Kafka's moves over to ours while it is written to and read, as docs/MIGRATION.md says."""

from pathlib import Path

import pytest

from tests.mixed.migration import AT_RELEASE, COMBINED_NODES, Migration
from tests.mixed.replicas import Report
from tests.peers.nodes import AT_ZERO, FIRNLINE, KAFKA

PAGE = Path(__file__).parents[2] / "docs" / "MIGRATION.md"
pytestmark = pytest.mark.timeout(900)


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


@pytest.mark.peer
def test_a_cluster_moves_over_and_back_and_nothing_acknowledged_is_lost(report: Report) -> None:
    """Goal: no error at a producer but those that it tries again, each record once and in order."""
    assert report.records == []
    assert report.faults == 6
    assert set(report.led) == {FIRNLINE, KAFKA}


@pytest.mark.peer
def test_a_group_goes_on_while_its_cluster_moves(report: Report) -> None:
    """Goal: no error at a consumer but those that it tries again, no rebalance, no commit lost."""
    assert report.group == []
    assert set(report.coordinated) == {FIRNLINE, KAFKA}


@pytest.mark.peer
def test_copies_leaders_and_metadata_are_the_same_on_all_nodes_afterwards(report: Report) -> None:
    assert report.logs == []
    assert report.views == []
    assert report.metadata == []
    assert report.tidy == []


def test_the_page_lowers_and_raises_the_features_that_were_lowered_and_raised_here() -> None:
    """... and does not say the short form, which makes the quorum one that cannot move over again."""
    text = " ".join(PAGE.read_text().replace("\\\n", " ").split())
    assert " ".join(["downgrade", *AT_ZERO]) in text
    assert " ".join(["upgrade", *AT_RELEASE]) in text
    assert "upgrade --release-version" not in text
