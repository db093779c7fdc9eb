"""Levels of loggers as configs: the resource BROKER_LOGGER, of which each broker has its own. PURE.

They are no part of the metadata: a level holds on one broker, until it stops. Error codes are those of Apache
Kafka 4.3.1. Source: KIP-412.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from firnline.base.errors import Code, KafkaError
from firnline.base.ports import KAFKA_LOG_LEVELS, ROOT_LOGGER
from firnline.config.layers import Entry
from firnline.controller.configs import AlterOp

if TYPE_CHECKING:
    from firnline.api.forwarding import AnyNode

# ConfigSource and ConfigType of DescribeConfigs, as Kafka answers for loggers.
_DYNAMIC_BROKER_LOGGER, _UNKNOWN_TYPE = 6, 0


def describe_loggers(node: "AnyNode", name: str) -> list[Entry] | KafkaError:
    """Return the level in force of each logger; `name`: the resource's, the id of this node."""
    problem = _not_here(node, name)
    if problem is not None:
        return problem
    return [
        Entry(logger, level, _DYNAMIC_BROKER_LOGGER, _UNKNOWN_TYPE, False, False, (), "")
        for logger, level in node.loggers.levels().items()
    ]


def alter_loggers(node: "AnyNode", resource: Any, *, validate_only: bool) -> KafkaError | None:
    """Set levels as a row of IncrementalAlterConfigs says, all or none; or refuse one of AlterConfigs."""
    rows: Sequence[Any] = resource.configs
    if any(not hasattr(row, "config_operation") for row in rows):
        why = "AlterConfigs does not set levels of loggers: use IncrementalAlterConfigs"
        return KafkaError(Code.INVALID_REQUEST, why)
    problem = _not_here(node, resource.resource_name)
    if problem is None and any(n > 1 for n in Counter(row.name for row in rows).values()):
        problem = KafkaError(Code.INVALID_REQUEST, "the request names a logger twice")
    known = node.loggers.levels()
    for row in rows:
        problem = problem or _problem(row, known)
    if problem is None and not validate_only:
        for row in rows:
            is_set = row.config_operation == AlterOp.SET
            node.loggers.set_level(row.name, row.value if is_set else None)
    return problem


def _not_here(node: "AnyNode", name: str) -> KafkaError | None:
    if not name.isdecimal():
        return KafkaError(Code.INVALID_REQUEST, f"a broker's id is a number, not {name!r}")
    if int(name) != node.node_id:
        return KafkaError(Code.INVALID_REQUEST, f"this is broker {node.node_id}, not {name}")
    return None


def _problem(row: Any, known: dict[str, str]) -> KafkaError | None:
    op = row.config_operation
    if op not in (AlterOp.SET, AlterOp.DELETE):
        why = "a level can be set or deleted; APPEND and SUBTRACT are for lists"
        return KafkaError(Code.INVALID_REQUEST, why)
    if op == AlterOp.SET and row.value is None:
        return KafkaError(Code.INVALID_REQUEST, f"the level of {row.name!r} is null")
    if row.name not in known:
        why = f"there is no logger {row.name!r}: {', '.join(known)}"
        return KafkaError(Code.INVALID_CONFIG, why)
    if op == AlterOp.DELETE and row.name == ROOT_LOGGER:
        why = "the level of the root logger cannot be deleted: every logger may follow it"
        return KafkaError(Code.INVALID_REQUEST, why)
    if op == AlterOp.SET and row.value not in KAFKA_LOG_LEVELS:
        why = f"{row.value!r} is no level: {', '.join(KAFKA_LOG_LEVELS)}"
        return KafkaError(Code.INVALID_CONFIG, why)
    return None
