"""What operators do to settings and internal topics under a running node: deleted, altered, lowered."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from firnline.base.errors import KafkaError
from firnline.client.admin import Admin
from firnline.testing.plugin import TIERED_TOPIC, Broker
from tests.chaos.operators import RECORDS, fill, numbers, produce, running
from tests.chaos.workload import PATIENCE_S, SILENT
from tests.peers.nodes import bytes_in

ALL = list(range(RECORDS))
OFFSETS, TIER_METADATA = "__consumer_offsets", "__remote_log_metadata"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    base = tmp_path_factory.mktemp("settings")
    settings = (
        "log.retention.check.interval.ms=300",
        "firnline.new.topics.remote.storage.enable=false",
    )
    options = [word for each in settings for word in ("-X", each)]
    with running(Broker(base / "data", tier=base / "tier", options=options)) as found:
        fill(found, "kept", "short")
        yield found


def group(broker: Broker, name: str) -> Consumer:
    return Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name, **SILENT})


def commit(broker: Broker, name: str, offset: int) -> None:
    member = group(broker, name)
    member.commit(offsets=[TopicPartition("kept", 0, offset)], asynchronous=False)
    member.close()


def committed(broker: Broker, name: str) -> int:
    member = group(broker, name)
    try:
        (found,) = member.committed([TopicPartition("kept", 0)], timeout=PATIENCE_S)
        return int(found.offset)
    finally:
        member.close()


def test_the_offsets_of_groups_are_neither_deleted_nor_cut_short(broker: Broker) -> None:
    """Kafka takes both, and all groups begin where auto.offset.reset says."""
    commit(broker, "readers", 7)
    with Admin(broker.bootstrap) as admin:
        with pytest.raises(KafkaError, match=OFFSETS):
            admin.delete_topic(OFFSETS)
        with pytest.raises(KafkaError, match=OFFSETS):
            admin.alter_topic(OFFSETS, changes={"cleanup.policy": "delete"})
    assert committed(broker, "readers") == 7
    commit(broker, "readers", 9)
    assert committed(broker, "readers") == 9


def test_the_metadata_of_the_tier_is_neither_deleted_nor_cut_short(broker: Broker) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("tiered", partitions=1, replication_factor=1, configs=TIERED_TOPIC)
        produce(broker, "tiered", 0)
        admin.tier_flush("tiered", (), timeout_s=PATIENCE_S)
        with pytest.raises(KafkaError, match=TIER_METADATA):
            admin.delete_topic(TIER_METADATA)
        for changes in ({"cleanup.policy": "compact"}, {"retention.ms": "1000"}):
            with pytest.raises(KafkaError):
                admin.alter_topic(TIER_METADATA, changes=changes)
    assert numbers(broker, "tiered") == ALL


def test_retention_that_is_lowered_costs_what_it_says(broker: Broker) -> None:
    """Raised again it brings nothing back; other topics keep theirs."""
    with Admin(broker.bootstrap) as admin:
        admin.alter_topic("short", changes={"retention.ms": "1"})
        logs = Path(broker.directory) / "short-0"
        deadline = time.monotonic() + PATIENCE_S
        while bytes_in(logs, "*.log"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        admin.alter_topic("short", changes={"retention.ms": "-1"})
    produce(broker, "short", RECORDS, 3)
    assert numbers(broker, "short") == [RECORDS, RECORDS + 1, RECORDS + 2]
    assert numbers(broker, "kept") == ALL
