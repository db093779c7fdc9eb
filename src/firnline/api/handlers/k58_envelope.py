"""Envelope: a broker forwards a client's change of the cluster. PURE. Source: KIP-590.

A controller that is not active refuses the envelope itself, and the broker looks for the active one; the
client sees none of it. A request inside that cannot be decoded gets UNSUPPORTED_VERSION.
"""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext, Response
from firnline.api.dispatch import (
    ELEMENTS_AT_ONCE,
    DecodeSteps,
    find_api,
    read_in_slices,
    read_request,
    start_of,
)
from firnline.api.slices import Slices, a_step_a_slice, in_slices
from firnline.base.effects import CloseConnection, Effect, Effects, Reply
from firnline.base.errors import Code, ProtocolError
from firnline.protocol.messages.headers import ResponseHeader
from firnline.protocol.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse
from firnline.protocol.messages.principal import decode_principal
from firnline.protocol.primitives import TooManyElements
from firnline.protocol.schema import Message
from firnline.protocol.session import Api, Wrapped
from firnline.protocol.versions import CONTROLLER_SERVED, FORWARDABLE

if TYPE_CHECKING:
    from firnline.broker.controller_node import ControllerNode

_ROWS = {row.key: row for row in CONTROLLER_SERVED}
_ADDRESS_BYTES = (4, 16)


def handle(
    node: "ControllerNode", context: RequestContext, request: EnvelopeRequest, now_ms: int
) -> Effects:
    def refuse(code: Code) -> Effects:
        return [context.reply(EnvelopeResponse(error_code=code))]

    try:
        decode_principal(request.request_principal or b"")
    except ProtocolError:
        return refuse(Code.PRINCIPAL_DESERIALIZATION_FAILURE)
    if len(request.client_host_address) not in _ADDRESS_BYTES:
        return refuse(Code.INVALID_REQUEST)
    data = request.request_data
    if not context.owns_bytes:
        data = bytes(data)
    try:
        start = start_of(data)
        if start.key not in FORWARDABLE:
            return refuse(Code.INVALID_REQUEST)
        api = find_api(_ROWS, start.key, start.version)
        inner = WrappedContext(context, api, start.correlation_id, start.client_id)
        wrapped = read_request(api, data, start.body, ELEMENTS_AT_ONCE)
    except TooManyElements:
        reading = _read(node, inner, api, read_in_slices(api, data, start.body), now_ms)
        effects = in_slices(node, inner, reading, now_ms)
    except ProtocolError:
        return refuse(Code.UNSUPPORTED_VERSION)
    else:
        effects = _handle(node, inner, api, wrapped, now_ms)
    context.has_slices_left = inner.has_slices_left
    return effects


def _read(
    node: "ControllerNode", inner: "WrappedContext", api: Api, steps: DecodeSteps, now_ms: int
) -> Slices:
    """Decode a large request in slices, then handle it; refuse the envelope if that is not possible."""
    try:
        wrapped, now_ms = yield from a_step_a_slice(steps, now_ms, inner)
    except ProtocolError:
        return [inner.refuse(Code.UNSUPPORTED_VERSION)]
    return _handle(node, inner.of_what_is_read(), api, wrapped, now_ms)


def _handle(
    node: "ControllerNode", inner: "WrappedContext", api: Api, wrapped: Message, now_ms: int
) -> Effects:
    if node.inactive_problem is not None:
        return [inner.refuse(Code.NOT_CONTROLLER)]
    effects: Effects = api.handle(node, inner, wrapped, now_ms)
    return effects


class WrappedContext(RequestContext):
    """The context of a forwarded request: its response goes back in an envelope."""

    __slots__ = ("_api", "_handled", "_outer")

    def __init__(
        self, outer: RequestContext, api: Api, correlation_id: int, client_id: str | None
    ) -> None:
        super().__init__(
            outer.connection, api.key, api.version, correlation_id, client_id, outer.received_ms
        )
        self._outer = outer
        self._api = api
        self._handled: WrappedContext | None = None

    @property
    def response_memory(self) -> None:
        """Count nothing: the connection is a broker's, and carries requests of other clients, too."""
        return

    def of_what_is_read(self) -> "WrappedContext":
        """Return the context for the handler of a request that was decoded in slices."""
        self._handled = WrappedContext(self._outer, self._api, self.correlation_id, self.client_id)
        return self._handled

    def ends(self) -> None:
        """Count the envelope's bytes until the last slice of the request inside, decoding and handling."""
        if self._handled is None or not self._handled.has_slices_left:
            self._outer.ends()

    def reply(self, message: Response) -> Effect:
        """Send the broker the client's response, in the envelope's."""
        if _has_code(message, Code.NOT_CONTROLLER):
            return self.refuse(Code.NOT_CONTROLLER)
        if self.is_large:
            self._outer.is_large = True
            self.keeps(message)
            wrapped = Wrapped(self._api, self.correlation_id, message, _outer)
            return self._outer.reply(wrapped)
        assert not isinstance(message, bytes), "only a whole frame is"
        header = ResponseHeader(correlation_id=self.correlation_id)
        try:
            data = header.write(1 if self._api.flexible else 0) + message.write(self.api_version)
        except Exception as problem:  # noqa: BLE001 - only this response may be bad
            return self.failed(problem)
        return self._outer.reply(EnvelopeResponse(response_data=data))

    def refuse(self, code: Code) -> Reply[RequestContext]:
        """Answer the envelope with an error: the broker makes the client's response, or tries again."""
        return Reply(context=self._outer, message=EnvelopeResponse(error_code=code))

    def failed(self, problem: Exception) -> CloseConnection[RequestContext]:
        """Answer the broker with the error; the connection stays open for the requests of other clients."""
        refusal = self.refuse(Code.UNKNOWN_SERVER_ERROR)
        return CloseConnection(context=self, problem=problem, instead=refusal)


def _outer(data: bytearray) -> EnvelopeResponse:
    return EnvelopeResponse(response_data=data)


def _has_code(message: object, code: Code) -> bool:
    """Whether the response, or one of its rows, has `code`: this node is not active any more."""
    rows = [
        row for name in ("topics", "responses", "results") for row in getattr(message, name, ())
    ]
    return any(getattr(each, "error_code", Code.NONE) == code for each in (message, *rows))
