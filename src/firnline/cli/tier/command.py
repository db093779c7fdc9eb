"""`firnline tier`: show what is in the remote tier, and copy what still waits. WORLD."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from firnline.base.errors import some_of
from firnline.cli.show import (
    SOMETHING_IS_WRONG,
    as_json,
    bootstrap_option,
    broker_options,
    connect,
    duration_of,
    format_option,
    paragraph,
    rows,
    size_of,
    timeout_option,
)
from firnline.cli.terminal.completion import complete_topics
from firnline.cli.tier.check import check
from firnline.cli.tier.closing import closing_of
from firnline.cli.tier.explain import explain
from firnline.cli.tier.metadata import metadata
from firnline.cli.tier.why import reasons, unrolled_topics
from firnline.client.admin import BrokerTier, NotAllCopied

# A flush copies whole segments.
_FLUSH_S = 60.0
# What a broker does not do while the circuit of an operation is open.
_MEANING = {
    "read": "use its store at all",
    "write": "copy or delete anything",
    "copy": "copy segments",
    "delete": "delete what has expired",
}


@click.group()
def command() -> None:
    """Show what is in the remote tier, and copy what still waits."""


@command.command()
@click.argument("topic", required=False, shell_complete=complete_topics)
@broker_options
def status(topic: str | None, bootstrap: str, style: str) -> None:
    """Show what lies in which tier, how far copies are behind, and what fails, for one or all tiered topics.

    The tier has the offsets from the log start to the highest remote one, the broker's disk those from the
    local log start on. Waiting: closed segments that are not in the tier yet. Behind: the age of the newest
    record in the oldest of them. Below the table: each partition that fails, why and for how long; each
    broker that does not use its store until that answers; each call that a store does not answer; why records
    of a topic are not in the tier although nothing fails. Exit code 3 if anything fails.
    """
    with connect(bootstrap) as admin:
        brokers = admin.tier_status([topic] if topic else None)
        found = [row for broker in brokers for row in broker.partitions]
        unrolled = unrolled_topics(found) if style == "table" else ()
        closing = closing_of(admin, brokers, unrolled) if unrolled else {}
    found.sort(key=lambda row: (row["topic"], row["partition"]))
    if style == "json":
        as_json({"partitions": found, "brokers": [_for_programs(broker) for broker in brokers]})
    else:
        rows(
            [_for_people(row) for row in found],
            style,
            empty=(
                "no tiered partitions"
                if all(broker.has_answered for broker in brokers)
                else "no tiered partitions are known: not every broker has answered"
            ),
            # What is wrong comes last, and stays where names are long.
            less_important=(
                *("log_start", "local_start", "local", "waiting"),
                *("remote", "log_end", "remote_end"),
            ),
        )
        problems = [line for broker in brokers for line in _problems(broker)]
        problems += reasons(found, closing, is_everything=topic is None and not problems)
        if problems:
            click.echo()
        for line in problems:
            paragraph(line)
    if any(row["problem"] for row in found) or any(
        b.problem or b.circuits or b.unanswered for b in brokers
    ):
        sys.exit(SOMETHING_IS_WRONG)


def _for_programs(broker: BrokerTier) -> dict[str, Any]:
    circuits = [circuit._asdict() for circuit in broker.circuits]
    return {
        "broker": broker.address,
        "problem": broker.problem,
        "open_circuits": circuits,
        "unanswered": None if broker.unanswered is None else broker.unanswered._asdict(),
    }


def _for_people(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return only what people need: which offsets are where, and their size."""
    return {
        "topic": row["topic"],
        "partition": row["partition"],
        "log_start": row["log_start_offset"],
        "local_start": row["local_log_start_offset"],
        "remote_end": row["highest_remote_offset"] + 1,
        "log_end": row["log_end_offset"],
        "remote": size_of(row["remote_bytes"], row["remote_segments"]),
        "local": size_of(row["local_bytes"], row["local_segments"]),
        "waiting": size_of(row["waiting_bytes"], row["waiting_segments"]),
        "behind": duration_of(row["waiting_ms"]) if row["waiting_ms"] >= 0 else "-",
        "state": row["state"],
    }


def _problems(broker: BrokerTier) -> Iterator[str]:
    """Say what fails at a broker, and for how long: first what concerns all of its partitions."""
    if broker.problem:
        yield f"broker {broker.address}: {broker.problem}"
    for circuit in broker.circuits:
        since = duration_of(circuit.open_ms)
        yield (
            f"broker {broker.address} does not {_MEANING[circuit.operation]}, for {since} now,"
            f" until the store answers: {circuit.problem}"
        )
    if broker.unanswered:
        name, unanswered_ms = broker.unanswered
        since = duration_of(unanswered_ms)
        yield f"broker {broker.address}, for {since}: its store does not answer: {name}"
    failing: dict[str, list[Mapping[str, Any]]] = {}
    for row in broker.partitions:
        if row["problem"]:
            failing.setdefault(row["problem"], []).append(row)
    for problem, them in failing.items():
        names = [f"{row['topic']}-{row['partition']}" for row in them]
        longest_ms = max(row["problem_ms"] for row in them)
        since = f", for {duration_of(longest_ms)}" if longest_ms >= 0 else ""
        yield f"{some_of(names)}{since}: {problem}"


@command.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--partition", "-p", "partitions", type=click.IntRange(0), multiple=True, help="Default: all."
)
@bootstrap_option
@timeout_option(_FLUSH_S)
@format_option
def flush(topic: str, partitions: tuple[int, ...], bootstrap: str, style: str) -> None:
    """Close the active segments of a topic and copy them to the remote tier now.

    Exit code 3 if something was not copied in time, or could not be: below the table is why. A copy that has
    begun goes on after the timeout.
    """
    problems: list[str] = []
    try:
        with connect(bootstrap) as admin:
            found = admin.tier_flush(topic, partitions)
    except NotAllCopied as problem:
        found = problem.rows
        problems = [
            f"{row['topic']}-{row['partition']}: {row['problem']}"
            for row in found
            if row["problem"]
        ]
    if style == "json":
        as_json(found)
    else:
        rows([_without_problem(row) for row in found], style, empty="no partitions")
        for line in problems:
            click.echo(line)
    if problems:
        sys.exit(SOMETHING_IS_WRONG)


def _without_problem(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row without its problem, which is too long for a table. -1 is no offset, and not shown."""
    found = {name: value for name, value in row.items() if name != "problem"}
    if row["highest_remote_offset"] < 0:
        found["highest_remote_offset"] = None
    return found


command.add_command(check)
command.add_command(explain)
command.add_command(metadata)
