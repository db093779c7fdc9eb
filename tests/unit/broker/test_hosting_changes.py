"""A change of many partitions is acted on in slices, and nothing is lost or acknowledged in between."""

import pytest

from firnline.base.effects import Effects
from firnline.base.errors import StorageError
from firnline.base.ids import TopicPartition
from firnline.broker.hosting import AT_ONCE, _Unserved
from firnline.metadata import records as r
from tests.worlds.hosting_node import ID, OTHER_ID, Node, moved, placed, topic
from tests.worlds.list_log import NODE_ID, log_of

MANY = 4 * AT_ONCE


def with_many(*replicas: int) -> Node:
    node = Node()
    node.commit(topic(), *(placed(index, replicas=replicas or (NODE_ID,)) for index in range(MANY)))
    assert len(node.hosted) == MANY
    node.reported.clear()
    return node


def by_turns(node: Node) -> list[tuple[int, int]]:
    """Go on turn by turn; return how many were told of something, and dropped, in each."""
    turns = []
    while node.work:
        before = len(node.reported), len(node.store.dropped)
        node.go_on()
        turns.append((len(node.reported) - before[0], len(node.store.dropped) - before[1]))
    return turns


def test_a_topic_of_many_partitions_is_dropped_in_slices_and_refused_at_once() -> None:
    """What its name means in a client's next request is another topic, if any."""
    node = with_many()
    partitions = [node.partition(index=index) for index in range(MANY)]
    node.holds_work = True
    node.commit(r.RemoveTopicRecord(topic_id=ID))
    assert all(p.refusal is not None and not p.is_leader for p in partitions)
    assert len(node.store.dropped) <= AT_ONCE
    assert max(dropped for _, dropped in by_turns(node)) <= AT_ONCE
    assert node.store.dropped == [TopicPartition("t", index) for index in range(MANY)]
    assert [name for name, _ in node.reported].count("leadership_ended") == MANY
    assert len(node.hosted) == 0


def test_leaderships_of_many_partitions_are_taken_in_slices_and_in_order() -> None:
    node = with_many(2, NODE_ID)
    node.holds_work = True
    node.commit(*(moved(index, leader=NODE_ID) for index in range(MANY)))
    assert len(node.reported) <= AT_ONCE
    assert max(reported for reported, _ in by_turns(node)) <= AT_ONCE
    assert node.reported == [
        ("leadership_began", TopicPartition("t", index)) for index in range(MANY)
    ]


def test_settings_of_many_partitions_reach_them_in_slices() -> None:
    node = with_many()
    node.holds_work = True
    node.commit(
        r.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="12345")
    )
    assert max(reported for reported, _ in by_turns(node)) <= AT_ONCE
    logs = [log_of(node.partition(index=index)) for index in range(MANY)]
    assert {log.config.retention_ms for log in logs} == {12345}


def test_a_change_waits_for_the_one_before_it_and_nobody_leads_what_it_has_lost() -> None:
    node = with_many(2, NODE_ID)
    node.holds_work = True
    node.commit(*(moved(index, leader=NODE_ID) for index in range(MANY)))
    node.commit(moved(MANY - 1, leader=2))
    last = node.partition(index=MANY - 1)
    assert last.leader_epoch == 0, "its turn has not come"
    while node.work:
        node.go_on()
    assert (last.leader_epoch, last.is_leader) == (2, False)
    assert ("leadership_began", TopicPartition("t", MANY - 1)) not in node.reported


def test_a_topic_made_again_while_the_old_one_is_dropped_is_opened_after_it() -> None:
    node = with_many()
    node.holds_work = True
    node.commit(r.RemoveTopicRecord(topic_id=ID))
    node.commit(
        topic(topic_id=OTHER_ID), *(placed(index, topic_id=OTHER_ID) for index in range(MANY))
    )
    while node.work:
        dropped = len(node.store.dropped)
        node.go_on()
        assert dropped == MANY or len(node.store.opened) == MANY
    assert len(node.hosted) == MANY
    assert {partition.topic_id for partition in node.hosted} == {OTHER_ID}


