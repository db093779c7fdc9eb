"""Make a `BrokerConfig` from file, environment and command line, in this order. PURE.

An unknown key is an error that names the nearest known one: a setting that is silently ignored is worse than
a start that fails. Keys under a plug-in's prefix belong to the plug-in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from firnline.base.errors import ConfigError
from firnline.config.broker import BrokerConfig, broker_keys, check_rules
from firnline.config.define import Value, declared_keys
from firnline.config.parse import nearest, parse
from firnline.config.properties import parse_properties
from firnline.config.providers import HIDDEN, PROVIDERS, Redaction
from firnline.config.topic import topic_keys

# Variables of this project that are not settings of a broker.
_OTHER_VARIABLES = {"FIRNLINE_FREEZE", "FIRNLINE_PEERS"}
_LISTENER_PREFIX = "listener.name."
_NOTHING: Mapping[str, tuple[str, ...]] = {}


def read_properties(text: str) -> dict[str, str]:
    """Parse a .properties file with Java's rules. Raises ConfigError for a broken escape."""
    try:
        return parse_properties(text)
    except ValueError as problem:
        raise ConfigError(f"the file is not a .properties file: {problem}") from None


def read_overrides(pairs: Iterable[str]) -> dict[str, str]:
    """Parse the `key=value` of each -X. Raises ConfigError for one without '='."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"-X {pair}: expected key=value")
        found[name.strip()] = value
    return found


def read_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the settings among `variables`: FIRNLINE_LOG_RETENTION_MS is log.retention.ms.

    A variable that is nearly such a name is an error; others with the prefix are not ours.
    """
    names = {variable_name(name): name for name in broker_keys()}
    found = {}
    for variable in sorted(variables):
        if not variable.startswith("FIRNLINE_") or variable in _OTHER_VARIABLES:
            continue
        if variable in names:
            found[names[variable]] = variables[variable]
            continue
        close = nearest(variable, names)
        if close and abs(len(close) - len(variable)) <= 2 and _differs_little(close, variable):
            raise ConfigError(f"environment variable {variable} is unknown: is it {close}?")
    return found


def _differs_little(one: str, other: str) -> bool:
    """Return whether two names of about the same length differ only by a typing error."""
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    end = 0
    while end < min(len(one), len(other)) - start and one[-1 - end] == other[-1 - end]:
        end += 1
    return max(len(one), len(other)) - start - end <= 2


def variable_name(name: str) -> str:
    """Return the environment variable of a key."""
    return "FIRNLINE_" + name.removeprefix("firnline.").upper().replace(".", "_")


_NUMBERS = ("node.id", "broker.id")


def load(
    stated: Mapping[str, str], resolved: Mapping[str, tuple[str, ...]] = _NOTHING
) -> BrokerConfig:
    """Parse, check and resolve what was stated. Raises ConfigError; its text names the key.

    resolved  the keys whose value has parts from a provider, with these parts: no error shows them
    """
    try:
        return _load(_with_either_number(stated), resolved)
    except ConfigError as problem:
        if not resolved:
            raise
        texts = (text for parts in resolved.values() for text in parts)
        raise ConfigError(Redaction(texts)(str(problem))) from None


def _load(stated: Mapping[str, str], resolved: Mapping[str, tuple[str, ...]]) -> BrokerConfig:
    prefixes = _prefixes(stated)
    values: dict[str, Value] = {}
    for name in sorted(stated):
        each = broker_keys().get(name)
        if each is not None:
            values[name] = parse(each, stated[name], is_hidden=name in resolved)
        elif not name.startswith(prefixes) and not _is_for_a_listener(name):
            raise ConfigError(unknown(name))
    missing = [k.name for k in broker_keys().values() if k.is_required and k.name not in values]
    if missing:
        raise ConfigError(f"{missing[0]} must be set")
    acting = declared_keys(BrokerConfig, "broker")
    fields = {acting[name].attribute: value for name, value in values.items() if name in acting}
    config = BrokerConfig(**fields, stated=dict(stated), resolved=dict(resolved))  # type: ignore[arg-type]
    if not config.log_dirs:
        config = replace(config, log_dirs=config.log_dir)
    check_rules(config, values)
    return config


def _with_either_number(stated: Mapping[str, str]) -> Mapping[str, str]:
    """Let broker.id and node.id stand for each other, as in Kafka; refuse two different numbers."""
    found = [stated[name] for name in _NUMBERS if name in stated]
    if any(number != found[0] for number in found):
        raise ConfigError("node.id and broker.id differ: state only node.id")
    return {**stated, **dict.fromkeys(_NUMBERS, found[0])} if found else stated


def _prefixes(stated: Mapping[str, str]) -> tuple[str, ...]:
    defaults = BrokerConfig()
    names = ("remote.log.storage.manager.impl.prefix", "remote.log.metadata.manager.impl.prefix")
    named = [stated[name].strip() for name in names if stated.get(name, "").strip()]
    return (*named, *defaults.plugin_prefixes, f"{PROVIDERS}.")


def _is_for_a_listener(name: str) -> bool:
    """Whether `listener.name.<listener>.<key>` sets a key for one listener; SASL has its mechanism before
    the key.
    """
    if not name.startswith(_LISTENER_PREFIX):
        return False
    rest = name.removeprefix(_LISTENER_PREFIX).split(".")
    return ".".join(rest[1:]) in broker_keys() or ".".join(rest[2:]) in broker_keys()


def unknown(name: str) -> str:
    """Return an error text for an unknown key, with the key that was probably meant."""
    topic_key = topic_keys().get(name)
    if topic_key is not None:
        instead = topic_key.synonym or nearest(name, broker_keys())
        return f"{name} is a setting of topics; for the whole broker it is {instead}"
    close = nearest(name, broker_keys())
    return f"{name} is not a known setting" + (f": is it {close}?" if close else "")


def without_meaning(config: BrokerConfig) -> list[str]:
    """Return the stated keys that have no effect, for one log line at the start."""
    known = broker_keys()
    return [name for name in sorted(config.stated) if name in known and known[name].kind == "inert"]


def shown_settings(config: BrokerConfig) -> list[tuple[str, str]]:
    """Return each stated key and its value, for the log; sensitive values are hidden."""
    return [
        (name, value if config.is_shown(name) else HIDDEN)
        for name, value in sorted(config.stated.items())
    ]
