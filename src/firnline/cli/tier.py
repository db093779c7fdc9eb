"""`firnline tier`: what is in the remote tier, and copy what still waits. WORLD."""

import click

from firnline.cli.show import broker_options, rows
from firnline.client.admin import Admin


@click.group()
def command() -> None:
    """What is in the remote tier, and what still waits."""


@command.command()
@click.argument("topic", required=False)
@broker_options
def status(topic: str | None, bootstrap: str, style: str) -> None:
    """Show what of each partition lies in which tier, for one topic or all that are tiered."""
    with Admin(bootstrap) as admin:
        found = admin.tier_status([topic] if topic else None)
    if style == "table":
        found = [
            {name: value for name, value in row.items() if name != "topic_id"} for row in found
        ]
        if not any(row["problem"] for row in found):
            found = [{k: v for k, v in row.items() if k != "problem"} for row in found]
    rows(found, style, empty="no tiered partitions")


@command.command()
@click.argument("topic")
@click.option(
    "--partition", "-p", "partitions", type=click.IntRange(0), multiple=True, help="Default: all."
)
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0.1), default=60.0, show_default=True,
    help="Seconds to wait until everything is copied.",
)  # fmt: skip
@broker_options
def flush(
    topic: str, partitions: tuple[int, ...], timeout_s: float, bootstrap: str, style: str
) -> None:
    """Finish the active segments of a topic and copy them to the remote tier now."""
    with Admin(bootstrap) as admin:
        found = admin.tier_flush(topic, partitions, timeout_s=timeout_s)
    rows(found, style, empty="no partitions")
