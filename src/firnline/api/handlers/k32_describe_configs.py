"""DescribeConfigs: answers with configs, their sources and their synonyms. PURE.

Source: KIP-133, KIP-226, KIP-569; spec Q52, reliability d 57.
"""

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.loggers import describe_loggers
from firnline.api.slices import Slices, emptied, in_slices, taken_out
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import METADATA_TOPIC
from firnline.config.define import TYPE_IDS
from firnline.config.layers import (
    DEFAULT,
    DYNAMIC_DEFAULT_BROKER,
    Entry,
    describe_broker,
    describe_topic,
)
from firnline.formats.topic_names import name_problem
from firnline.metadata.image import ResourceType
from firnline.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode

# A config takes 2 us if all are requested: a topic has 40, a broker 250.
_SETTINGS_PER_SLICE = 250
# A requested name takes about 50 ns. A list of more names is not compared again.
_KEYS_PER_SLICE = 5_000
_FEW_KEYS = 50
_SETTINGS_PER_KEYS = 10
# The memory of a config, without texts that several share, and that of each synonym.
_SETTING_BYTES, _SYNONYM_BYTES = 450, 280

# Snapshots bound the metadata log, and none of its configs can be set (Q52).
_METADATA_LOG = [
    Entry(
        "cleanup.policy",
        "snapshot",
        DEFAULT,
        TYPE_IDS["LIST"],
        True,
        False,
        (),
        "Records are deleted once a snapshot contains their state.",
    )
]


def handle(
    node: "AnyNode", context: RequestContext, request: DescribeConfigsRequest, now_ms: int
) -> Effects:
    """Answer from the committed image and this node's properties file."""
    return in_slices(node, context, _answer(node, context, request), now_ms, held_bytes=0)


def _answer(node: "AnyNode", context: RequestContext, request: DescribeConfigsRequest) -> Slices:
    """Answer a repeated resource again, as Kafka does, with the row of its first mention."""
    results: list[DescribeConfigsResult] = []
    found: dict[tuple[object, ...], DescribeConfigsResult] = {}
    count = 0
    for resource in taken_out(request.resources):
        if count >= _SETTINGS_PER_SLICE:
            count = 0
            yield context.keeps(results)
        keys = resource.configuration_keys or ()
        wanted = tuple(keys) if len(keys) <= _FEW_KEYS else None
        named = (resource.resource_type, resource.resource_name, wanted)
        result = None if wanted is None else found.get(named)
        count += 1
        if result is None:
            entries = _entries(node, resource.resource_type, resource.resource_name)
            result = _result(resource)
            if isinstance(entries, KafkaError):
                result.error_code, result.error_message = entries.code, entries.why
            else:
                count += len(entries) + len(keys) // _SETTINGS_PER_KEYS
                names = yield from _names(entries, keys)
                result.configs = [
                    _config(entry, request) for entry in entries if entry.name in names
                ]
                synonyms = sum([len(config.synonyms) for config in result.configs])
                context.grow(_SETTING_BYTES * len(result.configs) + _SYNONYM_BYTES * synonyms)
                if wanted is not None:
                    found[named] = result
        results.append(result)
    return [context.reply(DescribeConfigsResponse(results=results))]


def _names(entries: Sequence[Entry], keys: Sequence[str]) -> Generator[Effects, int, set[str]]:
    """Return those of `keys` that exist; all if `keys` is empty."""
    known = {entry.name for entry in entries}
    if not keys:
        return known
    names: set[str] = set()
    for count, some in enumerate(emptied(keys, _KEYS_PER_SLICE)):
        if count:
            yield []
        names |= known.intersection(some)
    return names


def _result(resource: DescribeConfigsResource) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _entries(node: "AnyNode", kind: int, name: str) -> list[Entry] | KafkaError:
    image = node.image
    cluster = image.config(ResourceType.BROKER, "")
    own = image.config(ResourceType.BROKER, str(node.node_id))
    if kind == ResourceType.TOPIC:
        problem = name_problem(name)
        if problem is not None:
            return problem
        if name == METADATA_TOPIC:
            return _METADATA_LOG
        if image.topic(name) is None:
            return KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        overrides = image.topic_config_overrides(name)
        return describe_topic(node.config, overrides, cluster=cluster, node=own)
    if kind == ResourceType.BROKER_LOGGER:
        return describe_loggers(node, name)
    if kind != ResourceType.BROKER:
        why = f"settings of resource type {kind} cannot be described here"
        return KafkaError(Code.INVALID_REQUEST, why)
    if not name:
        every = describe_broker(node.config, cluster=cluster)
        return [_of_cluster(entry) for entry in every if entry.name in cluster]
    if not name.isdecimal():
        return KafkaError(Code.INVALID_REQUEST, f"a broker's id is a number, not {name!r}")
    if int(name) != node.node_id:
        why = f"this is broker {node.node_id}, not {name}"
        return KafkaError(Code.INVALID_REQUEST, why)
    return describe_broker(node.config, cluster=cluster, node=own)


def _of_cluster(entry: Entry) -> Entry:
    """Return the cluster-wide config without the synonyms that a single broker would add."""
    synonyms = tuple(s for s in entry.synonyms if s.source == DYNAMIC_DEFAULT_BROKER)
    return entry._replace(synonyms=synonyms)


def _config(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source) for s in synonyms
        ],
        config_type=entry.type_id,
        documentation=entry.doc if request.include_documentation else None,
    )
