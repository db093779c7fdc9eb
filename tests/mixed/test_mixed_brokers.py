"""Our brokers and Apache Kafka's hold copies of the same partitions, under controllers of either kind.

One cluster of each shape is run once, for all tests: three brokers, one of them alone of its kind, lose their
turn in order, by kill -9 with records that nobody copied, and with their disk.
"""

from typing import NamedTuple

import pytest

from tests.mixed.replicas import Report, of_brokers
from tests.peers.nodes import FIRNLINE, KAFKA

pytestmark = [pytest.mark.peer, pytest.mark.timeout(900)]


class Shape(NamedTuple):
    """Who decides, who is alone among the brokers, and which broker is ended how.

    The next in turn behind the one that dies is the one that is alone: they are of different kinds.
    """

    controller: str
    brokers: tuple[str, str, str]
    leaves: int
    loses_disk: int
    dies: int


SHAPES = {
    "under our controllers": Shape(FIRNLINE, (KAFKA, FIRNLINE, KAFKA), 4, 3, 2),
    "under their controllers": Shape(KAFKA, (FIRNLINE, KAFKA, FIRNLINE), 4, 3, 2),
}


@pytest.fixture(scope="module", params=list(SHAPES), ids=list(SHAPES))
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    shape = SHAPES[request.param]
    directory = tmp_path_factory.mktemp("mixed")
    replicas = of_brokers(directory, shape.controller, shape.brokers, seed=1)
    with replicas.running():
        replicas.leave(replicas.cluster[shape.leaves])
        replicas.lose_disk(replicas.cluster[shape.loses_disk])
        replicas.die(replicas.cluster[shape.dies])
    print(replicas.report)
    return replicas.report


def test_nothing_acknowledged_is_lost_doubled_or_reordered(report: Report) -> None:
    """Goal: an acks=all producer and a consumer never notice which kind leads."""
    assert report.records == []
    assert report.acked > 3000
    assert set(report.led) == {FIRNLINE, KAFKA}


def test_the_copies_of_a_partition_are_the_same_record_by_record(report: Report) -> None:
    """Goal: a follower has its leader's bytes and its epochs; Kafka's dump tool reads both alike."""
    assert report.logs == []


def test_a_tail_that_nobody_copied_is_cut_where_the_histories_part(report: Report) -> None:
    """Goal: DivergingEpoch is told and heard across kinds."""
    assert report.truncated[f"{KAFKA} by {FIRNLINE}"] + report.truncated[f"{FIRNLINE} by {KAFKA}"]


def test_a_broker_with_a_new_disk_comes_back_in_sync_and_leads(report: Report) -> None:
    """Method: the rounds go on only when the preferred leaders lead, the wiped one among them."""
    assert sum(report.wiped.values()) == 1


def test_a_group_outlives_its_coordinators_of_either_kind(report: Report) -> None:
    """Goal: no rebalance and no commit lost when __consumer_offsets is led by the other kind."""
    assert report.group == []
    assert set(report.coordinated) == {FIRNLINE, KAFKA}


def test_brokers_of_both_kinds_report_the_same_leaders_epochs_and_isr(report: Report) -> None:
    assert report.views == []


def test_every_metadata_log_and_image_is_the_same(report: Report) -> None:
    assert report.metadata == []


def test_a_log_that_kafka_compacted_is_copied_with_its_gaps(report: Report) -> None:
    """Goal: offsets that are gone and batches without a record are no damage to a follower of ours."""
    assert report.tidy == []
    assert report.gaps > 0 or not report.wiped[FIRNLINE]
