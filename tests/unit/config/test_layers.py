"""Which layer wins, what topics may not be told, and what DescribeConfigs answers."""

import pytest

from firnline.base.errors import Code
from firnline.config import layers
from firnline.config.broker import BrokerConfig
from firnline.config.layers import (
    broker_config,
    check_topic,
    describe_broker,
    describe_topic,
    topic_config,
)
from firnline.config.load import load
from firnline.config.topic import TopicConfig

NODE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
}
TIERED = BrokerConfig(
    remote_log_storage_system_enable=True, remote_log_storage_manager_class_name="x"
)


def test_without_settings_a_topic_gets_kafkas_defaults() -> None:
    assert topic_config(BrokerConfig(), {}) == TopicConfig()


def test_a_topic_override_precedes_the_brokers_synonym() -> None:
    broker = BrokerConfig(log_segment_bytes=2_000_000, log_retention_bytes=7)
    config = topic_config(broker, {"segment.bytes": "3000000"})
    assert (config.segment_bytes, config.retention_bytes) == (3_000_000, 7)


@pytest.mark.parametrize(
    ("stated", "ms"),
    [
        ({"log_retention_hours": 1}, 3_600_000),
        ({"log_retention_hours": 1, "log_retention_minutes": 2}, 120_000),
        ({"log_retention_hours": 1, "log_retention_minutes": 2, "log_retention_ms": 3}, 3),
        ({"log_retention_hours": -1}, -1),
        ({"log_retention_minutes": -1}, -1),
    ],
)
def test_the_finest_retention_wins(stated: dict[str, int], ms: int) -> None:
    assert topic_config(BrokerConfig(**stated), {}).retention_ms == ms  # type: ignore[arg-type]


def test_roll_and_flush_have_coarser_names_too() -> None:
    config = topic_config(
        BrokerConfig(log_roll_hours=2, log_roll_jitter_hours=1, log_flush_scheduler_interval_ms=9),
        {},
    )
    assert (config.segment_ms, config.segment_jitter_ms) == (7_200_000, 3_600_000)
    assert config.flush_ms == 9
    finer = BrokerConfig(log_roll_ms=5, log_roll_jitter_ms=4, log_flush_interval_ms=3)
    config = topic_config(finer, {})
    assert (config.segment_ms, config.segment_jitter_ms, config.flush_ms) == (5, 4, 3)


def test_every_topic_key_with_a_synonym_takes_the_brokers_value() -> None:
    """Goal: no synonym is forgotten. Method: give the broker key another value, look at the topic."""
    from firnline.config.topic import topic_keys

    for key in topic_keys().values():
        if key.synonym is None or key.kind != "acts":
            continue
        attribute = key.synonym.replace(".", "_")
        other = {int: 12345, float: 0.25, bool: True, str: "other", tuple: ("compact",)}
        kind = type(key.default)
        broker = BrokerConfig(**{attribute: other[kind]})  # type: ignore[arg-type]
        assert getattr(topic_config(broker, {}), key.attribute) == other[kind], key.name


def test_a_small_segment_for_tests_goes_through_the_internal_key() -> None:
    config = topic_config(BrokerConfig(), {"internal.segment.bytes": "200"})
    assert config.segment_bytes == 200


def test_an_override_of_a_later_release_does_not_stop_a_topic() -> None:
    config = topic_config(BrokerConfig(), {"segment.bytes": "huge", "new.key": "1"})
    assert config == TopicConfig()


def test_what_was_altered_at_run_time_precedes_the_file() -> None:
    broker = BrokerConfig(log_retention_ms=1)
    cluster, node = {"log.retention.ms": "2"}, {"log.retention.ms": "3"}
    assert broker_config(broker, cluster).log_retention_ms == 2
    assert broker_config(broker, cluster, node).log_retention_ms == 3
    assert broker_config(broker) is broker


def test_what_needs_a_restart_is_not_changed_without_one() -> None:
    broker = BrokerConfig()
    assert broker_config(broker, {"num.partitions": "9", "num.io.threads": "3"}) == broker


# ------------------------------------------------------------------------------- rules of topics


def refused(overrides: dict[str, str], broker: BrokerConfig = TIERED, **options: object) -> str:
    problem = check_topic(broker, overrides, **options)  # type: ignore[arg-type]
    assert problem is not None
    assert problem.code == Code.INVALID_CONFIG
    return problem.why


def test_an_unknown_topic_key_names_the_nearest() -> None:
    assert refused({"retention.mss": "1"}) == (
        "retention.mss is not a setting of topics: is it retention.ms?"
    )


