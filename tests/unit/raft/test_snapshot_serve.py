"""FetchSnapshot as its leader answers it: slices, and each refusal in Kafka's order."""

from typing import Any

import pytest

from firnline.base.effects import Peer
from firnline.base.errors import Code
from firnline.base.ids import METADATA_TOPIC, OffsetAndEpoch
from firnline.base.limits import SNAPSHOT_SLICE_BYTES_MAX
from firnline.protocol.messages.k59_fetch_snapshot import (
    FetchSnapshotPartition,
    FetchSnapshotPartitionResult,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchSnapshotTopic,
    SnapshotId,
)
from firnline.raft.snapshot_serve import Leadership, Served, judge_leadership, serve_snapshot

ID = OffsetAndEpoch(100, 3)
CONTENT = bytes(range(250)) * 4
LEADING = Leadership(5, 1, Peer(1, "here", 9093), is_leader=True)


class PaperFile:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.size_bytes = len(content)
        self.is_closed = False

    def read(self, position: int, size: int) -> bytes:
        assert not self.is_closed
        return self.content[position : position + size]

    def close(self) -> None:
        self.is_closed = True


class Shelf:
    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.opened: list[PaperFile] = []

    def open_snapshot(self, snapshot_id: OffsetAndEpoch) -> PaperFile | None:
        if snapshot_id != ID:
            return None
        self.opened.append(PaperFile(self.content))
        return self.opened[-1]


def ask(
    shelf: Shelf | None = None,
    quorum: Leadership = LEADING,
    *,
    request: dict[str, Any] | None = None,
    topic: str = METADATA_TOPIC,
    **changes: Any,
) -> Served:
    values: dict[str, Any] = {
        "partition": 0,
        "current_leader_epoch": 5,
        "snapshot_id": SnapshotId(end_offset=ID.offset, epoch=ID.epoch),
        "position": 0,
    }
    partition = FetchSnapshotPartition(**(values | changes))
    topics = [FetchSnapshotTopic(name=topic, partitions=[partition])]
    wanted: dict[str, Any] = {"cluster_id": "c", "max_bytes": 400, "topics": topics}
    return serve_snapshot(
        FetchSnapshotRequest(**(wanted | (request or {}))),
        shelf or Shelf(),
        cluster_id="c",
        quorum=quorum,
    )


def result_of(served: Served) -> FetchSnapshotPartitionResult:
    assert served.response.error_code == 0
    (topic,) = served.response.topics
    (result,) = topic.partitions
    assert isinstance(result, FetchSnapshotPartitionResult)
    # What is answered can be said in either version.
    for version in (0, 1):
        if version == 1 or not served.response.node_endpoints:
            data = served.response.write(version)
            assert FetchSnapshotResponse.read(data, version)[0].write(version) == data
    return result


def test_slices_joined_by_position_are_the_file() -> None:
    shelf, got = Shelf(), b""
    while len(got) < len(CONTENT):
        served = ask(shelf, position=len(got))
        result = result_of(served)
        assert served.is_contact
        assert (result.size, result.position) == (len(CONTENT), len(got))
        assert result.snapshot_id == SnapshotId(end_offset=100, epoch=3)
        assert isinstance(result.unaligned_records, bytes)
        assert 0 < len(result.unaligned_records) <= 400
        got += result.unaligned_records
    assert got == CONTENT
    assert all(file.is_closed for file in shelf.opened)


def test_the_answer_says_who_leads_and_where() -> None:
    served = ask()
    leader = result_of(served).current_leader
    assert (leader.leader_id, leader.leader_epoch) == (1, 5)
    (endpoint,) = served.response.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (1, "here", 9093)


@pytest.mark.parametrize("position", [-1, len(CONTENT), len(CONTENT) + 1, 1 << 62])
def test_a_position_outside_of_the_file_is_refused_its_end_too(position: int) -> None:
    shelf = Shelf()  # X11
    served = ask(shelf, position=position)
    assert result_of(served).error_code == Code.POSITION_OUT_OF_RANGE
    assert not served.is_contact
    assert shelf.opened[0].is_closed


