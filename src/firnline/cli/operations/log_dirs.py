"""`firnline log-dirs`: what is in the log directories of the brokers. WORLD."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from firnline.base.ids import TopicPartition
from firnline.cli.operations.words import partitions_of
from firnline.cli.show import SOMETHING_IS_WRONG, as_json, broker_options, bytes_of, connect, rows
from firnline.cli.terminal.completion import complete_topics
from firnline.client.operations.brokers import Directory, ReplicaSize, directories
from firnline.client.operations.partitions import partitions_named


@click.command("log-dirs")
@click.option(
    "--broker", "brokers", multiple=True, type=click.IntRange(0), metavar="ID", help="This broker."
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="T[:0,1]",
    shell_complete=complete_topics,
    help="These partitions.",
)
@click.option(
    "--by", type=click.Choice(["directory", "topic", "partition"]), default="directory",
    show_default=True, help="What has a row of its own.",
)  # fmt: skip
@broker_options
def command(
    brokers: tuple[int, ...], topics: tuple[str, ...], by: str, bootstrap: str, style: str
) -> None:
    """Show the log directories of the brokers: size, lag, and what is left of each volume.

    The exit code is 3 if a directory is offline, or a broker did not answer. Lag is in records: of a replica
    behind the high watermark, of a future replica (one on its way into this directory) behind the present
    one. Bytes of segments in the remote tier are not counted.
    """
    with connect(bootstrap) as admin:
        places = partitions_named(admin, partitions_of(topics, "--topic")) if topics else None
        found = directories(admin, brokers or None, places)
    if style == "json":
        as_json([_for_programs(each) for each in found])
    else:
        print_table(found, by)
    wrong = [each for each in found if each.problem]
    for each in wrong:
        where = f"directory {each.path}" if each.path else "directories"
        click.echo(f"broker {each.broker}: {where}: {each.problem}", err=True)
    if wrong:
        sys.exit(SOMETHING_IS_WRONG)


def print_table(found: Sequence[Directory], by: str) -> None:
    """Print a row for each directory, topic or partition. A path that is too long has its own line."""
    shown = {
        "directory": lambda: [_directory(each) for each in found],
        "topic": lambda: _by_topic(found),
        "partition": lambda: _by_partition(found),
    }[by]()
    empty = "no directories" if by == "directory" else "no replicas"
    path = ["directory"]
    rows(shown, "table", empty=empty, less_important=path, essential=path)


def _directory(each: Directory) -> dict[str, Any]:
    state = "cordoned" if each.is_cordoned else "online"
    if each.problem:
        state = "offline" if each.is_offline else "unknown"
    lags = [row.offset_lag_records for row in each.replicas]
    return {
        "broker": each.broker,
        "directory": each.path,
        "state": state,
        "replicas": None if each.problem else len(each.replicas),
        "future": None if each.problem else sum(row.is_future for row in each.replicas),
        "size": "" if each.problem else bytes_of(sum(row.size_bytes for row in each.replicas)),
        "largest_lag": None if each.problem else max(lags, default=0),
        "usable": _known(each.usable_bytes),
        "of": _known(each.total_bytes),
    }


def _by_topic(found: Sequence[Directory]) -> list[dict[str, Any]]:
    shown = []
    for each in found:
        topics: dict[str, list[ReplicaSize]] = {}
        for row in each.replicas:
            topics.setdefault(row.place.topic, []).append(row)
        for name, some in sorted(topics.items()):
            shown.append(
                {
                    "topic": name,
                    "broker": each.broker,
                    "directory": each.path,
                    "replicas": len(some),
                    "size": bytes_of(sum(row.size_bytes for row in some)),
                    "largest_lag": max(row.offset_lag_records for row in some),
                }
            )
    return sorted(shown, key=lambda row: (row["topic"], row["broker"], row["directory"]))


def _by_partition(found: Sequence[Directory]) -> list[dict[str, Any]]:
    shown = [(row.place, each, row) for each in found for row in each.replicas]
    shown.sort(key=lambda row: (row[0], row[1].broker, row[2].is_future))
    return [
        {
            "topic": place.topic,
            "partition": place.partition,
            "broker": each.broker,
            "directory": each.path,
            "size": bytes_of(row.size_bytes),
            "lag": row.offset_lag_records,
            "future": row.is_future,
        }
        for place, each, row in shown
    ]


def _known(size_bytes: int) -> str:
    return bytes_of(size_bytes) if size_bytes >= 0 else ""


def _for_programs(each: Directory) -> dict[str, Any]:
    return each._asdict() | {
        "path": each.path or None,
        "replicas": [
            _place(row.place)
            | {name: value for name, value in row._asdict().items() if name != "place"}
            for row in each.replicas
        ],
    }


def _place(place: TopicPartition) -> dict[str, Any]:
    return {"topic": place.topic, "partition": place.partition}
