"""Changes the configs of topics and brokers, one key at a time. PURE.

Source: KIP-226, KIP-339. Error codes are those of Kafka 4.3.1, with one exception: a broker key that does not
exist is refused here, while Kafka stores it. Spec Q52, T7; reliability d 58.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from firnline.base.errors import Code, ConfigError, KafkaError
from firnline.base.ids import METADATA_TOPIC
from firnline.base.limits import STRING_BYTES_MAX
from firnline.config.broker import BrokerConfig, broker_keys
from firnline.config.define import ConfigKey
from firnline.config.layers import AT_START, check_topic, topic_config
from firnline.config.network import is_address, parse_overrides
from firnline.config.parse import nearest, parse, text_of
from firnline.config.providers import has_variable
from firnline.config.tiered import parse_given_up
from firnline.config.topic import topic_keys
from firnline.config.unused import runtime_keys
from firnline.controller import system_topics
from firnline.formats.topic_names import name_problem
from firnline.metadata import records as r
from firnline.metadata.image import ClusterImage, ConfigResource, ResourceType
from firnline.metadata.result import ControllerResult
from firnline.protocol.schema import Message


class AlterOp(IntEnum):
    """How a key changes; the numbers are those of IncrementalAlterConfigs. The last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One key of one resource; `op` is unchecked, as the client sent it."""

    key: str
    op: int
    value: str | None


def incremental_alter_configs(
    image: ClusterImage,
    config: BrokerConfig,
    wanted: Sequence[tuple[ConfigResource, Sequence[Alteration]]],
    *,
    validate_only: bool,
) -> ControllerResult[list[KafkaError | None]]:
    """Decide on each resource independently. The answers are in the order of `wanted`; None means success."""
    records: list[Message] = []
    answers: list[KafkaError | None] = []
    counts = Counter(resource for resource, _ in wanted)
    for resource, alterations in wanted:
        if counts[resource] > 1:
            why = "the request names this resource more than once"
            answers.append(KafkaError(Code.INVALID_REQUEST, why))
            continue
        made = _alter(image, config, resource, alterations)
        if isinstance(made, KafkaError):
            answers.append(made)
        else:
            records += made
            answers.append(None)
    return ControllerResult([] if validate_only else records, answers)


def replace_configs(
    image: ClusterImage,
    config: BrokerConfig,
    wanted: Sequence[tuple[ConfigResource, Sequence[tuple[str, str | None]]]],
    *,
    validate_only: bool,
) -> ControllerResult[list[KafkaError | None]]:
    """Replace all settings of each resource; what is not named is deleted. Answers as above."""
    alterations = []
    for resource, pairs in wanted:
        given = dict(pairs)
        had = image.config(resource.resource_type, resource.name)
        row = [Alteration(key, AlterOp.SET, value) for key, value in pairs]
        row += [Alteration(key, AlterOp.DELETE, None) for key in sorted(had) if key not in given]
        alterations.append((resource, row))
    return incremental_alter_configs(image, config, alterations, validate_only=validate_only)


def _alter(
    image: ClusterImage,
    config: BrokerConfig,
    resource: ConfigResource,
    alterations: Sequence[Alteration],
) -> list[Message] | KafkaError:
    problem = _resource_problem(image, resource) or _shape_problem(alterations)
    if problem is not None:
        return problem
    before = image.config(resource.resource_type, resource.name)
    after = dict(before)
    for alteration in alterations:
        problem = _apply(config, resource, alteration, after)
        if problem is not None:
            return problem
    if resource.resource_type == ResourceType.TOPIC:
        problem = check_topic(config, after, before=before, topic=resource.name)
        problem = problem or system_topics.settings_problem(image, config, resource.name, after)
    else:
        problem = _broker_problem(resource.name, alterations, after)
    if problem is not None:
        return problem
    return [
        r.ConfigRecord(
            resource_type=resource.resource_type,
            resource_name=resource.name,
            name=alteration.key,
            value=after.get(alteration.key),
        )
        for alteration in alterations
        if before.get(alteration.key) != after.get(alteration.key)
    ]


def _resource_problem(image: ClusterImage, resource: ConfigResource) -> KafkaError | None:
    kind, name = resource
    if kind == ResourceType.TOPIC:
        return _topic_problem(image, name)
    if kind != ResourceType.BROKER:
        why = f"settings of resource type {kind} cannot be altered here"
        return KafkaError(Code.INVALID_REQUEST, why)
    if not name:
        return None  # all brokers
    if not name.isdecimal():
        return KafkaError(Code.INVALID_REQUEST, f"a broker's id is a number, and not {name!r}")
    if int(name) not in image.brokers:
        return KafkaError(Code.BROKER_ID_NOT_REGISTERED, f"no broker {name} is registered")
    return None


def _topic_problem(image: ClusterImage, name: str) -> KafkaError | None:
    if not name:
        return KafkaError(Code.INVALID_REQUEST, "there are no settings for all topics")
    if name == METADATA_TOPIC:
        # It always has snapshots instead of a cleanup policy (Q52, rel-Q18).
        return KafkaError(Code.INVALID_CONFIG, f"the settings of {name} cannot be altered")
    problem = name_problem(name)
    if problem is not None:
        return problem
    if name not in image.topics_by_name:
        return KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return None


def _shape_problem(alterations: Sequence[Alteration]) -> KafkaError | None:
    keys = [alteration.key for alteration in alterations]
    if len(dict.fromkeys(keys)) != len(keys):
        return KafkaError(Code.INVALID_REQUEST, "the request alters a key more than once")
    for alteration in alterations:
        if alteration.op not in tuple(AlterOp):
            why = f"{alteration.key}: unknown kind of alteration {alteration.op}"
            return KafkaError(Code.INVALID_REQUEST, why)
        if alteration.value is None and alteration.op != AlterOp.DELETE:
            return KafkaError(Code.INVALID_REQUEST, f"no value is given for {alteration.key}")
    return None


def _apply(
    config: BrokerConfig, resource: ConfigResource, alteration: Alteration, after: dict[str, str]
) -> KafkaError | None:
    """Apply one alteration to `after`, or return the error if the key's type does not allow it."""
    key, value = alteration.key, alteration.value or ""
    if alteration.op == AlterOp.SET:
        after[key] = value
    elif alteration.op == AlterOp.DELETE:
        after.pop(key, None)
    else:
        is_topic = resource.resource_type == ResourceType.TOPIC
        declared = (topic_keys() if is_topic else broker_keys()).get(key)
        if declared is None or declared.type != "LIST":
            verb = AlterOp(alteration.op).name
            return KafkaError(Code.INVALID_CONFIG, f"{verb} needs a list, and {key} is none")
        present = _items(after[key]) if key in after else _inherited(config, declared, is_topic)
        after[key] = ",".join(_changed_list(present, _items(value), alteration.op))
        if len(after[key].encode()) > STRING_BYTES_MAX:
            why = f"the value of {key} would have more than {STRING_BYTES_MAX} bytes"
            return KafkaError(Code.INVALID_CONFIG, why)
    return None


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text else []


