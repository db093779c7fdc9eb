"""Records are put and read back: keys, partitions, tombstones, codecs of other clients, a new leader."""

import pickle
from typing import Any

import pytest

from firnline.testing import Broker, Cluster, Topic

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(firnline_session_broker: Broker) -> Broker:
    return firnline_session_broker


def test_a_record_comes_back_as_it_was_put(firnline_topic: Topic) -> None:
    firnline_topic.put("värde", key=b"\xff", headers={"a": "1", "none": None}, timestamp_ms=17)
    firnline_topic.put(None, key="gone")
    first, second = firnline_topic.records(2)
    assert first == (0, 0, 17, b"\xff", "värde".encode(), (("a", b"1"), ("none", None)))
    assert (second.offset, second.key, second.value) == (1, b"gone", None)
    assert second.timestamp_ms > 1_700_000_000_000


@pytest.mark.firnline_topic(partitions=3)
def test_partitions_are_read_one_after_the_other(firnline_topic: Topic) -> None:
    firnline_topic.put("c", "d", partition=2)
    firnline_topic.put("a", partition=0)
    assert [(r.partition, r.value) for r in firnline_topic.records()] == [
        *[(0, b"a"), (2, b"c"), (2, b"d")]
    ]


def test_settings_may_have_underscores_and_names_are_unique(broker: Broker) -> None:
    from firnline.client.admin import Admin

    settings: dict[str, Any] = {"retention.ms": 5}
    topic = broker.create_topic(cleanup_policy="compact", preallocate=True, **settings)
    assert topic != broker.create_topic()
    with Admin(broker.bootstrap) as admin:
        configs = admin.topic_configs(topic, only_changed=True)
    assert configs == {"cleanup.policy": "compact", "retention.ms": "5", "preallocate": "true"}


@pytest.mark.parametrize("like", ["what [a-b/c] ü?", "...", "x" * 400])
def test_any_test_has_a_topic_with_a_legal_name(broker: Broker, like: str) -> None:
    from firnline.testing.process import unique_name

    assert broker.create_topic(unique_name(like)).values() == []


def test_too_few_records_say_what_is_there(firnline_topic: Topic) -> None:
    firnline_topic.put("alone")
    with pytest.raises(AssertionError, match=r"has 1 records after 2 s, not 2[^$]*alone"):
        firnline_topic.records(2, timeout_s=2)


def test_what_another_client_compresses_is_read(firnline_topic: Topic) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": firnline_topic.bootstrap, "compression.type": "zstd"})
    for number in range(100):
        producer.produce(firnline_topic, b"%d" % number)
    producer.flush()
    assert firnline_topic.values(100) == [b"%d" % number for number in range(100)]


def test_a_topic_knows_its_broker_in_another_process(firnline_topic: Topic) -> None:
    again = pickle.loads(pickle.dumps(firnline_topic))  # noqa: S301
    assert (again, again.bootstrap) == (firnline_topic, firnline_topic.bootstrap)


def test_records_before_the_log_start_are_left_out(firnline_topic: Topic) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    firnline_topic.put("a", "b", "c")
    admin = AdminClient({"bootstrap.servers": firnline_topic.bootstrap})
    for done in admin.delete_records([TopicPartition(firnline_topic, 0, 2)]).values():
        done.result(10)
    assert firnline_topic.values() == [b"c"]


def test_a_topic_is_put_and_read_while_its_leader_is_gone(firnline_cluster: Cluster) -> None:
    topic = firnline_cluster.create_topic(partitions=3)
    topic.put("before")
    firnline_cluster.kill_node(firnline_cluster.leader_of(topic))
    topic.put("after")
    assert topic.values(2) == [b"before", b"after"]
