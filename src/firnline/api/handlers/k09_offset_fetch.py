"""OffsetFetch: a group's committed positions out. PURE. Source: KIP-447, KIP-709, KIP-848; C15."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.base.ids import NO_EPOCH, NO_OFFSET, ZERO_UUID, Uuid
from firnline.coordinator.groups import FetchedOffset, FetchedOffsets
from firnline.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

_GROUP_ERROR_VERSION = 2
_GROUPS_VERSION = 8
_TOPIC_ID_VERSION = 10


def handle(
    node: "BrokerNode", context: RequestContext, request: OffsetFetchRequest, now_ms: int
) -> Effects:
    if context.api_version < _GROUPS_VERSION:
        return [context.reply(_one_group(node, context.api_version, request))]
    by_id = context.api_version >= _TOPIC_ID_VERSION
    groups = [_group(node, asked, request.require_stable, by_id) for asked in request.groups]
    return [context.reply(OffsetFetchResponse(groups=groups))]


def _one_group(
    node: "BrokerNode", version: int, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    wanted = request.topics
    found = node.groups.fetch(
        request.group_id,
        None if wanted is None else [(t.name, t.partition_indexes) for t in wanted],
        require_stable=request.require_stable,
    )
    if found.code is not Code.NONE and version >= _GROUP_ERROR_VERSION:
        return OffsetFetchResponse(error_code=found.code)
    if found.code is not Code.NONE:
        found = _refused(found.code, wanted or ())
    topics = [
        OffsetFetchResponseTopic(
            name=name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=row.partition,
                    committed_offset=row.commit.offset if row.commit else NO_OFFSET,
                    committed_leader_epoch=row.commit.leader_epoch if row.commit else NO_EPOCH,
                    metadata=row.commit.metadata if row.commit else "",
                    error_code=row.code,
                )
                for row in rows
            ],
        )
        for name, rows in found.topics
    ]
    return OffsetFetchResponse(topics=topics)


def _refused(code: Code, wanted: Sequence[OffsetFetchRequestTopic]) -> FetchedOffsets:
    """Version 1 can state an error per partition only."""
    return FetchedOffsets(
        Code.NONE,
        tuple(
            (t.name, tuple(FetchedOffset(p, None, code) for p in t.partition_indexes))
            for t in wanted
        ),
    )


def _group(
    node: "BrokerNode", asked: OffsetFetchRequestGroup, require_stable: bool, by_id: bool
) -> OffsetFetchResponseGroup:
    names: list[tuple[str, Uuid, Sequence[int]]] = []
    unknown: list[OffsetFetchResponseGroupTopic] = []
    for t in asked.topics or ():
        topic = node.image.topics_by_id.get(bytes(t.topic_id)) if by_id else None
        if by_id and topic is None:
            rows = [FetchedOffset(p, None, Code.UNKNOWN_TOPIC_ID) for p in t.partition_indexes]
            unknown.append(_topic("", bytes(t.topic_id), rows))
        else:
            name = t.name if topic is None else topic.name
            names.append((name, bytes(t.topic_id), t.partition_indexes))
    found = node.groups.fetch(
        asked.group_id,
        None if asked.topics is None else [(name, parts) for name, _, parts in names],
        require_stable=require_stable,
    )
    if found.code is not Code.NONE:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=found.code)
    topics = []
    for name, rows_found in found.topics:
        known = node.image.topics_by_name.get(name)
        if by_id and known is None:
            continue  # all were asked for, and this topic is no more
        topic_id = known.topic_id if by_id and known is not None else ZERO_UUID
        topics.append(_topic(name, topic_id, rows_found))
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics + unknown)


def _topic(
    name: str, topic_id: Uuid, rows: Sequence[FetchedOffset]
) -> OffsetFetchResponseGroupTopic:
    partitions = []
    for row in rows:
        commit = row.commit
        # A commit for an earlier topic of the same name says nothing of this one.
        if commit is not None and ZERO_UUID not in (topic_id, commit.topic_id):
            commit = commit if commit.topic_id == topic_id else None
        partitions.append(
            OffsetFetchResponseGroupPartition(
                partition_index=row.partition,
                committed_offset=commit.offset if commit else NO_OFFSET,
                committed_leader_epoch=commit.leader_epoch if commit else NO_EPOCH,
                metadata=commit.metadata if commit else "",
                error_code=row.code,
            )
        )
    return OffsetFetchResponseGroupTopic(name=name, topic_id=topic_id, partitions=partitions)
