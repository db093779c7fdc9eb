"""A response whose records stay in their files until the socket takes them. SIM.

In production the first bytes of a response go to the socket at once; the kernel sends the rest when the peer
has taken those. What is sent is what the file holds at that time. Source: `runtime/net.py`; KAFKA-18723.
"""

from typing import Any, NamedTuple

from firnline.base.errors import RecordsTruncated
from firnline.base.slices import FileRecords, FileSlice
from firnline.protocol.messages.k01_fetch import FetchResponse
from firnline.protocol.schema import Message


class _Unread(NamedTuple):
    """Records of one partition in a response: what the socket has, and what is still in files."""

    row: Any
    taken: bytes
    rest: list[FileSlice]


class PendingResponse:
    """A response on its way out. `is_complete`: the socket has every byte of it."""

    __slots__ = ("_unread", "message")

    def __init__(self, message: Message, socket_bytes: int) -> None:
        """Give the socket what it takes at once: the first `socket_bytes` of the records."""
        self.message = message
        self._unread: list[_Unread] = []
        if type(message) is not FetchResponse:
            return
        room = socket_bytes
        for topic in message.responses:
            for row in topic.partitions:
                slices = _slices(row.records)
                if slices is not None:
                    room = self._take(row, slices, room)

    def _take(self, row: Any, slices: list[FileSlice], room: int) -> int:
        taken: list[bytes] = []
        rest: list[FileSlice] = []
        for each in slices:
            now_bytes = min(room, each.size_bytes)
            room -= now_bytes
            if now_bytes:
                taken.append(_read(each._replace(size_bytes=now_bytes)))
            if now_bytes < each.size_bytes:
                position, left_bytes = each.position + now_bytes, each.size_bytes - now_bytes
                rest.append(each._replace(position=position, size_bytes=left_bytes))
        if rest:
            self._unread.append(_Unread(row, b"".join(taken), rest))
        else:
            row.records = b"".join(taken)
        return room

    @property
    def is_complete(self) -> bool:
        return not self._unread

    def finish(self) -> None:
        """Read the rest, as the files are now. Raises RecordsTruncated if they do not have it any more."""
        unread, self._unread = self._unread, []
        for row, taken, rest in unread:
            row.records = taken + b"".join(map(_read, rest))


def _slices(records: Any) -> list[FileSlice] | None:
    if isinstance(records, FileSlice):
        return [records]
    return list(records.slices) if isinstance(records, FileRecords) else None


def _read(part: FileSlice) -> bytes:
    found = part.read()
    if len(found) < part.size_bytes:
        raise RecordsTruncated("a file is shorter than an answer has it", path=part.file.path)
    return found
