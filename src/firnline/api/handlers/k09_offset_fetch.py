"""OffsetFetch: answers with the committed offsets of groups. PURE. Source: KIP-447, KIP-709, KIP-848; C15."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from firnline.api.context import RequestContext
from firnline.api.slices import Slices, in_slices, let_go, taken_out
from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.base.ids import NO_EPOCH, NO_OFFSET, ZERO_UUID, Uuid
from firnline.coordinator.groups import FetchedOffset
from firnline.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
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


# Takes two milliseconds.
_OFFSETS_PER_SLICE = 400
# The memory of a row (measured: 250 bytes), without the metadata of its commit.
_ROW_BYTES = 300
# The name, and the id of the request.
Topic = tuple[str, Uuid]
Wanted = Iterable[tuple[Topic, Sequence[int]]]
TopicName = TypeVar("TopicName", Topic, Uuid)


def handle(
    node: "BrokerNode", context: RequestContext, request: OffsetFetchRequest, now_ms: int
) -> Effects:
    answer = _one_group if context.api_version < _GROUPS_VERSION else _groups
    slices = answer(node, context, request)
    return in_slices(node, context, slices, now_ms, held_bytes=0)


def _groups(node: "BrokerNode", context: RequestContext, request: OffsetFetchRequest) -> Slices:
    by_id = context.api_version >= _TOPIC_ID_VERSION
    groups = []
    count = 0
    for asked in request.groups:
        if count >= _OFFSETS_PER_SLICE:
            count = 0
            yield []
        group = yield from _group(node, context, asked, request.require_stable, by_id)
        groups.append(group)
        count += len(group.topics)
        count += 1 + sum([len(topic.partitions) for topic in group.topics[:_OFFSETS_PER_SLICE]])
    return [context.reply(OffsetFetchResponse(groups=groups))]


def _one_group(node: "BrokerNode", context: RequestContext, request: OffsetFetchRequest) -> Slices:
    asked = request.topics
    topics: list[OffsetFetchResponseTopic] = []
    latest: list[OffsetFetchResponsePartition] = []

    def add_rows(topic: Topic, rows: Sequence[FetchedOffset]) -> None:
        nonlocal latest
        name, _ = topic
        partitions = [
            OffsetFetchResponsePartition(
                partition_index=row.partition,
                committed_offset=row.commit.offset if row.commit else NO_OFFSET,
                committed_leader_epoch=row.commit.leader_epoch if row.commit else NO_EPOCH,
                metadata=row.commit.metadata if row.commit else "",
                error_code=row.code,
            )
            for row in rows
        ]
        if topics and topics[-1].name == name:
            latest += partitions  # in place: a topic may be named very often
        else:
            latest = partitions
            topics.append(OffsetFetchResponseTopic(name=name, partitions=latest))

    wanted = None if asked is None else (((t.name, ZERO_UUID), t.partition_indexes) for t in asked)
    group_id, is_stable = request.group_id, request.require_stable
    code = yield from _fetch(node, context, group_id, wanted, is_stable, add_rows, topics)
    if code is not Code.NONE and context.api_version >= _GROUP_ERROR_VERSION:
        return [context.reply(OffsetFetchResponse(error_code=code))]
    if code is not Code.NONE:
        # Version 1 can state an error per partition only.
        topics.clear()
        every = (((t.name, ZERO_UUID), t.partition_indexes) for t in asked or ())
        for place, portion in enumerate(_portions(every)):
            if place:
                yield []
            for topic, indexes in portion:
                add_rows(topic, [FetchedOffset(p, None, code) for p in indexes])
    yield from let_go(asked or ())
    return [context.reply(OffsetFetchResponse(topics=topics))]


def _fetch(
    node: "BrokerNode",
    context: RequestContext,
    group_id: str,
    wanted: Wanted | None,
    require_stable: bool,
    add_rows: Callable[[Topic, Sequence[FetchedOffset]], None],
    *made: list[Any],
) -> Generator[Effects, int, Code]:
    """Call `add_rows` with the committed offsets of a group, in portions; return the error code of the group.

    Each portion is read in its own slice. If the code is an error, another node coordinates the group by now,
    and the rows so far are void. `made` is kept until the request is over.
    """
    if wanted is None:
        committed = node.groups.committed(group_id)
        wanted = (((name, ZERO_UUID), partitions) for name, partitions in committed)
    for place, portion in enumerate(_portions(wanted)):
        if place:
            yield context.keeps(*made)
        by_name = [(name, partitions) for (name, _), partitions in portion]
        found = node.groups.fetch(group_id, by_name, require_stable=require_stable)
        if found.code is not Code.NONE:
            return found.code
        for (topic, _), (_, rows) in zip(portion, found.topics, strict=True):
            add_rows(topic, rows)
            context.grow(sum(map(_held_bytes, rows)))
    return Code.NONE


def _held_bytes(row: FetchedOffset) -> int:
    if row.commit is None or not row.commit.metadata:
        return _ROW_BYTES
    text = row.commit.metadata
    return _ROW_BYTES + len(text) * (1 if text.isascii() else 4)


def _portions(
    wanted: Iterable[tuple[TopicName, Sequence[int]]],
) -> Iterator[list[tuple[TopicName, Sequence[int]]]]:
    """Split the requested partitions; at least one portion. A topic costs as much as a partition."""
    portion: list[tuple[TopicName, Sequence[int]]] = []
    room = _OFFSETS_PER_SLICE
    for name, partitions in wanted:
        if room <= 0:
            yield portion
            portion, room = [], _OFFSETS_PER_SLICE
        first = 0
        while len(partitions) - first > room:
            portion.append((name, partitions[first : first + room]))
            yield portion
            first += room
            portion, room = [], _OFFSETS_PER_SLICE
        portion.append((name, partitions[first:] if first else partitions))
        room -= 1 + len(partitions) - first
    yield portion


def _group(
    node: "BrokerNode",
    context: RequestContext,
    asked: OffsetFetchRequestGroup,
    require_stable: bool,
    by_id: bool,
) -> Generator[Effects, int, OffsetFetchResponseGroup]:
    all_is_wanted = asked.topics is None
    names: list[tuple[Topic, Sequence[int]]] = []
    unknown: list[tuple[Uuid, Sequence[int]]] = []
    for place, t in enumerate(taken_out(asked.topics or ()), 1):
        topic_id = bytes(t.topic_id) if by_id else ZERO_UUID
        topic = node.image.topics_by_id.get(topic_id) if by_id else None
        if by_id and topic is None:
            unknown.append((topic_id, t.partition_indexes))
        else:
            name = t.name if topic is None else topic.name
            names.append(((name, topic_id), t.partition_indexes))
        if place % _OFFSETS_PER_SLICE == 0:
            yield context.keeps(names, unknown)
    topics: list[OffsetFetchResponseGroupTopic] = []
    latest: list[OffsetFetchResponseGroupPartition] = []

    def add_rows(topic: Topic, rows: Sequence[FetchedOffset]) -> None:
        name, asked_id = topic
        known = node.image.topics_by_name.get(name) if by_id else None
        known_id = ZERO_UUID if known is None else known.topic_id
        if not by_id or (known is not None and asked_id in (known_id, ZERO_UUID)):
            add(name, known_id, rows)
        elif not all_is_wanted:  # it existed when the request was received
            unknown.append((asked_id, [row.partition for row in rows]))

    def add(name: str, topic_id: Uuid, rows: Sequence[FetchedOffset]) -> None:
        nonlocal latest
        found = _partitions(topic_id, rows)
        if topics and topics[-1].name == name and topics[-1].topic_id == topic_id:
            latest += found  # as above
        else:
            latest = found
            topics.append(
                OffsetFetchResponseGroupTopic(name=name, topic_id=topic_id, partitions=latest)
            )

    wanted = None if all_is_wanted else names
    code = yield from _fetch(
        node, context, asked.group_id, wanted, require_stable, add_rows, topics, names
    )
    if code is not Code.NONE:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code)
    for place, portion in enumerate(_portions(unknown)):
        if place:
            yield context.keeps(topics, unknown)
        for topic_id, indexes in portion:
            add("", topic_id, [FetchedOffset(p, None, Code.UNKNOWN_TOPIC_ID) for p in indexes])
    yield from let_go(unknown)
    yield from let_go(names)
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


def _partitions(
    topic_id: Uuid, rows: Sequence[FetchedOffset]
) -> list[OffsetFetchResponseGroupPartition]:
    partitions = []
    for row in rows:
        commit = row.commit
        # A commit for an earlier topic of the same name does not apply to this one.
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
    return partitions
