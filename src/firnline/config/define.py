"""What a configuration key is, and how it is declared: once, with everything about it. PURE.

A key that has an effect is a field of a config class (`TopicConfig`, or a section of `BrokerConfig`),
declared with `key(...)`; the field's name is Kafka's name with '_' for '.'. A key of Kafka's that has no
effect here is a row of `config/unused.py`. Both are a `ConfigKey`.

Three kinds say what a value other than the default means:

    acts      it does what Kafka's documentation says
    inert     it has no effect here (JVM threads, missing features): accepted, and named once at start
    promise   users would rely on it, and it has no effect yet: refused by name

For DescribeConfigs, `describe_broker` and `describe_topic` in `config/layers.py` return one `Entry` per key
with value, source, synonyms, type, read-only and sensitive, numbered as on the wire. Source: Apache Kafka
4.3.1's own definitions (names, types, defaults, ranges).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal, cast

Type = Literal["BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"]
Kind = Literal["acts", "inert", "promise"]
Importance = Literal["HIGH", "MEDIUM", "LOW"]
Scope = Literal["broker", "topic"]
Value = bool | int | float | str | tuple[str, ...] | None

# Numbers of DescribeConfigs' ConfigType.
TYPE_IDS: dict[Type, int] = {
    "BOOLEAN": 1,
    "STRING": 2,
    "INT": 3,
    "SHORT": 4,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
    "CLASS": 8,
    "PASSWORD": 9,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One key: its name, type, range and documentation."""

    name: str
    type: Type
    default: Value  # the constructor's default too, where a file must state the key
    valid: str  # in Kafka's notation: "[1,...,9] or -1", "[compact, delete]", ""
    importance: Importance
    scope: Scope
    kind: Kind = "acts"
    doc: str = ""
    source: str = ""  # KIP section or spec id
    synonym: str | None = None  # the broker key with a topic key's default
    is_dynamic: bool = False  # Kafka can change it without a restart
    is_required: bool = False
    is_internal: bool = False

    @property
    def attribute(self) -> str:
        """The name of the field."""
        return self.name.replace(".", "_")

    @property
    def is_sensitive(self) -> bool:
        """Never shown: not in responses, not in logs."""
        return self.type == "PASSWORD"


def key(
    type_: Type,
    default: Value,
    doc: str,
    *,
    valid: str = "",
    importance: Importance = "MEDIUM",
    source: str = "",
    synonym: str | None = None,
    kind: Kind = "acts",
    dynamic: bool = False,
    required: bool = False,
    internal: bool = False,
    name: str | None = None,
) -> Any:
    """Declare a key as the default of a dataclass field; see `ConfigKey` for the parts.

    `name` is for a key whose own name contains '_'.
    """
    facts = {
        "type": type_,
        "valid": valid,
        "importance": importance,
        "doc": doc,
        "source": source,
        "synonym": synonym,
        "kind": kind,
        "is_dynamic": dynamic,
        "is_required": required,
        "is_internal": internal,
    } | ({} if name is None else {"name": name})
    return field(default=default, metadata={"key": facts})


@cache
def declared_keys(section: type, scope: Scope) -> Mapping[str, ConfigKey]:
    """Return the keys declared in a config class, by Kafka's name, in alphabetical order."""
    found = [
        ConfigKey(
            default=cast(Value, item.default),
            scope=scope,
            **{"name": item.name.replace("_", "."), **item.metadata["key"]},
        )
        for item in fields(section)
        if "key" in item.metadata
    ]
    return {each.name: each for each in sorted(found, key=lambda each: each.name)}
