"""`firnline quorum`: who leads the metadata quorum, and how far each of its members is. WORLD."""

from collections.abc import Callable
from typing import Any

import click

from firnline.cli.show import as_json, facts, format_option, rows
from firnline.client.quorum import QuorumState, ReplicaRow, describe_quorum

_DEFAULT_SERVER = "127.0.0.1:9092"


def quorum_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --bootstrap-server, --bootstrap-controller, --timeout and --format."""
    options = (
        click.option(
            "--bootstrap-server", "servers", metavar="HOST:PORT,...",
            help=f"Brokers of the cluster.  [default: {_DEFAULT_SERVER}]",
        ),
        click.option(
            "--bootstrap-controller", "controllers", metavar="HOST:PORT,...",
            help="Controllers, instead of brokers.",
        ),
        click.option(
            "--timeout", "timeout_s", type=click.FloatRange(0.0), default=10.0, show_default=True,
            help="Seconds to wait while nobody leads.",
        ),
        format_option,
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


@click.group()
def command() -> None:
    """Who leads the metadata quorum, and how far each member is."""


@command.command()
@quorum_options
def status(servers: str | None, controllers: str | None, timeout_s: float, style: str) -> None:
    """Show the leader, its epoch, the high watermark, and each voter and observer."""
    found = _ask(servers, controllers, timeout_s)
    if style == "json":
        as_json(_facts(found) | {"replicas": [row._asdict() for row in found.replicas]})
        return
    _show_facts(found)
    click.echo()
    rows([for_people(row, found.now_ms) for row in found.replicas], style, empty="nobody")


@command.command()
@click.option("--status", "is_status", is_flag=True, help="The quorum as a whole.")
@click.option("--replication", "is_replication", is_flag=True, help="Each voter and observer.")
@quorum_options
def describe(
    is_status: bool,
    is_replication: bool,
    servers: str | None,
    controllers: str | None,
    timeout_s: float,
    style: str,
) -> None:
    """Show one half of `status`, by the flags of Kafka's own tool."""
    if is_status == is_replication:
        raise click.UsageError("one of --status and --replication is needed")
    found = _ask(servers, controllers, timeout_s)
    if is_replication and style == "json":
        as_json([row._asdict() for row in found.replicas])
    elif is_replication:
        rows([for_people(row, found.now_ms) for row in found.replicas], style, empty="nobody")
    elif style == "json":
        as_json(_facts(found))
    else:
        _show_facts(found)


def _ask(servers: str | None, controllers: str | None, timeout_s: float) -> QuorumState:
    if servers and controllers:
        raise click.UsageError("--bootstrap-server and --bootstrap-controller exclude each other")
    if controllers:
        return describe_quorum(controllers, is_controller=True, timeout_s=timeout_s)
    return describe_quorum(servers or _DEFAULT_SERVER, is_controller=False, timeout_s=timeout_s)


def _facts(found: QuorumState) -> dict[str, Any]:
    followers = [row for row in found.replicas if row.role == "follower"]
    return {
        "cluster_id": found.cluster_id,
        "leader_id": found.leader_id,
        "epoch": found.epoch,
        "high_watermark": found.high_watermark,
        "voters": [row.node_id for row in found.replicas if row.role != "observer"],
        "observers": [row.node_id for row in found.replicas if row.role == "observer"],
        "max_follower_lag": max((row.lag for row in followers), default=0),
        "now_ms": found.now_ms,
    }


def _show_facts(found: QuorumState) -> None:
    facts({name: value for name, value in _facts(found).items() if name != "now_ms"})


def for_people(row: ReplicaRow, now_ms: int) -> dict[str, Any]:
    """Return a member as a row of a table: how long ago is what people ask; the leader's clock says."""
    return {
        "node": row.node_id,
        "role": row.role,
        "log_end_offset": row.log_end_offset,
        "lag": row.lag,
        "last_fetch": _ago(row, row.last_fetch_ms, now_ms),
        "last_caught_up": _ago(row, row.last_caught_up_ms, now_ms),
        "address": row.address,
    }


def _ago(row: ReplicaRow, at_ms: int, now_ms: int) -> str:
    if row.role == "leader":
        return "-"
    if at_ms < 0 or now_ms < 0:
        return "never" if at_ms < 0 else ""
    ago_ms = max(0, now_ms - at_ms)
    return f"{ago_ms} ms ago" if ago_ms < 10_000 else f"{ago_ms // 1000} s ago"
