"""OffsetCommit: commits the offsets of a group. PURE. Source: KIP-211, KIP-848; C15."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.slices import Outstanding, Slices, in_slices, taken_out
from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.coordinator.groups import CommitRequest, NewCommit
from firnline.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode
    from firnline.metadata.image import ClusterImage, TopicImage

_GROUP_ID_NOT_FOUND_VERSION = 9
_TOPIC_ID_VERSION = 10


# A commit takes about 20 us, half of it for the record.
_COMMITS_PER_SLICE = 100
# A partition that is refused takes a microsecond.
_ROWS_PER_SLICE = 500


def handle(
    node: "BrokerNode", context: RequestContext, request: OffsetCommitRequest, now_ms: int
) -> Effects:
    # A client that commits and disconnects does not wait for the response.
    slices = _commit(node, context, request, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _commit(
    node: "BrokerNode", context: RequestContext, request: OffsetCommitRequest, now_ms: int
) -> Slices:
    """Commit the partitions in portions, each as one batch.

    A member that is fenced meanwhile gets the error for the portions that are left, and only for them.
    """
    by_id = context.api_version >= _TOPIC_ID_VERSION
    answers: list[OffsetCommitResponseTopic] = []
    places: list[
        OffsetCommitResponsePartition
    ] = []  # the rows for the coordinator's codes, in order
    commits: list[NewCommit] = []
    outstanding = Outstanding(context.makes_replies(partial(_finish, context, answers)))

    def write(at_ms: int) -> Effects:
        if not commits:
            return []
        outstanding.left += 1
        asked = _asked(context, request, commits)
        return node.groups.commit(asked, partial(_settle, places, outstanding), at_ms)

    count = 0
    for wanted in taken_out(request.topics):
        if count >= _ROWS_PER_SLICE:
            now_ms = yield write(now_ms)
            places, commits, count = [], [], 0
        count += 1
        topic = _find(node.image, wanted, by_id)
        unknown = Code.UNKNOWN_TOPIC_ID if by_id and topic is None else _UNKNOWN
        rows: list[OffsetCommitResponsePartition] = []
        answers.append(
            OffsetCommitResponseTopic(name=wanted.name, topic_id=wanted.topic_id, partitions=rows)
        )
        for part in taken_out(wanted.partitions):
            count += 1
            row = OffsetCommitResponsePartition(
                partition_index=part.partition_index, error_code=unknown
            )
            rows.append(row)
            if len(commits) >= _COMMITS_PER_SLICE or count > _ROWS_PER_SLICE:
                now_ms = yield write(now_ms)
                places, commits, count = [], [], 0
                topic = _find(node.image, wanted, by_id)  # it may be deleted by now
            if topic is None or part.partition_index not in topic.partitions:
                continue
            places.append(row)
            commits.append(
                NewCommit(
                    topic.name,
                    part.partition_index,
                    part.committed_offset,
                    part.committed_leader_epoch,
                    part.committed_metadata or "",
                    topic.topic_id,
                )
            )
    effects = write(now_ms)
    return effects + outstanding.one_less()


def _asked(
    context: RequestContext, request: OffsetCommitRequest, commits: list[NewCommit]
) -> CommitRequest:
    return CommitRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation_id=request.generation_id_or_member_epoch,
        commits=commits,
        retention_ms=request.retention_time_ms,
        client_host=f"/{context.peer_host}",
        knows_group_id_not_found=context.api_version >= _GROUP_ID_NOT_FOUND_VERSION,
    )


def _finish(context: RequestContext, answers: list[OffsetCommitResponseTopic]) -> Effects:
    return [context.reply(OffsetCommitResponse(topics=answers))]


def _settle(
    places: Sequence[OffsetCommitResponsePartition], outstanding: Outstanding, codes: list[Code]
) -> Effects:
    for place, code in zip(places, codes, strict=True):
        place.error_code = code
    return outstanding.one_less()


_UNKNOWN = Code.UNKNOWN_TOPIC_OR_PARTITION


def _find(
    image: "ClusterImage", wanted: OffsetCommitRequestTopic, by_id: bool
) -> "TopicImage | None":
    if by_id:
        return image.topics_by_id.get(bytes(wanted.topic_id))
    return image.topics_by_name.get(wanted.name)
