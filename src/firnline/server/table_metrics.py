"""What is full, and who made room: connections, requests, ids of members. WORLD. Decision 0027."""

from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from firnline.broker.node import BrokerNode
from firnline.runtime.loop import Runtime


class TableFacts(NamedTuple):
    """As of one moment; what is counted is counted since the start."""

    connections_evicted: int = 0
    connections_refused: int = 0
    incoming_bytes: int = 0
    incoming_waiting: int = 0
    slow_senders: int = 0
    pending_members: int = 0
    members_evicted: int = 0
    members_bytes: int = 0
    members_refused: int = 0
    producers_forgotten: int = 0


def look(runtime: Runtime) -> TableFacts:
    """Take the numbers, on the loop."""
    counted = list({id(server.counted): server.counted for server in runtime.servers}.values())
    broker = runtime.node if isinstance(runtime.node, BrokerNode) else None
    groups = None if broker is None else broker.groups
    incoming = runtime.incoming
    slow_requests = sum(server.slow_requests for server in runtime.servers)
    return TableFacts(
        sum(each.evicted for each in counted),
        sum(each.refused for each in counted),
        incoming.held_bytes,
        incoming.waiting,
        incoming.slow_senders + slow_requests,
        0 if groups is None else groups.pending_members,
        0 if groups is None else groups.evicted_members,
        0 if groups is None else groups.members_held_bytes,
        0 if groups is None else groups.refused_members,
        0 if broker is None else broker.storage.producers.forgotten,
    )


def families(found: TableFacts) -> Iterator[Metric]:
    """Say it in Prometheus' terms."""
    for name, words, count in (
        (
            "connections_evicted",
            "Connections closed to make room for another.",
            found.connections_evicted,
        ),
        (
            "connections_refused",
            "Connections closed at once, by a limit.",
            found.connections_refused,
        ),
        (
            "slow_senders_closed",
            "Connections closed for requests that came slowly.",
            found.slow_senders,
        ),
        (
            "group_members_evicted",
            "Ids of members forgotten before their time.",
            found.members_evicted,
        ),
        ("group_members_refused", "Requests of members that found no room.", found.members_refused),
        (
            "producers_forgotten",
            "Producers that partitions forgot before their time.",
            found.producers_forgotten,
        ),
    ):
        yield CounterMetricFamily(f"firnline_{name}", words, count)
    for name, words, count in (
        (
            "incoming_held_bytes",
            "Memory of requests that are not whole, or wait.",
            found.incoming_bytes,
        ),
        (
            "incoming_waiting",
            "Connections not read from for want of memory.",
            found.incoming_waiting,
        ),
        (
            "group_members_pending",
            "Ids handed out that no member came with.",
            found.pending_members,
        ),
        ("group_members_held_bytes", "Memory of members of all groups.", found.members_bytes),
    ):
        yield GaugeMetricFamily(f"firnline_{name}", words, count)
