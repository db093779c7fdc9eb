"""What an operator wrote becomes a config, or an error that says what to do."""

from pathlib import Path

import pytest

from firnline.base.errors import ConfigError
from firnline.config.broker import BrokerConfig, Endpoint, parse_endpoint
from firnline.config.load import (
    load,
    read_environment,
    read_overrides,
    read_properties,
    without_meaning,
)
from firnline.config.network import parse_overrides
from firnline.config.tiered import BUILT_IN_STORAGE
from firnline.tiered.objects.storage import ObjectStorage

NODE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
}


OPERATIONS = (Path(__file__).parents[3] / "docs" / "OPERATIONS.md").read_text()


def refusal(**stated: str) -> str:
    with pytest.raises(ConfigError) as problem:
        load({**NODE, **{name.replace("_", "."): value for name, value in stated.items()}})
    return str(problem.value)


def test_a_stated_key_is_a_typed_attribute() -> None:
    config = load({**NODE, "num.partitions": "3", "log.dirs": "/a,/b", "broker.rack": "eu"})
    assert (config.num_partitions, config.log_dirs, config.broker_rack) == (3, ("/a", "/b"), "eu")
    assert config.node_id == 1
    assert config.firnline_acks_fsync == "auto"


@pytest.mark.parametrize("name", ["node.id", "process.roles", "controller.listener.names"])
def test_what_kafka_requires_must_be_there(name: str) -> None:
    stated = {each: value for each, value in NODE.items() if each != name}
    with pytest.raises(ConfigError, match=f"{name} must be set"):
        load(stated)


def test_a_key_that_nobody_knows_names_the_nearest() -> None:
    assert refusal(log_retention_hour="1") == (
        "log.retention.hour is not a known setting: is it log.retention.hours?"
    )
    assert refusal(zookeeper_connect="x") == "zookeeper.connect is not a known setting"


def test_a_topic_key_in_the_broker_file_names_its_broker_key() -> None:
    assert "for the whole broker it is log.retention.ms" in refusal(retention_ms="1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("max.connection.creation.rate", "5"),
        ("ssl.client.auth", "required"),
        ("create.topic.policy.class.name", "a.B"),
    ],
)
def test_a_promise_that_would_not_hold_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is not supported yet"):
        load({**NODE, name: value})


def test_a_promise_at_its_default_is_fine() -> None:
    config = load(
        {**NODE, "max.connection.creation.rate": "2147483647", "authorizer.class.name": ""}
    )
    assert config.node_id == 1


def test_keys_without_meaning_are_accepted_and_named() -> None:
    config = load({**NODE, "num.io.threads": "8", "num.partitions": "2", "rsm.config.a": "b"})
    assert without_meaning(config) == ["num.io.threads"]


def test_a_key_without_meaning_is_still_parsed() -> None:
    assert refusal(num_io_threads="none").startswith("num.io.threads=none")


def test_keys_of_the_plug_ins_are_theirs() -> None:
    config = load(
        {
            **NODE,
            "remote.log.storage.manager.impl.prefix": "store.",
            "store.dir": "/tier",
            "rlmm.config.x": "1",
        }
    )
    assert config.with_prefix(config.remote_log_storage_manager_impl_prefix) == {"dir": "/tier"}
    with pytest.raises(ConfigError, match=r"store\.dir is not a known setting"):
        load({**NODE, "store.dir": "/tier"})


def test_a_key_for_one_listener_is_known_by_its_end() -> None:
    load({**NODE, "listener.name.external.ssl.keystore.location": "/k"})
    load({**NODE, "listener.name.external.scram-sha-256.sasl.jaas.config": "x"})
    assert "is not a known setting" in refusal(listener_name_external_nonsense="1")


def test_the_older_name_of_the_node_id_still_works() -> None:
    stated = {name: value for name, value in NODE.items() if name != "node.id"}
    assert load({**stated, "broker.id": "7"}).node_id == 7
    assert "differ" in refusal(broker_id="7")


