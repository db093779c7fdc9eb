"""`firnline cluster`: the state of a cluster in one view. WORLD."""

import sys
from typing import Any

import click

from firnline.cli.quorum import for_people
from firnline.cli.show import (
    SOMETHING_IS_WRONG,
    as_json,
    bootstrap_option,
    deadline,
    facts,
    format_option,
    paragraph,
    rows,
    timeout_option,
)
from firnline.client.cluster import last_known
from firnline.client.quorum import ReplicaRow
from firnline.client.status import NO_ANSWER, ClusterState, cluster_state


@click.group()
def command() -> None:
    """Show the state of a cluster in one view."""


@command.command()
@click.option(
    "--brokers", "brokers_min", type=click.IntRange(0), default=0,
    help="Report a problem when fewer brokers are alive.",
)  # fmt: skip
@bootstrap_option
@timeout_option(5.0)
@format_option
def status(brokers_min: int, bootstrap: str, style: str) -> None:
    """Show the controllers, the brokers, and how many partitions have a problem.

    Every broker and every controller is asked. What only a node could say that does not answer is shown as
    unknown, with what was last known.

    For scripts: the exit code is 0 when all is well, and 1 when no address answered. It is 3 when something
    is wrong, with a line for each problem and what tells more: a broker that does not answer, is fenced or
    shutting down, or whose appends, disks, loop or tier are in trouble; a silent controller, or none that is
    active; partitions without a leader, or with fewer in-sync replicas than replicas.

    \b
    until firnline cluster status --brokers 3; do sleep 1; done
    """
    found = cluster_state(bootstrap, timeout_s=deadline().left_s(), brokers_min=brokers_min)
    if style == "json":
        as_json(_for_programs(found))
    else:
        _show(found)
    if found.problems:
        sys.exit(SOMETHING_IS_WRONG)


def _for_programs(found: ClusterState) -> dict[str, Any]:
    quorum = found.quorum
    return found._asdict() | {
        "quorum": quorum
        and quorum._asdict() | {"replicas": [row._asdict() for row in quorum.replicas]},
        "brokers": [row._asdict() for row in found.brokers],
        "unreadable": [
            {"broker": broker_id, "topic": topic, "records": count}
            for broker_id, topic, count in found.unreadable
        ],
    }


def _show(found: ClusterState) -> None:
    quorum = found.quorum

    def count(number: int) -> str:
        return str(number) if found.is_current else last_known(str(number))

    facts(
        {
            "cluster": found.cluster_id,
            "active_controller": (
                "nobody" if quorum is None else f"{quorum.leader_id}, in epoch {quorum.epoch}"
            ),
            "features": [f"{name}={level}" for name, level in sorted(found.features.items())],
            "topics": found.topics,
            "partitions": found.partitions,
            "without_a_leader": count(found.offline),
            "leader_is_silent": found.unknown,
            "under_min_isr": count(found.under_min_isr),
            "under_replicated": count(found.under_replicated),
        }
    )
    click.echo()
    rows(
        [_broker(each._asdict()) for each in found.brokers],
        "table",
        empty="no brokers",
        less_important=("epoch", "offline", "rack"),
    )
    if quorum is not None:
        click.echo()
        voters = [row for row in quorum.replicas if row.role != "observer"]
        shown = [_controller(row, quorum.now_ms) for row in voters]
        rows(shown, "table", empty="no controllers")
    click.echo()
    for line in found.problems or ["all is well"]:
        paragraph(line)
    for broker_id, topic, records in found.unreadable:
        what = f"{records} record{'s' if records > 1 else ''} of {topic} that cannot be read"
        click.echo(f"broker {broker_id} has skipped {what}: its log names them")


def _broker(row: dict[str, Any]) -> dict[str, Any]:
    epoch, state, known = row.pop("broker_epoch"), row.pop("state"), row.pop("last_known")
    return {
        "broker": row.pop("broker_id"),
        "address": row.pop("address"),
        "rack": row.pop("rack"),
        "state": f"{NO_ANSWER} (last known {known})" if state == NO_ANSWER else state,
        "epoch": None if epoch < 0 else epoch,
        **row,
    }


def _controller(row: ReplicaRow, now_ms: int) -> dict[str, Any]:
    shown = for_people(row, now_ms)
    names = ("role", "log_end_offset", "lag", "last_fetch")
    return {
        "controller": shown["node"],
        "address": shown["address"],
        **{name: shown[name] for name in names},
    }
