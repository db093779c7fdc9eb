"""The way of AlterConfigs and IncrementalAlterConfigs: here, or at the active controller. PURE.

Both ask the same of the same resources, in messages of two shapes. Source: KIP-133, KIP-339, KIP-590.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from firnline.api.context import RequestContext
from firnline.api.forwarding import forward
from firnline.api.slices import Outstanding, Slices, in_slices
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.metadata.image import ConfigResource, ResourceType
from firnline.metadata.result import ControllerResult

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode

_BROKERS = 1
# Two milliseconds.
_RESOURCES_PER_SLICE = 40
_NOT_SAID = KafkaError(Code.UNKNOWN_SERVER_ERROR, "the active controller did not say")
Answers = Sequence[KafkaError | None]


class Shape(NamedTuple):
    """The classes of one of the two messages, and what the controller does with it.

    decide(node, resources, validate_only)  answers to the resources in the order given
    """

    request: type[Any]
    response: type[Any]
    row: type[Any]
    decide: Callable[["AnyNode", Sequence[Any], bool], ControllerResult[Any]]


def alter(
    node: "AnyNode", context: RequestContext, request: Any, now_ms: int, shape: Shape
) -> Effects:
    """Answer each resource once its changes are committed and this broker has seen them."""
    rows = [(resource, _wrong_broker(node, resource)) for resource in request.resources]
    taken = [resource for resource, refusal in rows if refusal is None]

    def response(outcome: Answers | KafkaError) -> Any:
        answers = iter([outcome] * len(taken) if isinstance(outcome, KafkaError) else outcome)
        responses = [
            _row(shape, resource, next(answers) if refusal is None else refusal)
            for resource, refusal in rows
        ]
        return shape.response(responses=responses)

    def merged(answer: Any) -> Any:
        """Put what the active controller said of the rest between what was refused here."""
        answers = iter(answer.responses)
        responses = [
            next(answers, None) or _row(shape, resource, _NOT_SAID)
            if refusal is None
            else _row(shape, resource, refusal)
            for resource, refusal in rows
        ]
        return shape.response(responses=responses)

    if node.forwards and taken:
        rest = shape.request(resources=taken, validate_only=request.validate_only)
        here = partial(_here, node, context, request, shape)
        return forward(node, context, rest, response, now_ms, here=here, finish=merged)

    def finish(answers: Answers) -> Effects:
        return [context.reply(response(answers))]

    slices = _decide(node, taken, request.validate_only, shape, finish, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _decide(
    node: "AnyNode",
    taken: Sequence[Any],
    validate_only: bool,
    shape: Shape,
    finish: Callable[[Answers], Effects],
    now_ms: int,
) -> Slices:
    """Decide on so many resources at a time, each on its own, and write that; `finish` with all answers."""
    answers: list[KafkaError | None] = [None] * len(taken)
    outstanding = Outstanding(lambda: finish(answers))

    def settle(portion: Sequence[int], outcome: Answers | KafkaError, at_ms: int) -> Effects:
        found = [outcome] * len(portion) if isinstance(outcome, KafkaError) else outcome
        for place, answer in zip(portion, found, strict=True):
            answers[place] = answer
        return outstanding.one_less()

    effects: Effects = []
    for count, portion in enumerate(_portions(taken)):
        if count:
            now_ms = yield effects
        result = shape.decide(node, [taken[place] for place in portion], validate_only)
        outstanding.left += 1
        effects = node.quorum.write(result, partial(settle, portion), now_ms)
    return effects + outstanding.one_less()


def _portions(taken: Sequence[Any]) -> Iterator[list[int]]:
    """Cut the places of `taken`; those of one resource stay together, as it must not be named twice."""
    by_resource: dict[ConfigResource, list[int]] = {}
    for place, row in enumerate(taken):
        by_resource.setdefault(resource_of(row), []).append(place)
    portion: list[int] = []
    for places in by_resource.values():
        portion += places
        if len(portion) >= _RESOURCES_PER_SLICE:
            yield portion
            portion = []
    if portion:
        yield portion


def _here(
    node: "AnyNode", context: RequestContext, request: Any, shape: Shape, now_ms: int
) -> Effects:
    return alter(node, context, request, now_ms, shape)


def resource_of(row: Any) -> ConfigResource:
    """What a row of either message is about."""
    return ConfigResource(row.resource_type, row.resource_name)


def _wrong_broker(node: "AnyNode", resource: Any) -> KafkaError | None:
    """A broker changes its own settings and those of all brokers, not another's; a controller anyone's."""
    name = resource.resource_name
    if node.endpoint_type != _BROKERS or resource.resource_type != ResourceType.BROKER:
        return None
    if not name.isdecimal():
        return None
    if int(name) == node.node_id:
        return None
    return KafkaError(Code.INVALID_REQUEST, f"this is broker {node.node_id}, and not {name}")


def _row(shape: Shape, resource: Any, answer: KafkaError | None) -> Any:
    return shape.row(
        error_code=Code.NONE if answer is None else answer.code,
        error_message=None if answer is None else answer.why,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
