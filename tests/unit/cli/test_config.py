"""`firnline config`: where values come from, what is never shown, what is refused before it is asked for."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.client.admin import TOPIC_RESOURCE, Admin
from firnline.client.operations.configs import Changes, Resource, alter
from firnline.protocol.messages.k32_describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from firnline.protocol.messages.k44_incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from tests.unit.cli.fake_cluster import FakeCluster, fake_cluster, once

SECRET = "hunter2"


def row(
    key: str, value: str | None, source: int, *others: tuple[int, str, str], secret: bool = False
) -> Any:
    synonyms = [
        DescribeConfigsSynonym(name=name, value=other, source=where)
        for where, name, other in others
    ]
    return DescribeConfigsResourceResult(
        name=key, value=value, config_source=source, is_sensitive=secret, synonyms=synonyms,
        documentation=None,
    )  # fmt: skip


TOPIC = [
    row("retention.ms", "5", 1, (1, "retention.ms", "5"), (3, "log.retention.ms", "7")),
    row("cleanup.policy", "delete", 5),
]
BROKER = [
    row("log.retention.ms", "7", 3, (3, "log.retention.ms", "7")),
    row("ssl.key.password", SECRET, 2, (2, "ssl.key.password", SECRET), secret=True),
    row("num.io.threads", "8", 5),
]


def described(request: Any) -> DescribeConfigsResponse:
    (asked,) = request.resources
    found = TOPIC if asked.resource_type == 2 else BROKER if asked.resource_name else BROKER[:1]
    result = DescribeConfigsResult(
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=found,
        error_message=None,
    )
    return DescribeConfigsResponse(results=[result])


def altered(
    request: Any, code: int = 0, said: str | None = None
) -> IncrementalAlterConfigsResponse:
    (asked,) = request.resources
    done = AlterConfigsResourceResponse(
        error_code=code,
        error_message=said,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )
    return IncrementalAlterConfigsResponse(responses=[done])


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as made:
        made.answer(32, described)
        made.answer(44, altered)
        yield made


def test_settings_at_their_default_are_left_out_unless_they_are_asked_for(
    cluster: FakeCluster,
) -> None:
    words = ("config", "describe", "--topic", "events")
    assert "cleanup.policy" not in cluster.run(*words).stdout
    shown = cluster.run(*words, "--all").stdout
    assert "cleanup.policy" in shown
    assert "log.retention.ms=7 (all brokers)" in shown
    rows = json.loads(cluster.run(*words, "--format", "json").stdout)
    assert [(r["name"], r["key"], r["value"], r["source"]) for r in rows] == [
        ("events", "retention.ms", "5", "DYNAMIC_TOPIC_CONFIG")
    ]
    assert rows[0]["synonyms"][1] == {
        "source": "DYNAMIC_DEFAULT_BROKER_CONFIG", "key": "log.retention.ms", "value": "7",
    }  # fmt: skip


@pytest.mark.parametrize("style", ["table", "json"])
def test_a_sensitive_value_is_never_shown(cluster: FakeCluster, style: str) -> None:
    """Not even if a broker sends it."""
    done = cluster.run("config", "describe", "--broker", "2", "--all", "--format", style)
    assert "ssl.key.password" in done.stdout
    assert SECRET not in done.stdout


def test_a_broker_is_asked_about_itself(cluster: FakeCluster) -> None:
    cluster.run("config", "describe", "--broker", "2")
    cluster.run("config", "alter", "--broker", "2", "num.io.threads=4")
    one, other = cluster.brokers
    kinds = {"DescribeConfigsRequest", "IncrementalAlterConfigsRequest"}
    assert not kinds & {type(each).__name__ for each in one.asked}
    assert kinds <= {type(each).__name__ for each in other.asked}


def test_several_can_be_described_in_one_table(cluster: FakeCluster) -> None:
    words = ("config", "describe", "--topic", "events", "--broker", "1", "--broker-defaults")
    rows = json.loads(cluster.run(*words, "--format", "json").stdout)
    assert [(r["type"], r["name"]) for r in rows] == [
        ("topic", "events"), ("broker", "1"), ("broker", "1"), ("broker", None),
    ]  # fmt: skip


def test_each_operation_is_sent_as_it_was_given(cluster: FakeCluster) -> None:
    done = cluster.run(
        "config", "alter", "--topic", "events", "retention.ms=9=9", "--validate-only",
        "--delete", "cleanup.policy",
    )  # fmt: skip
    assert done.stdout == "topic events could be altered\n"
    (request,) = cluster.asked("IncrementalAlterConfigsRequest")
    assert request.validate_only
    sent = [(c.name, c.config_operation, c.value) for c in request.resources[0].configs]
    assert sent == [("retention.ms", 0, "9=9"), ("cleanup.policy", 1, None)]
    cluster.run(
        "config", "alter", "--topic", "events", "--append", "cleanup.policy=compact",
        "--subtract", "retention.ms=1",
    )  # fmt: skip
    (_, request) = cluster.asked("IncrementalAlterConfigsRequest")
    sent = [(c.name, c.config_operation, c.value) for c in request.resources[0].configs]
    assert sent == [("cleanup.policy", 2, "compact"), ("retention.ms", 3, "1")]


@pytest.mark.parametrize(
    ("whose", "key", "said"),
    [
        (("--topic", "events"), "retenton.ms", "did you mean retention.ms?"),
        (("--broker", "1"), "log.retenton.ms", "did you mean log.retention.ms?"),
        (("--broker-defaults",), "num.io.treads", "did you mean num.io.threads?"),
        (("--broker", "1"), "what", "config describe --all lists them"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(
    cluster: FakeCluster, whose: tuple[str, ...], key: str, said: str
) -> None:
    """Kafka's brokers store it without a word."""
    done = cluster.run("config", "alter", *whose, f"{key}=5")
    assert said in str(done.exception)
    assert not cluster.asked("IncrementalAlterConfigsRequest")
    assert cluster.run("config", "alter", *whose, f"{key}=5", "--any-key").exit_code == 0


