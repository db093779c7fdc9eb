"""Three controllers, the active one killed -9: how long until the next one is active.

Ours and Apache Kafka's three are up at the same time, with Kafka's default timeouts, and lose their leaders
in turn. Time runs from the kill to the first answer of a survivor that leads a later epoch and has its first
record committed. Bars: the median within fetch timeout + 1 s, and at most 1.2x Kafka's. Needs Java and Maven;
--ours measures ours alone.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.measure import report
from firnline.base.errors import FirnlineError
from firnline.base.ids import METADATA_TOPIC
from firnline.client.connection import Connection
from firnline.protocol.messages.k55_describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from tests.peers.nodes import CONTROLLER, FIRNLINE, KAFKA, Cluster

FETCH_TIMEOUT_MS = 2000
BAR_MS = FETCH_TIMEOUT_MS + 1000
RATIO_BAR = 1.2
_LOOK_S = 0.01
_GIVE_UP_S = 60.0
_QUESTION = DescribeQuorumRequest(
    topics=[
        DescribeQuorumTopic(
            topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition(partition_index=0)]
        )
    ]
)


def leading(port: int, epoch: int) -> int | None:
    """Ask one controller: the epoch it leads, if later than `epoch` and with something committed."""
    try:
        with Connection("127.0.0.1", port, timeout_s=1.0) as asked:
            part = asked.ask(_QUESTION).topics[0].partitions[0]
    except (FirnlineError, IndexError):
        return None
    is_active = not part.error_code and part.leader_epoch > epoch and part.high_watermark > 0
    return int(part.leader_epoch) if is_active else None


def await_leader(cluster: Cluster, node_ids: Sequence[int], epoch: int) -> tuple[int, int]:
    """Wait for a leader among `node_ids`; return it and its epoch."""
    deadline = time.monotonic() + _GIVE_UP_S
    while time.monotonic() < deadline:
        for node_id in node_ids:
            found = leading(cluster[node_id].port, epoch)
            if found is not None:
                return node_id, found
        time.sleep(_LOOK_S)
    raise SystemExit(f"no leader after {_GIVE_UP_S:.0f} s")


def fail_over_ms(cluster: Cluster) -> float:
    """Kill the leader, wait for the next one, bring the dead one back; return how long it took."""
    node_ids = list(cluster.nodes)
    leader, epoch = await_leader(cluster, node_ids, 0)
    survivors = [node_id for node_id in node_ids if node_id != leader]
    cluster[leader].kill()
    killed_s = time.monotonic()
    await_leader(cluster, survivors, epoch)
    took_ms = (time.monotonic() - killed_s) * 1000
    cluster[leader].start()
    time.sleep(2 * FETCH_TIMEOUT_MS / 1000)  # it has caught up, and nobody is on the move
    return took_ms


def main() -> None:
    """Print one row per kind of controller and the ratio; exit 1 below a bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ours", action="store_true", help="without Apache Kafka beside it")
    options = parser.parse_args()
    kinds = [FIRNLINE] if options.ours else [FIRNLINE, KAFKA]
    took_ms: dict[str, list[float]] = {kind: [] for kind in kinds}
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="firnline-failover-")))
        clusters = {
            kind: stack.enter_context(Cluster(base / kind, [(kind, CONTROLLER)] * 3, settings={}))
            for kind in kinds
        }
        for _ in range(options.rounds):
            for kind, cluster in clusters.items():
                took_ms[kind].append(fail_over_ms(cluster))
    medians = {kind: statistics.median(found) for kind, found in took_ms.items()}
    rows = [
        {
            "controllers": kind,
            "kills": len(found),
            "ms (median)": round(medians[kind]),
            "ms (min, max)": f"{min(found):.0f}, {max(found):.0f}",
            "bar ms": BAR_MS if kind == FIRNLINE else "",
            "ratio to Kafka": (
                round(medians[kind] / medians[KAFKA], 2) if KAFKA in medians else ""
            ),
        }
        for kind, found in took_ms.items()
    ]
    report("failover: the active controller killed -9, until the next one is active", rows)
    ratio = medians[FIRNLINE] / medians.get(KAFKA, medians[FIRNLINE])
    if medians[FIRNLINE] > BAR_MS or ratio > RATIO_BAR:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
