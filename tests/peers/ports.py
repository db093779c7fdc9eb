"""Ports for servers that are started later. WORLD."""

import contextlib
import os
import random
import socket

_FIRST, _BEHIND = 10_000, 20_000  # beyond them `firnline dev --nodes` looks for its own


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, all different.

    They lie below those that the kernel gives to clients: a node that is down for a while would find its
    port taken by a connection of somebody else. Nor do two workers of one run look in the same place.
    """
    mine = own_ports(
        os.environ.get("PYTEST_XDIST_WORKER", "gw0"),
        int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
    )
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            one = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind(("127.0.0.1", random.choice(mine)))
                found.append(one.getsockname()[1])
        return found


def free_ports_in_a_row(count: int) -> int:
    """Return the first of so many ports, one behind the other, that nobody listens on."""
    while True:
        (first,) = free_ports(1)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def own_ports(worker: str, workers: int) -> range:
    """Return the ports of one worker of several, by the name that pytest-xdist gives it."""
    width = (_BEHIND - _FIRST) // workers
    first = _FIRST + int(worker.removeprefix("gw")) % workers * width
    return range(first, first + width)
