"""TierStatus: what of each partition lies where; ours alone. PURE. Source: docs/formats/tier.md."""

from itertools import groupby
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.config.layers import topic_config
from firnline.protocol.messages.k32001_tier_status import (
    TierStatusPartition,
    TierStatusRequest,
    TierStatusResponse,
    TierStatusTopic,
)
from firnline.tiered.remote_log import RemoteLog, StatusRow

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

NO_TIER = "this broker has no tier: remote.log.storage.system.enable is false"


def handle(
    node: "BrokerNode", context: RequestContext, request: TierStatusRequest, now_ms: int
) -> Effects:
    """Answer with a row per led partition of the topics asked for, or of all tiered topics."""
    tier = node.tier
    if tier is None:
        answer = TierStatusResponse(error_code=Code.INVALID_CONFIG, error_message=NO_TIER)
        return [context.reply(answer)]
    if request.topics is None:
        rows = [row for row in tier.status() if row.is_leader]
        found = [_topic(node, list(group)) for _, group in groupby(rows, lambda row: row.topic)]
        return [context.reply(TierStatusResponse(topics=found))]
    topics = [_asked(node, tier, name) for name in request.topics]
    return [context.reply(TierStatusResponse(topics=topics))]


def _asked(node: "BrokerNode", tier: RemoteLog, name: str) -> TierStatusTopic:
    topic = node.image.topic(name)
    if topic is None:
        return TierStatusTopic(name=name, error_code=Code.UNKNOWN_TOPIC_OR_PARTITION)
    rows = [row for row in tier.status(topic.topic_id) if row.is_leader]
    if rows:
        return _topic(node, rows)
    # Other brokers may lead all of it.
    code = Code.NONE if is_tiered(node, name) else Code.INVALID_TOPIC_EXCEPTION
    return TierStatusTopic(name=name, topic_id=topic.topic_id, error_code=code)


def is_tiered(node: "BrokerNode", name: str) -> bool:
    """Whether the topic's settings send it to the tier."""
    overrides = node.image.topic_config_overrides(name)
    return topic_config(node.config, overrides).remote_storage_enable


def _topic(node: "BrokerNode", rows: list[StatusRow]) -> TierStatusTopic:
    first = rows[0]
    partitions = [_partition(node, row) for row in rows]
    return TierStatusTopic(name=first.topic, topic_id=first.topic_id, partitions=partitions)


def _partition(node: "BrokerNode", row: StatusRow) -> TierStatusPartition:
    log = node.partitions[row.topic, row.partition].log
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
        state=_state(row),
        problem=_problem(row),
    )


def _state(row: StatusRow) -> str:
    if not row.is_ready:
        return "loading"
    if row.problem is not None or row.holes:
        return "failing"
    return "copying" if row.copy_lag_segments else "idle"


def _problem(row: StatusRow) -> str | None:
    if row.holes:
        return "no segment serves " + ", ".join(f"{a} to {b - 1}" for a, b in row.holes)
    return row.problem
