"""`firnline topic delete-records`: moves the start of logs. WORLD."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TextIO

import click

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import TopicPartition
from firnline.cli.operations.words import agree, count_of, partitions_of, said_of, time_ms_of
from firnline.cli.show import SOMETHING_IS_WRONG, as_json, broker_options, connect, rows
from firnline.cli.terminal.completion import complete_topics
from firnline.client.admin import EARLIEST, LATEST, Admin
from firnline.client.operations.partitions import (
    HIGH_WATERMARK,
    OffsetAt,
    delete_records,
    numbers_of,
    offsets_at,
    partitions_named,
)


class _Row(NamedTuple):
    """One partition: where its log begins and ends, and where it is to begin."""

    place: TopicPartition
    start: int
    end: int
    new_start: int


@click.command("delete-records")
@click.argument("topics", nargs=-1, metavar="[TOPIC[:0,1]]...", shell_complete=complete_topics)
@click.option(
    "-p",
    "--partition",
    "offsets",
    multiple=True,
    metavar="P:OFFSET",
    help="Of one topic: the records of this partition below this offset.",
)
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="Records below this offset.")
@click.option(
    "--before", metavar="TIME", help="Records older than this: ISO 8601, or ms since 1970."
)
@click.option("--to-latest", is_flag=True, help="All records that are committed now.")
@click.option(
    "--offsets-file",
    "file",
    type=click.File(),
    metavar="JSON",
    help="A file for Kafka's kafka-delete-records; - for stdin.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("--yes", "is_agreed", is_flag=True, help="Do not ask.")
@broker_options
def command(
    topics: tuple[str, ...],
    offsets: tuple[str, ...],
    to_offset: int | None,
    before: str | None,
    to_latest: bool,
    file: TextIO | None,
    dry_run: bool,
    is_agreed: bool,
    bootstrap: str,
    style: str,
) -> None:
    """Delete the oldest records of topics, also from the remote tier. They cannot be brought back.

    Shows what it will delete, and asks. An offset past the end of its log is refused before anything is
    deleted. The exit code is 3 if some partitions were refused.

    \b
    firnline topic delete-records orders --before 2026-01-31T00:00Z
    firnline topic delete-records orders -p 0:1200 -p 1:1180 --yes
    """
    given = (bool(offsets), to_offset is not None, before is not None, to_latest, file is not None)
    if sum(given) != 1:
        raise click.UsageError(
            "which records? Give one of -p, --to-offset, --before, --to-latest and --offsets-file"
        )
    if bool(topics) == (file is not None) or (offsets and len(topics) != 1):
        raise click.UsageError(
            "name the topics (with -p: one), or give --offsets-file, which names its own"
        )
    before_ms = None if before is None else time_ms_of(before, "--before")
    exact = _exact(topics, offsets) if offsets else {} if file is None else _read(file)
    with connect(bootstrap) as admin:
        named = numbers_of(exact) if exact else partitions_of(topics, "TOPICS")
        places = partitions_named(admin, named)
        if to_latest:
            exact = dict.fromkeys(places, HIGH_WATERMARK)
        elif to_offset is not None:
            exact = dict.fromkeys(places, to_offset)
        plan = _plan(admin, places, exact, before_ms)
    if style == "table":
        rows([_shown(row) for row in plan], style, empty="no partitions")
    count = sum(row.new_start - row.start for row in plan)
    outcomes: dict[TopicPartition, int | KafkaError] = {}
    if count and not dry_run:
        agree(f"Delete up to {count_of(count, 'record')} for good?", is_agreed)
        wanted = {row.place: row.new_start for row in plan if row.new_start > row.start}
        with connect(bootstrap, is_anew=True) as admin:
            outcomes = delete_records(admin, wanted)
    _report(plan, outcomes, style)


def _plan(
    admin: Admin,
    places: Sequence[TopicPartition],
    exact: Mapping[TopicPartition, int],
    before_ms: int | None,
) -> list[_Row]:
    starts = offsets_at(admin, dict.fromkeys(places, EARLIEST))
    ends = offsets_at(admin, dict.fromkeys(places, LATEST))
    at = {} if before_ms is None else offsets_at(admin, dict.fromkeys(places, before_ms))
    plan = []
    for place in places:
        start, end = _known(starts[place]), _known(ends[place])
        # No record since then: all of them are older.
        wish = exact[place] if before_ms is None else _known(at[place])
        new_start = end if wish < 0 else wish
        if new_start > end:
            why = f"{place} ends at {end}: {new_start} is past it; nothing was deleted"
            raise KafkaError(Code.OFFSET_OUT_OF_RANGE, why)
        plan.append(_Row(place, start, end, max(start, new_start)))
    return plan


def _known(outcome: OffsetAt | KafkaError) -> int:
    if isinstance(outcome, KafkaError):
        raise outcome
    return outcome.offset


def _shown(row: _Row) -> dict[str, Any]:
    return {
        "topic": row.place.topic,
        "partition": row.place.partition,
        "log_start": row.start,
        "log_end": row.end,
        "new_start": row.new_start,
        "records": row.new_start - row.start,
    }


def _report(
    plan: Sequence[_Row], outcomes: Mapping[TopicPartition, int | KafkaError], style: str
) -> None:
    problems = [outcome for outcome in outcomes.values() if isinstance(outcome, KafkaError)]
    if style == "json":
        as_json(
            [
                _shown(row)
                | {
                    "is_deleted": isinstance(outcomes.get(row.place), int),
                    "problem": said_of(outcomes.get(row.place)),
                }
                for row in plan
            ]
        )
    else:
        for problem in problems:
            click.echo(f"refused: {problem}")
        if outcomes:
            done = count_of(len(outcomes) - len(problems), "partition")
            click.echo(f"deleted records of {done}", err=True)
        else:
            click.echo("nothing was deleted", err=True)
    if problems:
        sys.exit(SOMETHING_IS_WRONG)


def _exact(topics: Sequence[str], offsets: Sequence[str]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for text in offsets:
        ends = text.split(":")
        if len(ends) != 2 or not all(end.isascii() and end.isdigit() for end in ends):
            raise click.BadParameter(f"{text!r} is not like 0:123", param_hint="-p")
        place = TopicPartition(topics[0], int(ends[0]))
        if place in found:
            raise click.BadParameter(f"partition {place.partition} is there twice", param_hint="-p")
        found[place] = int(ends[1])
    return found


def _read(file: TextIO) -> dict[TopicPartition, int]:
    """Read the JSON of Kafka's tool, in which the offset -1 stands for the high watermark."""
    found: dict[TopicPartition, int] = {}
    try:
        content = json.load(file)
        if content.get("version", 1) != 1:
            raise ValueError(f"version {content['version']} is not known")
        for row in content["partitions"]:
            place, offset = TopicPartition(row["topic"], row["partition"]), row["offset"]
            if not isinstance(place.topic, str) or not all(
                type(each) is int for each in (place.partition, offset)
            ):
                raise ValueError(f"not a partition with its offset: {json.dumps(row)}")
            if place in found:
                raise ValueError(f"{place} is there twice")
            if offset < HIGH_WATERMARK:
                raise ValueError(f"{place}: {offset} is not an offset")
            found[place] = offset
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        said = f"{problem} is missing" if isinstance(problem, KeyError) else str(problem)
        why = f"{file.name} has no offsets: {said}"
        raise click.BadParameter(why, param_hint="--offsets-file") from None
    if not found:
        raise click.BadParameter(f"{file.name} names no partition", param_hint="--offsets-file")
    return found
