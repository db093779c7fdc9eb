"""Slices of one item: each part of a node that works in slices has them, and then its own again."""

import sys

from firnline.broker import fetch, hosting, large_fetch
from firnline.replica import follower
from firnline.sim.run import run
from firnline.sim.runtime.slices import constants, small_slices
from firnline.sim.tier.kinds import cluster_kind


def test_every_slice_is_small_and_as_it_was_afterwards() -> None:
    before = (hosting.AT_ONCE, fetch.PARTITIONS_PER_SLICE, follower.APPLIED_PER_SLICE)
    assert min(before) > 1
    with small_slices(1):
        assert hosting.AT_ONCE == fetch.PARTITIONS_PER_SLICE == follower.APPLIED_PER_SLICE == 1
        assert large_fetch.PARTITIONS_PER_SLICE == 1, "each module has a name of its own for it"  # type: ignore[attr-defined]
    assert before == (hosting.AT_ONCE, fetch.PARTITIONS_PER_SLICE, follower.APPLIED_PER_SLICE)


def test_every_handler_that_works_in_slices_says_how_much_goes_into_one() -> None:
    """With another name for it nobody would ever be seen between two of its slices."""
    found = {module for module, _ in constants()}
    users = [each for each in list(sys.modules.values()) if "in_slices" in vars(each)]
    names = {each.__name__ for each in users if each.__name__.startswith("firnline.api.")}
    assert len(names) > 10
    # What is written as it was read; and handlers whose slices are of a machine, or only let go of rows.
    assert names - found == {
        "firnline.api.forwarding",
        "firnline.api.handlers.k13_leave_group",
        "firnline.api.handlers.k46_list_partition_reassignments",
        "firnline.api.handlers.k55_describe_quorum",
    }
    assert ("firnline.coordinator.groups", "_LEAVERS_PER_SLICE") in constants()
    assert ("firnline.controller.reassignments", "_LISTED_AT_ONCE") in constants()


def test_a_cluster_takes_more_turns_with_small_slices() -> None:
    form = cluster_kind("slices")
    options = form.draw(3)
    small = run(3, seconds=6, options=options, form=form)
    usual = run(3, seconds=6, options=options._replace(slice_items=0), form=form)
    assert not small.violations
    assert small.events > usual.events
