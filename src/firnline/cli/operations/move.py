"""`firnline partition move`: a plan, and its execution. WORLD.

A file has the format of Kafka's kafka-reassign-partitions, so that plans of either tool do for the other.
"""

import json
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import click

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import TopicPartition
from firnline.cli.operations.pace import (
    Pace,
    UnderWay,
    refuse_other_targets,
    under_way,
)
from firnline.cli.operations.progress import show_progress, wait_for_moves, wait_options
from firnline.cli.operations.words import count_of, partitions_of, said_of
from firnline.cli.show import SOMETHING_IS_WRONG, as_json, broker_options, bytes_of, connect, rows
from firnline.cli.terminal.completion import complete_topics
from firnline.client.admin import Admin
from firnline.client.operations.balance import Assignment, balanced
from firnline.client.operations.brokers import directories
from firnline.client.operations.partitions import numbers_of, partitions_named
from firnline.client.operations.reassignments import list_moves, reassign, replicas_of

# A broker hears of the end of a move a little later than the controller decides on it.
_METADATA_S = 5.0
_LOOK_S = 0.2


def _refuse_throttle(context: click.Context, option: click.Parameter, text: str | None) -> None:
    if text is not None:
        raise click.UsageError(
            "there is no throttle: Firnline's brokers have no quotas of replication. Move few partitions at a"
            " time instead: --at-a-time 1",
            context,
        )


@click.command()
@click.argument("partitions", nargs=-1, metavar="[TOPIC[:0,1]]...", shell_complete=complete_topics)
@click.option("--brokers", metavar="1,2,3", help="Spread the replicas evenly over these brokers.")
@click.option(
    "--replication-factor", type=click.IntRange(1), help="With --brokers: as many replicas each."
)
@click.option(
    "--replicas", metavar="3,1", help="These brokers for each, the preferred leader first."
)
@click.option("--file", "file", type=click.File(), metavar="JSON", help="A plan; - for stdin.")
@click.option("--execute", is_flag=True, help="Begin. Without it, only show the plan.")
@click.option("--export", is_flag=True, help="Print the plan as JSON that --file takes.")
@click.option(
    "--rollback",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="JSON",
    help="Write the present replicas to this file: a plan that leads back.",
)
@click.option(
    "--at-a-time", "at_once", type=click.IntRange(1), metavar="N",
    help="With --execute: move N partitions, wait, and go on until all are moved.",
)  # fmt: skip
@click.option(
    "--throttle", hidden=True, is_flag=False, flag_value="", callback=_refuse_throttle, expose_value=False,
)  # fmt: skip
@wait_options
@broker_options
def move(
    partitions: tuple[str, ...],
    brokers: str | None,
    replication_factor: int | None,
    replicas: str | None,
    file: TextIO | None,
    execute: bool,
    export: bool,
    rollback: Path | None,
    at_once: int | None,
    is_waiting: bool,
    within: str | None,
    bootstrap: str,
    style: str,
) -> None:
    """Move partitions to other brokers. Shows the plan; begins only with --execute.

    With --brokers few replicas move: those elsewhere, and those above a broker's share. The old replicas
    serve until the new ones are in sync.

    There is no throttle: Firnline's brokers copy as fast as they can, and a move of everything at once takes
    disks and network from clients. So move few partitions at a time: --at-a-time 2 begins the next one when
    one is there. Ctrl-C begins nothing more and leaves two partitions moving, which `firnline partition
    status` shows; the same command goes on. (For brokers of Apache Kafka, kafka-reassign-partitions
    --throttle sets a throttle.)

    The exit code is 3 if some partitions were refused, or are not there when --within is over.

    \b
    firnline partition move orders --brokers 1,2,4
    firnline partition move orders --brokers 1,2,4 --execute --at-a-time 2 --rollback before.json
    firnline partition move orders:0 --replicas 4,1 --execute
    firnline partition move --file before.json --execute
    """
    if sum(each is not None for each in (brokers, replicas, file)) != 1:
        raise click.UsageError("where to? Give one of --brokers, --replicas and --file")
    if bool(partitions) == (file is not None):
        raise click.UsageError("name the partitions, or give --file, which names its own")
    _check(
        execute=execute, export=export, is_waiting=is_waiting or at_once is not None,
        sizes=(replication_factor, brokers),
    )  # fmt: skip
    with connect(bootstrap) as admin:
        where = _Where(brokers, replication_factor, replicas, file)
        names = partitions_of(partitions, "PARTITIONS")
        current, wanted, changed = _wanted(admin, names, where, goes_on=at_once is not None)
        if rollback is not None and changed:
            _store(rollback, _written({place: current[place] for place in changed}) + "\n")
        if export:
            click.echo(_written(wanted))
            return
        outcomes = _begin(admin, changed) if execute and at_once is None else {}
        plan = _plan(admin, current, changed)
    if at_once is not None:
        pace = Pace(bootstrap, changed, at_once, within)
        sys.exit(_move_in_turn(bootstrap, pace, plan, changed, style))
    is_done = _show(plan, outcomes, style, is_begun=execute)
    if not (is_done & (not is_waiting or _wait(bootstrap, changed, within))):
        sys.exit(SOMETHING_IS_WRONG)


