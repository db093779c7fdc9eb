"""A download of a snapshot: from one leader, of one file, whole, or not at all."""

from collections.abc import Sequence
from typing import Any

import pytest

from firnline.base.effects import Effects, Warn
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import METADATA_TOPIC, OffsetAndEpoch
from firnline.protocol.messages.k59_fetch_snapshot import (
    FetchSnapshotPartitionResult,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchSnapshotTopicResult,
    SnapshotId,
)
from firnline.raft.snapshot_transfer import (
    Complete,
    Dropped,
    Ignored,
    More,
    Outcome,
    SnapshotTransfer,
)

CONTENT = bytes(range(100))
OLD, WANTED, NEWER = OffsetAndEpoch(50, 2), OffsetAndEpoch(100, 3), OffsetAndEpoch(200, 4)
DIRECTORY = (7).to_bytes(16, "big")


class PaperPart:
    """A part in memory. 255 is a byte no snapshot has; it is whole with the hundredth byte, 99."""

    def __init__(self, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshot_id = snapshot_id
        self.data = b""
        self.is_discarded = False

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def append(self, data: bytes) -> KafkaError | None:
        if 255 in data:
            return KafkaError(Code.CORRUPT_MESSAGE, "damage")
        self.data += data
        return None

    def problem(self) -> KafkaError | None:
        if self.data.endswith(b"\x63"):
            return None
        return KafkaError(Code.CORRUPT_MESSAGE, "no footer")

    def files(self) -> Sequence[Any]:
        return []

    def discard(self) -> None:
        self.is_discarded = True


class PaperLog:
    def __init__(self) -> None:
        self.newest_snapshot_id: OffsetAndEpoch | None = None
        self.parts: list[PaperPart] = []
        self.installed: list[PaperPart] = []

    def start_part(self, snapshot_id: OffsetAndEpoch) -> PaperPart:
        self.parts.append(PaperPart(snapshot_id))
        return self.parts[-1]

    def install(self, part: Any, *, now_ms: int) -> Effects:
        self.installed.append(part)
        self.newest_snapshot_id = part.snapshot_id
        return [Warn(line="installed")]


def a_transfer() -> tuple[SnapshotTransfer, PaperLog]:
    log = PaperLog()
    transfer = SnapshotTransfer(
        log, node_id=2, directory_id=DIRECTORY, cluster_id="c", max_bytes=40
    )
    return transfer, log


def answer(
    request: FetchSnapshotRequest | None, content: bytes = CONTENT, **changes: Any
) -> FetchSnapshotResponse:
    """What an honest leader with `content` says, but for the `changes`."""
    assert request is not None
    asked = request.topics[0].partitions[0]
    values: dict[str, Any] = {
        "index": 0,
        "snapshot_id": asked.snapshot_id,
        "size": len(content),
        "position": asked.position,
        "unaligned_records": memoryview(content)[asked.position :][: request.max_bytes],
    }
    result = FetchSnapshotPartitionResult(**(values | changes))
    topic = FetchSnapshotTopicResult(name=METADATA_TOPIC, partitions=[result])
    return FetchSnapshotResponse(topics=[topic])


def refusal(code: int) -> FetchSnapshotResponse:
    result = FetchSnapshotPartitionResult(error_code=code)
    topic = FetchSnapshotTopicResult(name=METADATA_TOPIC, partitions=[result])
    return FetchSnapshotResponse(topics=[topic])


def exchange(transfer: SnapshotTransfer, **changes: Any) -> Outcome:
    request = transfer.request(epoch=5)
    assert request is not None
    return transfer.on_response(request, answer(request, **changes))


def test_a_snapshot_comes_slice_by_slice_and_is_installed_after_its_sync() -> None:
    transfer, log = a_transfer()
    assert transfer.start(WANTED)
    outcomes = [exchange(transfer) for _ in range(3)]
    (part,) = log.parts
    assert outcomes == [More(), More(), Complete(part)]
    assert part.data == CONTENT
    assert not log.installed, "not before the sync"
    assert transfer.is_active
    assert transfer.request(epoch=5) is None, "nothing is missing"
    assert transfer.installed(part, now_ms=1) == [Warn(line="installed")]
    assert log.installed == [part]
    assert not transfer.is_active


def test_a_request_says_who_asks_for_what_in_which_epoch() -> None:
    transfer, _ = a_transfer()
    transfer.start(WANTED)
    exchange(transfer)
    request = transfer.request(epoch=6)
    assert request is not None
    assert (request.cluster_id, request.replica_id, request.max_bytes) == ("c", 2, 40)
    (topic,) = request.topics
    (asked,) = topic.partitions
    assert (topic.name, asked.partition) == (METADATA_TOPIC, 0)
    assert (asked.position, asked.current_leader_epoch) == (40, 6)
    assert asked.snapshot_id == SnapshotId(end_offset=100, epoch=3)
    assert asked.replica_directory_id == DIRECTORY


def test_at_most_one_request_is_unanswered() -> None:
    transfer, _ = a_transfer()
    assert transfer.request(epoch=5) is None
    transfer.start(WANTED)
    assert transfer.request(epoch=5) is not None
    assert transfer.request(epoch=5) is None


def test_an_answer_that_comes_twice_is_taken_once() -> None:
    transfer, log = a_transfer()
    transfer.start(WANTED)
    request = transfer.request(epoch=5)
    assert request is not None
    assert transfer.on_response(request, answer(request)) == More()
    assert transfer.on_response(request, answer(request)) == Ignored()
    assert log.parts[0].data == CONTENT[:40]


def test_an_answer_to_a_dropped_download_is_ignored_also_when_the_next_one_is_of_the_same_id() -> (
    None
):
    transfer, log = a_transfer()
    transfer.start(WANTED)
    late = transfer.request(epoch=5)
    assert late is not None
    transfer.drop()
    transfer.start(WANTED)
    now = transfer.request(epoch=6)
    assert now is not None
    assert transfer.on_response(late, answer(late, b"another leader's bytes")) == Ignored()
    assert transfer.on_unanswered(late) == Ignored()
    assert transfer.on_response(now, answer(now)) == More()
    assert log.parts[0].is_discarded
    assert log.parts[1].data == CONTENT[:40]


def test_a_slice_that_got_lost_is_asked_for_again() -> None:
    transfer, _ = a_transfer()
    transfer.start(WANTED)
    exchange(transfer)
    lost = transfer.request(epoch=5)
    assert lost is not None
    assert transfer.on_unanswered(lost) == More()
    again = transfer.request(epoch=5)
    assert again is not None
    assert again is not lost
    assert again.topics[0].partitions[0].position == 40


@pytest.mark.parametrize("code", [98, 99, 6, 74, 75, 8, 3, -1, 9999])
def test_a_refusal_drops_the_download_and_the_follower_fetches_again(code: int) -> None:
    transfer, log = a_transfer()  # X12, Q36
    transfer.start(WANTED)
    exchange(transfer)
    request = transfer.request(epoch=5)
    assert request is not None
    outcome = transfer.on_response(request, refusal(code))
    assert isinstance(outcome, Dropped)
    assert outcome.problem.code == (code if code in list(Code) else -1)
    assert log.parts[0].is_discarded
    assert not transfer.is_active
    assert transfer.request(epoch=5) is None
    assert transfer.start(NEWER)


def test_a_refusal_of_the_whole_request_drops_the_download_too() -> None:
    transfer, _ = a_transfer()
    transfer.start(WANTED)
    request = transfer.request(epoch=5)
    assert request is not None
    outcome = transfer.on_response(request, FetchSnapshotResponse(error_code=104))
    assert isinstance(outcome, Dropped)
    assert outcome.problem.code is Code.INCONSISTENT_CLUSTER_ID
    transfer.start(WANTED)
    request = transfer.request(epoch=5)
    assert request is not None
    assert isinstance(transfer.on_response(request, FetchSnapshotResponse()), Dropped)


@pytest.mark.parametrize(
    "changes",
    [
        {"snapshot_id": SnapshotId(end_offset=101, epoch=3)},
        {"snapshot_id": SnapshotId(end_offset=100, epoch=4)},
        {"position": 39},
        {"position": 41},
        {"size": 101},
        {"unaligned_records": b""},
        {"unaligned_records": None},
        {"unaligned_records": CONTENT[40:] + b"\x00"},
        {"unaligned_records": b"\xff"},
    ],
    ids=str,
)
def test_a_slice_of_another_file_or_place_is_never_mixed_in(changes: dict[str, Any]) -> None:
    transfer, log = a_transfer()  # rel-Q17, Q35
    transfer.start(WANTED)
    exchange(transfer)
    outcome = exchange(transfer, **changes)
    assert isinstance(outcome, Dropped)
    assert outcome.problem.code is Code.CORRUPT_MESSAGE
    assert log.parts[0].is_discarded


@pytest.mark.parametrize("snapshot_id", [(-1, 3), (100, -1)])
def test_an_answer_without_an_id_means_that_the_leader_has_it_no_more(
    snapshot_id: tuple[int, int],
) -> None:
    transfer, _ = a_transfer()  # Q36
    transfer.start(WANTED)
    end_offset, epoch = snapshot_id
    outcome = exchange(transfer, snapshot_id=SnapshotId(end_offset=end_offset, epoch=epoch))
    assert isinstance(outcome, Dropped)
    assert outcome.problem.code is Code.SNAPSHOT_NOT_FOUND


def test_a_file_without_its_footer_is_not_installed() -> None:
    transfer, log = a_transfer()  # Q37, rel-Q10
    transfer.start(WANTED)
    outcome: Outcome = More()
    while outcome == More():
        outcome = exchange(transfer, content=CONTENT[:90])
    assert isinstance(outcome, Dropped)
    assert log.parts[0].is_discarded
    assert not log.installed


def test_a_newer_snapshot_replaces_a_download_in_progress() -> None:
    transfer, log = a_transfer()
    transfer.start(WANTED)
    exchange(transfer)
    assert transfer.start(NEWER)
    assert log.parts[0].is_discarded
    assert transfer.snapshot_id == NEWER
    request = transfer.request(epoch=5)
    assert request is not None
    assert request.topics[0].partitions[0].position == 0


def test_the_same_snapshot_goes_on_where_it_is() -> None:
    transfer, log = a_transfer()
    transfer.start(WANTED)
    exchange(transfer)
    assert transfer.start(WANTED)
    assert len(log.parts) == 1


@pytest.mark.parametrize("snapshot_id", [WANTED, OLD, OffsetAndEpoch(300, 2)])
def test_what_is_here_or_older_is_not_downloaded(snapshot_id: OffsetAndEpoch) -> None:
    transfer, log = a_transfer()
    log.newest_snapshot_id = WANTED
    assert not transfer.start(snapshot_id)
    assert not transfer.is_active


@pytest.mark.parametrize("snapshot_id", [(0, 0), (-1, -1), (5, -1)])
def test_the_bootstrap_snapshot_and_half_an_id_are_not_downloaded(
    snapshot_id: tuple[int, int],
) -> None:
    transfer, _ = a_transfer()  # X10, Q12
    assert not transfer.start(OffsetAndEpoch(*snapshot_id))


def test_a_part_dropped_during_its_sync_is_discarded_after_it_and_not_installed() -> None:
    """A file that a thread syncs may not be closed under it."""
    transfer, log = a_transfer()
    transfer.start(WANTED)
    for _ in range(3):
        exchange(transfer)
    (part,) = log.parts
    transfer.drop()
    assert not part.is_discarded
    assert transfer.start(NEWER)
    assert transfer.installed(part, now_ms=1) is None  # type: ignore[arg-type]
    assert part.is_discarded
    assert not log.installed
    assert transfer.snapshot_id == NEWER
