"""Requests of a few kilobytes whose answers would take gigabytes, and clients that do not read theirs.

What they cost is bounded: the node's memory, and the time until another client is answered.
"""

import socket
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firnline.client.wire import encode_request
from firnline.protocol.messages import k01_fetch as m01
from firnline.protocol.messages import k02_list_offsets as m02
from firnline.protocol.messages import k11_join_group as m11
from firnline.protocol.messages import k14_sync_group as m14
from firnline.protocol.messages import k15_describe_groups as m15
from firnline.protocol.messages import k32_describe_configs as m32
from firnline.protocol.messages.k03_metadata import MetadataRequest
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k18_api_versions import ApiVersionsRequest
from firnline.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from firnline.protocol.schema import Message
from firnline.testing.plugin import Broker
from tests.peers.nodes import eventually
from tests.wire.line import MIB, Line, Target

BOUND = 32 * MIB
# Twice the bound, as one answer goes on where it is reached, and what the allocator keeps besides.
RSS_BOUND = 2 * BOUND + 96 * MIB
_BROKER = 4


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    base = tmp_path_factory.mktemp("answers")
    settings = {"firnline.answers.max.bytes": BOUND, "group.initial.rebalance.delay.ms": 0}
    options = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
    made = Broker(base / "data", options=options)
    made.start()
    yield made
    if made.process is not None:
        made.kill()


@pytest.fixture
def target(broker: Broker) -> Target:
    return Target("firnline", broker.bootstrap, broker.pid, Path())


