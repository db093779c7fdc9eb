"""`firnline consume`: print the records of topics, follow them, count them. WORLD."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from firnline.base.errors import FirnlineError
from firnline.cli.client.gaps import STRICT_OPTION
from firnline.cli.client.librdkafka import (
    Complaints,
    bootstrap_of,
    load,
    make,
    reach,
    reason_of,
    settings,
)
from firnline.cli.client.member import Member, is_cooperative
from firnline.cli.client.output import ClosedOutput, Output, Print, Unprintable, print_with
from firnline.cli.client.parsing import delimiter_of, parsed
from firnline.cli.client.progress import Progress, records_text
from firnline.cli.client.reading import Partitions, Reading, Unreadable
from firnline.cli.client.stopping import LATER_S, DeadlineMissed, Stopped, StopSignals, in_time
from firnline.cli.client.topics import Cluster, leaderless
from firnline.cli.records.positions import OFFSETS, Span, partitions_of, span_of
from firnline.cli.show import broker_server_option, deadline, pairs, set_option
from firnline.cli.terminal import exits
from firnline.cli.terminal.completion import complete_groups, complete_topics
from firnline.client.deadline import Deadline

_WAIT_S = 0.1
_TIMEOUT_MAX_S = 86_400.0
_BATCH = 5_000
_ASK_S = 1.0
_HINT_S = 1.0
_TOPICS_AGAIN_S = 3.0
_CLOSE_S = 10.0
# A reader without a group joins none and commits nothing; librdkafka's binding wants a name all the same.
_NO_GROUP = "firnline-consume"
_RESETS_TO_END = ("end", "largest", "latest")  # values of librdkafka's auto.offset.reset


class Wish(NamedTuple):
    """What the command line asks for, parsed. `print_` is None where records are only counted."""

    topics: tuple[str, ...]
    bootstrap: str
    group: str | None
    partitions: Sequence[int]
    span: Span
    until_end: bool
    most: int | None
    print_: Print | None
    isolation: str
    strict: bool
    overrides: Mapping[str, str]
    timeout_s: float


@click.command()
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics)
@click.option(
    "--offset", "-o", "offsets", multiple=True, metavar="OFFSET",
    help=f"Where to begin: {OFFSETS}. TIME is ms, ISO 8601, or -1h. Default: beginning, with -g stored.",
)  # fmt: skip
@click.option("--exit", "-e", "until_end", is_flag=True, help="Exit at the end; default: follow.")
@click.option("--number", "-n", "most", type=click.IntRange(1), help="Exit after so many records.")
@click.option(
    "--partition",
    "-p",
    "partitions",
    multiple=True,
    metavar="N,...",
    help="Only these: 0,2 or 4-7.",
)
@click.option(
    "--group", "-g", metavar="GROUP", shell_complete=complete_groups,
    help="Read as a member of a group, which resumes where it ended.",
)  # fmt: skip
@click.option(
    "--format", "-f", "style", metavar="FORMAT|json",
    help=r"Such as '%t[%p]:%o %k=%s\n', see above; or JSON lines.",
)  # fmt: skip
@click.option(
    "--delimiter",
    "-D",
    default=r"\n",
    show_default=True,
    metavar="DELIM",
    help="Printed after a value.",
)
@click.option(
    "--key-delimiter", "-K", metavar="DELIM", help="Print the key, then this, before each value."
)
@click.option("--null", "-Z", "shows_null", is_flag=True, help="Print NULL for null, not nothing.")
@click.option(
    "--count-only", "-c", is_flag=True, help="Print only how many there are; exit at the end."
)
@click.option(
    "--isolation", type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed", show_default=True, help="Whether to leave out open transactions.",
)  # fmt: skip
@click.option(
    STRICT_OPTION, "strict", is_flag=True,
    help="Fail at records that were deleted before they were read. Default: say which, and go on.",
)  # fmt: skip
@set_option("Set a key of librdkafka.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing on stderr but errors.")
@broker_server_option
def command(topics: tuple[str, ...], bootstrap: str, quiet: bool, **choices: Any) -> None:
    """Print the records of topics, from the beginning, and then those that come.

    \b
    firnline consume events                                  follow, until Ctrl-C
    firnline consume events -e -o -10                        the last ten of each partition
    firnline consume events -e -o @-1h -f '%D %k=%s\\n'       the last hour
    firnline consume events -g billing                       as a member of a group
    firnline consume events -e --format json | jq .value

    A topic that begins with ^ is a regular expression.

    \b
    Fields of a format:
    %s %v  value          %k  key        %h  headers, name=value,...
    %t     topic          %p  partition  %o  offset
    %T     timestamp, ms  %D  the same as ISO 8601
    %K     length of the key, -1 for null
    %S %V  length of the value; %R in four bytes
    and \\n \\r \\t \\0 \\\\ \\xNN %%.
    """
    wish = _wish(topics, bootstrap, choices)
    prints_to_terminal = wish.print_ and sys.stdout is not None and sys.stdout.isatty()
    is_shown = False if prints_to_terminal else None
    progress = Progress(is_quiet=quiet, is_shown=is_shown)
    with StopSignals() as stop:
        code = Consumption(wish, stop, progress).run()
    sys.exit(code)


def _wish(topics: tuple[str, ...], bootstrap: str, choices: Mapping[str, Any]) -> Wish:
    now_ms = time.time_ns() // 1_000_000
    group, style = choices["group"], choices["style"]
    overrides = pairs(choices["overrides"], "-X")
    partitions = parsed("-p", partitions_of, choices["partitions"])
    span = parsed("-o", lambda texts: span_of(texts, now_ms), choices["offsets"])
    end = delimiter_of("-D", choices["delimiter"], may_be_empty=True)
    key_end = delimiter_of("-K", choices["key_delimiter"], may_be_empty=True)
    if style is not None and key_end is not None:
        raise click.UsageError("-K has no meaning with --format, which says where the key goes")
    _check_group(group, partitions, span)
    print_ = parsed(
        "-f",
        lambda text: print_with(
            text, delimiter=end or b"", key_end=key_end,
            null=b"NULL" if choices["shows_null"] else b"",
        ),
        style,
    )  # fmt: skip
    return Wish(
        topics=topics,
        bootstrap=bootstrap_of(bootstrap, overrides),
        group=group,
        partitions=partitions,
        span=span,
        until_end=choices["until_end"] or choices["count_only"],
        most=choices["most"],
        print_=None if choices["count_only"] else print_,
        isolation=choices["isolation"],
        strict=choices["strict"],
        overrides=overrides,
        timeout_s=min(deadline().timeout_s, _TIMEOUT_MAX_S),
    )


def _check_group(group: str | None, partitions: Sequence[int], span: Span) -> None:
    kind = span.start.kind if span.start else None
    if group is None:
        if kind == "stored":
            raise click.UsageError("-o stored: a group has stored offsets; name it with -g")
        return
    if partitions:
        raise click.UsageError("-p: a group decides about the partitions itself")
    if span.until_ms is not None or kind not in (None, "beginning", "end", "stored"):
        raise click.UsageError(
            "a group resumes where it ended; -o beginning or -o end say where one begins that has"
            " no offsets yet"
        )


class Consumption:
    """One run of the command."""

    def __init__(self, wish: Wish, stop: StopSignals, progress: Progress) -> None:
        self._wish = wish
        self._stop = stop
        self._progress = progress
        self._library = load()
        self._complaints = Complaints()
        self._count = 0
        self._consumer: Any = None
        self._has_begun = False
        self._is_hinted = False
        self._active_s = time.monotonic()  # when the cluster last gave something
        self._cut_off_s: float | None = None  # since when no broker answers
        self._asked_s = 0.0
        self._topics_asked_s = 0.0
        self._missing: set[str] = set()

    def run(self) -> int:
        """Print until the end, and return the exit code. Raises FirnlineError."""
        code = 0
        output = Output()  # before a socket takes the place of a stdout that is closed
        try:
            reach(self._wish.bootstrap, Deadline(self._wish.timeout_s), self._stop)
            self._consumer = make(self._library.Consumer, self._settings())
            reading = self._reading()
            reading.begin()
            self._has_begun = True
            self._read(reading, output)
        except Stopped:
            pass
        except ClosedOutput:
            code = exits.NOBODY_READS
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except FirnlineError as problem:
            after = f"; until then {records_text(self._count)}" if self._count else ""
            raise FirnlineError(f"{problem}{after}") from None
        finally:
            self._progress.clear()
            self._close()
        if self._wish.print_ is None and not code:
            print(self._count)
        return self._stop.exit_code if self._stop.count else code

    def _reading(self) -> Reading:
        wish, note = self._wish, self._progress.note
        cluster = Cluster(
            self._consumer, self._library, wish.bootstrap, complaints=self._complaints,
            deadline=Deadline(wish.timeout_s), timeout_s=wish.timeout_s, stop=self._stop,
        )  # fmt: skip
        self._cluster = cluster
        if wish.group is not None:
            return Member(
                cluster, wish.topics, wish.group, until_end=wish.until_end,
                begins_at_end=self._begins_at_end(),
                strict=wish.strict, is_cooperative=is_cooperative(wish.overrides), note=note,
            )  # fmt: skip
        return Partitions(
            cluster, wish.topics, wish.partitions, wish.span, until_end=wish.until_end,
            strict=wish.strict, note=note,
        )  # fmt: skip

    def _begins_at_end(self) -> bool:
        """Whether a group begins at the end of what it has no offset of."""
        wish = self._wish
        if wish.span.start is not None:
            return wish.span.start.kind == "end"
        return wish.overrides.get("auto.offset.reset") in _RESETS_TO_END

    def _settings(self) -> dict[str, Any]:
        wish = self._wish
        found: dict[str, Any] = {
            "auto.offset.reset": "error",
            "check.crcs": True,  # as Java's consumer; librdkafka's default prints other bytes without a word
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 5,  # its default, a second, is a pause whenever the queue is full
            "group.id": _NO_GROUP,
            "isolation.level": wish.isolation,
        }
        if wish.group is not None:
            found |= {
                "enable.auto.commit": True,
                "group.id": wish.group,
                "on_commit": self._complaints.on_commit,
            }
        return found | settings(wish.bootstrap, wish.overrides, self._complaints)

    def _read(self, reading: Reading, output: Output) -> None:
        self._active_s = time.monotonic()
        while not self._stop.count and not reading.is_done:
            room = _BATCH
            if self._wish.most is not None:
                room = min(room, self._wish.most - self._count)
            messages = self._next(room)
            if not messages:
                output.check()
                self._progress.show(self._count, reading.total)
                self._look(reading)
                continue
            self._active_s, self._cut_off_s = time.monotonic(), None
            try:
                self._write(reading.take(messages), reading, output)
            except Unreadable as problem:
                self._write(problem.before, reading, output)
                raise
            self._progress.show(self._count, reading.total)
            if self._count == self._wish.most:
                return

    def _write(self, found: Sequence[Any], reading: Reading, output: Output) -> None:
        if not found:
            return
        if self._wish.print_ is not None:
            self._print(found, self._wish.print_, output)
            self._active_s = time.monotonic()  # whoever reads stdout may have taken long
        reading.written(found)
        self._count += len(found)

    def _print(self, messages: Sequence[Any], print_: Print, output: Output) -> None:
        try:
            output.write(print_(messages))
        except Unprintable as problem:
            output.write(b"".join(problem.before))
            self._count += len(problem.before)
            raise

    def _next(self, room: int) -> list[Any]:
        """Return what is there, and wait a moment for the first."""
        try:
            messages: list[Any] = self._consumer.consume(1, _WAIT_S)
            if messages and room > 1:
                messages += self._consumer.consume(room - 1, 0)
        except self._library.KafkaException as problem:
            raise FirnlineError(reason_of(problem)) from None
        return messages

    def _look(self, reading: Reading) -> None:
        """Nothing came. Raise FirnlineError if nothing can come."""
        wish, now_s = self._wish, time.monotonic()
        self._hint(now_s)
        if self._complaints.refusal:
            raise FirnlineError(f"the cluster refuses: {self._complaints.refusal}")
        if wish.until_end and now_s - self._active_s > wish.timeout_s:
            raise FirnlineError(
                f"nothing came for {wish.timeout_s:g} s, before the end was reached"
                + self._why_nothing_comes()
            )
        if not self._complaints.is_cut_off:
            self._look_for_topics(now_s)
        if not self._complaints.is_cut_off or now_s < self._asked_s + _ASK_S:
            return
        if self._cut_off_s is None:
            self._cut_off_s = now_s
        if self._is_answered():
            if self._cut_off_s != now_s:
                self._progress.note("a broker answers again")
            self._complaints.is_cut_off, self._cut_off_s = False, None
            return
        self._asked_s = time.monotonic()
        if self._cut_off_s == now_s:
            self._progress.note(f"no broker answers; waits {wish.timeout_s:g} s for one")
        if self._asked_s - self._cut_off_s > wish.timeout_s:
            raise FirnlineError(f"no broker answered for {wish.timeout_s:g} s at {wish.bootstrap}")

    def _look_for_topics(self, now_s: float) -> None:
        """Raise FirnlineError for a topic that was deleted, of which librdkafka says nothing.

        Only if it is missing twice: one broker may be behind the others.
        """
        if now_s < max(self._active_s, self._topics_asked_s) + _TOPICS_AGAIN_S:
            return
        self._cluster.deadline = Deadline(_ASK_S)
        missing = set()
        try:
            for topic in self._wish.topics:
                if not topic.startswith("^") and self._cluster.is_missing(topic):
                    missing.add(topic)
        except FirnlineError:
            return  # the cluster does not answer, which is told elsewhere
        finally:
            self._topics_asked_s = time.monotonic()
        if gone := sorted(missing & self._missing):
            raise FirnlineError(f"topic {gone[0]} is not there any more: it was deleted")
        self._missing = missing

    def _hint(self, now_s: float) -> None:
        """Say on a terminal why nothing is to be seen."""
        is_late = now_s > self._active_s + _HINT_S
        if self._is_hinted or self._count or self._wish.until_end or not is_late:
            return
        self._is_hinted = True
        if self._progress.has_terminal:
            self._progress.note("no record yet; waits for one (Ctrl-C ends, -e would end here)")

    def _is_answered(self) -> bool:
        """Whether librdkafka reaches a broker."""
        named = next((topic for topic in self._wish.topics if not topic.startswith("^")), None)
        try:
            in_time(
                lambda: self._consumer.list_topics(named, timeout=_ASK_S),
                Deadline(_ASK_S + LATER_S),
                self._stop,
            )
        except (self._library.KafkaException, DeadlineMissed):
            return False
        return True

    def _why_nothing_comes(self) -> str:
        self._cluster.deadline = Deadline(_ASK_S)
        for topic in self._wish.topics:
            if topic.startswith("^"):
                continue
            try:
                parts = self._cluster.one(topic).partitions
            except FirnlineError as problem:
                return f": {problem}"
            if without := sorted(number for number, each in parts.items() if each.leader < 0):
                return f": {leaderless(topic, without)}"
        return ""

    def _close(self) -> None:
        """Leave the group and commit, but wait for no broker that does not answer."""
        if not self._has_begun or self._wish.group is None:
            return
        limit = Deadline(_ASK_S if self._cut_off_s else min(_CLOSE_S, self._wish.timeout_s))
        try:
            in_time(self._consumer.close, limit, self._stop, signals=1)
        except (DeadlineMissed, Stopped):
            self._complaints.commit = self._complaints.commit or "no answer in time"
        except self._library.KafkaException as problem:
            self._complaints.commit = reason_of(problem)
        if self._complaints.commit:
            self._progress.note(
                f"the last offsets of group {self._wish.group} are not committed"
                f" ({self._complaints.commit}): it will print some records once more"
            )
