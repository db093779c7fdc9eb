"""Whatever faults a seed draws, the cluster that it draws them for can carry them out."""

from firnline.sim.faults import BEGINNINGS, Faults
from firnline.sim.options import KINDS, draw_options


def test_every_fault_that_a_quorum_may_draw_can_be_carried_out() -> None:
    drawn = {kind for seed in range(300) for kind in draw_options(seed).fault_kinds}
    assert drawn >= {*KINDS, "stall", "rot"}
    assert [kind for kind in drawn if not hasattr(Faults, BEGINNINGS[kind])] == []
