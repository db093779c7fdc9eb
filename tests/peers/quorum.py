"""Who leads a cluster's metadata quorum and how far each node is, asked over the wire. WORLD."""

import contextlib
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from firnline.base.ids import METADATA_TOPIC
from firnline.protocol.messages.k55_describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from tests.peers import kafka
from tests.peers.nodes import Cluster, Node, eventually
from tests.wire.line import Line

_ASK_S = 2.0
_SHELL = Path(__file__).with_name("Shell.java")
_SHELL_S = 150.0  # longer than its own patience


@dataclass(frozen=True)
class View:
    """What the leader says of the quorum; by id, how far each node is that fetches, and when it said so."""

    leader: int
    epoch: int
    high_watermark: int
    ends: Mapping[int, int]
    fetched_ms: Mapping[int, int]


def describe_quorum(topic: str = METADATA_TOPIC, partition: int = 0) -> DescribeQuorumRequest:
    """Return the request that asks for the state of one partition."""
    row = DescribeQuorumPartition(partition_index=partition)
    return DescribeQuorumRequest(topics=[DescribeQuorumTopic(topic_name=topic, partitions=[row])])


def look(cluster: Cluster) -> View | None:
    """Ask every controller that runs; the view of the leader with the highest epoch, None for none."""
    views = [view for node in cluster.controllers if (view := _view_of(node)) is not None]
    return max(views, key=lambda view: view.epoch, default=None)


def _view_of(node: Node) -> View | None:
    if not node.is_running:
        return None
    with contextlib.suppress(OSError, AssertionError), Line(node.address, _ASK_S) as line:
        answer = line.ask(describe_quorum(), 2)
        if answer.error_code or not answer.topics:
            return None
        row = answer.topics[0].partitions[0]
        if row.error_code or row.high_watermark <= 0:
            return None
        # A node whose disk was new has two lines for a while: the one that fetched last is its own.
        replicas = sorted(
            [*row.current_voters, *row.observers], key=lambda replica: replica.last_fetch_timestamp
        )
        return View(
            row.leader_id,
            row.leader_epoch,
            row.high_watermark,
            {replica.replica_id: replica.log_end_offset for replica in replicas},
            {replica.replica_id: replica.last_fetch_timestamp for replica in replicas},
        )
    return None


def await_leader(cluster: Cluster, *, after_epoch: int = 0, within_s: float = 30.0) -> View:
    """Wait until a node leads an epoch beyond `after_epoch` and its high watermark is known."""

    def seen() -> View | None:
        view = look(cluster)
        return view if view is not None and view.epoch > after_epoch else None

    view = eventually(f"a leader after epoch {after_epoch}", seen, within_s=within_s)
    assert isinstance(view, View)
    return view


def await_caught_up(cluster: Cluster, *, within_s: float = 30.0) -> View:
    """Wait until every node that runs has what was committed when the wait began; return that view.

    Each must have said so since: of one that was wiped a leader knows what it had before.
    """
    began_ms = int(time.time() * 1000)
    first = await_leader(cluster, within_s=within_s)
    running = [node.node_id for node in cluster.nodes.values() if node.is_running]

    def seen() -> View | None:
        view = look(cluster)
        if view is None:
            return None
        has_all = all(
            view.ends.get(n, -1) >= first.high_watermark and view.fetched_ms[n] >= began_ms
            for n in running
        )
        return view if has_all else None

    what = f"all of {running} at offset {first.high_watermark}"
    view = eventually(what, seen, within_s=within_s)
    assert isinstance(view, View)
    return replace(view, high_watermark=first.high_watermark)


def shell_output(snapshot: Path, *commands: str) -> list[str]:
    """Return what Kafka's metadata shell prints about a snapshot, command by command; AssertionError."""
    done = subprocess.run(
        kafka.command(str(_SHELL), str(snapshot), *commands, is_short=True),
        capture_output=True,
        text=True,
        timeout=_SHELL_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split("\0")[:-1]
