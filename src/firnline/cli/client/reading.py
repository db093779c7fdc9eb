"""Reads partitions from where to where, and reports what gets in the way. WORLD.

`Partitions` reads without a group: what there is to read is known before it begins.
"""

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from firnline.base.errors import FirnlineError
from firnline.cli.client.gaps import Gap, refusal
from firnline.cli.client.librdkafka import plain
from firnline.cli.client.topics import EARLIEST, LATEST, Cluster, nearest_topic, shown
from firnline.cli.records.positions import BEGINNING, Span, Start
from firnline.client.deadline import Deadline

Key = tuple[str, int]


class Reading(Protocol):
    """What a consumer reads, and when there is nothing left of it."""

    def begin(self) -> None:
        """Look for the topics and begin. Raises FirnlineError."""

    def take(self, messages: Sequence[Any]) -> list[Any]:
        """Return those to print. Raises FirnlineError for an error among them."""

    def written(self, messages: Sequence[Any]) -> None:
        """Be notified that messages have been printed."""

    @property
    def is_done(self) -> bool:
        """Whether everything has been read that was to be read."""

    @property
    def total(self) -> int | None:
        """How many offsets there are to read; None if nobody knows."""


def names_of(topics: Sequence[str], cluster: Cluster) -> list[str]:
    """Return the names of topics; each that begins with ^ is a regular expression. Raises FirnlineError."""
    found: dict[str, None] = {}
    for topic in topics:
        if not topic.startswith("^"):
            found[topic] = None
            continue
        try:
            pattern = re.compile(topic)
        except re.error as problem:
            raise FirnlineError(f"{topic} is not a regular expression: {problem}") from None
        known = cluster.topics()
        matching = [name for name in sorted(known) if pattern.match(name) and name[:2] != "__"]
        if not matching:
            near = nearest_topic(topic.strip("^$.*"), known)
            raise FirnlineError(
                f"no topic matches {topic}" + (f"; there is {near}" if near else "")
            )
        found |= dict.fromkeys(matching)
    return list(found)


