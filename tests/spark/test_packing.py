"""Which tasks share a Spark partition."""

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from firnline.base.units import MIB
from firnline.spark.planning.packing import REQUEST_BYTES, pack_tasks
from firnline.spark.planning.plan import Piece, Segment, Task

SEGMENT = Segment(bytes(16), 0, 9, 1 << 40, ((0, 0),), "data/x", (".log",))


def tasks_of(sizes: list[int]) -> list[Task]:
    """A task of one piece in each of so many partitions."""
    return [
        Task("t", bytes(16), number, (Piece(SEGMENT, 0, size, 0, 10),))
        for number, size in enumerate(sizes)
    ]


def packed_sizes(
    sizes: list[int], *, enough: int, split_bytes: int = 64 * MIB, max_tasks: int = 20_000
) -> list[int]:
    """How many tasks each Spark partition has; checks that all are there, in order."""
    tasks = tasks_of(sizes)
    packed = pack_tasks(tasks, split_bytes=split_bytes, max_tasks=max_tasks, enough=enough)
    assert [task for group in packed for task in group] == tasks
    return [len(group) for group in packed]


def test_many_small_partitions_are_few_tasks() -> None:
    """The 1 MiB for the requests of each limits it: 60 objects take longer to ask for than to decode."""
    found = packed_sizes([100_000] * 10_000, enough=4)
    assert (len(found), max(found)) == (173, 58)


def test_a_full_task_stays_alone() -> None:
    assert packed_sizes([64 * MIB] * 20, enough=4) == [1] * 20
    assert packed_sizes([64 * MIB, 5, 5, 64 * MIB, 5], enough=2) == [1, 2, 1, 1]


def test_as_many_tasks_as_cores_can_use_are_left() -> None:
    assert packed_sizes([10] * 32, enough=32) == [1] * 32
    assert len(packed_sizes([10] * 1000, enough=32)) >= 32
    assert packed_sizes([], enough=4) == []


def test_there_are_no_more_than_the_user_wants() -> None:
    assert packed_sizes([64 * MIB] * 20, enough=4, max_tasks=1) == [20]
    assert packed_sizes([64 * MIB] * 20, enough=4, max_tasks=7) == [3, 3, 3, 3, 3, 3, 2]
    assert packed_sizes([10] * 3, enough=4, max_tasks=2) == [2, 1]
    assert packed_sizes([64 * MIB] * 20, enough=4, max_tasks=20) == [1] * 20


@given(
    st.lists(st.integers(0, 100 * MIB), max_size=60),
    st.integers(1, 64),
    st.integers(1, 100),
)
def test_bounds(sizes: list[int], enough: int, max_tasks: int) -> None:
    found = packed_sizes(sizes, enough=enough, max_tasks=max_tasks)
    assert len(found) <= max_tasks
    if len(sizes) <= min(enough, max_tasks):
        assert found == [1] * len(sizes)
        return
    ends = list(accumulate(found, initial=0))
    total = sum(sizes) + len(sizes) * REQUEST_BYTES
    most = min(64 * MIB, total // enough)
    costs = [sum(sizes[a:b]) + (b - a) * REQUEST_BYTES for a, b in pairwise(ends)]
    if any(cost > most for cost, count in zip(costs, found, strict=True) if count > 1):
        assert max(costs) < total / max_tasks + max(sizes) + REQUEST_BYTES
