"""Settings of topics and brokers: described with their sources, and altered. WORLD.

Source: KIP-226 (dynamic settings of brokers), KIP-339 (incremental changes).
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from firnline.base.errors import Code, KafkaError
from firnline.client.admin import TOPIC_RESOURCE, Admin
from firnline.client.connection import Connection
from firnline.client.operations.partitions import topics_named
from firnline.client.operations.patience import ask_controller, ask_to_wait
from firnline.client.wire import refuse
from firnline.config.parse import nearest
from firnline.config.topic import LEASES
from firnline.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from firnline.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

BROKER_RESOURCE = 4
DEFAULT = "DEFAULT_CONFIG"
_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: DEFAULT,
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
# Kafka takes any key for one listener; DescribeConfigs names only those that are set.
_OF_A_LISTENER = "listener.name."


class Resource(NamedTuple):
    """A topic; a broker, by its id as text; or all brokers, by "" (their dynamic defaults)."""

    kind: int
    name: str

    def __str__(self) -> str:
        if self.kind == TOPIC_RESOURCE:
            return f"topic {self.name}"
        return f"broker {self.name}" if self.name else "all brokers"


class Setting(NamedTuple):
    """One setting.

    value     None if it is not set, or sensitive
    synonyms  (source, key, value) of each place that sets it, the strongest first
    """

    key: str
    value: str | None
    source: str
    is_sensitive: bool
    is_read_only: bool
    synonyms: list[tuple[str, str, str | None]]


class Changes(NamedTuple):
    """What to change. appends, subtracts: items of settings that are lists, separated by commas."""

    sets: Mapping[str, str] = MappingProxyType({})
    deletes: Sequence[str] = ()
    appends: Mapping[str, str] = MappingProxyType({})
    subtracts: Mapping[str, str] = MappingProxyType({})

    @property
    def keys(self) -> list[str]:
        """All keys that are named."""
        return [*self.sets, *self.deletes, *self.appends, *self.subtracts]


def describe(admin: Admin, resource: Resource) -> list[Setting]:
    """Return all settings of a resource by key. For all brokers: only those that are set for all."""
    wanted = DescribeConfigsResource(
        resource_type=resource.kind, resource_name=resource.name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[wanted], include_synonyms=True)
    (result,) = _node_of(admin, resource).ask(request).results
    refuse(result.error_code, result.error_message, str(resource))
    found = [_setting(row) for row in result.configs]
    return sorted(found, key=lambda each: each.key)


def _setting(row: Any) -> Setting:
    hidden = row.is_sensitive
    return Setting(
        row.name,
        None if hidden else row.value,
        _SOURCES.get(row.config_source, "UNKNOWN"),
        hidden,
        row.read_only,
        [
            (_SOURCES.get(each.source, "UNKNOWN"), each.name, None if hidden else each.value)
            for each in row.synonyms
        ],
    )


def alter(admin: Admin, resource: Resource, changes: Changes, *, validate_only: bool) -> None:
    """Change settings, all of them or none. With `validate_only` the broker only checks them."""
    rows = [
        AlterableConfig(name=key, config_operation=_SET, value=value)
        for key, value in changes.sets.items()
    ]
    rows += _operations(dict.fromkeys(changes.deletes), _DELETE)
    rows += _operations(changes.appends, _APPEND) + _operations(changes.subtracts, _SUBTRACT)
    wanted = AlterConfigsResource(
        resource_type=resource.kind, resource_name=resource.name, configs=rows
    )
    request = IncrementalAlterConfigsRequest(resources=[wanted], validate_only=validate_only)
    node = _node_of(admin, resource, is_change=True)

    def ask() -> None:
        (result,) = ask_to_wait(admin, node, request).responses
        refuse(result.error_code, result.error_message, str(resource))

    ask_controller(admin, ask)


def _operations(items: Mapping[str, str | None], operation: int) -> list[AlterableConfig]:
    return [
        AlterableConfig(name=key, config_operation=operation, value=value)
        for key, value in items.items()
    ]


def refuse_unknown(admin: Admin, resource: Resource, keys: Iterable[str]) -> None:
    """Raise KafkaError(INVALID_CONFIG), with the nearest key, for a key that the resource does not have.

    Kafka's brokers store an unknown key of a broker without a word, and it has no effect.
    """
    some_broker = resource
    if resource.kind == BROKER_RESOURCE and not resource.name:
        some_broker = Resource(BROKER_RESOURCE, str(admin.metadata([]).brokers[0].node_id))
    known = {each.key for each in describe(admin, some_broker)}
    if resource.kind == TOPIC_RESOURCE:
        # Described only while there is one; it may have ended since somebody looked.
        known.add(LEASES)
    for key in keys:
        if key in known or key.startswith(_OF_A_LISTENER):
            continue
        close = nearest(key, known)
        hint = f"did you mean {close}?" if close else "firnline config describe --all lists them"
        raise KafkaError(Code.INVALID_CONFIG, f"{resource} has no setting {key}: {hint}")


def _node_of(admin: Admin, resource: Resource, *, is_change: bool = False) -> Connection:
    """Return whom to ask: a broker about itself. KafkaError for a topic or a broker that is not there."""
    if resource.kind == TOPIC_RESOURCE:
        topics_named(admin, [resource.name])
        return admin.controller() if is_change else admin.first
    if not resource.name:
        return admin.controller() if is_change else admin.first
    brokers = {str(row.node_id): row for row in admin.metadata([]).brokers}
    row = brokers.get(resource.name)
    if row is None:
        there = ", ".join(sorted(brokers, key=int))
        why = f"no broker {resource.name} is alive: there are {there}"
        raise KafkaError(Code.BROKER_NOT_AVAILABLE, why)
    return admin.node(row.node_id, row.host, row.port)
