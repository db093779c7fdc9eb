"""Small files that are replaced as a whole: Kafka's checkpoints, `partition.metadata`, marker files. STORE.

The layout of a text checkpoint: `formats/checkpoint`. To replace a file, write and sync a temporary file,
rename it, and sync the directory. Source: rel-P2, rel-P6; spec T46.
"""

import json
from collections.abc import Callable, Container, Iterable, Mapping

from firnline.base.errors import ConfigError, StorageError
from firnline.base.ids import METADATA_TOPIC, TopicPartition, Uuid, uuid_from_text, uuid_text
from firnline.base.ports import File, Fs
from firnline.config.properties import parse_properties
from firnline.formats import checkpoint, names

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
# Ours, as the offset checkpoints are written: partitions whose directories somebody has moved away.
MISSING = "missing-partitions"
LEADER_EPOCHS = "leader-epoch-checkpoint"
META_PROPERTIES = "meta.properties"
META_VERSION = "1"  # of meta.properties
PARTITION_METADATA = "partition.metadata"
# What an operator does about damage to records that were synced.
DAMAGE_REMEDY = (
    "stop this broker, move the partition's directory away if another replica is in sync (it is fetched"
    " anew), else put a whole copy of it back, and start the broker"
)
_NO_EPOCH = -1
_FILE_BYTES_MAX = 1 << 31


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
    """Create a directory and its missing parents durably."""
    made = []
    place = path.rstrip("/")
    while place and not fs.exists(place):
        made.append(place)
        place = place.rpartition("/")[0]
    fs.make_dir(path)
    for place in made:
        fs.sync_dir(place.rpartition("/")[0] or "/")


def read_file(fs: Fs, path: str) -> bytes | None:
    """Return the bytes of a small file, or None when there is none."""
    if not fs.exists(path):
        return None
    file = fs.open(path)
    try:
        return file.read(0, min(file.size(), _FILE_BYTES_MAX))
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
    data = read_file(fs, path)
    if data is None:
        return {}
    try:
        offsets = checkpoint.decode_offsets(data)
    except ValueError:
        return {}
    return {tp: offset for tp, offset in offsets.items() if offset >= 0 and tp.partition >= 0}


def begin_recovery_points(fs: Fs, directory: str) -> bool:
    """Return whether the recovery point checkpoint exists undamaged; write an empty one in a new directory.

    Else a power cut during the first checkpoints could leave only that of the cleaner. It says that a log may
    have gaps but not where: batches that the power cut lost from the middle would pass for compacted.
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
    """Return high watermarks for logs that are not open, none above the recovery point or the noted one.

    A power cut may lose records above the recovery point. For a log that is being opened, the noted value
    says how far its records reach.
    """
    return {tp: min(noted.get(tp, 0), recovery_points.get(tp, 0)) for tp in unopened}


def parse_clean_shutdown(data: bytes) -> int:
    """Return the broker epoch in the marker of a clean shutdown, -1 where it has none."""
    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return _NO_EPOCH


def has_offsets(fs: Fs, path: str) -> bool:
    """True when the per-partition offset checkpoint exists and is not damaged."""
    data = read_file(fs, path)
    try:
        return (
            data is not None and checkpoint.decode(data, len(checkpoint.OFFSET_COLUMNS)) is not None
        )
    except ValueError:
        return False


def write_partition_metadata(fs: Fs, directory: str, topic_id: Uuid) -> None:
    """Write the topic id of the partition in `directory`."""
    write_durably(fs, f"{directory}/{PARTITION_METADATA}", _partition_metadata(topic_id))


def place_partition_metadata(fs: Fs, directory: str, topic_id: Uuid) -> File:
    """Like `write_partition_metadata`, but return the file instead of syncing it.

    The caller syncs the file and its directory before anything is written to the log.
    """
    file = open_partition_metadata(fs, directory)
    wanted, size = _partition_metadata(topic_id), file.size()
    if size and file.read(0, size) != wanted:
        file.truncate(0)
    if not file.size():
        file.append(wanted)
    return file


def open_partition_metadata(fs: Fs, directory: str) -> File:
    """Open the file; create it if it is missing."""
    return fs.open(f"{directory}/{PARTITION_METADATA}", create=True)


def _partition_metadata(topic_id: Uuid) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def vanished(
    fs: Fs, root: str, gone: Iterable[TopicPartition], present: Container[TopicPartition]
) -> frozenset[TopicPartition]:
    """Return the partitions that had records in a log directory, by its checkpoints, and are not in it.

    Somebody has moved their directories away. One that was deleted or set aside, in a run that ended before
    the next checkpoint, is not among them. What is missing is written down: the next checkpoints do not have
    it any more, and this node may start several times before it can tell a controller.

    gone  those that the checkpoints of this start name, with an offset above 0
    """
    path = f"{root}/{MISSING}"
    known = read_offsets(fs, path)
    missing = {tp for tp in (*gone, *known) if tp not in present and tp.topic != METADATA_TOPIC}
    if missing:
        ends = names.DELETED_DIR, names.STRAY_DIR
        renamed = {n.rpartition(".")[0] for n in fs.list_dir(root) if n.endswith(ends)}
        missing = {tp for tp in missing if renamed.isdisjoint(names.renamed_stems(tp))}
    if missing != known.keys():
        write_offsets(fs, path, dict.fromkeys(missing, 1))
    return frozenset(missing)


def read_partition_metadata(fs: Fs, directory: str) -> Uuid | None:
    """Return the topic id, or None without the file.

    Raises StorageError when the file is damaged: guessing would mix two topics of one name.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    data = read_file(fs, path)
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
    """Return the topic id of a partition's directory, None where it has none.

    StorageError where the file is damaged and the log has records. Without records it is a torn write: a
    power cut came before the partition was served.
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
    """Return the id of a log directory; give it one from `unique` if it was formatted without.

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


