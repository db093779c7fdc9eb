"""An answer that waits in a socket while its log is cut and filled again sends nothing of the new records.

The peer reads slowly: most of the answer is still in the file when the truncation comes (KAFKA-18723).
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from firnline.base.errors import RecordsTruncated, StorageError
from firnline.base.log_lines.line import Log as LoggedLine
from firnline.base.ports import Fs
from firnline.base.slices import FileSlice
from firnline.log.log import Log
from firnline.log.recovery import open_log
from firnline.protocol.schema import Part
from firnline.runtime import net
from firnline.runtime.disk import RealFs
from firnline.sim.disk import CrashableFs
from tests.unit.runtime.echo import Echo, Running, frame
from tests.worlds.effects import said
from tests.worlds.log import NOW, TOPIC_ID, TP, append, batch, small

BATCH = 1 << 16
COUNT = 240
CUT = 100  # the offset that the log is cut at


def opened(fs: Fs, path: str) -> Log:
    config = small(segment_bytes=1 << 30, segment_index_bytes=1 << 20, max_message_bytes=1 << 20)
    return open_log(fs, path, TP, topic_id=TOPIC_ID, config=config, now_ms=NOW)


def fill(log: Log, letter: str, count: int) -> None:
    for _ in range(count):
        append(log, batch(letter * BATCH))


def slices(log: Log, start: int = 0, count: int = COUNT) -> list[FileSlice]:
    return list(log.read(start, max_bytes=1 << 30, upto_offset=start + count).slices)


class Serving(Echo):
    """Answers every request with the slices that the test chose."""

    def __init__(self, log: Log) -> None:
        self.slices: list[FileSlice] = []
        self.log = log

    def encode(self, reply: object) -> list[Part]:
        size = sum(part.size_bytes for part in self.slices)
        return [struct.pack(">i", size), *self.slices]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = opened(RealFs(), str(tmp_path / "t-0"))
    fill(log, "a", COUNT)
    return log


@pytest.fixture
def node(log: Log, tmp_path: Path) -> Iterator[Running]:
    big = tmp_path / "big"
    big.write_bytes(b"")
    running = Running(big)
    running.runtime.dispatcher = running.server.dispatcher = Serving(log)  # type: ignore[assignment]
    running.thread.start()
    yield running
    running.on_loop(running.loop.stop)
    running.thread.join(20)
    running.runtime.close()


def ask(node: Running, wanted: list[FileSlice]) -> socket.socket:
    """Ask for the slices, and take but the first byte of the answer."""
    node.server.dispatcher.slices = wanted  # type: ignore[attr-defined]
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    peer.settimeout(20)
    peer.connect(("127.0.0.1", node.port))
    peer.sendall(frame(b"anything at all"))
    assert peer.recv(1) == b"\0"
    return peer


def rest_of(peer: socket.socket, size: int) -> bytes:
    """Everything that still comes, up to `size` bytes: less where the connection was closed."""
    found = bytearray(b"\0")
    while len(found) < size:
        try:
            some = peer.recv(min(1 << 20, size - len(found)))
        except ConnectionResetError:
            break
        if not some:
            break
        found += some
    peer.close()
    return bytes(found)


@pytest.mark.parametrize("how", ["cut", "cut while the file was closed", "fully"])
def test_an_answer_in_the_socket_has_the_records_that_were_there_or_ends(
    node: Running, log: Log, how: str
) -> None:
    wanted = slices(log)
    size = 4 + sum(part.size_bytes for part in wanted)
    before = struct.pack(">i", size - 4) + b"".join(part.read() for part in wanted)
    peer = ask(node, wanted)

    def cut_and_refill() -> None:
        if how == "fully":
            log.truncate_fully(0, now_ms=NOW)
        else:
            if how != "cut":
                log.roll(NOW)
                log._segments.all()[0].release()
                assert slices(log, 0, 1)[0].file is not wanted[0].file
            log.truncate_to(CUT)
        fill(log, "b", COUNT - CUT)

    node.on_loop(cut_and_refill)
    found = rest_of(peer, size)
    assert before.startswith(found)
    assert (len(found) == size) == (how == "fully"), "a file that was removed keeps its bytes"
    wanted = slices(log, 0, log.log_end_offset)
    after = b"".join(part.read() for part in wanted)
    assert rest_of(ask(node, wanted), 4 + len(after))[4:] == after


def test_an_answer_below_the_cut_is_sent_in_full(node: Running, log: Log) -> None:
    wanted = slices(log, 0, CUT)
    before = b"".join(part.read() for part in wanted)
    peer = ask(node, wanted)

    def cut_and_refill() -> None:
        log.truncate_to(CUT)
        fill(log, "b", COUNT - CUT)

    node.on_loop(cut_and_refill)
    assert rest_of(peer, 4 + len(before))[4:] == before


class Failing:
    """A small file on a disk that refuses to read it."""

    path = "t-0/00000000000000000000.log"

    def fileno(self) -> int:
        return -1

    def read(self, position: int, size: int) -> bytes:
        raise StorageError("cannot read", path=self.path, error="EIO")


def test_a_file_that_cannot_be_read_ends_the_answer_and_not_the_node(
    node: Running, log: Log
) -> None:
    """Its directory may have failed alone, and the others are served (rel-P9)."""
    node.server.dispatcher.slices = [FileSlice(Failing(), 0, 100)] * 2  # type: ignore[attr-defined,arg-type]
    peer = socket.create_connection(("127.0.0.1", node.port), 20)
    peer.sendall(frame(b"anything at all"))
    assert len(rest_of(peer, 205)) < 205
    wanted = slices(log, 0, 1)
    before = b"".join(part.read() for part in wanted)
    assert rest_of(ask(node, wanted), 4 + len(before))[4:] == before


@pytest.mark.parametrize("is_real", [True, False])
def test_a_read_of_what_was_cut_is_an_error_also_after_the_file_is_filled(
    tmp_path: Path, is_real: bool
) -> None:
    fs: Fs = RealFs() if is_real else CrashableFs()
    log = opened(fs, str(tmp_path / "t-0") if is_real else "/data/t-0")
    fill(log, "a", 4)
    first, last = slices(log, 0, 1)[0], slices(log, 3, 1)[0]
    log.truncate_to(2)
    fill(log, "b", 2)
    assert first.read() == slices(log, 0, 1)[0].read()
    with pytest.raises(RecordsTruncated):
        last.read()
    assert last.file.fileno() == -1, "no shorter way to its bytes"
    assert slices(log, 3, 1)[0].read()


@pytest.mark.parametrize("how", ["the device fails", "the file is too short"])
def test_an_answer_that_the_disk_cannot_read_ends_and_is_reported(
    node: Running, log: Log, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Index and headers are in memory: a consumer asked again for ever, and the operator heard nothing."""

    def sendfile(*_: int) -> int:
        if how == "the device fails":
            raise OSError(errno.EIO, "Input/output error")
        return 0

    notified: list[LoggedLine] = []
    monkeypatch.setattr(net, "log_line", notified.append)
    wanted = slices(log)
    peer = ask(node, wanted)
    node.on_loop(lambda: monkeypatch.setattr(os, "sendfile", sendfile))
    size = 4 + sum(part.size_bytes for part in wanted)
    assert len(rest_of(peer, size)) < size
    assert len(notified) == 1
    assert wanted[0].file.path in said(notified[0])
