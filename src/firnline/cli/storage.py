"""`firnline storage`: prepare the directories of a node. WORLD.

Writes what Apache Kafka writes: `meta.properties` and `bootstrap.checkpoint` in each directory. Either can
start on directories that the other has formatted. Source: KIP-631, KIP-778; spec I33.
"""

import time
from pathlib import Path

import click

from firnline.base.errors import ConfigError
from firnline.base.ids import uuid_text
from firnline.cli.server import read_file, with_absolute_paths
from firnline.server.config_sources import load_settings


@click.group()
def command() -> None:
    """Prepare the directories of a node."""


@command.command("random-uuid")
def random_uuid() -> None:
    """Print a new cluster id."""
    from firnline.runtime.rng import SystemRng

    click.echo(uuid_text(SystemRng().uuid()))


@command.command("format")
@click.option("--cluster-id", "-t", required=True, help="See `firnline storage random-uuid`.")
@click.option(
    "--config", "-c", "path", required=True, type=click.Path(dir_okay=False, path_type=Path),
    help="The server.properties file of the node.",
)  # fmt: skip
@click.option(
    "--feature", "-f", "features", multiple=True, metavar="NAME=LEVEL", help="Level of a feature."
)
@click.option("--release-version", "-r", metavar="VERSION", help="metadata.version, such as 4.3.")
@click.option(
    "--ignore-formatted", "-g", is_flag=True, help="Leave formatted directories as they are."
)
@click.option("--standalone", "-s", is_flag=True, help="The node is its own quorum of one voter.")
@click.option("--initial-controllers", "-I", metavar="VOTERS", help="Not yet: dynamic voters.")
@click.option("--no-initial-controllers", "-N", is_flag=True, help="Not yet: dynamic voters.")
@click.option("--add-scram", "-S", multiple=True, metavar="CREDENTIAL", help="Not yet: SCRAM.")
def format_(
    cluster_id: str,
    path: Path,
    features: tuple[str, ...],
    release_version: str | None,
    ignore_formatted: bool,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    add_scram: tuple[str, ...],
) -> None:
    """Prepare the directories of a node's settings for a new cluster.

    Features that this release does not support stay at level 0, and the voters are those of the settings
    (kraft.version 0). The flags are those of Kafka's tool.
    """
    if initial_controllers or no_initial_controllers:
        flag = "--initial-controllers" if initial_controllers else "--no-initial-controllers"
        raise ConfigError(
            f"{flag} prepares for dynamic voters (kraft.version 1), which this release does not support"
        )
    if add_scram:
        raise ConfigError(
            "--add-scram: SASL/SCRAM is not supported yet, so no client would be asked for it"
        )
    config = with_absolute_paths(load_settings(read_file(path)))
    if standalone and config.controller_quorum_voters:
        raise ConfigError(
            "--standalone and controller.quorum.voters exclude each other: remove one of them"
        )
    from firnline.metadata.format import format_storage
    from firnline.runtime.disk import RealFs
    from firnline.runtime.rng import SystemRng

    done = format_storage(
        RealFs(),
        config,
        cluster_id=cluster_id,
        rng=SystemRng(),
        now_ms=time.time_ns() // 1_000_000,
        features=features,
        release_version=release_version,
        ignore_formatted=ignore_formatted,
    )
    for directory in done.directories:
        click.echo(f"formatted {directory} with metadata.version {done.metadata_version}")
    for directory in done.already_formatted:
        click.echo(f"{directory} is formatted already")
    if not config.controller_quorum_voters:
        click.echo(
            f"a quorum of node {config.node_id} alone, kraft.version 0; before Apache Kafka starts on it,"
            f" state controller.quorum.voters={config.node_id}@HOST:PORT"
        )
