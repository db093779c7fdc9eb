"""The client's half of the protocol without a socket: frames, headers, choice of versions. PURE.

Source: KIP-35 (a client asks for the broker's versions), KIP-482 (headers); spec C4, C11.
"""

import struct
from collections.abc import Generator, Mapping
from typing import Any

from firnline.base.errors import Code, KafkaError, ProtocolError
from firnline.base.limits import ARRAY_ELEMENTS_MAX, JOIN_BYTES_MAX
from firnline.base.ports import Buffer
from firnline.formats.topic_names import name_problem
from firnline.protocol.compile import BAD_BYTES, slicing_reader, slicing_writer
from firnline.protocol.messages import messages_of
from firnline.protocol.messages.headers import RequestHeader, ResponseHeader
from firnline.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from firnline.protocol.schema import Message, Versions

API_VERSIONS = 18
# Keys from here on are only ours: never advertised, version 0.
PRIVATE_KEYS = 32_000
FRAME_BYTES_MAX = 1 << 30
_CODES = frozenset(Code)
_SIZE = struct.Struct(">i")
_CODE = struct.Struct(">h")
_GREETING_VERSION = 3


def encode_request(
    request: Message, *, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Return the complete frame of a request, length first."""
    body = _header(request, version, correlation_id, client_id) + request.write(version)
    return _SIZE.pack(len(body)) + body


def encode_request_in_parts(
    request: Message, *, version: int, correlation_id: int, client_id: str | None
) -> list[Buffer]:
    """Like `encode_request`, in parts: a large bytes field is a part of its own, and is not copied."""
    parts: Any = request.parts(version)  # without file slices: no request contains files
    parts.insert(0, _header(request, version, correlation_id, client_id))
    size = _SIZE.pack(sum(map(len, parts)))
    if max(map(len, parts)) <= JOIN_BYTES_MAX:
        return [size + b"".join(parts)]
    found: list[Buffer] = []
    small: list[Buffer] = [size]
    for part in parts:
        if len(part) > JOIN_BYTES_MAX:
            found += [b"".join(small), part]
            small.clear()
        else:
            small.append(part)
    return [*found, b"".join(small)] if small else found


def encode_request_in_slices(
    request: Message, *, version: int, correlation_id: int, client_id: str | None
) -> Generator[None, None, bytearray]:
    """Like `encode_request`, without the length, in slices."""
    found = bytearray(_header(request, version, correlation_id, client_id))
    news: list[bytes] = []
    for _ in slicing_writer(type(request), version)(request, news.append):
        found += b"".join(news)
        news.clear()
        yield
    found += b"".join(news)
    return found


def _header(request: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    header = RequestHeader(
        request_api_key=request.key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return header.write(2 if version in request.flexible else 1)


def decode_size(data: Buffer) -> int:
    """Return the length in the first four bytes of a response. Raises ProtocolError."""
    (size,) = _SIZE.unpack(data)
    if not 4 <= size <= FRAME_BYTES_MAX:
        raise ProtocolError("a response of an impossible size: is this a Kafka port?", size=size)
    return int(size)


def decode_answer(request: Message, version: int, frame: Buffer, *, correlation_id: int) -> Message:
    """Decode the response to `request` in `frame`, which is without its length. Raises ProtocolError."""
    position = _body_of(request, version, frame, correlation_id)
    _, response = messages_of(request.key)
    message, end = response.read(frame, version, position)
    _check_end(request, version, frame, end)
    return message


def decode_answer_in_slices(
    request: Message, version: int, frame: Buffer, *, correlation_id: int
) -> Generator[Message, None, Message]:
    """Like `decode_answer`, in slices; each yields the response as far as it is decoded."""
    position = _body_of(request, version, frame, correlation_id)
    _, response = messages_of(request.key)
    read = slicing_reader(response, version)
    try:
        message, end = yield from read(frame, position, len(frame), [ARRAY_ELEMENTS_MAX])
    except BAD_BYTES as problem:
        raise ProtocolError("not a response", key=request.key, problem=problem) from None
    _check_end(request, version, frame, end)
    return message  # type: ignore[no-any-return]


def _body_of(request: Message, version: int, frame: Buffer, correlation_id: int) -> int:
    """Return the position after the header of the response."""
    flexible = version in request.flexible and request.key != API_VERSIONS
    header, position = ResponseHeader.read(frame, 1 if flexible else 0)
    if header.correlation_id != correlation_id:
        raise ProtocolError(
            "a response to another request", wanted=correlation_id, got=header.correlation_id
        )
    return position


def _check_end(request: Message, version: int, frame: Buffer, end: int) -> None:
    if end != len(frame):
        raise ProtocolError("bytes after the response", key=request.key, version=version)


def greeting(correlation_id: int, client_id: str | None) -> bytes:
    """Return the first request of a connection, which asks for the broker's versions."""
    request = ApiVersionsRequest(client_software_name="firnline", client_software_version="1")
    return encode_request(
        request, version=_GREETING_VERSION, correlation_id=correlation_id, client_id=client_id
    )


def decode_versions(frame: Buffer, *, correlation_id: int) -> dict[int, Versions]:
    """Return the broker's versions by API key, from its response to our `greeting`.

    A broker that does not know the version of the request answers with UNSUPPORTED_VERSION in version 0,
    which lists its versions too. Raises KafkaError for any other refusal.
    """
    version = _GREETING_VERSION
    header, position = ResponseHeader.read(frame, 0)
    if header.correlation_id != correlation_id:
        raise ProtocolError("a response to another request")
    if len(frame) < position + _CODE.size:
        raise ProtocolError("not an ApiVersionsResponse: it ends early")
    (code,) = _CODE.unpack_from(frame, position)
    if code == Code.UNSUPPORTED_VERSION:
        version = 0
    elif code:
        refuse(code, None, "ApiVersions")
    answer, _ = ApiVersionsResponse.read(frame, version, position)
    return {row.api_key: Versions(row.min_version, row.max_version) for row in answer.api_keys}


def choose_version(
    request: type[Message] | Message,
    spoken: Mapping[int, Versions],
    *,
    version_min: int = 0,
    version_max: int = 32_767,
) -> int:
    """Return the highest version that both sides know, within the given bounds.

    Raises KafkaError(UNSUPPORTED_VERSION) if there is none.
    """
    if request.key >= PRIVATE_KEYS:
        return request.valid.last
    theirs = spoken.get(request.key)
    if theirs is None:
        raise KafkaError(
            Code.UNSUPPORTED_VERSION, "the broker does not serve this request", key=request.key
        )
    version = min(theirs.last, request.valid.last, version_max)
    if version < max(theirs.first, request.valid.first, version_min):
        raise KafkaError(
            Code.UNSUPPORTED_VERSION,
            "no version that both sides know",
            key=request.key,
            broker=f"{theirs.first}-{theirs.last}",
            client=f"{request.valid.first}-{request.valid.last}",
        )
    return version


def refuse(code: int, message: str | None, what: str) -> None:
    """Raise the KafkaError for an error code in a response; 0 is none.

    what  the topic, group or partition, for the person who reads the error
    """
    if code:
        known = Code(code) if code in _CODES else Code.UNKNOWN_SERVER_ERROR
        said = message if message else "" if known == code else f"error code {code}"
        raise KafkaError(known, f"{what}: {said}" if said else what)


def refuse_topic(code: int, name: str) -> None:
    """As `refuse`, for a topic in a MetadataResponse, which never says why a name is impossible."""
    wrong = name_problem(name) if code == Code.INVALID_TOPIC_EXCEPTION else None
    refuse(code, None if wrong is None else wrong.why, f"topic {name}")
