"""The threads of a plan: many partitions on one core, and all cores for what comes after or beside them."""

import os
import threading

import pytest

from firnline.spark.planning import calls as planning
from firnline.spark.planning.calls import Calls
from firnline.stores.memory import MemoryStore

MANY = 300

needs_cores = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="NOT RUN: this machine has one core, or its system does not say on which one a thread runs",
)


class DistantStore(MemoryStore):
    is_distant = True


def cores(_: object = None) -> set[int]:
    return os.sched_getaffinity(0)


@needs_cores
def test_threads_that_plan_many_partitions_share_one_core() -> None:
    before = cores()
    with Calls(DistantStore()) as calls:
        found = calls.each_partition(cores, range(MANY))
    assert {len(each) for each in found} == {1}
    assert len({next(iter(each)) for each in found}) == 1
    assert cores() == before, "what comes after the plan has all of them"


@needs_cores
def test_a_plan_that_fails_gives_the_cores_back() -> None:
    def refuse(number: int) -> None:
        raise ValueError(number)

    before = cores()
    with Calls(DistantStore()) as calls, pytest.raises(ValueError, match="0"):
        calls.each_partition(refuse, range(MANY))
    assert cores() == before


@needs_cores
def test_requests_for_large_parts_are_not_held_to_the_core_of_the_plan() -> None:
    """A store decrypts and checks megabytes without the interpreter."""
    before = cores()
    with Calls(DistantStore()) as calls:
        found = calls.each_partition(lambda _: calls.each(cores, range(2)), range(MANY))
    assert all(each == before for pair in found for each in pair)


@needs_cores
def test_few_partitions_use_all_cores() -> None:
    before = cores()
    with Calls(DistantStore()) as calls:
        assert calls.each_partition(cores, range(9)) == [before] * 9


@pytest.mark.parametrize("system", ["does not say", "refuses"])
def test_a_system_without_a_choice_of_cores_plans_all_the_same(
    system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("not permitted")

    if system == "refuses":
        monkeypatch.setattr(os, "sched_setaffinity", refuse, raising=False)
    else:
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    with Calls(DistantStore()) as calls:
        assert calls.each_partition(lambda number: -number, range(MANY)) == [
            -number for number in range(MANY)
        ]


def test_planners_side_by_side_take_different_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[set[int]] = []
    monkeypatch.setattr(planning, "_cores", lambda: {2, 5, 7})
    monkeypatch.setattr(planning, "_stay_on", taken.append)
    for process_id in (30, 31, 32):
        monkeypatch.setattr(os, "getpid", lambda process_id=process_id: process_id)
        with planning._one_core():
            pass
    assert taken == [{2}, {2, 5, 7}, {5}, {2, 5, 7}, {7}, {2, 5, 7}]


def test_a_directory_gets_no_threads() -> None:
    with Calls(MemoryStore()) as calls:
        found = calls.each_partition(lambda _: threading.get_ident(), range(MANY))
    assert set(found) == {threading.get_ident()}
