"""Small files that are replaced whole: Kafka's checkpoints, `partition.metadata`, marker files. STORE.

The layout of a text checkpoint: `formats/checkpoint`. Every replacement goes through a temporary file that is
synced before it takes the name, and the directory is synced after. Source: rel-P2, rel-P6; spec T46.
"""

import json
from collections.abc import Callable, Iterable, Mapping

from firnline.base.errors import ConfigError, StorageError
from firnline.base.ids import TopicPartition, Uuid, uuid_from_text, uuid_text
from firnline.base.ports import File, Fs
from firnline.config.properties import parse_properties
from firnline.formats import checkpoint, names

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
META_PROPERTIES = "meta.properties"
META_VERSION = "1"  # of meta.properties
PARTITION_METADATA = "partition.metadata"
# What an operator does about damage where it was synced.
DAMAGE_REMEDY = (
    "stop this broker, move the partition's directory away if another replica is in sync (it is fetched"
    " anew), else put a whole copy of it back, and start the broker"
)
_NO_EPOCH = -1
_WHOLE_FILE = 1 << 31


def write_durably(fs: Fs, path: str, data: bytes) -> None:
    """Replace `path` by `data` so that a power cut leaves the old bytes or the new, never a mixture."""
    temporary = path + ".tmp"
    file = fs.open(temporary, create=True)
    try:
        if file.size():
            file.truncate(0)
        file.append(data)
        file.sync()
    finally:
        file.close()
    fs.rename(temporary, path)
    fs.sync_dir(path.rsplit("/", 1)[0] or "/")


def make_dir_durably(fs: Fs, path: str) -> None:
    """Make a directory and its parents; those that were not there survive a power cut."""
    made = []
    place = path.rstrip("/")
    while place and not fs.exists(place):
        made.append(place)
        place = place.rpartition("/")[0]
    fs.make_dir(path)
    for place in made:
        fs.sync_dir(place.rpartition("/")[0] or "/")


def read_whole(fs: Fs, path: str) -> bytes | None:
    """Return the bytes of a small file, or None when there is none."""
    if not fs.exists(path):
        return None
    file = fs.open(path)
    try:
        return file.read(0, min(file.size(), _WHOLE_FILE))
    finally:
        file.close()