class _Where(NamedTuple):
    """Where to move partitions: one of `brokers`, `replicas` and `file`."""

    brokers: str | None
    replication_factor: int | None
    replicas: str | None
    file: TextIO | None


def _wanted(
    admin: Admin, names: dict[str, set[int] | None], where: _Where, *, goes_on: bool
) -> tuple[Assignment, Assignment, Assignment]:
    """Return the present replicas, those that are wanted, and of these what differs.

    goes_on  what is on its way to where it is wanted differs, too
    """
    wanted: Assignment = dict.fromkeys(partitions_named(admin, names), ())
    if where.file is not None:
        wanted = _read(where.file)
    current = replicas_of(admin, partitions_named(admin, numbers_of(wanted)))
    moves = under_way(admin) if goes_on else UnderWay({}, {})
    goals = {place: moves.targets.get(place, row) for place, row in current.items()}
    if where.brokers is not None:
        racks = _racks(admin, _ids(where.brokers, "--brokers"))
        wanted = balanced(goals, racks, where.replication_factor)
    elif where.replicas is not None:
        wanted = dict.fromkeys(current, _ids(where.replicas, "--replicas"))
    _racks(admin, sorted({broker for row in wanted.values() for broker in row}))
    changed = {place: row for place, row in wanted.items() if row != goals[place]}
    refuse_other_targets(changed, moves)
    changed |= {place: row for place, row in wanted.items() if moves.targets.get(place) == row}
    current |= {place: row for place, row in moves.sources.items() if place in current}
    return current, wanted, changed


def _move_in_turn(
    bootstrap: str, pace: Pace, plan: list[dict[str, Any]], wanted: Assignment, style: str
) -> int:
    """Move partitions a few at a time, and return the exit code."""
    if style == "table":
        _table(plan)
    left = pace.run() if wanted else []
    moved = [place for place in wanted if place in pace.finished]
    is_done = _are_there(bootstrap, {place: wanted[place] for place in moved})
    is_done &= not left and not pace.not_begun
    if style == "json":
        is_done &= _show(plan, pace.outcomes, style, is_begun=True, not_begun=pace.not_begun)
    else:
        is_done &= _refusals(pace.outcomes)
    if left:
        click.echo("these still move:", err=True)
        show_progress(left, "table")
    if pace.not_begun:
        what = count_of(len(pace.not_begun), "partition")
        click.echo(f"{what} not begun: the same command goes on", err=True)
    elif is_done and wanted:
        click.echo(f"moved {count_of(len(wanted), 'partition')}", err=True)
    return 0 if is_done else SOMETHING_IS_WRONG


def _check(
    *,
    execute: bool,
    export: bool,
    is_waiting: bool,
    sizes: tuple[int | None, str | None],
) -> None:
    """Refuse options that do not go together."""
    replication_factor, brokers = sizes
    if replication_factor and not brokers:
        raise click.UsageError("--replication-factor goes with --brokers")
    if is_waiting and not execute:
        raise click.UsageError("--wait goes with --execute, and so does --at-a-time")
    if execute and export:
        raise click.UsageError("--export only prints the plan: leave out --execute")


