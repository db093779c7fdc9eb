"""FindCoordinator: answers with the broker that coordinates a group. PURE. Source: KIP-98, KIP-699.

The first request creates the offsets topic. There is no transaction coordinator yet: its keys get a code on
which clients give up at once (`_without_transactions`). Share groups get INVALID_REQUEST, as from a broker on
which they are disabled.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.slices import Slices, cut, in_slices
from firnline.api.unbuilt import TRANSACTIONS, note_refusal
from firnline.base.effects import Effect, Effects, EnsureTopic
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import OFFSETS_TOPIC
from firnline.protocol.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

Find = Callable[[str], Coordinator]
# Takes a millisecond.
_KEYS_PER_SLICE = 250
_GROUP, _TRANSACTION = 0, 1
_KEYS_VERSION = 4
_NOBODY = -1
_UNKNOWN_TYPE = "unknown kind of coordinator"


def handle(
    node: "BrokerNode", context: RequestContext, request: FindCoordinatorRequest, now_ms: int
) -> Effects:
    keys = (
        request.coordinator_keys
        if context.api_version >= _KEYS_VERSION
        else [request.coordinator_key]
    )
    if request.key_type != _GROUP:
        noted: Effects = []
        if request.key_type == _TRANSACTION:
            refusal = _without_transactions(context)
            noted = note_refusal(node, TRANSACTIONS, context, now_ms)
        else:
            refusal = KafkaError(Code.INVALID_REQUEST, _UNKNOWN_TYPE)
        answer = _answer(context, keys, _refusing(refusal))
        return noted + in_slices(node, context, answer, now_ms)
    if OFFSETS_TOPIC in node.image.topics_by_name:
        return in_slices(node, context, _answer(context, keys, _finder(node, context)), now_ms)

    @context.makes_replies
    def made(problem: KafkaError | None, at_ms: int) -> Effects:
        find = _finder(node, context)
        if problem is not None:
            # The client retries with this code, whatever the problem; the message has the reason.
            find = _refusing(KafkaError(Code.COORDINATOR_NOT_AVAILABLE, problem.why))
        return in_slices(node, context, _answer(context, keys, find), at_ms)

    return [EnsureTopic(name=OFFSETS_TOPIC, then=made)]


def _without_transactions(context: RequestContext) -> KafkaError:
    """Return an error on which the client gives up at once, and shows the sentence if it can.

    librdkafka 2.16 retries after every code but TRANSACTIONAL_ID_AUTHORIZATION_FAILED. Java's client 4.3
    gives up after that one, too, but does not show the sentence then. It sends the versions that name several
    keys, and librdkafka does not.
    """
    names_keys = context.api_version >= _KEYS_VERSION
    code = Code.UNSUPPORTED_VERSION if names_keys else Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return KafkaError(code, TRANSACTIONS)


def _finder(node: "BrokerNode", context: RequestContext) -> Find:
    return lambda key: _leader(node, context, key)


def _refusing(refusal: KafkaError) -> Find:
    return lambda key: _nobody(key, refusal)


def _answer(context: RequestContext, keys: Sequence[str], find: Find) -> Slices:
    found: list[Coordinator] = []
    for some in cut(keys, _KEYS_PER_SLICE):
        if found:
            yield context.keeps(found)
        found += [find(key) for key in some]
    return [_reply(context, found)]


def _leader(node: "BrokerNode", context: RequestContext, group_id: str) -> Coordinator:
    partition = node.image.partition(OFFSETS_TOPIC, node.groups.partition_for(group_id))
    broker = None if partition is None else node.image.brokers.get(partition.leader)
    endpoint = None if broker is None or broker.fenced else broker.endpoint(context.listener)
    if broker is None or endpoint is None:
        return _nobody(group_id, KafkaError(Code.COORDINATOR_NOT_AVAILABLE, "no leader"))
    return Coordinator(
        key=group_id,
        node_id=broker.broker_id,
        host=endpoint.host,
        port=endpoint.port,
        error_message=None,
    )


def _nobody(key: str, refusal: KafkaError) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=_NOBODY,
        host="",
        port=_NOBODY,
        error_code=refusal.code,
        error_message=refusal.why,
    )


def _reply(context: RequestContext, found: Sequence[Coordinator]) -> Effect:
    if context.api_version >= _KEYS_VERSION:
        return context.reply(FindCoordinatorResponse(coordinators=found))
    one = found[0]
    return context.reply(
        FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )
    )
