"""`firnline dev`: start a broker, or a cluster, without configuration, for development and tests. WORLD."""

import signal
import sys
import time
from pathlib import Path

import click

from firnline.base.errors import ConfigError
from firnline.cli.dev_cluster import DIFFERENT as DIFFERENT_WITH_NODES
from firnline.cli.dev_cluster import NODES_MAX, run_cluster
from firnline.cli.dev_data import DevData, choose, homes, refuse_foreign, refuse_lost_half, remove
from firnline.cli.server import (
    LEVEL_OPTION_HELP,
    checked_levels,
    log_format_option,
    log_to_stderr,
    say_what_has_no_meaning,
    with_absolute_paths,
    without_secrets,
)
from firnline.cli.terminal.options import set_option
from firnline.config.broker import BrokerConfig, broker_keys
from firnline.config.layers import OWN
from firnline.config.load import read_overrides
from firnline.config.parse import text_of
from firnline.config.tiered import BUILT_IN_STORAGE
from firnline.runtime.logs.formats import TEXT
from firnline.server.config_sources import load_settings
from firnline.server.stop_signals import stop_signals

LOG_FORMAT = "firnline.log.format"
NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    # A quorum of one: nobody connects to it.
    "controller.quorum.voters": "1@127.0.0.1:9093",
}
# The defaults of `dev` that differ from Kafka's; --help lists them.
DIFFERENT = {
    "group.initial.rebalance.delay.ms": "0",
    # In a quorum of one nobody needs the leader's NoOp records, and each costs a write and an fsync.
    "metadata.max.idle.interval.ms": "0",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
}
DIFFERENT_WITH_TIER = {
    # Local files are deleted as soon as the tier has them; records are deleted when Kafka would delete them.
    "firnline.local.retention.check.interval.ms": "1000",
    # What a user writes is in the tier without a word of theirs, and soon.
    "firnline.new.topics.remote.storage.enable": "true",
    "firnline.remote.log.roll.idle.ms": "10000",
    "remote.log.manager.task.interval.ms": "1000",
    "remote.log.storage.system.enable": "true",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "4",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
}
_KAFKA_OF_PLUGIN = {
    "rlmm.config.remote.log.metadata.topic.num.partitions": "50",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
}


def _differences(settings: dict[str, str]) -> str:
    lines = []
    for name, value in settings.items():
        key = broker_keys().get(name)
        theirs = _KAFKA_OF_PLUGIN.get(name) or (text_of(key, key.default) if key else None)
        whose = "Kafka does not have it; default" if name.startswith(OWN) else "Kafka"
        lines.append(
            f"{name}={value} ({'as in Kafka' if theirs == value else f'{whose}: {theirs}'})"
        )
    return "\n".join(["\b", *lines])


HELP = f"""Start a broker for development: one process, no configuration. With --nodes 3 a cluster of three.

Without --dir the data is in a temporary directory, which is removed when the broker stops. One line on stdout
says when clients can connect; logs go to stderr. Settings are those of --set alone: variables such as
FIRNLINE_LOG_RETENTION_MS, which `firnline server` reads, are not read here.

With --tier each new topic keeps its history in that tier, unless it is created with
remote.storage.enable=false or is compacted. Records are copied ten seconds after the last one was written, a
minute after the first one at the latest, or at once by `firnline tier flush TOPIC`. The data stays, in a
directory beside the tier: with the same --tier the next start goes on where the last one ended. To begin
anew, remove both. For a tier in an object store that directory is in ~/.local/state/firnline/dev.

With --nodes each node is a process with its log in its own directory. The first three are controllers
too. Kill one to see what happens: stderr says so, the node is not started again, and the others go on.
Ctrl-C stops them all.

What differs from Kafka's defaults:

{_differences(DIFFERENT)}

With --tier also:

{_differences(DIFFERENT_WITH_TIER)}

With --nodes 3 also, and as many replicas for the tier's topic:

{_differences(DIFFERENT_WITH_NODES)}
"""


