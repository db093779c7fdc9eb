"""`firnline produce`: send lines, or records in another format, to a topic. WORLD."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import click

from firnline.base.errors import FirnlineError
from firnline.cli.client.librdkafka import Complaints, bootstrap_of, load, make, reach, settings
from firnline.cli.client.parsing import delimiter_of, parsed
from firnline.cli.client.progress import Progress
from firnline.cli.client.sending import (
    Defaults,
    Feed,
    Sender,
    Source,
    flush,
    outcome,
    sentence,
)
from firnline.cli.client.stopping import Stopped, StopSignals
from firnline.cli.client.topics import Cluster, leaderless, named
from firnline.cli.records.input_format import Format
from firnline.cli.records.json_lines import record_of
from firnline.cli.records.lines import Decoder, Lines, plain_line
from firnline.cli.records.record import Headers
from firnline.cli.records.times import time_ms
from firnline.cli.show import broker_server_option, deadline, pairs, set_option
from firnline.cli.terminal.completion import complete_topics
from firnline.client.deadline import Deadline

_LOOK_S = 2.0
_TIMEOUT_MAX_S = 86_400.0
_BATCH_BYTES = 1_000_000  # librdkafka's default


class Input(NamedTuple):
    """How records are cut out of a source, each source with a decoder of its own; and what one is called."""

    decoder: Callable[[], Decoder]
    noun: str


class Wish(NamedTuple):
    """What the command line asks for, parsed."""

    topic: str
    may_create: bool
    bootstrap: str
    input: Input
    defaults: Defaults
    acks: str
    compression: str
    overrides: Mapping[str, str]
    timeout_s: float


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("files", nargs=-1, type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--key", "-k", metavar="KEY", help="Key of each record that states none.")
@click.option(
    "--key-delimiter", "-K", metavar="DELIM",
    help="What ends the key in a line. A line without it has no key of its own.",
)  # fmt: skip
@click.option(
    "--header", "-H", "headers", multiple=True, metavar="NAME=VALUE", help="Add a header."
)
@click.option(
    "--partition", "-p", metavar="N|any",
    help="Partition of all records. Default: what the input states, else the key's hash, as in Java.",
)  # fmt: skip
@click.option(
    "--timestamp", metavar="TIME",
    help="Timestamp of records that state none: ms, ISO 8601, or -1h. Default: now.",
)  # fmt: skip
@click.option(
    "--format", "-f", "style", metavar="FORMAT|json",
    help=r"Input such as '%k=%v\n', or the JSON lines that consume prints. Default: lines.",
)  # fmt: skip
@click.option(
    "--delimiter",
    "-D",
    default=r"\n",
    show_default=True,
    metavar="DELIM",
    help="What ends a record.",
)
@click.option(
    "--null", "-Z", "null_if_empty", is_flag=True, help="Send an empty key or value as null."
)
@click.option(
    "--compression", "-z", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none", show_default=True, help="How batches are compressed.",
)  # fmt: skip
@click.option(
    "--acks", type=click.Choice(["0", "1", "all", "-1"]), default="all", show_default=True,
    help="Who must have a record: nobody, its leader, all in-sync replicas.",
)  # fmt: skip
@click.option(
    "--create", "may_create", is_flag=True,
    help="Make the topic if it is not there, even if its name is one slip from another topic's.",
)  # fmt: skip
@set_option("Set a key of librdkafka.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing on stderr but errors.")
@broker_server_option
def command(
    topic: str, files: tuple[str, ...], bootstrap: str, quiet: bool, **choices: Any
) -> None:
    """Send records to a topic: each line of stdin, or of the files, is one.

    \b
    echo hello | firnline produce events
    printf 'alice:1\\nbob:2\\n' | firnline produce events -K :
    firnline consume events -e --format json | firnline produce copy --format json

    A topic that is not there is made if brokers do that (auto.create.topics.enable), unless its name is one
    slip from that of another topic.

    Stops at the first record that is not delivered, and says which it is. The exit code is then 1.
    """
    overrides = pairs(choices["overrides"], "-X")
    wish = Wish(
        topic=topic,
        may_create=choices["may_create"],
        bootstrap=bootstrap_of(bootstrap, overrides),
        input=_input(choices),
        defaults=Defaults(
            partition=_partition(choices["partition"]),
            is_forced=choices["partition"] is not None,
            headers=_headers(choices["headers"]),
            timestamp_ms=_timestamp(choices["timestamp"]),
        ),
        acks="all" if choices["acks"] == "-1" else choices["acks"],
        compression=choices["compression"],
        overrides=overrides,
        timeout_s=min(deadline().timeout_s, _TIMEOUT_MAX_S),
    )
    is_typed = not files and sys.stdin is not None and sys.stdin.isatty()
    progress = Progress(is_quiet=quiet, is_shown=False if is_typed else None)
    with StopSignals() as stop, ExitStack() as opened:
        sources = _sources(files, opened)
        try:
            code = Production(wish, stop, progress).run(sources, is_typed=is_typed)
        except Stopped:
            code = stop.exit_code
    sys.exit(code)


def _input(choices: Mapping[str, Any]) -> Input:
    style, key, null_if_empty = choices["style"], choices["key"], choices["null_if_empty"]
    end = delimiter_of("-D", choices["delimiter"], may_be_empty=False)
    until = delimiter_of("-K", choices["key_delimiter"], may_be_empty=False)
    assert end is not None
    if style is not None and (key is not None or until is not None):
        raise click.UsageError("-k and -K are for lines: with --format the input states the keys")
    if style == "json":
        if null_if_empty or end != b"\n":
            raise click.UsageError("-D and -Z have no meaning with --format json")
        return Input(lambda: Lines(record_of), "line")
    if style is not None:
        parsed("-f", lambda text: Format(text, end), style)
        return Input(lambda: Format(style, end, null_if_empty=null_if_empty), "record")
    decode = plain_line(
        key=None if key is None else os.fsencode(key),
        key_delimiter=until,
        null_if_empty=null_if_empty,
    )
    noun = "line" if end == b"\n" else "record"
    return Input(lambda: Lines(decode, end, noun), noun)


def _partition(text: str | None) -> int:
    if text in (None, "any", "-1"):
        return -1
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 31):
        raise click.BadParameter(f"{text!r} is not a partition, nor `any`", param_hint="-p")
    return int(text)


def _headers(texts: Sequence[str]) -> Headers:
    found: list[tuple[str, bytes | None]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise click.BadParameter(f"{name!r} is not UTF-8", param_hint="-H") from None
        found.append((name, os.fsencode(value) if equals else None))
    return found


def _timestamp(text: str | None) -> int:
    now_ms = time.time_ns() // 1_000_000
    found = 0 if text is None else parsed("--timestamp", lambda text: time_ms(text, now_ms), text)
    if text is not None and not found:
        raise click.BadParameter("librdkafka takes 0 for now", param_hint="--timestamp")
    return found


def _sources(files: Sequence[str], opened: ExitStack) -> list[Source]:
    """Open all files at once, so that one that is not there is noticed before anything is sent."""
    found = []
    for name in files or ("-",):
        if name == "-":
            if sys.stdin is None:
                raise FirnlineError("cannot read stdin: it is closed")
            found.append(Source("", 0))
            continue
        try:
            file = opened.enter_context(open(name, "rb", buffering=0))  # noqa: SIM115 - ExitStack
        except OSError as problem:
            raise FirnlineError(f"cannot read {name}: {problem.strerror}") from None
        found.append(Source(name, file.fileno()))
    return found


class Production:
    """One run of the command."""

    def __init__(self, wish: Wish, stop: StopSignals, progress: Progress) -> None:
        self._wish = wish
        self._stop = stop
        self._progress = progress
        self._library = load()
        self._complaints = Complaints()
        self._admin: Any = None
        self._most_bytes: str | None = None

    def run(self, sources: Sequence[Source], *, is_typed: bool) -> int:
        """Send all sources, and return the exit code.

        Raises FirnlineError for what went wrong, with what was delivered, and Stopped if a signal came before
        anything was sent.
        """
        from confluent_kafka.admin import AdminClient

        wish = self._wish
        reach(wish.bootstrap, Deadline(wish.timeout_s), self._stop)
        self._admin = make(AdminClient, self._shared())
        cluster = self._cluster(wish.timeout_s)
        make_topic = cluster.create if wish.may_create else cluster.create_if_brokers_do
        make_topic(wish.topic, self._progress.note)
        wanted = [wish.defaults.partition] if wish.defaults.partition >= 0 else []
        found = cluster.wait_for_leaders(
            wish.topic, wanted, self._progress.note, one_is_enough=not wanted
        )
        self._most_bytes = cluster.setting("topic", wish.topic, "max.message.bytes")
        producer = make(self._library.Producer, self._settings())
        if is_typed:
            self._progress.note(f"each line is a record of {wish.topic}; Ctrl-D ends")
        sender = Sender(producer, self._library, wish.topic, len(found.partitions))
        return self._send(sender, sources)

    def _send(self, sender: Sender, sources: Sequence[Source]) -> int:
        wish, stop, progress = self._wish, self._stop, self._progress
        feed = Feed(sender, wish.defaults, noun=wish.input.noun, timeout_s=wish.timeout_s,
                    stop=stop, progress=progress)  # fmt: skip
        problems = []
        try:
            for source in sources:
                feed.run(source, wish.input.decoder())
        except FirnlineError as problem:
            problems.append(str(problem))
        flush(sender, wish.timeout_s, stop, progress)
        progress.clear()
        if sender.first is not None:
            problems.append(
                sentence(
                    sender.first, wish.topic, most_bytes=self._most_bytes,
                    timeout_s=wish.timeout_s, kind=self._library.KafkaError, look=self._look,
                )
            )  # fmt: skip
        if stop.count:
            problems.insert(0, "interrupted")
        if problems:
            said = outcome(sender, acks=wish.acks, problems=problems, last=feed.left_at)
            if not stop.count:
                raise FirnlineError(said)
            progress.say(said)
        elif progress.has_terminal:
            progress.note(outcome(sender, acks=wish.acks, problems=()))
        return stop.exit_code if stop.count else 0

    def _settings(self) -> dict[str, Any]:
        wish = self._wish
        found = {
            "acks": wish.acks,
            # A batch is refused as a record is; one record may be larger than a batch.
            "batch.size": min(_BATCH_BYTES, int(self._most_bytes or _BATCH_BYTES)),
            "compression.type": wish.compression,
            "delivery.report.only.error": True,
            "enable.idempotence": wish.overrides.get("acks", wish.acks) in ("all", "-1"),
            "message.max.bytes": 1_000_000_000,  # the broker knows better what is too large
            "message.timeout.ms": int(wish.timeout_s * 1000),
            "partitioner": "murmur2_random",
            "queue.buffering.max.kbytes": 1 << 19,
        }
        return found | self._shared()

    def _shared(self) -> dict[str, Any]:
        return settings(self._wish.bootstrap, self._wish.overrides, self._complaints)

    def _cluster(self, timeout_s: float) -> Cluster:
        return Cluster(
            self._admin, self._library, self._wish.bootstrap, complaints=self._complaints,
            deadline=Deadline(timeout_s), timeout_s=timeout_s, stop=self._stop,
        )  # fmt: skip

    def _look(self) -> str | None:
        """Say what is wrong with the cluster; None if nothing can be seen."""
        if self._complaints.refusal:
            return self._complaints.refusal
        try:
            reach(self._wish.bootstrap, Deadline(_LOOK_S), self._stop)
            cluster = self._cluster(_LOOK_S)
            found = cluster.one(self._wish.topic)
            cluster.refuse(self._wish.topic, found)
            wanted = self._wish.defaults.partition
            return trouble_of(self._wish.topic, found.partitions, wanted, cluster.why_unreachable)
        except Stopped:
            return None
        except FirnlineError as problem:
            return str(problem)


def trouble_of(
    topic: str,
    partitions: Mapping[int, Any],
    wanted: int,
    why_unreachable: Callable[[int], str | None],
) -> str | None:
    """Say what is wrong with partition `wanted` of a topic, or with any if it is -1; None: nothing.

    A replica less is told last: the leader that is dead is often the reason for it.
    why_unreachable  of a broker, by its id; None if it can be reached
    """
    looked_at = {n: each for n, each in sorted(partitions.items()) if wanted in (n, -1)}
    without = [number for number, each in looked_at.items() if each.leader < 0]
    if without:
        return leaderless(topic, without)
    for leader in dict.fromkeys(each.leader for each in looked_at.values()):
        if why := why_unreachable(leader):
            led = [number for number, each in looked_at.items() if each.leader == leader]
            return f"broker {leader}, which leads {named(led)}, is not there: {why}"
    for number, each in looked_at.items():
        if len(each.isrs) < len(each.replicas):
            return (
                f"partition {number} has {len(each.isrs)} of {len(each.replicas)} replicas"
                " in sync, which may be fewer than min.insync.replicas"
            )
    return None
