"""Moves that begin a few at a time, so that copying leaves a cluster room for its clients. WORLD.

Kafka's users throttle a reassignment, because a move of everything at once takes the network and the disks
from producers and consumers. Here no more than some partitions are copied at once.
"""

import math
import sys
import time
from contextlib import suppress
from typing import NamedTuple

import click

from firnline.base.errors import Code, FirnlineError, KafkaError
from firnline.base.ids import TopicPartition
from firnline.cli.operations.progress import ANSWER_S, LOOK_S, SILENCE_S, progress_line
from firnline.cli.operations.words import count_of, duration_ms_of
from firnline.client.admin import Admin
from firnline.client.operations.balance import Assignment
from firnline.client.operations.reassignments import Move, list_moves, reassign, with_progress

_INTERRUPTED = 130
_LEAVE_S = 2.0


class UnderWay(NamedTuple):
    """Partitions that move already: where each comes from, and where it goes."""

    sources: Assignment
    targets: Assignment


def under_way(admin: Admin) -> UnderWay:
    """Return the moves that somebody has begun."""
    moves = list_moves(admin)
    return UnderWay(
        {row.place: tuple(b for b in row.replicas if b not in row.adding) for row in moves},
        {row.place: tuple(b for b in row.replicas if b not in row.removing) for row in moves},
    )


class Pace:
    """Moves partitions, at most `at_once` at the same time.

    What moves already when it begins counts, and is waited for. So the same plan can be given again after
    Ctrl-C, which begins nothing more and leaves the moves that are under way.
    """

    def __init__(
        self, bootstrap: str, wanted: Assignment, at_once: int, within: str | None
    ) -> None:
        self._bootstrap = bootstrap
        self._wanted = wanted
        self._at_once = at_once
        self._until_s = math.inf
        if within is not None:
            self._until_s = time.monotonic() + duration_ms_of(within, "--within") / 1000
        self._waiting = sorted(wanted)
        self._moving: list[Move] = []
        self.outcomes: dict[TopicPartition, KafkaError | None] = {}

    @property
    def not_begun(self) -> list[TopicPartition]:
        """What still waits for its turn."""
        return self._waiting

    @property
    def finished(self) -> set[TopicPartition]:
        """What was begun, was not refused, and does not move any more."""
        refused = {place for place, outcome in self.outcomes.items() if outcome is not None}
        moving = {row.place for row in self._moving}
        return set(self._wanted) - set(self._waiting) - moving - refused

    def run(self) -> list[Move]:
        """Move all of it, or as much as the time allows; return what moves still. Ctrl-C exits with 130.

        Raises FirnlineError if the cluster is silent for too long.
        """
        is_terminal = sys.stderr.isatty()
        answered_s = time.monotonic()
        try:
            while True:
                try:
                    self._step()
                    answered_s = time.monotonic()
                except FirnlineError:
                    if time.monotonic() > min(self._until_s, answered_s + SILENCE_S):
                        raise
                is_over = not (self._waiting or self._moving) or self._is_late
                if is_terminal:
                    line = progress_line(self._moving, len(self.finished), len(self._wanted))
                    wait = f", {len(self._waiting)} not begun" if self._waiting else ""
                    click.echo(f"\r\x1b[K{line}{wait}", err=True, nl=is_over)
                if is_over:
                    return self._moving
                time.sleep(LOOK_S)
        except KeyboardInterrupt:
            self._leave()
            sys.exit(_INTERRUPTED)

    @property
    def _is_late(self) -> bool:
        return time.monotonic() >= self._until_s

    def _step(self) -> None:
        """Look at what moves, and begin as much as there is room for."""
        with Admin(self._bootstrap, timeout_s=ANSWER_S) as admin:
            self._look(admin)
            room = self._at_once - len(self._moving)
            batch = self._waiting[: max(0, room)]
            if not batch or self._is_late:
                return
            outcomes = reassign(admin, {place: self._wanted[place] for place in batch})
            self.outcomes |= outcomes
            self._waiting = self._waiting[len(batch) :]
            # Until a look says otherwise.
            self._moving += [
                Move(place.topic, place.partition, self._wanted[place], (), ())
                for place, outcome in outcomes.items()
                if outcome is None
            ]
            self._look(admin)

    def _look(self, admin: Admin) -> None:
        found = [row for row in list_moves(admin) if row.place in self._wanted]
        moving = {row.place for row in found}
        self._waiting = [place for place in self._waiting if place not in moving]
        self._moving = with_progress(admin, found)

    def _leave(self) -> None:
        """Say what was done. A request may have been on its way: the cluster knows what became of it."""
        with suppress(FirnlineError), Admin(self._bootstrap, timeout_s=_LEAVE_S) as admin:
            self._look(admin)
        here = count_of(len(self.finished), "partition")
        click.echo(
            f"\ninterrupted: {here} moved, {len(self._moving)} still"
            f" {'moves' if len(self._moving) == 1 else 'move'} (firnline partition status),"
            f" {len(self._waiting)} not begun. The same command goes on",
            err=True,
        )


def refuse_other_targets(changed: Assignment, moves: UnderWay) -> None:
    """Raise KafkaError for a partition that moves already, and to other brokers."""
    elsewhere = [
        str(place)
        for place, target in changed.items()
        if place in moves.targets and moves.targets[place] != target
    ]
    if elsewhere:
        why = f"{', '.join(elsewhere)} moves already: wait for it, or firnline partition cancel"
        raise KafkaError(Code.REASSIGNMENT_IN_PROGRESS, why)
