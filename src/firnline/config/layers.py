"""Layers of settings: default < file < cluster < this broker < topic. PURE.

DescribeConfigs is answered from here: `describe_broker` and `describe_topic` list every key of Kafka 4.3.1,
with the numbers of the wire. As in Kafka, internal keys are listed only where they were stated, and plug-ins'
settings are sensitive. Source: KIP-226 (dynamic configs), KIP-405 (rules of tiered topics, T7); observed on
Kafka 4.3.1.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import dropwhile
from typing import Any, NamedTuple

from firnline.base.errors import Code, ConfigError, KafkaError
from firnline.base.ids import (
    METADATA_TOPIC,
    OFFSETS_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
    TRANSACTION_TOPIC,
)
from firnline.config.broker import BrokerConfig, broker_keys
from firnline.config.define import TYPE_IDS, ConfigKey, Value
from firnline.config.parse import nearest, parse, text_of
from firnline.config.topic import TopicConfig, topic_keys
from firnline.config.unused import runtime_keys

# Sources of a value, as DescribeConfigs numbers them.
DYNAMIC_TOPIC = 1
DYNAMIC_BROKER = 2
DYNAMIC_DEFAULT_BROKER = 3
STATIC_BROKER = 4
DEFAULT = 5

MS_PER_MINUTE = 60_000
MS_PER_HOUR = 3_600_000
_NEVER_TIERED = (
    *(METADATA_TOPIC, OFFSETS_TOPIC, TRANSACTION_TOPIC, REMOTE_LOG_METADATA_TOPIC),
    "__share_group_state",
)
OWN = "firnline."  # the names of keys that Kafka does not have
_NOTHING: Mapping[str, str] = {}
# Broker keys with the same meaning in a coarser unit, used in this order where the first is not stated.
_COARSER = {
    "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.hours",),
    "log.roll.jitter.ms": ("log.roll.jitter.hours",),
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms",),
}


# Kafka changes these while it runs: sockets, providers, and the sizes of its pools; this release does not.
AT_START = frozenset(
    {
        "advertised.listeners",
        "config.providers",
        "listener.security.protocol.map",
        "listeners",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
    }
)
# Kafka's default is null, so our default is its effective value.
_NULL = ("log.dirs",)


def may_change(key: ConfigKey) -> bool:
    """Whether a broker's setting can be altered while the broker runs, and then acts."""
    return key.is_dynamic and key.kind == "acts" and key.name not in AT_START


class Synonym(NamedTuple):
    """One possible source of a value, with that value; None if it is sensitive."""

    name: str
    value: str | None
    source: int


class Entry(NamedTuple):
    """One key as DescribeConfigs lists it."""

    name: str
    value: str | None
    source: int
    type_id: int
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[Synonym, ...]
    doc: str


