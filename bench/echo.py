"""The floor of every request figure: a Python server that polls, receives and sends, and no more.

    python bench/echo.py PORT ANSWER_BYTES

Answers every chunk it receives with one frame of ANSWER_BYTES. Its CPU per request is what the kernel
and the interpreter cost before a broker has done anything.
"""

import select
import socket
import struct
import sys


def serve(port: int, answer_bytes: int) -> None:
    """Serve until killed."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    poller = select.epoll()
    poller.register(listener.fileno(), select.EPOLLIN)
    peers: dict[int, socket.socket] = {}
    chunk = memoryview(bytearray(1 << 20))
    answer = struct.pack(">i", answer_bytes - 4) + bytes(answer_bytes - 4)
    while True:
        for fd, _ in poller.poll():
            if fd == listener.fileno():
                peer, _ = listener.accept()
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peers[peer.fileno()] = peer
                poller.register(peer.fileno(), select.EPOLLIN)
                continue
            try:
                size = peers[fd].recv_into(chunk)
            except ConnectionResetError:
                size = 0
            if size:
                peers[fd].send(answer)
            else:
                poller.unregister(fd)
                peers.pop(fd).close()


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