# T7, each observed on Apache Kafka 4.3.1 but for the last two, which its alter path refuses.
@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"cleanup.policy": "compact"}, "exclude each other"),
        ({"cleanup.policy": "compact,delete"}, "exclude each other"),
        ({"local.retention.ms": "1000", "retention.ms": "500"}, "must not exceed"),
        ({"local.retention.ms": "-1", "retention.ms": "500"}, "local.retention.ms=-1"),
        ({"local.retention.bytes": "5", "retention.bytes": "4"}, "must not exceed"),
        ({"local.retention.bytes": "-1", "retention.bytes": "4"}, "local.retention.bytes=-1"),
        ({"remote.log.copy.disable": "true", "local.retention.ms": "5"}, "copy.disable"),
        ({"remote.log.copy.disable": "true", "local.retention.bytes": "5"}, "copy.disable"),
    ],
)
def test_a_tiered_topic_may_not_contradict_itself(overrides: dict[str, str], says: str) -> None:
    assert says in refused({"remote.storage.enable": "true", **overrides})
    if "compact" not in overrides.get("cleanup.policy", ""):
        assert check_topic(TIERED, overrides) is None  # the rules are those of tiered topics


def test_a_topic_cannot_be_tiered_where_brokers_are_not() -> None:
    says = refused({"remote.storage.enable": "true"}, BrokerConfig())
    assert "remote.log.storage.system.enable" in says


def test_rules_see_the_brokers_defaults() -> None:
    broker = BrokerConfig(
        remote_log_storage_system_enable=True, log_local_retention_ms=1000, log_retention_ms=500
    )
    assert "must not exceed" in refused({"remote.storage.enable": "true"}, broker)


def test_leaving_the_tier_says_what_happens_to_what_is_there() -> None:
    before = {"remote.storage.enable": "true"}
    assert "delete.on.disable" in refused({}, before=before)
    leaving = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
    assert check_topic(TIERED, leaving, before=before) is None


def test_kafkas_own_topics_are_never_tiered() -> None:
    tiered = {"remote.storage.enable": "true"}
    assert "internal" in refused(tiered, topic="__remote_log_metadata")
    assert check_topic(TIERED, tiered, topic="mine") is None


@pytest.mark.parametrize("ms", ["-1", "1000", "2000"])
def test_a_topic_may_not_outlive_the_metadata_of_its_segments(ms: str) -> None:
    """T52: what the metadata topic forgets is lost to the tier's readers."""
    broker = BrokerConfig(
        remote_log_storage_system_enable=True,
        stated={"rlmm.config.remote.log.metadata.topic.retention.ms": "1000"},
    )
    tiered = {"remote.storage.enable": "true", "retention.ms": ms}
    assert "must be below" in refused(tiered, broker)
    assert check_topic(broker, {**tiered, "retention.ms": "999"}) is None
    assert check_topic(TIERED, tiered) is None


def test_compaction_lags_that_cross_are_refused() -> None:
    says = refused({"max.compaction.lag.ms": "5", "min.compaction.lag.ms": "6"})
    assert "must not exceed" in says


def test_good_tiered_topics_are_taken() -> None:
    for overrides in (
        {"local.retention.ms": "500", "retention.ms": "500"},
        {"local.retention.ms": "-1", "retention.ms": "-1"},
        {"local.retention.ms": "5", "retention.ms": "-1"},
        {"remote.log.copy.disable": "true"},
        {"cleanup.policy": ""},
    ):
        assert check_topic(TIERED, {"remote.storage.enable": "true", **overrides}) is None


# ------------------------------------------------------------------------------- describing


def test_describe_says_which_layer_a_topic_value_comes_from() -> None:
    broker = load({**NODE, "log.segment.bytes": "2000000", "log.retention.hours": "1"})
    entries = {e.name: e for e in describe_topic(broker, {"retention.bytes": "5"})}
    assert len(entries) == 33
    segment = entries["segment.bytes"]
    assert (segment.value, segment.source) == ("2000000", layers.STATIC_BROKER)
    assert segment.synonyms == (
        ("log.segment.bytes", "2000000", layers.STATIC_BROKER),
        ("log.segment.bytes", "1073741824", layers.DEFAULT),
    )
    limit = entries["retention.bytes"]
    assert (limit.value, limit.source, limit.type_id) == ("5", layers.DYNAMIC_TOPIC, 5)
    assert limit.synonyms[0] == ("retention.bytes", "5", layers.DYNAMIC_TOPIC)
    age = entries["retention.ms"]
    # As 4.3.1: a coarser unit decides the value and is not told of.
    assert (age.value, age.source, age.synonyms) == ("3600000", layers.DEFAULT, ())
    assert entries["cleanup.policy"].source == layers.DEFAULT


