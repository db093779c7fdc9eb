"""`__remote_log_metadata` alone says what the tier holds: nothing a client asks makes it forget."""

from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.errors import CannotGoOn, Code
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC as METADATA
from firnline.config.layers import broker_config
from firnline.controller import system_topics
from firnline.protocol.messages import k33_alter_configs as m33
from firnline.protocol.messages import k44_incremental_alter_configs as m44
from firnline.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from firnline.stores.memory import MemoryStore
from tests.worlds.harness import Harness

DAY_MS = 86_400_000
TIERED: dict[str, Any] = {"remote_storage_enable": "true", "retention_ms": str(7 * DAY_MS)}


@pytest.fixture
def harness() -> Harness:
    made = Harness(store=MemoryStore())
    made.create_topic(**TIERED)
    return made


def changed(harness: Harness, topic: str, key: str, value: str | None) -> tuple[int, str]:
    """IncrementalAlterConfigs of one key; None deletes it."""
    row = m44.AlterableConfig(name=key, config_operation=0 if value is not None else 1, value=value)
    resource = m44.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[row])
    request = m44.IncrementalAlterConfigsRequest(resources=[resource])
    [answer] = harness.ask(request, 1).responses
    return answer.error_code, answer.error_message or ""


def replaced(harness: Harness, topic: str, key: str, value: str | None) -> tuple[int, str]:
    """AlterConfigs with that key alone."""
    rows = [] if value is None else [m33.AlterableConfig(name=key, value=value)]
    resource = m33.AlterConfigsResource(resource_type=2, resource_name=topic, configs=rows)
    request = m33.AlterConfigsRequest(resources=[resource])
    [answer] = harness.ask(request, 2).responses
    return answer.error_code, answer.error_message or ""


def test_it_is_not_deleted_by_name_or_by_id(harness: Harness) -> None:
    topic = harness.node.image.topic(METADATA)
    assert topic is not None
    for state in (DeleteTopicState(name=METADATA), DeleteTopicState(topic_id=topic.topic_id)):
        [answer] = harness.ask(DeleteTopicsRequest(topics=[state]), 6).responses
        assert answer.error_code == Code.POLICY_VIOLATION
        assert "says what the tier holds" in (answer.error_message or "")
    assert harness.node.image.topic(METADATA) is topic


@pytest.mark.parametrize("alter", [changed, replaced])
@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("cleanup.policy", "compact", "cannot be compacted"),
        ("cleanup.policy", "compact,delete", "cannot be compacted"),
        ("retention.ms", "1000", "and t has 604800000"),
        ("retention.ms", str(7 * DAY_MS), "and t has 604800000"),
        ("retention.ms", None, "and t has 604800000"),  # the brokers' default, as long as t's
        ("retention.bytes", "1000", "whatever their age"),
        ("remote.storage.enable", "true", "is internal"),
    ],
)
def test_what_would_let_it_forget_is_refused(
    harness: Harness,
    alter: Callable[..., tuple[int, str]],
    key: str,
    value: str | None,
    said: str,
) -> None:
    before = dict(harness.node.image.topic_config_overrides(METADATA))
    code, why = alter(harness, METADATA, key, value)
    assert code == Code.INVALID_CONFIG
    assert said in why or alter is replaced
    assert dict(harness.node.image.topic_config_overrides(METADATA)) == before


def test_a_retention_above_every_tiered_topics_is_taken_and_holds_them(harness: Harness) -> None:
    assert changed(harness, METADATA, "retention.ms", str(8 * DAY_MS))[0] == 0
    assert changed(harness, "t", "retention.ms", str(8 * DAY_MS))[0] == Code.INVALID_CONFIG
    assert changed(harness, "t", "retention.ms", "-1")[0] == Code.INVALID_CONFIG
    assert changed(harness, "t", "retention.ms", str(8 * DAY_MS - 1))[0] == 0
    assert changed(harness, METADATA, "retention.ms", "-1")[0] == 0
    assert changed(harness, "t", "retention.ms", "-1")[0] == 0


