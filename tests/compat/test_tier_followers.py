"""KIP-405's scenarios of followers and elections (S1-S6) on real processes: ours over S3, and Kafka itself.

A is broker 2, B is broker 3. A position's leader epoch is the `last_epoch` of a Fetch: an answer with a
diverging epoch is what truncates a consumer, or a follower. Both clusters have to answer the same.
"""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.compat.tier_scenario import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    Fetched,
    Play,
)
from tests.compat.tier_sides import Sides, two_sides
from tests.peers.servers import Server

pytestmark = pytest.mark.peer
A, B = 2, 3
_OUT_OF_RANGE, _FENCED, _UNKNOWN_EPOCH, _MOVED = 1, 74, 75, 109
_KEPT = {"local.retention.bytes": "-2"}
_SOME_KEPT = {"local.retention.bytes": "250"}
_LAST_TIERED = "follower.fetch.last.tiered.offset.enable"


@pytest.fixture(scope="module")
def sides(
    tmp_path_factory: pytest.TempPathFactory, start_store: Callable[[str], Server]
) -> Iterator[Sides]:
    with two_sides(tmp_path_factory.mktemp("sides"), start_store("s3")) as both:
        yield both


def segments(count: int) -> list[tuple[int, int]]:
    """Return `count` segments of one record each."""
    return [(offset, offset) for offset in range(count)]


def test_s2_and_s6_a_follower_that_is_behind_goes_on_from_the_disk_or_from_the_tier(
    sides: Sides,
) -> None:
    """B is behind, with its next records on A's disk (S2.1) or in the tier alone (S2.2). It comes back into
    the ISR; it leads, serves what only the tier has, and copies (S6).
    """

    def scenario(play: Play) -> None:
        with contextlib.closing(Play(play.side, f"{play.topic}-kept")) as kept:
            for each in (kept, play):
                each.create([A, B], configs=_KEPT if each is kept else {})
                each.produce("v0", "v1")
                # A leader that is replaced while it copies leaves a copy too many.
                each.expect_remote(*segments(1))
                each.lead(B)
                each.produce("v2")
                each.expect_remote(*segments(2))
                each.lead(A)
                each.produce("v3")
            play.stop(B)
            for each in (kept, play):
                each.produce("v4", "v5")
                each.expect_remote(*segments(5))
            kept.expect_local_start(0)
            play.expect_local_start(5)
            for each in (kept, play):
                answers_of_a_leader(each)
            play.start(B)
            for each in (kept, play):
                each.await_replicas(0, [A, B])
                each.lead(B)
            kept.expect_local_start(0)
            kept.consume(0, "v0", "v1", "v2", "v3", "v4", "v5", from_tier=0)
            play.seen += kept.seen
        play.expect_local_start(5)
        play.consume(0, "v0", "v1", "v2", "v3", "v4", "v5", from_tier=5)
        play.produce("v6")
        play.expect_remote(*segments(6))
        play.expect_local_start(6)
        play.expect_offset(LATEST_TIERED, 5)
        for epoch in range(play.epoch() + 2):
            play.epoch_end(epoch)

    sides.play("followers", scenario)


def answers_of_a_leader(play: Play) -> None:
    """Ask A as B does, and as consumers do."""
    local = play.offset(EARLIEST_LOCAL)[1]
    end = play.offset(LATEST)[1]
    for offset in (*range(end), end + 1):
        as_follower = play.fetch(offset, node=A, replica=B)
        as_consumer = play.fetch(offset, node=A)
        if offset < local:
            assert as_follower.error == _MOVED, as_follower
            assert as_consumer.first == (offset, f"v{offset}")
        elif offset > end:
            assert as_follower.error == as_consumer.error == _OUT_OF_RANGE
        else:
            assert as_follower.error == as_consumer.error == 0
    now = play.epoch()
    assert play.fetch(1, node=A, current_epoch=now - 1).error == _FENCED
    assert play.fetch(1, node=A, current_epoch=now + 1).error == _UNKNOWN_EPOCH
    for epoch in range(now + 2):
        play.epoch_end(epoch)


def test_an_empty_follower_may_begin_after_the_last_offset_in_the_tier(sides: Sides) -> None:
    """T51, KIP-1023: A has some of the tier's records on its disk, too; B, with a new disk, copies none of
    them. Where A's disk has all records, B copies all.
    """

    def scenario(play: Play) -> None:
        with contextlib.closing(Play(play.side, f"{play.topic}-kept")) as kept:
            for each in (kept, play):
                each.create([A, B], configs=_KEPT if each is kept else _SOME_KEPT)
                each.produce("v0", "v1")
                each.expect_remote(*segments(1))
                each.lead(B)
                each.produce("v2", "v3")
                each.expect_remote(*segments(3))
                each.lead(A)
                each.produce("v4", "v5", "v6")
                each.expect_remote(*segments(6))
            play.expect_local_start(3)
            play.stop(B)
            play.node(B).settings[_LAST_TIERED] = "true"
            play.start(B, is_wiped=True)
            for each in (kept, play):
                each.await_replicas(0, [A, B])
                each.lead(B)
            del play.node(B).settings[_LAST_TIERED]
            kept.expect_local_start(0)
            play.seen += kept.seen
        play.expect_local_start(6)
        play.expect_offset(EARLIEST, 0)
        play.expect_offset(LATEST_TIERED, 5)
        for epoch in range(play.epoch() + 2):
            play.epoch_end(epoch)
        everything = ["v0", "v1", "v2", "v3", "v4", "v5", "v6"]
        play.consume(0, *everything, from_tier=6)
        play.produce("v7")
        play.expect_remote(*segments(7))
        play.consume(0, *everything, "v7", from_tier=6)

    sides.play("last-tiered", scenario)


