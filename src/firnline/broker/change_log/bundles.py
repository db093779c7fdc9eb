"""Keeps a change of thousands of things from being thousands of lines. PURE.

The first ten lines of a kind in a second are logged as they are. The rest are counted by reason, and summed
up in one line each at the end of that second, with some of their names; at debug each has its line.
"""

from collections.abc import Callable, Mapping

from firnline.base.effects import Effects, SetTimer
from firnline.base.log_lines.line import Fields, Log, LogLine

SINGLES_MAX = 10
EXAMPLES_MAX = 5
WINDOW_MS = 1_000


class Bundles:
    """Lines of one node, by kind.

    name  of whose lines they are, which sets their timer apart
    """

    def __init__(self, name: str) -> None:
        self._timer = ("log lines", name)
        self._until_ms = -1
        self._singles: dict[LogLine, int] = {}
        self._sums: dict[tuple[LogLine, tuple[tuple[str, object], ...]], list[str]] = {}
        self._counts: dict[tuple[LogLine, tuple[tuple[str, object], ...]], int] = {}
        self._offset: int | None = None

    def add(
        self,
        line: LogLine,
        fields: Fields | Callable[[], Fields],
        *,
        total: LogLine,
        shared: Mapping[str, object],
        name: str,
        now_ms: int,
        metadata_offset: int | None = None,
    ) -> Effects:
        """Log one line, or count it.

        total   the line that sums up several of `line`
        shared  the fields that those have in common: each combination has a sum of its own
        name    what changed, as an example in the sum
        """
        if now_ms >= self._until_ms:
            self._singles = {}
            self._until_ms = now_ms + WINDOW_MS
        count = self._singles.get(line, 0)
        if count < SINGLES_MAX:
            self._singles[line] = count + 1
            return [Log(line=line, fields=fields)]
        key = (total, tuple(shared.items()))
        is_first = not self._counts
        self._counts[key] = self._counts.get(key, 0) + 1
        examples = self._sums.setdefault(key, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(name)
        self._offset = metadata_offset
        effects: Effects = [Log(line=line, fields=fields, is_detail=True)]
        if is_first:
            effects.append(SetTimer(key=self._timer, at_ms=self._until_ms, then=self._sum_up))
        return effects

    def _sum_up(self, now_ms: int) -> Effects:
        counts, sums = self._counts, self._sums
        self._counts, self._sums = {}, {}
        at = {} if self._offset is None else {"metadata_offset": self._offset}
        return [
            total(**dict(shared), count=count, examples=tuple(sums[total, shared]), **at)
            for (total, shared), count in counts.items()
        ]
