"""Keys of the objects in a tier; only this module builds and parses them. PURE.

    data/<topic id>/<partition>/<base offset, 20 digits>-<segment id><suffix>
    catalog/<topic id>/<partition>/heads/<leader epoch, 10>-<sequence, 19>.jsonl
    parts/<topic id>/<partition>/<leader epoch, 10>-<sequence, 19>-<number, 3>.jsonl
    names/<topic name>/<registered ms, 19>-<topic id>.live | .deleted
    cluster.json

Ids are written as in Kafka (22 characters). Numbers are padded, so that keys sort in their order. Format:
docs/formats/tier.md and catalog.md. Source: spec 3.9, T62; ecosystem 1.2.
"""

from typing import NamedTuple

from firnline.base.ids import Uuid, uuid_from_text, uuid_text
from firnline.formats import names

LOG = names.LOG
OFFSET_INDEX = names.INDEX
TIME_INDEX = names.TIME_INDEX
TXN_INDEX = names.TXN_INDEX
PRODUCER_SNAPSHOT = names.SNAPSHOT
LEADER_EPOCHS = ".leader_epoch_checkpoint"
# In the order in which they are put: the log last, so that a segment with a log has all objects.
SUFFIXES = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX, PRODUCER_SNAPSHOT, LEADER_EPOCHS, LOG)

NAMES_FOLDER = "names/"
CATALOG_FOLDER = "catalog/"
PARTS_FOLDER = "parts/"
DATA_FOLDER = "data/"
# All folders with objects of topics.
FOLDERS = (DATA_FOLDER, CATALOG_FOLDER, PARTS_FOLDER, NAMES_FOLDER)


class HeadName(NamedTuple):
    """The order of a catalog head among the heads of one partition."""

    leader_epoch: int
    sequence: int


class TopicName(NamedTuple):
    """One entry of the name register."""

    topic: str
    registered_ms: int
    topic_id: Uuid
    is_deleted: bool


def segment_folder(topic_id: Uuid, partition: int) -> str:
    """Return the folder of a partition's segments."""
    return f"{DATA_FOLDER}{uuid_text(topic_id)}/{partition}/"


def segment_stem(topic_id: Uuid, partition: int, *, base_offset: int, segment_id: Uuid) -> str:
    """Return the key of a segment without the suffix of one of its objects."""
    return f"{segment_folder(topic_id, partition)}{base_offset:020d}-{uuid_text(segment_id)}"


def catalog_folder(topic_id: Uuid, partition: int) -> str:
    """Return the folder of a partition's heads, and of the parts of version 1."""
    return f"{CATALOG_FOLDER}{uuid_text(topic_id)}/{partition}/"


def topic_catalog_folder(topic_id: Uuid) -> str:
    """Return the folder of the heads of all partitions of a topic."""
    return f"{CATALOG_FOLDER}{uuid_text(topic_id)}/"


def topic_parts_folder(topic_id: Uuid) -> str:
    """Return the folder of the parts of all partitions of a topic."""
    return f"{PARTS_FOLDER}{uuid_text(topic_id)}/"


def heads_folder(topic_id: Uuid, partition: int) -> str:
    """Return the folder that a reader lists to find the newest catalog."""
    return f"{catalog_folder(topic_id, partition)}heads/"


def parts_folder(topic_id: Uuid, partition: int) -> str:
    """Return the folder of the parts to which heads of version 2 refer."""
    return f"{topic_parts_folder(topic_id)}{partition}/"


def old_parts_folder(topic_id: Uuid, partition: int) -> str:
    """Return the folder of the parts to which heads of version 1 refer."""
    return f"{catalog_folder(topic_id, partition)}parts/"


def head_key(topic_id: Uuid, partition: int, name: HeadName) -> str:
    """Return the key of a head; keys sort by (leader epoch, sequence)."""
    folder = heads_folder(topic_id, partition)
    return f"{folder}{name.leader_epoch:010d}-{name.sequence:019d}.jsonl"


def part_key(topic_id: Uuid, partition: int, name: HeadName, number: int) -> str:
    """Return the key of the part that was written with the head `name`."""
    folder = parts_folder(topic_id, partition)
    return f"{folder}{name.leader_epoch:010d}-{name.sequence:019d}-{number:03d}.jsonl"


def parse_head(key: str) -> HeadName | None:
    """Return the order of a head from its key; None for any other key."""
    folder, _, name = key.rpartition("/")
    if not folder.endswith("/heads") or not name.endswith(".jsonl"):
        return None
    return _parse_order(name.removesuffix(".jsonl"))


def parse_written_epoch(key: str) -> int | None:
    """Return the leader epoch in which the catalog object `key`, head or part, was written."""
    name = key.rpartition("/")[2].removesuffix(".jsonl")
    order = _parse_order(name[:30])
    return None if order is None else order.leader_epoch


def _parse_order(text: str) -> HeadName | None:
    epoch, dash, sequence = text.partition("-")
    if not dash or len(epoch) != 10 or len(sequence) != 19:
        return None
    if not (epoch.isdecimal() and sequence.isdecimal()):
        return None
    return HeadName(int(epoch), int(sequence))


def parse_catalog_partition(key: str) -> tuple[Uuid, int] | None:
    """Return topic id and partition of the head `key`; None for any other key."""
    pieces = key.split("/")
    if len(pieces) != 5 or pieces[0] != "catalog" or parse_head(key) is None:
        return None
    if not pieces[2].isdecimal():
        return None
    try:
        return uuid_from_text(pieces[1]), int(pieces[2])
    except ValueError:
        return None


def names_folder(topic: str) -> str:
    """Return the folder with the topic ids of a name."""
    return f"{NAMES_FOLDER}{topic}/"


def name_key(entry: TopicName) -> str:
    """Return the key of one entry of the name register; the object repeats its content."""
    suffix = "deleted" if entry.is_deleted else "live"
    name = f"{entry.registered_ms:019d}-{uuid_text(entry.topic_id)}.{suffix}"
    return names_folder(entry.topic) + name


def parse_name(key: str) -> TopicName | None:
    """Parse the key of an entry of the name register; None for any other key."""
    pieces = key.split("/")
    if len(pieces) != 3 or pieces[0] != "names":
        return None
    text, _, suffix = pieces[2].rpartition(".")
    if suffix not in ("live", "deleted") or len(text) != 42 or not text[:19].isdecimal():
        return None
    try:
        topic_id = uuid_from_text(text[20:])
    except ValueError:
        return None
    return TopicName(pieces[1], int(text[:19]), topic_id, suffix == "deleted")
