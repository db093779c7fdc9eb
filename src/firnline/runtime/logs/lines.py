"""Logs the declared lines, and keeps them from repeating too fast. WORLD.

Clients, other nodes and a broken disk or store cause many of the lines, and some last for a month. So there
are two bounds for each kind of line. One is for a burst, the other for what goes on: `BOUNDS`. Lines beyond
them are counted, and the next line of the kind, or one at the next look, says how many were left out. Lines
that name a log with a loss have no bound: after a crash an operator needs all of their names.

A warning names what it is about: a partition, a node, a host. One of them that has trouble all the time must
not hide that another one has it now. So the first warning about each within an hour is logged also where its
kind has no allowance left, with a bound of its own.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from firnline.base.log_lines.line import DEBUG, INFO, WARNING, Fields, Log, LogLine
from firnline.base.log_lines.process import LINES_LEFT_OUT


class Bound(NamedTuple):
    """So many lines at once, and then one after each `every_s`."""

    at_once: int
    every_s: float


# By level; of ERROR and above as of WARNING. A day has at most the second bound and 86,400 s / every_s lines.
BURST = Bound(20, 1.0)
BOUNDS: dict[int, tuple[Bound, ...]] = {
    DEBUG: (Bound(2_000, 0.005),),
    INFO: (BURST, Bound(1_000, 10.0)),
    WARNING: (BURST, Bound(200, 300.0)),
}

# Fields that name what a warning is about. Ids of clients are none: a client could invent any number of them.
SUBJECT_FIELDS = ("topic", "partition", "log", "broker", "node", "host", "path")
SUBJECT_QUIET_S = 3600.0
# First warnings about another subject, of one kind, beyond the bounds of the kind.
FIRSTS = Bound(100, 300.0)
# What is remembered of subjects, the oldest forgotten first: below half a megabyte.
SUBJECTS_MAX = 1_000

_Subject = tuple[object, ...]


class _Allowance:
    """How many lines of one kind may be logged now."""

    __slots__ = ("_bounds", "at_s", "left", "left_out")

    def __init__(self, bounds: tuple[Bound, ...], now_s: float) -> None:
        self._bounds = bounds
        self.left = [float(bound.at_once) for bound in self._bounds]
        self.at_s, self.left_out = now_s, 0

    def take(self, now_s: float) -> bool:
        passed_s, self.at_s = now_s - self.at_s, now_s
        self.left = [
            min(bound.at_once, left + passed_s / bound.every_s)
            for bound, left in zip(self._bounds, self.left, strict=True)
        ]
        if min(self.left) < 1:
            return False
        self.left = [left - 1 for left in self.left]
        return True


class LineLogger:
    """Logs lines through Python's `logging`. Any thread may call it."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._allowances: dict[tuple[str, int], _Allowance] = {}
        # By kind: lines that were left out and not yet counted.
        self._left_out: dict[tuple[str, int], LogLine] = {}
        self._firsts: dict[str, _Allowance] = {}
        # By message and subject: when a warning about it was logged last.
        self._logged_s: OrderedDict[_Subject, float] = OrderedDict()

    def log(self, effect: Log, problem: BaseException | None = None) -> None:
        """Log one line, if its level is on and it does not repeat too fast.

        problem  its traceback follows the line
        """
        line, level = effect.line, effect.level
        logger = logging.getLogger(line.logger)
        if not logger.isEnabledFor(level):
            return
        fields = dict(effect.known_fields()) if level >= WARNING else None
        more = 0 if line.is_loss else self._allowed(line, level, fields)
        if more is None:
            return
        if fields is None:
            fields = dict(effect.known_fields())
        if more:
            fields["left_out"] = more
        logger.log(level, line.message, extra={"fields": fields}, exc_info=problem)

    def _allowed(self, line: LogLine, level: int, fields: Fields | None) -> int | None:
        """Return how many lines of the kind were left out before this one; None to leave it out, too.

        fields  of a warning; None: the line is none
        """
        kind = line.message, level
        with self._lock:
            now_s = self._now_s()
            allowance = self._allowances.get(kind)
            if allowance is None:
                allowance = _Allowance(BOUNDS[min(WARNING, level)], now_s)
                self._allowances[kind] = allowance
            subject = _subject_of(line, fields)
            if not allowance.take(now_s) and not self._is_first(line, subject, now_s):
                allowance.left_out += 1
                self._left_out[kind] = line
                return None
            self._remember(subject, now_s)
            more, allowance.left_out = allowance.left_out, 0
            self._left_out.pop(kind, None)
            return more

    def _is_first(self, line: LogLine, subject: _Subject | None, now_s: float) -> bool:
        """Is it long since this kind of line was logged of that subject, and may one more be logged?"""
        if (
            subject is None
            or now_s - self._logged_s.get(subject, -SUBJECT_QUIET_S) < SUBJECT_QUIET_S
        ):
            return False
        if line.message not in self._firsts:
            self._firsts[line.message] = _Allowance((FIRSTS,), now_s)
        return self._firsts[line.message].take(now_s)

    def _remember(self, subject: _Subject | None, now_s: float) -> None:
        if subject is None:
            return
        self._logged_s[subject] = now_s
        self._logged_s.move_to_end(subject)
        if len(self._logged_s) > SUBJECTS_MAX:
            self._logged_s.popitem(last=False)

    def sweep(self) -> None:
        """Say how many lines were left out, of each kind that has an allowance again."""
        counted = []
        with self._lock:
            for kind, line in list(self._left_out.items()):
                allowance = self._allowances[kind]
                if allowance.take(self._now_s()):
                    counted.append((line, allowance.left_out))
                    allowance.left_out = 0
                    del self._left_out[kind]
        for line, count in counted:
            fields = {"logger": line.logger, "message": line.message, "count": count}
            logging.getLogger(LINES_LEFT_OUT.logger).log(
                LINES_LEFT_OUT.level, LINES_LEFT_OUT.message, extra={"fields": fields}
            )


def _subject_of(line: LogLine, fields: Fields | None) -> _Subject | None:
    """Return the kind of a warning and what it is about; None if it names nothing."""
    if fields is None:
        return None
    named = [(name, str(fields[name])[:300]) for name in SUBJECT_FIELDS if name in fields]
    return (line.message, *named) if named else None


# The lines of this process: one node, or the nodes of a test.
process_lines = LineLogger()
log_line = process_lines.log
