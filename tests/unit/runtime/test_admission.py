"""How much of large requests may be under way at once: the others wait, and small ones do not."""

import time

import pytest

from tests.unit.runtime.echo import PRODUCE, Running, frame, produced, read_frame

HELD = PRODUCE + b"in slices"


def waiting(node: Running, count: int) -> None:
    """Wait until so many requests wait for room."""
    deadline = time.monotonic() + 20
    while node.runtime.admission.clients.waiting != count and time.monotonic() < deadline:
        node.on_loop(lambda: None)
    assert node.runtime.admission.clients.waiting == count


@pytest.mark.parametrize("size", [20_000, 1_000_000])
def test_large_requests_wait_while_those_in_slices_are_many_and_small_ones_do_not(
    node: Running, size: int
) -> None:
    """Goal: bounded memory, whoever hangs up. Method: one request fills the room; sizes that come in one
    piece and in many."""
    admission = node.runtime.admission.clients
    admission.bytes_max = 1
    bodies = [b"e%d" % n + b"x" * size for n in range(3)]
    with node.connect() as first, node.connect() as small:
        first.sendall(frame(HELD))
        [held] = produced(node, 1)
        first.close()
        large = [node.connect() for _ in bodies]
        for sock, body in zip(large, bodies, strict=True):
            sock.sendall(frame(body) + frame(b"e-behind"))
        waiting(node, 3)
        small.sendall(frame(b"e-small-one"))
        assert read_frame(small) == b"e-small-one"
        assert admission.held_bytes == len(frame(HELD))
        node.on_loop(held.on_end)
        for sock, body in zip(large, bodies, strict=True):
            assert read_frame(sock) == body
            assert read_frame(sock) == b"e-behind"
            sock.close()
    assert (admission.held_bytes, admission.waiting) == (0, 0)


@pytest.mark.parametrize("size", [20_000, 1_000_000])
def test_a_request_that_waited_for_room_is_dropped_with_its_connection(
    node: Running, size: int
) -> None:
    node.runtime.admission.clients.bytes_max = 1
    with node.connect() as first, node.connect() as last:
        first.sendall(frame(HELD))
        [held] = produced(node, 1)
        with node.connect() as gone:
            gone.sendall(frame(PRODUCE + b"x" * size))
            waiting(node, 1)
        last.sendall(frame(b"e" + b"x" * size))
        waiting(node, 2)
        node.on_loop(list(node.server._connections.values())[-1].close)  # the one that came last
        node.on_loop(held.on_end)
        assert len(read_frame(last)) == size + 1
        produced(node, 1)  # and no other


@pytest.mark.parametrize("key", [1, 56, 58, 73])
def test_replicas_and_brokers_do_not_wait_for_clients(node: Running, key: int) -> None:
    node.runtime.admission.clients.bytes_max = 1
    with node.connect() as client, node.connect() as broker:
        client.sendall(frame(HELD))
        [held] = produced(node, 1)
        body = key.to_bytes(2, "big") + b"x" * 20_000
        broker.settimeout(20)
        broker.sendall(frame(body))
        assert read_frame(broker) == body
        node.on_loop(held.on_end)


@pytest.mark.parametrize("key", [1, 56, 58, 73])
def test_who_passes_for_a_replica_or_a_broker_waits_for_others_that_do(
    node: Running, key: int
) -> None:
    """They held 100 MB each, however many of them there were."""
    room = node.runtime.admission.brokers
    room.bytes_max = 1
    body = key.to_bytes(2, "big") + b"x" * 20_000
    with node.connect() as sock:
        node.on_loop(lambda: setattr(room, "held_bytes", 1))
        sock.sendall(frame(body))
        deadline = time.monotonic() + 20
        while room.waiting != 1 and time.monotonic() < deadline:
            node.on_loop(lambda: None)
        assert room.waiting == 1
        node.on_loop(lambda: setattr(room, "held_bytes", 0))
        node.on_loop(room._go_on)
        assert read_frame(sock) == body


def test_those_who_wait_come_in_one_after_the_other_as_far_as_there_is_room(node: Running) -> None:
    admission = node.runtime.admission.clients
    admission.bytes_max = 30_000
    body = PRODUCE + b"x" * 20_000 + b"in slices"
    socks = [node.connect() for _ in range(5)]
    for place, sock in enumerate(socks):
        sock.sendall(frame(body))
        waiting(node, max(0, place - 1))
    tickets = produced(node, 2)
    for count in range(3, 6):
        node.on_loop(tickets[count - 3].on_end)
        tickets = produced(node, count)
        assert admission.held_bytes == 2 * len(frame(body))
        waiting(node, 5 - count)
    for sock in socks:
        sock.close()
