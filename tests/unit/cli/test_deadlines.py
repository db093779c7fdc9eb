"""One deadline for each command: whoever hangs, and however, it ends in time and says why."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from firnline.base.errors import Code, FirnlineError
from firnline.cli.main import cli
from firnline.client.admin import Admin
from firnline.client.connection import Connection, NoController, Unreachable, first_to_answer
from firnline.client.deadline import Deadline, at_once
from firnline.protocol.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from firnline.protocol.messages.k19_create_topics import CreatableTopicResult, CreateTopicsResponse
from firnline.protocol.messages.k32_describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from firnline.protocol.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from firnline.protocol.messages.k32001_tier_status import TierStatusResponse
from firnline.protocol.messages.k32003_cluster_status import ClusterStatusResponse
from tests.unit.cli.fake_broker import Answer, FakeBroker
from tests.unit.cli.hanging import Hang, dripping, silent, unreachable
from tests.unit.cli.tree import ALL, ASKING, options_of, words_of

TIMEOUT_S = 0.3
# What a busy machine may add.
SLOW_S = 6.0
ID = bytes(range(16))


def run(*words: str) -> tuple[Result, float]:
    """Run a command; return its result, and how many seconds it took."""
    began_s = time.monotonic()
    result = CliRunner().invoke(cli, list(words))
    return result, time.monotonic() - began_s


def test_every_command_that_asks_a_cluster_has_a_deadline() -> None:
    assert len(ASKING) > 12
    for path, command in ASKING.items():
        options = options_of(command)
        assert {"-b", "--timeout", "--profile"} <= set(options), path
    assert not [
        path for path, each in ALL.items() if "-b" in options_of(each) and path not in ASKING
    ]


@pytest.mark.parametrize(
    ("hang", "addresses"),
    [(silent, 1), (dripping, 1), (unreachable, 2)],
    ids=lambda each: getattr(each, "__name__", None),
)
@pytest.mark.parametrize("path", sorted(ASKING.keys() - {"consume"}))
def test_every_command_keeps_its_deadline(path: str, hang: Hang, addresses: int) -> None:
    """A new command that fails here: it connects by itself instead of by `connect`, or lacks its WORDS."""
    with hang() as address:
        at = ("-b", ",".join([address] * addresses), "--timeout", str(TIMEOUT_S))
        result, took_s = run(*words_of(path, ASKING[path]), *at)
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, Unreachable)
    assert address in str(result.exception)
    assert took_s < TIMEOUT_S + SLOW_S


@pytest.mark.slow
@pytest.mark.parametrize("hang", [silent, dripping, unreachable])
def test_consume_keeps_its_deadline(hang: Hang) -> None:
    """It writes to its standard output itself, so it runs as a process."""
    with hang() as address:
        line = [sys.executable, "-m", "firnline", "consume", "t", "-b", address, "--timeout", "0.3"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert address in done.stderr
    assert len(done.stderr.splitlines()) == 1


def one_of(brokers: list[Any], *, leaders: list[int]) -> Callable[[Any], MetadataResponse]:
    """Answer Metadata: these brokers, and a topic with a partition for each leader."""
    parts = [
        MetadataResponsePartition(
            partition_index=index, leader_id=leader, replica_nodes=[leader], isr_nodes=[leader]
        )
        for index, leader in enumerate(leaders)
    ]

    def answer(request: Any) -> MetadataResponse:
        topic = MetadataResponseTopic(name="events", topic_id=ID, partitions=parts)
        return MetadataResponse(brokers=brokers, controller_id=1, topics=[topic])

    return answer


@pytest.mark.parametrize(
    "words", [("topic", "describe"), ("tier", "status"), ("cluster", "status")]
)
def test_nine_brokers_that_hang_do_not_hide_the_tenth(words: tuple[str, ...]) -> None:
    """They are asked at the same time, and half of the time is kept for the other questions."""
    with FakeBroker({}) as fake, silent() as address:
        port = int(address.rpartition(":")[2])
        ports = [fake.port, *[port] * 9]
        brokers = [
            MetadataResponseBroker(node_id=number, host="127.0.0.1", port=port)
            for number, port in enumerate(ports, 1)
        ]
        rows = [
            DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port)
            for each in brokers
        ]
        fake.answers = {
            3: one_of(brokers, leaders=list(range(1, 11))),
            32: lambda _: DescribeConfigsResponse(results=[DescribeConfigsResult(configs=[])]),
            60: lambda _: DescribeClusterResponse(cluster_id="c", brokers=rows),
            32001: lambda _: TierStatusResponse(),
            32003: lambda _: ClusterStatusResponse(),
        }
        result, took_s = run(*words, "-b", fake.address, "--timeout", "1.5")
    assert result.exit_code in (0, 3), result.exception
    assert took_s < 1.5 + SLOW_S
    assert "no tiered partitions\n" not in result.output, "nine of ten may lead some"


def test_an_address_that_hangs_is_followed_by_the_next_at_once() -> None:
    with FakeBroker({3: one_of([], leaders=[])}) as fake, silent() as one, unreachable() as other:
        result, took_s = run("topic", "list", "-b", f"{one},{other},{fake.address}")
    assert result.exit_code == 0, result.exception
    assert took_s < SLOW_S


def test_who_does_not_answer_is_named_with_the_reason() -> None:
    with silent() as address:
        result, _ = run("topic", "list", "-b", f"127.0.0.1:1,{address}", "--timeout", "1")
    assert str(result.exception) == (
        "none of 2 addresses answered: cannot reach a broker at 127.0.0.1:1: Connection refused;"
        f" {address} did not answer in time"
    )


def test_a_broker_that_finds_no_controller_is_quoted() -> None:
    refusal = CreatableTopicResult(
        name="t", error_code=Code.REQUEST_TIMED_OUT, error_message="nobody answered", configs=None
    )
    with FakeBroker({19: lambda _: CreateTopicsResponse(topics=[refusal])}) as fake:
        here = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=fake.port)
        fake.answers[3] = one_of([here], leaders=[])
        result, _ = run("topic", "create", "t", "-b", fake.address, "--timeout", "5")
        (request,) = [each for each in fake.asked if each.key == 19]
    assert isinstance(result.exception, NoController)
    assert str(result.exception).startswith(
        "the cluster has no controller: topic t: nobody answered;"
    )
    assert "`firnline cluster status`" in str(result.exception)
    assert request.timeout_ms < 4500, "the broker has to answer before the deadline"


def test_a_broker_that_waits_for_a_controller_is_not_called_silent() -> None:
    over = threading.Event()

    def wait(_: Any) -> None:
        over.wait(10)  # then nobody waits for the answer any more

    answers: dict[int, Answer] = {
        **dict.fromkeys((10, 44, 55), wait),
        60: lambda _: DescribeClusterResponse(cluster_id="c"),
    }
    with FakeBroker(answers) as fake:
        here = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=fake.port)
        fake.answers[3] = one_of([here], leaders=[])
        for words, said in (
            (("quorum", "status"), "the cluster has no controller"),
            (("topic", "alter", "t", "--set", "a=1"), "the cluster has no controller"),
            (("group", "describe", "g"), "found no coordinator of group g in time"),
        ):
            result, took_s = run(*words, "-b", fake.address, "--timeout", "1.5")
            assert said in str(result.exception)
            assert "`firnline cluster status`" in str(result.exception)
            assert took_s < 1.5 + SLOW_S
        over.set()


def test_a_name_server_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def hang(*_: object, **__: object) -> None:
        over.wait(10)
        raise OSError

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    began_s = time.monotonic()
    asked = Connection("broker.invalid", 9092, deadline=Deadline(0.2))
    with pytest.raises(Unreachable, match=r"broker\.invalid:9092 did not answer in time"):
        asked.spoken()
    over.set()
    assert time.monotonic() - began_s < SLOW_S


def test_a_share_leaves_half_and_pauses_end_at_the_deadline() -> None:
    whole = Deadline(100.0)
    assert 40 < whole.share().left_s() <= 50
    assert whole.share(0.1).left_s() <= 0.1
    began_s = time.monotonic()
    Deadline(0.05).pause(30)
    assert time.monotonic() - began_s < SLOW_S
    assert Deadline(0).is_over


def test_nodes_are_asked_at_the_same_time_and_answers_keep_their_order() -> None:
    together = threading.Barrier(10)

    def ask(number: int) -> int:
        together.wait(10)
        return number

    assert at_once(ask, range(10)) == list(range(10))
    assert at_once(ask, []) == []


def test_without_a_deadline_each_call_has_the_whole_timeout() -> None:
    """Readers that run for days have none."""
    with (
        FakeBroker({3: one_of([], leaders=[])}) as fake,
        Admin(fake.address, timeout_s=0.5) as admin,
    ):
        time.sleep(0.6)
        assert not admin.metadata([]).brokers
        with pytest.raises(FirnlineError):
            first_to_answer([Connection("127.0.0.1", 1)], wait_s=1)


def test_the_page_says_what_the_options_say() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text()
    assert page.count("--timeout SECONDS") == len(ASKING)
