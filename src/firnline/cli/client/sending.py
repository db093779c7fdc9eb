"""Sends records with librdkafka, and knows of each whether the cluster has it. WORLD."""

import os
import select
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from firnline.base.errors import FirnlineError
from firnline.cli.client.librdkafka import plain
from firnline.cli.client.progress import Progress, records_text
from firnline.cli.client.stopping import StopSignals
from firnline.cli.records.lines import Decoder
from firnline.cli.records.record import Headers, InputError, NewRecord
from firnline.client.deadline import Deadline

_SLICE_S = 0.1
_GIVING_UP_S = 2.0
_READ_BYTES = 1 << 18


class Source(NamedTuple):
    """A file descriptor to read records from. `name` is for messages, "" for stdin."""

    name: str
    descriptor: int


class Defaults(NamedTuple):
    """What records get that the input does not state.

    partition         -1: the partitioner decides
    is_forced         the partition takes the place of one that the input states
    """

    partition: int
    is_forced: bool
    headers: Headers
    timestamp_ms: int


class Failure(NamedTuple):
    """A record that was not delivered."""

    place: str
    problem: Any
    size_bytes: int


class Sender:
    """Hands records to a Producer, and counts what became of them.

    Reports come for failures alone (delivery.report.only.error): what is neither in the queue nor failed was
    delivered.
    """

    def __init__(self, producer: Any, library: Any, topic: str, partitions: int) -> None:
        self._producer = producer
        self._library = library
        self._topic = topic
        self._partitions = partitions
        self.accepted = 0
        self.refused = 0  # found no room in the queue before the command had to end
        self.first: Failure | None = None
        self._failures: Counter[int] = Counter()

    @property
    def queued(self) -> int:
        return len(self._producer)

    @property
    def failed(self) -> int:
        return sum(self._failures.values()) + self.refused

    @property
    def delivered(self) -> int:
        # An error about a broker is in the queue, too.
        return max(0, self.accepted - sum(self._failures.values()) - self.queued)

    @property
    def unknown(self) -> int:
        """How many of the failed may have been written all the same: no answer came."""
        kind = self._library.KafkaError
        open_codes = (
            kind._MSG_TIMED_OUT, kind._PURGE_INFLIGHT, kind.REQUEST_TIMED_OUT, kind._TIMED_OUT,
            kind.NOT_ENOUGH_REPLICAS_AFTER_APPEND, kind._TRANSPORT,
        )  # fmt: skip
        return sum(self._failures[code] for code in open_codes)

    def send(self, place: str, number: int, record: NewRecord, defaults: Defaults) -> bool:
        """Put a record into the queue; False if the queue is full. Raises InputError."""
        partition = defaults.partition
        if record.partition is not None and not defaults.is_forced:
            partition = record.partition
            if partition >= self._partitions:
                raise InputError(
                    f"partition {partition} is not there: topic {self._topic} has"
                    f" {self._partitions} (-p any lets the partitioner choose)"
                )
        headers = [*record.headers, *defaults.headers]
        more: dict[str, Any] = {"headers": headers} if headers else {}
        timestamp_ms = record.timestamp_ms or defaults.timestamp_ms
        if timestamp_ms:
            more["timestamp"] = timestamp_ms
        failed = partial(self._on_failure, place, number)
        try:
            self._producer.produce(self._topic, record.value, record.key, partition, failed, **more)
        except BufferError:
            return False
        except self._library.KafkaException as problem:
            self.accepted += 1
            self._note(problem.args[0], place, number, record.key, record.value)
            return True
        self.accepted += 1
        return True

    def _on_failure(self, place: str, number: int, problem: Any, message: Any) -> None:
        if problem is not None:  # reports of successes come if somebody sets -X for them
            self._note(problem, place, number, message.key(), message.value())

    def _note(
        self, problem: Any, place: str, number: int, key: bytes | None, value: bytes | None
    ) -> None:
        self._failures[problem.code()] += 1
        if self.first is None:
            size_bytes = len(key or b"") + len(value or b"")
            self.first = Failure(f"{place} {number}".strip(), problem, size_bytes)

    def serve(self, seconds: float = 0.0) -> None:
        """Let librdkafka report what failed."""
        self._producer.poll(seconds)

    def push(self, seconds: float) -> None:
        """Have records sent that wait for more of their batch, and wait so long for answers."""
        self._producer.flush(seconds)

    def give_up(self) -> None:
        """Count what is still queued, or under way, as failed.

        The queue of librdkafka also has its errors about brokers, and one of them ends a poll.
        """
        self._producer.purge()
        deadline = Deadline(_GIVING_UP_S)
        while self.queued and not deadline.is_over:
            self._producer.poll(_SLICE_S)


