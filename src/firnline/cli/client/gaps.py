"""Offsets that were deleted before a command read them, and how that is said. PURE."""

from collections.abc import Sequence
from typing import NamedTuple

_NAMED = 3
STRICT_OPTION = "--fail-on-data-loss"


class Gap(NamedTuple):
    """Offsets of a partition that are gone: from `first` to the one before `start`, where its log begins.

    partition  as people read it: orders [0]
    group      which has not read them; None: the command itself has not
    """

    partition: str
    first: int
    start: int
    group: str | None = None

    def __str__(self) -> str:
        count = self.start - self.first
        if count == 1:
            which, them, were = f"offset {self.first} was", "it", "it was"
        else:
            which = f"{count} offsets, {self.first} to {self.start - 1}, were"
            them, were = "them", "they were"
        until = f"{were} read" if self.group is None else f"group {self.group} read {them}"
        return f"{self.partition}: {which} deleted (retention, or delete-records) before {until}"

    @property
    def note(self) -> str:
        """What is said where the command goes on behind the gap."""
        return f"{self}; reads on from {self.start}, where the log begins now"


def refusal(gaps: Sequence[Gap]) -> str:
    """Return what is said where the command ends at gaps, because the user wants that."""
    left = len(gaps) - _NAMED
    more = f"; and in {left} more partition{'s' if left > 1 else ''}" if left > 0 else ""
    return f"{'; '.join(map(str, gaps[:_NAMED]))}{more}. Stops here because of {STRICT_OPTION}"
