"""Metrics of requests: how many, with which errors, and how long they took. WORLD.

Names are those of Kafka's RequestMetrics as the JMX exporter prints them. A node here has one loop and no
queues, so some of Kafka's times have another source: docs/reference/metrics.md says which.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    UnknownMetricFamily,
)

from firnline.api.dispatch import RequestCount
from firnline.base.counting.requests import CopiedTimes
from firnline.base.counting.times import quantile_ms
from firnline.base.errors import Code
from firnline.protocol.versions import kafka_name
from firnline.runtime.loop import Runtime
from firnline.server.broker_metrics.window import Window

_NETWORK = "kafka_network_requestmetrics_"
# As the JMX exporter labels what Kafka counts.
QUANTILES = (
    *(("0.5", 0.5), ("0.75", 0.75), ("0.95", 0.95)),
    *(("0.98", 0.98), ("0.99", 0.99), ("0.999", 0.999)),
)
_TIMES = (
    ("totaltimems", "total", "From the first look at a request to its response, ms."),
    ("localtimems", "local", "The node's own work for a request, ms."),
    ("remotetimems", "remote", "Waiting for others: followers, records, disks, the tier, ms."),
)
# True of every request: nothing queues responses, and nobody is throttled.
_ALWAYS_ZERO = (
    ("responsequeuetimems", "Responses wait in no queue: 0."),
    ("throttletimems", "There are no quotas of clients: 0."),
)


class LoopTime(NamedTuple):
    """The seconds that the loop has run, and the part of it in which it waited with nothing to do."""

    ran_s: float = 0.0
    idle_s: float = 0.0


class Connections(NamedTuple):
    """Of one listener: open now, and accepted since the start."""

    listener: str
    open: int
    accepted: int


class RequestFacts(NamedTuple):
    """What is not counted by API.

    lateness       how late timers of the loop were, by bucket
    waiting        requests that wait for permits or for memory
    waiting_out    responses that wait for memory
    flushes        how long rounds of syncs took, by bucket
    """

    now_ms: int = 0
    loop: LoopTime = LoopTime()
    lateness: tuple[int, ...] = ()
    waiting: int = 0
    waiting_out: int = 0
    flushes: tuple[int, ...] = ()
    connections: tuple[Connections, ...] = ()


def look(runtime: Runtime, lateness: tuple[int, ...], now_s: float) -> RequestFacts:
    """Read the values, on the loop."""
    admission = runtime.admission
    return RequestFacts(
        now_ms=runtime.now_ms(),
        loop=LoopTime(now_s - runtime.loop.since_s, runtime.loop.idle_s),
        lateness=lateness,
        waiting=admission.clients.waiting + admission.brokers.waiting + runtime.incoming.waiting,
        waiting_out=runtime.answers.waiting,
        flushes=runtime.flush_times.copy(),
        connections=tuple(
            Connections(each.listener, each.connection_count, each.accepted)
            for each in runtime.servers
        ),
    )


def twins(name: str, words: str, labels: Sequence[str]) -> tuple[Metric, Metric]:
    """Return two families for one counter: `_total`, and `persec`, as two common rule files print it."""
    return (
        CounterMetricFamily(name, words, labels=labels),
        UnknownMetricFamily(f"{name}persec", words, labels=labels),
    )


class RequestFamilies:
    """Yields values as Prometheus families; remembers those of the last minute. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times, self._others = Window(), Window()

    def families(self, rows: Sequence[RequestCount], facts: RequestFacts) -> Iterator[Metric]:
        """Yield all families at one moment."""
        yield from _counts(rows)
        yield from _errors(rows)
        totals: dict[str, int] = Counter()
        times: dict[object, Sequence[float]] = {}
        for row in rows:
            for name, count, copied in _named(row):
                totals[name] += count
                for kind, counts in copied._asdict().items():
                    _add(times, (name, kind), counts)
        loop: dict[object, Sequence[float]] = {
            "loop": facts.loop,
            "lateness": facts.lateness,
            "flushes": facts.flushes,
        }
        for each in facts.connections:
            loop[each.listener, "connections"] = (each.accepted, each.accepted - each.open)
        with self._lock:
            grown = self._times.since(facts.now_ms, times)
            others = self._others.since(facts.now_ms, loop)
        for metric, kind, words in _TIMES:
            yield from _quantiles(
                metric, words, totals, {name: grown.get((name, kind), ()) for name in totals}
            )
        late = dict.fromkeys(totals, others["lateness"])
        words = "What a request waits for the loop, by the lateness of timers, ms."
        yield from _quantiles("requestqueuetimems", words, totals, late)
        for metric, words in _ALWAYS_ZERO:
            yield from _quantiles(metric, words, totals, dict.fromkeys(totals, ()))
        yield from _queues(facts)
        yield from _idle(*others["loop"])
        yield from _flushes(facts, others["flushes"])
        ran_s = others["loop"][0]
        yield from _connections(
            [(row, others[row.listener, "connections"]) for row in facts.connections], ran_s
        )


