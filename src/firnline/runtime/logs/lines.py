"""Logs the lines that the logic of a node asks for, and keeps them from repeating too fast. WORLD.

Clients and other nodes cause many of the lines: of each kind, so many are logged at once and then one a
second. The others are counted, and the next line of the kind, or one at the next look, says how many were
left out. Lines at debug have no bound: somebody asked for them.
"""

import logging
import time
from collections.abc import Callable

from firnline.base.log_lines.line import DEBUG, Log, LogLine
from firnline.base.log_lines.node import LINES_LEFT_OUT

AT_ONCE = 20
PER_SECOND = 1.0


class _Allowance:
    """How many lines of one kind may be logged now."""

    __slots__ = ("at_s", "left", "left_out")

    def __init__(self, now_s: float) -> None:
        self.left, self.at_s, self.left_out = float(AT_ONCE), now_s, 0

    def take(self, now_s: float) -> bool:
        self.left = min(AT_ONCE, self.left + (now_s - self.at_s) * PER_SECOND)
        self.at_s = now_s
        if self.left < 1:
            return False
        self.left -= 1
        return True


class LineLogger:
    """Logs lines through Python's `logging`."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._allowances: dict[str, _Allowance] = {}
        self._loggers: dict[str, logging.Logger] = {}
        self._left_out: dict[
            str, LogLine
        ] = {}  # by message: lines that were left out and not yet counted

    def log(self, effect: Log) -> None:
        """Log one line, if its level is on and it does not repeat too fast."""
        line, level = effect.line, effect.level
        logger = self._loggers.get(line.logger)
        if logger is None:
            logger = self._loggers[line.logger] = logging.getLogger(line.logger)
        if not logger.isEnabledFor(level):
            return
        more = 0
        if level > DEBUG:
            allowance = self._allowances.get(line.message)
            if allowance is None:
                allowance = self._allowances[line.message] = _Allowance(self._now_s())
            if not allowance.take(self._now_s()):
                allowance.left_out += 1
                self._left_out[line.message] = line
                return
            more, allowance.left_out = allowance.left_out, 0
            self._left_out.pop(line.message, None)
        fields = dict(effect.known_fields())
        if more:
            fields["left_out"] = more
        logger.log(level, line.message, extra={"fields": fields})

    def sweep(self) -> None:
        """Say how many lines were left out, of each kind that has an allowance again."""
        for message, line in list(self._left_out.items()):
            allowance = self._allowances[message]
            if allowance.take(self._now_s()):
                count, allowance.left_out = allowance.left_out, 0
                del self._left_out[message]
                fields = {"logger": line.logger, "message": message, "count": count}
                logging.getLogger(LINES_LEFT_OUT.logger).log(
                    LINES_LEFT_OUT.level, LINES_LEFT_OUT.message, extra={"fields": fields}
                )
