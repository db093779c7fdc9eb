"""Turns the frame of a request into a call of its handler, and a response into a frame. PURE.

A frame takes one of two ways. `at_once` takes the common case: it decodes the request in one call, and
returns the frame of the response. Where it returns None, it has done nothing, and `on_frame` takes the frame:
it reads the header, decodes the body, and calls the handler, which returns effects. A body of very many
elements is decoded in slices (decision 0018).

An unknown key, an unsupported version and unreadable bytes close the connection (C17). Only ApiVersions
answers a version that it does not know, in the layout of version 0 (C4).
"""

import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from firnline.api.context import Connection, RequestContext
from firnline.api.duplicates import folding
from firnline.api.error_counts import count_errors
from firnline.api.fast_path import Fields, common_request
from firnline.base.background import SlicedTask, run_to_completion
from firnline.base.counting.requests import CopiedTimes
from firnline.base.effects import Effects, Reply
from firnline.base.errors import Asked, Bug, Code, KafkaError, ProtocolError, StorageError
from firnline.base.limits import ARRAY_ELEMENTS_MAX, ELEMENT_HELD_BYTES
from firnline.base.ports import Buffer
from firnline.base.slices import FileSlice
from firnline.protocol.compile import BAD_BYTES, ELEMENTS_PER_SLICE, slicing_reader
from firnline.protocol.messages import MODULES, api_name, messages_of
from firnline.protocol.primitives import TooManyElements
from firnline.protocol.schema import Message, Part
from firnline.protocol.session import (
    API_VERSIONS_KEY,
    REQUEST_START,
    Api,
    encode_answer,
    encode_in_slices,
    read_client_id,
    skip_header_tags,
)
from firnline.protocol.versions import PRIVATE, PRODUCE_VERSION_MIN, SERVED, ServedApi

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode

_PRODUCE_KEY, _FETCH_KEY = 0, 1
# A request of more elements is decoded in slices. Decoding this many takes no longer than a slice.
ELEMENTS_AT_ONCE = 1_000
_SLICE_READ_BYTES = ELEMENTS_PER_SLICE * ELEMENT_HELD_BYTES
_SIZE_BYTES = 4
_unpack_start = REQUEST_START.unpack_from
_frame_size = struct.Struct(">i").unpack_from
# Decodes a request; each step is a slice, and yields the containers it has made so far, or None.
DecodeSteps = Generator[object, None, Message]


class RequestCount(NamedTuple):
    """Requests of one API at one version; bytes of frames without their size field.

    errors  by error code: how often responses had it
    times   of a Fetch those of consumers; `follower_times` those of followers. Both are copies
    """

    name: str  # as in the name of the handler's module: list_offsets
    version: int
    requests: int
    in_bytes: int
    out_bytes: int
    of_followers: int = 0
    answers_without_error: int = 0
    errors: Mapping[int, int] = MappingProxyType({})
    times: CopiedTimes = CopiedTimes()
    follower_times: CopiedTimes = CopiedTimes()