def test_a_password_is_not_shown_in_an_error() -> None:
    with pytest.raises(ConfigError) as problem:
        load({**NODE, "delegation.token.secret.key": "hunter2"})
    assert "hunter2" not in str(problem.value)


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ({"process.roles": "broker,king"}, "one of broker, controller"),
        ({"process.roles": ""}, "process.roles must name"),
        ({"process.roles": "broker,broker"}, "twice"),
        ({"process.roles": "controller"}, "controller.quorum.voters must name the voters"),
        ({"listeners": "PLAINTEXT:9092"}, "not have the form"),
        ({"listeners": "PLAINTEXT://h:70000"}, "above 65535"),
        ({"listeners": "CONTROLLER://:9093"}, "none is left for clients"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "name of its own"),
        ({"listeners": "PLAINTEXT://:1,CONTROLLER://:1"}, "address of its own"),
        ({"listeners": "SSL://:1,CONTROLLER://:2"}, "only PLAINTEXT is supported"),
        ({"listeners": "INSIDE://:1,CONTROLLER://:2"}, "listener.security.protocol.map"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "clients cannot use the address"),
        ({"advertised.listeners": "OTHER://h:1"}, "not one of the listeners"),
        ({"log.dir": ""}, "log.dirs is empty"),
        ({"log.retention.ms": "0"}, "log.retention.ms=0"),
        ({"log.retention.hours": "-5"}, "log.retention.hours=-5"),
        ({"group.min.session.timeout.ms": "10", "group.max.session.timeout.ms": "9"}, "exceed"),
        ({"broker.session.timeout.ms": "1000"}, "broker.heartbeat.interval.ms"),
        (
            {"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"},
            "lag",
        ),
        ({"remote.log.storage.system.enable": "true"}, "remote.log.storage.manager.class.name"),
        ({"offsets.topic.compression.codec": "5"}, "must be 0 to 4"),
        ({"offsets.topic.segment.bytes": "1048575"}, "__consumer_offsets cannot be created"),
    ],
)
def test_rules_between_keys(stated: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as problem:
        load({**NODE, **stated})
    assert says in str(problem.value)


VOTERS = "1@a:1,2@b:2,3@c:3"
BROKER = {"process.roles": "broker", "node.id": "4", "listeners": "PLAINTEXT://:9092"}
CONTROLLER = {"process.roles": "controller", "listeners": "CONTROLLER://:9093"}


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ({"node.id": "4"}, "controller.quorum.voters lacks node.id 4"),
        ({**CONTROLLER, "node.id": "4"}, "controller.quorum.voters lacks node.id 4"),
        ({**BROKER, "node.id": "2"}, "not a controller in process.roles"),
        ({**BROKER, "listeners": NODE["listeners"]}, "this node has none"),
        ({**CONTROLLER, "listeners": NODE["listeners"]}, "there are no other clients"),
        ({"listeners": "PLAINTEXT://:9092"}, "so the other voters cannot reach this one"),
    ],
)
def test_roles_and_voters_must_agree(stated: dict[str, str], says: str) -> None:
    """A voter that is no controller would be counted and never answer; Kafka refuses the same."""
    with pytest.raises(ConfigError) as problem:
        load({**NODE, "controller.quorum.voters": VOTERS, **stated})
    assert says in str(problem.value)


def test_voters_that_come_and_go_are_refused_with_what_to_state_instead() -> None:
    """Kafka's own file names one server, the combined node itself; that is a quorum of one here."""
    for more in (
        {"servers": "a:1,b:2"},
        {"servers": "a:1", **BROKER},
        {"servers": "a:1", **CONTROLLER},
    ):
        stated = {**NODE, **more, "controller.quorum.bootstrap.servers": more["servers"]}
        del stated["servers"]
        with pytest.raises(ConfigError) as problem:
            load(stated)
        assert "controller.quorum.bootstrap.servers" in str(problem.value)
        assert "id@host:port" in str(problem.value)


@pytest.mark.parametrize("role", [BROKER, CONTROLLER])
def test_a_node_may_have_one_role(role: dict[str, str]) -> None:
    config = load({**NODE, "controller.quorum.voters": VOTERS, **role})
    assert config.has_other_controllers
    assert bool(config.client_listeners) == (role is BROKER)
    assert bool(config.controller_listeners) == (role is CONTROLLER)


def test_the_first_name_of_the_controllers_listeners_is_the_quorums_own() -> None:
    listeners = "PLAINTEXT://:1,C1://:2,C2://:3"
    stated = {"controller.listener.names": "C2,C1", "listeners": listeners}
    found = load({**NODE, **stated}).controller_listeners
    assert [each.listener for each in found] == ["C2", "C1"]


def test_log_dir_stands_in_for_log_dirs() -> None:
    assert load({**NODE, "log.dir": "/one"}).log_dirs == ("/one",)
    assert load({**NODE, "log.dir": "/one", "log.dirs": "/two"}).log_dirs == ("/two",)
    assert load({**NODE, "log.dir": "/one"}).metadata_directory == "/one"


def test_listeners_are_split_into_client_and_controller() -> None:
    config = load({**NODE, "advertised.listeners": "PLAINTEXT://example:1"})
    assert config.client_listeners == [Endpoint("PLAINTEXT", "127.0.0.1", 9092)]
    assert config.advertised == [Endpoint("PLAINTEXT", "example", 1)]
    assert BrokerConfig().advertised == [Endpoint("PLAINTEXT", "", 9092)]


def test_an_endpoint_may_be_ipv6() -> None:
    assert parse_endpoint("plaintext://[::1]:9092") == Endpoint("PLAINTEXT", "::1", 9092)


def test_a_file_is_read_with_javas_rules() -> None:
    assert read_properties("a.b = one\\\n  two\n# no\n! no\nc:\\u0041\n") == {
        "a.b": "onetwo",
        "c": "A",
    }
    with pytest.raises(ConfigError, match=r"not a \.properties file"):
        read_properties("a=\\u00zz")


