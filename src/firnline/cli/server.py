"""`firnline server`: start a node from a server.properties file. WORLD."""

import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

import click

from firnline.base.errors import ConfigError
from firnline.config.broker import BrokerConfig
from firnline.config.load import (
    load,
    read_environment,
    read_overrides,
    read_properties,
    without_meaning,
)

log = logging.getLogger("firnline")

LOG_LEVELS = ["debug", "info", "warning", "error"]


@click.command()
@click.option(
    "--config", "-c", "path", required=True, type=click.Path(dir_okay=False, path_type=Path),
    help="A server.properties file, Kafka's keys.",
)  # fmt: skip
@click.option(
    "-X",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a key; this overrides everything else.",
)
@click.option("--log-level", type=click.Choice(LOG_LEVELS), default="info", show_default=True)
def command(path: Path, overrides: tuple[str, ...], log_level: str) -> None:
    """Start a node from a server.properties file.

    Environment variables override the file (FIRNLINE_LOG_RETENTION_MS for log.retention.ms), and each -X
    overrides both. Logs go to stderr. First prepare the directories with `firnline storage format`.
    """
    stated = read_file(path) | read_environment(os.environ) | read_overrides(overrides)
    log_to_stderr(log_level)
    config = with_absolute_paths(load(stated))
    say_what_has_no_meaning(config)
    from firnline.server.main import (
        run,
    )  # imports nearly everything, so only once the settings are right

    sys.exit(run(config, lambda address: log.info("ready at %s", address)))


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


def log_to_stderr(level: str) -> None:
    """Send log lines to stderr; each begins with the time."""
    logging.basicConfig(
        stream=sys.stderr,
        level=level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        force=True,
    )


def say_what_has_no_meaning(config: BrokerConfig) -> None:
    """Log the stated keys that do nothing here, in one line."""
    names = without_meaning(config)
    if names:
        log.info("accepted, without meaning here: %s", ", ".join(names))
