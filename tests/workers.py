"""Which test files a worker of `make test` gets: one begins with what waits, the others with what computes.

The first worker takes the files whose tests start processes, from the top of the list; the others take
those that compute in their own process, from its end; they meet in the middle, among short files. So one
core computes while the other waits, and what a session starts once (Kafka, Spark) is started by one worker.
Decision 0014.
"""

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# Top: longest first, and those that share a session's Kafka or Spark. Then what computes, longest last.
_ORDER = (
    *("tests/mixed/", "tests/spark/", "tests/compat/", "tests/chaos/", "tests/wire/"),
    *("tests/", "tests/unit/", "tests/props/", "tests/sim/", "tests/oracle/", "tests/mutants/"),
)


def place(scope: str) -> int:
    """Return where a file stands, by the longest name of a folder that it is in."""
    return max(
        (number for number, folder in enumerate(_ORDER) if scope.startswith(folder)),
        key=lambda number: len(_ORDER[number]),
        default=_ORDER.index("tests/"),
    )


class FromBothEnds(LoadFileScheduling):
    """As `--dist loadfile`, but for the order."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        is_first = node is self.nodes[0]
        # Within a folder the file with most tests goes first, as xdist put them; both ends keep that.
        places = {scope: place(scope) for scope in self.workqueue}
        wanted = (min if is_first else max)(self.workqueue, key=places.__getitem__)
        self.workqueue.move_to_end(wanted, last=False)
        super()._assign_work_unit(node)
