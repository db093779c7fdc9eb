"""`firnline produce` and `firnline consume` in a script with many lines, and on a terminal."""

import io
import os
import pty
import re
import resource
import select
import subprocess
import sys
import time

import pytest

from firnline.testing import Topic
from tests.compat.test_client_in_the_box import PATIENCE_S, begin, run
from tests.peers.nodes import eventually

LINES, LINE_OF_92 = 300_000, b"x" * 45 + b" " + b"y" * 45 + b"\n"


def processor_s(topic: Topic, command: str, *words: str, data: bytes = b"") -> float:
    """Run a command; return the processor time that its process took. The broker's is not in it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run(topic.bootstrap, command, topic, *words, data=data)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.out.count(b"\n") in (0, LINES)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def loop_s() -> float:
    """The processor time of a plain loop over as many lines: how fast this machine is now."""
    lines, total = LINE_OF_92 * LINES, 0
    began_s = time.process_time()
    for line in io.BytesIO(lines):
        total += len(line.split(b" "))
    assert total > LINES
    return time.process_time() - began_s


def test_a_script_may_send_and_read_many_lines(firnline_topic: Topic) -> None:
    """100,000 lines a second, with room: docs/CLIENT.md has the rates of an idle machine.

    Rates depend on who else computes here, processor time does less: a line may take as much as 60 turns
    of a loop. At 0.35 us a turn that is 21 us, which the two threads of the command, on two cores, can do
    100,000 times a second. Found: 22 and 4 turns, on a busy machine.
    """
    start_s = processor_s(firnline_topic, "produce")
    produced_s = processor_s(firnline_topic, "produce", data=LINE_OF_92 * LINES) - start_s
    consumed_s = processor_s(firnline_topic, "consume", "-e") - start_s
    turns = [each / loop_s() for each in (produced_s, consumed_s)]
    assert max(turns) < 60, turns


class Terminal:
    """A terminal that a command has as its stderr."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        self.shown = b""

    def read(self) -> bytes:
        """Return all that was shown so far."""
        while select.select([self._ours], [], [], 0)[0]:
            self.shown += os.read(self._ours, 1 << 16)
        return self.shown

    def close(self) -> None:
        os.close(self._ours)
        os.close(self.theirs)


@pytest.mark.parametrize("words", [("produce",), ("consume", "-n", "7")])
def test_progress_is_shown_on_a_terminal_and_taken_away(
    firnline_topic: Topic, words: tuple[str, ...]
) -> None:
    """In a pipe there is none: all other tests here read what is said there."""
    command, *options = words
    topic = firnline_topic
    terminal = Terminal()
    line = [sys.executable, "-m", "firnline", command, topic, *options, "-b", topic.bootstrap]
    process = subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=terminal.theirs
    )
    assert process.stdin is not None
    feed = process if command == "produce" else begin(topic.bootstrap, "produce", topic)
    assert feed.stdin is not None

    def is_shown() -> bool:
        assert feed.stdin is not None
        if not feed.stdin.closed and sent[0] < 6:
            feed.stdin.write(b"x\n")
            feed.stdin.flush()
            sent[0] += 1
        return re.search(rb"\r\x1b\[K\d+ records, \d+ a second", terminal.read()) is not None

    sent = [0]
    eventually("how many there were", is_shown)
    feed.stdin.write(b"x\n" * (7 - sent[0]))
    feed.stdin.close()
    assert process.wait(PATIENCE_S) == 0
    if feed is not process:
        assert feed.wait(PATIENCE_S) == 0
    shown = terminal.read()
    terminal.close()
    last = shown.rpartition(b"\r\x1b[K")[2]
    assert b"a second" not in last, shown
    if command == "produce":
        assert last == b"firnline: delivered 7 records\r\n"
