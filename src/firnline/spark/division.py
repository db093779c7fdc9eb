"""Divide offset ranges among tasks as the official source does. PURE.

`maxRecordsPerPartition` divides first. If that makes fewer parts than `minPartitions`, each part is divided
again, the larger ones into more. Source: Spark's guide, 'minPartitions' and 'maxRecordsPerPartition'.
"""

from collections.abc import Sequence

from firnline.base.units import ceil_div


def divide(
    sizes: Sequence[int], *, parts_min: int = 1, records_max: int | None = None
) -> list[list[int]]:
    """Return for each range of `sizes` offsets the sizes of its parts; none of them is 0.

    About `parts_min` parts altogether: rounding may make it fewer or more.
    """
    divided = [
        _even(size, 1 if records_max is None else ceil_div(size, records_max)) for size in sizes
    ]
    parts = [part for each in divided for part in each]
    if len(parts) >= parts_min:
        return divided
    total = sum(parts)
    # What stays undivided does not count for the shares of the others.
    small = [part for part in parts if _share(part, total, parts_min) == 1]
    rest, rest_parts = total - sum(small), max(parts_min - len(small), 1)
    return [
        [
            piece
            for part in each
            for piece in _even(
                part,
                1 if _share(part, total, parts_min) == 1 else _share(part, rest, rest_parts),
            )
        ]
        for each in divided
    ]


def _share(size: int, total: int, parts: int) -> int:
    """Return how many of `parts` a range gets: at least one, halves rounded up."""
    return max(1, (2 * size * parts + total) // (2 * total))


def _even(size: int, parts: int) -> list[int]:
    """Cut a size into parts that differ by at most one, the larger ones last."""
    found = []
    for left in range(min(parts, size), 0, -1):
        found.append(size // left)
        size -= found[-1]
    return [part for part in found if part]
