"""Create and delete topics, add partitions. PURE: decides on the newest image, returns records and answers.

Error codes and their order are those of Apache Kafka 4.3.1, observed with its own clients. One differs: far
too many new partitions crash Kafka's controller (UNKNOWN_SERVER_ERROR); here they are a POLICY_VIOLATION.
Source: KIP-4, KIP-195, KIP-516, KIP-525; reliability d 46-50.
"""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from firnline.base.background import run_to_completion
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import Uuid
from firnline.base.limits import PARTITIONS_PER_REQUEST_MAX, RECORDS_PER_REQUEST_MAX
from firnline.base.ports import Rng
from firnline.config.broker import BrokerConfig
from firnline.config.layers import check_topic
from firnline.controller import system_topics
from firnline.controller.partition_change import default_directory
from firnline.controller.placement import Assignment, manual_problem, place
from firnline.formats.topic_names import creation_problem
from firnline.metadata import records as r
from firnline.metadata.image import (
    ClusterImage,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from firnline.metadata.partition_counts import has_metric_name, metric_name
from firnline.metadata.result import ControllerResult
from firnline.metadata.snapshot_records import partition_record
from firnline.protocol.schema import Message

BY_DEFAULT = -1
# A millisecond.
_RECORDS_AT_ONCE = 250


class NewTopic(NamedTuple):
    """A topic to create. -1 means the broker's default; `assignments` excludes both counts."""

    name: str
    num_partitions: int = BY_DEFAULT
    replication_factor: int = BY_DEFAULT
    assignments: Mapping[int, Sequence[int]] = {}
    configs: Mapping[str, str | None] = {}


class CreatedTopic(NamedTuple):
    """A created topic; with `validate_only`, the one that would be created."""

    name: str
    topic_id: Uuid
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str]


class NewPartitions(NamedTuple):
    """Grow a topic to `total` partitions. `assignments` are those of the new ones; None: place them."""

    name: str
    total: int
    assignments: Sequence[Sequence[int]] | None = None


TopicRef = str | Uuid


def create_topics(
    image: ClusterImage,
    metric_names: Mapping[str, str],
    config: BrokerConfig,
    rng: Rng,
    wanted: Sequence[NewTopic],
    *,
    validate_only: bool,
) -> ControllerResult[list[CreatedTopic | KafkaError]]:
    """Decide on each topic independently. The answers are in the order of `wanted`.

    metric_names  metric name -> topic, for those topics of the image that could collide
    """
    return run_to_completion(
        create_topics_steps(image, metric_names, config, rng, wanted, validate_only=validate_only)
    )


def create_topics_steps(
    image: ClusterImage,
    metric_names: Mapping[str, str],
    config: BrokerConfig,
    rng: Rng,
    wanted: Sequence[NewTopic],
    *,
    validate_only: bool,
) -> Generator[None, None, ControllerResult[list[CreatedTopic | KafkaError]]]:
    """The steps of `create_topics`; yields after each slice of a large topic."""
    total = sum(partitions_asked(config, wanted))
    if total > PARTITIONS_PER_REQUEST_MAX:
        return _refuse_all(len(wanted), "more than 10,000 partitions in one request")
    repeated = _repeated([topic.name for topic in wanted])
    taken: dict[str, str] = {}
    records: list[Message] = []
    answers: list[CreatedTopic | KafkaError] = []
    for topic in wanted:
        answer: CreatedTopic | KafkaError | None
        if topic.name in repeated:
            answer = KafkaError(Code.INVALID_REQUEST, "the request names this topic twice")
        else:
            answer = _name_conflict(image, (metric_names, taken), topic.name)
        if answer is None:
            answer = yield from _create(image, config, rng, topic, records)
            if not isinstance(answer, KafkaError):
                taken.setdefault(metric_name(topic.name), topic.name)
        answers.append(answer)
    if len(records) > RECORDS_PER_REQUEST_MAX:
        return _refuse_all(len(wanted), "more than 10,000 changes in one request")
    return ControllerResult([] if validate_only else records, answers)


def _refuse_all(count: int, why: str) -> ControllerResult[list[CreatedTopic | KafkaError]]:
    return ControllerResult([], [KafkaError(Code.POLICY_VIOLATION, why)] * count)


Answer = TypeVar("Answer")


def refused(
    result: ControllerResult[list[Answer | KafkaError]], problem: KafkaError
) -> ControllerResult[list[Answer | KafkaError]]:
    """Replace each success of `result` by `problem`."""
    answers: list[Answer | KafkaError] = [
        answer if isinstance(answer, KafkaError) else problem for answer in result.response
    ]
    return ControllerResult([], answers)


def _repeated(names: Sequence[object]) -> frozenset[object]:
    return frozenset(name for name, count in Counter(names).items() if count > 1)


def partitions_asked(config: BrokerConfig, wanted: Sequence[NewTopic]) -> list[int]:
    """Return how many partitions each topic wants."""
    return [
        len(topic.assignments)
        if topic.assignments
        else config.num_partitions
        if topic.num_partitions == BY_DEFAULT
        else max(topic.num_partitions, 1)  # one that will be refused costs a check as well
        for topic in wanted
    ]


