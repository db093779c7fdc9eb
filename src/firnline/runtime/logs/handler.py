"""Writes log lines on a thread of its own, so that the event loop never waits for whoever reads them.
WORLD.

stderr may be a pipe whose reader has stopped, or a file on a full disk. Lines wait in memory then, up to a
bound. More of them are dropped and counted, and a line says how many once lines can be written again.
"""

import logging
import os
import select
import threading
import time
from collections import deque

LINES_MAX = 10_000
BYTES_MAX = 4 * 1024 * 1024
# How long the end of the process waits for a reader that takes nothing, and for one that is slow.
END_S = 1.0
END_S_MAX = 10.0
_BLOCKED_WAIT_MS = 200


class BackgroundHandler(logging.Handler):
    """Writes to a file descriptor.

    dropped   lines that nobody will see
    is_stuck  a `flush` gave up waiting, and no line was written since: whoever reads has stopped
    """

    def __init__(self, fd: int, *, lines_max: int = LINES_MAX, bytes_max: int = BYTES_MAX) -> None:
        super().__init__()
        self.dropped = 0
        self.is_stuck = False
        self._fd = fd
        self._lines_max, self._bytes_max = lines_max, bytes_max
        self._lines: deque[bytes] = deque()
        self._size_bytes = 0
        self._unreported = 0  # dropped, and no line has said so
        self._is_writing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Take one line; it never waits for the file."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - what cannot be formatted must not stop the node
            self.handleError(record)
            return
        data = f"{line}\n".encode("utf-8", "backslashreplace")
        with self._changed:
            if (
                len(self._lines) >= self._lines_max
                or self._size_bytes + len(data) > self._bytes_max
            ):
                self.dropped += 1
                self._unreported += 1
                return
            self._lines.append(data)
            self._size_bytes += len(data)
            if self._thread is None:
                # A daemon: the process can end while it waits for a reader.
                self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all lines are written, until END_S after the last one at most.

        Python calls it once more when the process ends: that waits for nothing where the first gave up.
        """
        now_s = time.monotonic()
        with self._changed:
            until_s, last_s = now_s + (0 if self.is_stuck else END_S), now_s + END_S_MAX
            left = len(self._lines)
            while self._lines or self._is_writing:
                now_s = time.monotonic()
                if len(self._lines) < left:
                    until_s = min(now_s + END_S, last_s)
                left = len(self._lines)
                left_s = until_s - now_s
                if left_s <= 0 or self._thread is None or not self._thread.is_alive():
                    self.is_stuck = until_s < last_s  # else it is only slow
                    return
                self._changed.wait(left_s)

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                while not self._lines:
                    self._changed.wait()
                data = self._lines.popleft()
                self._size_bytes -= len(data)
                self._is_writing = True
            if self._write(data):
                self.is_stuck = False
                self._report_dropped()
            else:
                with self._changed:
                    self.dropped += 1
                    self._unreported += 1

    def _report_dropped(self) -> None:
        """Say how many lines are missing, after the last one before the gap that was kept."""
        with self._changed:
            if not self._unreported or self._lines:
                return
            count, self._unreported = self._unreported, 0
        record = logging.LogRecord(
            "firnline", logging.WARNING, "", 0, "log lines were dropped", None, None
        )
        record.fields = {"count": count, "reason": "whoever reads the log did not keep up"}
        if not self._write(f"{self.format(record)}\n".encode("utf-8", "backslashreplace")):
            with self._changed:
                self._unreported += count

    def _write(self, data: bytes) -> bool:
        """Write everything, waiting for the reader. False: it cannot be written, as on a full disk."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                # Another process has made the descriptor that they share non-blocking.
                waiting = select.poll()
                waiting.register(self._fd, select.POLLOUT)
                waiting.poll(_BLOCKED_WAIT_MS)
            except OSError:
                return False
        return True
