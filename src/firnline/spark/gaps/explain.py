"""What a batch read with `onGap` says in the log about the gaps of its plan. SPARK, without Spark."""

import logging
from collections.abc import Iterable

from firnline.spark.gaps.causes import LeftOut, is_reported
from firnline.spark.log_lines import warn
from firnline.spark.options.parse import Options

# A read of 10,000 partitions with an expired start would fill the log; the table has them all.
LINES_MAX = 100
_log = logging.getLogger(__name__)


def report(options: Options, left_out: Iterable[LeftOut]) -> None:
    """Log what a plan leaves out: a line for each partition and cause, up to `LINES_MAX`.

    Without `onGap` there is nothing to say here: the planner has said it, as it always did.
    """
    if options.on_gap is None or options.reports_gaps:
        return
    lines = [fields for each in left_out for fields in _lines(options.on_gap, each)]
    for fields in lines[:LINES_MAX]:
        warn(_log, "offsets are left out", **fields)
    if len(lines) > LINES_MAX:
        more = len(lines) - LINES_MAX
        warn(_log, "more gaps", count=more, advice="the table gaps has them all")


def _lines(on_gap: str, one: LeftOut) -> list[dict[str, object]]:
    by_cause: dict[str, list[tuple[int, int, str]]] = {}
    for each in one.missing:
        if is_reported(on_gap, each.cause):
            by_cause.setdefault(each.cause, []).append((*each[:2], each.detail))
    return [
        {
            "topic": one.topic,
            "partition": one.partition,
            "cause": cause,
            "from_offset": min(start for start, _, _ in spans),
            "to_offset": max(end for _, end, _ in spans),
            "offsets": sum(end - start for start, end, _ in spans),
            "detail": spans[0][2],
        }
        for cause, spans in by_cause.items()
    ]