def test_keys_of_one_listener_are_let_through(cluster: FakeCluster) -> None:
    key = "listener.name.external.ssl.keystore.location=/x"
    assert cluster.run("config", "alter", "--broker", "1", key).exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["retention.ms=1"], "whose settings?"),
        (["--topic", "events"], "nothing to change"),
        (["--topic", "events", "retention.ms"], "is not key=value"),
        (["--topic", "events", "retention.ms=1", "--delete", "retention.ms"], "in one way"),
    ],
)
def test_wrong_usage_is_told(cluster: FakeCluster, words: list[str], said: str) -> None:
    done = cluster.run("config", "alter", *words)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_topic_or_broker_that_is_not_there_is_told_at_once(cluster: FakeCluster) -> None:
    done = cluster.run("config", "describe", "--topic", "evnts")
    assert "did you mean events?" in str(done.exception)
    done = cluster.run("config", "alter", "--broker", "9", "num.io.threads=4")
    assert "no broker 9 is alive: there are 1, 2" in str(done.exception)


def test_no_controller_is_retried_and_then_named(cluster: FakeCluster) -> None:
    def nobody(request: Any) -> IncrementalAlterConfigsResponse:
        return altered(request, Code.NOT_CONTROLLER, "not now")

    cluster.answer(44, once(nobody, altered))
    words = ("config", "alter", "--topic", "events", "retention.ms=1")
    assert cluster.run(*words).stdout == "altered topic events\n"
    cluster.answer(44, nobody)
    changes = Changes({"retention.ms": "1"})
    with (
        Admin(cluster.bootstrap, timeout_s=2) as admin,
        pytest.raises(KafkaError, match="no controller is active"),
    ):
        alter(admin, Resource(TOPIC_RESOURCE, "events"), changes, validate_only=False)


def test_what_the_broker_refuses_is_said_in_its_words(cluster: FakeCluster) -> None:
    cluster.answer(44, lambda r: altered(r, Code.INVALID_CONFIG, "abc is no number"))
    done = cluster.run("config", "alter", "--topic", "events", "retention.ms=abc")
    assert str(done.exception) == "INVALID_CONFIG: topic events: abc is no number"