def test_a_new_tiered_topic_outlives_no_record_of_it(harness: Harness) -> None:
    assert changed(harness, METADATA, "retention.ms", str(8 * DAY_MS))[0] == 0
    rows = [
        CreatableTopicConfig(name="remote.storage.enable", value="true"),
        CreatableTopicConfig(name="retention.ms", value=str(9 * DAY_MS)),
    ]
    wanted = CreatableTopic(name="u", num_partitions=1, replication_factor=1, configs=rows)
    [made] = harness.ask(CreateTopicsRequest(topics=[wanted]), 7).topics
    assert made.error_code == Code.INVALID_CONFIG


def test_nobody_makes_it_beforehand_with_settings_that_forget() -> None:
    harness = Harness()
    rows = [CreatableTopicConfig(name="cleanup.policy", value="compact")]
    wanted = CreatableTopic(name=METADATA, num_partitions=1, replication_factor=1, configs=rows)
    [made] = harness.ask(CreateTopicsRequest(topics=[wanted]), 7).topics
    assert made.error_code == Code.INVALID_CONFIG


def test_the_brokers_limit_of_bytes_is_not_meant_for_it() -> None:
    harness = Harness(store=MemoryStore(), log_retention_bytes="1000")
    harness.create_topic(**TIERED)
    partition = harness.node.partitions[METADATA, 0]
    assert partition.log.config.retention_bytes == -1


def test_a_node_with_another_number_of_partitions_stops_and_names_the_right_one() -> None:
    """T17: it would look for the records of a topic in the wrong partition."""
    fs = Harness(store=MemoryStore()).stop()
    count: Any = {"rlmm_config_remote_log_metadata_topic_num_partitions": "3"}
    with pytest.raises(CannotGoOn, match=r"has 2 partitions, and .* is 3: set it to 2"):
        Harness(fs=fs, store=MemoryStore(), **count)


def test_topics_that_a_new_default_lets_outlive_their_metadata_are_warned_of() -> None:
    """T52: changes of topics are refused, but no one asks the topics when the default of brokers changes."""
    limit: Any = {"rlmm_config_remote_log_metadata_topic_retention_ms": str(3 * DAY_MS)}
    node = Harness(store=MemoryStore(), log_retention_ms=str(DAY_MS), **limit)
    node.create_topic(remote_storage_enable="true")
    assert not [line for line in node.warnings if "kept longer" in line]

    def altered(value: str | None) -> None:
        row = m44.AlterableConfig(
            name="log.retention.ms", config_operation=0 if value else 1, value=value
        )
        resource = m44.AlterConfigsResource(resource_type=4, resource_name="", configs=[row])
        [answer] = node.ask(m44.IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert answer.error_code == 0, answer
        node.pass_time(10)

    altered(str(3 * DAY_MS))
    (line,) = [line for line in node.warnings if "kept longer" in line]
    assert "segments topics=t metadata_topic=__remote_log_metadata" in line
    again = Harness(fs=node.stop(), store=MemoryStore(), log_retention_ms=str(DAY_MS), **limit)
    again.pass_time(1000)
    assert [line for line in again.warnings if "kept longer" in line] == [line]
    node = again
    altered(None)
    assert len([each for each in again.warnings if "kept longer" in each]) == 1


def test_the_topics_of_a_large_cluster_are_looked_through_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system_topics, "TOPICS_PER_SLICE", 2)
    limit: Any = {"rlmm_config_remote_log_metadata_topic_retention_ms": str(3 * DAY_MS)}
    node = Harness(store=MemoryStore(), log_retention_ms=str(DAY_MS), **limit)
    for number in range(7):
        node.create_topic(f"t{number}", remote_storage_enable="true")
    config = broker_config(node.config, {"log.retention.ms": str(9 * DAY_MS)})
    steps = system_topics.outliving_topics(node.node.image, config)
    slices = 1
    found: list[str] | None = None
    while found is None:
        try:
            next(steps)
            slices += 1
        except StopIteration as end:
            found = end.value
    assert (found, slices) == ([f"t{number}" for number in range(7)], 4)
