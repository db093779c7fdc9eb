"""Decodes common requests in one call: Produce of one batch, Fetch of one partition, ApiVersions. PURE.

The reference implementation of `common_request` in _native.c. Common are the requests that clients send in
their steady state, with only ASCII text and without tagged fields. The result is None for all other bytes,
valid or not: then the general code decodes the request, or refuses it.
"""

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Any

from firnline.base.ids import Uuid
from firnline.base.limits import STRING_BYTES_MAX, TOPIC_NAME_CHARS_MAX
from firnline.base.native import native
from firnline.protocol.session import API_VERSIONS_KEY
from firnline.records.fast_path import common_batch_python

Fields = tuple[Any, ...]
_START = Struct(">ihhih")  # frame size, key, version, correlation id, length of the client id
_FETCH_START = Struct(">iiibii")
# The default of max.message.bytes. Checking a larger batch takes two milliseconds a mebibyte: that is done
# only if its topic accepts it.
_BATCH_BYTES_MAX = 1_048_588
_int8, _int16, _int32, _int64 = Struct(">b"), Struct(">h"), Struct(">i"), Struct(">q")


class _NotCommon(Exception):
    """The bytes are not a common request."""


class _Reader:
    """Reads big-endian fields of `data`; StructError or _NotCommon beyond `end`."""

    def __init__(self, data: memoryview, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def take(self, size: int) -> int:
        """Skip `size` bytes; return their position."""
        if size < 0 or size > self.end - self.at:
            raise _NotCommon
        self.at += size
        return self.at - size

    def number(self, form: Struct) -> int:
        at = self.take(form.size)
        found: int = form.unpack_from(self.data, at)[0]
        return found

    def length(self, is_compact: bool, form: Struct) -> int:
        """Read a length or a count; -1 is null."""
        if not is_compact:
            return self.number(form)
        value = 0
        for shift in range(0, 35, 7):
            byte = self.data[self.take(1)]
            if shift == 28 and byte > 7:
                break
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                expect(form is not _int16 or value <= STRING_BYTES_MAX + 1)
                return value - 1
        raise _NotCommon

    def text(self, size: int) -> str:
        at = self.take(size)
        return str(self.data[at : self.at], "ascii")

    def topic(self, is_compact: bool, is_id: bool) -> str | Uuid:
        if is_id:
            at = self.take(16)
            return bytes(self.data[at : self.at])
        size = self.length(is_compact, _int16)
        expect(0 < size <= TOPIC_NAME_CHARS_MAX)
        return self.text(size)

    def no_tags(self, is_flexible: bool) -> None:
        """Skip an empty tagged section, if the version has one."""
        expect(not is_flexible or self.data[self.take(1)] == 0)


def expect(is_true: bool) -> None:
    """Raise _NotCommon unless `is_true`."""
    if not is_true:
        raise _NotCommon


def common_request_python(data: memoryview, size: int, *, walks: bool = False) -> Fields | None:
    """Return the fields of the request if the first `size` bytes of `data` are one common frame; else None.

    Produce  (key and version, correlation id, topic, partition, acks, timeout, view of the records,
             `common_batch`)
    Fetch    (key and version, correlation id, topic, partition, offset, maximum bytes of the partition, of
             the response, minimum bytes, leader epoch, session id, session epoch), of a consumer that reads
             uncommitted. Without a session (0, -1); or in a session with at most one changed partition, and
             then the topic is None if there is none
    ApiVersions  (key and version, correlation id, name and version of the client's software)
    topic    its name, from version 13 its id
    walks    as in `common_batch_python`
    """
    if size < _START.size or size > len(data):
        return None
    frame_bytes, key, version, correlation_id, client_bytes = _START.unpack_from(data)
    if frame_bytes + 4 != size:
        return None
    reader = _Reader(data, _START.size, size)
    try:
        if key == 0 and 5 <= version <= 13:  # responses of older versions have another layout
            _skip_header(reader, client_bytes, version >= 9)
            return _produce(reader, version, correlation_id, walks=walks)
        if key == API_VERSIONS_KEY and 3 <= version <= 4:
            _skip_header(reader, client_bytes, True)
            return _api_versions(reader, version, correlation_id)
        if key == 1 and 7 <= version <= 18:
            _skip_header(reader, client_bytes, version >= 12)
            return _fetch(reader, version, correlation_id)
    except (_NotCommon, StructError, UnicodeDecodeError):
        pass
    return None


def _skip_header(reader: _Reader, client_bytes: int, is_flexible: bool) -> None:
    if client_bytes != -1:
        reader.text(client_bytes)
    reader.no_tags(is_flexible)


def _produce(reader: _Reader, version: int, correlation_id: int, *, walks: bool) -> Fields | None:
    flexible = version >= 9
    expect(reader.length(flexible, _int16) == -1)  # no transactional id
    acks = reader.number(_int16)
    expect(-1 <= acks <= 1)
    timeout_ms = reader.number(_int32)
    expect(reader.length(flexible, _int32) == 1)
    topic = reader.topic(flexible, version >= 13)
    expect(reader.length(flexible, _int32) == 1)
    index = reader.number(_int32)
    size = reader.length(flexible, _int32)
    expect(size <= _BATCH_BYTES_MAX)
    start = reader.take(size)
    for _ in range(3):
        reader.no_tags(flexible)
    expect(reader.at == reader.end)
    records = reader.data[start : start + size]
    header = common_batch_python(records, walks=walks)
    if header is None:
        return None
    return (version, correlation_id, topic, index, acks, timeout_ms, records, header)


def _fetch(reader: _Reader, version: int, correlation_id: int) -> Fields:
    flexible = version >= 12
    if version < 15:
        expect(reader.number(_int32) == -1)  # a consumer
    at = reader.take(_FETCH_START.size)
    _, min_bytes, max_bytes, isolation, session, turn = _FETCH_START.unpack_from(reader.data, at)
    expect(isolation == 0)
    expect((session > 0 and turn > 0) if session else turn == -1)
    topics = reader.length(flexible, _int32)
    expect(topics == 1 or (session > 0 and topics == 0))
    wanted = _wanted(reader, version) if topics else (None, -1, -1, 0, -1)
    expect(reader.length(flexible, _int32) == 0)  # no partitions to remove
    if version >= 11:
        reader.text(reader.length(flexible, _int16))  # the rack
    reader.no_tags(flexible)
    expect(reader.at == reader.end)
    *place, partition_bytes, epoch = wanted
    limits = (partition_bytes, max_bytes, min_bytes, epoch)
    return (1 << 16 | version, correlation_id, *place, *limits, session, turn)


def _wanted(reader: _Reader, version: int) -> tuple[str | Uuid, int, int, int, int]:
    """Read one topic with one partition: topic, partition, offset, bytes, leader epoch."""
    flexible = version >= 12
    topic = reader.topic(flexible, version >= 13)
    expect(reader.length(flexible, _int32) == 1)
    index = reader.number(_int32)
    epoch = reader.number(_int32) if version >= 9 else -1
    offset = reader.number(_int64)
    if version >= 12:
        expect(
            reader.number(_int32) == -1
        )  # the epoch of the last record, which only followers have
    reader.number(_int64)  # the log start of a follower
    partition_bytes = reader.number(_int32)
    reader.no_tags(flexible)
    reader.no_tags(flexible)
    return topic, index, offset, partition_bytes, epoch


def _api_versions(reader: _Reader, version: int, correlation_id: int) -> Fields:
    name = reader.text(reader.length(True, _int16))
    software_version = reader.text(reader.length(True, _int16))
    reader.no_tags(True)
    expect(reader.at == reader.end)
    return (API_VERSIONS_KEY << 16 | version, correlation_id, name, software_version)


common_request: Callable[[memoryview, int], Fields | None] = (
    common_request_python if native is None else native.common_request
)
