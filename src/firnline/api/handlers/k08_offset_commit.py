"""OffsetCommit: a group's positions in, one code per partition out. PURE. Source: KIP-211, KIP-848; C15."""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effect, Effects
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


def handle(
    node: "BrokerNode", context: RequestContext, request: OffsetCommitRequest, now_ms: int
) -> Effects:
    by_id = context.api_version >= _TOPIC_ID_VERSION
    answers: list[OffsetCommitResponseTopic] = []
    places: list[OffsetCommitResponsePartition] = []  # where the coordinator's codes go, in order
    commits: list[NewCommit] = []
    for wanted in request.topics:
        topic = _find(node.image, wanted, by_id)
        unknown = Code.UNKNOWN_TOPIC_ID if by_id and topic is None else _UNKNOWN
        rows = []
        for part in wanted.partitions:
            row = OffsetCommitResponsePartition(
                partition_index=part.partition_index, error_code=unknown
            )
            rows.append(row)
            if topic is not None and part.partition_index in topic.partitions:
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
        answers.append(
            OffsetCommitResponseTopic(name=wanted.name, topic_id=wanted.topic_id, partitions=rows)
        )

    def answer(codes: list[Code]) -> Effect:
        for place, code in zip(places, codes, strict=True):
            place.error_code = code
        return context.reply(OffsetCommitResponse(topics=answers))

    if not commits:
        return [answer([])]
    asked = CommitRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation_id=request.generation_id_or_member_epoch,
        commits=commits,
        retention_ms=request.retention_time_ms,
        knows_group_id_not_found=context.api_version >= _GROUP_ID_NOT_FOUND_VERSION,
    )
    return node.groups.commit(asked, answer, now_ms)


_UNKNOWN = Code.UNKNOWN_TOPIC_OR_PARTITION


def _find(
    image: "ClusterImage", wanted: OffsetCommitRequestTopic, by_id: bool
) -> "TopicImage | None":
    if by_id:
        return image.topics_by_id.get(bytes(wanted.topic_id))
    return image.topics_by_name.get(wanted.name)