@click.command(help=HELP)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=9092, show_default=True,
    help="Port on 127.0.0.1, of the first node; 0 takes a free one.",
)  # fmt: skip
@click.option(
    "--nodes", type=click.IntRange(1, NODES_MAX), default=1, show_default=True,
    help="Number of nodes. The others use the next ports, or free ones.",
)  # fmt: skip
@click.option(
    "--dir", "--data-dir", "directory", type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the data; it is kept. Default: temporary; with --tier DIR it is DIR-data.",
)  # fmt: skip
@click.option(
    "--tier", metavar="URI",
    help="Remote tier: a directory, or the URI of a store such as s3://bucket/prefix.",
)  # fmt: skip
@set_option("Set a broker's key.")
@click.option(
    "--log-level", callback=checked_levels, metavar="LEVEL",
    help=f"{LEVEL_OPTION_HELP} Default: warning; info for nodes with a log file.",
)  # fmt: skip
@log_format_option
def command(
    port: int,
    nodes: int,
    directory: Path | None,
    tier: str | None,
    overrides: tuple[str, ...],
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Run a development broker, or several, until they are stopped."""
    stated = read_overrides(overrides)
    if log_format is not None:
        stated[LOG_FORMAT] = log_format
    log_to_stderr(log_level or "warning", form=log_format or TEXT)
    # Until the server installs its own handlers, leave through `finally`.
    for number in set(stop_signals()) - {signal.SIGINT}:
        signal.signal(number, lambda *_: sys.exit(0))
    data = choose(directory, tier)
    try:
        sys.exit(_run_in(data, port, nodes, tier, stated, log_level))
    finally:
        remove(data)


def _run_in(
    data: DevData,
    port: int,
    nodes: int,
    tier: str | None,
    stated: dict[str, str],
    log_level: str | None,
) -> int:
    """Run until it is told to stop; return the exit code. Raises ConfigError before anything is written."""
    path = data.path
    if "," in str(path):
        raise ConfigError(f"{path}: log.dirs cannot name a directory with a comma")
    refuse_foreign(path)
    refuse_lost_half(data)
    if nodes > 1:
        settings = _common(tier)
        return run_cluster(
            nodes, path, port=port, settings=settings, stated=stated, tier=tier,
            log_level=log_level or "info",
        )  # fmt: skip
    if homes(path):
        raise ConfigError(f"{path} holds a cluster: start it with --nodes {len(homes(path))}")
    config = with_absolute_paths(dev_config(port, str(path), tier, stated))
    log_to_stderr(log_level or "warning", config.redact, config.firnline_log_format)
    say_what_has_no_meaning(config)
    with without_secrets(config):
        return _run(config, str(path), tier)


def dev_config(port: int, data: str, tier: str | None, stated: dict[str, str]) -> BrokerConfig:
    """Return the settings of a development broker; `stated` overrides everything."""
    settings = NODE | _common(tier)
    settings["listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
    settings["log.dirs"] = data
    return load_settings(settings | stated)


def _common(tier: str | None) -> dict[str, str]:
    """Return the settings that all nodes of `dev` share."""
    settings = dict(DIFFERENT)
    if tier is not None:
        settings |= DIFFERENT_WITH_TIER
        settings["remote.log.storage.manager.class.name"] = BUILT_IN_STORAGE
        settings["rsm.config.uri"] = tier if "://" in tier else str(Path(tier).absolute())
    return settings


def _run(config: BrokerConfig, data: str, tier: str | None) -> int:
    from firnline.metadata.format import format_storage, refuse_half
    from firnline.runtime.disk import RealFs
    from firnline.runtime.rng import SystemRng
    from firnline.server.main import run

    refuse_half(RealFs(), config)
    format_storage(
        RealFs(),
        config,
        cluster_id=None,
        rng=SystemRng(),
        now_ms=time.time_ns() // 1_000_000,
        ignore_formatted=True,
    )

    def ready(address: str) -> None:
        print(f"firnline dev: ready at {address} (data {data}, tier {tier or 'none'})", flush=True)

    return run(config, ready)