class Dispatcher:
    """Decodes requests, calls their handlers, and encodes responses.

    There is one for each kind of listener: `rows` are the APIs that `node` serves there. `clock` returns
    seconds, to time requests with; None: none is timed.
    """

    def __init__(
        self,
        node: "AnyNode",
        rows: Iterable[ServedApi] = SERVED + PRIVATE,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._node = node
        self._clock = clock
        self._rows = {row.key: row for row in rows}
        self._apis: dict[int, Api] = {}
        self._latest: Api | None = None
        # The request of the last `on_frame`, if it has slices left.
        self.sliced_request: RequestContext | None = None

    @property
    def latest_name(self) -> str:
        """The name of the API of the last request, such as list_offsets; empty before the first."""
        return "" if self._latest is None else self._rows[self._latest.key].name

    def name_of(self, context: RequestContext) -> str:
        """The name of a request's API, such as list_offsets."""
        return self._rows[context.api_key].name

    def on_frame(
        self, connection: Connection, frame: memoryview, now_ms: int, *, owns_bytes: bool = False
    ) -> Effects:
        """Handle one request; return the effects of its handler.

        frame       writable; valid during this call
        owns_bytes  the request owns `frame`, which stays valid while something refers to it. Otherwise the
                    frame is copied, except for Produce, which stamps its batches in place.

        Raises ProtocolError: the caller closes the connection.
        """
        self.sliced_request = None
        try:
            key_and_version, correlation_id, client_length = _unpack_start(frame)
        except struct.error:
            raise ProtocolError("header ends early", size=len(frame)) from None
        version = key_and_version & 0xFFFF
        api = self._apis.get(key_and_version) or self._find(key_and_version >> 16, version)
        self._latest = api
        counts, key = api.counts, api.key
        data: Buffer = frame if owns_bytes or key == _PRODUCE_KEY else bytes(frame)
        size = len(data)
        client_id, position = read_client_id(data, client_length)
        context = RequestContext(connection, key, version, correlation_id, client_id, now_ms)
        context.owns_bytes = owns_bytes
        if self._clock is not None and now_ms != counts.timed_ms:
            counts.timed_ms = now_ms
            context.began_s = self._clock()
        if api.flexible:
            if position < size and data[position] == 0:
                position += 1
            else:
                position = skip_header_tags(data, position)
        if api.version != version:
            return self._answer_unknown_version(context)
        try:
            request = read_request(api, data, position, ELEMENTS_AT_ONCE)
        except TooManyElements:
            return self._read_in_slices(api, context, data, position)
        counts.slow += 1
        counts.in_bytes += size
        try:
            effects: Effects = api.handle(self._node, context, request, now_ms)
        except (Bug, ProtocolError, StorageError):
            raise
        except Exception as problem:  # noqa: BLE001 - `failed` names the request
            effects = [context.failed(problem)]
        if key == _FETCH_KEY and context.is_urgent:
            counts.of_followers += 1
        if context.began_s and self._clock is not None:
            context.local_s = self._clock() - context.began_s
        if context.has_slices_left:
            self.sliced_request = context
        return effects

    def _read_in_slices(
        self, api: Api, context: RequestContext, data: Buffer, position: int
    ) -> Effects:
        """Decode a request in slices, then handle it."""
        if api.key == _PRODUCE_KEY and not context.owns_bytes:
            data = memoryview(bytearray(data))  # it outlives the frame, and is stamped in place
        context.is_large = context.has_slices_left = context.owns_bytes = True
        context.local_s = 0.0  # others run between its slices: all of it counts as remote time
        context.is_urgent |= api.key == _FETCH_KEY  # it may be a follower's
        self.sliced_request = context
        steps = read_in_slices(api, data, position)
        return self._read_on(api, context, steps, len(data), context.received_ms)

    def _read_on(
        self, api: Api, context: RequestContext, steps: DecodeSteps, size: int, now_ms: int
    ) -> Effects:
        """Schedule the slices that are left, and then the handler."""
        work: Any = self._reading(api, context, steps, size)
        # The name of a slow slice in the metrics.
        work.__qualname__ = f"{work.__qualname__} of API {api.key}"
        return self._node.sliced_tasks.begin(work, now_ms, is_urgent=context.is_urgent)

    def _reading(
        self, api: Api, context: RequestContext, steps: DecodeSteps, size: int
    ) -> SlicedTask:
        """Decode a request. Pause while requests and responses in progress hold too much memory.

        As objects a request takes ten times the bytes that it had on the wire, or more.
        """
        memory = context.response_memory
        effects: Effects = []
        now_ms = yield []
        is_over = True
        try:
            while not context.is_gone:
                if memory is not None and memory.must_wait():
                    is_over = False
                    memory.wait(partial(self._read_on, api, context, steps, size))
                    return []
                made = next(steps)
                if made is not None:
                    context.keeps(made)
                context.hold(_SLICE_READ_BYTES)
                now_ms = yield []
        except StopIteration as done:
            context.has_slices_left = False  # unless its handler runs in slices
            api.counts.slow += 1
            api.counts.in_bytes += size
            try:
                effects = api.handle(self._node, context, done.value, now_ms)
            except Exception as problem:  # noqa: BLE001 - the runtime decides (failed_requests)
                effects = [context.failed(problem)]
            if api.key == _FETCH_KEY and context.is_urgent:
                api.counts.of_followers += 1
            is_over = not context.has_slices_left
        except ProtocolError as problem:
            # A new error: the traceback of `problem` refers to this frame, and would keep the request in
            # memory until the next garbage collection.
            effects = [context.failed(ProtocolError(str(problem)))]
        finally:
            if is_over:
                context.ends()
        return effects

    def at_once(
        self, connection: Connection, data: memoryview, size: int, now_ms: int
    ) -> bytes | tuple[Part, ...] | Effects | None:
        """Handle the first `size` bytes of `data`, size field included, if they are one common request.

        Returns the frame of the response, or its parts, or the effects of a request that waits or fails.
        None: nothing was done, and the caller calls `on_frame`.
        """
        asked = common_request(data, size)
        if asked is None:
            return None
        api = self._apis.get(asked[0])
        if api is None or api.at_once is None:
            return None
        self._latest = api
        counts = api.counts
        if self._clock is None or counts.timed_ms == now_ms:
            answer = api.at_once(self._node, connection, asked, now_ms)
        else:
            answer = self._timed(api, self._clock, connection, asked, now_ms)
        if answer is not None:
            counts.quick += 1
            counts.in_bytes += size - _SIZE_BYTES
            kind = type(answer)
            if kind is bytes:
                counts.out_bytes += len(answer) - _SIZE_BYTES
            elif kind is tuple:
                counts.out_bytes += _frame_size(answer[0])[0]
            else:
                counts.waited += 1
        return answer  # type: ignore[no-any-return]

    def _timed(
        self, api: Api, clock: Callable[[], float], connection: Any, asked: Fields, now_ms: int
    ) -> Any:
        """Call the handler for a common request, and time it: the first one in this millisecond."""
        assert api.at_once is not None
        began_s = clock()
        connection.began_s = began_s  # for the context, if the handler makes one
        answer = api.at_once(self._node, connection, asked, now_ms)
        connection.began_s = 0.0
        if answer is not None:
            api.counts.timed_ms = now_ms
            local_ms = (clock() - began_s) * 1000
            if type(answer) is list:
                api.counts.times.local.add(local_ms)  # the rest is known when the response is made
            else:
                api.counts.times.add(local_ms, local_ms)
        return answer

    def encode(self, reply: Reply[RequestContext]) -> list[Part]:
        """Return the frame of the response `reply.message`, in parts."""
        context = reply.context
        api = self._apis[context.api_key << 16 | context.api_version]
        message: Any = reply.message  # or a complete frame
        parts: list[Part] = [message]
        if type(message) is not bytes:
            parts = encode_answer(api, context.correlation_id, message)
        self._note_answer(api, context, message, parts)
        return parts

    def _note_answer(
        self, api: Api, context: RequestContext, message: object, parts: list[Part]
    ) -> None:
        """Count a response, with its errors; and how long a timed request took."""
        counts = api.counts
        counts.out_bytes += _frame_size(parts[0])[0]  # type: ignore[arg-type]
        counts.slow_answers += not count_errors(message, counts.errors)
        if not context.began_s or self._clock is None:
            return
        total_ms = (self._clock() - context.began_s) * 1000
        is_followers = context.api_key == _FETCH_KEY and context.is_urgent
        times = counts.follower_times if is_followers else counts.times
        if context.local_s is None:  # `_timed` has counted that part
            times.total.add(total_ms)
            times.remote.add(total_ms)
        else:
            times.add(total_ms, min(total_ms, context.local_s * 1000))

    def encoding(self, reply: Reply[RequestContext]) -> Generator[int, None, list[Part]]:
        """As `encode`, in slices; yields the number of bytes that each slice has encoded."""
        context = reply.context
        api = self._apis[context.api_key << 16 | context.api_version]
        message: Any = reply.message
        parts = yield from encode_in_slices(api, context.correlation_id, message)
        self._note_answer(api, context, message, parts)
        return parts

    def counters(self) -> list[RequestCount]:
        """Requests and bytes since the start, by API and version."""
        return [
            RequestCount(
                self._rows[api.key].name,
                api.version,
                api.counts.requests,
                api.counts.in_bytes,
                api.counts.out_bytes,
                api.counts.of_followers,
                api.counts.answers_without_error,
                dict(api.counts.errors),
                api.counts.times.copy(),
                api.counts.follower_times.copy(),
            )
            for api in self._apis.values()
        ]

    def load(self) -> Iterator[None]:
        """Import the modules of the APIs, one a step. Later no file descriptor may be left to do so."""
        for row in self._rows.values():
            find_api(self._rows, row.key, row.advertised_max)
            yield

    def _find(self, key: int, version: int) -> Api:
        api = find_api(self._rows, key, version)
        self._apis[key << 16 | api.version] = api
        return api

    def _answer_unknown_version(self, context: RequestContext) -> Effects:
        _, response = messages_of(API_VERSIONS_KEY)
        from firnline.protocol.messages.k18_api_versions import ApiVersion

        context.api_version = 0
        row = self._rows[API_VERSIONS_KEY]
        own = ApiVersion(
            api_key=row.key, min_version=row.advertised_min, max_version=row.advertised_max
        )
        return [context.reply(response(error_code=Code.UNSUPPORTED_VERSION, api_keys=[own]))]


def find_api(rows: Mapping[int, ServedApi], key: int, version: int) -> Api:
    """Return the codecs and the handler of one API. ProtocolError if it is not among `rows`.

    ApiVersions is found for every version; for one that is not served, the codecs are those of version 0.
    """
    row = rows.get(key)
    if row is None:
        raise ProtocolError("unknown API key", key=key)
    first = PRODUCE_VERSION_MIN if key == _PRODUCE_KEY else row.advertised_min
    served = first <= version <= row.advertised_max
    if not served and key != API_VERSIONS_KEY:
        raise ProtocolError("unsupported version", key=key, version=version)
    request, response = messages_of(key)
    module = import_module(f"firnline.api.handlers.k{key:02d}_{row.name}")
    at_once = getattr(module, "at_once", None)
    return Api(request, response, version if served else 0, module.handle, at_once)


def read_request(
    api: Api, data: Buffer, position: int, elements_max: int = ARRAY_ELEMENTS_MAX
) -> Message:
    """Decode the body of a request at `position`, and fold the names that it repeats (api/duplicates).

    Ignores bytes after the request, as Kafka does: librdkafka 2.16 sends one in Metadata 13. Raises
    ProtocolError; TooManyElements if the arrays together have more than `elements_max` elements.
    """
    request: Message
    size = len(data)
    try:
        request, end = api.read(data, position, size, [elements_max])
    except BAD_BYTES as problem:
        raise _no_request(api, problem) from None
    _check_end(api, size, position, end)
    run_to_completion(folding(api.key, request))
    return request


def read_in_slices(api: Api, data: Buffer, position: int) -> DecodeSteps:
    """As `read_request`, in slices, of up to `ARRAY_ELEMENTS_MAX` elements."""
    request: Message
    size = len(data)
    try:
        read = slicing_reader(api.request, api.version)
        request, end = yield from read(data, position, size, [ARRAY_ELEMENTS_MAX])
    except BAD_BYTES as problem:
        raise _no_request(api, problem) from None
    _check_end(api, size, position, end)
    yield from folding(api.key, request)
    return request


def _no_request(api: Api, problem: Exception) -> ProtocolError:
    return ProtocolError("not a request", key=api.key, problem=problem)


def _check_end(api: Api, size: int, position: int, end: int) -> None:
    if end > size:
        raise ProtocolError("a request ends early", key=api.key, left=size - position)


def asked_of(frame: Buffer) -> Asked | None:
    """Return what a refused frame asks for, for the log; None if it has no header. Other bytes than those of
    a request may look like one.
    """
    try:
        key_and_version, _, client_length = _unpack_start(frame)
    except struct.error:
        return None
    try:
        client_id, _ = read_client_id(frame, client_length)
    except (ProtocolError, *BAD_BYTES):
        client_id = None
    key = key_and_version >> 16
    return Asked(client_id, api_name(key), key_and_version & 0xFFFF)


class Start(NamedTuple):
    """The header of a request in an Envelope; `body` is the position after it."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: int


def start_of(data: Buffer) -> Start:
    """Decode the header of a complete request. Raises ProtocolError, also for an unknown key."""
    try:
        key_and_version, correlation_id, client_length = _unpack_start(data)
    except struct.error:
        raise ProtocolError("header ends early", size=len(data)) from None
    key, version = key_and_version >> 16, key_and_version & 0xFFFF
    if key not in MODULES:
        raise ProtocolError("unknown API key", key=key)
    client_id, position = read_client_id(data, client_length)
    if version in messages_of(key)[0].flexible:
        position = skip_header_tags(data, position)
    return Start(key, version, correlation_id, client_id, position)


def error_code(outcome: object) -> int:
    """Return Kafka's code of a KafkaError, and NONE for every other outcome."""
    return outcome.code if isinstance(outcome, KafkaError) else Code.NONE


def frame_bytes(parts: list[Part]) -> bytes:
    """Join a frame, reading its file slices: for tests and small answers."""
    return b"".join(p.read() if isinstance(p, FileSlice) else p for p in parts)