def _named(row: RequestCount) -> Iterator[tuple[str, int, CopiedTimes]]:
    """Iterate over (name, requests, times): of a Fetch also by who sent it, as in Kafka."""
    name = kafka_name(row.name)
    if row.name != "fetch":
        yield name, row.requests, row.times
        return
    yield name, row.requests, row.times
    yield name, 0, row.follower_times
    yield "FetchConsumer", row.requests - row.of_followers, row.times
    yield "FetchFollower", row.of_followers, row.follower_times


def _add(times: dict[object, Sequence[float]], key: object, counts: Sequence[int]) -> None:
    known = times.get(key)
    if known and counts:
        times[key] = [one + other for one, other in zip(known, counts, strict=True)]
    elif counts:
        times[key] = counts


def _counts(rows: Sequence[RequestCount]) -> Iterator[Metric]:
    families = twins(_NETWORK + "requests", "Requests.", ["request", "version"])
    by_name: dict[tuple[str, int], int] = Counter()
    for row in rows:
        for name, count, _ in _named(row):
            by_name[name, row.version] += count
    for (name, version), count in by_name.items():
        for family in families:
            family.add_metric([name, str(version)], count)  # type: ignore[attr-defined]
    yield from families


def _errors(rows: Sequence[RequestCount]) -> Iterator[Metric]:
    families = twins(_NETWORK + "errors", "Error codes in responses.", ["request", "error"])
    counts: dict[tuple[str, str], int] = Counter()
    for row in rows:
        name = kafka_name(row.name)
        counts[name, Code.NONE.name] += row.answers_without_error
        for code, count in row.errors.items():
            counts[name, _error_name(code)] += count
    for key, count in counts.items():
        for family in families:
            family.add_metric(key, count)  # type: ignore[attr-defined]
    yield from families


def _error_name(code: int) -> str:
    try:
        return Code(code).name
    except ValueError:
        return str(code)


def _quantiles(
    metric: str,
    words: str,
    totals: Mapping[str, int],
    counts: Mapping[str, Sequence[float]],
) -> Iterator[Metric]:
    """Yield the quantiles and the count of one time, by API. The count is that of all requests."""
    family = GaugeMetricFamily(_NETWORK + metric, words, labels=["request", "quantile"])
    count = GaugeMetricFamily(
        f"{_NETWORK}{metric}_count", "Requests since the start.", labels=["request"]
    )
    for name, total in totals.items():
        if not total:
            continue
        count.add_metric([name], total)
        for label, part in QUANTILES:
            family.add_metric([name, label], quantile_ms(counts[name], part))
    yield family
    yield count


def _queues(facts: RequestFacts) -> Iterator[Metric]:
    channel = "kafka_network_requestchannel_"
    words = "Requests that wait for permits or memory."
    yield GaugeMetricFamily(channel + "requestqueuesize", words, facts.waiting)
    words = "Responses that wait for memory."
    yield GaugeMetricFamily(channel + "responsequeuesize", words, facts.waiting_out)


def _idle(ran_s: float, idle_s: float) -> Iterator[Metric]:
    """Yield the part of the last minute in which the loop had nothing to do. Kafka has two pools instead."""
    part = min(1.0, max(0.0, idle_s / ran_s)) if ran_s > 0 else 1.0
    network = "kafka_network_socketserver_networkprocessoravgidle"
    handlers = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle"
    for name in (
        f"{network}percent",
        f"{network}_percent",
        f"{handlers}percent_oneminuterate",
        f"{handlers}_percent",
    ):
        yield GaugeMetricFamily(name, "Part of the time in which the loop is idle, 0 to 1.", part)


def _connections(
    rows: Sequence[tuple[Connections, Sequence[float]]], ran_s: float
) -> Iterator[Metric]:
    """Yield connections, and how many were made and ended a second, by listener.

    Two rule files for the JMX exporter spell the first part of the name in two ways.
    """
    for prefix in ("kafka_server_socketservermetrics_", "kafka_server_socket_server_metrics_"):
        count, made, ended = (
            GaugeMetricFamily(f"{prefix}connection_{name}", words, labels=["listener"])
            for name, words in (
                ("count", "Connections."),
                ("creation_rate", "Connections accepted a second."),
                ("close_rate", "Connections closed a second."),
            )
        )
        for row, (accepted, closed) in rows:
            count.add_metric([row.listener], row.open)
            made.add_metric([row.listener], accepted / ran_s if ran_s > 0 else 0)
            ended.add_metric([row.listener], closed / ran_s if ran_s > 0 else 0)
        yield from (count, made, ended)


def _flushes(facts: RequestFacts, counts: Sequence[float]) -> Iterator[Metric]:
    name = "kafka_log_logflushstats_logflushrateandtimems"
    family = GaugeMetricFamily(name, "How long rounds of syncs took, ms.", labels=["quantile"])
    for label, part in QUANTILES:
        family.add_metric([label], quantile_ms(counts, part))
    yield family
    yield GaugeMetricFamily(f"{name}_count", "Rounds of syncs since the start.", sum(facts.flushes))
