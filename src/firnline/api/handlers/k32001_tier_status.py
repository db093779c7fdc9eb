"""TierStatus: which offsets of each partition are local and remote. Not a Kafka API. PURE.

Source: docs/formats/tier.md.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.slices import Slices, a_step_a_slice, cut, in_slices
from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.config.layers import topic_config
from firnline.protocol.messages.k32001_tier_status import (
    TierStatusCircuit,
    TierStatusPartition,
    TierStatusRequest,
    TierStatusResponse,
    TierStatusTopic,
)
from firnline.replica.partition import Partition
from firnline.tiered.remote_log import RemoteLog
from firnline.tiered.status import StatusRow

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

# Takes a millisecond.
_PARTITIONS_PER_SLICE = 150
NO_TIER = "this broker has no tier: remote.log.storage.system.enable is false"


def handle(
    node: "BrokerNode", context: RequestContext, request: TierStatusRequest, now_ms: int
) -> Effects:
    """Answer with a row for each partition that this broker leads, of the named or of all tiered topics."""
    tier = node.tier
    if tier is None:
        answer = TierStatusResponse(error_code=Code.INVALID_CONFIG, error_message=NO_TIER)
        return [context.reply(answer)]
    return in_slices(node, context, _answer(node, tier, context, request, now_ms), now_ms)


def _answer(
    node: "BrokerNode",
    tier: RemoteLog,
    context: RequestContext,
    request: TierStatusRequest,
    now_ms: int,
) -> Slices:
    """Add a row for each partition that this broker leads at the time of its slice."""
    names = request.topics
    only = node.image.topic(names[0]) if names is not None and len(names) == 1 else None
    looking = tier.status_steps(None if only is None else only.topic_id)
    rows, _ = yield from a_step_a_slice(looking, 0, context)
    found: dict[str, TierStatusTopic] = {}
    for some in cut(rows, _PARTITIONS_PER_SLICE):
        if found:
            yield []
        for row in some:
            hosted = node.partitions.get((row.topic, row.partition))
            if not row.is_leader or hosted is None:
                continue
            topic = found.get(row.topic)
            if topic is None:
                topic = found[row.topic] = TierStatusTopic(
                    name=row.topic, topic_id=row.topic_id, partitions=[]
                )
            topic.partitions.append(_partition(hosted, row, node.config.redact, now_ms))  # type: ignore[attr-defined]
    answer = _of_broker(tier, node.config.redact, now_ms)
    if names is None:
        answer.topics = list(found.values())
        return [context.reply(answer)]
    topics: list[TierStatusTopic] = []
    for some_names in cut(names, _PARTITIONS_PER_SLICE):
        if topics:
            yield []
        topics += [found.get(name) or _without_rows(node, name) for name in some_names]
    answer.topics = topics
    return [context.reply(answer)]


def _of_broker(tier: RemoteLog, redact: Callable[[str], str], now_ms: int) -> TierStatusResponse:
    """Return what concerns all partitions of the broker."""
    unanswered = tier.services.circuits.unanswered(now_ms)
    return TierStatusResponse(
        problem=None if tier.problem is None else redact(tier.problem),
        circuits=[
            TierStatusCircuit(
                operation=each.operation,
                open_ms=max(now_ms - each.opened_ms, 0),
                problem=redact(each.problem),
            )
            for each in tier.services.circuits.problems()
        ],
        unanswered=None if unanswered is None else unanswered.name,
        unanswered_ms=0 if unanswered is None else max(now_ms - unanswered.since_ms, 0),
    )


def _without_rows(node: "BrokerNode", name: str) -> TierStatusTopic:
    topic = node.image.topic(name)
    if topic is None:
        return TierStatusTopic(name=name, error_code=Code.UNKNOWN_TOPIC_OR_PARTITION)
    # Other brokers may lead all partitions of it.
    code = Code.NONE if is_tiered(node, name) else Code.INVALID_TOPIC_EXCEPTION
    return TierStatusTopic(name=name, topic_id=topic.topic_id, error_code=code)


def is_tiered(node: "BrokerNode", name: str) -> bool:
    """Whether the topic's configs enable remote storage."""
    overrides = node.image.topic_config_overrides(name)
    return topic_config(node.config, overrides).remote_storage_enable


def _partition(
    hosted: Partition, row: StatusRow, redact: Callable[[str], str], now_ms: int
) -> TierStatusPartition:
    """Return the row of one partition. A store's error may quote what it was configured with."""
    problem = _problem(row)
    log = hosted.log
    return TierStatusPartition(
        partition=row.partition,
        log_start_offset=row.log_start_offset,
        local_log_start_offset=row.local_start_offset,
        log_end_offset=row.log_end_offset,
        highest_remote_offset=row.remote_end_offset - 1,
        local_segments=len(log.closed_segments()) + 1,
        local_bytes=log.size_bytes,
        remote_segments=row.remote_segments,
        remote_bytes=row.remote_bytes,
        waiting_segments=row.copy_lag_segments,
        waiting_bytes=row.copy_lag_bytes,
        waiting_ms=_since(row.waiting_since_ms, now_ms),
        state=_state(row),
        problem=None if problem is None else redact(problem),
        problem_ms=_since(row.problem_since_ms, now_ms),
    )


def _since(at_ms: int | None, now_ms: int) -> int:
    return -1 if at_ms is None else max(now_ms - at_ms, 0)


def _state(row: StatusRow) -> str:
    if not row.is_ready:
        return "loading"
    if row.problem is not None or row.holes:
        return "failing"
    if not row.may_copy:
        return "off"
    return "copying" if row.copy_lag_segments else "idle"


def _problem(row: StatusRow) -> str | None:
    """Name a known problem first: it is often the reason that copies are missing."""
    if not row.holes:
        return row.problem
    missing = "no segment serves " + ", ".join(f"{a} to {b - 1}" for a, b in row.holes)
    return missing if row.problem is None else f"{row.problem}; {missing}"