def test_a_leadership_that_comes_while_its_topic_is_deleted_is_not_taken() -> None:
    """Records would be acknowledged that are about to go."""
    node = with_many(2, NODE_ID)
    node.holds_work = True
    node.commit(*(moved(index, leader=NODE_ID) for index in range(MANY)))
    node.commit(r.RemoveTopicRecord(topic_id=ID))
    while node.work:
        node.go_on()
        assert all(p.refusal is not None for p in node.hosted)
    assert len(node.hosted) == 0


def test_what_is_believed_of_brokers_is_no_newer_than_the_partitions() -> None:
    """A leader that took a broker for gone before it knew its place in the ISR would count without it."""
    node = with_many(2, NODE_ID)
    node.holds_work = True
    before = node.image
    node.commit(*(moved(index, leader=NODE_ID) for index in range(MANY)))
    seen = []
    while node.work:
        seen.append((node.hosting.acted_on is before, node.partition(index=MANY - 1).is_leader))
        node.go_on()
    assert seen[0] == (True, False)
    assert all(is_old or leads for is_old, leads in seen)
    assert node.hosting.acted_on is node.image
    node.commit(moved(0, leader=2))
    assert node.hosting.acted_on is node.image


def test_whoever_waits_for_a_change_of_many_is_notified_at_its_end() -> None:
    node = with_many(2, NODE_ID)
    node.holds_work = True
    node.commit(*(moved(index, leader=NODE_ID) for index in range(MANY)))
    seen: list[int] = []

    def reported(now_ms: int) -> Effects:
        seen.append(len(node.reported))
        return []

    node.run(node.hosting.when_applied(reported, 0))
    node.run(node.hosting.when_settled(reported, 0))
    while node.work:
        node.go_on()
    assert seen == [MANY, MANY]


def test_a_node_that_stops_drops_first_what_was_deleted_and_lets_others_have_their_turn() -> None:
    """Left lying, the next start would take it for the records of a cluster that is not this one."""
    node = with_many()
    node.holds_work = True
    node.commit(topic("u", OTHER_ID), *(placed(index, topic_id=OTHER_ID) for index in range(MANY)))
    while node.work:
        node.go_on()
    node.reported.clear()
    node.commit(r.RemoveTopicRecord(topic_id=ID))
    seen: list[int] = []

    def left(now_ms: int) -> Effects:
        seen.append(len(node.reported))
        return []

    node.run(node.hosting.leave(left, 0))
    node.commit(r.RemoveTopicRecord(topic_id=OTHER_ID))
    assert max(reported for reported, _ in by_turns(node)) <= 2 * AT_ONCE
    assert len(node.store.dropped) == MANY
    assert [name for name, _ in node.reported].count("leadership_ended") == 2 * MANY
    assert seen == [3 * MANY]


@pytest.mark.parametrize("had_failed", [False, True])
def test_a_topic_made_again_while_the_log_of_the_old_one_is_recovered_waits_for_it(
    had_failed: bool,
) -> None:
    """Also where a client asks for it, and the old one was set aside: they have the same directory."""
    node = Node()
    node.holds_work = True
    node.store.slices = 200
    node.commit(topic(), placed(0))
    if had_failed:  # and it is tried again
        node.hosting.failed[(ID, 0)] = _Unserved(TopicPartition("t", 0), StorageError("in vain"))
    for _ in range(20):
        node.go_on()
    node.store.slices = 0
    node.commit(r.RemoveTopicRecord(topic_id=ID), topic(topic_id=OTHER_ID))
    node.commit(*(placed(index, topic_id=OTHER_ID) for index in (0, 1)))
    for index in (0, 1):
        node.hosting.asked_for("t", index)
    for _ in range(40):
        node.go_on()
    assert [found for found, _ in node.store.opened] == [TopicPartition("t", 1)]
    while node.work:
        node.go_on()
    assert node.store.opened[1:] == [(TopicPartition("t", 0), each) for each in (ID, OTHER_ID)]
    assert node.store.dropped == [TopicPartition("t", 0)]
    assert node.store.given_up == []
    assert node.partition().topic_id == OTHER_ID
