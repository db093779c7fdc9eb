"""System tables of what real brokers left: a tier, and the directories of a cluster that lost a node."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="NOT RUN: pyarrow is not installed")

from confluent_kafka import Producer

from firnline.cli.dump import facts_of
from firnline.client.admin import Admin
from firnline.testing.cluster import Cluster
from firnline.testing.plugin import TIERED_TOPIC, Broker
from tests.spark.reading_tables import rows
from tests.spark.test_tables_tier import as_dumped


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, value=b"%d" % number + b"x" * 500, partition=0)
        if number % 20 == 0:
            producer.flush()
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A log directory and a tier: a topic that was deleted and created again, and another one."""
    place = tmp_path_factory.mktemp("left")
    (place / "tier").mkdir()
    broker = Broker(place / "data", tier=place / "tier")
    broker.start()
    try:
        with Admin(broker.bootstrap) as admin:
            for topic in ("again", "other"):
                admin.create_topic(topic, partitions=2, configs=TIERED_TOPIC)
                produce(broker.bootstrap, topic, 100)
                admin.tier_flush(topic, [], timeout_s=60)
            admin.delete_topic("again")
            admin.create_topic("again", partitions=1, configs=TIERED_TOPIC)
            produce(broker.bootstrap, "again", 60)
            admin.tier_flush("again", [], timeout_s=60)
    finally:
        broker.stop()
    return place / "data", place / "tier"


def test_the_tables_of_a_tier_are_what_dump_prints_of_it(left: tuple[Path, Path]) -> None:
    _, tier = left
    heads, segments = dict[tuple[str, int], dict[str, Any]](), dict[str, dict[str, Any]]()
    for folder in tier.glob("catalog/*/*/heads"):
        newest = max(folder.iterdir())
        head, *_ = facts_of(newest)
        heads[(head["topicId"], head["partition"])] = dict(head)
        parts = [tier / ref["key"] for ref in head["parts"]]
        for file in (newest, *parts):
            segments |= {fact["stem"]: dict(fact) for fact in facts_of(file) if "stem" in fact}
    found = rows("segments", tier_uri=tier)
    assert len(found) > 5
    assert {row["stem"]: as_dumped(row) for row in found} == segments
    partitions = {(r["topic_id"], r["partition"]): r for r in rows("partitions", tier_uri=tier)}
    assert {
        key: (
            r["topic"],
            r["leader_epoch"],
            r["sequence"],
            r["log_start_offset"],
            r["log_end_offset"],
        )
        for key, r in partitions.items()
    } == {
        key: (h["topic"], h["leaderEpoch"], h["sequence"], h["logStartOffset"], h["logEndOffset"])
        for key, h in heads.items()
    }
    topics = {row["topic_id"]: row for row in rows("topics", tier_uri=tier)}
    assert {row["topic"] for row in topics.values() if not row["is_deleted"]} == {"again", "other"}
    assert {topic_id for topic_id, _ in heads} <= set(topics)


def test_the_metadata_and_the_tier_join_by_the_ids_of_topics(left: tuple[Path, Path]) -> None:
    data, tier = left
    now = {row["topic_id"]: row for row in rows("topics", log_dirs=data)}
    of_tier = {r["topic_id"]: r for r in rows("topics", tier_uri=tier) if not r["is_deleted"]}
    assert {of_tier[i]["topic"] for i in of_tier} == {"again", "other"}
    assert all(now[topic_id]["topic"] == row["topic"] for topic_id, row in of_tier.items())
    assert {r["topic"]: r["partitions"] for r in now.values()}["again"] == 1
    # Before the deletion the name had another id.
    removed = [r for r in rows("metadata", log_dirs=data) if r["type"] == "RemoveTopicRecord"]
    before = rows("topics", log_dirs=data, asOfOffset=removed[0]["offset"])
    (former,) = [row for row in before if row["topic"] == "again"]
    assert former["topic_id"] == removed[0]["topic_id"]
    assert former["topic_id"] not in now
    assert former["partitions"] == 2


def test_a_node_that_was_killed_leaves_the_isr_and_returns_under_a_new_epoch(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path / "cluster", nodes=3)
    cluster.start()
    try:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topic("t", partitions=1, configs={})
        produce(cluster.bootstrap, "t", 20)
        leader = cluster.leader_of("t")
        victim = next(n for n in cluster.node_ids if n != leader)
        cluster.kill_node(victim)
        produce(cluster.bootstrap, "t", 20)  # acknowledged when the ISR is without it
        cluster.start_node(victim)
        cluster.await_in_sync("t")
    finally:
        cluster.stop()
    logs = sorted((tmp_path / "cluster").rglob("__cluster_metadata-0"))
    assert len(logs) == 3
    dirs = ",".join(str(log.parent) for log in logs)
    epochs: list[int | None] = []
    for row in rows("isr", log_dirs=dirs):
        if row["topic"] == "t" and row["isr"] is not None:
            members = {m["broker_id"]: m["broker_epoch"] for m in row["isr"]}
            epochs.append(members.get(victim))
            assert all(epoch is not None and epoch < row["offset"] for epoch in members.values())
    gone = epochs.index(None)
    assert gone > 0
    first, last = epochs[0], epochs[gone:]
    back = [epoch for epoch in last if epoch is not None]
    assert first is not None
    assert back
    assert min(back) > first
    (now,) = [row for row in rows("partitions", log_dirs=dirs) if row["topic"] == "t"]
    assert sorted(now["replicas"]) == list(cluster.node_ids)
