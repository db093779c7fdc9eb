"""Reads partitions from where to where, and reports what gets in the way. WORLD.

`Partitions` reads without a group: what there is to read is known before it begins. `Member` reads as a
member of a group, which decides about the partitions and keeps the offsets.
"""

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from firnline.base.errors import FirnlineError
from firnline.cli.client.librdkafka import plain
from firnline.cli.client.topics import Cluster, nearest
from firnline.cli.records.positions import BEGINNING, Span, Start
from firnline.client.deadline import Deadline

_EARLIEST, _LATEST = -2, -1
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


def shown(topic: str, partition: int) -> str:
    """Return a partition as kcat prints it: topic [0]."""
    return f"{topic} [{partition}]"


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
            near = nearest(topic.strip("^$.*"), known)
            raise FirnlineError(
                f"no topic matches {topic}" + (f"; there is {near}" if near else "")
            )
        found |= dict.fromkeys(matching)
    return list(found)


class Partitions:
    """All partitions of some topics, or those that are wanted.

    until_end  stop at what is the end when it begins
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[str],
        wanted: Sequence[int],
        span: Span,
        *,
        until_end: bool,
        note: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._wanted = wanted
        self._span = span
        self._until_end = until_end
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
        earliest, latest = self._at(keys, _EARLIEST), self._at(keys, _LATEST)
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
                times = self._at(list(latest), until_ms)
                latest = {key: at if at >= 0 else latest[key] for key, at in times.items()}
                self._until_end = True
        if not self._until_end:
            return
        self._ends = latest
        self._open = {key for key, end in latest.items() if self._next[key] < end}
        self._total = sum(latest[key] - self._next[key] for key in self._open)

    def _at(self, keys: Sequence[Key], timestamp_ms: int) -> dict[Key, int]:
        """Return the first offset of each partition that is at least so late; -1 if there is none."""
        kind = self._cluster.library.TopicPartition
        asked = [kind(topic, number, timestamp_ms) for topic, number in keys]

        def ask(left_s: float) -> Any:
            found = self._cluster.client.offsets_for_times(asked, timeout=left_s)
            for each in found:
                if each.error is not None and self._cluster.passes(each.error):
                    raise self._cluster.library.KafkaException(each.error)
            return found

        found = self._cluster.ask(ask)
        for each in found:
            if each.error is not None:
                raise FirnlineError(
                    f"{shown(each.topic, each.partition)}: {plain(each.error.str())}"
                )
        return {(each.topic, each.partition): each.offset for each in found}

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
            times = self._at(list(latest), start.value)
            return {key: at if at >= 0 else latest[key] for key, at in times.items()}
        for key, end in latest.items():
            if start.value > end:
                raise FirnlineError(
                    f"{shown(*key)} ends at offset {end}; there is no offset {start.value}"
                )
            if start.value < earliest[key]:
                self._note(f"{shown(*key)} begins at offset {earliest[key]}, not {start.value}")
        return {key: max(start.value, begin) for key, begin in earliest.items()}

    def take(self, messages: Sequence[Any]) -> list[Any]:
        found = []
        for message in messages:
            key = (message.topic(), message.partition())
            if message.error() is not None:
                self._on_error(key, message)
                continue
            offset = message.offset()
            self._next[key] = offset + 1
            end = self._ends.get(key)
            if end is None or offset < end:
                found.append(message)
            if end is not None and offset >= end - 1:
                self._open.discard(key)
        return found

    def _on_error(self, key: Key, message: Any) -> None:
        problem, kind = message.error(), self._cluster.library.KafkaError
        if problem.code() == kind._PARTITION_EOF:
            # Also where the last offsets have no record to print: markers of transactions, compacted away.
            self._open.discard(key)
        elif problem.code() == kind._AUTO_OFFSET_RESET:
            self._go_on_at_beginning(key)
        else:
            refuse(key, problem, kind)

    def _go_on_at_beginning(self, key: Key) -> None:
        """Records were deleted before they were read, or the log is not the one that was read."""
        self._cluster.deadline = Deadline(self._cluster.timeout_s)
        (begin,), (end,) = self._at([key], _EARLIEST).values(), self._at([key], _LATEST).values()
        at = self._next[key]
        if at > end:
            raise FirnlineError(
                f"{shown(*key)} ends at offset {end}, and this command was at {at}: the topic was"
                " made anew, or records were lost"
            )
        self._note(
            f"offsets {at} to {begin - 1} of {shown(*key)} were deleted before they were read"
        )
        self._next[key] = begin
        # A partition whose fetches have stopped cannot be sought in: it is assigned anew.
        anew = [self._cluster.library.TopicPartition(*key, begin)]
        self._cluster.client.incremental_unassign(anew)
        self._cluster.client.incremental_assign(anew)

    def written(self, messages: Sequence[Any]) -> None:
        """Nothing to keep: without a group nobody asks for it."""


class Member:
    """A member of a group, which says what it is assigned. Offsets are stored for what was printed.

    until_end  stop at the end of what is assigned
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[str],
        group: str,
        *,
        until_end: bool,
        note: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._group = group
        self._until_end = until_end
        self._note = note
        self._open: set[Key] = set()
        self._was_assigned = False
        self._deadline = cluster.deadline

    @property
    def total(self) -> int | None:
        return None

    @property
    def is_done(self) -> bool:
        if not self._was_assigned and self._deadline.is_over:
            complaint = self._cluster.complaints.last
            raise FirnlineError(
                f"group {self._group} assigned nothing within {self._cluster.timeout_s:g} s"
                + (f": {complaint}" if complaint else "; another member may be slow to rejoin")
            )
        return self._until_end and self._was_assigned and not self._open

    def begin(self) -> None:
        for topic in self._topics:
            if topic.startswith("^"):
                names_of([topic], self._cluster)
            else:
                self._cluster.refuse(topic, self._cluster.one(topic))
        self._deadline = Deadline(self._cluster.timeout_s)
        self._cluster.client.subscribe(
            list(self._topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _on_assign(self, _: Any, partitions: Sequence[Any]) -> None:
        self._was_assigned = True
        self._open |= {(each.topic, each.partition) for each in partitions}
        self._note(f"group {self._group} assigned {_list(partitions)}")

    def _on_revoke(self, _: Any, partitions: Sequence[Any]) -> None:
        self._open -= {(each.topic, each.partition) for each in partitions}
        self._note(f"group {self._group} revoked {_list(partitions)}")

    def _on_lost(self, _: Any, partitions: Sequence[Any]) -> None:
        self._open -= {(each.topic, each.partition) for each in partitions}
        self._note(
            f"group {self._group} took {_list(partitions)} away: what was printed last may be"
            " printed by another member, too"
        )

    def take(self, messages: Sequence[Any]) -> list[Any]:
        found = []
        for message in messages:
            key = (message.topic(), message.partition())
            problem, kind = message.error(), self._cluster.library.KafkaError
            if problem is None:
                found.append(message)
            elif problem.code() == kind._PARTITION_EOF:
                self._open.discard(key)
            elif problem.code() == kind._MAX_POLL_EXCEEDED:
                self._note(f"stdout took nothing for too long: group {self._group} goes on without")
            else:
                refuse(key, problem, kind)
        return found

    def written(self, messages: Sequence[Any]) -> None:
        last = {(each.topic(), each.partition()): each for each in messages}
        for message in last.values():
            try:
                self._cluster.client.store_offsets(message)
            except self._cluster.library.KafkaException as problem:
                # It was revoked meanwhile: who has it now prints these once more.
                if problem.args[0].code() != self._cluster.library.KafkaError._STATE:
                    raise


def _list(partitions: Sequence[Any]) -> str:
    text = ", ".join(shown(each.topic, each.partition) for each in partitions[:10])
    more = f" and {len(partitions) - 10} more" if len(partitions) > 10 else ""
    return text + more if text else "nothing"


def refuse(key: tuple[str | None, int], problem: Any, kind: Any) -> None:
    """Raise FirnlineError for an error of a consumer, unless it passes by itself."""
    topic, partition = key
    if problem.code() in (kind.UNKNOWN_TOPIC_OR_PART, kind._UNKNOWN_TOPIC, kind._UNKNOWN_PARTITION):
        raise FirnlineError(f"{shown(topic or '?', partition)} is not there any more")
    if problem.fatal() or not problem.retriable():
        where = f"{shown(topic, partition)}: " if topic else ""
        raise FirnlineError(f"{where}{plain(problem.str())}")
