"""`firnline group reset` and `firnline group delete-offsets`. WORLD."""

import csv
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import click

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import TopicPartition
from firnline.cli.operations.words import (
    count_of,
    duration_ms_of,
    partitions_of,
    said_of,
    time_ms_of,
)
from firnline.cli.show import SOMETHING_IS_WRONG, as_json, broker_options, connect, rows
from firnline.cli.terminal.completion import complete_groups, complete_topics
from firnline.client.admin import Admin
from firnline.client.operations.group_offsets import (
    Committed,
    commit_offsets,
    committed_offsets,
    delete_offsets,
    group_state,
    refuse_members,
)
from firnline.client.operations.group_reset import ResetRow, Target, Where, plan_reset
from firnline.client.operations.partitions import OffsetAt, numbers_of, partitions_named


@click.command()
@click.argument("group", shell_complete=complete_groups)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="T[:0,1]",
    shell_complete=complete_topics,
    help="These partitions.",
)
@click.option("--all-topics", is_flag=True, help="Everything that the group has committed.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="Behind the last record.")
@click.option("--to-current", is_flag=True, help="To what is committed; for --export.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="N records on; back if it is negative.")
@click.option(
    "--to-time", metavar="TIME", help="To the first record since then: ISO 8601, or ms since 1970."
)
@click.option(
    "--by-duration", metavar="TIME", help="To the first record of the last 1h, PT30M, ..."
)
@click.option(
    "--from-file",
    type=click.File(),
    metavar="CSV",
    help="Lines of topic,partition,offset; - for stdin.",
)
@click.option("--execute", is_flag=True, help="Commit the offsets. Without it, only show them.")
@click.option("--dry-run", is_flag=True, help="Only show them, as without --execute.")
@click.option("--export", is_flag=True, help="Print CSV that --from-file takes.")
@broker_options
def reset(
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    from_file: TextIO | None,
    execute: bool,
    dry_run: bool,
    export: bool,
    bootstrap: str,
    style: str,
    **where: Any,
) -> None:
    """Change where a group goes on reading. Shows the plan; commits it only with --execute.

    The group must have no members. An offset that a log does not have becomes the nearest one that it has. A
    group that does not exist is created, if its name is spelled with --topic. The exit code is 3 if some
    partitions were refused.

    \b
    firnline group reset shop --topic orders --to-earliest
    firnline group reset shop --topic orders:0,2 --to-time 2026-01-31T12:00Z --execute
    firnline group reset shop --all-topics --to-current --export > before.csv
    firnline group reset shop --from-file before.csv --execute
    """
    if execute and (dry_run or export):
        raise click.UsageError("--execute excludes --dry-run and --export")
    target = _target(where, _read_csv(from_file, group))
    if sum((bool(topics), all_topics, target.where is Where.FILE)) != 1:
        raise click.UsageError("give one of --topic and --all-topics (--from-file names its own)")
    wanted = partitions_of(topics, "--topic")
    with connect(bootstrap) as admin:
        state = group_state(admin, group)
        if not state.is_there and not topics and target.where is not Where.FILE:
            raise KafkaError(Code.GROUP_ID_NOT_FOUND, f"group {group}")
        if execute:
            refuse_members(state, group)
        committed = committed_offsets(admin, [group])[group] if state.is_there else {}
        if isinstance(committed, KafkaError):
            raise committed
        places = _places(admin, wanted, committed, target)
        plan = plan_reset(admin, places, committed, target)
        outcomes = _commit(admin, group, plan) if execute else {}
    if export:
        _write_csv(plan)
        return
    _show(plan, outcomes, style, is_done=execute)


def _target(where: Mapping[str, Any], file: dict[TopicPartition, int] | None) -> Target:
    """Return where to go, from the options; a usage error unless it is one of them."""
    found = []
    for option, kind in (
        ("to_earliest", Where.EARLIEST), ("to_latest", Where.LATEST), ("to_current", Where.CURRENT),
    ):  # fmt: skip
        if where[option]:
            found.append(Target(kind))
    if where["to_offset"] is not None:
        found.append(Target(Where.OFFSET, where["to_offset"]))
    if where["shift_by"] is not None:
        found.append(Target(Where.SHIFT, where["shift_by"]))
    if where["to_time"] is not None:
        found.append(Target(Where.TIME, time_ms_of(where["to_time"], "--to-time")))
    if where["by_duration"] is not None:
        ago_ms = duration_ms_of(where["by_duration"], "--by-duration")
        found.append(Target(Where.TIME, max(0, int(time.time() * 1000) - ago_ms)))
    if file is not None:
        found.append(Target(Where.FILE, file=file))
    if len(found) != 1:
        raise click.UsageError(
            "say once where to: --to-earliest, --to-latest, --to-current, --to-offset, --shift-by,"
            " --to-time, --by-duration or --from-file"
        )
    return found[0]


def _places(
    admin: Admin, wanted: Mapping[str, set[int] | None], committed: Committed, target: Target
) -> list[TopicPartition]:
    if target.where is Where.FILE:
        return partitions_named(admin, numbers_of(target.file))
    return partitions_named(admin, wanted) if wanted else sorted(committed)


def _commit(
    admin: Admin, group: str, plan: Sequence[ResetRow]
) -> dict[TopicPartition, KafkaError | None]:
    if not plan:
        return {}
    found = commit_offsets(admin, group, {row.place: OffsetAt(row.new_offset, -1) for row in plan})
    if any(outcome and outcome.code == Code.UNKNOWN_MEMBER_ID for outcome in found.values()):
        # Somebody has joined since we looked.
        refuse_members(group_state(admin, group), group)
    return found


def _show(
    plan: Sequence[ResetRow],
    outcomes: Mapping[TopicPartition, KafkaError | None],
    style: str,
    *,
    is_done: bool,
) -> None:
    problems = {place: said_of(outcome) for place, outcome in outcomes.items()}
    wrong = [said for said in problems.values() if said]
    if style == "json":
        as_json(
            [
                row._asdict()
                | {
                    "is_committed": is_done and not problems[row.place],
                    "problem": problems.get(row.place),
                }
                for row in plan
            ]
        )
    else:
        rows([_for_people(row) for row in plan], style, empty="no partitions: nothing to reset")
        for said in wrong:
            click.echo(f"not committed: {said}")
        done = len(plan) - len(wrong)
        if is_done and plan:
            click.echo(f"committed {count_of(done, 'offset')}", err=True)
        elif plan:
            click.echo("nothing is changed yet: add --execute to commit these offsets", err=True)
    if wrong:
        sys.exit(SOMETHING_IS_WRONG)


def _for_people(row: ResetRow) -> dict[str, Any]:
    known = row.committed_offset >= 0
    return {
        "topic": row.topic,
        "partition": row.partition,
        "committed": row.committed_offset if known else None,
        "new_offset": row.new_offset,
        "change": f"{row.new_offset - row.committed_offset:+d}" if known else "",
        "lag_then": row.log_end_offset - row.new_offset,
        "note": row.note,
    }


# ---------------------------------------------------------------------------------------------- files


def _write_csv(plan: Sequence[ResetRow]) -> None:
    for row in plan:
        click.echo(f"{row.topic},{row.partition},{row.new_offset}")


def _read_csv(file: TextIO | None, group: str) -> dict[TopicPartition, int] | None:
    """Read topic,partition,offset; or Kafka's group,topic,partition,offset, of which only this group's."""
    if file is None:
        return None
    found: dict[TopicPartition, int] = {}
    try:
        lines = list(csv.reader(file))
    except (ValueError, csv.Error) as problem:
        why = f"{file.name} is no text: {problem}"
        raise click.BadParameter(why, param_hint="--from-file") from None
    for number, line in enumerate(lines, 1):
        cells = [cell.strip() for cell in line]
        if not any(cells):
            continue
        if len(cells) == 4 and cells.pop(0) != group:
            continue
        if len(cells) != 3 or not all(cell.isascii() and cell.isdigit() for cell in cells[1:]):
            why = f"line {number} of {file.name} is not topic,partition,offset: {','.join(line)}"
            raise click.BadParameter(why, param_hint="--from-file")
        place = TopicPartition(cells[0], int(cells[1]))
        if place in found:
            why = f"line {number} of {file.name} names {place} a second time"
            raise click.BadParameter(why, param_hint="--from-file")
        found[place] = int(cells[2])
    if not found:
        raise click.BadParameter(f"{file.name} has no line for {group}", param_hint="--from-file")
    return found


# --------------------------------------------------------------------------------------------- delete


@click.command("delete-offsets")
@click.argument("group", shell_complete=complete_groups)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    metavar="T[:0,1]",
    shell_complete=complete_topics,
    help="These partitions.",
)
@broker_options
def forget(group: str, topics: tuple[str, ...], bootstrap: str, style: str) -> None:
    """Forget what a group has committed for topics that it does not read now.

    The exit code is 3 if some partitions were refused: GROUP_SUBSCRIBED_TO_TOPIC means that a member still
    reads the topic.
    """
    with connect(bootstrap) as admin:
        places = partitions_named(admin, partitions_of(topics, "--topic"))
        outcomes = delete_offsets(admin, group, places)
    found = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "is_deleted": outcome is None,
            "problem": said_of(outcome),
        }
        for place, outcome in sorted(outcomes.items())
    ]
    rows(found, style, empty="no partitions")
    if any(outcomes.values()):
        sys.exit(SOMETHING_IS_WRONG)
