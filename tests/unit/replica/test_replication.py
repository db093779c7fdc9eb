"""All replicas of a node: what it proposes as a leader, whom it follows, and what the operator is told."""

from itertools import pairwise
from typing import Any

from firnline.base.effects import Effects
from firnline.base.log_lines.line import WARNING
from firnline.replica import replication
from firnline.replica.directories import DirectoryAssignments
from firnline.replica.isr import NO_BROKERS, Brokers, NoBrokers
from firnline.replica.partition import Partition
from firnline.replica.replication import ReplicaSettings, Replication
from tests.unit.replica.test_alter import proposing
from tests.unit.replica.test_unanswered_proposals import lost_and_refused
from tests.worlds.effects import World, told
from tests.worlds.list_log import partition

LOOK = ("replica", "shrink")


class Node(World):
    """Replication of broker 1, whose requests go nowhere."""

    def __init__(self, *partitions: Partition, brokers: Brokers = NO_BROKERS) -> None:
        super().__init__()
        self.hosted = list(partitions)
        self.asked: list[Any] = []
        self.on_asked: Effects = []
        self.replication = Replication(
            node_id=1,
            settings=ReplicaSettings(lag_max_ms=1000, backoff_ms=1000),
            brokers=brokers,
            hosted=lambda: self.hosted,
            leaders=self,  # type: ignore[arg-type]
            ask_controller=self.ask_controller,  # type: ignore[arg-type]
            on_storage_failure=lambda p, now_ms: [],
            assignments=DirectoryAssignments(
                said=lambda topic_id, number: None,
                actual=lambda p: None,
                is_failed=lambda directory: False,
                assign=lambda wanted, then, now_ms: [],
            ),
        )

    def ask_controller(self, *asked: Any) -> Effects:
        self.asked.append(asked)
        return list(self.on_asked)

    def fetch(self, leader_id: int, *asked: Any) -> Effects:
        self.asked.append((leader_id, *asked))
        return []

    def turn(self) -> list[str]:
        """Fire the one timer there is; return what the operator is told."""
        [key] = self.timers
        before = len(self.warnings)
        self.fire(key)
        return self.warnings[before:]

    def look(self) -> list[str]:
        """Look at all partitions, until the next look is due."""
        said = self.turn()
        while LOOK not in self.timers:
            said += self.turn()
        return said


def behind(index: int) -> Partition:
    """A leader whose follower, broker 2, never asked for anything."""
    p = partition(index=index)
    p.update(leader_id=1, leader_epoch=3, partition_epoch=0, replicas=(1, 2), isr=(1, 2))
    p.brokers = NoBrokers()
    return p


def test_the_operator_learns_once_of_a_request_that_holds_up_commits_and_of_each_new_one() -> None:
    """What was answered between two looks is no news; what lasts is said, and said anew if it comes back."""
    held_up = lost_and_refused().p
    node = Node(held_up, brokers=held_up.brokers)
    node.run(node.replication.start(0))
    said: list[str] = []
    for look in range(8):
        node.hosted = [] if look == 5 else [held_up]
        said += [f"{look}: {line}" for line in node.look()]
    assert [line[0] for line in said] == ["1", "7"]
    assert "a request to grow the ISR was not answered topic=t partition=0 joining=2" in said[0]


def test_a_look_at_thousands_of_partitions_is_taken_in_slices() -> None:
    """Goal: heartbeats are in time. Method: count whom each turn proposes to leave out of the ISR."""
    count = 3 * replication._CHECKS_PER_SLICE + 10
    led = [behind(index) for index in range(count)]
    node = Node(*led)
    node.run(node.replication.start(0))
    node.turn()
    proposed = []
    while LOOK not in node.timers:
        node.turn()
        proposed.append(sum(p.proposed is not None for p in led))
    steps = [later - before for before, later in pairwise([0, *proposed])]
    assert max(steps) <= replication._CHECKS_PER_SLICE
    assert proposed[-1] == count


def test_what_a_slice_of_a_look_asks_for_is_asked_for_once() -> None:
    """Else the controller gets each request again with every slice that follows."""
    node = Node(*[behind(index) for index in range(3 * replication._CHECKS_PER_SLICE)])
    node.on_asked = [told("asked", WARNING)]
    node.run(node.replication.start(0))
    assert node.look().count("asked") == len(node.asked) == 1


def test_a_partition_that_leaves_while_others_are_looked_at_proposes_nothing() -> None:
    led = [behind(index) for index in range(2 * replication._CHECKS_PER_SLICE)]
    node = Node(*led)
    node.run(node.replication.start(0))
    node.turn()
    node.turn()
    led[-1].retire()
    while LOOK not in node.timers:
        node.turn()
    assert [p.proposed is None for p in led[-2:]] == [False, True]


def test_a_node_that_stops_in_the_middle_of_a_look_ends_it() -> None:
    led = [behind(index) for index in range(2 * replication._CHECKS_PER_SLICE)]
    node = Node(*led)
    node.run(node.replication.start(0))
    node.turn()
    node.turn()
    node.run(node.replication.stop())
    while node.timers:
        node.turn()
    assert led[-1].proposed is None


def test_a_node_that_stops_follows_nobody_and_proposes_nothing_any_more() -> None:
    """What others tell it on its way out would otherwise begin anew what was just ended."""
    p = proposing()
    node = Node(p)
    node.run(node.replication.start(0))
    timer = node.timers[LOOK]
    node.run(node.replication.stop())
    assert not node.timers
    assert timer.then(timer.at_ms) == []
    assert node.replication.on_follower(p, 0) == []
    p.update(leader_id=2, leader_epoch=4, partition_epoch=9, replicas=(1, 2), isr=(2,))
    assert node.replication.on_update(p, 0) == []
    assert node.asked == []
    other = Node(p)
    other.replication.on_update(p, 0)
    assert [asked[0] for asked in other.asked] == [2], "it would have asked"
