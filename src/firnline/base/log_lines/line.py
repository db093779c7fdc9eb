"""A line of the log, declared once with everything about it, and the effect that logs it. PURE.

Each declared line is a `LogLine`, and calling it with its fields makes the effect:

    ISR_SHRUNK = LogLine("firnline.replica", INFO, "ISR shrunk", ("topic", "partition", ...), "A replica ...")
    effects.append(ISR_SHRUNK(topic="orders", partition=3))

`docs/reference/logs.md` has a row for each, which a test compares with the declarations.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from firnline.base.event import event

# The levels of Python's `logging`, which names them so.
DEBUG, INFO, WARNING, ERROR, CRITICAL = 10, 20, 30, 40, 50
LEVEL_NAMES = {
    DEBUG: "debug",
    INFO: "info",
    WARNING: "warning",
    ERROR: "error",
    CRITICAL: "critical",
}

# The loggers, by name, and what each tells. Names do not follow modules: an operator looks for a subject.
LOGGERS: dict[str, str] = {
    "firnline": (
        "the process: start, stop, threads; and all loggers below, where they have no level of"
        " their own"
    ),
    "firnline.broker": "this broker's life with the controller, and its log directories",
    "firnline.compaction": "compaction of logs",
    "firnline.config": "settings that changed while the cluster runs",
    "firnline.controller": "brokers, topics, elections and reassignments, as the metadata has them",
    "firnline.coordinator": "consumer groups and their coordinators",
    "firnline.disk": "errors of disks",
    "firnline.links": "connections to other nodes, at debug",
    "firnline.log": "partition logs: recovery, truncation",
    "firnline.metadata": "snapshots of the metadata",
    "firnline.net": "connections, and requests that were refused or failed",
    "firnline.raft": "the metadata quorum: which node is the active controller",
    "firnline.replica": "ISR changes, and following leaders",
    "firnline.tiered": "the tier: copies, deletions, and stores that fail",
}

Fields = Mapping[str, object]


class LogLine(NamedTuple):
    """One kind of line.

    logger    one of LOGGERS
    level     at which it is logged
    message   a sentence of few words, always the same: what an operator searches for
    fields    the names of what it may say, in order; a field that is None is left out
    meaning   what it tells the operator, for docs/reference/logs.md
    advice    what the operator can do, always the same: the line ends with it, as the field `advice`
    is_loss   it names a log that has lost something. None of these is left out, however many come at once
    """

    logger: str
    level: int
    message: str
    fields: tuple[str, ...]
    meaning: str
    advice: str = ""
    is_loss: bool = False

    def __call__(self, **fields: object) -> "Log":
        """Return the effect that logs this line with these fields."""
        return Log(line=self, fields=fields)

    def detail(self, fields: Callable[[], Fields]) -> "Log":
        """Return the effect that logs this line at debug; `fields` is called only if that level is on."""
        return Log(line=self, fields=fields, is_detail=True)


@event
class Log:
    """Log one line. A line that repeats too fast is left out and counted, unless its kind is a loss.

    fields     or, so that they need not be made while the level is off, a function that returns them
    is_detail  one of many, which another line sums up: it is logged at debug
    """

    line: LogLine
    fields: Fields | Callable[[], Fields]
    is_detail: bool = False

    @property
    def level(self) -> int:
        return DEBUG if self.is_detail else self.line.level

    def known_fields(self) -> Fields:
        """Return the fields that have a value, in the declared order."""
        given = self.fields() if callable(self.fields) else self.fields
        assert given.keys() <= set(self.line.fields), "a line has its declared fields"
        known = {name: given[name] for name in self.line.fields if given.get(name) is not None}
        return known | {"advice": self.line.advice} if self.line.advice else known