def test_a_dash_x_without_equals_is_refused() -> None:
    assert read_overrides(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    with pytest.raises(ConfigError, match="expected key=value"):
        read_overrides(["num.partitions"])


def test_the_environment_is_read_by_the_name_of_the_key() -> None:
    found = read_environment(
        {
            "FIRNLINE_LOG_RETENTION_MS": "5",
            "FIRNLINE_ACKS_FSYNC": "never",
            "FIRNLINE_FREEZE": "1",
            "FIRNLINE_OTHER_TOOLS_THING": "x",
            "LOG_DIRS": "/x",
        }
    )
    assert found == {"log.retention.ms": "5", "firnline.acks.fsync": "never"}


def test_a_slip_in_the_environment_is_not_ignored() -> None:
    with pytest.raises(ConfigError, match="is it FIRNLINE_NUM_PARTITIONS"):
        read_environment({"FIRNLINE_NUM_PARTITION": "5"})


def test_the_file_that_kafka_ships_is_taken_as_it_is() -> None:
    """Goal: a user of Kafka starts without editing. Method: the settings of Kafka 4.3.1's own
    config/server.properties, by key."""
    config = load(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "inter.broker.listener.name": "PLAINTEXT",
            "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
            "num.network.threads": "3",
            "num.io.threads": "8",
            "socket.send.buffer.bytes": "102400",
            "socket.receive.buffer.bytes": "102400",
            "socket.request.max.bytes": "104857600",
            "log.dirs": "/tmp/kraft-combined-logs",
            "num.partitions": "1",
            "num.recovery.threads.per.data.dir": "2",
            "offsets.topic.replication.factor": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "log.retention.hours": "168",
            "log.segment.bytes": "1073741824",
            "log.retention.check.interval.ms": "300000",
        }
    )
    assert config.advertised == [Endpoint("PLAINTEXT", "localhost", 9092)]
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)


def test_a_cordoned_directory_is_one_that_there_is() -> None:
    """KIP-1066: a mistyped path would leave the directory open to new partitions."""
    both = {**NODE, "log.dirs": "/a,/b"}
    assert load({**both, "cordoned.log.dirs": "/b"}).cordoned_log_dirs == ("/b",)
    assert load({**both, "cordoned.log.dirs": "*"}).cordoned_log_dirs == ("*",)
    with pytest.raises(ConfigError, match=r"cordoned\.log\.dirs names /c"):
        load({**both, "cordoned.log.dirs": "/a,/c"})


def test_limits_of_connections_are_read_as_kafka_reads_them() -> None:
    text = "127.0.0.1:200, node-7.example:0,[2001:DB8::0:1]:3"
    config = load({**NODE, "max.connections.per.ip.overrides": text, "max.connections": "0"})
    assert config.max_connections == 0
    found = parse_overrides(config.max_connections_per_ip_overrides)
    assert found == {"127.0.0.1": 200, "node-7.example": 0, "2001:db8::1": 3}


@pytest.mark.parametrize(
    "text", ["127.0.0.1", ":5", "a:", "a:-1", "a:2147483648", "a:b", "a:\u0665"]
)
def test_an_override_that_is_none_is_refused_in_words(text: str) -> None:
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides: .*host:count"):
        load({**NODE, "max.connections.per.ip.overrides": text})


def test_nobody_may_lock_all_hosts_out() -> None:
    with pytest.raises(ConfigError, match="allows only the hosts"):
        load({**NODE, "max.connections.per.ip": "0"})
    load({**NODE, "max.connections.per.ip": "0", "max.connections.per.ip.overrides": "h:5"})


def test_memory_for_requests_holds_one_request_at_least() -> None:
    with pytest.raises(ConfigError, match=r"queued\.max\.request\.bytes must be socket"):
        load({**NODE, "queued.max.request.bytes": "1000000"})
    assert load({**NODE, "queued.max.request.bytes": "104857600"}).queued_max_request_bytes > 0


def test_a_node_gets_a_tier_by_the_lines_that_the_page_and_the_refusal_say(tmp_path: Path) -> None:
    """Only a comment in the reference had the class, and no page had `rsm.config.uri`."""
    assert f"{ObjectStorage.__module__}.{ObjectStorage.__name__}" == BUILT_IN_STORAGE
    said = refusal(remote_log_storage_system_enable="true")
    assert f"The built-in one is {BUILT_IN_STORAGE}, with rsm.config.uri=URI" in said
    block = OPERATIONS.split("\n## The tier\n")[1].split("\n\n")[1]
    path = tmp_path / "server.properties"
    path.write_text("\n".join(line.strip() for line in block.splitlines()))
    config = load({**NODE, **read_properties(path.read_text())})
    assert config.remote_log_storage_manager_class_name == BUILT_IN_STORAGE
    assert config.firnline_new_topics_remote_storage_enable
    assert "rsm.config.uri=" in block