def test_s3_and_s4_after_an_unclean_election_the_new_lineage_is_read_from_the_tier(
    sides: Sides,
) -> None:
    """B has less than A copied, and leads all the same: of offset 1 the tier has two records; B's is served.
    S3: A had 0-2; S4: A had 0-3. A comes back, cuts its log, leads, and serves the same.
    """

    def scenario(play: Play) -> None:
        with contextlib.closing(Play(play.side, f"{play.topic}-s4")) as other:
            tails = {play: ["v1", "v2"], other: ["v1", "v2", "v3"]}
            for each in tails:
                each.create([A, B])
                each.produce("v0")
            play.stop(B)
            for each, tail in tails.items():
                each.produce(*tail)
                each.expect_remote(*segments(len(tail)))
            play.stop(A)
            play.start(B)
            for each, tail in tails.items():
                before = each.epoch()
                each.lead_uncleanly(B)
                each.produce("w1", "w2")
                each.expect_remote(*sorted([*segments(len(tail)), (1, 1)]))
                each.expect_local_start(2)
                lineage_of_b(each)
                assert each.epoch() > before
            play.start(A)
            for each in tails:
                each.await_replicas(0, [A, B])
                each.lead(A)
                lineage_of_b(each)
                each.consume(0, "v0", "w1", "w2", from_tier=2)
            play.seen += other.seen

    sides.play("s3", scenario)


def lineage_of_b(play: Play) -> None:
    """B's records are served, and positions of epoch 0 after offset 1 are not."""
    old, new = play.offset(EARLIEST)[2], play.offset(LATEST)[2]
    assert play.fetch(0).first == (0, "v0")
    assert play.fetch(1).first == (1, "w1")
    assert play.fetch(1, last_epoch=old).first == (1, "w1")
    assert play.fetch(2, last_epoch=old) == Fetched(0, (old, 1), None)
    assert play.fetch(2, last_epoch=new).first == (2, "w2")
    assert play.epoch_end(old) == (0, old, 1)


def test_s1_and_s5_an_empty_follower_starts_from_the_tier_and_in_the_right_history(
    sides: Sides,
) -> None:
    """S5: B led and copied; then A leads again without B's records. B, with a new disk, serves A's history.
    S1: the same new disk, and a topic of which A was the leader in several epochs.
    """

    def scenario(play: Play) -> None:
        with contextlib.closing(Play(play.side, f"{play.topic}-s1")) as empty:
            empty.create([A, B])
            empty.produce("v0", "v1")
            empty.expect_remote(*segments(1))
            empty.lead(B)
            empty.produce("v2")
            empty.expect_remote(*segments(2))
            empty.lead(A)
            empty.produce("v3", "v4")
            empty.expect_remote(*segments(4))
            diverge(play)
            empty.await_replicas(0, [A, B])
            empty.lead(B)
            empty.expect_offset(EARLIEST, 0)
            empty.expect_local_start(4)
            for epoch in range(empty.epoch() + 2):
                empty.epoch_end(epoch)
            empty.produce("v5")
            empty.expect_remote(*segments(5))
            empty.expect_local_start(5)
            empty.expect_offset(LATEST_TIERED, 4)
            empty.consume(0, "v0", "v1", "v2", "v3", "v4", "v5", from_tier=5)
            play.seen += empty.seen

    def diverge(play: Play) -> None:
        play.create([A, B])
        play.produce("v0", "v1")
        first = play.epoch()
        play.stop(B)
        play.produce("v2", "v3", "v4")
        play.expect_remote(*segments(4))
        play.stop(A)
        play.start(B)
        middle = play.lead_uncleanly(B)
        play.produce("w2", "w3", "w4")
        play.expect_remote(*sorted([*segments(4), (2, 2), (3, 3)]))
        assert play.fetch(2).first == (2, "w2")
        play.stop(B)
        play.start(A)
        last = play.lead_uncleanly(A)
        play.produce("x5", "x6")
        play.expect_remote(*sorted([*segments(6), (2, 2), (3, 3)]))
        play.expect_local_start(6)
        play.start(B, is_wiped=True)
        play.await_replicas(0, [A, B])
        play.lead(B)
        assert play.fetch(2).first == (2, "v2")
        assert play.fetch(3, last_epoch=first).first == (3, "v3")
        assert play.fetch(3, last_epoch=middle).diverging[0] >= 0
        assert play.fetch(6, last_epoch=last).first == (6, "x6")
        for epoch in range(last + 2):
            play.epoch_end(epoch)
        play.consume(0, "v0", "v1", "v2", "v3", "v4", "x5", "x6", from_tier=6)

    sides.play("s5", scenario)
