"""Are the copies of a partition the same on all brokers, of either kind? Read from their disks. WORLD.

Followers write the batches of their leader as they are, so the copies are compared byte by byte: records,
offsets, epochs, timestamps, producers and the cut into batches. Kafka's own dump tool is the second reader.
The leader epochs of the checkpoint are those of the batches.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from firnline.log.checkpoint import LEADER_EPOCHS
from firnline.metadata.image import ClusterImage
from firnline.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from firnline.records.batch import BatchHeader, crc_is_right, headers
from tests.mixed.sameness import read_disk
from tests.peers import kafka
from tests.peers.nodes import Cluster, Node
from tests.wire.line import Line

_VERSION = 12
State = tuple[int, int, frozenset[int]]  # leader, leader epoch, ISR


def segments(node: Node, partition: str) -> list[Path]:
    """Return the segment files of a partition, as `topic-0`, in order."""
    return sorted((node.data / partition).glob("*.log"))


def content(node: Node, partition: str) -> bytes:
    """Return the bytes of all segments."""
    return b"".join(path.read_bytes() for path in segments(node, partition))


def epoch_starts(node: Node, partition: str) -> list[tuple[int, int]]:
    """Return (epoch, start offset) of each line of the leader-epoch-checkpoint, in order.

    We have no such file before there is a batch.
    """
    path = node.data / partition / LEADER_EPOCHS
    rows = path.read_text().splitlines()[2:] if path.exists() else []
    return [(int(epoch), int(start)) for epoch, start in (row.split() for row in rows)]


def batches(node: Node, partition: str) -> list[BatchHeader]:
    """Return the headers of all batches; behind a kill the last one may be cut, and is left out."""
    return list(headers(content(node, partition)))


def missing(node: Node, partition: str) -> int:
    """Return how many offsets below the end of a log have no record, as compaction leaves it."""
    found = batches(node, partition)
    end = found[-1].last_offset + 1 if found else 0
    return end - sum(header.record_count for header in found)


def differing(nodes: Sequence[Node], partitions: Sequence[str]) -> list[str]:
    """Return the partitions whose copies are not the same bytes."""
    found = []
    for partition in partitions:
        copies = {str(node): content(node, partition) for node in hosts(nodes, partition)}
        if len(set(copies.values())) != 1:
            found.append(f"{partition}: { ({name: len(data) for name, data in copies.items()}) }")
    return found


def hosts(nodes: Sequence[Node], partition: str) -> list[Node]:
    """Return the nodes that have a copy."""
    return [node for node in nodes if (node.data / partition).is_dir()]


def bad_logs(nodes: Sequence[Node], partitions: Sequence[str]) -> list[str]:
    """Return what is wrong within logs: damage, gaps, and checkpoints of epochs that the batches deny."""
    faults = []
    for partition in partitions:
        for node in hosts(nodes, partition):
            faults += [f"{node}, {partition}: {fault}" for fault in _bad(node, partition)]
    return faults


def _bad(node: Node, partition: str) -> Iterator[str]:
    data, next_offset = content(node, partition), -1
    epochs: dict[int, int] = {}
    for header in headers(data):
        if not crc_is_right(data, header):
            yield f"damage at {header.base_offset}"
        if next_offset not in (-1, header.base_offset):
            yield f"a gap between {next_offset} and {header.base_offset}"
        next_offset = header.last_offset + 1
        epochs.setdefault(header.leader_epoch, header.base_offset)
    if sorted(epochs) != list(epochs):
        yield f"epochs not in order: {epochs}"
    # Kafka writes an epoch down before there is a batch of it.
    reported = {epoch: at for epoch, at in epoch_starts(node, partition) if at < next_offset}
    if reported != epochs:
        yield f"the checkpoint says {reported}, the batches {epochs}"


def dumps_differ(nodes: Sequence[Node], partition: str) -> list[str]:
    """Compare the first segments as Kafka's dump tool prints them, one by one record."""
    there = hosts(nodes, partition)
    files = ",".join(str(segments(node, partition)[0]) for node in there)
    printed = kafka.tool("dump", files, "--deep-iteration").split("Dumping ")[1:]
    records = [[row for row in part.splitlines() if "| offset:" in row] for part in printed]
    common = min(map(len, records), default=0)  # segments need not end at the same record
    if len(records) != len(there) or not common:
        return [f"{partition}: the dump tool printed {list(map(len, records))} records"]
    return [
        f"{partition}: the dump tool reads {node} otherwise than {there[0]}"
        for node, rows in zip(there, records)
        if rows[:common] != records[0][:common]
    ]


def reported_by(node: Node, topics: Sequence[str]) -> dict[str, State]:
    """Return what a broker tells clients of the partitions."""
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=False,
    )
    with Line(node.address) as line:
        answer = line.ask(asked, _VERSION)
    return {
        f"{topic.name}-{row.partition_index}": (
            row.leader_id,
            row.leader_epoch,
            frozenset(row.isr_nodes),
        )
        for topic in answer.topics
        for row in topic.partitions
    }


def in_image(image: ClusterImage, topics: Sequence[str]) -> dict[str, State]:
    """Return what the metadata says of the partitions."""
    return {
        f"{name}-{number}": (row.leader, row.leader_epoch, frozenset(row.isr))
        for name in topics
        for number, row in image.topics_by_name[name].partitions.items()
    }


def views_differ(cluster: Cluster, topics: Sequence[str]) -> list[str]:
    """Compare what each broker tells with what its own metadata log says; a view of both kinds."""
    views: dict[str, Mapping[str, State]] = {}
    for node in cluster.brokers:
        views[str(node)] = reported_by(node, topics)
        disk = read_disk(str(node), node.metadata, is_cut=True)
        views[f"the metadata of {node}"] = in_image(disk.image_at(disk.end[1]), topics)
    first, *others = views
    return [
        f"{first} says {views[first][name]} of {name}, {other} says {views[other].get(name)}"
        for other in others
        for name in views[first]
        if views[first][name] != views[other].get(name)
    ]
