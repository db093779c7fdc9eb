"""Copies wait for a slot of their node before they are announced (F3)."""

from collections import Counter
from functools import partial

import pytest

from firnline.base.units import MINUTE_MS
from firnline.tiered.hosted import SLOTS_A_THREAD
from firnline.tiered.spi import SegmentState
from tests.unit.tiered.test_tiered_circuit import (
    EVERYTHING,
    RECORDS_MAX,
    DownStore,
    Many,
    due,
    records,
)
from tests.worlds.tier import Cluster


def test_a_store_that_hangs_gets_a_few_copies_and_not_one_of_each_partition() -> None:
    """What is announced waits for a thread, and then for the store: the others wait before that."""
    cluster = Cluster()
    count, threads = 100, 3
    node = Many(cluster, count, copier_threads=threads)
    node.start()
    node.lead_all()
    node.produce_all("a")
    node.pass_time(MINUTE_MS)
    assert node.waiting() == 0
    before = records(cluster)
    node.held = partial(due, "copy ")
    node.produce_all("b")
    node.pass_time(MINUTE_MS)
    begun = SLOTS_A_THREAD * threads
    assert len(node.on_hold) == begun
    assert records(cluster) - before == begun
    assert node.waiting() == count
    node.release()
    node.pass_time(MINUTE_MS)
    assert node.waiting() == 0
    assert Counter(cluster.known().values()) == {SegmentState.COPY_FINISHED: 2 * count}


def test_copies_that_waited_are_refused_when_the_store_turns_out_to_be_down() -> None:
    store = DownStore()
    cluster = Cluster(store=store)
    node = Many(cluster, 100, copier_threads=1)
    node.start()
    node.lead_all()
    node.produce_all("a")
    node.pass_time(MINUTE_MS)
    before = records(cluster)
    node.held = partial(due, "copy ")
    node.produce_all("b")
    node.pass_time(MINUTE_MS)
    store.down = EVERYTHING
    node.release()
    node.pass_time(5 * MINUTE_MS)
    assert records(cluster) - before <= RECORDS_MAX
    store.down = ()
    node.pass_time(5 * MINUTE_MS)
    assert node.waiting() == 0


@pytest.mark.parametrize(("count", "copied_per_s"), [(1, 2), (8, 100)])
def test_leaderships_that_end_while_their_copies_wait_leave_the_slots_to_others(
    count: int, copied_per_s: int
) -> None:
    """A leader that ends while its copy waits must not keep the slot: nobody could copy in the end."""
    quota = {"copy_bytes_per_second": copied_per_s, "copy_quota_windows": 20}
    node = Many(Cluster(), count, copier_threads=1, **quota)
    node.start()
    node.lead_all()
    node.produce_all("a")
    for epoch in range(1, 6):
        node.held = partial(due, ("check ", "copy ")[epoch % 2])
        for _ in node.each():
            node.produce(epoch - 1, "b")
        node.pass_time(2_000)
        for _ in node.each():
            node.role(is_leader=False, epoch=epoch)
            node.lead(epoch)
        node.release()
        node.pass_time(1_000)
    node.pass_time(5 * MINUTE_MS)
    assert node.waiting() == 0
    assert node.tier.services.copy_slots.free == SLOTS_A_THREAD
