"""Alterations of settings as requests bring them: each resource on its own."""

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.controller.configs import Alteration, AlterOp
from firnline.controller.topics import NewTopic
from firnline.metadata.image import ConfigResource
from tests.worlds.quorum import Cluster

TOPIC, BROKER = 2, 4


def set_for_all_brokers(cluster: Cluster, key: str, value: str) -> KafkaError | None:
    wanted = [(ConfigResource(BROKER, ""), [Alteration(key, AlterOp.SET, value)])]
    [answer] = cluster.write(cluster.controller.incremental_alter_configs(wanted))
    assert answer is None or isinstance(answer, KafkaError)
    return answer


def test_a_resource_that_a_request_names_twice_is_not_altered_and_the_others_are() -> None:
    """Which of the two came last was chance."""
    cluster = Cluster().with_brokers(1)
    topics = [NewTopic(name, assignments={0: (1,)}) for name in ("a", "b")]
    cluster.write(cluster.controller.create_topics(topics))
    wanted = [
        (ConfigResource(TOPIC, name), [Alteration("retention.ms", AlterOp.SET, value)])
        for name, value in (("a", "1"), ("b", "2"), ("a", "3"))
    ]
    first, other, second = cluster.write(cluster.controller.incremental_alter_configs(wanted))
    for answer in (first, second):
        assert isinstance(answer, KafkaError)
        assert answer.code is Code.INVALID_REQUEST
    assert other is None
    image = cluster.quorum.image
    assert not image.topic_config_overrides("a")
    assert dict(image.topic_config_overrides("b")) == {"retention.ms": "2"}


def test_a_list_is_not_appended_to_beyond_what_a_record_can_hold() -> None:
    """Two requests that are fine each, and a value that no request, answer or record can say together."""
    cluster = Cluster().with_brokers(1)
    cluster.write(cluster.controller.create_topics([NewTopic("a", assignments={0: (1,)})]))
    key = "leader.replication.throttled.replicas"
    first, more = (",".join(f"{n}:1" for n in range(at, at + 4000)) for at in (1000, 10_000))

    def alter(op: AlterOp, value: str) -> KafkaError | None:
        wanted = [(ConfigResource(TOPIC, "a"), [Alteration(key, op, value)])]
        [answer] = cluster.write(cluster.controller.incremental_alter_configs(wanted))
        return answer

    assert alter(AlterOp.SET, first) is None
    refused = alter(AlterOp.APPEND, more)
    assert refused is not None
    assert refused.code is Code.INVALID_CONFIG
    assert dict(cluster.quorum.image.topic_config_overrides("a")) == {key: first}
    assert alter(AlterOp.APPEND, "9:9") is None


def test_a_promise_that_nobody_keeps_is_not_made_at_run_time_either() -> None:
    """An operator who sets a limit on new connections would believe that there is one."""
    cluster = Cluster().with_brokers(1)
    refused = set_for_all_brokers(cluster, "max.connection.creation.rate", "100")
    assert refused is not None
    assert refused.code is Code.INVALID_CONFIG
    assert "max.connection.creation.rate is not supported yet" in refused.why
    no_limit = str(2**31 - 1)
    assert set_for_all_brokers(cluster, "max.connection.creation.rate", no_limit) is None


@pytest.mark.parametrize("text", ["3", "3:9-8", "0:1,3:x"])
def test_what_is_no_span_of_metadata_is_not_given_up(text: str) -> None:
    """It would be taken, skip nothing, and the tier would stand still as before."""
    cluster = Cluster().with_brokers(1)
    key = "firnline.remote.log.metadata.given.up"
    refused = set_for_all_brokers(cluster, key, text)
    assert refused is not None
    assert refused.code is Code.INVALID_REQUEST
    assert "does not have the form partition:offset" in refused.why
    assert set_for_all_brokers(cluster, key, "0:1,3:7-9") is None
