"""Following a leader with many partitions: a step takes some, and what is decided meanwhile counts."""

import itertools
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from firnline.base.replicas import Fetched
from firnline.records.portions import portions
from firnline.replica import follower
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
    count = 2 * follower.APPLIED_PER_SLICE + 50
    followed = many(count)
    leader = Leader(*followed)
    leader.answer(*news(followed))
    counts = [0, appended(followed)]
    while not leader.asked:
        leader.pass_time(0)
        counts.append(appended(followed))
    steps = [b - a for a, b in pairwise(counts)]
    assert max(steps) <= follower.APPLIED_PER_SLICE
    assert counts[-1] == count
    assert leader.ask.session_epoch == 1
    assert asked_offsets(leader.ask) == [1] * count
    leader.answer()
    assert leader.ask.positions == ()


def test_what_is_decided_while_news_are_taken_counts() -> None:
    """Goal: nothing of a leader that was replaced is appended. Method: of two partitions at the end of a
    long answer one has another leader by then, and one another epoch."""
    followed = many(3 * follower.APPLIED_PER_SLICE)
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
    followed = many(3 * follower.APPLIED_PER_SLICE)
    leader = Leader(*followed)
    leader.answer(*news(followed))
    leader.pass_time(0)
    before = appended(followed)
    leader.run(leader.fetcher.stop())
    for _ in range(5):
        leader.pass_time(0)
    assert appended(followed) == before < len(followed)
    assert leader.asked == []


def test_thousands_of_small_batches_of_one_partition_are_taken_in_slices() -> None:
    """A replica that was away for long: some 8 us for each batch, ten thousand of them in an answer."""
    count = 5 * follower.BATCHES_PER_SLICE + 7
    (followed,) = many(1)
    leader = Leader(followed)
    leader.answer(fetched(data=records(*[(3, str(n)) for n in range(count)]), high_watermark=count))
    counts = [0, appended([followed])]
    while not leader.asked:
        leader.pass_time(0)
        counts.append(appended([followed]))
    steps = [b - a for a, b in pairwise(counts)]
    assert max(steps) <= follower.BATCHES_PER_SLICE
    assert counts[-1] == followed.log.high_watermark == count
    assert asked_offsets(leader.ask) == [count]


def test_many_batches_of_a_few_partitions_are_taken_in_slices() -> None:
    followed = many(12)
    leader = Leader(*followed)
    data = records(*[(3, "x" * 900) for _ in range(90)])
    leader.answer(*[part._replace(records=data) for part in news(followed)])
    counts = [0, appended(followed)]
    while not leader.asked:
        leader.pass_time(0)
        counts.append(appended(followed))
    assert max(b - a for a, b in pairwise(counts)) <= 3 * 90
    assert counts[-1] == 12 * 90


def test_what_is_left_of_a_partition_is_not_appended_behind_what_was_refused() -> None:
    """Goal: no hole. Method: a batch in the middle is damaged."""
    count = 4 * follower.BATCHES_PER_SLICE
    (followed,) = many(1)
    leader = Leader(followed)
    data = bytearray(records(*[(3, f"{n:04}") for n in range(count)]))
    batch_bytes = len(data) // count
    data[batch_bytes * (follower.BATCHES_PER_SLICE + 50) + 70] ^= 1
    leader.answer(fetched(data=bytes(data)))
    for _ in range(10):
        leader.pass_time(0)
    assert appended([followed]) == follower.BATCHES_PER_SLICE
    leader.pass_time()
    assert asked_offsets(leader.ask) == [follower.BATCHES_PER_SLICE]


def test_a_partition_that_another_node_leads_by_then_takes_no_more_of_its_batches() -> None:
    count = 4 * follower.BATCHES_PER_SLICE
    (followed,) = many(1)
    leader = Leader(followed)
    leader.answer(fetched(data=records(*[(3, str(n)) for n in range(count)])))
    leader.pass_time(0)
    before = appended([followed])
    lead(followed, 4)
    leader.fetcher.add(followed)
    while not leader.asked:
        leader.pass_time(0)
    assert appended([followed]) == before < count
    assert asked_offsets(leader.ask) == [before]


@given(sizes=st.lists(st.integers(61, 400), max_size=900), cut=st.integers(0, 200))
def test_portions_are_the_records_in_order_and_of_complete_batches(
    sizes: list[int], cut: int
) -> None:
    batches = [bytes(8) + (size - 12).to_bytes(4, "big") + bytes(size - 12) for size in sizes]
    data = b"".join(batches)
    data = data[: len(data) - cut]
    found = list(portions(data, follower.BATCHES_PER_SLICE))
    assert b"".join(bytes(part) for part, _ in found) == data
    assert all(count <= follower.BATCHES_PER_SLICE for _, count in found)
    ends = set(itertools.accumulate(sizes))
    assert all(end in ends for end in itertools.accumulate(len(p) for p, _ in found[:-1]))


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
