"""What was committed, as the checkers of the simulator ask for it."""

import pytest

from firnline.records.build import NewRecord, build_batch
from firnline.sim.cluster.ledger import PartitionHistory
from firnline.sim.disk import CrashableFs
from firnline.sim.durable import durable_end
from firnline.sim.history import CommittedLog
from tests.worlds.log import batch
from tests.worlds.meta_log import batch_at


def test_a_leader_answers_for_what_was_committed_before_its_epoch_and_no_more() -> None:
    """rel-R5. A broker that was cut off may begin to lead when its epoch is long over."""
    history = CommittedLog()
    assert history.end_before_epoch(7) == 0
    data = b"".join(batch_at(offset, epoch, 10) for offset, epoch in ((0, 1), (10, 1), (20, 3)))
    assert history.extend(data, 30) is None
    assert [history.end_before_epoch(epoch) for epoch in (0, 1, 2, 3, 4)] == [0, 0, 20, 20, 30]
    history.cut(20)
    assert history.end_before_epoch(4) == 20


def test_a_leader_does_not_answer_for_old_records_that_were_committed_after_its_epoch() -> None:
    """rel-R5. It was paused, and the next leader had more of the epoch before theirs than it ever had."""
    history = PartitionHistory()
    data = b"".join(batch_at(offset, 1, 10) for offset in (0, 10))
    assert history.extend(data, 10, 1) is None
    assert history.extend(data[len(data) // 2 :], 20, 3) is None
    assert [history.end_before_epoch(epoch) for epoch in (1, 2, 3, 4)] == [0, 10, 10, 20]
    history.cut(10)
    assert history.end_before_epoch(4) == 10
    history.skip(15, 15)
    assert [history.end_before_epoch(epoch) for epoch in (1, 2)] == [0, 15]


@pytest.mark.parametrize("is_another_history", [True, False])
def test_a_leader_from_outside_the_isr_has_other_sequences_of_a_producer(
    is_another_history: bool,
) -> None:
    """rel-R12. Its log begins above all that was committed: what is in it was never compared."""
    history = PartitionHistory()
    first, again = (
        bytes(batch("a", "b", pid=7, seq=0, base_offset=at, leader_epoch=1))
        for at in (0, 2 + 5 * is_another_history)
    )
    assert history.extend(first, 2) is None
    if is_another_history:
        history.skip(7, 7)
    assert history.extend(again, history.end_offset + 2) is None
    assert (history.problem is None) is is_another_history


def test_what_only_the_tier_has_is_not_compared_and_what_lies_around_it_is() -> None:
    """The log of a leader from outside the ISR begins above all that it shares with the lineage."""
    history = PartitionHistory()
    history.is_tiered = True
    data = b"".join(batch_at(offset, 1, 10) for offset in (0, 10))
    assert history.extend(data, 20, 1) is None
    history.lose(10)
    history.skip(50, 10)
    assert history.extend(bytes(batch_at(50, 3, 10)), 60, 3) is None
    assert history.known(0, 60) == [(0, 10), (50, 60)]
    assert history.known(20, 45) == []
    assert history.has_skipped(49)
    assert not history.has_skipped(50)
    history.lose(50)
    history.lose(10)
    assert history.known(0, 60) == [(0, 60)], "the next lineage has records of its own there"


def _keyed(key: bytes, value: bytes, base_offset: int) -> bytes:
    data = build_batch([NewRecord(key, value, 1)])
    data[:8] = base_offset.to_bytes(8, "big")
    return bytes(data)


def test_what_a_lost_record_had_replaced_may_be_gone_and_nothing_else() -> None:
    """rel-C10. A replica compacted by a record that was committed, and lost it with the last that had it."""
    complete = [_keyed(b"a", b"1", 0), _keyed(b"b", b"1", 1), _keyed(b"a", b"2", 2)]
    for is_lost in (False, True):
        history = PartitionHistory()
        history.is_compacted = True
        assert history.extend(b"".join(complete), 3) is None
        compacted = b"".join(complete[1:])
        assert history.keyed.differs(compacted, 0, 3, 1) is None
        if not is_lost:
            assert history.keyed.differs(b"", 0, 3, 1) is not None
            continue
        history.lose(2)
        assert history.keyed.differs(complete[1], 0, 2, 1) is None
        assert history.keyed.differs(complete[0], 0, 2, 1) is not None, (
            "b was in no record that is lost"
        )
        again = _keyed(b"a", b"3", 2)
        assert history.extend(again, 3) is None
        assert history.keyed.differs(complete[1] + again, 0, 3, 1) is None
        assert history.keyed.differs(complete[1], 0, 3, 1) is not None


def test_an_empty_segment_in_the_midst_of_a_log_takes_nothing_off_the_disk() -> None:
    """One that was withdrawn comes back with a power cut; what was synced around it is there."""
    fs = CrashableFs()
    fs.make_dir("/t-0")
    for at, count in ((0, 10), (5, 0), (10, 2)):
        file = fs.open(f"/t-0/{at:020d}.log", create=True)
        if count:
            file.append(batch_at(at, 1, count))
        file.sync()
    fs.sync_dir("/t-0")
    fs.sync_dir("/")
    assert durable_end(fs, "/t-0") == 12


def test_a_batch_that_nobody_can_read_is_a_finding_and_not_the_end_of_the_simulation() -> None:
    """A mutant that lets damage through was caught by a traceback, or by nobody."""
    history = PartitionHistory()
    history.is_compacted = True
    data = _keyed(b"a", b"1", 0)
    assert history.extend(data, 1) is None
    damaged = data[:-1] + b"\x08"  # so many headers follow
    found = history.keyed.differs(damaged, 0, 1, 1)
    assert found is not None
    assert "nobody can read" in found
