"""What a system topic holds that cannot be read, though its checksums are right. PURE.

Every replica has the same bytes, so no other copy helps: who reads the topic goes on without them, says once
which they are, and counts them. A wrong CRC is another matter, of one copy: that is waited for. Source:
docs/decisions/0025-unreadable-records.md.
"""

from collections.abc import Iterable

from firnline.base.effects import Effects, Warn

# Of one partition: lines in the log, and spans that are told apart. Beyond that they are counted alone, and
# the last span grows.
NAMED_MAX = 20
SPANS_MAX = 1_000
Span = tuple[int, int]  # first and last offset, inclusive


class SetAside:
    """Of one partition, as long as it is read by one reader.

    where    the partition, for the log
    meaning  what it means for users, and what the operator can do: the rest of each line
    """

    __slots__ = ("_lines", "_meaning", "_named", "_where", "offset_count", "spans")

    def __init__(self, where: str, meaning: str) -> None:
        self._where = where
        self._meaning = meaning
        self._lines: list[str] = []
        self._named = 0
        self.spans: list[Span] = []
        self.offset_count = 0

    def note(self, first_offset: int, last_offset: int, why: object) -> None:
        """Go on without these; offsets ascend from one call to the next."""
        self.offset_count += last_offset - first_offset + 1
        spans = self.spans
        if spans and (first_offset <= spans[-1][1] + 1 or len(spans) >= SPANS_MAX):
            spans[-1] = (spans[-1][0], max(spans[-1][1], last_offset))
        else:
            spans.append((first_offset, last_offset))
        offsets = f"offset {first_offset}"
        if last_offset != first_offset:
            offsets = f"offsets {first_offset} to {last_offset}"
        self._say(offsets, why)

    def note_by_name(self, what: str, why: object) -> None:
        """Go on without one record, whose offset nobody remembers."""
        self.offset_count += 1
        self._say(what, why)

    def _say(self, what: str, why: object) -> None:
        self._named += 1
        if self._named > NAMED_MAX:
            return
        more = "; more of this partition are counted, and not named" * (self._named == NAMED_MAX)
        self._lines.append(f"{self._where}: {what} cannot be read: {why}. {self._meaning}{more}")

    def told(self) -> Effects:
        """Return what is to be said of those that were noted since the last call."""
        lines, self._lines = self._lines, []
        return [Warn(line=line) for line in lines]

    def first_beside(self, given_up: Iterable[Span]) -> Span | None:
        """Return the first span of which something is not in `given_up`; None where all is.

        They may overlap, in any order: each offset is named by itself in the log, and may be given up so.
        """
        known = sorted(given_up)
        for first, last in self.spans:
            at = first  # all below it, of this span, is given up
            for start, end in known:
                if start <= at <= end:
                    at = end + 1
            if at <= last:
                return first, last
        return None
