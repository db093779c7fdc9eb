"""Metrics of topics: messages, bytes, requests and failures. WORLD.

Names are those of Kafka's BrokerTopicMetrics as the JMX exporter prints them: `_total`, as its own rules for
Kafka do, and `persec`, as others do. Each has a value for every topic, and one without labels for all topics.
"""

from collections.abc import Generator, Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, Metric

from firnline.base.counting.traffic import Traffic, TrafficByTopic
from firnline.server.broker_metrics.requests import twins

_PREFIX = "kafka_server_brokertopicmetrics_"
# Above this, topics are only summed up.
TOPIC_SERIES_MAX = 1_000
_BY_TOPIC = (
    ("messagesin", "messages_in", "Records appended by leaders."),
    ("bytesin", "bytes_in", "Bytes of the batches appended by leaders."),
    ("bytesout", "bytes_out", "Bytes of records sent to consumers."),
    ("bytesrejected", "bytes_rejected", "Bytes of batches that were too large."),
    ("totalproducerequests", "produces", "Appends that producers asked for."),
    ("failedproducerequests", "failed_produces", "Appends that got an error."),
    ("totalfetchrequests", "fetches", "Reads of a partition for consumers and followers."),
    ("failedfetchrequests", "failed_fetches", "Reads that got an error."),
)
_OF_THE_NODE = (
    ("replicationbytesin", "replicated_in_bytes", "Bytes that followers here got from leaders."),
    ("replicationbytesout", "replicated_out_bytes", "Bytes that leaders here sent to followers."),
)
# Records are stored and sent as they came: nothing converts them between formats.
_ALWAYS_ZERO = ("producemessageconversions", "fetchmessageconversions")
_NAMES = tuple(field for _, field, _ in _BY_TOPIC)


class TrafficFacts(NamedTuple):
    """Counters at one moment: of each topic in the order of `_BY_TOPIC`, and the sums of all."""

    topics: list[tuple[str, tuple[int, ...]]]
    total: Traffic


def look(traffic: TrafficByTopic) -> Generator[None, None, TrafficFacts]:
    """Read the values, on the loop; yields after some topics."""
    topics: list[tuple[str, tuple[int, ...]]] = []
    if len(traffic.by_topic) <= TOPIC_SERIES_MAX:
        topics = [
            (topic, tuple(getattr(counted, name) for name in _NAMES))
            for topic, counted in traffic.by_topic.items()
        ]
        yield
    total = yield from traffic.total()
    return TrafficFacts(sorted(topics), total)


def families(found: TrafficFacts) -> Iterator[Metric]:
    """Yield them as Prometheus families."""
    for place, (name, field, words) in enumerate(_BY_TOPIC):
        total, per_sec = twins(_PREFIX + name, words, ["topic"])
        total.add_sample(f"{_PREFIX}{name}_total", {}, getattr(found.total, field))
        per_sec.add_sample(f"{_PREFIX}{name}persec", {}, getattr(found.total, field))
        for topic, counted in found.topics:
            for family in (total, per_sec):
                family.add_metric([topic], counted[place])  # type: ignore[attr-defined]
        yield total
        yield per_sec
    for name, field, words in _OF_THE_NODE:
        for family in twins(_PREFIX + name, words, ()):
            family.add_metric((), getattr(found.total, field))  # type: ignore[attr-defined]
            yield family
    for name in _ALWAYS_ZERO:
        for family in twins(_PREFIX + name, "Nothing is converted between formats: 0.", ()):
            family.add_metric((), 0)  # type: ignore[attr-defined]
            yield family
    yield CounterMetricFamily(
        "firnline_failed_appends",
        "Appends, of leaders and followers, that the disk refused.",
        found.total.failed_appends,
    )
