"""Formats the log directories of a node, and checks them before the start. STORE.

`bootstrap.checkpoint` is written before `meta.properties`. Only the latter marks a directory as formatted, so
a directory that was left half formatted is formatted again. Source: KIP-631, KIP-858, KIP-1022; spec Q11,
Q12, I33.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from firnline.base.errors import ConfigError
from firnline.base.ids import METADATA_TOPIC, uuid_text
from firnline.base.ports import Fs, Rng
from firnline.config.broker import BrokerConfig
from firnline.formats.names import parse_partition_dir
from firnline.log.checkpoint import format_directory, make_dir_durably, read_meta_properties
from firnline.metadata.features import METADATA_VERSIONS, levels_to_format
from firnline.metadata.image import METADATA_VERSION
from firnline.metadata.records import FeatureLevelRecord
from firnline.metadata.snapshot_file import BOOTSTRAP, snapshot_batches, write_snapshot

_METADATA_LOG = f"{METADATA_TOPIC}-0"


class Formatted(NamedTuple):
    """What was done. `directories` in the order of the configuration; `levels` are those above 0."""

    cluster_id: str
    directories: tuple[str, ...]
    already_formatted: tuple[str, ...]
    levels: Mapping[str, int]

    @property
    def metadata_version(self) -> str:
        """Name of the metadata.version, such as 4.3-IV0."""
        return METADATA_VERSIONS[self.levels[METADATA_VERSION]]


def format_storage(
    fs: Fs,
    config: BrokerConfig,
    *,
    cluster_id: str | None,
    rng: Rng,
    now_ms: int,
    features: Sequence[str] = (),
    release_version: str | None = None,
    ignore_formatted: bool = False,
) -> Formatted:
    """Format every log directory of a node for the cluster `cluster_id`; None makes a new id.

    features         NAME=LEVEL, as of --feature
    release_version  a metadata.version by name or by release, as of --release-version
    ignore_formatted leave directories that are already formatted for this node and cluster as they are,
                     and format the others; without it such a directory is an error

    Raises ConfigError, before anything is written, for a directory of another cluster or node, for one that
    is already formatted, for one with logs but without meta.properties, for a new metadata directory if
    existing logs would lose their metadata, and for levels that this release does not support.
    """
    levels = levels_to_format(features, release_version)
    directories = storage_directories(config)
    found = {path: _identity(fs, path) for path in directories}
    formatted = [path for path in directories if found[path] is not None]
    if formatted and not ignore_formatted:
        raise ConfigError(
            f"{formatted[0]} is formatted already; --ignore-formatted leaves it as it is and formats"
            " the others"
        )
    if cluster_id is None:
        known = [identity["cluster.id"] for identity in found.values() if identity]
        cluster_id = known[0] if known else uuid_text(rng.uuid())
    if not _is_word(cluster_id):
        raise ConfigError(
            f"a cluster id is a word, such as firnline makes one, and not {cluster_id!r}"
        )
    for path in formatted:
        _refuse_foreign(path, found[path] or {}, cluster_id, config.node_id)
    fresh = [path for path in directories if found[path] is None]
    for path in fresh:
        refuse_logs(fs, path, config.node_id)
    if config.metadata_directory in fresh and formatted:
        _refuse_lost_metadata(fs, config, formatted)
    for path in fresh:
        _format(fs, path, cluster_id, config.node_id, levels, rng, now_ms)
    return Formatted(cluster_id, tuple(fresh), tuple(formatted), levels)


def storage_directories(config: BrokerConfig) -> list[str]:
    """Return all directories of a node, including that of the metadata log, each once."""
    return list(dict.fromkeys((config.metadata_directory, *config.directories)))


def _identity(fs: Fs, path: str) -> Mapping[str, str] | None:
    found = read_meta_properties(fs, path)
    if found is not None and not _is_word(found.get("cluster.id", "")):
        raise ConfigError(
            f"{path}/meta.properties names no cluster.id: write there the one that the other directories and"
            " nodes of the cluster have"
        )
    return found


def _is_word(cluster_id: str) -> bool:
    return bool(cluster_id) and cluster_id == cluster_id.strip() and cluster_id.isprintable()


def refuse_half(fs: Fs, config: BrokerConfig) -> None:
    """Raise ConfigError if some directories of a node are formatted and others are not.

    For commands that format by themselves: a disk that is not mounted looks like a new one, and its logs
    would be missing without a word.
    """
    directories = storage_directories(config)
    fresh = [path for path in directories if _identity(fs, path) is None]
    for path in fresh:
        refuse_logs(fs, path, config.node_id)
    if fresh and len(fresh) < len(directories):
        raise ConfigError(
            f"{fresh[0]} is not formatted, and other directories of this node are: mount its disk, or put the"
            " directory back; if it is to be a new one, run `firnline storage format --ignore-formatted`"
        )


def _logs_in(fs: Fs, path: str) -> list[str]:
    names = fs.list_dir(path) if fs.exists(path) else []
    return sorted(name for name in names if parse_partition_dir(name) is not None)


def refuse_mixed_up(fs: Fs, config: BrokerConfig) -> None:
    """Raise ConfigError if the directories of a node are not those of its last start, as far as they tell.

    Before a start that would go on with them: one is named twice, or is a copy of another; one has logs and
    no meta.properties; or the metadata is in another than the settings say, so that the node would begin
    without it. A controller alone would begin an empty cluster then, and one of several would vote again.
    """
    directories = storage_directories(config)
    by_id: dict[str, str] = {}
    for path in _with_repeated(config):
        found = _identity(fs, path)
        if found is None:
            refuse_logs(fs, path, config.node_id)
            continue
        named = found.get("directory.id", path)
        if named in by_id:
            raise ConfigError(
                f"log.dirs names one directory twice: {by_id[named]} and {path} have the same directory.id in"
                " meta.properties. Name it once; if one is a copy of the other, take the copy away, and put"
                " back the directory that belongs there"
            )
        by_id[named] = path
    wanted = config.metadata_directory
    holders = [path for path in directories if fs.exists(f"{path}/{_METADATA_LOG}")]
    if holders and wanted not in holders:
        raise ConfigError(
            f"the metadata of this node is in {holders[0]}/{_METADATA_LOG}, and not in {wanted}, the first of"
            f" log.dirs or metadata.log.dir: put the directories back where they were, or set"
            f" metadata.log.dir={holders[0]}"
        )


def _with_repeated(config: BrokerConfig) -> list[str]:
    """All directories; one that log.dirs names twice is there twice."""
    apart = config.metadata_directory
    return [*config.directories, *([] if apart in config.directories else [apart])]


def refuse_logs(fs: Fs, path: str, node_id: int) -> None:
    """A directory with logs is not new, even without meta.properties. ConfigError."""
    logs = _logs_in(fs, path)
    if logs:
        raise ConfigError(
            f"{path} holds logs ({logs[0]}), and no meta.properties says whose they are: put that file back,"
            f" with version=1, node.id={node_id}, the cluster.id of the cluster and, if it is known, the"
            " directory.id; or move the logs away"
        )


def _refuse_lost_metadata(fs: Fs, config: BrokerConfig, formatted: Sequence[str]) -> None:
    """If this node is the only controller, logs without its metadata belong to no topic."""
    if config.has_other_controllers:
        return
    for path in formatted:
        logs = _logs_in(fs, path)
        if logs:
            raise ConfigError(
                f"{config.metadata_directory} is to hold the metadata of this cluster and is not formatted,"
                f" but {path} holds logs ({logs[0]}), which belong to no topic without it: mount the disk of"
                " the metadata, or put a copy back; to begin an empty cluster, move the logs away"
            )


def _refuse_foreign(path: str, identity: Mapping[str, str], cluster_id: str, node_id: int) -> None:
    if identity["cluster.id"] != cluster_id:
        raise ConfigError(
            f"{path} belongs to the cluster {identity['cluster.id']}, and not to {cluster_id}"
        )
    if identity.get("node.id", str(node_id)) != str(node_id):
        raise ConfigError(f"{path} belongs to node {identity['node.id']}, and not to {node_id}")


def _format(
    fs: Fs,
    path: str,
    cluster_id: str,
    node_id: int,
    levels: Mapping[str, int],
    rng: Rng,
    now_ms: int,
) -> None:
    make_dir_durably(fs, path)
    bootstrap = snapshot_batches(
        [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()],
        epoch=0,
        metadata_version=levels[METADATA_VERSION],
        last_contained_ms=0,
        now_ms=now_ms,
    )
    write_snapshot(fs, path, BOOTSTRAP, bootstrap)
    format_directory(fs, path, cluster_id=cluster_id, node_id=node_id, directory_id=rng.uuid())
