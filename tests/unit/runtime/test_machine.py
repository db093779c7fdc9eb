"""Watching the machine: a loop that is late, disks that are asked, and one that hangs."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firnline.base.counting.machine import MachineFacts
from firnline.runtime.machine import MachineWatch
from firnline.runtime.poll import PollLoop


def until(what: Callable[[], Any]) -> None:
    end_s = time.monotonic() + 10
    while not what():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_a_loop_that_is_held_up_is_late_and_one_that_is_not_is_idle(tmp_path: Path) -> None:
    loop, facts = PollLoop(), MachineFacts()
    watch = MachineWatch(loop, facts, [str(tmp_path)], lambda: 1_000)
    loop.call_later(0.3, time.sleep, 0.6)
    loop.call_later(2.3, loop.stop)  # idle for 1.7 s; a busy machine may take most of it
    began_s = time.monotonic()
    loop.run()
    ran_s = time.monotonic() - began_s
    watch.close()
    loop.close()
    # The timer was due within a quarter of a second of the beginning of that step.
    assert 300 < facts.held_up_ms < 5_000
    assert 0.5 < loop.idle_s < ran_s - 0.55


def test_disks_are_asked_at_once_and_one_that_is_gone_is_no_disk(tmp_path: Path) -> None:
    loop, facts = PollLoop(), MachineFacts()
    gone = str(tmp_path / "gone")
    watch = MachineWatch(loop, facts, [str(tmp_path), gone, str(tmp_path)], lambda: 1_000)
    until(lambda: facts.disks and not facts.silent_disk)
    watch.close()
    loop.close()
    assert list(facts.disks) == [str(tmp_path)]
    space = facts.disks[str(tmp_path)]
    assert 0 < space.free_bytes <= space.total_bytes


def test_a_disk_that_hangs_is_named_and_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers = threading.Event()

    def hang(path: str) -> None:
        answers.wait(20)
        raise OSError

    monkeypatch.setattr(os, "statvfs", hang)
    loop, facts = PollLoop(), MachineFacts()
    watch = MachineWatch(loop, facts, [str(tmp_path)], lambda: 7_000)
    until(lambda: facts.silent_disk)
    assert (facts.silent_disk, facts.silent_since_ms) == (str(tmp_path), 7_000)
    loop.call_later(0.01, loop.stop)
    loop.run()
    watch.close()
    loop.close()
    monkeypatch.undo()
    answers.set()
