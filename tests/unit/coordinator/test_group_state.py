"""The state table: every cell that is drawn can be reached, and no other. Spec C15."""

import pytest

from firnline.base.errors import Bug
from firnline.coordinator.group_state import TRANSITIONS, Cause, GroupState, next_state


def test_every_state_can_be_reached_and_only_dead_is_final() -> None:
    reached = {after for row in TRANSITIONS.values() for after in row.values() if after}
    assert reached == set(GroupState)
    for state, row in TRANSITIONS.items():
        leads_on = {after for after in row.values() if after} - {state}
        assert bool(leads_on) == (state is not GroupState.DEAD)


@pytest.mark.parametrize("state", GroupState)
@pytest.mark.parametrize("cause", Cause)
def test_a_cell_marked_illegal_stops_us(state: GroupState, cause: Cause) -> None:
    after = TRANSITIONS[state][cause]
    if after is None:
        with pytest.raises(Bug, match="illegal group transition"):
            next_state(state, cause)
    else:
        assert next_state(state, cause) is after
