"""AssignReplicasToDirs: a broker reports the directories of its replicas. PURE. Source: KIP-858."""

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.portions import in_portions, portions_of
from firnline.api.slices import Slices, a_step_a_slice, in_slices, naming_any, taken_out
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import Uuid
from firnline.base.replicas import DirectoryAssignment
from firnline.protocol.messages.k73_assign_replicas_to_dirs import (
    AssignedDirectoryResult,
    AssignedPartitionResult,
    AssignedTopic,
    AssignedTopicResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

if TYPE_CHECKING:
    from firnline.broker.controller_node import ControllerNode

# Takes one or two milliseconds.
_PARTITIONS_PER_SLICE = 60
_RESULTS_PER_SLICE = 1_000


def handle(
    node: "ControllerNode",
    context: RequestContext,
    request: AssignReplicasToDirsRequest,
    now_ms: int,
) -> Effects:
    slices = _assign(node, context, request, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _assign(
    node: "ControllerNode",
    context: RequestContext,
    request: AssignReplicasToDirsRequest,
    now_ms: int,
) -> Slices:
    named: list[tuple[Uuid, AssignedTopic]] = []
    for count, directory in enumerate(request.directories):
        if count and count % _RESULTS_PER_SLICE == 0:
            now_ms = yield []
        steps = naming_any(directory.topics, attrgetter("partitions"))
        topics, now_ms = yield from a_step_a_slice(steps, now_ms, context)
        named += [(directory.id, topic) for topic in topics]
    wanted = (
        DirectoryAssignment(topic.topic_id, partition.partition_index, directory_id)
        for directory_id, topic in named
        for partition in topic.partitions
    )
    codes: list[Code] = []
    problems: list[KafkaError] = []

    def on_outcome(
        portion: Sequence[DirectoryAssignment], outcome: list[KafkaError | None] | KafkaError
    ) -> None:
        if isinstance(outcome, KafkaError):
            problems.append(outcome)
        else:  # decisions are committed in order
            codes.extend([Code.NONE if each is None else each.code for each in outcome])

    def finish(at_ms: int) -> Effects:
        if problems:
            return [context.reply(AssignReplicasToDirsResponse(error_code=problems[0].code))]
        return in_slices(node, context, _answer(context, request, codes), at_ms)

    return (
        yield from in_portions(
            context,
            portions_of(wanted, _PARTITIONS_PER_SLICE),
            decide=lambda portion: node.controller.assign_directories(
                broker_id=request.broker_id, broker_epoch=request.broker_epoch, wanted=portion
            ),
            write=node.quorum.write,
            on_outcome=on_outcome,
            finish=finish,
            now_ms=now_ms,
        )
    )


def _answer(
    context: RequestContext, request: AssignReplicasToDirsRequest, codes: Sequence[Code]
) -> Slices:
    """Answer with a code for each partition, in the order of the request."""
    in_order = iter(codes)
    directories: list[AssignedDirectoryResult] = []
    count = 0
    for directory in request.directories:
        if count >= _RESULTS_PER_SLICE:
            count = 0
            yield []
        count += 1
        topics: list[AssignedTopicResult] = []
        directories.append(AssignedDirectoryResult(id=directory.id, topics=topics))
        for topic in taken_out(directory.topics):
            rows = [
                AssignedPartitionResult(
                    partition_index=partition.partition_index, error_code=next(in_order)
                )
                for partition in topic.partitions
            ]
            topics.append(AssignedTopicResult(topic_id=topic.topic_id, partitions=rows))
            count += 1 + len(rows)
            if count >= _RESULTS_PER_SLICE:
                count = 0
                yield []
    return [context.reply(AssignReplicasToDirsResponse(directories=directories))]
