"""Following a leader: what comes again, a replica, news or damage."""

from firnline.base.errors import Code
from tests.unit.replica.scripted_leader import Leader, asked_offsets, fetched, records, replica


def test_a_replica_that_was_opened_anew_is_followed_and_the_old_one_is_not() -> None:
    """Its directory came back, in the same leader epoch; the old log's files are closed."""
    leader = Leader(replica((3, "a"), (3, "b")))
    again = replica((3, "a"))
    leader.fetcher.add(again)
    leader.answer()
    assert asked_offsets(leader.ask) == [1]


def test_the_same_news_again_does_not_end_a_pause() -> None:
    p = replica()
    leader = Leader(p)
    leader.answer(fetched(Code.NOT_LEADER_OR_FOLLOWER))
    leader.fetcher.add(p)
    leader.go()
    assert leader.asked == []
    leader.pass_time()
    assert len(leader.asked) == 1


def test_damage_that_comes_again_after_all_was_well_is_reported_again() -> None:
    p = replica()
    leader = Leader(p)
    good = records((3, "a"))
    bad = good[:-1] + bytes([good[-1] ^ 1])
    for data, reported in ((bad, 1), (bad, 1), (good, 1)):
        leader.answer(fetched(data=data))
        leader.pass_time()
        assert len(leader.warnings) == reported
    later = bytearray(records((3, "b"), start=1))
    later[-1] ^= 1
    leader.answer(fetched(data=bytes(later)))
    assert len(leader.warnings) == 2
