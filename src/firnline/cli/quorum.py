"""`firnline quorum`: the leader of the metadata quorum, the lag of each member, and snapshots. WORLD."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from firnline.cli.show import (
    SOMETHING_IS_WRONG,
    as_json,
    bytes_of,
    deadline,
    duration_of,
    facts,
    format_option,
    profile_option,
    rows,
    timeout_option,
)
from firnline.cli.terminal import profiles
from firnline.client.quorum import QuorumInfo, ReplicaRow, describe_quorum
from firnline.client.snapshots import (
    NodeSnapshots,
    QuorumMember,
    members,
    members_of,
    snapshots_of,
    take_snapshots,
)

F = TypeVar("F", bound=Callable[..., Any])
# A node that hangs must not delay the answers of the others; the table says how long it has been silent.
_GLANCE_S = 1.0
_TIMEOUT_S = 10.0
# A snapshot of a million partitions takes some seconds, more on a slow disk.
_TAKE_S = 120.0


def quorum_options(timeout_s: float) -> Callable[[F], F]:
    """Add --bootstrap-server, --bootstrap-controller, --profile, --timeout, --format and --wide."""
    options = (
        click.option(
            "--bootstrap-server", "-b", "servers", metavar="HOST:PORT,...",
            help="Brokers of the cluster. [env: FIRNLINE_BOOTSTRAP]  [default: 127.0.0.1:9092]",
        ),
        click.option(
            "--bootstrap-controller", "controllers", metavar="HOST:PORT,...",
            help="Controllers, instead of brokers. [env: FIRNLINE_CONTROLLERS]",
        ),
        profile_option,
        timeout_option(timeout_s),
        format_option,
    )  # fmt: skip

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


@click.group()
def command() -> None:
    """Show the metadata quorum: its leader, the lag of each member, and the snapshots."""


@command.command()
@quorum_options(_TIMEOUT_S)
def status(servers: str | None, controllers: str | None, style: str) -> None:
    """Show the leader, its epoch, the high watermark, and each voter and observer.

    The exit code is 3 when a node has lost metadata, or has found a damaged snapshot.
    """
    found = _ask(servers, controllers)
    bootstrap, is_controller = _bootstrap(servers, controllers)
    alarms = _alarms(members_of(found, bootstrap, is_controller=is_controller, deadline=deadline()))
    if style == "json":
        replicas = [row._asdict() for row in found.replicas]
        as_json(_facts(found) | {"replicas": replicas, "snapshot_alarms": alarms})
    else:
        _show_facts(found)
        click.echo()
        rows([for_people(row, found.now_ms) for row in found.replicas], style, empty="nobody")
        for node_id, words in alarms.items():
            said = "; ".join(words)
            click.echo(f"node {node_id}: snapshots: {said} (see `firnline quorum snapshots`)")
    if alarms:
        sys.exit(SOMETHING_IS_WRONG)


@command.command()
@click.option("--status", "is_status", is_flag=True, help="The quorum as a whole.")
@click.option("--replication", "is_replication", is_flag=True, help="Each voter and observer.")
@quorum_options(_TIMEOUT_S)
def describe(
    is_status: bool,
    is_replication: bool,
    servers: str | None,
    controllers: str | None,
    style: str,
) -> None:
    """Show one half of `status`, with the flags of Kafka's own tool."""
    if is_status == is_replication:
        raise click.UsageError("one of --status and --replication is needed")
    found = _ask(servers, controllers)
    if is_replication and style == "json":
        as_json([row._asdict() for row in found.replicas])
    elif is_replication:
        rows([for_people(row, found.now_ms) for row in found.replicas], style, empty="nobody")
    elif style == "json":
        as_json(_facts(found))
    else:
        _show_facts(found)


@command.group(invoke_without_command=True)
@quorum_options(_TIMEOUT_S)
@click.pass_context
def snapshots(
    context: click.Context,
    servers: str | None,
    controllers: str | None,
    style: str,
) -> None:
    """Show each node's snapshots of the metadata, and when the next one is due.

    Each node takes its own snapshots. The exit code is 3 when a snapshot is damaged, or when a node has lost
    metadata or does not answer.
    """
    if context.invoked_subcommand is not None:
        context.obj = servers, controllers
        return
    answers = snapshots_of(_members(servers, controllers), deadline=deadline().share())
    if style == "json":
        as_json([_for_programs(node) for node in answers])
    else:
        shown = [row for node in answers for row in _of_node(node)]
        rows(shown, style, empty="nobody", less_important=_LESS_IMPORTANT, sentences=("state",))
    if any(node.found is None or _alarm(node.found) for node in answers):
        sys.exit(SOMETHING_IS_WRONG)


@snapshots.command()
@click.option(
    "--node", "node_ids", type=int, multiple=True, metavar="ID", help="This node; may be repeated."
)
@click.option("--all", "is_all", is_flag=True, help="Every node, one after the other.")
@quorum_options(_TAKE_S)
@click.pass_context
def take(
    context: click.Context,
    node_ids: tuple[int, ...],
    is_all: bool,
    servers: str | None,
    controllers: str | None,
    style: str,
) -> None:
    """Take a snapshot now, and wait until it is on the disk."""
    if bool(node_ids) == is_all:
        raise click.UsageError("one of --node and --all is needed")
    if not servers and not controllers:
        servers, controllers = context.obj  # given before the word `take`
    found = _members(servers, controllers)
    taken = take_snapshots(found, None if is_all else node_ids, deadline=deadline())
    if style == "json":
        as_json(
            [
                each.member._asdict()
                | {"end_offset": each.end_offset, "epoch": each.epoch, "problem": each.problem}
                for each in taken
            ]
        )
    else:
        for each in taken:
            at = f"offset {each.end_offset}, epoch {each.epoch}"
            click.echo(f"node {each.member.node_id}: {each.problem or at}")
    if any(each.problem for each in taken):
        sys.exit(SOMETHING_IS_WRONG)


