"""Moves of partitions under way: how they are shown, and how a command waits for them. WORLD."""

import math
import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import click

from firnline.base.errors import FirnlineError
from firnline.base.ids import TopicPartition
from firnline.cli.operations.words import count_of, duration_ms_of
from firnline.cli.show import as_json, bytes_of, rows
from firnline.client.admin import Admin
from firnline.client.operations.reassignments import Move, list_moves, with_progress

LOOK_S = 0.5
ANSWER_S = 10.0
SILENCE_S = 60.0
_INTERRUPTED = 130


def wait_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --wait and --within."""
    options = (
        click.option("--wait", "is_waiting", is_flag=True, help="Wait until the moves are over."),
        click.option(
            "--within", metavar="TIME", help="With --wait: for so long at most (90s, 2h)."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def wait_for_moves(
    bootstrap: str, places: Collection[TopicPartition], within: str | None
) -> list[Move]:
    """Wait until none of these partitions moves, and show progress on a terminal; return what still moves.

    A cluster may be silent for a while: a broker that restarts ends no wait. Ctrl-C ends it, not the moves.
    """
    until_s = math.inf
    if within is not None:
        until_s = time.monotonic() + duration_ms_of(within, "--within") / 1000
    is_terminal = sys.stderr.isatty()
    answered_s = time.monotonic()
    try:
        while True:
            try:
                left = _look(bootstrap, places)
                answered_s = time.monotonic()
            except FirnlineError:
                if time.monotonic() > min(until_s, answered_s + SILENCE_S):
                    raise
                time.sleep(LOOK_S)
                continue
            is_over = not left or time.monotonic() >= until_s
            if is_terminal:
                click.echo(
                    f"\r\x1b[K{progress_line(left, len(places) - len(left), len(places))}",
                    err=True,
                    nl=is_over,
                )
            if is_over:
                return left
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        click.echo("\nthe moves go on: see firnline partition status", err=True)
        sys.exit(_INTERRUPTED)


def _look(bootstrap: str, places: Collection[TopicPartition]) -> list[Move]:
    """Return which of the partitions move. Each look has its own time: the wait may take hours."""
    with Admin(bootstrap, timeout_s=ANSWER_S) as admin:
        left = [row for row in list_moves(admin) if row.place in places]
        return with_progress(admin, left)


def progress_line(left: Sequence[Move], moved: int, total: int) -> str:
    """Return how far moves are: `moved` of `total` partitions are there, and `left` are on their way."""
    said = f"{moved} of {count_of(total, 'partition')} moved"
    known = [row for row in left if row.size_bytes >= 0]
    if not known:
        return said
    copied = bytes_of(sum(row.copied_bytes for row in known))
    size = bytes_of(sum(row.size_bytes for row in known))
    return f"{said}, {copied} of {size} copied of {len(left)} under way"


def show_progress(found: Sequence[Move], style: str) -> None:
    """Show moves as rows."""
    if style == "json":
        as_json([row._asdict() for row in found])
        return
    shown = [
        {
            "topic": row.topic,
            "partition": row.partition,
            "replicas": row.replicas,
            "adding": row.adding,
            "removing": row.removing,
            "copied": bytes_of(row.copied_bytes) if row.copied_bytes >= 0 else "",
            "of": bytes_of(row.size_bytes) if row.size_bytes >= 0 else "",
        }
        for row in found
    ]
    rows(shown, style, empty="no partition moves")
