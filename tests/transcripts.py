"""Console transcripts of a page: their commands are run, and what they print is compared. WORLD.

A block of the kind `console` has commands, each behind `$ `; `> ` continues one. The lines below a command
are what it prints, on standard error too. `...` on a line of its own stands for any lines, within a line
for any text. A comment behind two blanks and `#` is not compared. The commands of a transcript share a bash,
so that `cd`, variables and background jobs last.
"""

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"(?<=\S) {2,}# .*$")
_VARIES = re.compile(r"\d|^[\w-]{22}$")
_ANY_LINES = "..."
_LOOKS = re.compile(
    r"firnline (?:cluster status|doctor|group describe|quorum status|tier status|topic describe)\b[^;&\n]*"
)
_LATE_S = 2.0
_ENDED = "the command has ended with "


class Step(NamedTuple):
    """A command, and the lines that it should print."""

    command: str
    printed: tuple[str, ...]

    @property
    def only_looks(self) -> bool:
        """Does it show a state that may change by itself, and change nothing?"""
        return _LOOKS.fullmatch(self.command) is not None


def blocks(page: str) -> list[str]:
    """Return the text of each transcript of a page."""
    return _BLOCK.findall(page)


def steps(block: str) -> list[Step]:
    """Return the commands of a transcript, each with what it prints."""
    found: list[tuple[list[str], list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif line.startswith("> ") and found and not found[-1][1]:
            found[-1][0].append(line[2:])
        elif found:
            found[-1][1].append(_COMMENT.sub("", line).rstrip())
        else:
            raise ValueError(f"a transcript begins with a command, not with {line!r}")
    return [Step("\n".join(command), tuple(printed)) for command, printed in found]


def matches(printed: Sequence[str], expected: Sequence[str]) -> bool:
    """Say whether lines are the expected ones; `...` in these stands for anything."""
    lines = [
        r"(?:.*\n)*" if line.strip() == _ANY_LINES
        else ".*".join(map(re.escape, line.split(_ANY_LINES))) + r"[ \t]*\n"
        for line in expected
    ]  # fmt: skip
    return re.fullmatch("".join(lines), "".join(f"{line}\n" for line in printed)) is not None


def masked(line: str) -> str:
    """Return a line with `#` for each word that has a digit or is an id, and one blank between words.

    `...` stands for words and for the blanks around them.
    """
    return re.sub(r" ?\.\.\. ?", _ANY_LINES, " ".join(map(_masked_word, line.split())))


def _masked_word(word: str) -> str:
    core = word.rstrip(",:;)")
    if not _VARIES.search(core):
        return word
    return ("#..." if _ANY_LINES in core else "#") + word[len(core) :]


class Console:
    """A bash that runs the commands of a transcript, one after the other. Leaving it ends its processes."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._unread = b""

    def __enter__(self) -> "Console":
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(10)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        self._selector.close()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()

    def check(self, step: Step, *, within_s: float, are_numbers_compared: bool = True) -> None:
        """Run a command; AssertionError unless it ends in time and prints what it should.

        What a job in the background prints may come after its command has ended. A command that only looks
        is run again until the time is over: a leader may be about to move, or a node to answer.
        """
        until_s = time.monotonic() + within_s
        shape = str if are_numbers_compared else masked
        expected = [*map(shape, step.printed)]

        def is_all(printed: list[str]) -> bool:
            return matches([*map(shape, printed)], expected)

        wait_s = _LATE_S if step.only_looks else within_s
        while True:
            printed, has_ended = self._run(step.command, until_s, wait_s, is_all)
            if has_ended and is_all(printed):
                return
            if not has_ended or not step.only_looks or time.monotonic() >= until_s:
                break
        said = "\n".join(printed)
        wanted = "\n".join(step.printed)
        state = "has printed" if has_ended else "has not ended, and printed"
        raise AssertionError(f"$ {step.command}\n{state}:\n{said}\ninstead of:\n{wanted}")

    def _run(
        self, command: str, until_s: float, wait_s: float, is_all: Callable[[list[str]], bool]
    ) -> tuple[list[str], bool]:
        """Return what a command prints, and whether it has ended.

        until_s  when to stop, ended or not
        wait_s   how long after its end more may come, unless `is_all` says that all is there
        """
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\necho '{_ENDED}'$?\n".encode())
        self._process.stdin.flush()
        printed: list[str] = []
        for line in self._lines(until_s):
            before, mark, _ = line.partition(_ENDED)
            printed += [before] if before or not mark else []
            if mark:
                break
        else:
            return printed, False
        late = self._lines(min(until_s, time.monotonic() + wait_s))
        while not is_all(printed) and (line := next(late, None)) is not None:
            printed.append(line)
        return printed, True

    def _lines(self, deadline: float) -> Iterator[str]:
        """Yield lines until the deadline, or until the output ends."""
        assert self._process.stdout is not None
        while True:
            line, end, rest = self._unread.partition(b"\n")
            if end:
                self._unread = rest
                yield line.decode(errors="replace").rstrip()
                continue
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not self._selector.select(left_s):
                return
            more = os.read(self._process.stdout.fileno(), 1 << 16)
            if not more:
                return
            self._unread += more


def run_transcript(
    block: str,
    directory: Path,
    environment: Mapping[str, str],
    *,
    replaced: Mapping[str, str] = {},
    within_s: float = 60,
    are_numbers_compared: bool = True,
) -> None:
    """Run a transcript, with texts of it replaced, such as a port. AssertionError at the first difference.

    are_numbers_compared  if not, words with a digit may be others, ids too, and columns may have any width
    """
    for text, by in replaced.items():
        block = block.replace(text, by)
    with Console(directory, environment) as console:
        for step in steps(block):
            console.check(step, within_s=within_s, are_numbers_compared=are_numbers_compared)
