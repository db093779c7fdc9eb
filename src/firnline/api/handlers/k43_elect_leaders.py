"""ElectLeaders: preferred leaders, or leaders at any price. PURE. Source: KIP-460."""

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.controller.elections import Elected
from firnline.protocol.messages.k43_elect_leaders import (
    ElectedPartition,
    ElectedTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode


def handle(
    node: "AnyNode", context: RequestContext, request: ElectLeadersRequest, now_ms: int
) -> Effects:
    asked = request.topic_partitions
    wanted = (
        None
        if asked is None
        else [(topic.topic, number) for topic in asked for number in topic.partitions]
    )

    def refusal(problem: KafkaError) -> ElectLeadersResponse:
        # Version 0 says it with each partition only, later ones with the whole as well.
        rows = [Elected(topic, number, problem) for topic, number in wanted or ()]
        return ElectLeadersResponse(
            error_code=problem.code, replica_election_results=_by_topic(rows)
        )

    if node.forwards:
        again = partial(handle, node, context, request)
        return forward(node, context, request, refusal, now_ms, here=again)

    def then(outcome: list[Elected] | KafkaError, at_ms: int) -> Effects:
        if isinstance(outcome, KafkaError):
            return [context.reply(refusal(outcome))]
        return [context.reply(ElectLeadersResponse(replica_election_results=_by_topic(outcome)))]

    result = node.controller.elect_leaders(request.election_type, wanted)
    return node.quorum.write(result, then, now_ms)


def _by_topic(rows: list[Elected]) -> list[ElectedTopic]:
    return [
        ElectedTopic(topic=topic, partition_result=[_answer(each) for each in group])
        for topic, group in groupby(rows, lambda each: each.topic)
    ]


def _answer(each: Elected) -> ElectedPartition:
    if each.problem is None:
        return ElectedPartition(partition_id=each.partition, error_message=None)
    return ElectedPartition(
        partition_id=each.partition,
        error_code=each.problem.code,
        error_message=each.problem.why,
    )
