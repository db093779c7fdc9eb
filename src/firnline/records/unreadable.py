"""Records of a system topic that cannot be read although their CRC is right. PURE.

Every replica has the same bytes, so no other replica helps. The reader of the topic skips such records, logs
which they are, and counts them. A wrong CRC is different: it concerns one replica, and the reader waits.
Source: docs/decisions/0025-unreadable-records.md.
"""

from collections.abc import Iterable

from firnline.base.effects import Effects
from firnline.base.ids import TopicPartition
from firnline.base.log_lines.storage import RECORDS_UNREADABLE

# Limits for one partition: lines in the log, and separate spans. Above them records are only counted, and the
# last span grows.
NAMED_MAX = 20
SPANS_MAX = 1_000
Span = tuple[int, int]  # first and last offset, inclusive


class UnreadableRecords:
    """The unreadable records of one partition, for as long as one reader reads it.

    where    the partition, for the log
    meaning  the rest of each log line: what it means for users, and what the operator can do
    """

    __slots__ = ("_lines", "_meaning", "_named", "_where", "offset_count", "spans")

    def __init__(self, where: TopicPartition, meaning: str) -> None:
        self._where = where
        self._meaning = meaning
        self._lines: Effects = []
        self._named = 0
        self.spans: list[Span] = []
        self.offset_count = 0

    def note(self, first_offset: int, last_offset: int, why: object) -> None:
        """Skip these records. Offsets ascend from one call to the next."""
        self.offset_count += last_offset - first_offset + 1
        spans = self.spans
        if spans and (first_offset <= spans[-1][1] + 1 or len(spans) >= SPANS_MAX):
            spans[-1] = (spans[-1][0], max(spans[-1][1], last_offset))
        else:
            spans.append((first_offset, last_offset))
        self._log({"offset": first_offset, "last_offset": last_offset, "reason": why})

    def note_named(self, what: str, why: object) -> None:
        """Skip one record whose offset is not known."""
        self.offset_count += 1
        self._log({"record": what, "reason": why})

    def _log(self, fields: dict[str, object]) -> None:
        self._named += 1
        if self._named > NAMED_MAX:
            return
        fields |= {"meaning": self._meaning, "is_last_named": self._named == NAMED_MAX}
        self._lines.append(RECORDS_UNREADABLE(**self._where._asdict(), **fields))

    def take_warnings(self) -> Effects:
        """Return the log lines about records that were noted since the last call."""
        lines, self._lines = self._lines, []
        return lines

    def first_not_in(self, given_up: Iterable[Span]) -> Span | None:
        """Return the first span that is not completely in `given_up`; None if there is none.

        Spans in `given_up` may overlap, in any order: the log names each offset alone, and operators copy it.
        """
        known = sorted(given_up)
        for first, last in self.spans:
            at = first  # every offset of this span below it is given up
            for start, end in known:
                if start <= at <= end:
                    at = end + 1
            if at <= last:
                return first, last
        return None
