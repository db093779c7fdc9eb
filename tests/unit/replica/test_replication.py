"""All replicas of a node: what it proposes as a leader, whom it follows, and what the operator is told."""

from typing import Any

from firnline.base.effects import CancelTimer, Effects, SetTimer, Warn
from firnline.replica.directories import DirectoryAssignments
from firnline.replica.isr import NO_BROKERS, Brokers
from firnline.replica.partition import Partition
from firnline.replica.replication import ReplicaSettings, Replication
from tests.unit.replica.test_alter import proposing
from tests.unit.replica.test_late_copies import lost_and_refused


class Node:
    """Replication of broker 1, whose requests go nowhere."""

    def __init__(self, *partitions: Partition, brokers: Brokers = NO_BROKERS) -> None:
        self.hosted = list(partitions)
        self.asked: list[Any] = []
        self.timer: SetTimer | None = None
        self.replication = Replication(
            node_id=1,
            settings=ReplicaSettings(lag_max_ms=1000, backoff_ms=1000),
            brokers=brokers,
            hosted=lambda: self.hosted,
            leaders=self,  # type: ignore[arg-type]
            ask_controller=lambda *asked: self.asked.append(asked) or [],  # type: ignore[func-returns-value]
            on_storage_failure=lambda p, now_ms: [],
            assignments=DirectoryAssignments(
                said=lambda topic_id, number: None,
                actual=lambda p: None,
                is_failed=lambda directory: False,
                assign=lambda wanted, then, now_ms: [],
            ),
        )

    def fetch(self, leader_id: int, *asked: Any) -> Effects:
        self.asked.append((leader_id, *asked))
        return []

    def run(self, effects: Effects) -> list[str]:
        """Keep the timer of the look; return what the operator is told."""
        for effect in effects:
            if isinstance(effect, SetTimer):
                self.timer = effect
            elif isinstance(effect, CancelTimer) and self.timer and self.timer.key == effect.key:
                self.timer = None
        return [effect.line for effect in effects if isinstance(effect, Warn)]

    def look(self) -> list[str]:
        assert self.timer is not None
        return self.run(self.timer.then(self.timer.at_ms))


def test_the_operator_hears_once_of_a_request_that_holds_up_commits_and_of_each_new_one() -> None:
    """What was answered between two looks is no news; what lasts is said, and said anew if it comes back."""
    held_up = lost_and_refused().p
    node = Node(held_up, brokers=held_up.brokers)
    node.run(node.replication.start(0))
    said: list[str] = []
    for look in range(8):
        node.hosted = [] if look == 5 else [held_up]
        said += [f"{look}: {line}" for line in node.look()]
    assert [line[0] for line in said] == ["1", "7"]
    assert "t-0: a request to take brokers [2] into the ISR was not answered" in said[0]


def test_a_node_that_stops_follows_nobody_and_proposes_nothing_any_more() -> None:
    """What others tell it on its way out would otherwise begin anew what was just ended."""
    p = proposing()
    node = Node(p)
    node.run(node.replication.start(0))
    timer = node.timer
    assert timer is not None
    node.run(node.replication.stop())
    assert node.timer is None
    assert timer.then(timer.at_ms) == []
    assert node.replication.on_follower(p, 0) == []
    p.update(leader_id=2, leader_epoch=4, partition_epoch=9, replicas=(1, 2), isr=(2,))
    assert node.replication.on_update(p, 0) == []
    assert node.asked == []
    other = Node(p)
    other.replication.on_update(p, 0)
    assert [asked[0] for asked in other.asked] == [2], "it would have asked"
