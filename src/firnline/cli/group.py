"""`firnline group`: list, describe, reset and delete consumer groups. WORLD."""

from typing import Any

import click

from firnline.cli.operations.group_offsets import forget, reset
from firnline.cli.show import as_json, broker_options, connect, facts, rows
from firnline.cli.terminal.completion import complete_groups
from firnline.client.groups import delete_group, describe_group, list_groups
from firnline.client.operations.group_offsets import GroupLag, lags


@click.group()
def command() -> None:
    """List, describe, reset and delete consumer groups."""


command.add_command(reset)
command.add_command(forget)


@command.command("list")
@click.option("--lag", "is_lag", is_flag=True, help="Also how many records each group is behind.")
@broker_options
def list_(is_lag: bool, bootstrap: str, style: str) -> None:
    """List the groups of all brokers.

    With --lag, `unknown` counts the partitions whose log end no broker told; they are not in the lag.
    """
    with connect(bootstrap) as admin:
        found = [row._asdict() for row in list_groups(admin)]
        behind = lags(admin, [row["group"] for row in found]) if is_lag else {}
    if is_lag:
        found = [row | _lag(behind[row["group"]]) for row in found]
    if is_lag and style == "table":
        found = _without_empty(found, "unknown", "problem")
    rows(
        found,
        style,
        empty="no groups",
        less_important=("protocol_type", "kind", "partitions", "state"),
    )


def _lag(found: GroupLag) -> dict[str, Any]:
    return {
        "partitions": found.partitions,
        "lag_records": found.lag_records if found.lag_records >= 0 else None,
        "unknown": found.unknown,
        "problem": found.problem or None,
    }


def _without_empty(found: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Leave out those columns in which no row has anything to say."""
    silent = {name for name in names if not any(row[name] for row in found)}
    return [{name: row[name] for name in row if name not in silent} for row in found]


@command.command()
@click.argument("group", shell_complete=complete_groups)
@broker_options
def describe(group: str, bootstrap: str, style: str) -> None:
    """Show a group: its members, and how far it has read."""
    with connect(bootstrap) as admin:
        found = describe_group(admin, group)
    offsets = [row._asdict() for row in found.offsets]
    head = found.row._asdict() | {"coordinator": found.coordinator}
    if style == "json":
        as_json(head | {"members": found.members, "offsets": offsets})
        return
    facts(head)
    rows(found.members, style, empty="no members")
    rows(offsets, style, empty="no committed offsets")


@command.command()
@click.argument("groups", nargs=-1, required=True, shell_complete=complete_groups)
@broker_options
def delete(groups: tuple[str, ...], bootstrap: str, style: str) -> None:
    """Delete groups that have no members, with their offsets."""
    with connect(bootstrap) as admin:
        for group in groups:
            delete_group(admin, group)
            if style == "table":
                click.echo(f"deleted {group}")
    if style == "json":
        as_json({"deleted": list(groups)})
