"""A download of a snapshot: from one leader, of one file, whole, or not at all."""

from collections.abc import Sequence
from typing import Any

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import OffsetAndEpoch
from firnline.raft.snapshot_serve import Chunk
from firnline.raft.snapshot_transfer import SnapshotTransfer, Taken

CONTENT = bytes(range(100))
OLD, WANTED, NEWER = OffsetAndEpoch(50, 2), OffsetAndEpoch(100, 3), OffsetAndEpoch(200, 4)
SLICE = 40


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

    def start_part(self, snapshot_id: OffsetAndEpoch) -> PaperPart:
        self.parts.append(PaperPart(snapshot_id))
        return self.parts[-1]


def a_transfer() -> tuple[SnapshotTransfer, PaperLog]:
    log = PaperLog()
    return SnapshotTransfer(log), log


def exchange(transfer: SnapshotTransfer, content: bytes = CONTENT, **changes: Any) -> Taken:
    """Give it what an honest leader with `content` sends next, but for the `changes`."""
    assert transfer.snapshot_id is not None
    position = transfer.position
    data = content[position : position + SLICE]
    chunk = Chunk(transfer.snapshot_id, len(content), position, data)
    return transfer.take(chunk._replace(**changes))


def test_a_snapshot_comes_slice_by_slice_and_is_installed_after_its_sync() -> None:
    transfer, log = a_transfer()
    assert transfer.begin(WANTED)
    assert [exchange(transfer) for _ in range(3)] == [Taken.MORE, Taken.MORE, Taken.COMPLETE]
    (part,) = log.parts
    assert transfer.part is part
    assert part.data == CONTENT
    assert transfer.snapshot_id == WANTED
    assert transfer.end(part)
    assert transfer.snapshot_id is None
    assert transfer.position == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"snapshot_id": OffsetAndEpoch(101, 3)},
        {"snapshot_id": OffsetAndEpoch(100, 4)},
        {"position": 39},
        {"position": 41},
        {"position": 0},
        {"size_bytes": 101},
        {"data": b""},
        {"data": CONTENT[40:] + b"\x00"},
        {"data": b"\xff"},
    ],
    ids=str,
)
def test_a_slice_of_another_file_or_place_is_never_mixed_in(changes: dict[str, Any]) -> None:
    transfer, log = a_transfer()  # rel-Q17, Q35
    transfer.begin(WANTED)
    exchange(transfer)
    assert exchange(transfer, **changes) is Taken.RESTART
    assert log.parts[0].is_discarded
    assert transfer.problem is not None
    assert transfer.problem.code is Code.CORRUPT_MESSAGE
    assert transfer.begin(WANTED)
    assert transfer.position == 0, "from the first byte on"


def test_a_file_without_its_footer_is_not_installed() -> None:
    transfer, log = a_transfer()  # Q37, rel-Q10
    transfer.begin(WANTED)
    outcome = Taken.MORE
    while outcome is Taken.MORE:
        outcome = exchange(transfer, content=CONTENT[:90])
    assert outcome is Taken.RESTART
    assert log.parts[0].is_discarded


def test_a_newer_snapshot_replaces_a_download_in_progress() -> None:
    transfer, log = a_transfer()
    transfer.begin(WANTED)
    exchange(transfer)
    assert transfer.begin(NEWER)
    assert log.parts[0].is_discarded
    assert transfer.snapshot_id == NEWER
    assert transfer.position == 0
    assert exchange(transfer, content=CONTENT[:20] + CONTENT) is Taken.MORE, "of any other size"


def test_a_download_that_was_dropped_begins_anew_also_of_the_same_id() -> None:
    """Another leader's file of that id has other bytes (Q32)."""
    transfer, log = a_transfer()
    transfer.begin(WANTED)
    exchange(transfer)
    transfer.drop()
    assert log.parts[0].is_discarded
    assert transfer.snapshot_id is None
    transfer.begin(WANTED)
    assert transfer.position == 0
    assert exchange(transfer, content=CONTENT[:30] + CONTENT) is Taken.MORE


def test_the_same_snapshot_goes_on_where_it_is() -> None:
    transfer, log = a_transfer()
    transfer.begin(WANTED)
    exchange(transfer)
    assert transfer.begin(WANTED)
    assert len(log.parts) == 1
    assert transfer.position == SLICE


@pytest.mark.parametrize("snapshot_id", [WANTED, OLD, OffsetAndEpoch(300, 2)])
def test_what_is_here_or_older_is_not_downloaded(snapshot_id: OffsetAndEpoch) -> None:
    transfer, log = a_transfer()
    log.newest_snapshot_id = WANTED
    assert not transfer.begin(snapshot_id)
    assert not log.parts


@pytest.mark.parametrize("snapshot_id", [(0, 0), (-1, -1), (5, -1), (-1, 5)])
def test_the_bootstrap_snapshot_and_half_an_id_are_not_downloaded(
    snapshot_id: tuple[int, int],
) -> None:
    transfer, log = a_transfer()  # X10, Q12
    assert not transfer.begin(OffsetAndEpoch(*snapshot_id))
    assert not log.parts


def test_a_part_dropped_during_its_sync_is_discarded_after_it_and_not_installed() -> None:
    """A file that a thread syncs may not be closed under it."""
    transfer, log = a_transfer()
    transfer.begin(WANTED)
    for _ in range(3):
        exchange(transfer)
    (part,) = log.parts
    transfer.drop()
    assert not part.is_discarded
    assert transfer.begin(NEWER)
    assert not transfer.end(part)
    assert part.is_discarded
    assert transfer.snapshot_id == NEWER
    assert not log.parts[1].is_discarded
