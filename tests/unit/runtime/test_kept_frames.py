"""A request of more than a mebibyte gets the buffer that it came in: no other one is ever seen in it."""

import pytest

from firnline.protocol.frame import POOLED_BYTES
from tests.unit.runtime.echo import LIMIT, PRODUCE, Echo, Running, frame, produced, read_frame

LARGE = 2 * POOLED_BYTES


def echo_of(node: Running) -> Echo:
    found = node.runtime.dispatcher
    assert isinstance(found, Echo)
    return found


@pytest.mark.parametrize("size", [POOLED_BYTES - 4, POOLED_BYTES - 3, LIMIT])
def test_a_request_owns_its_buffer_where_that_is_not_used_again(node: Running, size: int) -> None:
    """The largest that is copied, the smallest that is not, and one of exactly the limit."""
    body = b"e" + b"x" * (size - 1)
    with node.connect() as sock:
        sock.sendall(frame(body))
        assert read_frame(sock) == body
    assert [bytes(each) == body for each in echo_of(node).owned] == [True] * (
        size > POOLED_BYTES - 4
    )


def test_what_comes_behind_a_large_request_does_not_come_into_its_buffer(node: Running) -> None:
    """Goal: a request that is read in slices stays what it is. Method: others follow on its connection, small
    and large, before its answer and after, and then the connection closes."""
    bodies = [b"%c" % (command,) + bytes([n]) * LARGE for n, command in enumerate(b"ewe")]
    with node.connect() as sock:
        for body in bodies:
            sock.sendall(frame(body) + frame(b"e-between"))
            assert read_frame(sock) == body
            assert read_frame(sock) == b"e-between"
    with node.connect() as sock:
        sock.sendall(frame(b"e-elsewhere"))
        assert read_frame(sock) == b"e-elsewhere"
    assert list(map(bytes, echo_of(node).owned)) == bodies


def test_a_request_in_slices_keeps_its_buffer_when_its_client_hangs_up(node: Running) -> None:
    """It is counted with those under way until it ends, and no more with those that come in."""
    body = PRODUCE + b"x" * LARGE + b"in slices"
    admission, incoming = node.runtime.admission.clients, node.runtime.incoming
    with node.connect() as sock:
        sock.sendall(frame(body))
        [held] = produced(node, 1)
        assert (admission.held_bytes, incoming.held_bytes) == (len(frame(body)), 0)
    for _ in range(3):
        node.on_loop(lambda: None)
    [owned] = echo_of(node).owned
    assert bytes(owned) == body
    assert (admission.held_bytes, incoming.held_bytes) == (len(frame(body)), 0)
    node.on_loop(held.on_end)
    assert admission.held_bytes == 0


def test_a_request_that_waited_for_room_owns_its_buffer(node: Running) -> None:
    admission = node.runtime.admission.clients
    admission.bytes_max = 1
    body = b"e" + b"y" * LARGE
    with node.connect() as first, node.connect() as sock:
        first.sendall(frame(PRODUCE + b"in slices"))
        [held] = produced(node, 1)
        sock.sendall(frame(body))
        while not admission.waiting:
            node.on_loop(lambda: None)
        assert echo_of(node).owned == []
        node.on_loop(held.on_end)
        assert read_frame(sock) == body
    assert list(map(bytes, echo_of(node).owned)) == [body]