def _inherited(config: BrokerConfig, declared: ConfigKey, is_topic: bool) -> list[str]:
    source = topic_config(config, {}) if is_topic else config
    return _items(text_of(declared, getattr(source, declared.attribute, declared.default)) or "")


def _changed_list(present: list[str], items: list[str], op: int) -> list[str]:
    if op == AlterOp.APPEND:
        return list(dict.fromkeys(present + items))
    return [item for item in present if item not in items]


def _broker_problem(
    name: str, alterations: Sequence[Alteration], after: Mapping[str, str]
) -> KafkaError | None:
    """Return the error if these broker settings cannot be changed at run time, else None."""
    for alteration in alterations:
        key = broker_keys().get(alteration.key) or runtime_keys().get(alteration.key)
        if alteration.op == AlterOp.DELETE:
            continue  # a setting that an earlier release accepted can always be deleted
        if key is None:
            close = nearest(alteration.key, broker_keys())
            why = f"{alteration.key} is not a setting of brokers"
            return KafkaError(Code.INVALID_CONFIG, why + (f": is it {close}?" if close else ""))
        if not key.is_dynamic or key.name in AT_START:
            why = f"{key.name} is read when the broker starts; it cannot be altered at run time"
            return KafkaError(Code.INVALID_REQUEST, why)
        try:
            value = parse(key, after[key.name])
            if has_variable(after[key.name]):
                raise ConfigError(
                    f"{key.name}: variables of config.providers are replaced only in the file of a broker,"
                    " when it starts"
                )
            if key.name == _GIVEN_UP and isinstance(value, tuple):
                for text in value:
                    parse_given_up(text)
            _check_connections(after)
        except ConfigError as problem:
            return KafkaError(Code.INVALID_REQUEST, str(problem))
        if key.kind == "promise" and value != key.default:
            why = f"{key.name} is not supported yet, and what it promises would not hold"
            return KafkaError(Code.INVALID_CONFIG, why)
    return None


def _check_connections(after: Mapping[str, str]) -> None:
    """Raise ConfigError for unusable limits of connections."""
    overrides = parse_overrides(after.get("max.connections.per.ip.overrides", ""))
    for host in overrides:
        if not is_address(host):
            raise ConfigError(
                f"max.connections.per.ip.overrides names {host}: at run time state its address, as names are"
                " looked up when a broker starts"
            )
    if after.get("max.connections.per.ip", "").strip() == "0" and not overrides:
        raise ConfigError(
            "max.connections.per.ip=0 lets nobody connect: state max.connections.per.ip.overrides with it"
        )


_GIVEN_UP = "firnline.remote.log.metadata.given.up"
