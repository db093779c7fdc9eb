"""Puts that end late, and copiers that die: nothing is left in the store that nobody will delete."""

from typing import Any

import pytest

from firnline.base.effects import Effect, Submit
from firnline.stores.port import RemoteStorageError
from firnline.tiered.spi import SegmentState
from tests.worlds.tier import SETTINGS, WHERE, Cluster, Node

DANGLING_MS = SETTINGS["dangling_after_ms"]
LATE_MS = SETTINGS["late_put_ms"]


def is_copy(effect: Effect) -> bool:
    return isinstance(effect, Submit) and effect.name.startswith("copy ")


def hung(cluster: Cluster) -> tuple[Node, Node]:
    """A leader whose put hangs, and its successor, which has the same records."""
    old = Node(cluster, 1).start().lead(0)
    new = Node(cluster, 2).start()
    new.role(is_leader=False, epoch=0)
    old.produce(0, "a")
    new.follow(old)
    new.log.roll(cluster.now_ms)
    old.held = is_copy
    old.pass_time(2_000)
    assert len(old.on_hold) == 1, "no copy is under way"
    new.lead(1)
    old.role(is_leader=False, epoch=1)
    return old, new


def test_a_deposed_leader_deletes_what_it_put_too_late() -> None:
    cluster = Cluster()
    old, new = hung(cluster)
    new.pass_time(DANGLING_MS + LATE_MS + 5_000)
    assert SegmentState.COPY_STARTED not in cluster.known().values(), "it is not taken for dead yet"
    old.release()
    assert cluster.orphans() == []


def test_it_tries_again_while_the_store_refuses() -> None:
    cluster = Cluster()
    old, new = hung(cluster)
    new.pass_time(DANGLING_MS + LATE_MS + 5_000)
    old.storage.fail("delete", RemoteStorageError("not now"), times=2)
    old.release()
    assert cluster.orphans() != [], "nothing was put, so nothing is tried"
    old.pass_time(5_000)
    assert cluster.orphans() == []


def test_a_store_that_hangs_has_one_delete_of_a_late_put_waiting() -> None:
    cluster = Cluster()
    old, new = hung(cluster)
    new.pass_time(DANGLING_MS + LATE_MS + 5_000)
    copies, old.on_hold = old.on_hold, []
    old.held = lambda effect: isinstance(effect, Submit) and effect.name.startswith("delete late")
    for copy in copies:
        old.complete(copy)
    old.pass_time(60_000)
    assert len(old.on_hold) == 1
    old.release()
    assert cluster.orphans() == []


def test_a_late_put_that_still_counts_stays() -> None:
    """T8: the copy of a deposed leader is as good as any, if nobody took it for dead."""
    cluster = Cluster()
    old, new = hung(cluster)
    old.release()
    old.pass_time(5_000)
    new.pass_time(5_000)
    assert list(cluster.known().values()).count(SegmentState.COPY_FINISHED) >= 1
    assert cluster.orphans() == []
    assert new.read_all() == new.read_all()


@pytest.mark.parametrize(("answer", "waits"), [("refused", True), ("lost", False)])
def test_a_put_whose_end_is_not_known_is_remembered_until_it_is(answer: str, waits: bool) -> None:
    """It is not known whether COPY_FINISHED was written; until then somebody may take it for dead."""
    cluster = Cluster()
    old, new = hung(cluster)
    old.append_faults = [answer]
    old.release()
    old.pass_time(2_000)
    assert len(old.tier.unconfirmed_copies) == waits
    new.pass_time(DANGLING_MS + 5_000)
    old.pass_time(2_000)
    assert len(old.tier.unconfirmed_copies) == 0
    assert old.storage.calls.count("delete") == waits
    assert old.tier.unconfirmed_copies._is_ticking is False, "nothing is looked at any more"


def test_who_died_after_a_late_put_is_cleaned_up_after_by_the_leader() -> None:
    """What it takes for abandoned it deletes twice: a put may end after the first time."""
    cluster = Cluster()
    old, new = hung(cluster)
    new.pass_time(DANGLING_MS + 1_500)
    states = list(cluster.known().values())
    assert SegmentState.DELETE_STARTED in states, "deleted once, and not forgotten"
    [copy] = old.on_hold
    assert isinstance(copy, Submit)
    copy.work()  # and then it is gone
    assert any(key.endswith(".log") for key in cluster.store.objects)
    new.pass_time(LATE_MS + 2_000)
    assert cluster.orphans() == []
    assert SegmentState.DELETE_STARTED not in cluster.known().values()


@pytest.mark.parametrize("leaves", [False, True])
def test_a_copy_that_its_leader_could_not_finish_is_cleaned_up_by_the_same_process_later(
    leaves: bool,
) -> None:
    """A segment that a task of this process copies is nobody else's: the task is over with its role."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a")
    node.append_faults = ["none", "refused"]  # COPY_STARTED is known, COPY_FINISHED is not
    node.pass_time(0)
    assert list(cluster.known().values()) == [SegmentState.COPY_STARTED]
    [left] = cluster.known()
    if leaves:
        node.run(node.tier.on_stop(WHERE, cluster.now_ms))
    else:
        node.role(is_leader=False, epoch=1)
    node.lead(2)
    node.pass_time(2 * SETTINGS["metadata_consume_wait_ms"] - 1_000)
    assert cluster.known()[left] is SegmentState.COPY_STARTED, "its finish may be on its way"
    node.pass_time(DANGLING_MS + LATE_MS + 10_000)
    assert list(cluster.known().values()) == [SegmentState.COPY_FINISHED]
    assert left not in cluster.known()


def test_a_leader_that_follows_goes_on_with_the_second_time() -> None:
    cluster = Cluster()
    old, new = hung(cluster)
    new.pass_time(DANGLING_MS + 1_500)
    third = Node(cluster, 3).start()
    third.follow(new)
    third.lead(2)
    new.role(is_leader=False, epoch=2)
    [copy] = old.on_hold
    assert isinstance(copy, Submit)
    copy.work()
    third.pass_time(LATE_MS + 2_000)
    assert cluster.orphans() == []
    assert SegmentState.DELETE_STARTED not in cluster.known().values()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_copy_that_fails_after_it_was_taken_for_dead_leaves_nothing(when: str) -> None:
    cluster = Cluster()
    old, new = hung(cluster)
    new.pass_time(DANGLING_MS + LATE_MS + 5_000)
    error: Any = RemoteStorageError("cut off")
    old.storage.fail("copy", error, when=when)
    old.release()
    old.pass_time(5_000)
    assert cluster.orphans() == []