def _name_conflict(
    image: ClusterImage, taken: Sequence[Mapping[str, str]], name: str
) -> KafkaError | None:
    problem = creation_problem(name)
    if problem is not None:
        return problem
    if name in image.topics_by_name:
        return KafkaError(Code.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
    if not has_metric_name(name):
        return None
    for names in taken:
        other = names.get(metric_name(name))
        if other is not None and other != name:
            why = f"topic {name!r} would have the metric names of the existing topic {other!r}"
            return KafkaError(Code.INVALID_TOPIC_EXCEPTION, why)
    return None


def _create(
    image: ClusterImage, config: BrokerConfig, rng: Rng, topic: NewTopic, records: list[Message]
) -> Generator[None, None, CreatedTopic | KafkaError]:
    """Append the records of one topic; on an error append nothing and return it."""
    nulls = sorted(name for name, value in topic.configs.items() if value is None)
    if nulls:
        return KafkaError(Code.INVALID_CONFIG, f"no value is given for {', '.join(nulls)}")
    overrides = {name: value for name, value in topic.configs.items() if value is not None}
    problem = (
        check_topic(config, overrides, topic=topic.name) if overrides else None
    )  # a bad broker default is no topic's fault
    problem = problem or system_topics.settings_problem(image, config, topic.name, overrides)
    if problem is not None:
        return problem
    overrides = system_topics.tiered_by_default(image, config, topic.name, overrides)
    topic_id = rng.uuid()
    replicas: list[Assignment] | KafkaError
    if topic.assignments:
        replicas = _manual(image, topic)
    else:
        replicas = yield from _automatic(image, config, topic, topic_id)
    if isinstance(replicas, KafkaError):
        return replicas
    records.append(r.TopicRecord(name=topic.name, topic_id=topic_id))
    records += [
        r.ConfigRecord(
            resource_type=ResourceType.TOPIC,
            resource_name=topic.name,
            name=key,
            value=overrides[key],
        )
        for key in sorted(overrides)
    ]
    records += yield from _in_steps(image, topic_id, 0, replicas)
    return CreatedTopic(topic.name, topic_id, len(replicas), len(replicas[0]), overrides)


def _manual(image: ClusterImage, topic: NewTopic) -> list[Assignment] | KafkaError:
    if topic.num_partitions != BY_DEFAULT or topic.replication_factor != BY_DEFAULT:
        why = "an assignment is given, so the counts of partitions and replicas must be -1"
        return KafkaError(Code.INVALID_REQUEST, why)
    if sorted(topic.assignments) != list(range(len(topic.assignments))):
        why = "the partitions of an assignment are not numbered 0, 1, 2 and so on"
        return KafkaError(Code.INVALID_REPLICA_ASSIGNMENT, why)
    replicas = [tuple(topic.assignments[number]) for number in range(len(topic.assignments))]
    return manual_problem(image.brokers, replicas, None) or replicas


def _automatic(
    image: ClusterImage, config: BrokerConfig, topic: NewTopic, topic_id: Uuid
) -> Generator[None, None, list[Assignment] | KafkaError]:
    count, factor = topic.num_partitions, topic.replication_factor
    if factor == 0 or factor < BY_DEFAULT:
        why = "the replication factor must be above 0, or -1 for the default"
        return KafkaError(Code.INVALID_REPLICATION_FACTOR, why)
    if count == 0 or count < BY_DEFAULT:
        why = "the number of partitions must be above 0, or -1 for the default"
        return KafkaError(Code.INVALID_PARTITIONS, why)
    return (
        yield from _placed(
            image,
            topic_id,
            0,
            config.num_partitions if count == BY_DEFAULT else count,
            config.default_replication_factor if factor == BY_DEFAULT else factor,
        )
    )


def _partition_records(
    image: ClusterImage, topic_id: Uuid, first: int, assignments: Sequence[Assignment]
) -> list[Message]:
    brokers = image.brokers
    made: list[Message] = []
    for number, replicas in enumerate(assignments, first):
        isr = tuple(node_id for node_id in replicas if brokers[node_id].is_active)
        partition = PartitionImage(
            replicas=replicas,
            directories=tuple(default_directory(brokers[node_id]) for node_id in replicas),
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
        )
        made.append(partition_record(topic_id, number, partition, image.metadata_version))
    return made


def delete_topics(
    image: ClusterImage, wanted: Sequence[TopicRef], *, is_enabled: bool
) -> ControllerResult[list[tuple[str, Uuid] | KafkaError]]:
    """Decide on deletions by name (str) or id (bytes). The answers, (name, id), are in this order."""
    found = [find_topic(image, ref) for ref in wanted]
    # A topic named twice, or by name and by id, is not deleted: the client probably confused topics.
    repeated = _repeated([ref if t is None else t.topic_id for ref, t in zip(wanted, found)])
    records: list[Message] = []
    answers: list[tuple[str, Uuid] | KafkaError] = []
    for ref, topic in zip(wanted, found, strict=True):
        if not is_enabled:
            answers.append(KafkaError(Code.TOPIC_DELETION_DISABLED, "delete.topic.enable is false"))
        elif (ref if topic is None else topic.topic_id) in repeated:
            answers.append(KafkaError(Code.INVALID_REQUEST, "the request names this topic twice"))
        elif topic is None:
            is_name = isinstance(ref, str)
            code = Code.UNKNOWN_TOPIC_OR_PARTITION if is_name else Code.UNKNOWN_TOPIC_ID
            answers.append(KafkaError(code, "there is no such topic"))
        elif (refusal := system_topics.deletion_problem(topic.name)) is not None:
            answers.append(refusal)
        else:
            records.append(r.RemoveTopicRecord(topic_id=topic.topic_id))
            answers.append((topic.name, topic.topic_id))
    return ControllerResult(records, answers)


def find_topic(image: ClusterImage, ref: TopicRef) -> TopicImage | None:
    """Return the topic with that name (str) or id (bytes), or None."""
    if isinstance(ref, str):
        return image.topics_by_name.get(ref)
    return image.topics_by_id.get(ref)


def create_partitions_steps(
    image: ClusterImage,
    wanted: Sequence[NewPartitions],
    *,
    validate_only: bool,
    partitions_before: int,
) -> Generator[None, None, ControllerResult[list[KafkaError | None]]]:
    """Decide on new partitions, in steps. The answers are in the order of `wanted`; None means success.

    partitions_before  how many partitions the same request has created already
    """
    partitions_max = PARTITIONS_PER_REQUEST_MAX - partitions_before
    repeated = _repeated([growth.name for growth in wanted])
    records: list[Message] = []
    answers: list[KafkaError | None] = []
    for growth in wanted:
        if growth.name in repeated:
            why = "the request names this topic twice"
            answers.append(KafkaError(Code.INVALID_REQUEST, why))
            continue
        made = yield from _grow(image, growth, partitions_max - len(records))
        if isinstance(made, KafkaError):
            answers.append(made)
        else:
            records += made
            answers.append(None)
    return ControllerResult([] if validate_only else records, answers)


def new_partitions(image: ClusterImage, growth: NewPartitions) -> int:
    """Return how many partitions that would create; 0 if it would be refused."""
    topic = image.topics_by_name.get(growth.name)
    return 0 if topic is None else max(growth.total - len(topic.partitions), 0)


def _grow(
    image: ClusterImage, growth: NewPartitions, left: int
) -> Generator[None, None, list[Message] | KafkaError]:
    topic = image.topics_by_name.get(growth.name)
    if topic is None:
        return KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
    present = len(topic.partitions)
    more = growth.total - present
    if more == 0:
        return KafkaError(Code.INVALID_PARTITIONS, f"the topic has {present} partitions already")
    if more < 0:
        why = f"the topic has {present} partitions, and {growth.total} would not be more"
        return KafkaError(Code.INVALID_PARTITIONS, why)
    refusal = system_topics.growth_problem(growth.name)
    if refusal is not None:
        return refusal
    if growth.assignments is not None and len(growth.assignments) != more:
        why = f"{more} partitions are new, but {len(growth.assignments)} assignments are given"
        return KafkaError(Code.INVALID_REPLICA_ASSIGNMENT, why)
    if more > left:
        return KafkaError(Code.POLICY_VIOLATION, "more than 10,000 new partitions in one request")
    factor = len(topic.partitions[0].replicas)
    if growth.assignments is not None:
        replicas = [tuple(ids) for ids in growth.assignments]
        problem = manual_problem(image.brokers, replicas, factor)
        if problem is not None:
            return problem
    else:
        placed = yield from _placed(image, topic.topic_id, present, more, factor)
        if isinstance(placed, KafkaError):
            return placed
        replicas = placed
    return (yield from _in_steps(image, topic.topic_id, present, replicas))


def _placed(
    image: ClusterImage, topic_id: Uuid, first: int, count: int, factor: int
) -> Generator[None, None, list[Assignment] | KafkaError]:
    """Place `count` partitions, numbered from `first` on."""
    replicas: list[Assignment] = []
    for offset in range(0, count, _RECORDS_AT_ONCE):
        if offset:
            yield
        some = place(
            image.brokers,
            topic_id=topic_id,
            first_partition=first + offset,
            count=min(count - offset, _RECORDS_AT_ONCE),
            replication_factor=factor,
        )
        if isinstance(some, KafkaError):
            return some
        replicas += some
    return replicas


def _in_steps(
    image: ClusterImage, topic_id: Uuid, first: int, replicas: Sequence[Assignment]
) -> Generator[None, None, list[Message]]:
    """Return the records of new partitions, numbered from `first` on."""
    records: list[Message] = []
    for offset in range(0, len(replicas), _RECORDS_AT_ONCE):
        if offset:
            yield
        some = replicas[offset : offset + _RECORDS_AT_ONCE]
        records += _partition_records(image, topic_id, first + offset, some)
    return records
