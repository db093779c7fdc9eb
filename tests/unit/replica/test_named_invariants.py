"""Each invariant that a docstring names is asserted where it could be broken: here it is broken."""

from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.base.replicas import FetchReply, IsrChange, IsrMember
from firnline.config.topic import TopicConfig
from firnline.log.truncation import _assert_in_order
from firnline.replica.alter import AlterPartitions
from firnline.replica.follower import _NEXT_STAGES, _Followed, _Stage
from firnline.replica.partition import Partition
from firnline.replica.sole_replicas import SoleReplicas
from tests.unit.replica.scripted_leader import Leader, fetched, records, replica
from tests.unit.replica.test_directories import Desk
from tests.worlds.effects import carried_out
from tests.worlds.list_log import ListLog, batch, log_of, partition


def nothing(*_: Any) -> Effects:
    return []


def expansion(p: Partition, *members: int) -> IsrChange:
    """A proposal of these members, as the leader of the partition would make it."""
    new_isr = tuple(IsrMember(each, -1) for each in members)
    return IsrChange(p.topic_id, 0, p.leader_epoch, p.partition_epoch, new_isr)


def test_the_maximal_isr_holds_all_of_the_isr() -> None:
    p = partition(isr=(1, 2))
    p._assert_isr()
    p.maximal_isr = (1,)
    with pytest.raises(AssertionError, match="maximal ISR"):
        p._assert_isr()


def test_nobody_else_counts_where_a_partition_is_alone() -> None:
    p = partition(isr=(1, 2))
    p.is_alone = True
    with pytest.raises(AssertionError, match="no other replica counts"):
        p._assert_isr()


def test_nobody_is_alone_who_needs_others_for_acks_all() -> None:
    p = partition(isr=(1,))
    p._assert_isr()
    p.replicas = (1, 2)
    p.log.config = TopicConfig(min_insync_replicas=2)
    with pytest.raises(AssertionError, match="R13"):
        p._assert_isr()


def test_a_proposed_member_counts() -> None:
    p = partition(isr=(1, 2))
    p.proposed = expansion(p, 1, 2, 3)
    p.maximal_isr = (1, 2, 3)
    p._assert_isr()
    p.maximal_isr = (1, 2)
    with pytest.raises(AssertionError, match="R7"):
        p._assert_isr()


def test_a_leader_knows_each_member_of_the_maximal_isr() -> None:
    p = partition(isr=(1, 2))
    p.proposed, p.maximal_isr = expansion(p, 1, 2, 3), (1, 2, 3)
    with pytest.raises(AssertionError, match="R6"):
        p.update(leader_id=1, leader_epoch=3, partition_epoch=0, replicas=(1, 2), isr=(1, 2))


def test_nothing_is_committed_that_a_member_lacks() -> None:
    p = partition(isr=(1, 2, 3))
    p.append(batch(), -1, 0)
    p.follower_fetched(2, 1, 0)
    # Its state is kept under another id: it does not hold back the high watermark.
    p.followers[3].broker_id = 4
    with pytest.raises(AssertionError, match="R6"):
        p.follower_fetched(2, 1, 1)
    assert log_of(p).high_watermark == 0


def test_only_a_leader_appends() -> None:
    p = partition(leader_id=2)
    p.refusal = None
    with pytest.raises(AssertionError, match="R15"):
        p.append(batch(), 1, 0)


def test_files_that_failed_take_no_record() -> None:
    p = partition()
    p.go_offline()
    p.refusal = None
    with pytest.raises(AssertionError, match="P9"):
        p.append(batch(), 1, 0)


def test_there_is_one_proposal_at_a_time() -> None:
    p = partition(isr=(1, 2))
    p._propose((1,))
    with pytest.raises(AssertionError, match="I15"):
        p._propose((1, 2))


def test_no_replica_joins_that_lacks_a_committed_record() -> None:
    p = partition(isr=(1, 2))
    p.update(leader_id=1, leader_epoch=3, partition_epoch=1, replicas=(1, 2), isr=(1,))
    p.followers[2].end_offset = p.epoch_start_offset - 1
    with pytest.raises(AssertionError, match="R8"):
        p._propose((1, 2))


def test_an_alter_partition_request_is_answered_once() -> None:
    asked: list[Any] = []
    alter = AlterPartitions(lambda wanted, then, now_ms: asked.append(then) or [], nothing)  # type: ignore[func-returns-value]
    p = partition(isr=(1, 2))
    p._propose((1,))
    alter.propose(p, 0)
    alter._is_asking = False
    with pytest.raises(AssertionError, match="answered once"):
        asked[0]([], 0)


def test_a_sync_of_a_directory_ends_once() -> None:
    with pytest.raises(AssertionError, match="at a time"):
        SoleReplicas(nothing)._synced("/a", [], 0)


def test_one_request_about_directories_is_under_way() -> None:
    desk = Desk()
    desk.look(1)
    desk.fire_all()
    assert desk.asked
    with pytest.raises(AssertionError, match="one request"):
        desk.assignments._go(0)


# ------------------------------------------------------------------------------------- following


def test_a_fetch_is_answered_once() -> None:
    leader = Leader(replica())
    (_, then) = leader.asked[-1]
    leader.fetcher._is_fetching = False
    with pytest.raises(AssertionError, match="answered once"):
        then(FetchReply(0, ()), 0)


def test_a_later_epoch_belongs_to_a_session() -> None:
    leader = Leader(replica())
    leader.fetcher._session_epoch = 2
    with pytest.raises(AssertionError, match="KIP-227"):
        leader.fetcher._next()


def test_a_leader_takes_no_records_of_another() -> None:
    p = replica()
    leader = Leader(p)
    p.leader_id = p.node_id
    with pytest.raises(AssertionError, match="R15"):
        leader.answer(fetched(data=records((3, "a"))))
    assert p.log.log_end_offset == 0


def test_what_failed_follows_no_more() -> None:
    found = _Followed(replica())
    for before, allowed in _NEXT_STAGES.items():
        for after in _Stage:
            found.stage = before
            if after in allowed:
                found.enter(after)
            else:
                with pytest.raises(AssertionError, match="never becomes"):
                    found.enter(after)
    assert not _NEXT_STAGES[_Stage.FAILED]


def test_a_log_is_truncated_once_at_a_time() -> None:
    p = replica()
    fetcher = Leader(p).fetcher
    truncating: Any = object()
    p.log.truncation = truncating
    (found,) = fetcher._followed.values()
    with pytest.raises(AssertionError, match="one truncation"):
        fetcher._begin_truncation(found, lambda: None, nothing, 0)


def test_a_truncation_ends_once() -> None:
    fetcher = Leader(replica()).fetcher
    (found,) = fetcher._followed.values()
    carried_out(fetcher._begin_truncation(found, lambda: None, nothing, 0), 0)
    queued: Any = type("Queued", (), {"found": found})
    with pytest.raises(AssertionError, match="ends once"):
        fetcher._truncated(queued, None, None, 0)


@pytest.mark.parametrize(
    "broken",
    [{"log_start_offset": 3}, {"local_log_start_offset": 9}, {"high_watermark": 9}],
)
def test_a_cut_leaves_the_offsets_of_a_log_in_order(broken: dict[str, int]) -> None:
    log: Any = ListLog("t", 0, bytes(16))
    log.log_start_offset, log.local_log_start_offset = 1, 2
    log.log_end_offset, log.high_watermark = 5, 4
    _assert_in_order(log)
    for name, value in broken.items():
        setattr(log, name, value)
    with pytest.raises(AssertionError):
        _assert_in_order(log)
