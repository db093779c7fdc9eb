"""`firnline storage`: prepare the directories of a node. WORLD.

What is written is what Apache Kafka writes: `meta.properties` and `bootstrap.checkpoint` in each
directory, so that either can start on what the other formatted. Source: KIP-631, KIP-778; spec I33.
"""

import time
from pathlib import Path

import click

from firnline.base.ids import uuid_text
from firnline.cli.server import read_file, with_absolute_paths
from firnline.config.load import load


@click.group()
def command() -> None:
    """Prepare the directories of a node."""


@command.command("random-uuid")
def random_uuid() -> None:
    """Print a new id for a cluster."""
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
def format_(
    cluster_id: str,
    path: Path,
    features: tuple[str, ...],
    release_version: str | None,
    ignore_formatted: bool,
) -> None:
    """Prepare the directories that a node's settings name, for a new cluster.

    Features that this release does not act on stay at level 0.
    """
    from firnline.metadata.format import format_storage
    from firnline.runtime.disk import RealFs
    from firnline.runtime.rng import SystemRng

    done = format_storage(
        RealFs(),
        with_absolute_paths(load(read_file(path))),
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
