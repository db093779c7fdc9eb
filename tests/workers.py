"""Which test files a worker of `make test` gets: some begin with what waits, the last with what computes.

Tests that start processes wait for them half of the time, so with a worker more than there are cores no
core is idle. Their files are in two lanes, each with a worker of its own, so that what a session starts
once (Kafka in one lane, Spark in the other) is started once. The last worker takes the files that compute
in their own process, from the end of the list. Whoever has done its own goes on with the rest, and helps
the other lane at the very end; what is left by then is short. Decision 0014.
"""

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_LANES = (
    ("tests/mixed/", "tests/compat/", "tests/wire/"),
    ("tests/chaos/", "tests/spark/", "tests/fuzz/", "tests/aging/"),
)
# Then what computes, longest last: the worker that computes begins there.
_REST = (
    *("tests/", "tests/unit/", "tests/props/", "tests/unit/native/"),
    *("tests/sim/", "tests/oracle/", "tests/mutants/"),
)


def order(number: int, count: int) -> tuple[str, ...]:
    """Return the folders in the order in which worker `number` of `count` takes files from them."""
    if 0 < number == count - 1:
        return tuple(reversed((*_LANES[0], *_LANES[1], *_REST)))
    own, other = _LANES[number % 2], _LANES[1 - number % 2]
    return (*own, *_REST, *reversed(other)) if count > 2 else (*own, *other, *_REST)


def folder_of(scope: str, folders: tuple[str, ...]) -> int:
    """Return which of the folders a file is in, by the longest name."""
    return max(
        (number for number, folder in enumerate(folders) if scope.startswith(folder)),
        key=lambda number: len(folders[number]),
    )


class Lanes(LoadFileScheduling):
    """As `--dist loadfile`, but for the order."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        # Within a folder the file with most tests goes first, as xdist put them.
        folders = order(self.nodes.index(node), self.numnodes)
        wanted = min(self.workqueue, key=lambda scope: folder_of(scope, folders))
        self.workqueue.move_to_end(wanted, last=False)
        super()._assign_work_unit(node)