def not_formatted(path: str) -> StorageError:
    """Return the error for a directory without `meta.properties`, or that is not there."""
    return StorageError(
        "the log directory is not formatted",
        path=path,
        remedy="mount its disk, or put the directory back; if it is new, or lost for good: `firnline storage"
        " format --ignore-formatted`",
    )


class DirectoryGone(StorageError):
    """A log directory that is in use is not under its name any more; its open files hide that."""


def assert_mounted(fs: Fs, path: str) -> None:
    """Raise DirectoryGone if a directory in use was unmounted, moved away or removed under this node.

    Appends to open files go on then, where no start would find them.
    """
    if not fs.exists(f"{path}/{META_PROPERTIES}"):
        raise DirectoryGone(
            "the log directory was unmounted, moved away or removed while this node uses it",
            path=path,
            error="ENOENT",
            remedy="stop this node, mount the disk, or put the directory back, and start it",
        )


def check_identity(
    found: dict[str, str] | None, *, path: str, cluster_id: str, node_id: int
) -> dict[str, str]:
    """Return the `meta.properties` of a directory; StorageError unless they belong to that node (Q11)."""
    if found is None:
        raise not_formatted(path)
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
    """Format `path` as a log directory of that node: write `meta.properties`, version 1 (Q11)."""
    make_dir_durably(fs, path)
    lines = [
        f"node.id={node_id}",
        f"directory.id={uuid_text(directory_id)}",
        f"version={META_VERSION}",
        f"cluster.id={cluster_id}",
    ]
    write_durably(fs, f"{path}/{META_PROPERTIES}", "\n".join([*lines, ""]).encode())


def read_meta_properties(fs: Fs, path: str) -> dict[str, str] | None:
    """Return the `meta.properties` of the directory `path`, None when it is not formatted."""
    data = read_file(fs, f"{path}/{META_PROPERTIES}")
    if data is None:
        return None
    try:
        return parse_properties(data.decode("latin-1"))
    except ValueError as problem:
        raise StorageError(
            "meta.properties is damaged",
            path=path,
            problem=problem,
            remedy="write it again, with version=1, the node.id, the cluster.id that other directories and"
            " nodes have, and the directory.id if it is known",
        ) from None


def read_cluster_id(fs: Fs, directory: str) -> str:
    """Return the cluster id that `storage format` wrote; ConfigError where the directory has none."""
    found = read_meta_properties(fs, directory)
    cluster_id = None if found is None else found.get("cluster.id")
    if not cluster_id:
        raise ConfigError(f"{directory} is not formatted: run `firnline storage format` first")
    return cluster_id
