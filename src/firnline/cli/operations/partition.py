"""`firnline partition`: where replicas are, and who leads. WORLD."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import TopicPartition
from firnline.cli.operations.move import move
from firnline.cli.operations.progress import show_progress, wait_for_moves, wait_options
from firnline.cli.operations.words import agree, count_of, partitions_of, said_of
from firnline.cli.show import SOMETHING_IS_WRONG, broker_options, connect, rows
from firnline.cli.terminal.completion import complete_topics
from firnline.client.operations.partitions import partitions_named
from firnline.client.operations.reassignments import (
    PREFERRED,
    UNCLEAN,
    elect,
    list_moves,
    reassign,
    with_progress,
)


@click.group()
def command() -> None:
    """Move partitions to other brokers, and elect leaders."""


command.add_command(move)


@command.command()
@wait_options
@broker_options
def status(is_waiting: bool, within: str | None, bootstrap: str, style: str) -> None:
    """Show the moves that are under way, and how much of the data the new replicas have.

    With --wait: show progress until no partition moves; the exit code is 3 if some still do after --within.
    """
    with connect(bootstrap) as admin:
        found = with_progress(admin, list_moves(admin))
    if is_waiting and found:
        found = wait_for_moves(bootstrap, {row.place for row in found}, within)
    show_progress(found, style)
    if is_waiting and found:
        sys.exit(SOMETHING_IS_WRONG)


@command.command()
@click.argument("partitions", nargs=-1, metavar="[TOPIC[:0,1]]...", shell_complete=complete_topics)
@click.option("--all", "is_all", is_flag=True, help="Every move that is under way.")
@broker_options
def cancel(partitions: tuple[str, ...], is_all: bool, bootstrap: str, style: str) -> None:
    """Call off moves: the partitions stay on the brokers that had them before.

    The exit code is 3 if some could not be called off.
    """
    if bool(partitions) == is_all:
        raise click.UsageError("which moves? Give topics or partitions, or --all")
    wanted = partitions_of(partitions, "PARTITIONS")
    with connect(bootstrap) as admin:
        moving = [row.place for row in list_moves(admin)]
        if wanted:
            named = partitions_named(admin, wanted)
            # Of a topic without numbers only what moves is meant.
            moving = [p for p in named if p in moving or wanted[p.topic] is not None]
        outcomes = reassign(admin, dict.fromkeys(moving)) if moving else {}
    _show(outcomes, "cancelled", style, empty="no partition moves")


@command.command("elect")
@click.argument("partitions", nargs=-1, metavar="[TOPIC[:0,1]]...", shell_complete=complete_topics)
@click.option("--all", "is_all", is_flag=True, help="Every partition that needs it.")
@click.option(
    "--unclean",
    "is_unclean",
    is_flag=True,
    help="Let a replica lead that is not in sync, where no other can: loses records.",
)
@click.option("--yes", "is_agreed", is_flag=True, help="Do not ask before an unclean election.")
@broker_options
def elect_(
    partitions: tuple[str, ...],
    is_all: bool,
    is_unclean: bool,
    is_agreed: bool,
    bootstrap: str,
    style: str,
) -> None:
    """Make the preferred replicas (the first ones) the leaders, or, with --unclean, any replica.

    The exit code is 3 if some partitions have no such leader now.
    """
    if bool(partitions) == is_all:
        raise click.UsageError("of which partitions? Give topics or partitions, or --all")
    wanted = partitions_of(partitions, "PARTITIONS")
    with connect(bootstrap) as admin:
        places = None if is_all else partitions_named(admin, wanted)
    if is_unclean:
        what = "every partition without a leader" if places is None else _named(places)
        agree(f"Elect unclean leaders of {what}? Acknowledged records may be lost.", is_agreed)
    with connect(bootstrap, is_anew=True) as admin:
        outcomes = elect(admin, UNCLEAN if is_unclean else PREFERRED, places)
    _show(outcomes, "elected", style, empty="no partition needs an election")


def _named(places: Sequence[TopicPartition]) -> str:
    return str(places[0]) if len(places) == 1 else count_of(len(places), "partition")


def _show(
    outcomes: Mapping[TopicPartition, KafkaError | None], done: str, style: str, *, empty: str
) -> None:
    """Show what became of each partition, and exit with the code that says so."""
    shown: list[dict[str, Any]] = []
    is_wrong = False
    for place, outcome in sorted(outcomes.items()):
        is_idle = outcome is not None and outcome.code == Code.ELECTION_NOT_NEEDED
        is_wrong |= outcome is not None and not is_idle
        shown.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "result": done if outcome is None else "not needed" if is_idle else "refused",
                "problem": None if is_idle else said_of(outcome),
            }
        )
    rows(shown, style, empty=empty)
    if is_wrong:
        sys.exit(SOMETHING_IS_WRONG)
