"""From Spark's filters to `Filters`, and whether Spark hands any over. SPARK; imports PySpark.

Spark 4.3.0 keeps one plan for each `load()`: that of the query that handed filters over last
(`PythonDataSourceV2.readInfo`). Whichever query reads it, also one without a filter, gets no other rows. So a
plan may leave out only what no query of its `load()` takes: `FiltersOfLoad` keeps the filters of all queries,
and `load.load` sees to it that each query has one.

Spark refuses a reader with `pushFilters` while its switch is off. It asks for the reader in a process of its
own, which has neither a session nor its settings. But only where the switch is on is there a process that
pushes filters, and that process has the module that does so. Source: spark section 8 trap 3.
"""

import contextlib
import fcntl
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from firnline.spark.log_lines import warn
from firnline.spark.planning.filters import Filters

SWITCH = "spark.sql.python.filterPushdown.enabled"
_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"
_OPERATORS: dict[type, str] = {
    EqualTo: "=",
    EqualNullSafe: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    In: "in",
    StringStartsWith: "starts",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_log = logging.getLogger(__name__)


def is_pushing() -> bool:
    """Whether this process is one in which Spark hands filters to a reader."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING in sys.modules or (main is not None and main.name == _PUSHING)


def filters_of(given: Iterable[Filter]) -> Filters:
    """Return what Spark's filters say together. Those of another kind, column or type say nothing."""
    found = Filters()
    for one in given:
        found = _narrowed(found, one)
    return found


def _narrowed(found: Filters, one: Any) -> Filters:
    operator = _OPERATORS.get(type(one))
    if operator is None or len(one.attribute) != 1:
        return found
    column = one.attribute[0]
    columns: dict[str, tuple[Callable[..., Filters], Callable[[object], Any]]] = {
        "offset": (found.and_offset, _integer),
        "partition": (found.and_partition, _integer),
        "timestamp": (found.and_time, _micros),
        "topic": (found.and_topic, _text),
    }
    if column not in columns or (operator == "starts" and column != "topic"):
        return found
    narrow, read = columns[column]
    # A comparison with null takes no row, nor does an element of a list that is null.
    given = [v for v in (one.value if operator == "in" else [one.value]) if v is not None]
    values = [read(value) for value in given]
    return found if None in values else narrow(operator, values)


def _integer(value: object) -> int | None:
    return value if type(value) is int else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _micros(value: object) -> int | None:
    """Return a time as Spark holds it; None for one without a zone, which no column of ours is."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND


_PREFIX = "firnline-filters-"
FILES_KEPT = 1_000


class FiltersOfLoad:
    """The filters of all queries of one `load()`, in a file of the driver: Spark plans each in a process.

    Spark pickles it with the data source, which it makes once for each `load()`.
    """

    def __init__(self) -> None:
        # Spark removes its own directory when the session ends.
        folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
        try:
            file, self._path = tempfile.mkstemp(
                prefix=_PREFIX, dir=folder if os.path.isdir(folder) else None
            )
        except OSError:  # a full disk: without the file each plan has everything
            self._path = ""
        else:
            os.close(file)
            _remove_oldest(os.path.dirname(self._path))

    def with_others(self, one: Filters) -> Filters:
        """Note the filters of a query; return what takes each row that this or an earlier query takes.

        Filters that take everything if it is not known what the earlier ones were.
        """
        try:
            with open(self._path, "r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                text = file.read()
                noted = _filters_from(text) if text else one
                joined = noted.or_else(one)
                if joined != noted or not text:
                    file.seek(0)
                    file.write(json.dumps(joined))
                    file.truncate()
                return joined
        except (OSError, ValueError, TypeError):
            # This query gets everything, and is not noted: so no later one may get less.
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            return Filters()


def _remove_oldest(folder: str) -> None:
    """Keep FILES_KEPT files: a server of Spark Connect may make one for each query.

    A query whose file is gone gets everything.
    """
    with contextlib.suppress(OSError):
        ours = [each for each in os.scandir(folder) if each.name.startswith(_PREFIX)]
        if len(ours) <= FILES_KEPT:
            return
        for each in sorted(ours, key=lambda one: one.stat().st_mtime_ns)[:-FILES_KEPT]:
            os.unlink(each.path)


def _filters_from(text: str) -> Filters:
    *spans, topics = json.loads(text)
    offsets, times_ms, partitions = (tuple((start, end) for start, end in each) for each in spans)
    compared = tuple((operator, tuple(values)) for operator, values in topics)
    return Filters(offsets, times_ms, partitions, compared)


_logged: set[str] = set()


def log_once(setting: bool | None) -> None:
    """Tell the user of a session that is not ours, once, that Spark keeps its filters to itself.

    setting  what the session says of `SWITCH`; None: unknown
    """
    if SWITCH not in _logged and setting is False:
        _logged.add(SWITCH)
        warn(_log, "filters do not narrow the plan", advice=f"turn on {SWITCH} in this session")


def setting_of_planner() -> bool | None:
    """Return what the session says of `SWITCH`, in the process in which Spark plans a read; None: unknown.

    Spark tells that process, but not its reader: the setting is in the frame of a caller, and only a message
    to the user depends on it.
    """
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if "enable_pushdown" in frame.f_locals:
            found = frame.f_locals.get("enable_pushdown")
            return found if isinstance(found, bool) else None
    return None
