"""What an answer says is what its files hold when the socket takes it, not when the answer was made."""

import pytest

from firnline.base.errors import RecordsTruncated
from firnline.base.slices import FileRecords, FileSlice
from firnline.protocol.messages.k01_fetch import (
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchResponse,
)
from firnline.sim.disk import CrashableFile, CrashableFs
from firnline.sim.runtime.answers import PendingResponse


def file_of(data: bytes) -> CrashableFile:
    file = CrashableFs().open("/log", create=True)
    file.append(data)
    return file


def answer_of(file: CrashableFile, *slices: tuple[int, int]) -> FetchResponse:
    records = FileRecords([FileSlice(file, start, end - start) for start, end in slices])
    row = FetchablePartitionResponse(partition_index=0, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[row])])


def reported(answer: PendingResponse) -> bytes:
    message = answer.message
    assert isinstance(message, FetchResponse)
    return bytes(message.responses[0].partitions[0].records or b"")  # type: ignore[arg-type]


def test_what_fits_the_socket_is_read_at_once() -> None:
    file = file_of(b"0123456789")
    answer = PendingResponse(answer_of(file, (0, 4), (6, 8)), socket_bytes=6)
    assert answer.is_complete
    file.truncate(0)
    assert reported(answer) == b"012367"


def test_the_rest_is_what_the_file_holds_when_the_socket_takes_it() -> None:
    file = file_of(b"0123456789")
    answer = PendingResponse(answer_of(file, (0, 4), (6, 8)), socket_bytes=2)
    assert not answer.is_complete
    file.truncate(0)
    file.append(b"abcdefghij")
    answer.finish()
    assert answer.is_complete
    assert reported(answer) == b"01cdgh"


def test_an_answer_whose_bytes_are_gone_is_no_answer() -> None:
    file = file_of(b"0123456789")
    answer = PendingResponse(answer_of(file, (4, 8)), socket_bytes=0)
    file.truncate(6)
    with pytest.raises(RecordsTruncated):
        answer.finish()