def _members(servers: str | None, controllers: str | None) -> list[QuorumMember]:
    bootstrap, is_controller = _bootstrap(servers, controllers)
    return members(bootstrap, is_controller=is_controller, deadline=deadline())


_LESS_IMPORTANT = ("log_start", "until_next", "role")
_COLUMNS = ("snapshot", "size", "age", "log_start", "log_end", "until_next")


def _of_node(node: NodeSnapshots) -> list[dict[str, Any]]:
    """Return a row for each snapshot, the newest first; one row if there is none."""
    found, member = node.found, node.member
    row: dict[str, Any] = {"node": member.node_id, "role": member.role}
    if found is None:
        return [row | dict.fromkeys(_COLUMNS) | {"state": node.problem}]
    shown = [row | _of_snapshot(one, found.now_ms) for one in reversed(found.snapshots)]
    shown = shown or [row | {"snapshot": "none", "size": None, "age": None}]
    log = {
        "log_start": found.log_start_offset,
        "log_end": found.log_end_offset,
        "until_next": bytes_of(found.bytes_until_next),
        "state": "; ".join(_alarm(found) + _doings(found)),
    }
    return [shown[0] | log, *(each | dict.fromkeys(log) for each in shown[1:])]


def _of_snapshot(one: Any, now_ms: int) -> dict[str, Any]:
    return {
        "snapshot": f"{one.end_offset}-{one.epoch}",
        "size": bytes_of(one.size_bytes),
        "age": duration_of(now_ms - one.last_contained_ms),
    }


def _alarm(found: Any) -> list[str]:
    words = []
    if found.forgotten_offset >= 0:
        words.append(f"lost metadata up to {found.forgotten_offset}: takes no part in elections")
    if found.damaged:
        words.append(f"{len(found.damaged)} damaged, set aside")
    return words


def _alarms(found: list[QuorumMember]) -> dict[int, list[str]]:
    """Return the problems with snapshots, by node. A node that is silent, or Kafka's, reports none."""
    answers = snapshots_of(
        [each for each in found if each.address], deadline=deadline().share(_GLANCE_S)
    )
    wrong = {each.member.node_id: _alarm(each.found) for each in answers if each.found is not None}
    return {node_id: words for node_id, words in wrong.items() if words}


def _doings(found: Any) -> list[str]:
    words = []
    if found.fetching_offset >= 0:
        words.append(f"fetches the one up to {found.fetching_offset}")
    if found.is_taking:
        words.append("takes one")
    if found.failed:
        words.append(f"{found.failed} failed since the start")
    return words


def _for_programs(node: NodeSnapshots) -> dict[str, Any]:
    member, found = node.member._asdict(), node.found
    if found is None:
        return member | {"problem": node.problem}
    shown = {name: getattr(found, name) for name in type(found).fields}
    for name in ("snapshots", "damaged"):
        shown[name] = [{key: getattr(x, key) for key in type(x).fields} for x in shown[name]]
    del shown["throttle_time_ms"]
    return member | shown


def _bootstrap(servers: str | None, controllers: str | None) -> tuple[str, bool]:
    if servers and controllers:
        raise click.UsageError("--bootstrap-server and --bootstrap-controller exclude each other")
    if servers or controllers:
        return controllers or servers or "", bool(controllers)
    brokers, others = profiles.find("bootstrap"), profiles.find("controllers")
    # Controllers are more specific, unless a variable overrides a profile.
    is_overridden = profiles.is_from_variable(brokers) and not profiles.is_from_variable(others)
    is_controller = others.value is not None and not is_overridden
    return others.value if is_controller else brokers.value, is_controller


def _ask(servers: str | None, controllers: str | None) -> QuorumInfo:
    bootstrap, is_controller = _bootstrap(servers, controllers)
    return describe_quorum(bootstrap, is_controller=is_controller, deadline=deadline())


def _facts(found: QuorumInfo) -> dict[str, Any]:
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


def _show_facts(found: QuorumInfo) -> None:
    facts({name: value for name, value in _facts(found).items() if name != "now_ms"})


def for_people(row: ReplicaRow, now_ms: int) -> dict[str, Any]:
    """Return a member as a row of a table. It shows how long ago things happened, by the leader's clock."""
    return {
        "node": row.node_id,
        "role": row.role,
        "log_end_offset": row.log_end_offset,
        "lag": row.lag,
        "last_fetch": _ago(row, row.last_fetch_ms, now_ms),
        "last_caught_up": _ago(row, row.last_caught_up_ms, now_ms),
        "address": row.address or "-",
    }


def _ago(row: ReplicaRow, at_ms: int, now_ms: int) -> str:
    if row.role == "leader":
        return "-"
    if at_ms < 0 or now_ms < 0:
        return "never" if at_ms < 0 else ""
    ago_ms = max(0, now_ms - at_ms)
    return f"{ago_ms} ms ago" if ago_ms < 10_000 else f"{ago_ms // 1000} s ago"
