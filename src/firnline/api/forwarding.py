"""Forwards a client's changes of the cluster from a broker to the active controller. PURE.

The broker sends the request in an Envelope, as the client sent it, and passes the controller's response on.
While no controller is active, or the one it asked is not any more, it tries again until the client's timeout:
clients see no elections. It sends requests, but is not in `outbound`, because it owns the client's request
until that has its response. Source: KIP-590.
"""

from collections.abc import Callable, Generator
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from firnline.api.context import RequestContext
from firnline.api.slices import Slices, a_step_a_slice, in_slices
from firnline.base.background import run_to_completion
from firnline.base.effects import Effects, Send, SetTimer, Unanswered
from firnline.base.errors import Code, KafkaError, ProtocolError
from firnline.base.ports import Buffer
from firnline.base.units import KIB
from firnline.client.wire import (
    decode_answer,
    decode_answer_in_slices,
    encode_request,
    encode_request_in_slices,
)
from firnline.protocol.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse
from firnline.protocol.messages.principal import encode_principal
from firnline.protocol.schema import Message
from firnline.protocol.session import Encoded, header_tail

if TYPE_CHECKING:
    from firnline.broker.controller_node import ControllerNode
    from firnline.broker.node import BrokerNode

    # Both serve changes of the cluster and questions about it, on different listeners.
    AnyNode = BrokerNode | ControllerNode

# Builds a message; each step is a slice, and yields the containers it has made so far, or None.
MessageSteps = Generator[Any, None, Message]
Refusal = Callable[[KafkaError], Message | MessageSteps]
Finish = Callable[[Any], MessageSteps]

CHANNEL = "forwarding"
_RETRY_MS = 50
# The default timeout of clients; a request can state a shorter one.
_TIMEOUT_MS = 30_000
_SIZE_BYTES = 4
# Decoding and encoding a larger response takes milliseconds.
_LARGE_BYTES = 32 * KIB
_NOT_UNDERSTOOD = "the response of the active controller is not understood"


def forward(
    node: "AnyNode",
    context: RequestContext,
    request: Message,
    refusal: Refusal,
    now_ms: int,
    *,
    here: Callable[[int], Effects],
    finish: Finish | None = None,
) -> Effects:
    """Forward a request to the active controller, and answer with its response.

    refusal       makes the response for an error, also after a timeout: the message, or the steps that build
                  it, each of which is a slice for a large request
    here(now_ms)  handles the request on this node, if it has become the active controller
    finish        makes the client's response of the controller's, if they differ
    """
    return _Forwarded(node, context, request, refusal, here, finish, now_ms).begin(now_ms)


