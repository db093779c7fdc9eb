"""`firnline topic`: create, list, describe, alter and delete topics. WORLD."""

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from firnline.base.errors import Code, KafkaError
from firnline.cli.operations.delete_records import command as delete_records
from firnline.cli.show import (
    SOMETHING_IS_WRONG,
    as_json,
    broker_options,
    connect,
    facts,
    pairs,
    rows,
    set_option,
    unset_option,
)
from firnline.cli.terminal.completion import complete_topics
from firnline.client.admin import TOPIC_RESOURCE
from firnline.client.cluster import PartitionState, TopicState, describe_topics
from firnline.client.operations.configs import Resource, refuse_unknown

# Columns of a partition that a narrow terminal does without.
_LESS_IMPORTANT = (
    "partition_epoch",
    "leader_epoch",
    "log_start_offset",
    "log_end_offset",
    "offline",
)
Assignments = tuple[tuple[int, ...], ...] | None


def parse_assignment(
    context: click.Context, option: click.Parameter, text: str | None
) -> Assignments:
    """Parse `0:1,1:2`, as Kafka's tool does: colons between brokers, commas between partitions."""
    if text is None:
        return None
    try:
        found = tuple(tuple(map(int, part.split(":"))) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not like 0:1,1:2", context, option) from None
    if any(len(frozenset(replicas)) < len(replicas) for replicas in found):
        raise click.BadParameter("a partition names a broker twice", context, option)
    if len(frozenset(map(len, found))) > 1:
        raise click.BadParameter(
            "every partition must have the same number of replicas", context, option
        )
    return found


replica_assignment = click.option(
    "--replica-assignment",
    "assignments",
    callback=parse_assignment,
    metavar="0:1,1:2",
    help="Brokers of each partition, the preferred one first.",
)
validate_only = click.option(
    "--validate-only", "is_trial", is_flag=True, help="Only check whether it could be done."
)


@click.group()
def command() -> None:
    """Create, list, describe, alter and delete topics."""


command.add_command(delete_records)


@command.command()
@click.argument("name")
@click.option("--partitions", "-p", type=click.IntRange(1), help="Default: the broker's setting.")
@click.option("--replication-factor", "-r", type=click.IntRange(1), help="Default: the broker's.")
@set_option("Set a topic setting.", name="configs", older=("-c", "--config"))
@replica_assignment
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@validate_only
@broker_options
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    assignments: Assignments,
    if_not_exists: bool,
    is_trial: bool,
    bootstrap: str,
    style: str,
) -> None:
    """Create a topic.

    \b
    firnline topic create events -p 6 --set remote.storage.enable=true
    """
    overrides = pairs(configs, "--set")
    if assignments and (partitions or replication_factor):
        raise click.UsageError("--replica-assignment says how many partitions and replicas")
    is_there = False
    with connect(bootstrap) as admin:
        try:
            topic_id = admin.create_topic(
                name,
                partitions=partitions or -1,
                replication_factor=replication_factor or -1,
                configs=overrides,
                assignments=assignments or (),
                validate_only=is_trial,
            )
        except KafkaError as problem:
            if not if_not_exists or problem.code != Code.TOPIC_ALREADY_EXISTS:
                raise
            topic_id, is_there = "", True
    is_made = not is_trial and not is_there
    if style == "json":
        as_json({"topic": name, "topic_id": topic_id or None, "created": is_made})
    elif is_there:
        click.echo(f"{name} exists already")
    else:
        click.echo(f"created {name}" if is_made else f"{name} could be created")


@command.command("list")
@click.option("--internal", is_flag=True, help="Kafka's own topics too.")
@broker_options
def list_(internal: bool, bootstrap: str, style: str) -> None:
    """List topics."""
    with connect(bootstrap) as admin:
        found = [row._asdict() for row in admin.topics() if internal or not row.is_internal]
    rows(found, style, empty="no topics", less_important=("is_internal", "topic_id"))


@command.command()
@click.argument("names", nargs=-1, shell_complete=complete_topics)
@click.option("--all-configs", is_flag=True, help="Also show settings at their default.")
@click.option(
    "--under-replicated", "only_thin", is_flag=True,
    help="Only partitions with fewer in-sync replicas than replicas.",
)  # fmt: skip
@click.option("--unavailable", "only_dead", is_flag=True, help="Only partitions without a leader.")
@broker_options
def describe(
    names: tuple[str, ...],
    all_configs: bool,
    only_thin: bool,
    only_dead: bool,
    bootstrap: str,
    style: str,
) -> None:
    """Show topics: settings, partitions, leaders, in-sync replicas and lag. Without a name, show all.

    Behind says how many records each follower lacks, or "?" if it has not fetched from this leader. With
    --under-replicated or --unavailable the exit code is 3 if there are such partitions, else 0.
    """
    with connect(bootstrap) as admin:
        topics = describe_topics(admin, names or None)
        if only_thin or only_dead:
            _show_some(topics, style, only_dead=only_dead)
        configs = {
            each.name: admin.topic_configs(each.name, only_changed=not all_configs)
            for each in topics
        }
    if style == "json":
        found = [_for_programs(each) | {"configs": configs[each.name]} for each in topics]
        as_json(found)
        return
    for number, topic in enumerate(topics):
        if number:
            click.echo()
        shown = [
            f"{key}={'[hidden]' if value is None else value}"
            for key, value in configs[topic.name].items()
        ]
        head = {name: value for name, value in topic._asdict().items() if name != "partitions"}
        facts(head | {"configs": shown or "all at their defaults"})
        rows(
            [_for_people(part) for part in topic.partitions],
            style,
            empty="no partitions",
            less_important=_LESS_IMPORTANT,
        )
    if not topics:
        click.echo("no topics", err=True)


