"""Our controllers and Apache Kafka's in one quorum: the hardest judge of the protocol there is."""

from pathlib import Path

import pytest

from tests.mixed.rounds import Report, Rounds
from tests.peers.nodes import FIRNLINE, KAFKA

pytestmark = pytest.mark.peer
ROUNDS = 2  # `make soak` goes on with more


def run(directory: Path, kinds: list[str], rounds: int) -> Report:
    """Run rounds with a seed of the shape; show what they came to."""
    report = Rounds(directory, kinds, seed=len(set(kinds))).run(rounds)
    print(report)
    assert report.violations == []
    assert report.led.keys() == set(kinds)
    assert report.kept >= rounds
    return report


@pytest.mark.soak
def test_the_checker_finds_nothing_wrong_with_kafka_alone(tmp_path: Path) -> None:
    """Goal: a difference found in a mixed quorum is ours, and no fault of the comparison."""
    run(tmp_path, [KAFKA, KAFKA, KAFKA], 1)


@pytest.mark.parametrize(
    "kinds",
    [[KAFKA, KAFKA, FIRNLINE], [FIRNLINE, FIRNLINE, KAFKA]],
    ids=["two of theirs", "two of ours"],
)
def test_a_quorum_of_both_kinds_agrees_on_every_record(tmp_path: Path, kinds: list[str]) -> None:
    """Goal: whoever leads, the others follow, and a wiped node comes back from either kind.
    Method: rounds of `Rounds`; at the end logs, snapshots and images of all nodes are equal."""
    report = run(tmp_path, kinds, ROUNDS)
    assert report.wiped[f"{FIRNLINE} by {KAFKA}"] >= ROUNDS
    assert report.wiped[f"{KAFKA} by {FIRNLINE}"] >= ROUNDS
    assert sum(report.truncated.values()) >= 1
