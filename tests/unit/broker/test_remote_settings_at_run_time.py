"""Settings `remote.*` that are altered at run time act at once, or are refused: none is taken and ignored."""

from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.config.broker import broker_keys
from firnline.config.layers import broker_config, describe_broker, may_change
from firnline.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from firnline.stores.memory import MemoryStore
from firnline.tiered.remote_log import RemoteLog
from tests.worlds.harness import Harness

VALUE = 12345
KEYS = {name: key for name, key in broker_keys().items() if name.startswith("remote.")}


def _tier(node: Harness) -> RemoteLog:
    assert node.node.tier is not None
    return node.node.tier


# What each key that Kafka alters at run time is read from, by the code that acts on it.
ACTS: dict[str, Callable[[Harness], int]] = {
    "remote.fetch.max.wait.ms": lambda node: node.node.fetching.remote_max_wait_ms,
    "remote.list.offsets.request.timeout.ms": lambda node: node.node.listing_offsets.timeout_ms,
    "remote.log.index.file.cache.total.size.bytes": (
        lambda node: _tier(node).services.settings.index_cache_bytes
    ),
    "remote.log.manager.copy.max.bytes.per.second": (
        lambda node: _tier(node).services.copy_rate.bytes_per_second
    ),
    "remote.log.manager.fetch.max.bytes.per.second": (
        lambda node: _tier(node).services.fetch_rate.bytes_per_second
    ),
}


@pytest.fixture
def node() -> Harness:
    return Harness(store=MemoryStore())


def alter(node: Harness, name: str, value: str | None, broker: str = "") -> tuple[int, str]:
    """IncrementalAlterConfigs of a broker, or of all; None deletes the key."""
    row = AlterableConfig(name=name, config_operation=0 if value else 1, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name=broker, configs=[row])
    [answer] = node.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    node.pass_time(10)
    return answer.error_code, answer.error_message or ""


def test_every_key_that_may_be_altered_is_known_to_act() -> None:
    assert {name for name, key in KEYS.items() if may_change(key)} == set(ACTS)


@pytest.mark.parametrize("name", sorted(ACTS))
@pytest.mark.parametrize("broker", ["", "1"])
def test_it_acts_at_once_and_no_more_once_it_is_deleted(
    node: Harness, name: str, broker: str
) -> None:
    before = ACTS[name](node)
    assert before != VALUE
    assert alter(node, name, str(VALUE), broker) == (0, "")
    assert ACTS[name](node) == VALUE
    assert alter(node, name, None, broker) == (0, "")
    assert ACTS[name](node) == before


def test_whether_followers_begin_at_the_last_tiered_offset_is_altered_at_once(
    node: Harness,
) -> None:
    """T51: Kafka alters it at run time, too."""
    name, replication = "follower.fetch.last.tiered.offset.enable", node.node.parts.replication
    assert not replication.begins_at_last_tiered
    assert alter(node, name, "true") == (0, "")
    assert replication.begins_at_last_tiered
    assert alter(node, name, None) == (0, "")
    assert not replication.begins_at_last_tiered


def test_it_acts_after_a_restart(node: Harness) -> None:
    for name in ACTS:
        assert alter(node, name, str(VALUE)) == (0, "")
    again = Harness(fs=node.stop(), store=MemoryStore())
    assert {name: found(again) for name, found in ACTS.items()} == dict.fromkeys(ACTS, VALUE)


def test_the_setting_of_a_broker_wins_over_that_of_all(node: Harness) -> None:
    name = "remote.log.manager.copy.max.bytes.per.second"
    alter(node, name, "1000")
    alter(node, name, "2000", "1")
    assert ACTS[name](node) == 2000
    alter(node, name, None, "1")
    assert ACTS[name](node) == 1000


@pytest.mark.parametrize("name", sorted(name for name, key in KEYS.items() if not may_change(key)))
def test_any_other_key_is_refused_by_name(node: Harness, name: str) -> None:
    key = KEYS[name]
    value: Any = {"BOOLEAN": "true", "DOUBLE": "0.25", "STRING": "x"}.get(key.type, str(VALUE))
    code, message = alter(node, name, value)
    assert code in (Code.INVALID_REQUEST, Code.INVALID_CONFIG), name
    assert name in message


@pytest.mark.parametrize("name", sorted(ACTS))
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "much", str(1 << 63)])
def test_a_value_that_cannot_be_meant_is_refused_and_changes_nothing(
    node: Harness, name: str, value: str
) -> None:
    before = ACTS[name](node)
    code, message = alter(node, name, value)
    assert code == Code.INVALID_REQUEST
    assert name in message
    assert ACTS[name](node) == before


def test_what_kafka_altered_before_a_migration_is_not_said_to_act(node: Harness) -> None:
    """The metadata may have a setting that this release reads at the start alone."""
    name = "remote.log.reader.threads"
    config = broker_config(node.config, {name: str(VALUE)})
    assert config.remote_log_reader_threads == 10
    [entry] = [
        e for e in describe_broker(node.config, cluster={name: str(VALUE)}) if e.name == name
    ]
    assert (entry.value, entry.is_read_only) == ("10", True)
    assert str(VALUE) not in [synonym.value for synonym in entry.synonyms]
