"""Metrics of limits: connections, requests, fetch sessions, pending members. WORLD.

Names for fetch sessions are those that the JMX exporter gives to Kafka's beans. KIP-227, decision 0027.
"""

from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    UnknownMetricFamily,
)

from firnline.broker.node import BrokerNode
from firnline.runtime.loop import Runtime

_SESSIONS = "kafka_server_fetchsessioncache_"
# Name, field of the facts, help text.
_COUNTERS = (
    ("firnline_connections_evicted", "connections_evicted", "Connections closed to make room."),
    ("firnline_connections_refused", "connections_refused", "Connections refused."),
    ("firnline_slow_senders_closed", "slow_senders", "Connections closed: too slow to send."),
    ("firnline_group_members_evicted", "members_evicted", "Pending members forgotten early."),
    ("firnline_group_members_refused", "members_refused", "Member requests without room."),
    (_SESSIONS + "incrementalfetchsessionevictions", "sessions_evicted", "Sessions evicted."),
    ("firnline_producers_forgotten", "producers_forgotten", "Producers forgotten early."),
    ("firnline_fetch_sessions_refused", "sessions_refused", "Fetches without a session."),
)
_GAUGES = (
    ("firnline_incoming_held_bytes", "incoming_bytes", "Bytes of waiting requests."),
    ("firnline_incoming_waiting", "incoming_waiting", "Connections that wait for memory."),
    ("firnline_group_members_pending", "pending_members", "Pending members."),
    ("firnline_group_members_held_bytes", "members_bytes", "Memory of members of all groups."),
    (_SESSIONS + "numincrementalfetchsessions", "sessions", "Fetch sessions."),
    (
        _SESSIONS + "numincrementalfetchpartitionscached",
        "session_partitions",
        "Partitions in sessions.",
    ),
)


class TableFacts(NamedTuple):
    """Values at one moment; counters count since the start."""

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
    """Read the values, on the loop."""
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
    """Yield them as Prometheus families."""
    for name, field, words in _COUNTERS:
        yield CounterMetricFamily(name, words, getattr(found, field))
    yield UnknownMetricFamily(
        _SESSIONS + "incrementalfetchsessionevictionspersec",
        "Sessions evicted, as other rules for the JMX exporter name it.",
        found.sessions_evicted,
    )
    for name, field, words in _GAUGES:
        yield GaugeMetricFamily(name, words, getattr(found, field))
