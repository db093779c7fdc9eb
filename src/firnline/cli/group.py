"""`firnline group`: list, describe and delete consumer groups. WORLD."""

import click

from firnline.cli.show import as_json, broker_options, connect, facts, rows
from firnline.cli.terminal.completion import complete_groups
from firnline.client.groups import delete_group, describe_group, list_groups


@click.group()
def command() -> None:
    """List, describe and delete consumer groups."""


@command.command("list")
@broker_options
def list_(bootstrap: str, style: str) -> None:
    """List the groups of all brokers."""
    with connect(bootstrap) as admin:
        found = [row._asdict() for row in list_groups(admin)]
    rows(found, style, empty="no groups")


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
