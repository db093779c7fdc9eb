"""Several small tasks in one Spark partition. PURE.

A task reads one partition of a topic. A topic of 10,000 small partitions would be 10,000 Spark tasks, and
each costs more to start than its 100 kB take to read. The official source makes one for each partition, too.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby

from firnline.base.units import KIB, MIB
from firnline.spark.planning.plan import TailTask, Task

# What a request to the store costs besides its bytes: a core decodes about as much in 20 ms.
REQUEST_BYTES = MIB
# What a broker will send for an offset is not known.
RECORD_BYTES = KIB
Packed = tuple[Task | TailTask, ...]


def pack_tasks(
    tasks: Sequence[Task | TailTask], *, split_bytes: int, max_tasks: int, enough: int
) -> list[Packed]:
    """Return what each Spark partition reads: neighbours of `tasks`, in their order.

    A Spark partition has tasks of up to `split_bytes`, each piece counted with `REQUEST_BYTES` more. It has
    less if the tasks would else be fewer than `enough` equal shares, and more if there would be more Spark
    partitions than `max_tasks`. Up to `enough` tasks are not packed.
    """
    if len(tasks) <= min(enough, max_tasks):
        return [(task,) for task in tasks]
    costs = [_cost(task) for task in tasks]
    packed = list(_filled(tasks, costs, min(split_bytes, sum(costs) // enough)))
    return packed if len(packed) <= max_tasks else _shared_out(tasks, costs, max_tasks)


def _cost(task: Task | TailTask) -> int:
    if isinstance(task, TailTask):
        return REQUEST_BYTES + RECORD_BYTES * (task.end_offset - task.start_offset)
    return sum(piece.size_bytes + REQUEST_BYTES for piece in task.pieces)


def _filled(tasks: Sequence[Task | TailTask], costs: Sequence[int], most: int) -> Iterator[Packed]:
    """Fill one after the other, up to `most`; a task that costs more is alone."""
    current: list[Task | TailTask] = []
    size = 0
    for task, cost in zip(tasks, costs, strict=True):
        if current and size + cost > most:
            yield tuple(current)
            current, size = [], 0
        current.append(task)
        size += cost
    yield tuple(current)


def _shared_out(
    tasks: Sequence[Task | TailTask], costs: Sequence[int], shares: int
) -> list[Packed]:
    """Give each task to the share of the total in which it begins."""
    *begins, total = accumulate(costs, initial=0)
    pairs = zip(tasks, begins, strict=True)
    return [
        tuple([task for task, _ in share])
        for _, share in groupby(pairs, key=lambda pair: pair[1] * shares // total)
    ]
