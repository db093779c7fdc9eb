"""Who has how many connections, and which of them makes room for the next."""

import socket
import time
from typing import Any

import pytest

from firnline.base.effects import Reply
from firnline.runtime.bounds.connections import Connections, Limits
from firnline.runtime.listener import Server, listen
from tests.unit.runtime.echo import Running, frame, is_closed, read_frame


def spoken(node: Running, host: str = "127.0.0.1") -> socket.socket:
    """Connect from an address and ask once."""
    sock = node.connect(host)
    sock.settimeout(20)
    assert is_served(sock)
    return sock


def is_served(sock: socket.socket) -> bool:
    """Ask once more."""
    try:
        sock.sendall(frame(b"e-served"))
        return read_frame(sock) == b"e-served"
    except (AssertionError, ConnectionError):
        return False


def test_idle_connections_of_one_address_do_not_lock_out_another(node: Running) -> None:
    """Goal: 10,050 idle connections of an address kept everybody out. Method: a limit of 8, a flood of 40."""
    friend = spoken(node, "127.0.0.3")
    flood = [spoken(node, "127.0.0.2") for _ in range(40)]
    with spoken(node, "127.0.0.4") as late:
        assert is_served(friend)
        assert is_served(late)
    assert is_closed(flood[0])
    assert is_served(flood[-1])
    counted = node.server.counted
    assert counted.evicted == 34
    assert counted.refused == 0
    friend.close()
    for sock in flood:
        sock.close()


def test_the_least_active_goes_first_and_one_that_is_busy_stays(node: Running) -> None:
    busy = node.connect()
    busy.sendall(frame(b"h-old-but-busy"))
    others = []
    for _ in range(7):
        others.append(spoken(node))
        time.sleep(0.002)
    assert is_served(others[0])
    with spoken(node):
        assert is_closed(others[1])
        assert is_served(others[0])
        held = node.runtime.dispatcher.held  # type: ignore[attr-defined]
        node.on_loop(lambda: node.runtime.execute([Reply(context=held, message=1)]))
        assert read_frame(busy) == b"h-old-but-busy"
    for sock in (busy, *others):
        sock.close()


def test_busy_connections_of_one_address_are_closed_for_another_address_alone(
    node: Running,
) -> None:
    """A flood that waits for answers is no better than one that waits for nothing."""
    flood = [node.connect("127.0.0.2") for _ in range(8)]
    for sock in flood:
        sock.sendall(frame(b"h-for-ever"))
    _settled(node, 8)
    with node.connect("127.0.0.2") as another:
        assert is_closed(another)
    with spoken(node, "127.0.0.3") as friend:
        assert is_served(friend)
    assert node.server.counted.evicted == node.server.counted.refused == 1
    for sock in flood:
        sock.close()


def _settled(node: Running, count: int) -> None:
    """Wait until so many connections have asked something that is not answered."""
    for _ in range(2_000):
        busy = [c for c in node.server._connections.values() if not c.is_idle]
        if len(busy) == count:
            return
        node.on_loop(lambda: None)
    raise AssertionError("they never asked")


def test_an_address_has_as_many_as_it_may_and_its_override_says_otherwise(node: Running) -> None:
    node.limits = Limits(100, 2, {"127.0.0.2": 4, "127.0.0.3": 0})
    for host, allowed in (("127.0.0.1", 2), ("127.0.0.2", 4), ("127.0.0.3", 0)):
        kept = [spoken(node, host) for _ in range(allowed)]
        with node.connect(host) as one_more:
            assert is_closed(one_more)
        assert all(is_served(sock) for sock in kept)
        for sock in kept:
            sock.close()
    assert node.server.counted.refused == 3
    assert node.server.counted.evicted == 0


def test_an_address_is_the_same_at_a_listener_of_ipv6(node: Running) -> None:
    try:
        sock = listen("::", 0)
    except OSError:
        pytest.skip("NOT RUN: this machine has no IPv6")
    node.limits = Limits(100, 100, {"127.0.0.1": 1})
    port = sock.getsockname()[1]
    counted = node.server.counted
    options: dict[str, Any] = {"listener": "SIX", "frame_bytes_max": 1_000, "idle_ms": 600_000}
    node.on_loop(
        lambda: node.runtime.servers.append(
            Server(node.runtime, node.loop, sock, counted=counted, **options)
        )
    )
    with spoken(node), socket.create_connection(("127.0.0.1", port), 20) as one_more:
        assert is_closed(one_more)
    node.on_loop(lambda: node.runtime.servers[-1].stop_accepting())