class _Forwarded:
    """One forwarded request."""

    def __init__(
        self,
        node: "AnyNode",
        context: RequestContext,
        request: Message,
        refusal: Refusal,
        here: Callable[[int], Effects],
        finish: Finish | None,
        now_ms: int,
    ) -> None:
        self._node = node
        self._context = context
        self._request = request
        self._refusal = refusal
        self._here = here
        self._finish = finish
        timeout_ms = getattr(request, "timeout_ms", _TIMEOUT_MS)
        self._until_ms = now_ms + max(_RETRY_MS, min(timeout_ms, _TIMEOUT_MS))
        self._envelope = EnvelopeRequest(
            request_principal=encode_principal(context.principal),
            client_host_address=ip_address(context.peer_host).packed,
        )

    def begin(self, now_ms: int) -> Effects:
        """Encode the request again, in slices if it was decoded in slices; then send it."""
        context = self._context
        header: Any = {
            "version": context.api_version,
            "correlation_id": context.correlation_id,
            "client_id": context.client_id,
        }
        if context.is_large:
            steps = encode_request_in_slices(self._request, **header)
            return in_slices(self._node, context, self._written(steps, now_ms), now_ms)
        return self._sent(encode_request(self._request, **header)[_SIZE_BYTES:], now_ms)

    def _written(self, steps: Generator[None, None, Buffer], now_ms: int) -> Slices:
        data, now_ms = yield from a_step_a_slice(steps, now_ms, self._context)
        return self._sent(data, now_ms)

    def _sent(self, data: Buffer, now_ms: int) -> Effects:
        self._envelope.request_data = data
        self._context.gives_way()
        return self.attempt(now_ms)

    def attempt(self, now_ms: int) -> Effects:
        """Send the request to the present active controller."""
        if self._context.is_gone:
            return []  # the client has disconnected: free the request
        if not self._node.forwards:
            return self._here(now_ms)
        if now_ms >= self._until_ms:
            why = "no active controller answered in time"
            return self._refuse(Code.REQUEST_TIMED_OUT, why, now_ms)
        leader = self._node.quorum.raft.leader_peer()
        if leader is None or leader.node_id == self._node.node_id:
            return self._later(now_ms)  # none yet, or this node soon
        send = Send(
            peer=leader,
            request=self._envelope,
            timeout_ms=self._until_ms - now_ms,
            then=self._answered,
            channel=CHANNEL,
        )
        return [send]

    def _later(self, now_ms: int) -> Effects:
        at_ms = min(now_ms + _RETRY_MS, self._until_ms)
        again = self._context.makes_replies(self.attempt)
        return [SetTimer(key=(CHANNEL, self), at_ms=at_ms, then=again)]

    def _answered(self, answer: EnvelopeResponse | Unanswered, now_ms: int) -> Effects:
        if isinstance(answer, Unanswered):
            return self._later(now_ms)
        if answer.error_code == Code.NOT_CONTROLLER:
            return self._later(now_ms)
        try:
            return self._respond(answer, now_ms)
        except Exception as problem:  # noqa: BLE001 - only this response may be bad
            return [self._context.failed(problem)]

    def _respond(self, answer: EnvelopeResponse, now_ms: int) -> Effects:
        """Make the client's response of the controller's."""
        if answer.error_code or answer.response_data is None:
            is_version = answer.error_code == Code.UNSUPPORTED_VERSION
            code = Code.UNSUPPORTED_VERSION if is_version else Code.UNKNOWN_SERVER_ERROR
            return self._refuse(code, "the active controller does not take this", now_ms)
        data = answer.response_data
        if len(data) > _LARGE_BYTES:
            self._context.is_large = True
            if self._finish is None:
                return self._pass_on(data, now_ms)
        return self._reply(self._unwrapped(data), now_ms)

    def _pass_on(self, data: Buffer, now_ms: int) -> Effects:
        """Pass a large response on without decoding it: it has the version of the client's request."""
        tail = header_tail(type(self._request), self._context.api_version)
        start = self._context.correlation_id.to_bytes(4, "big", signed=True) + tail
        body = memoryview(data)[len(start) :]
        if data[: len(start)] != start:
            return self._refuse(Code.UNKNOWN_SERVER_ERROR, _NOT_UNDERSTOOD, now_ms)
        return [self._context.reply(Encoded([b"", body], len(body)))]

    def _unwrapped(self, data: Buffer) -> MessageSteps:
        read: Any = {
            "version": self._context.api_version,
            "frame": data,
            "correlation_id": self._context.correlation_id,
        }
        try:
            if self._context.is_large:
                message = yield from decode_answer_in_slices(self._request, **read)
            else:
                message = decode_answer(self._request, **read)
        except ProtocolError:
            refused = self._refusal(KafkaError(Code.UNKNOWN_SERVER_ERROR, _NOT_UNDERSTOOD))
            return (yield from refused) if isinstance(refused, Generator) else refused
        return message if self._finish is None else (yield from self._finish(message))

    def _refuse(self, code: Code, why: str, now_ms: int) -> Effects:
        return self._reply(self._refusal(KafkaError(code, why)), now_ms)

    def _reply(self, response: Message | MessageSteps, now_ms: int) -> Effects:
        """Send the response; for a large request each step that builds it is a slice."""
        context = self._context
        if not isinstance(response, Generator):
            return [context.reply(response)]
        if not context.is_large:
            return [context.reply(run_to_completion(response))]
        return in_slices(self._node, context, self._replied(response, now_ms), now_ms)

    def _replied(self, steps: MessageSteps, now_ms: int) -> Slices:
        message, _ = yield from a_step_a_slice(steps, now_ms, self._context)
        return [self._context.reply(message)]
