"""TierFlush: rolls the active segments and copies them now. Not a Kafka API. PURE.

Source: docs/formats/tier.md.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.handlers.k32001_tier_status import NO_TIER, is_tiered
from firnline.api.slices import Slices, emptied, in_slices
from firnline.base.effects import Effects
from firnline.base.errors import Code, FirnlineError, KafkaError
from firnline.protocol.messages.k32002_tier_flush import (
    TierFlushPartitionResult,
    TierFlushRequest,
    TierFlushResponse,
    TierFlushTopic,
    TierFlushTopicResult,
)
from firnline.tiered.remote_log import RemoteLog

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

# A refused topic takes some microseconds, a flushed one as long as a slice.
_COST_PER_SLICE = _FLUSH_COST = 200
_RESULTS_PER_SLICE = 1_000

Outcomes = dict[int, FirnlineError | None]


def handle(
    node: "BrokerNode", context: RequestContext, request: TierFlushRequest, now_ms: int
) -> Effects:
    """Answer when each requested partition is in the tier and in the catalog, or has failed, or in time."""
    if not request.topics:
        return [context.reply(TierFlushResponse())]
    return in_slices(node, context, _flush(node, context, request, now_ms), now_ms, to_the_end=True)


def _flush(
    node: "BrokerNode", context: RequestContext, request: TierFlushRequest, now_ms: int
) -> Slices:
    results: dict[str, TierFlushTopicResult] = {}
    effects: Effects = []
    cost = 0
    deadline_ms = now_ms + max(request.timeout_ms, 0)
    for asked in request.topics:
        if cost >= _COST_PER_SLICE:
            now_ms = yield effects
            effects, cost = [], 0
        topic = node.image.topic(asked.name)
        tier = node.tier
        done = context.makes_replies(partial(_one_done, node, context, request, results, now_ms))
        if tier is None or topic is None:
            why = NO_TIER if topic is not None else "no such topic"
            code = Code.INVALID_CONFIG if topic is not None else Code.UNKNOWN_TOPIC_OR_PARTITION
            effects += done(_refused(asked, KafkaError(code, why)))
            cost += 1 + len(asked.partitions or ())
            continue
        then = partial(_flushed, node, tier, asked, topic.topic_id, done)
        partitions = frozenset(asked.partitions or ())
        left_ms = max(deadline_ms - now_ms, 0)
        effects += tier.flush(
            topic.topic_id, then, now_ms, partitions=partitions, timeout_ms=left_ms
        )
        cost += _FLUSH_COST
    return effects


def _flushed(
    node: "BrokerNode",
    tier: RemoteLog,
    asked: TierFlushTopic,
    topic_id: bytes,
    done: Callable[..., Effects],
    outcomes: Outcomes,
    now_ms: int,
) -> Effects:
    if not outcomes and is_tiered(node, asked.name):
        return done(TierFlushTopicResult(name=asked.name))  # other brokers lead all partitions
    if not outcomes:
        why = "the topic is not tiered: remote.storage.enable is false"
        return done(_refused(asked, KafkaError(Code.INVALID_TOPIC_EXCEPTION, why)))
    rows = {row.partition: row for row in tier.status(topic_id)}
    results = []
    for index in sorted(outcomes):
        error = outcomes[index]
        row = rows.get(index)
        results.append(
            TierFlushPartitionResult(
                partition=index,
                error_code=_code(error),
                error_message=None if error is None else node.config.redact(str(error)),
                log_end_offset=-1 if row is None else row.log_end_offset,
                highest_remote_offset=-1 if row is None else row.remote_end_offset - 1,
            )
        )
    return done(TierFlushTopicResult(name=asked.name, partitions=results))


def _one_done(
    node: "BrokerNode",
    context: RequestContext,
    request: TierFlushRequest,
    results: dict[str, TierFlushTopicResult],
    now_ms: int,
    result: TierFlushTopicResult,
) -> Effects:
    results[result.name] = result
    if len(results) < len(request.topics):  # each is named once, as repeated names are folded
        return []
    return in_slices(node, context, _response_slices(context, request, results), now_ms)


def _response_slices(
    context: RequestContext, request: TierFlushRequest, results: dict[str, TierFlushTopicResult]
) -> Slices:
    topics: list[TierFlushTopicResult] = []
    for some in emptied(request.topics, _RESULTS_PER_SLICE):
        if topics:
            yield []
        topics += [results.pop(topic.name) for topic in some]
    return [context.reply(TierFlushResponse(topics=topics))]


def _refused(asked: TierFlushTopic, error: KafkaError) -> TierFlushTopicResult:
    partitions = [
        TierFlushPartitionResult(partition=p, error_code=error.code, error_message=error.why)
        for p in asked.partitions or [-1]
    ]
    return TierFlushTopicResult(name=asked.name, partitions=partitions)


def _code(error: FirnlineError | None) -> int:
    if error is None:
        return Code.NONE
    return error.code if isinstance(error, KafkaError) else Code.KAFKA_STORAGE_ERROR
