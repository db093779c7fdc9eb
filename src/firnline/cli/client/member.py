"""Reads as a member of a group, which decides about the partitions and keeps the offsets. WORLD."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from firnline.base.errors import FirnlineError
from firnline.cli.client.gaps import Gap, refusal
from firnline.cli.client.librdkafka import plain, reason_of
from firnline.cli.client.reading import Key, names_of, refuse
from firnline.cli.client.stopping import Stopped
from firnline.cli.client.topics import EARLIEST, LATEST, Cluster, shown
from firnline.client.deadline import Deadline

# A place of librdkafka's in a log, in place of an offset.
_BEGINNING, _END = -2, -1
_SLICE_S, _PAUSE_S = 0.5, 0.1


def is_cooperative(settings: Mapping[str, str]) -> bool:
    """Is a member with these settings of librdkafka's told of changes, and not of all its partitions?"""
    strategy = settings.get("partition.assignment.strategy", "")
    return "cooperative" in strategy or settings.get("group.protocol") == "consumer"


class Member:
    """A member of a group, which says what it is assigned. Offsets are stored for what was printed.

    until_end       stop at the end of what is assigned
    begins_at_end   where to begin what the group has no offset of; else at the beginning
    strict          records that are gone are an error
    is_cooperative  as the function of this name tells of the settings

    What is gone is noticed here and not by librdkafka, which would go on without a word: `auto.offset.reset`
    is `error`, so each position comes from this class.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[str],
        group: str,
        *,
        until_end: bool,
        begins_at_end: bool,
        strict: bool,
        is_cooperative: bool,
        note: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._group = group
        self._until_end = until_end
        self._begin = _END if begins_at_end else _BEGINNING
        self._strict = strict
        self._is_cooperative = is_cooperative
        self._note = note
        # Where what is assigned goes on: an offset, or a place of librdkafka's.
        self._next: dict[Key, int] = {}
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
        placed = self._committed(partitions)
        for each in placed:
            each.offset = each.offset if each.offset >= 0 else self._begin
            self._next[each.topic, each.partition] = each.offset
        if self._is_cooperative:
            self._cluster.client.incremental_assign(placed)
        else:
            self._cluster.client.assign(placed)

    def _committed(self, partitions: Sequence[Any]) -> list[Any]:
        """Return the partitions with the offsets of the group, -1001 where it has none.

        Asks on the thread of the callback, in slices: meanwhile the binding lets no other thread ask.
        """
        if not partitions:
            return []
        limit = Deadline(self._cluster.timeout_s)
        while True:
            try:
                found = self._cluster.client.committed(list(partitions), timeout=_SLICE_S)
            except self._cluster.library.KafkaException as problem:
                if not problem.args[0].retriable() and problem.args[0].code() not in (
                    self._cluster.library.KafkaError._TIMED_OUT,
                    self._cluster.library.KafkaError._WAIT_COORD,
                ):
                    raise FirnlineError(f"group {self._group}: {reason_of(problem)}") from None
                found = []
            problems = [each.error for each in found if each.error is not None]
            if found and not problems:
                return list(found)
            if self._cluster.stop.count:
                raise Stopped
            if limit.is_over:
                why = f": {plain(problems[0].str())}" if problems else ""
                raise FirnlineError(
                    f"the offsets of group {self._group} did not come within"
                    f" {self._cluster.timeout_s:g} s{why}"
                )
            time.sleep(_PAUSE_S)  # an error may come at once

    def _renew_deadline(self) -> None:
        self._cluster.deadline = Deadline(self._cluster.timeout_s)

    def _on_revoke(self, _: Any, partitions: Sequence[Any]) -> None:
        self._forget(partitions)
        self._note(f"group {self._group} revoked {_list(partitions)}")

    def _forget(self, partitions: Sequence[Any]) -> None:
        for each in partitions:
            self._open.discard((each.topic, each.partition))
            self._next.pop((each.topic, each.partition), None)

    def _on_lost(self, _: Any, partitions: Sequence[Any]) -> None:
        self._forget(partitions)
        self._note(
            f"group {self._group} took {_list(partitions)} away: what was printed last may be"
            " printed by another member, too"
        )

    def take(self, messages: Sequence[Any]) -> list[Any]:
        found, lost = [], []
        for message in messages:
            key = (message.topic(), message.partition())
            problem, kind = message.error(), self._cluster.library.KafkaError
            if problem is None:
                found.append(message)
            elif problem.code() == kind._PARTITION_EOF:
                self._open.discard(key)
            elif problem.code() == kind._AUTO_OFFSET_RESET:
                lost.append(key)
            elif problem.code() == kind._MAX_POLL_EXCEEDED:
                self._note(f"stdout took nothing for too long: group {self._group} goes on without")
            else:
                refuse(message, kind, found)
        if lost:
            self._go_on_behind([key for key in lost if key in self._next], found)
        return found

    def _go_on_behind(self, lost: Sequence[Key], taken: Sequence[Any]) -> None:
        """Read on where there is something left. `taken` are messages that `written` has not seen yet."""
        self._advance(taken)
        self._renew_deadline()
        earliest, latest = (self._cluster.offsets(lost, at) for at in (EARLIEST, LATEST))
        gaps, notes = [], []
        for key in lost:
            at, begin, end = self._next[key], earliest[key], latest[key]
            if at > end:
                notes.append(
                    f"{shown(*key)} ends at offset {end}, and group {self._group} was at {at}: the topic"
                    f" was made anew, or records were lost; reads on from {begin}"
                )
            elif 0 <= at < begin:
                gaps.append(Gap(shown(*key), at, begin, self._group))
        if self._strict and gaps:
            raise FirnlineError(refusal(gaps))
        if self._strict and notes:
            raise FirnlineError(notes[0])
        for note in [*(gap.note for gap in gaps), *notes]:
            self._note(note)
        self._next |= earliest
        kind = self._cluster.library.TopicPartition
        client = self._cluster.client
        # A partition whose fetches have stopped cannot be sought in: it is assigned anew.
        if self._is_cooperative:
            anew = [kind(*key, earliest[key]) for key in lost]
            client.incremental_unassign(anew)
            client.incremental_assign(anew)
        else:
            client.assign([kind(*key, at) for key, at in self._next.items()])

    def _advance(self, messages: Sequence[Any]) -> None:
        for message in messages:
            key = (message.topic(), message.partition())
            if key in self._next:
                self._next[key] = message.offset() + 1

    def written(self, messages: Sequence[Any]) -> None:
        last = {(each.topic(), each.partition()): each for each in messages}
        self._advance(list(last.values()))
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
