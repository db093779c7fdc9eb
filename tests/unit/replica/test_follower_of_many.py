"""Following a leader with many partitions: a step takes some, and what is decided meanwhile counts."""

from itertools import pairwise

from firnline.replica import follower
from firnline.replica.follower import Fetched
from firnline.replica.partition import Partition
from tests.unit.replica.scripted_leader import Leader, asked_offsets, fetched, lead, many, records


def news(followed: list[Partition], value: str = "x") -> list[Fetched]:
    """A record for each."""
    data = records((3, value))
    return [
        fetched(data=data)._replace(topic_id=p.topic_id, partition=p.topic_partition.partition)
        for p in followed
    ]


def appended(followed: list[Partition]) -> int:
    return sum(p.log.log_end_offset for p in followed)


def test_news_of_many_partitions_are_taken_in_slices_before_the_next_fetch() -> None:
    """Goal: heartbeats are in time. Method: count what each step appends."""
    count = 2 * follower.TAKEN_PER_SLICE + 50
    followed = many(count)
    leader = Leader(*followed)
    leader.answer(*news(followed))
    counts = [appended(followed)]
    while not leader.asked:
        leader.pass_time(0)
        counts.append(appended(followed))
    steps = [b - a for a, b in pairwise([0, *counts])]
    assert max(steps) <= follower.TAKEN_PER_SLICE
    assert counts[-1] == count
    assert leader.ask.session_epoch == 1
    assert asked_offsets(leader.ask) == [1] * count
    leader.answer()
    assert leader.ask.positions == ()


def test_what_is_decided_while_news_are_taken_counts() -> None:
    """Goal: nothing of a leader that was replaced is appended. Method: of two partitions at the end of a
    long answer one has another leader by then, and one another epoch."""
    followed = many(3 * follower.TAKEN_PER_SLICE)
    elsewhere, later = followed[-2:]
    leader = Leader(*followed)
    leader.answer(*news(followed))
    leader.pass_time(0)
    lead(elsewhere, 4, leader=3)
    leader.fetcher.remove(elsewhere)
    lead(later, 4)
    leader.fetcher.add(later)
    while not leader.asked:
        leader.pass_time(0)
    assert [p.log.log_end_offset for p in followed[:-2]] == [1] * (len(followed) - 2)
    assert [elsewhere.log.log_end_offset, later.log.log_end_offset] == [0, 0]
    assert [p.fetch_offset for p in leader.ask.positions if p.leader_epoch == 4] == [0]


def test_who_follows_a_leader_no_more_takes_nothing_more_of_it() -> None:
    followed = many(3 * follower.TAKEN_PER_SLICE)
    leader = Leader(*followed)
    leader.answer(*news(followed))
    leader.pass_time(0)
    before = appended(followed)
    leader.run(leader.fetcher.stop())
    for _ in range(5):
        leader.pass_time(0)
    assert appended(followed) == before < len(followed)
    assert leader.asked == []


def test_all_of_many_partitions_are_looked_at_in_time_some_with_each_fetch() -> None:
    followed = many(450)
    leader = Leader(*followed)
    for _ in range(4):
        leader.answer()
    for p in followed[1:]:
        p.go_offline()
    leader.now_ms += follower.LOOK_AT_ALL_MS
    seen = []
    for _ in range(3):
        leader.answer()
        seen.append(len(leader.ask.forgotten))
    assert seen == [199, 200, 50]
