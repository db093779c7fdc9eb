"""How a log line looks: as text with `key=value`, or as a JSON object. WORLD.

Parts of a line come from clients: ids, names, errors. Whatever they hold, a record is one line: what cannot
be printed is escaped, so that nobody forges a line or sends commands to a terminal. Of a traceback each
line begins with ` | `.
"""

import json
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from firnline.base.log_lines.text import (
    MESSAGE_CHARS_MAX,
    VALUE_CHARS_MAX,
    cut,
    escaped,
    fields_text,
)

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)


def _fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    found: Mapping[str, object] = getattr(record, "fields", {})
    return found


class TextFormatter(logging.Formatter):
    """`2026-11-29 08:44:28,123 INFO firnline.replica: ISR shrunk topic=orders partition=3`.

    redact  replaces secrets in each line
    """

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        message = escaped(self._redact(cut(record.getMessage(), MESSAGE_CHARS_MAX)))
        fields = fields_text(_fields_of(record), self._redact)
        head = f"{self.formatTime(record)} {record.levelname} {record.name}: "
        trace = "".join(
            f"\n  | {escaped(line)}" for line in self._redact(_traceback(self, record)).splitlines()
        )
        return f"{head}{message}{fields}{trace}"


class JsonFormatter(logging.Formatter):
    """One object a line: ts (UTC), level, logger, message, fields; after a failure error, a traceback."""

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        found: dict[str, object] = {
            "ts": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._redact(cut(record.getMessage(), MESSAGE_CHARS_MAX)),
            "fields": {name: self._value(value) for name, value in _fields_of(record).items()},
        }
        trace = _traceback(self, record)
        if trace:
            found["error"] = self._redact(trace)
        return json.dumps(found)

    def _value(self, value: object) -> object:
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, (list, tuple)):
            return [self._value(each) for each in value]
        return self._redact(cut(str(value), VALUE_CHARS_MAX))


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return (
        formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
    )


def formatter_of(name: str, redact: Callable[[str], str] = str) -> logging.Formatter:
    """Return the formatter of that name, one of FORMATS."""
    return JsonFormatter(redact) if name == JSON else TextFormatter(redact)
