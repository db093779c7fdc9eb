"""`firnline broker`: the registered brokers. WORLD."""

import click

from firnline.cli.operations.words import agree
from firnline.cli.show import as_json, broker_options, connect, rows
from firnline.client.operations.brokers import list_brokers, unregister


@click.group()
def command() -> None:
    """List the brokers, and forget one that will not return."""


@command.command("list")
@broker_options
def list_(bootstrap: str, style: str) -> None:
    """List the registered brokers; `firnline cluster status` says more about them."""
    with connect(bootstrap) as admin:
        found = list_brokers(admin)
    if style == "json":
        as_json([row._asdict() for row in found])
        return
    states = {None: "registered", False: "alive", True: "fenced"}
    shown = [
        {
            "broker": row.broker,
            "address": f"{row.host}:{row.port}",
            "rack": row.rack,
            "state": states[row.is_fenced],
        }
        for row in found
    ]
    rows(shown, style, empty="no brokers")


@command.command("unregister")
@click.argument("broker_id", type=click.IntRange(0), metavar="ID")
@click.option("--yes", "is_agreed", is_flag=True, help="Do not ask.")
@broker_options
def unregister_(broker_id: int, is_agreed: bool, bootstrap: str, style: str) -> None:
    """Forget a broker that will never come back. A live one is refused: stop it, and wait until it is fenced.

    Its replicas stay assigned to it: move them away first, or later, with `firnline partition move`.
    """
    agree(f"Forget broker {broker_id} for good?", is_agreed)
    with connect(bootstrap, is_anew=True) as admin:
        unregister(admin, broker_id)
    if style == "json":
        as_json([{"broker": broker_id, "is_unregistered": True}])
    else:
        click.echo(f"broker {broker_id} is no longer registered")