def test_who_has_closed_counts_no_more(node: Running) -> None:
    node.limits = Limits(100, 1)
    for _ in range(5):
        spoken(node).close()
        node.on_loop(lambda: None)
        for _ in range(2_000):
            if not node.server.counted.count:
                break
            node.on_loop(lambda: None)
    assert node.server.counted.refused == 0


def test_where_the_last_descriptors_are_gone_the_flood_makes_room(node: Running) -> None:
    counted = node.server.counted
    counted._has_room = lambda: counted.count < 4
    flood = [spoken(node, "127.0.0.2") for _ in range(10)]
    with spoken(node, "127.0.0.3") as friend:
        assert is_served(friend)
    assert counted.evicted == 7
    for sock in flood:
        sock.close()


def test_a_limit_that_is_lowered_holds_soon(node: Running) -> None:
    kept = [spoken(node) for _ in range(8)]
    node.limits = Limits(total=3)
    with spoken(node) as one_more:
        assert is_served(one_more)
        assert node.server.connection_count == 3
    for sock in kept:
        sock.close()


class Paper:
    """A connection that is none."""

    def __init__(
        self, counted: Connections, host: str, active_ms: int, *, is_protected: bool = False
    ) -> None:
        self.peer_host = host
        self.last_active_ms = active_ms
        self.is_idle = True
        self._counted = counted
        counted.add(self, is_protected=is_protected)

    def close(self) -> None:
        self.is_idle = False
        self._counted.remove(self)


def checks_of(counted: Connections) -> list[str]:
    """Note each address whose connections are looked through from now on."""
    checks: list[str] = []
    remember = counted._remember

    def noting(address: str) -> None:
        checks.append(address)
        remember(address)

    counted._remember = noting  # type: ignore[method-assign]
    return checks


def test_ten_thousand_idle_connections_make_room_without_being_looked_through_each_time() -> None:
    """Goal: a flood of new ones costs little each. Method: those looked at are counted, not timed."""
    counted = Connections(lambda: Limits(10_000))
    papers = [Paper(counted, "flood", number) for number in range(10_000)]
    checks = checks_of(counted)
    for number in range(1_000):
        assert counted.admit("flood")
        papers.append(Paper(counted, "flood", 10_000 + number))
    assert len(checks) <= 5
    assert [paper.is_idle for paper in papers] == [False] * 1_000 + [True] * 10_000


def test_who_knocks_without_a_pause_does_not_have_ten_thousand_busy_ones_looked_through_each_time() -> (
    None
):
    """It cost the loop a millisecond for each connection that was refused. Method: looks are counted."""
    counted = Connections(lambda: Limits(10_000))
    for number in range(10_000):
        Paper(counted, "flood", number).is_idle = False
    checks = checks_of(counted)
    assert not any(counted.admit("flood") for _ in range(1_000))
    assert 1 <= len(checks) <= 200
    assert counted.admit("another")


def test_one_connection_that_fits_has_the_open_files_counted_once() -> None:
    """On kernels before 6.2 that is a list of them all."""
    asked: list[None] = []
    counted = Connections(lambda: Limits(10), has_room=lambda: asked.append(None) is None)
    assert counted.admit("somebody")
    assert len(asked) == 1


@pytest.mark.parametrize("is_protected", [True, False])
def test_brokers_on_a_listener_of_their_own_come_in_whatever_clients_hold(
    is_protected: bool,
) -> None:
    """Kafka's rule for the inter-broker listener; and no client closes a broker's connection."""
    counted = Connections(lambda: Limits(2))
    broker = Paper(counted, "broker", 0, is_protected=True)
    client = Paper(counted, "client", 1)
    client.is_idle = False
    assert counted.admit("client", is_protected=is_protected) is is_protected
    assert broker.is_idle
