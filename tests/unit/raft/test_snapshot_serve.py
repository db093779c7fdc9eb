"""FetchSnapshot as its leader answers it: slices of one file, and what is refused."""

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import OffsetAndEpoch
from firnline.base.limits import SNAPSHOT_SLICE_BYTES_MAX
from firnline.raft.snapshot_serve import Chunk, serve_chunk

ID = OffsetAndEpoch(100, 3)
CONTENT = bytes(range(250)) * 4


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


def refused(shelf: Shelf, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> Code:
    outcome = serve_chunk(shelf, snapshot_id, position, max_bytes)
    assert isinstance(outcome, KafkaError)
    return outcome.code


def test_slices_joined_by_position_are_the_file() -> None:
    shelf, got = Shelf(), b""  # rel-Q17
    while len(got) < len(CONTENT):
        chunk = serve_chunk(shelf, ID, len(got), 400)
        assert isinstance(chunk, Chunk)
        assert chunk[:3] == (ID, len(CONTENT), len(got))
        assert 0 < len(chunk.data) <= 400
        got += chunk.data
    assert got == CONTENT
    assert all(file.is_closed for file in shelf.opened)


@pytest.mark.parametrize("position", [-1, len(CONTENT), len(CONTENT) + 1, 1 << 62])
def test_a_position_outside_of_the_file_is_refused_its_end_too(position: int) -> None:
    shelf = Shelf()  # X11
    assert refused(shelf, ID, position, 400) is Code.POSITION_OUT_OF_RANGE
    assert shelf.opened[0].is_closed


def test_the_last_byte_is_served() -> None:
    position = len(CONTENT) - 1
    assert serve_chunk(Shelf(), ID, position, 400) == Chunk(
        ID, len(CONTENT), position, CONTENT[-1:]
    )


@pytest.mark.parametrize("snapshot_id", [(0, 0), (100, 4), (101, 3), (-1, -1)])
def test_a_snapshot_that_is_not_here_is_not_found(snapshot_id: tuple[int, int]) -> None:
    assert refused(Shelf(), OffsetAndEpoch(*snapshot_id), 0, 400) is Code.SNAPSHOT_NOT_FOUND


def test_a_missing_snapshot_is_reported_before_a_wrong_position() -> None:
    assert refused(Shelf(), OffsetAndEpoch(1, 1), -1, 400) is Code.SNAPSHOT_NOT_FOUND


def test_no_slice_is_larger_than_asked_for_or_than_the_cap() -> None:
    large = Shelf(bytes(SNAPSHOT_SLICE_BYTES_MAX + 10))
    chunk = serve_chunk(large, ID, 0, 0x7FFFFFFF)
    assert isinstance(chunk, Chunk)
    assert len(chunk.data) == SNAPSHOT_SLICE_BYTES_MAX
    chunk = serve_chunk(large, ID, 0, 1)
    assert isinstance(chunk, Chunk)
    assert chunk.data == b"\x00"


def test_a_negative_size_is_refused_and_kills_nobody() -> None:
    """Kafka 4.3.1 ends its process over it."""
    shelf = Shelf()
    assert refused(shelf, ID, 0, -1) is Code.INVALID_REQUEST
    assert not shelf.opened
