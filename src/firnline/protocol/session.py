"""Headers of requests and responses. PURE.

Request header v1: key, version, correlation id, client id (a classic nullable string, in v2 as well, C11); v2
adds a tagged section, which nobody uses and which is checked and skipped. Response header v0 is the
correlation id, v1 adds an empty tagged section; ApiVersions always answers with v0 (C4).
"""

import struct
from collections.abc import Callable, Generator
from typing import Any

from firnline.base.counting.requests import RequestCounts
from firnline.base.errors import ProtocolError
from firnline.base.limits import ANSWER_BYTES_MAX, JOIN_BYTES_MAX
from firnline.base.ports import Buffer
from firnline.base.slices import FileSlice
from firnline.protocol.compile import Reader, Writer, slicing_writer, unguarded_reader, writer
from firnline.protocol.primitives import NO_TAGS, check_length, read_tags
from firnline.protocol.schema import Message, Part

API_VERSIONS_KEY = 18

# Key and version as one number, correlation id, length of the client id.
REQUEST_START = struct.Struct(">iih")
_SIZE_AND_CORRELATION = struct.Struct(">ii")


class Api:
    """One API at one version: its reader and writer, created once.

    `read` is unguarded: its caller turns BAD_BYTES into a ProtocolError. `counts` counts its requests.
    """

    __slots__ = (
        "at_once",
        "counts",
        "flexible",
        "handle",
        "key",
        "read",
        "request",
        "tail",
        "version",
        "write",
    )

    def __init__(
        self,
        request: type[Message],
        response: type[Message],
        version: int,
        handle: Callable[..., Any],
        at_once: Callable[..., Any] | None = None,
    ) -> None:
        self.request = request
        self.key = request.key
        self.version = version
        self.flexible = version in request.flexible
        self.read: Reader = unguarded_reader(request, version)
        self.write: Writer = writer(response, version)
        self.tail = header_tail(request, version)
        self.handle = handle
        self.at_once = at_once
        self.counts = RequestCounts()


def header_tail(request: type[Message], version: int) -> bytes:
    """Return the part of a response header after the correlation id: in v1 an empty tagged section."""
    return b"\0" if version in request.flexible and request.key != API_VERSIONS_KEY else b""


def skip_header_tags(frame: Buffer, position: int) -> int:
    """Skip the tagged section of a v2 request header; return the position of the body."""
    try:
        return read_tags(frame, position, len(frame), [0], NO_TAGS, None)
    except IndexError as problem:
        raise ProtocolError("header ends early", problem=problem) from None


def read_client_id(frame: Buffer, length: int) -> tuple[str | None, int]:
    """Return the client id, whose length is at byte 8, and the position after it; a negative length is
    null.
    """
    start = REQUEST_START.size
    if length < 0:
        return None, start
    after = start + length
    if after > len(frame):
        check_length(length, start, len(frame))
    try:
        return str(frame[start:after], "utf-8"), after
    except UnicodeDecodeError:
        raise ProtocolError("client id is not UTF-8") from None


class Encoded:
    """A message that is encoded already, because all but a few numbers of it are constant.

    `parts` in order, the first one bytes; `size_bytes` is their total.
    """

    __slots__ = ("parts", "size_bytes")

    def __init__(self, parts: list[Part], size_bytes: int) -> None:
        self.parts = parts
        self.size_bytes = size_bytes

    def write(self, version: int) -> bytes:
        """Return the bytes, like a message; they were encoded for `version`."""
        return b"".join(p.read() if type(p) is FileSlice else p for p in self.parts)  # type: ignore[misc]


