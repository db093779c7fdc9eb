"""`firnline tier`: show what is in the remote tier, and copy what still waits. WORLD."""

from collections.abc import Mapping
from typing import Any

import click

from firnline.cli.show import broker_options, rows, size_of
from firnline.cli.tier.check import check
from firnline.client.admin import Admin


@click.group()
def command() -> None:
    """Show what is in the remote tier, and copy what still waits."""


@command.command()
@click.argument("topic", required=False)
@broker_options
def status(topic: str | None, bootstrap: str, style: str) -> None:
    """Show which offsets of each partition are in which tier, for one topic or all tiered topics.

    The tier has the offsets from the log start to the highest remote one, the broker's disk those from the
    local log start on. Waiting: closed segments that are not in the tier yet.
    """
    with Admin(bootstrap) as admin:
        found = admin.tier_status([topic] if topic else None)
    if style == "table":
        found = [_for_people(row) for row in found]
        if not any(row["problem"] for row in found):
            found = [{k: v for k, v in row.items() if k != "problem"} for row in found]
    rows(found, style, empty="no tiered partitions")


def _for_people(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return only what people need: which offsets are where, and their size."""
    names = ("topic", "partition", "log_start_offset", "local_log_start_offset")
    more = ("highest_remote_offset", "log_end_offset")
    return {
        **{name.removesuffix("_offset"): row[name] for name in names + more},
        "remote": size_of(row["remote_bytes"], row["remote_segments"]),
        "local": size_of(row["local_bytes"], row["local_segments"]),
        "waiting": size_of(row["waiting_bytes"], row["waiting_segments"]),
        "state": row["state"],
        "problem": row["problem"],
    }


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
    """Close the active segments of a topic and copy them to the remote tier now."""
    with Admin(bootstrap) as admin:
        found = admin.tier_flush(topic, partitions, timeout_s=timeout_s)
    rows(found, style, empty="no partitions")


command.add_command(check)