class Feed:
    """Reads sources, and sends what a decoder makes of them until a record fails or a signal comes.

    After a signal no more is read, and what was read is sent.
    """

    def __init__(
        self,
        sender: Sender,
        defaults: Defaults,
        *,
        noun: str,
        timeout_s: float,
        stop: StopSignals,
        progress: Progress,
    ) -> None:
        # The last record that was sent, where a source was left before its end.
        self.left_at: str | None = None
        self._timeout_s = timeout_s
        self._sender = sender
        self._defaults = defaults
        self._noun = noun
        self._stop = stop
        self._progress = progress

    def run(self, source: Source, decoder: Decoder) -> None:
        """Send one source to its end. Raises FirnlineError, with the place, for input that is wrong."""
        place = f"{source.name} {self._noun}".strip()
        try:
            for data in self._pieces(source):
                self._send_all(place, decoder.feed(data))
            if not self._is_over:
                self._send_all(place, decoder.end())
        except InputError as problem:
            raise FirnlineError(f"{source.name or 'stdin'} {problem}") from None

    @property
    def _is_over(self) -> bool:
        return bool(self._stop.count) or self._sender.first is not None

    def _pieces(self, source: Source) -> Iterator[bytes]:
        while not self._is_over:
            try:
                readable, _, _ = select.select([source.descriptor], [], [], _SLICE_S)
                data = os.read(source.descriptor, _READ_BYTES) if readable else None
            except OSError as problem:
                raise FirnlineError(
                    f"cannot read {source.name or 'stdin'}: {problem.strerror}"
                ) from None
            self._sender.serve()
            self._progress.show(self._sender.delivered)
            if data:
                yield data
            elif data is not None:
                return

    def _send_all(self, place: str, records: Iterator[tuple[int, NewRecord]]) -> None:
        send, defaults = self._sender.send, self._defaults
        number = None
        for number, record in records:
            try:
                if not send(place, number, record, defaults) and not self._sent_later(
                    partial(send, place, number, record, defaults)
                ):
                    self._sender.refused += 1
            except InputError as problem:
                raise InputError(f"{self._noun} {number}: {problem}") from None
            if self._sender.first is not None:
                break
        if number is not None and self._is_over:
            self.left_at = f"{place} {number}"

    def _sent_later(self, send: Callable[[], bool]) -> bool:
        """Send a record when the queue has room again; False if something ends the wait."""
        deadline = None
        while not send():
            self._sender.serve(_SLICE_S)
            self._progress.show(self._sender.delivered)
            if self._stop.count and deadline is None:
                deadline = Deadline(self._timeout_s)
            is_late = deadline is not None and deadline.is_over
            if self._sender.first is not None or self._stop.count > 1 or is_late:
                return False
        return True


def flush(sender: Sender, timeout_s: float, stop: StopSignals, progress: Progress) -> None:
    """Wait until each record was delivered or has failed; the deadline, or a second signal, gives up."""
    deadline = Deadline(timeout_s)
    note_at = Deadline(0.5)
    is_noted = False
    while sender.queued and not deadline.is_over and stop.count < 2:
        sender.push(_SLICE_S)
        progress.show(sender.delivered)
        if stop.count and note_at.is_over and not is_noted:
            is_noted = True
            progress.note(
                f"delivering {records_text(sender.queued)} that were read, for at most"
                f" {timeout_s:g} s; Ctrl-C again gives up"
            )
    if sender.queued:
        sender.give_up()


def sentence(
    failure: Failure,
    topic: str,
    *,
    most_bytes: str | None,
    timeout_s: float,
    kind: Any,
    look: Callable[[], str | None],
) -> str:
    """Say why a record was not delivered, and what to do.

    most_bytes  the topic's max.message.bytes, if it is known
    look        finds out what is wrong with the cluster, where the failure alone does not say so
    """
    code = failure.problem.code()
    if code == kind.MSG_SIZE_TOO_LARGE:
        limit = f"{int(most_bytes):,} bytes" if most_bytes else "less"
        why = (
            f"the record is too large: {failure.size_bytes:,} bytes, and {topic} takes {limit};"
            f" `firnline topic alter {topic} --set max.message.bytes=N` allows more"
        )
    elif code == kind.INVALID_RECORD:
        why = f"the topic refuses it; if {topic} is compacted, each record needs a key (-k, -K)"
    elif code in (kind._MSG_TIMED_OUT, kind._TIMED_OUT, kind.REQUEST_TIMED_OUT):
        why = f"not acknowledged within {timeout_s:g} s" + (f": {more}" if (more := look()) else "")
    elif code in (kind.UNKNOWN_TOPIC_OR_PART, kind._UNKNOWN_TOPIC, kind._UNKNOWN_PARTITION):
        why = look() or f"topic {topic} or the partition is not there any more"
    elif code in (kind._PURGE_QUEUE, kind._PURGE_INFLIGHT):
        why = "there was no time to deliver it" + (f": {more}" if (more := look()) else "")
    else:
        why = plain(failure.problem.str())
    return f"{failure.place}: {why}"


def outcome(sender: Sender, *, acks: str, problems: Sequence[str], last: str | None = None) -> str:
    """Say how many records were delivered, and how many were not.

    last  the last record that was sent, where the input was left before its end
    """
    verb = "sent" if acks == "0" else "delivered"
    text = f"{verb} {records_text(sender.delivered)}"
    if sender.failed:
        text += f", {sender.failed:,} not {verb}"
        if unknown := sender.unknown:
            text += f" ({unknown:,} may have been written all the same)"
        text += f"; nothing after {last} was sent" if last else ""
    return "; ".join([*problems, text])