def test_describe_shows_what_was_altered_at_run_time() -> None:
    broker = load({**NODE, "log.retention.ms": "1"})
    entries = {
        e.name: e
        for e in describe_topic(
            broker, {}, cluster={"log.retention.ms": "2"}, node={"log.retention.ms": "3"}
        )
    }
    assert entries["retention.ms"].value == "3"
    assert [s.source for s in entries["retention.ms"].synonyms] == [
        layers.DYNAMIC_BROKER,
        layers.DYNAMIC_DEFAULT_BROKER,
        layers.STATIC_BROKER,
        layers.DEFAULT,
    ]
    assert entries["retention.ms"].synonyms[-1] == ("log.retention.hours", "168", layers.DEFAULT)


def test_describe_shows_what_was_altered_of_a_key_that_does_not_act_here() -> None:
    """Goal: a data directory of Kafka's shows the settings that Kafka wrote, value and source alike."""
    broker = load({**NODE, "num.io.threads": "7", "num.network.threads": "4"})
    altered = {"num.io.threads": "9", "background.threads": "a number"}
    entries = {e.name: e for e in describe_broker(broker, cluster=altered)}
    threads = entries["num.io.threads"]
    assert (threads.value, threads.source) == ("9", layers.DYNAMIC_DEFAULT_BROKER)
    assert entries["num.network.threads"].value == "4"
    assert entries["background.threads"].value == "10"


def test_describe_shows_the_coarser_units_behind_the_one_that_was_set() -> None:
    broker = load({**NODE, "log.retention.ms": "777777", "log.retention.hours": "24"})
    entries = {e.name: e for e in describe_broker(broker)}
    assert entries["log.retention.ms"].synonyms == (
        ("log.retention.ms", "777777", layers.STATIC_BROKER),
        ("log.retention.hours", "24", layers.STATIC_BROKER),
        ("log.retention.hours", "168", layers.DEFAULT),
    )
    assert entries["log.roll.ms"].synonyms == ()


def test_describe_answers_what_kafka_does_for_the_nodes_number_and_directories() -> None:
    entries = {e.name: e for e in describe_broker(load({**NODE, "log.dirs": "/a"}))}
    number = entries["broker.id"]
    assert (number.value, number.source) == (NODE["node.id"], layers.STATIC_BROKER)
    assert number.synonyms[-1] == ("broker.id", "-1", layers.DEFAULT)
    assert entries["log.dirs"].synonyms == (("log.dirs", "/a", layers.STATIC_BROKER),)
    assert entries["metadata.log.dir"].value is None


def test_describe_lists_all_of_kafkas_broker_keys() -> None:
    broker = load({**NODE, "log.retention.ms": "1", "rsm.config.secret": "s"})
    entries = {e.name: e for e in describe_broker(broker)}
    # 340 of Kafka's that are not internal, ours, KIP-630's, and the plug-in's.
    assert len(entries) == 340 + 12 + 2 + 1
    assert entries["log.retention.ms"].source == layers.STATIC_BROKER
    assert not entries["log.retention.ms"].is_read_only
    assert entries["node.id"].is_read_only
    assert entries[
        "num.io.threads"
    ].is_read_only  # Kafka changes it; here there is nothing to change
    assert entries["num.io.threads"].value == "8"


def test_secrets_are_not_described() -> None:
    broker = load({**NODE, "ssl.keystore.password": "hunter2", "rsm.config.secret": "hunter2"})
    entries = {e.name: e for e in describe_broker(broker)}
    assert entries["ssl.keystore.password"].is_sensitive
    assert entries["rsm.config.secret"].is_sensitive
    assert "hunter2" not in repr(list(entries.values()))


def test_internal_keys_are_described_only_where_they_were_stated() -> None:
    names = {e.name for e in describe_broker(load(NODE))}
    assert "log.initial.task.delay.ms" not in names
    broker = load({**NODE, "log.initial.task.delay.ms": "5"})
    assert "log.initial.task.delay.ms" in {e.name for e in describe_broker(broker)}


def test_a_key_of_ours_is_described_only_where_it_is_set() -> None:
    """Tools that compare topics with those of Kafka find no key that Kafka does not have."""
    broker = load(NODE)
    name = "firnline.retention.leases"
    assert name not in {e.name for e in describe_topic(broker, {})}
    (entry,) = [e for e in describe_topic(broker, {name: "a:1"}) if e.name == name]
    assert (entry.value, entry.source) == ("a:1", layers.DYNAMIC_TOPIC)
