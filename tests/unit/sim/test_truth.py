"""What was committed, as the checkers of the simulator ask for it."""

from firnline.sim.truth import CommittedLog
from tests.meta_log_world import batch_at


def test_a_leader_answers_for_what_was_committed_before_its_epoch_and_no_more() -> None:
    """rel-R5. A broker that was cut off may begin to lead when its epoch is long over."""
    truth = CommittedLog()
    assert truth.end_before_epoch(7) == 0
    data = b"".join(batch_at(offset, epoch, 10) for offset, epoch in ((0, 1), (10, 1), (20, 3)))
    assert truth.extend(data, 30) is None
    assert [truth.end_before_epoch(epoch) for epoch in (0, 1, 2, 3, 4)] == [0, 0, 20, 20, 30]
    truth.cut(20)
    assert truth.end_before_epoch(4) == 20
