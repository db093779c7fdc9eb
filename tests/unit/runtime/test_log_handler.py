"""Log lines go to a file descriptor whose reader may have stopped: nobody waits for it."""

import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from firnline.runtime.logs.formats import TextFormatter
from firnline.runtime.logs.handler import END_S, BackgroundHandler

pytestmark = pytest.mark.slow

LINES, LINES_MAX = 20_000, 1_000
_handlers: list[BackgroundHandler] = []


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    for (
        handler
    ) in _handlers:  # their threads get errors now; the number of the descriptor is used again
        while handler._lines or handler._is_writing:
            handler.flush()
    _handlers.clear()
    os.close(writer)


def _say(handler: BackgroundHandler, text: str) -> None:
    handler.handle(logging.LogRecord("firnline", logging.INFO, "", 0, text, None, None))


def _handler(writer: int, **bounds: int) -> BackgroundHandler:
    handler = BackgroundHandler(writer, **bounds)
    handler.setFormatter(TextFormatter())
    _handlers.append(handler)
    return handler


def test_lines_are_written_in_order(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    handler = _handler(writer)
    for number in range(100):
        _say(handler, f"line {number}")
    handler.flush()
    found = os.read(reader, 1 << 16).decode().splitlines()
    assert [line.rpartition(": ")[2] for line in found] == [f"line {n}" for n in range(100)]


def test_a_reader_that_stops_delays_nobody_and_learns_what_it_missed(
    pipe: tuple[int, int],
) -> None:
    reader, writer = pipe
    handler = _handler(writer, lines_max=LINES_MAX)
    began = time.monotonic()
    for number in range(LINES):
        _say(handler, f"line {number} {'x' * 100}")
    assert time.monotonic() - began < 5, "the pipe holds 64 KiB, and nobody reads it"
    assert handler.dropped > LINES // 2
    text = b""
    while b"were dropped" not in text:
        text += os.read(reader, 1 << 16)
    lines = text.decode().splitlines()
    assert f"log lines were dropped count={handler.dropped}" in lines[-1]
    assert len(lines) == LINES - handler.dropped + 1


def test_the_end_waits_for_a_reader_that_is_slow(pipe: tuple[int, int]) -> None:
    """Goal: nothing is lost to a reader that reads. Method: one that takes longer than a second for all."""
    reader, writer = pipe
    handler = _handler(writer)
    for number in range(LINES_MAX):
        _say(handler, f"line {number} {'x' * 200}")
    found = bytearray()

    def read_slowly() -> None:
        while data := os.read(reader, 16_384):
            found.extend(data)
            time.sleep(0.1)
            if data.endswith(b"the end\n"):
                return

    reads = threading.Thread(target=read_slowly)
    began_s = time.monotonic()
    reads.start()
    handler.flush()
    left = len(handler._lines)
    _say(handler, "the end")
    reads.join()
    assert left == 0
    assert time.monotonic() - began_s > END_S, "the reader was not slow"
    assert found.count(b"\n") == LINES_MAX + 1


def test_the_end_waits_once_for_a_reader_that_has_stopped(pipe: tuple[int, int]) -> None:
    """Goal: a second, and not one for each of those who flush. Method: nobody reads 200 kB."""
    reader, writer = pipe
    handler = _handler(writer)
    for _ in range(LINES_MAX):
        _say(handler, "x" * 200)
    handler.flush()
    assert handler.is_stuck
    waited: list[float | None] = []
    handler._changed.wait = waited.append  # type: ignore[assignment,method-assign]
    handler.flush()
    del handler._changed.wait
    assert not waited
    while handler._lines or handler._is_writing:
        # The last line may be read before its thread has said that it is written: nothing comes then.
        if select.select([reader], [], [], 0.1)[0]:
            os.read(reader, 1 << 16)
    assert not handler.is_stuck, "it is read again"


def test_the_memory_of_lines_that_wait_has_a_bound(pipe: tuple[int, int]) -> None:
    _, writer = pipe
    handler = _handler(writer, bytes_max=100_000)
    for _ in range(1_000):
        _say(handler, "x" * 5_000)
    assert handler._size_bytes <= 100_000
    assert handler.dropped > 900


def test_a_closed_pipe_or_a_full_disk_is_no_error() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    handler = _handler(full)
    for _ in range(10):
        _say(handler, "nobody sees this")
    handler.flush()
    assert handler.dropped == 10
    os.close(full)


def test_a_process_ends_although_nobody_reads_its_log(pipe: tuple[int, int]) -> None:
    """In a second, of which it waits one for the reader."""
    _, writer = pipe
    program = (
        "import logging, sys\n"
        "from firnline.cli.server import log_to_stderr\n"
        "log_to_stderr('info')\n"
        "for n in range(20_000): logging.getLogger('firnline').info('x' * 200)\n"
        "print('on', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=writer
    )
    try:
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (out, process.returncode) == (b"on\n", 0)