class Others:
    """Another client, which asks all the time: how long it waited each time, in seconds."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.waited_s: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        with self._target.line() as line:
            # Some more after an attack that is over soon: the node may still be busy with it.
            while not self._is_over.wait(0.01) or len(self.waited_s) < 100:
                began = time.monotonic()
                line.ask(ApiVersionsRequest(), 0)
                self.waited_s.append(time.monotonic() - began)

    def __enter__(self) -> "Others":
        self._target.forget_peak()
        self._before = self._target.rss_bytes()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def are_unharmed(self) -> None:
        """Goal: answered within 100 ms on an idle machine; nearly always within 250 ms beside other tests.
        Before: 4.7 s, once.
        """
        slow = statistics.quantiles(self.waited_s, n=20)[-1]
        assert slow < 0.25, f"95 of 100 within {slow * 1000:.0f} ms, longest {max(self.waited_s)} s"
        assert max(self.waited_s) < 2.0
        grown = self._target.peak_bytes() - self._before
        assert grown < RSS_BOUND, f"{grown / MIB:.0f} MiB"


def _configs(node_id: str, count: int) -> Message:
    one = m32.DescribeConfigsResource(
        resource_type=_BROKER, resource_name=node_id, configuration_keys=None
    )
    return m32.DescribeConfigsRequest(
        resources=[one] * count, include_synonyms=True, include_documentation=True
    )


def _send(line: Line, request: Message, version: int) -> None:
    line.send(encode_request(request, version=version, correlation_id=1, client_id="greedy"))


def _own_id(target: Target) -> str:
    return str(target.ask(MetadataRequest(topics=None), 12).brokers[0].node_id)


def test_the_settings_of_the_broker_five_thousand_times(broker: Broker, target: Target) -> None:
    with Others(target) as others, target.line() as line:
        _send(line, _configs(_own_id(target), 5_000), 4)
        assert line.frame(timeout_s=120) is None, "closed: 175 MB"
    others.are_unharmed()
    eventually("it says why", lambda: "ask for less at a time" in broker.log_text())
    assert "Traceback" not in broker.log_text()


def test_a_member_of_nearly_a_megabyte_five_hundred_times(broker: Broker, target: Target) -> None:
    protocol = m11.JoinGroupRequestProtocol(name="range", metadata=bytes(900_000))
    join = m11.JoinGroupRequest(
        group_id="large",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=1000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    with target.line() as member:
        member.ask(FindCoordinatorRequest(coordinator_key="large", key_type=0), 3)
        deadline = time.monotonic() + 30
        while (joined := member.ask(join, 3)).error_code and time.monotonic() < deadline:
            time.sleep(0.1)
        assert joined.error_code == 0
        sync = m14.SyncGroupRequest(
            group_id="large",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[
                m14.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"x")
            ],
        )
        assert member.ask(sync, 2).error_code == 0
        assert len(target.ask(m15.DescribeGroupsRequest(groups=["large"] * 5), 5).groups) == 5
        with Others(target) as others, target.line() as line:
            _send(line, m15.DescribeGroupsRequest(groups=["large"] * 500), 5)
            assert line.frame(timeout_s=120) is None, "closed: 450 MB"
    others.are_unharmed()
    assert "Traceback" not in broker.log_text()


@pytest.mark.parametrize("replica_id", [-1, 5], ids=["consumers", "replicas"])
def test_forty_clients_that_fetch_twenty_thousand_partitions_each(
    broker: Broker, target: Target, replica_id: int
) -> None:
    """As objects each of them is 17 MB, of 0.5 MB on the wire. Who says that he is a replica is told apart
    by nothing, so such requests are bounded, too; a bound of their own, which clients cannot use up."""
    parts = [m01.FetchPartition(partition=n, partition_max_bytes=1) for n in range(20_000)]
    asked = m01.FetchRequest(
        replica_id=replica_id,
        max_bytes=MIB,
        topics=[m01.FetchTopic(topic="none", partitions=parts)],
    )
    with Others(target) as others:
        lines = [target.line() for _ in range(40)]
        for line in lines:
            _send(line, asked, 11)
        for line in lines:
            assert line.frame(timeout_s=120) is not None
            line.socket.close()
    others.are_unharmed()


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path / "data", options=["-X", "firnline.answers.max.bytes=1048576"])
    made.start()
    yield made
    made.kill()


@pytest.mark.parametrize("api", ["list_offsets", "fetch"])
def test_answers_that_are_made_in_two_parts_do_not_wait_for_one_another(
    narrow: Broker, api: str
) -> None:
    """The second part of each waited for room that the others' first parts held: no answer ever came."""
    parts = 1_200
    target = Target("firnline", narrow.bootstrap, narrow.pid, Path())
    topic = CreatableTopic(name="many", num_partitions=parts, replication_factor=1)
    target.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
    offsets = [m02.ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(parts)]
    records = [m01.FetchPartition(partition=n, partition_max_bytes=1) for n in range(parts)]
    requests: dict[str, tuple[Message, int]] = {
        "list_offsets": (
            m02.ListOffsetsRequest(
                replica_id=-1, topics=[m02.ListOffsetsTopic(name="many", partitions=offsets)]
            ),
            7,
        ),
        "fetch": (
            m01.FetchRequest(
                max_bytes=MIB, topics=[m01.FetchTopic(topic="many", partitions=records)]
            ),
            12,
        ),
    }
    lines = [Line(target.address) for _ in range(60)]
    for line in lines:
        _send(line, *requests[api])
    for line in lines:
        said = line.frame(timeout_s=60)
        assert said is not None
        assert len(said) > parts * 20
        line.socket.close()


def test_many_clients_that_ask_and_never_read_are_closed_and_not_the_one_that_does(
    broker: Broker, target: Target
) -> None:
    """Sixteen of them ask for 20 MB each; another client asks for as much, and has it."""
    asked = _configs(_own_id(target), 600)
    idle = []
    for _ in range(16):
        line = Line(target.address)
        line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        _send(line, asked, 4)
        idle.append(line)
    with Others(target) as others, target.line() as line:
        time.sleep(2)
        _send(line, asked, 4)
        said = line.frame(timeout_s=120)
    assert said is not None
    assert len(said) > 10 * MIB
    others.are_unharmed()
    eventually("it says why", lambda: "it does not read its response" in broker.log_text())
    for each in idle:
        each.socket.close()
    assert "Traceback" not in broker.log_text()
