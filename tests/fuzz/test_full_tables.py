"""One address takes what it can of each table of a node, and another one is served all the same."""

import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firnline.client.wire import encode_request
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k03_metadata import MetadataRequest
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from firnline.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from firnline.testing.plugin import Broker
from tests.peers.nodes import eventually
from tests.wire.line import MIB, Line, Target

FLOOD = "127.0.0.2"
MEMBER_ID_REQUIRED = 79


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    base: Path = tmp_path_factory.mktemp("tables")
    options = ["-X", "max.connections=60", "-X", "max.connections.per.ip.overrides=127.0.0.9:1"]
    made = Broker(base / "data", options=options)
    made.start()
    yield made
    if made.process is not None:
        made.kill()


class LineFrom(Line):
    """A connection from an address of ours."""

    def __init__(self, broker: Broker, host: str) -> None:
        super().__init__(("127.0.0.1", broker.port))
        self.socket.close()
        address = ("127.0.0.1", broker.port)
        self.socket = socket.create_connection(address, self.timeout_s, source_address=(host, 0))


def is_served(line: Line) -> bool:
    try:
        line.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12)
    except (AssertionError, ConnectionError):
        return False
    return True


def alter(broker: Broker, **settings: str) -> tuple[int, str]:
    """Set keys of all brokers; return the code and the words."""
    configs = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=configs)
    with Line(("127.0.0.1", broker.port)) as line:
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        [said] = line.ask(request, 1).responses
    return said.error_code, said.error_message or ""


def test_a_flood_of_idle_connections_locks_nobody_else_out(broker: Broker) -> None:
    with LineFrom(broker, "127.0.0.3") as early:
        assert is_served(early)
        flood = [LineFrom(broker, FLOOD) for _ in range(200)]
        with LineFrom(broker, "127.0.0.4") as late:
            assert is_served(late)
            assert is_served(early)
        assert not is_served(flood[0])
        assert is_served(flood[-1])
        for line in flood:
            line.socket.close()
    closed = re.compile(f"connection closed by this node host={FLOOD} .*it was the least active")
    eventually("it says so", lambda: closed.search(broker.log_text()))
    assert "Traceback" not in broker.log_text()


def test_the_limit_of_an_address_holds_and_can_be_altered_while_the_node_runs(
    broker: Broker,
) -> None:
    with LineFrom(broker, "127.0.0.9") as one, LineFrom(broker, "127.0.0.9") as two:
        assert is_served(one)
        assert not is_served(two)
    code, words = alter(broker, max_connections_per_ip_overrides="localhost:5")
    assert code == 42
    assert "state its address" in words
    assert alter(broker, max_connections_per_ip="0")[0] == 42
    assert alter(broker, max_connections_per_ip_overrides="127.0.0.9:2") == (0, "")
    lines = [LineFrom(broker, "127.0.0.9") for _ in range(3)]
    assert [is_served(line) for line in lines] == [True, True, False]
    for line in lines:
        line.socket.close()


def join(group: str, **fields: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=1_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        **fields,
    )


def test_a_flood_of_new_groups_locks_no_new_group_out(broker: Broker) -> None:
    """Method: ids of 32 KB each, so that a few thousand are more than all may hold."""
    with Line(("127.0.0.1", broker.port)) as line:
        line.ask(FindCoordinatorRequest(coordinator_key="any", key_type=0), 3)
    name = "x" * 32_000
    with LineFrom(broker, FLOOD) as flood:
        for first in range(0, 6_000, 100):
            data = b"".join(
                encode_request(join(f"{n}"), version=4, correlation_id=n, client_id=name)
                for n in range(first, first + 100)
            )
            flood.send(data)
            for _ in range(100):
                assert flood.frame() is not None
    with LineFrom(broker, "127.0.0.3") as friend:
        reported = friend.ask(join("a new group"), 4)
        assert reported.error_code == MEMBER_ID_REQUIRED
        reported = friend.ask(join("a new group", member_id=reported.member_id), 4)
        assert reported.error_code == 0
    assert re.search(
        f"ids of members that never joined were forgotten early count=.* host={FLOOD}",
        broker.log_text(),
    )


def new_session(line: Line, partitions: int) -> int:
    """Ask for a fetch session of so many partitions; return its id, 0 where there is none."""
    rows = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1)
        for index in range(partitions)
    ]
    topics = [FetchTopic(topic="nowhere", partitions=rows)]
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, session_epoch=0, topics=topics
    )
    found: int = line.ask(request, 11).session_id
    return found


def test_a_fetch_session_of_tens_of_thousands_of_partitions_is_none(broker: Broker) -> None:
    """Each of 100,000 kept 30 MiB until the node ended, a thousand of them, whoever had hung up.

    The bound of all of them together: tests/unit/broker/test_fetch_session.py.
    """
    with LineFrom(broker, FLOOD) as flood:
        assert new_session(flood, 50_001) == 0
        assert new_session(flood, 50_000) != 0
    with LineFrom(broker, "127.0.0.3") as friend:
        assert new_session(friend, 1_000) != 0
        assert is_served(friend)


def test_24_unfinished_frames_of_95_mib(tmp_path: Path) -> None:
    """They held 2.4 GB. Method: a bound of 100 MiB; other clients are served while they stand."""
    options = ["-X", "queued.max.request.bytes=104857600"]
    broker = Broker(tmp_path / "data", options=options)
    broker.start()
    target = Target("firnline", broker.bootstrap, broker.pid, Path())
    piece = bytes(MIB)
    flood = [LineFrom(broker, FLOOD) for _ in range(24)]
    with LineFrom(broker, "127.0.0.3") as friend:
        for line in flood:
            line.socket.sendall(struct.pack(">i", 95 * MIB))
        open_lines, sent = list(flood), dict.fromkeys(flood, 0)
        while open_lines:
            assert is_served(friend)
            for line in list(open_lines):
                line.socket.settimeout(0.05)
                try:
                    line.socket.sendall(piece)
                except OSError:  # it is not read from, or closed
                    open_lines.remove(line)
                    continue
                sent[line] += MIB
                if sent[line] >= 94 * MIB:
                    open_lines.remove(line)
        grown = target.rss_bytes() - target.fresh_bytes
        assert is_served(friend)
        assert sum(sent.values()) > 100 * MIB
        # The bound, a quarter, one frame; and what the allocator keeps.
        assert grown < 300 * MIB, grown // MIB
    for line in flood:
        line.socket.close()
    broker.kill()