def write_offsets(fs: Fs, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write a per-partition offset checkpoint, sorted by topic and partition."""
    write_durably(fs, path, checkpoint.encode_offsets(offsets))


def read_offsets(fs: Fs, path: str) -> dict[TopicPartition, int]:
    """Read a per-partition offset checkpoint; one that is missing or damaged counts as empty.

    Empty is the safe answer for each of these files: recover everything, start at the first segment,
    ask the leader for the high watermark (reliability d 93). Negative offsets are left out.
    """
    data = read_whole(fs, path)
    if data is None:
        return {}
    try:
        offsets = checkpoint.decode_offsets(data)
    except ValueError:
        return {}
    return {tp: offset for tp, offset in offsets.items() if offset >= 0 and tp.partition >= 0}


def begin_recovery_points(fs: Fs, directory: str) -> bool:
    """Return whether the checkpoint of the recovery points is there and whole; a new directory gets one.

    A power cut in the first checkpoint could leave that of the cleaner alone. It would say that a log may
    have gaps, and nothing where: what the power took from the middle of it would pass for compacted.
    """
    points = f"{directory}/{RECOVERY_POINTS}"
    if not fs.exists(points) and not fs.exists(f"{directory}/{CLEANER_OFFSETS}"):
        write_offsets(fs, points, {})
    return has_offsets(fs, points)


def lowest(
    unopened: Iterable[TopicPartition],
    noted: Mapping[TopicPartition, int],
    recovery_points: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return high watermarks of logs, none above what a power cut is sure to have left.

    Nor above what was noted: of one that is just being opened, that is how short it turned out to be.
    """
    return {tp: min(noted.get(tp, 0), recovery_points.get(tp, 0)) for tp in unopened}


def parse_clean_shutdown(data: bytes) -> int:
    """Return the broker epoch of the run that stopped cleanly, -1 where its marker does not say."""
    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return _NO_EPOCH


def has_offsets(fs: Fs, path: str) -> bool:
    """True when there is a per-partition offset checkpoint that is not damaged."""
    data = read_whole(fs, path)
    try:
        return (
            data is not None and checkpoint.decode(data, len(checkpoint.OFFSET_COLUMNS)) is not None
        )
    except ValueError:
        return False


def write_partition_metadata(fs: Fs, directory: str, topic_id: Uuid) -> None:
    """Write which topic id the partition in `directory` belongs to."""
    write_durably(fs, f"{directory}/{PARTITION_METADATA}", _partition_metadata(topic_id))


def place_partition_metadata(fs: Fs, directory: str, topic_id: Uuid) -> File:
    """`write_partition_metadata` without waiting for the disk: return the file, to be synced.

    Its directory is to be synced too, and nothing may be written to the log before both are.
    """
    file = open_partition_metadata(fs, directory)
    wanted, size = _partition_metadata(topic_id), file.size()
    if size and file.read(0, size) != wanted:
        file.truncate(0)
    if not file.size():
        file.append(wanted)
    return file


def open_partition_metadata(fs: Fs, directory: str) -> File:
    """Return the file, made if it is not there."""
    return fs.open(f"{directory}/{PARTITION_METADATA}", create=True)


def _partition_metadata(topic_id: Uuid) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def read_partition_metadata(fs: Fs, directory: str) -> Uuid | None:
    """Return the topic id, or None without the file.

    Raises StorageError when the file is damaged: guessing would mix two topics of one name.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    data = read_whole(fs, path)
    if data is None:
        return None
    try:
        fields = dict(line.split(": ", 1) for line in data.decode().splitlines() if line)
        if fields["version"] != "0":
            raise ValueError(f"version {fields['version']} is not 0")
        return uuid_from_text(fields["topic_id"])
    except (KeyError, ValueError) as problem:
        raise StorageError(
            "partition.metadata is damaged",
            path=path,
            problem=problem,
            remedy=DAMAGE_REMEDY,
        ) from None


def owner(fs: Fs, directory: str) -> Uuid | None:
    """Return the topic id that the directory of a partition says, None where it says nothing.

    Damaged beside records it is refused. Beside none the power went before it was on disk, and so before
    the partition was served.
    """
    try:
        return read_partition_metadata(fs, directory)
    except StorageError:
        logs = [name for name in fs.list_dir(directory) if name.endswith(names.LOG)]
        if any(fs.open(f"{directory}/{name}").size() for name in logs):
            raise
        return None


def identity(
    fs: Fs, path: str, cluster_id: str, node_id: int, *, unique: Callable[[], Uuid]
) -> Uuid:
    """Return the id of a directory of that node; one from before directories had ids gets one from `unique`.

    StorageError when it is not formatted, or belongs to another cluster or node.
    """
    found = check_identity(
        read_meta_properties(fs, path), path=path, cluster_id=cluster_id, node_id=node_id
    )
    if "directory.id" in found:
        return uuid_from_text(found["directory.id"])
    made = unique()
    format_directory(fs, path, cluster_id=cluster_id, node_id=node_id, directory_id=made)
    return made


def check_identity(
    found: dict[str, str] | None, *, path: str, cluster_id: str, node_id: int
) -> dict[str, str]:
    """Return what `meta.properties` of a directory says; StorageError unless it is of that node (Q11)."""
    if found is None:
        raise StorageError(
            "the log directory is not formatted",
            path=path,
            remedy="run `firnline storage format`",
        )
    expected = {"cluster.id": cluster_id, "node.id": str(node_id)}
    if found.get("version") != META_VERSION:
        raise StorageError(
            "meta.properties of another version",
            path=path,
            version=found.get("version"),
            remedy="use the release that wrote it, or format the directory anew",
        )
    for key, value in expected.items():
        if found.get(key, value) != value:
            raise StorageError(
                "the log directory belongs to another " + key.partition(".")[0],
                path=path,
                key=key,
                found=found[key],
                expected=value,
                remedy="give this node its own log.dirs",
            )
    return found


def format_directory(
    fs: Fs, path: str, *, cluster_id: str, node_id: int, directory_id: Uuid
) -> None:
    """Make `path` a log directory of that node: write `meta.properties`, version 1 (Q11)."""
    make_dir_durably(fs, path)
    lines = [
        f"node.id={node_id}",
        f"directory.id={uuid_text(directory_id)}",
        f"version={META_VERSION}",
        f"cluster.id={cluster_id}",
    ]
    write_durably(fs, f"{path}/{META_PROPERTIES}", "\n".join([*lines, ""]).encode())


def read_meta_properties(fs: Fs, path: str) -> dict[str, str] | None:
    """Return what `meta.properties` in the directory `path` says, None when it is not formatted."""
    data = read_whole(fs, f"{path}/{META_PROPERTIES}")
    if data is None:
        return None
    try:
        return parse_properties(data.decode("latin-1"))
    except ValueError as problem:
        raise StorageError(
            "meta.properties is damaged", path=path, problem=problem, remedy="format it again"
        ) from None


def read_cluster_id(fs: Fs, directory: str) -> str:
    """Return the cluster id that `storage format` wrote; ConfigError where the directory has none."""
    found = read_meta_properties(fs, directory)
    cluster_id = None if found is None else found.get("cluster.id")
    if not cluster_id:
        raise ConfigError(f"{directory} is not formatted: run `firnline storage format` first")
    return cluster_id