class Wrapped:
    """A large response inside another one. The inner response is encoded in slices and becomes a field of the
    outer.

    It also has the fields of the outer response, for a writer that does not work in slices.

    outer(data)  returns the outer message with the encoded inner one, header included
    """

    __slots__ = ("_api", "_correlation_id", "_made", "_message", "_outer")

    def __init__(
        self, api: Api, correlation_id: int, message: Any, outer: Callable[[bytearray], Any]
    ) -> None:
        self._api = api
        self._correlation_id = correlation_id
        self._message = message
        self._outer = outer
        self._made: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.outer_message(), name)

    def outer_message(self) -> Any:
        """Return the outer message, in one step."""
        if self._made is None:
            for _ in self.steps():
                pass
        return self._made

    def steps(self) -> Generator[int, None, Any]:
        """Return the outer message; yields like `encode_in_slices`."""
        parts: Any = yield from encode_in_slices(self._api, self._correlation_id, self._message)
        data = bytearray(parts[0][_SIZE_AND_CORRELATION.size - 4 :])
        for part in parts[1:]:
            yield 0  # these bytes are counted already
            data += part.read() if type(part) is FileSlice else part
        self._made = self._outer(data)
        return self._made


def pieces(encoded: bytes, *marks: bytes) -> tuple[bytes, ...]:
    """Split a sample message at the bytes of `marks`; return the constant parts between them."""
    found = []
    for mark in marks:
        assert encoded.count(mark) == 1, "a mark that cannot be told from the rest"
        before, _, encoded = encoded.partition(mark)
        found.append(before)
    return (*found, encoded)


def encode_answer(api: Api, correlation_id: int, message: Any) -> list[Part]:
    """Return the frame of a response: bytes and file slices in order, length prefix first."""
    if type(message) is Encoded:
        tail = api.tail
        start = _SIZE_AND_CORRELATION.pack(4 + len(tail) + message.size_bytes, correlation_id)
        parts = message.parts
        return [start + tail + parts[0], *parts[1:]]  # type: ignore[operator]
    parts = [b""]
    api.write(message, parts.append)
    return _framed(api, correlation_id, parts)


def encode_in_slices(
    api: Api, correlation_id: int, message: Any
) -> Generator[int, None, list[Part]]:
    """Like `encode_answer`, in slices; yields the number of bytes that were encoded.

    A response that is too large to be sent in one step stays in parts: joining them would hold it in memory
    twice.
    """
    if type(message) is Encoded:
        return encode_answer(api, correlation_id, message)
    if type(message) is Wrapped:
        message = yield from message.steps()
    parts: list[Part] = [b""]
    news: list[Part] = []
    for _ in slicing_writer(type(message), api.version)(message, news.append):
        yield _join_into(parts, news)
    _join_into(parts, news)
    return _framed(api, correlation_id, parts, joined_bytes_max=JOIN_BYTES_MAX)


_NOT_JOINED = {FileSlice, bytearray}


def _join_into(parts: list[Part], news: list[Part]) -> int:
    """Move the parts in `news` to `parts`, as one piece unless one is a file slice; return their memory in
    bytes.
    """
    if not _NOT_JOINED.isdisjoint(map(type, news)):
        parts += news
        size = sum([0 if type(part) is FileSlice else len(part) for part in news])
    else:
        piece = b"".join(news)  # type: ignore[arg-type]
        parts.append(piece)
        size = len(piece)
    news.clear()
    return size


def _framed(
    api: Api, correlation_id: int, parts: list[Part], joined_bytes_max: int = ANSWER_BYTES_MAX
) -> list[Part]:
    """Return the frame of a response; its first part is not filled in yet.

    A response without file slices of at most `joined_bytes_max` becomes one part. ProtocolError if it is
    longer than four bytes of length can express.
    """
    size = 4 + len(api.tail)
    sliced = False
    for part in parts:
        if type(part) is FileSlice:
            sliced = True
            size += part.size_bytes
        else:
            size += len(part)
    if size > ANSWER_BYTES_MAX:
        raise ProtocolError(
            "a response longer than a frame can be: ask for less at a time", size=size
        )
    parts[0] = _SIZE_AND_CORRELATION.pack(size, correlation_id) + api.tail
    return parts if sliced or size > joined_bytes_max else [b"".join(parts)]  # type: ignore[arg-type]
