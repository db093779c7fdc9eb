"""What the system believes, the system alone writes; nobody deletes it or lets it forget. Decision 0025."""

from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.config.broker import BrokerConfig
from firnline.config.load import load
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from firnline.protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from firnline.records.build import NewRecord, build_batch
from firnline.stores.memory import MemoryStore
from tests.unit.broker.test_tier_metadata_topic import changed
from tests.unit.broker.test_tier_replicas import World
from tests.worlds.harness import SETTINGS, Harness

GROUPS, TIER = "__consumer_offsets", "__remote_log_metadata"
TIERED: dict[str, Any] = {"remote_storage_enable": "true"}


@pytest.fixture
def harness() -> Harness:
    made = Harness(store=MemoryStore())
    made.create_topic(**TIERED)
    made.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    assert made.node.image.topic(GROUPS) is not None
    return made


@pytest.mark.parametrize("topic", [GROUPS, TIER])
@pytest.mark.parametrize("acks", [1, -1])
def test_no_client_forges_what_a_node_alone_believes(
    harness: Harness, topic: str, acks: int
) -> None:
    before = harness.node.partitions[topic, 0].log.log_end_offset
    answer = harness.produced("forged", topic=topic, acks=acks)
    assert answer.error_code == Code.INVALID_TOPIC_EXCEPTION
    assert harness.node.partitions[topic, 0].log.log_end_offset == before


def test_no_client_forges_it_in_a_request_that_is_taken_in_slices(harness: Harness) -> None:
    row = bytes(build_batch([NewRecord(None, b"forged", 1)]))
    parts = [PartitionProduceData(index=0, records=row) for _ in range(150)]
    request = ProduceRequest(
        acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name=TIER, partition_data=parts)]
    )
    [topic] = harness.ask(request, 9).responses
    assert {part.error_code for part in topic.partition_responses} == {Code.INVALID_TOPIC_EXCEPTION}


@pytest.mark.parametrize("topic", [GROUPS, TIER])
def test_they_are_not_deleted(harness: Harness, topic: str) -> None:
    [answer] = harness.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)]), 6).responses
    assert answer.error_code == Code.POLICY_VIOLATION
    assert topic in (answer.error_message or "")
    assert harness.node.image.topic(topic) is not None


def test_what_the_tier_holds_is_found_by_the_number_of_partitions_which_stays(
    harness: Harness,
) -> None:
    """One more, and each later start found another number than it knows: no tier, and no way back."""
    before = len(harness.node.image.topic(TIER).partitions)  # type: ignore[union-attr]
    more = CreatePartitionsTopic(name=TIER, count=before + 1, assignments=None)
    [answer] = harness.ask(CreatePartitionsRequest(topics=[more], timeout_ms=1_000), 3).results
    assert answer.error_code == Code.POLICY_VIOLATION
    assert TIER in (answer.error_message or "")
    assert len(harness.node.image.topic(TIER).partitions) == before  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cleanup.policy", "delete"),
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", None),  # the brokers' default, which deletes
        ("remote.storage.enable", "true"),
    ],
)
def test_groups_do_not_forget_by_age(harness: Harness, key: str, value: str | None) -> None:
    before = dict(harness.node.image.topic_config_overrides(GROUPS))
    assert changed(harness, GROUPS, key, value)[0] == Code.INVALID_CONFIG
    assert dict(harness.node.image.topic_config_overrides(GROUPS)) == before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "1000"),  # no limit of a topic that is compacted
        ("segment.bytes", "2000000"),
        ("min.insync.replicas", "1"),
    ],
)
def test_what_loses_nothing_is_taken(harness: Harness, key: str, value: str) -> None:
    assert changed(harness, GROUPS, key, value) == (0, "")


def with_listeners(listeners: str, **more: str) -> BrokerConfig:
    stated = {name.replace("_", "."): value for name, value in more.items()}
    names = "PLAINTEXT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT"
    protocols = {"listener.security.protocol.map": names}
    return load(SETTINGS | protocols | {"listeners": listeners} | stated)


def test_a_listener_is_shared_unless_it_is_named_and_clients_have_another() -> None:
    one, two = "PLAINTEXT://:9092", "PLAINTEXT://:9092,BROKER://:9094"
    named = {"inter_broker_listener_name": "BROKER"}
    assert with_listeners(one).shares_broker_listener
    assert with_listeners(two).shares_broker_listener
    assert with_listeners("BROKER://:9094", **named).shares_broker_listener
    assert not with_listeners(two, **named).shares_broker_listener
    assert with_listeners(two, **named).broker_listeners == {"BROKER"}
    both = {"remote_log_metadata_manager_listener_name": "plaintext", **named}
    assert with_listeners(two, **both).shares_broker_listener


def test_a_node_that_is_alone_and_one_without_a_tier_say_nothing_of_listeners() -> None:
    for made in (Harness(), Harness(store=MemoryStore())):
        assert not [line for line in made.warnings if "listener" in line]


def test_brokers_of_a_tier_say_once_that_clients_could_forge_what_it_holds() -> None:
    world = World()
    for node_id in world.living:
        assert (
            len([line for line in world.rig[node_id].warnings if "share a listener" in line]) == 1
        )
        producing = world.rig[node_id].broker.producing
        assert producing.origin_at("PLAINTEXT") == "broker"
        assert producing.origin_at("OTHER") == "client"


def test_new_topics_are_tiered_where_the_broker_says_so_and_no_rule_forbids_it() -> None:
    switch = "remote.storage.enable"

    def made(harness: Harness, name: str, **configs: Any) -> dict[str, str]:
        harness.create_topic(name, **configs)
        return dict(harness.node.image.topic_config_overrides(name))

    key: dict[str, Any] = {"firnline_new_topics_remote_storage_enable": "true"}
    harness = Harness(store=MemoryStore(), **key)
    harness.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    assert switch not in harness.node.image.topic_config_overrides(GROUPS)
    assert harness.node.image.topic_config_overrides(TIER)[switch] == "false"
    assert made(harness, "plain") == {switch: "true"}
    assert made(harness, "local", remote_storage_enable="false") == {switch: "false"}
    assert made(harness, "latest", cleanup_policy="compact") == {"cleanup.policy": "compact"}
    # Local files that stay longer than the topic's records: nobody has asked for a tier, so it has none.
    odd = made(harness, "odd", retention_ms="1000", local_retention_ms="2000")
    assert switch not in odd
    assert made(Harness(store=MemoryStore()), "plain") == {}
    assert made(Harness(**key), "plain") == {}, "a broker without a tier"