def _show_some(topics: Sequence[TopicState], style: str, *, only_dead: bool) -> NoReturn:
    """Show the partitions with a problem, and exit with the code that says so."""
    found = [
        part
        for topic in topics
        for part in topic.partitions
        if (part.leader < 0 if only_dead else not part.is_complete)
    ]
    if style == "json":
        as_json([_part_for_programs(part) for part in found])
    else:
        shown = [{"topic": part.topic, **_for_people(part)} for part in found]
        rows(shown, style, empty="no such partitions", less_important=_LESS_IMPORTANT)
    sys.exit(SOMETHING_IS_WRONG if found else 0)


def _for_programs(topic: TopicState) -> dict[str, Any]:
    return topic._asdict() | {
        "replication_factor": max((len(part.replicas) for part in topic.partitions), default=0),
        "partitions": [_part_for_programs(part) for part in topic.partitions],
    }


def _part_for_programs(part: PartitionState) -> dict[str, Any]:
    return part._asdict() | {"followers": [each._asdict() for each in part.followers]}


def _for_people(part: PartitionState) -> dict[str, Any]:
    behind = [f"{each.broker_id}:{'?' if each.lag < 0 else each.lag}" for each in part.followers]
    return {
        "partition": part.partition,
        "state": part.state,
        "leader": "none" if part.leader < 0 else part.leader,
        "replicas": part.replicas,
        "isr": part.isr,
        "offline": part.offline,
        "leader_epoch": part.leader_epoch,
        "partition_epoch": _known(part.partition_epoch),
        "log_start_offset": _known(part.log_start_offset),
        "high_watermark": _known(part.high_watermark),
        "log_end_offset": _known(part.log_end_offset),
        "behind": behind,
    }


def _known(value: int) -> int | None:
    return None if value < 0 else value


@command.command()
@click.argument("name", shell_complete=complete_topics)
@set_option("Set a topic setting.", name="changes")
@unset_option("Return a topic setting to its default.", name="resets", older=("--delete",))
@click.option(
    "--partitions", "-p", type=click.IntRange(1), help="Increase the number of partitions to this."
)
@replica_assignment
@validate_only
@broker_options
def alter(
    name: str,
    changes: tuple[str, ...],
    resets: tuple[str, ...],
    partitions: int | None,
    assignments: Assignments,
    is_trial: bool,
    bootstrap: str,
    style: str,
) -> None:
    """Change the settings of a topic, or add partitions.

    With --replica-assignment list the existing partitions first, as for Kafka's tool; their replicas do not
    move.
    """
    if assignments and len(assignments) != partitions:
        raise click.UsageError(
            "--replica-assignment must list as many partitions as --partitions says"
        )
    if not (changes or resets or partitions):
        raise click.UsageError("nothing to change: give --set, --unset or --partitions")
    overrides = pairs(changes, "--set")
    with connect(bootstrap) as admin:
        if resets:
            refuse_unknown(admin, Resource(TOPIC_RESOURCE, name), resets)
        if overrides or resets:
            admin.alter_topic(name, changes=overrides, resets=resets, validate_only=is_trial)
        if partitions:
            present = len(admin.topic(name)[1]) if assignments else 0
            new = assignments[present:] if assignments else None
            admin.set_partitions(name, partitions, assignments=new, validate_only=is_trial)
    if style == "json":
        as_json({"topic": name, "set": overrides, "unset": list(resets), "partitions": partitions})
    else:
        click.echo(f"{name} could be altered" if is_trial else f"altered {name}")


@command.command()
@click.argument("names", nargs=-1, required=True, shell_complete=complete_topics)
@broker_options
def delete(names: tuple[str, ...], bootstrap: str, style: str) -> None:
    """Delete topics, with their data in the remote tier."""
    with connect(bootstrap) as admin:
        for name in names:
            admin.delete_topic(name)
            if style == "table":
                click.echo(f"deleted {name}")
    if style == "json":
        as_json({"deleted": list(names)})
