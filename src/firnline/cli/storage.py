"""`firnline storage`: prepare the directories of a node. WORLD.

What is written is what Apache Kafka writes: `meta.properties` and `bootstrap.checkpoint` in each
directory, so that either can start on what the other formatted. Source: KIP-631, KIP-778; spec I33.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from firnline.base.errors import ConfigError, FirnlineError
from firnline.base.ids import uuid_text
from firnline.base.ports import Fs, Rng
from firnline.cli.server import read_file
from firnline.config.broker import BrokerConfig
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
    from firnline.metadata.features import METADATA_VERSIONS, levels_to_format
    from firnline.metadata.image import METADATA_VERSION
    from firnline.runtime.disk import RealFs
    from firnline.runtime.rng import SystemRng

    config = load(read_file(path))
    levels = levels_to_format(features, release_version)
    formatted = format_node(
        config,
        cluster_id,
        levels,
        fs=RealFs(),
        rng=SystemRng(),
        now_ms=time.time_ns() // 1_000_000,
        ignore_formatted=ignore_formatted,
    )
    version = METADATA_VERSIONS[levels[METADATA_VERSION]]
    for directory in formatted:
        click.echo(f"formatted {directory} with metadata.version {version}")
    if not formatted:
        click.echo("all directories are formatted already")


def directories_of(config: BrokerConfig) -> list[str]:
    """Return every directory a node writes to, absolute, the metadata directory first."""
    names = [config.metadata_directory, *config.directories]
    return list(dict.fromkeys(str(Path(name).absolute()) for name in names))


def format_node(
    config: BrokerConfig,
    cluster_id: str,
    levels: Mapping[str, int],
    *,
    fs: Fs,
    rng: Rng,
    now_ms: int,
    ignore_formatted: bool = False,
) -> Sequence[str]:
    """Prepare each directory that is not prepared; return these.

    levels  feature levels of the new cluster, metadata.version among them

    `meta.properties` is written last and durably: a directory without it is not formatted. Raises
    ConfigError for a directory of another cluster or node, and for one that is formatted already.
    """
    if not cluster_id or any(c.isspace() or not c.isprintable() for c in cluster_id):
        raise ConfigError(f"{cluster_id!r} is not a cluster id: see firnline storage random-uuid")
    from firnline.log.directory import read_meta_properties

    fresh = []
    for directory in directories_of(config):
        meta = read_meta_properties(fs, directory)
        if meta is None:
            fresh.append(directory)
            continue
        _refuse_foreign(directory, meta, cluster_id, config.node_id)
        if not ignore_formatted:
            raise ConfigError(
                f"{directory} is formatted already; --ignore-formatted leaves it as it is and"
                " formats the others"
            )
    for directory in fresh:
        _format(fs, directory, config.node_id, cluster_id, levels, rng, now_ms)
    return fresh


def _refuse_foreign(directory: str, meta: Mapping[str, str], cluster_id: str, node_id: int) -> None:
    if meta.get("cluster.id") != cluster_id:
        raise ConfigError(
            f"{directory} belongs to cluster {meta.get('cluster.id')}, not to {cluster_id}"
        )
    if meta.get("node.id") != str(node_id):
        raise ConfigError(f"{directory} belongs to node {meta.get('node.id')}, not to {node_id}")


def _format(
    fs: Fs,
    directory: str,
    node_id: int,
    cluster_id: str,
    levels: Mapping[str, int],
    rng: Rng,
    now_ms: int,
) -> None:
    from firnline.log.directory import format_directory
    from firnline.metadata.image import METADATA_VERSION
    from firnline.metadata.records import FeatureLevelRecord
    from firnline.metadata.snapshot_file import BOOTSTRAP, snapshot_batches, write_snapshot

    content = [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]
    batches = snapshot_batches(
        content,
        epoch=0,
        metadata_version=levels[METADATA_VERSION],
        last_contained_ms=0,
        now_ms=now_ms,
    )
    try:
        fs.make_dir(directory)
        write_snapshot(fs, directory, BOOTSTRAP, batches)
        directory_id = rng.uuid()
        format_directory(
            fs, directory, cluster_id=cluster_id, node_id=node_id, directory_id=directory_id
        )
    except FirnlineError as problem:
        raise ConfigError(f"cannot format {directory}: {problem}") from None
