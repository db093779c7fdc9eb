"""Kafka's tools one after the other in one JVM, which costs its start once. WORLD.

with Tools() as tools:
    tools.use("topics", "--bootstrap-server", where, "--list")

`kafka.tool` uses the JVM of `shared()`, which lives as long as this process.
"""

import atexit
import contextlib
import functools
import struct
import subprocess
import threading
from pathlib import Path
from typing import Self

from tests.peers import kafka

_PROGRAM = Path(__file__).with_name("Tools.java")
_PATIENCE_S = 300.0  # a machine that does much else
_STOP_S = 10.0


class ToolFailed(Exception):
    """A tool ended with another code than 0; the text is what it printed to stdout and stderr."""

    def __init__(self, what: str, code: int, out: str, err: str) -> None:
        super().__init__(f"{what} ended with {code}:\n{out}{err[-4000:]}")
        self.code, self.out, self.err = code, out, err


class Tools:
    """The JVM, started by the first use. A tool that does not end takes it along: TimeoutError."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_free = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the JVM; the next use starts another one."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def use(self, name: str, *words: str, stdin: str = "", timeout_s: float = _PATIENCE_S) -> str:
        """Run one of `kafka.TOOLS`; return what it printed. ToolFailed.

        One at a time: another thread waits.
        """
        with self._is_free:
            return self._use(name, (*words, stdin), timeout_s)

    def _use(self, name: str, words: tuple[str, ...], timeout_s: float) -> str:
        """The last one of the words goes to its stdin."""
        if self._process is None:
            self._process = subprocess.Popen(
                kafka.command(str(_PROGRAM), is_short=True),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        process = self._process
        assert process.stdin is not None
        texts = [text.encode() for text in (kafka.TOOLS[name], *words)]
        asked = struct.pack(">i", len(texts))
        asked += b"".join(struct.pack(">i", len(text)) + text for text in texts)
        late = threading.Timer(timeout_s, process.kill)
        late.start()
        try:
            process.stdin.write(asked)
            process.stdin.flush()
            code, out, err = self._number(), self._text(), self._text()
        except OSError:
            self.close()
            raise
        finally:
            late.cancel()
        if code:
            raise ToolFailed(f"{name} {words[:-1]}", code, out, err)
        return out

    def _text(self) -> str:
        return self._exactly(self._number()).decode(errors="replace")

    def _number(self) -> int:
        return int(struct.unpack(">i", self._exactly(4))[0])

    def _exactly(self, size: int) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        if len(data) < size:
            raise TimeoutError("the tool did not end in time, or ended its JVM")
        return data


@functools.cache
def shared() -> Tools:
    """The JVM of this process."""
    tools = Tools()
    atexit.register(tools.close)
    return tools