def test_the_last_byte_is_served() -> None:
    assert result_of(ask(position=len(CONTENT) - 1)).unaligned_records == CONTENT[-1:]


@pytest.mark.parametrize("snapshot_id", [(0, 0), (100, 4), (101, 3), (-1, -1)])
def test_a_snapshot_that_is_not_here_is_not_found(snapshot_id: tuple[int, int]) -> None:
    end_offset, epoch = snapshot_id
    served = ask(snapshot_id=SnapshotId(end_offset=end_offset, epoch=epoch))
    result = result_of(served)
    assert result.error_code == Code.SNAPSHOT_NOT_FOUND
    assert result.current_leader.leader_id == 1
    assert not served.is_contact


def test_no_slice_is_larger_than_asked_for_or_than_the_cap() -> None:
    large = Shelf(bytes(SNAPSHOT_SLICE_BYTES_MAX + 10))
    records = result_of(ask(large, request={"max_bytes": 0x7FFFFFFF})).unaligned_records
    assert isinstance(records, bytes)
    assert len(records) == SNAPSHOT_SLICE_BYTES_MAX
    assert result_of(ask(request={"max_bytes": 1})).unaligned_records == CONTENT[:1]


@pytest.mark.parametrize(
    ("epoch", "quorum", "code"),
    [
        (4, LEADING, Code.FENCED_LEADER_EPOCH),
        (-1, LEADING, Code.FENCED_LEADER_EPOCH),
        (6, LEADING, Code.UNKNOWN_LEADER_EPOCH),
        (5, LEADING._replace(is_leader=False), Code.NOT_LEADER_OR_FOLLOWER),
        (4, LEADING._replace(is_leader=False), Code.FENCED_LEADER_EPOCH),
        (5, LEADING._replace(is_stopping=True), Code.BROKER_NOT_AVAILABLE),
        (5, LEADING._replace(is_leader=False, is_stopping=True), Code.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_only_the_leader_of_that_epoch_serves(epoch: int, quorum: Leadership, code: Code) -> None:
    shelf = Shelf()
    # A request that has more wrong with it: leadership comes first.
    served = ask(shelf, quorum, current_leader_epoch=epoch, position=-1)
    assert result_of(served).error_code == code
    assert judge_leadership(quorum, epoch) is code
    assert not served.is_contact
    assert not shelf.opened


def test_a_node_that_knows_no_leader_says_so() -> None:
    quorum = Leadership(5, -1, None, is_leader=False)
    served = ask(quorum=quorum)
    assert result_of(served).current_leader.leader_id == -1
    assert not served.response.node_endpoints


@pytest.mark.parametrize(("topic", "partition"), [("t", 0), (METADATA_TOPIC, 1)])
def test_another_partition_is_unknown_before_anything_else(topic: str, partition: int) -> None:
    served = ask(topic=topic, partition=partition, current_leader_epoch=4)
    assert result_of(served).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    (found,) = served.response.topics
    assert (found.name, result_of(served).index) == (topic, partition)


@pytest.mark.parametrize("partitions", [[], [0, 0], [0, 1]])
def test_anything_but_one_partition_is_refused(partitions: list[int]) -> None:
    wanted = [FetchSnapshotPartition(partition=number) for number in partitions]
    topics = [FetchSnapshotTopic(name=METADATA_TOPIC, partitions=wanted)]
    for several in (topics, topics * 2, []):
        served = ask(request={"topics": several})
        assert served.response.error_code == Code.INVALID_REQUEST
    assert ask(request={"max_bytes": -1}).response.error_code == Code.INVALID_REQUEST


def test_another_cluster_is_told_so_first() -> None:
    served = ask(request={"cluster_id": "other", "topics": []})
    assert served.response.error_code == Code.INCONSISTENT_CLUSTER_ID
    assert ask(request={"cluster_id": None}).is_contact