class Layers(NamedTuple):
    """What was stated, strongest first: for this broker, for the cluster, in the file.

    resolved  the keys whose value in the file has parts from a provider
    """

    node: Mapping[str, str]
    cluster: Mapping[str, str]
    file: Mapping[str, str]
    resolved: Collection[str]

    def stated(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield (text, source) of each layer that states `name`, strongest first."""
        sources = (DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER)
        for layer, source in zip(self[:3], sources, strict=True):
            if name in layer:
                yield layer[name], source

    def hides(self, each: ConfigKey) -> bool:
        """Whether the value of a broker's key comes from a provider, if no topic overrides it."""
        if not self.resolved:
            return False
        for name in (each.name, *_COARSER.get(each.name, ())):
            source = next((source for _, source in self.stated(name)), None)
            if source is not None:
                return source == STATIC_BROKER and name in self.resolved
        return False


def broker_config(
    static: BrokerConfig,
    cluster: Mapping[str, str] = _NOTHING,
    node: Mapping[str, str] = _NOTHING,
) -> BrokerConfig:
    """Apply run-time changes, for all brokers and for this one, to the file's settings.

    Ignores keys that are read at the start, or have no effect here: the controller refuses them, but an older
    release, or Kafka before a migration, may have written them.
    """
    changed: dict[str, Any] = {}
    for layer in (cluster, node):
        for name in sorted(layer):
            each = broker_keys().get(name)
            if each is not None and may_change(each):
                changed[each.attribute] = parse(each, layer[name])
    return replace(static, **changed) if changed else static


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """Resolve a topic's settings: its overrides on top of the broker's defaults.

    Ignores an override that cannot be parsed. It was checked when it was set, so it comes from a later
    release; not serving the topic would be worse.
    """
    values = topic_defaults(broker)
    for name in sorted(overrides):
        each = topic_keys().get(name)
        if each is None:
            continue
        try:
            values[each.attribute] = parse(each, overrides[name])
        except ConfigError:
            continue
    if values.get("internal_segment_bytes") is not None:
        values["segment_bytes"] = values["internal_segment_bytes"]
    return TopicConfig(**values)


def topic_defaults(broker: BrokerConfig) -> dict[str, Any]:
    """Return the settings of a topic without overrides, by attribute."""
    values = {name: getattr(broker, source) for name, source in _default_sources()}
    values["retention_ms"] = _retention_ms(broker)
    if broker.log_roll_ms is None:
        values["segment_ms"] = broker.log_roll_hours * MS_PER_HOUR
    if broker.log_roll_jitter_ms is None:
        values["segment_jitter_ms"] = broker.log_roll_jitter_hours * MS_PER_HOUR
    if broker.log_flush_interval_ms is None:
        values["flush_ms"] = broker.log_flush_scheduler_interval_ms
    return values


@cache
def _default_sources() -> tuple[tuple[str, str], ...]:
    """Return topic attributes, each with the broker attribute that is its default."""
    return tuple(
        (each.attribute, broker_keys()[each.synonym].attribute)
        for each in topic_keys().values()
        if each.synonym is not None and hasattr(BrokerConfig, broker_keys()[each.synonym].attribute)
    )


def _retention_ms(broker: BrokerConfig) -> int:
    if broker.log_retention_ms is not None:
        value = broker.log_retention_ms
    elif broker.log_retention_minutes is not None:
        value = broker.log_retention_minutes * MS_PER_MINUTE
    else:
        value = broker.log_retention_hours * MS_PER_HOUR
    return max(value, -1)


# ---------------------------------------------------------------------------- checking overrides


def check_topic(
    broker: BrokerConfig,
    overrides: Mapping[str, str],
    *,
    before: Mapping[str, str] = _NOTHING,
    topic: str = "",
) -> KafkaError | None:
    """Return why a topic may not have these overrides, or None. For create and alter.

    broker     settings of the node, whose defaults apply where there is no override
    overrides  all overrides the topic would have
    before     all overrides it has now; empty for a new topic
    topic      its name: Kafka's internal topics are never tiered
    """
    try:
        for name in sorted(overrides):
            _check_override(name, overrides[name])
    except ConfigError as problem:
        return KafkaError(Code.INVALID_CONFIG, str(problem))
    config = topic_config(broker, overrides)
    for broken in _rules(broker, config, before, topic):
        return KafkaError(Code.INVALID_CONFIG, broken)
    return None


def _check_override(name: str, text: str) -> None:
    each = topic_keys().get(name)
    if each is None:
        close = nearest(name, topic_keys())
        raise ConfigError(
            f"{name} is not a setting of topics" + (f": is it {close}?" if close else "")
        )
    value = parse(each, text)
    if each.kind == "promise" and value != each.default:
        raise ConfigError(f"{name} is not supported yet and would have no effect")


def _rules(
    broker: BrokerConfig, config: TopicConfig, before: Mapping[str, str], topic: str
) -> Iterator[str]:
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        yield (
            f"min.compaction.lag.ms={config.min_compaction_lag_ms} must not exceed"
            f" max.compaction.lag.ms={config.max_compaction_lag_ms}"
        )
    was_tiered = topic_config(broker, before).remote_storage_enable
    if was_tiered and not config.remote_storage_enable and not config.remote_log_delete_on_disable:
        yield (
            "remote.storage.enable may go from true to false only with"
            " remote.log.delete.on.disable=true: what is in the tier is deleted then"
        )
    if config.remote_storage_enable:
        if topic in _NEVER_TIERED:
            yield f"{topic} is internal and cannot be tiered"
        yield from _tiered_rules(broker, config)
        yield from _metadata_rules(broker, config)


def _tiered_rules(broker: BrokerConfig, config: TopicConfig) -> Iterator[str]:
    """T7: what a topic with a remote tier may not be."""
    if not broker.remote_log_storage_system_enable:
        yield (
            "remote.storage.enable=true needs remote.log.storage.system.enable=true on all nodes, also on"
            " the controllers"
        )
    if "compact" in config.cleanup_policy:
        yield "remote.storage.enable=true and cleanup.policy=compact exclude each other"
    limits = (
        ("ms", config.local_retention_ms, config.retention_ms),
        ("bytes", config.local_retention_bytes, config.retention_bytes),
    )
    for unit, local, total in limits:
        if local == -1 and total != -1:
            yield f"local.retention.{unit}=-1 is more than retention.{unit}={total}"
        if local > total >= 0:
            yield f"local.retention.{unit}={local} must not exceed retention.{unit}={total}"
        if config.remote_log_copy_disable and local not in (-2, total):
            yield (
                f"remote.log.copy.disable=true needs local.retention.{unit} to be -2 or the same as"
                f" retention.{unit}={total}: nothing more will be copied"
            )


def _metadata_rules(broker: BrokerConfig, config: TopicConfig) -> Iterator[str]:
    """T52: if the metadata topic deleted records before its topics do, their segments would be lost."""
    name = "remote.log.metadata.topic.retention.ms"
    text = broker.with_prefix(broker.remote_log_metadata_manager_impl_prefix).get(name, "-1")
    if not (broker.has_metadata_topic and text.isdecimal()):
        return  # -1 is no limit; other text fails later, when the metadata manager starts
    if config.retention_ms == -1 or config.retention_ms >= int(text):
        yield f"retention.ms={config.retention_ms} must be below {name}={text}"


# ---------------------------------------------------------------------------- describing


def describe_topic(
    broker: BrokerConfig,
    overrides: Mapping[str, str],
    *,
    cluster: Mapping[str, str] = _NOTHING,
    node: Mapping[str, str] = _NOTHING,
) -> list[Entry]:
    """Return the topic keys with their values for one topic, in alphabetical order.

    broker         the file's settings
    cluster, node  run-time changes for all brokers, and for this one
    """
    layers = Layers(node, cluster, broker.stated, broker.resolved)
    config = topic_config(broker_config(broker, cluster, node), overrides)
    entries = []
    for each in topic_keys().values():
        # Unless they are set, tools see the keys of Kafka and no others.
        if (each.is_internal or each.name.startswith(OWN)) and each.name not in overrides:
            continue
        synonyms = []
        is_hidden = False
        if each.name in overrides:
            synonyms.append(Synonym(each.name, overrides[each.name], DYNAMIC_TOPIC))
        if each.synonym is not None:
            of_brokers = broker_keys()[each.synonym]
            synonyms += _broker_synonyms(of_brokers, layers)
            is_hidden = each.name not in overrides and layers.hides(of_brokers)
        value = text_of(each, getattr(config, each.attribute))
        entries.append(_entry(each, value, synonyms, is_read_only=False, is_hidden=is_hidden))
    return entries


def describe_broker(
    broker: BrokerConfig,
    *,
    cluster: Mapping[str, str] = _NOTHING,
    node: Mapping[str, str] = _NOTHING,
) -> list[Entry]:
    """Return every broker key with its value, in alphabetical order; then plug-ins' settings, hidden."""
    layers = Layers(node, cluster, broker.stated, broker.resolved)
    config = broker_config(broker, cluster, node)
    entries = []
    for each in broker_keys().values():
        if each.is_internal and each.name not in broker.stated:
            continue
        value = text_of(each, _value(config, each, layers))
        synonyms = _broker_synonyms(each, layers)
        is_hidden = layers.hides(each)
        entries.append(
            _entry(each, value, synonyms, is_read_only=not may_change(each), is_hidden=is_hidden)
        )
    for each in runtime_keys().values():
        found = [Synonym(each.name, text, source) for text, source in layers.stated(each.name)]
        if found:
            entries.append(_entry(each, found[0].value, found, is_read_only=False, is_hidden=False))
    for name in sorted(broker.stated):
        if name not in broker_keys():
            hidden = (Synonym(name, None, STATIC_BROKER),)
            entries.append(Entry(name, None, STATIC_BROKER, 0, True, True, hidden, ""))
    return entries


def _value(config: BrokerConfig, each: ConfigKey, layers: Layers) -> Value:
    """Return the effective value, or for a key without effect the stated one."""
    if hasattr(config, each.attribute):
        value: Value = getattr(config, each.attribute)
        return value
    for text, _ in layers.stated(each.name):
        with suppress(ConfigError):  # a later release may have values that this one does not know
            return parse(each, text)
    return each.default


def _broker_synonyms(each: ConfigKey, layers: Layers) -> list[Synonym]:
    """Return the possible sources of a broker key's value, strongest first, its default last."""
    keys = [each, *(broker_keys()[name] for name in _COARSER.get(each.name, ()))]
    found = [
        Synonym(key.name, None if _is_secret(key, source, layers) else text, source)
        for key in keys
        for text, source in layers.stated(key.name)
        if source == STATIC_BROKER or key.name not in AT_START
    ]
    for key in keys:
        default = None if key.is_required or key.name in _NULL else text_of(key, key.default)
        if default is not None:
            found.append(Synonym(key.name, default, DEFAULT))
    # As in Kafka: keys in a coarser unit are listed only if the key itself is stated.
    return list(dropwhile(lambda synonym: synonym.name != each.name, found))


def _is_secret(key: ConfigKey, source: int, layers: Layers) -> bool:
    return key.is_sensitive or (source == STATIC_BROKER and key.name in layers.resolved)


def _entry(
    each: ConfigKey,
    value: str | None,
    synonyms: list[Synonym],
    *,
    is_read_only: bool,
    is_hidden: bool,
) -> Entry:
    is_sensitive = each.is_sensitive or is_hidden
    return Entry(
        each.name,
        None if is_sensitive else value,
        synonyms[0].source if synonyms else DEFAULT,
        TYPE_IDS[each.type],
        is_read_only,
        is_sensitive,
        tuple(synonyms),
        each.doc,
    )
