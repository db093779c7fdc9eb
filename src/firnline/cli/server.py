"""`firnline server`: start a node from a server.properties file. WORLD."""

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click

from firnline.base.errors import ConfigError, FirnlineError
from firnline.base.log_lines.process import (
    KEYS_WITHOUT_MEANING,
    NODE_FAILED,
    SETTING,
    THREAD_FAILED,
    ready_at,
)
from firnline.cli.terminal.options import set_option
from firnline.config.broker import BrokerConfig
from firnline.config.load import (
    read_environment,
    read_overrides,
    read_properties,
    shown_settings,
    without_meaning,
)
from firnline.runtime.logs.formats import FORMATS, TEXT, formatter_of
from firnline.runtime.logs.handler import BackgroundHandler
from firnline.runtime.logs.levels import apply_levels, is_for_operators, parse_levels
from firnline.runtime.logs.lines import log_line
from firnline.server.config_sources import load_settings

LEVEL_OPTION_HELP = (
    "debug, info, warning or error; also of one logger, as in info,firnline.tiered=debug."
)


def checked_levels(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """Refuse what is no level, before anything is done. The value stays a text, to be passed on."""
    try:
        parse_levels("info" if text is None else text)
    except ConfigError as problem:
        why = str(problem).removeprefix("--log-level: ")
        raise click.BadParameter(why, context, option) from None
    return text


log_format_option = click.option(
    "--log-format", type=click.Choice(FORMATS),
    help="One JSON object a line, or text; firnline.log.format sets it, too.",
)  # fmt: skip


@click.command()
@click.option(
    "--config", "-c", "path", required=True, type=click.Path(dir_okay=False, path_type=Path),
    help="A server.properties file, Kafka's keys.",
)  # fmt: skip
@set_option("Set a key; this overrides everything else.")
@click.option(
    "--log-level",
    callback=checked_levels,
    metavar="LEVEL",
    default="info",
    show_default=True,
    help=LEVEL_OPTION_HELP,
)
@log_format_option
def command(path: Path, overrides: tuple[str, ...], log_level: str, log_format: str | None) -> None:
    """Start a node from a server.properties file.

    Environment variables override the file (FIRNLINE_LOG_RETENTION_MS for log.retention.ms), and each --set
    overrides both. Logs go to stderr. First prepare the directories with `firnline storage format`.
    """
    stated = read_file(path) | read_environment(os.environ) | read_overrides(overrides)
    config = with_absolute_paths(load_settings(stated))
    log_to_stderr(log_level, config.redact, log_format or config.firnline_log_format)
    say_what_has_no_meaning(config)
    with without_secrets(config):
        from firnline.server.main import (
            run,
        )  # imports nearly everything, so only once the settings are right

        sys.exit(run(config, lambda address: log_line(ready_at(address))))


def read_file(path: Path) -> dict[str, str]:
    """Return the settings of a .properties file. Raises ConfigError."""
    try:
        return read_properties(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
        raise ConfigError(f"cannot read {path}: {reason}") from None


def with_absolute_paths(config: BrokerConfig) -> BrokerConfig:
    """Return `config` with absolute directories: relative ones begin at the working directory."""
    metadata = config.metadata_log_dir
    return replace(
        config,
        log_dirs=tuple(os.path.abspath(path) for path in config.directories),
        metadata_log_dir=None if metadata is None else os.path.abspath(metadata),
    )


def log_to_stderr(level: str, redact: Callable[[str], str] = str, form: str = TEXT) -> None:
    """Send log lines to stderr; each begins with the time. A reader that stops delays nobody.

    level   as in `--log-level`
    redact  replaces secrets in each line
    form    text or json
    """
    handler: logging.Handler
    try:
        handler = BackgroundHandler(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # a test has put something else there
        handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter_of(form, redact))
    handler.addFilter(is_for_operators)
    logging.basicConfig(handlers=[handler], force=True)
    apply_levels(parse_levels(level))


@contextmanager
def without_secrets(config: BrokerConfig) -> Iterator[None]:
    """Keep secrets of the settings out of what a failing node, or one of its threads, writes to stderr."""
    threading.excepthook = _log_failed_thread
    try:
        yield
    except FirnlineError as problem:
        raise ConfigError(config.redact(str(problem))) from None
    except Exception as problem:  # noqa: BLE001 - the line has its traceback
        log_line(NODE_FAILED(error=type(problem).__name__), problem)
        sys.exit(1)


def _log_failed_thread(failure: threading.ExceptHookArgs) -> None:
    name = "a thread" if failure.thread is None else failure.thread.name
    log_line(THREAD_FAILED(thread=name, error=repr(failure.exc_value)), failure.exc_value)


def say_what_has_no_meaning(config: BrokerConfig) -> None:
    """Log the stated keys that do nothing here, in one line; and each setting, for who debugs."""
    for key, value in shown_settings(config):
        log_line(SETTING(key=key, value=value))
    names = without_meaning(config)
    if names:
        log_line(KEYS_WITHOUT_MEANING(keys=names))
