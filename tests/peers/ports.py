"""Ports for servers that are started later. WORLD."""

import contextlib
import random
import socket


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, all different.

    They lie below those that the kernel gives to clients: a node that is down for a while would find its
    port taken by a connection of somebody else.
    """
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            one = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind(("127.0.0.1", random.randrange(10_000, 32_000)))
                found.append(one.getsockname()[1])
        return found
