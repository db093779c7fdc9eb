"""Handles AlterConfigs and IncrementalAlterConfigs, here or at the active controller. PURE.

Both change the same resources, with messages of different classes. Source: KIP-133, KIP-339, KIP-590.
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.api.loggers import alter_loggers
from firnline.api.portions import grouped, in_portions, together
from firnline.api.slices import Slices, a_step_a_slice, cut, emptied, in_slices
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.metadata.image import ConfigResource, ResourceType
from firnline.metadata.result import ControllerResult

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode

_BROKERS = 1
# Takes two milliseconds.
_RESOURCES_PER_SLICE = 40
_ROWS_PER_SLICE = 500
_LOOKED_AT_PER_SLICE = 5_000
_NOT_SAID = KafkaError(Code.UNKNOWN_SERVER_ERROR, "the active controller sent no result")
Outcomes = Sequence[KafkaError | None]


class Shape(NamedTuple):
    """The classes of one of the two messages, and the controller's function for it.

    decide(node, resources, validate_only)  decides the changes; its response has an outcome for each
                                            resource, in the same order
    """

    request: type[Any]
    response: type[Any]
    row: type[Any]
    decide: Callable[["AnyNode", Sequence[Any], bool], ControllerResult[Any]]


def alter(
    node: "AnyNode", context: RequestContext, request: Any, now_ms: int, shape: Shape
) -> Effects:
    """Change the resources; answer once the changes are committed and applied on this broker."""
    if node.forwards:
        return in_slices(node, context, _forward(node, context, request, now_ms, shape), now_ms)
    slices = _alter(node, context, request, now_ms, shape)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _forward(
    node: "AnyNode", context: RequestContext, request: Any, now_ms: int, shape: Shape
) -> Slices:
    """Forward the resources that this broker does not decide on, if there are any."""
    resources = request.resources
    decided: dict[int, KafkaError | None] = {}
    places = 0
    for some in cut(resources, _ROWS_PER_SLICE):
        if places:
            now_ms = yield []
        for place, resource in enumerate(some, places):
            is_decided, outcome = _decided_here(node, resource, request)
            if is_decided:
                decided[place] = outcome
        places += len(some)
    if len(decided) == places:
        return (yield from _alter(node, context, request, now_ms, shape))

    def response(problem: KafkaError) -> Generator[object, None, Any]:
        found = yield from in_steps(
            lambda place, resource: _row(shape, resource, decided.get(place, problem))
        )
        return shape.response(responses=found)

    def merged(answer: Any) -> Generator[object, None, Any]:
        """Merge the results of the active controller with those of this broker."""
        answers = iter(answer.responses)
        found = yield from in_steps(
            lambda place, resource: (
                _row(shape, resource, decided[place])
                if place in decided
                else next(answers, None) or _row(shape, resource, _NOT_SAID)
            )
        )
        return shape.response(responses=found)

    def in_steps(row_of: Callable[[int, Any], Any]) -> Generator[list[Any], None, list[Any]]:
        rows: list[Any] = []
        for some in cut(resources, _ROWS_PER_SLICE):
            if rows:
                yield rows
            rows += [row_of(place, resource) for place, resource in enumerate(some, len(rows))]
        return rows

    here = partial(_here, node, context, request, shape)
    if not decided:
        return forward(node, context, request, response, now_ms, here=here)
    taken: list[Any] = []
    for first in range(0, places, _LOOKED_AT_PER_SLICE):
        if first:
            now_ms = yield context.keeps(taken, decided)
        some = resources[first : first + _LOOKED_AT_PER_SLICE]
        taken += [each for place, each in enumerate(some, first) if place not in decided]
    rest = shape.request(resources=taken, validate_only=request.validate_only)
    return forward(node, context, rest, response, now_ms, here=here, finish=merged)


def _alter(
    node: "AnyNode", context: RequestContext, request: Any, now_ms: int, shape: Shape
) -> Slices:
    """Decide in portions. A resource that the request names twice stays in one portion, which refuses it."""
    resources = request.resources
    answers: list[KafkaError | None] = []
    taken: list[int] = []
    for some in cut(resources, _ROWS_PER_SLICE):
        if answers:
            now_ms = yield []
        for place, resource in enumerate(some, len(answers)):
            is_decided, outcome = _decided_here(node, resource, request)
            answers.append(outcome)
            if not is_decided:
                taken.append(place)

    def on_outcome(portion: Sequence[int], outcome: Outcomes | KafkaError) -> None:
        found = [outcome] * len(portion) if isinstance(outcome, KafkaError) else outcome
        for place, answer in zip(portion, found, strict=True):
            answers[place] = answer

    def finish(at_ms: int) -> Effects:
        return in_slices(node, context, _answer(context, shape, resources, answers), at_ms)

    steps = grouped(taken, lambda place: resource_of(resources[place]))
    by_resource, now_ms = yield from a_step_a_slice(steps, now_ms, context)
    return (
        yield from in_portions(
            context,
            together(by_resource, _RESOURCES_PER_SLICE),
            decide=lambda portion: shape.decide(
                node, [resources[place] for place in portion], request.validate_only
            ),
            write=node.quorum.write,
            on_outcome=on_outcome,
            finish=finish,
            now_ms=now_ms,
        )
    )


def _answer(
    context: RequestContext, shape: Shape, resources: list[Any], answers: list[KafkaError | None]
) -> Slices:
    responses: list[Any] = []
    for some in emptied(resources, _ROWS_PER_SLICE):
        if responses:
            yield []
        for resource in some:
            place = len(responses)
            responses.append(_row(shape, resource, answers[place]))
            answers[place] = None
    return [context.reply(shape.response(responses=responses))]


def _here(
    node: "AnyNode", context: RequestContext, request: Any, shape: Shape, now_ms: int
) -> Effects:
    return alter(node, context, request, now_ms, shape)


def resource_of(row: Any) -> ConfigResource:
    """Return the resource of a row of either message."""
    return ConfigResource(row.resource_type, row.resource_name)


def _decided_here(node: "AnyNode", resource: Any, request: Any) -> tuple[bool, KafkaError | None]:
    """Return whether this node decides alone, and what: it refuses, or it has set levels of its loggers."""
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        return True, alter_loggers(node, resource, validate_only=request.validate_only)
    refusal = _wrong_broker(node, resource)
    return refusal is not None, refusal


def _wrong_broker(node: "AnyNode", resource: Any) -> KafkaError | None:
    """Refuse the settings of another broker. A controller changes those of every broker."""
    name = resource.resource_name
    if node.endpoint_type != _BROKERS or resource.resource_type != ResourceType.BROKER:
        return None
    if not name.isdecimal():
        return None
    if int(name) == node.node_id:
        return None
    return KafkaError(Code.INVALID_REQUEST, f"this is broker {node.node_id}, not {name}")


def _row(shape: Shape, resource: Any, answer: KafkaError | None) -> Any:
    return shape.row(
        error_code=Code.NONE if answer is None else answer.code,
        error_message=None if answer is None else answer.why,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
