"""Brokers that hang, each in its way."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

Hang = Callable[[], contextlib.AbstractContextManager[str]]


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """A broker that accepts connections, and never answers: a process that is stopped."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def dripping() -> Iterator[str]:
    """A broker whose answer comes byte by byte: each in time, all of them never."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        over = threading.Event()

        def drip(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"\0\1\0\0")
                while not over.wait(0.02):
                    connection.sendall(b"\0")

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=drip, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        over.set()
        listener.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def unreachable() -> Iterator[str]:
    """An address behind a firewall: a connection to it is never established, and never refused."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        while True:
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0.2)
            try:
                waiting.connect(listener.getsockname())
            except TimeoutError:
                break
        yield f"127.0.0.1:{listener.getsockname()[1]}"