def _ids(text: str, option: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise click.BadParameter(f"{text!r} is not like 1,2,3", param_hint=option)
    found = tuple(map(int, words))
    if len(set(found)) < len(found):
        raise click.BadParameter(f"{text!r} names a broker twice", param_hint=option)
    return found


def _racks(admin: Admin, brokers: Iterable[int]) -> dict[int, str | None]:
    """Return the racks of these brokers. KafkaError for one that is not alive: it would never get in sync."""
    alive = {row.node_id: row.rack for row in admin.metadata([]).brokers}
    for broker in brokers:
        if broker not in alive:
            there = ", ".join(map(str, sorted(alive)))
            why = f"no broker {broker} is alive: there are {there}"
            raise KafkaError(Code.BROKER_NOT_AVAILABLE, why)
    return {broker: alive[broker] for broker in brokers}


def _begin(admin: Admin, changed: Assignment) -> dict[TopicPartition, KafkaError | None]:
    moving = [str(row.place) for row in list_moves(admin) if row.place in changed]
    if moving:
        why = f"{', '.join(moving)} moves already: wait for it, or firnline partition cancel"
        raise KafkaError(Code.REASSIGNMENT_IN_PROGRESS, why)
    return reassign(admin, changed) if changed else {}


def _plan(admin: Admin, current: Assignment, changed: Assignment) -> list[dict[str, Any]]:
    """Return a row for each partition, in order, with how much is to be copied."""
    sizes: dict[TopicPartition, int] = {}
    for each in directories(admin, None, sorted(changed)) if changed else []:
        for row in each.replicas:
            sizes[row.place] = max(row.size_bytes, sizes.get(row.place, 0))
    return [
        {
            "topic": place.topic,
            "partition": place.partition,
            "from": current[place],
            "to": replicas,
            "copy_bytes": sizes.get(place, 0) * len(set(replicas) - set(current[place])),
        }
        for place, replicas in sorted(changed.items())
    ]


def _show(
    plan: list[dict[str, Any]],
    outcomes: Mapping[TopicPartition, KafkaError | None],
    style: str,
    *,
    is_begun: bool,
    not_begun: Collection[TopicPartition] = (),
) -> bool:
    """Show the plan, and return whether no partition was refused."""
    if style == "json":
        for line in plan:
            place = TopicPartition(line["topic"], line["partition"])
            said = said_of(outcomes.get(place))
            line |= {
                "is_begun": is_begun and said is None and place not in not_begun,
                "problem": said,
            }
        as_json(plan)
        return not any(outcomes.values())
    _table(plan)
    is_fine = _refusals(outcomes)
    if is_begun and plan:
        begun = count_of(sum(not each for each in outcomes.values()), "move")
        click.echo(f"began {begun}: see firnline partition status", err=True)
    elif plan:
        click.echo("nothing moves yet: add --execute to begin", err=True)
    return is_fine


def _table(plan: list[dict[str, Any]]) -> None:
    shown = [{**line, "copies": bytes_of(line["copy_bytes"])} for line in plan]
    for line in shown:
        del line["copy_bytes"]
    rows(shown, "table", empty="all of them are there already: nothing to move")


def _refusals(outcomes: Mapping[TopicPartition, KafkaError | None]) -> bool:
    """Show which partitions were refused, and return whether none was."""
    problems = [said_of(outcome) for outcome in outcomes.values() if outcome]
    for said in problems:
        click.echo(f"refused: {said}")
    return not problems


def _wait(bootstrap: str, changed: Assignment, within: str | None) -> bool:
    """Wait for the moves, and return whether the partitions are where they were to be."""
    left = wait_for_moves(bootstrap, set(changed), within)
    if left:
        click.echo("these still move:", err=True)
        show_progress(left, "table")
        return False
    return _are_there(bootstrap, changed)


def _are_there(bootstrap: str, changed: Assignment) -> bool:
    """Say which partitions are elsewhere although they do not move any more; return whether all are there."""
    until_s = time.monotonic() + _METADATA_S
    while True:
        with connect(bootstrap, is_anew=True) as admin:
            there = replicas_of(admin, list(changed)) if changed else {}
        elsewhere = [place for place, row in changed.items() if there[place] != row]
        if not elsewhere or time.monotonic() >= until_s:
            break
        time.sleep(_LOOK_S)
    for place in elsewhere:
        click.echo(f"{place} did not move: it is on {', '.join(map(str, there[place]))}", err=True)
    return not elsewhere


# ---------------------------------------------------------------------------------------------- files


def _store(rollback: Path, plan: str) -> None:
    """Write the way back. Raises UsageError where the file leads back to something else: it would be lost."""
    if rollback.exists() and rollback.read_text() != plan:
        raise click.UsageError(
            f"{rollback} is there already, and leads elsewhere: name another file for --rollback, or leave it"
            " out to go on with a move that has begun"
        )
    rollback.write_text(plan)


def _written(wanted: Assignment) -> str:
    parts = [
        {"topic": place.topic, "partition": place.partition, "replicas": list(replicas)}
        for place, replicas in sorted(wanted.items())
    ]
    return json.dumps({"version": 1, "partitions": parts})


def _read(file: TextIO) -> Assignment:
    """Read Kafka's JSON of a reassignment. The directories that it may name are left to the brokers."""
    found: Assignment = {}
    has_directories = False
    try:
        content = json.load(file)
        if content["version"] != 1:
            raise ValueError(f"version {content['version']} is not known")
        for row in content["partitions"]:
            place = TopicPartition(row["topic"], row["partition"])
            replicas = tuple(row["replicas"])
            has_directories |= any(each != "any" for each in row.get("log_dirs", ()))
            if not isinstance(place.topic, str) or not all(
                isinstance(each, int) for each in (place.partition, *replicas)
            ):
                raise ValueError(f"not a partition with its replicas: {json.dumps(row)}")
            if place in found:
                raise ValueError(f"{place} is there twice")
            if not replicas or len(set(replicas)) < len(replicas):
                raise ValueError(f"{place} has no replicas, or one of them twice")
            found[place] = replicas
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        said = f"{problem} is missing" if isinstance(problem, KeyError) else str(problem)
        why = f"{file.name} is no plan of reassignments: {said}"
        raise click.BadParameter(why, param_hint="--file") from None
    if not found:
        raise click.BadParameter(f"{file.name} names no partition", param_hint="--file")
    if has_directories:
        click.echo("log_dirs are not used: each broker chooses the directory", err=True)
    return found
