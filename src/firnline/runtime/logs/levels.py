"""The levels of loggers: of `--log-level`, and as the resource BROKER_LOGGER of Kafka's configuration APIs.
WORLD.

Kafka's names of levels are FATAL, ERROR, WARN, INFO, DEBUG and TRACE; here FATAL is CRITICAL, and below
DEBUG there is nothing. Source: KIP-412.
"""

import logging
from collections.abc import Mapping

from firnline.base.errors import ConfigError
from firnline.base.log_lines.line import LOGGERS
from firnline.base.log_lines.process import LEVEL_CHANGED
from firnline.base.ports import ROOT_LOGGER
from firnline.config.parse import nearest
from firnline.runtime.logs.lines import log_line

_KAFKA_LEVELS: dict[str, int] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def parse_levels(text: str) -> dict[str, int]:
    """Return levels by logger, "" for all others, of `info,firnline.tiered=debug`. Raises ConfigError."""
    found: dict[str, int] = {}
    for part in text.split(","):
        name, equals, level = part.strip().rpartition("=")
        if equals and name not in LOGGERS:
            meant = nearest(name, LOGGERS)
            hint = "." if meant is None else f". Did you mean {meant}?"
            raise ConfigError(
                f"--log-level: there is no logger {name!r}{hint} docs/reference/logs.md lists them"
            )
        if level.lower() not in _LEVELS:
            raise ConfigError(
                f"--log-level: {level!r} is no level: {', '.join(_LEVELS)}, for all or for a logger, as in"
                " info,firnline.tiered=debug"
            )
        if name in found:
            raise ConfigError(f"--log-level: two levels for {name or 'all loggers'}")
        found[name] = _LEVELS[level.lower()]
    return found


def apply_levels(levels: Mapping[str, int]) -> None:
    """Set the levels of loggers; those of other libraries follow the level for all."""
    logging.getLogger().setLevel(levels.get("", logging.INFO))
    for name in LOGGERS:
        logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))


def is_for_operators(record: logging.LogRecord) -> bool:
    """Whether a record is written: below INFO only those of a node's own loggers.

    Any client may set the level of the root to DEBUG. The client of a store would then write each request,
    with its signature.
    """
    return record.levelno >= logging.INFO or record.name in LOGGERS


class ProcessLoggers:
    """The loggers of this process: `base.ports.Loggers`."""

    def levels(self) -> dict[str, str]:
        """Return Kafka's name of the level in force for each logger, the root first."""
        found = {ROOT_LOGGER: _kafka_name(logging.getLogger().getEffectiveLevel())}
        for name in LOGGERS:
            found[name] = _kafka_name(logging.getLogger(name).getEffectiveLevel())
        return found

    def set_level(self, name: str, level: str | None) -> None:
        """Set the level of a known logger; None: that of the logger above it."""
        number = logging.NOTSET if level is None else _KAFKA_LEVELS[level]
        logging.getLogger("" if name == ROOT_LOGGER else name).setLevel(number)
        in_force = self.levels()[name]
        log_line(LEVEL_CHANGED(logger=name, level=in_force, is_own=level is not None))


def _kafka_name(level: int) -> str:
    return next((name for name, number in _KAFKA_LEVELS.items() if level >= number), "TRACE")