class Partitions:
    """All partitions of some topics, or those that are wanted.

    until_end  stop at what is the end when it begins
    strict     records that are gone are an error
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[str],
        wanted: Sequence[int],
        span: Span,
        *,
        until_end: bool,
        strict: bool,
        note: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._wanted = wanted
        self._span = span
        self._until_end = until_end
        self._strict = strict
        self._note = note
        self._ends: dict[Key, int] = {}  # of partitions that have an end
        self._next: dict[Key, int] = {}
        self._open: set[Key] = set()  # not yet at their end
        self._until: Deadline | None = None
        self._total: int | None = None

    @property
    def total(self) -> int | None:
        return self._total

    @property
    def is_done(self) -> bool:
        if self._until is not None and self._until.is_over:
            return True
        return self._until_end and not self._open

    def begin(self) -> None:
        keys: list[Key] = []
        for topic in names_of(self._topics, self._cluster):
            found = self._cluster.wait_for_leaders(
                topic, self._wanted, self._note, one_is_enough=False
            )
            keys += [(topic, number) for number in self._wanted or sorted(found.partitions)]
        earliest, latest = (self._cluster.offsets(keys, at) for at in (EARLIEST, LATEST))
        self._next = self._starts(self._span.start or BEGINNING, earliest, latest)
        self._set_ends(latest)
        kind = self._cluster.library.TopicPartition
        self._cluster.client.assign(
            [kind(topic, number, at) for (topic, number), at in self._next.items()]
        )

    def _set_ends(self, latest: dict[Key, int]) -> None:
        until_ms = self._span.until_ms
        if until_ms is not None:
            left_s = (until_ms - time.time_ns() // 1_000_000) / 1000
            if left_s > 0:
                self._until = Deadline(left_s)
            else:
                times = self._cluster.offsets(list(latest), until_ms)
                latest = {key: at if at >= 0 else latest[key] for key, at in times.items()}
                self._until_end = True
        if not self._until_end:
            return
        self._ends = latest
        self._open = {key for key, end in latest.items() if self._next[key] < end}
        self._total = sum(latest[key] - self._next[key] for key in self._open)

    def _starts(
        self, start: Start, earliest: dict[Key, int], latest: dict[Key, int]
    ) -> dict[Key, int]:
        if start.kind == "beginning":
            return earliest
        if start.kind == "end":
            return latest
        if start.kind == "last":
            return {key: max(earliest[key], end - start.value) for key, end in latest.items()}
        if start.kind == "time":
            times = self._cluster.offsets(list(latest), start.value)
            return {key: at if at >= 0 else latest[key] for key, at in times.items()}
        gaps = []
        for key, end in latest.items():
            if start.value > end:
                raise FirnlineError(
                    f"{shown(*key)} ends at offset {end}; there is no offset {start.value}"
                )
            if start.value < earliest[key]:
                gaps.append(Gap(shown(*key), start.value, earliest[key]))
        self._report(gaps)
        return {key: max(start.value, begin) for key, begin in earliest.items()}

    def take(self, messages: Sequence[Any]) -> list[Any]:
        found: list[Any] = []
        for message in messages:
            key = (message.topic(), message.partition())
            if message.error() is not None:
                self._on_error(key, message, found)
                continue
            offset = message.offset()
            self._next[key] = offset + 1
            end = self._ends.get(key)
            if end is None or offset < end:
                found.append(message)
            if end is not None and offset >= end - 1:
                self._open.discard(key)
        return found

    def _on_error(self, key: Key, message: Any, found: Sequence[Any]) -> None:
        problem, kind = message.error(), self._cluster.library.KafkaError
        if problem.code() == kind._PARTITION_EOF:
            # Also where the last offsets have no record to print: markers of transactions, compacted away.
            self._open.discard(key)
        elif problem.code() == kind._AUTO_OFFSET_RESET:
            self._go_on_at_beginning(key)
        else:
            refuse(message, kind, found)

    def _go_on_at_beginning(self, key: Key) -> None:
        """Records were deleted before they were read, or the log is not the one that was read."""
        self._cluster.deadline = Deadline(self._cluster.timeout_s)
        begin, end = (self._cluster.offsets([key], at)[key] for at in (EARLIEST, LATEST))
        at = self._next[key]
        if at > end:
            raise FirnlineError(
                f"{shown(*key)} ends at offset {end}, and this command was at {at}: the topic was"
                " made anew, or records were lost"
            )
        self._report([Gap(shown(*key), at, begin)])
        self._next[key] = begin
        # A partition whose fetches have stopped cannot be sought in: it is assigned anew.
        anew = [self._cluster.library.TopicPartition(*key, begin)]
        self._cluster.client.incremental_unassign(anew)
        self._cluster.client.incremental_assign(anew)

    def _report(self, gaps: Sequence[Gap]) -> None:
        if gaps and self._strict:
            raise FirnlineError(refusal(gaps))
        for gap in gaps:
            self._note(gap.note)

    def written(self, messages: Sequence[Any]) -> None:
        """Nothing to keep: without a group nobody asks for it."""


class Unreadable(FirnlineError):
    """The next records cannot be read. `before` are messages that came with the error, and are sound."""

    def __init__(self, why: str, before: Sequence[Any]) -> None:
        super().__init__(why)
        self.before = before


def refuse(message: Any, kind: Any, before: Sequence[Any]) -> None:
    """Raise FirnlineError for an error of a consumer, unless it passes by itself."""
    topic, partition, problem = message.topic(), message.partition(), message.error()
    if problem.code() == kind._BAD_MSG:
        at = f"offset {message.offset()}: " if message.offset() >= 0 else ""
        raise Unreadable(
            f"{shown(topic or '?', partition)}: {at}{plain(problem.str())}. The broker sent damaged bytes:"
            " `firnline doctor` says which replica, and what to do; -X check.crcs=false prints them",
            before,
        )
    if problem.code() in (kind.UNKNOWN_TOPIC_OR_PART, kind._UNKNOWN_TOPIC, kind._UNKNOWN_PARTITION):
        raise FirnlineError(f"{shown(topic or '?', partition)} is not there any more")
    if problem.fatal() or not problem.retriable():
        where = f"{shown(topic, partition)}: " if topic else ""
        raise FirnlineError(f"{where}{plain(problem.str())}")
