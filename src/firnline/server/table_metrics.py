"""What is full, and who made room: connections, requests, fetch sessions, ids of members. WORLD.

Those of fetch sessions have the names that the JMX exporter gives to Kafka's beans. KIP-227, decision 0027.
"""

from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from firnline.broker.node import BrokerNode
from firnline.runtime.loop import Runtime

_SESSIONS = "kafka_server_fetchsessioncache_"
# Name, field of the facts, words.
_COUNTERS = (
    ("firnline_connections_evicted", "connections_evicted", "Connections closed for another."),
    ("firnline_connections_refused", "connections_refused", "Connections closed at once."),
    ("firnline_slow_senders_closed", "slow_senders", "Connections closed: requests came slowly."),
    ("firnline_group_members_evicted", "members_evicted", "Ids of members forgotten early."),
    ("firnline_group_members_refused", "members_refused", "Requests of members without room."),
    (_SESSIONS + "incrementalfetchsessionevictions", "sessions_evicted", "Gone for another."),
    ("firnline_producers_forgotten", "producers_forgotten", "By partitions, before their time."),
    ("firnline_fetch_sessions_refused", "sessions_refused", "Fetches that had to go without one."),
)
_GAUGES = (
    ("firnline_incoming_held_bytes", "incoming_bytes", "Of requests not whole, or that wait."),
    ("firnline_incoming_waiting", "incoming_waiting", "Connections not read from: no memory."),
    ("firnline_group_members_pending", "pending_members", "Ids that no member came with."),
    ("firnline_group_members_held_bytes", "members_bytes", "Memory of members of all groups."),
    (_SESSIONS + "numincrementalfetchsessions", "sessions", "Fetch sessions."),
    (_SESSIONS + "numincrementalfetchpartitionscached", "session_partitions", "In all of them."),
)


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
    sessions: int = 0
    session_partitions: int = 0
    sessions_evicted: int = 0
    sessions_refused: int = 0
    producers_forgotten: int = 0


def look(runtime: Runtime) -> TableFacts:
    """Take the numbers, on the loop."""
    counted = list({id(server.counted): server.counted for server in runtime.servers}.values())
    broker = runtime.node if isinstance(runtime.node, BrokerNode) else None
    groups = None if broker is None else broker.groups
    sessions = None if broker is None else broker.fetching.sessions
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
        0 if sessions is None else len(sessions),
        0 if sessions is None else sessions.partitions,
        0 if sessions is None else sessions.evicted,
        0 if sessions is None else sessions.refused,
        0 if broker is None else broker.storage.producers.forgotten,
    )


def families(found: TableFacts) -> Iterator[Metric]:
    """Say it in Prometheus' terms."""
    for name, field, words in _COUNTERS:
        yield CounterMetricFamily(name, words, getattr(found, field))
    for name, field, words in _GAUGES:
        yield GaugeMetricFamily(name, words, getattr(found, field))
