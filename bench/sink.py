"""The floors of bulk figures: a Python server that receives, and with FILES also checks and appends.

    python bench/sink.py PORT [DIRECTORY]

Receives on one connection into one buffer. With a directory every 128 KiB also costs a CRC-32C and a
write to the end of a file; files are 64 MiB and the last four are kept, so that pages of the cache are
used again as they are in a broker with retention. Ends with its one peer; prints `ready` first.
"""

import os
import socket
import sys

from crc32c import crc32c

CHUNK_BYTES = 128 << 10
FILE_BYTES = 64 << 20
FILES_KEPT = 4


def receive(peer: socket.socket) -> None:
    """Receive, and no more."""
    chunk = memoryview(bytearray(1 << 20))
    while peer.recv_into(chunk):
        pass


def append(peer: socket.socket, directory: str) -> None:
    """Receive whole chunks; check and write each."""
    chunk = memoryview(bytearray(CHUNK_BYTES))
    filled = position = 0
    kept: list[str] = []
    fd, files = -1, 0
    while size := peer.recv_into(chunk[filled:]):
        filled += size
        if filled < CHUNK_BYTES:
            continue
        filled = 0
        if fd < 0 or position >= FILE_BYTES:
            if fd >= 0:
                os.close(fd)
            kept.append(os.path.join(directory, f"sink-{os.getpid()}-{files}"))
            files += 1
            fd, position = os.open(kept[-1], os.O_CREAT | os.O_WRONLY, 0o644), 0
            if len(kept) > FILES_KEPT:
                os.unlink(kept.pop(0))
        crc32c(chunk)
        position += os.pwrite(fd, chunk, position)
    for path in kept:
        os.unlink(path)


def main() -> None:
    """Serve one peer."""
    with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
        print("ready", flush=True)
        peer, _ = listener.accept()
        if len(sys.argv) > 2:
            append(peer, sys.argv[2])
        else:
            receive(peer)


if __name__ == "__main__":
    main()
