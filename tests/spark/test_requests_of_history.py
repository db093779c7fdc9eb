"""What the brokers are asked while the past is read: counted where they answer."""

import json
import re
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="NOT RUN: confluent-kafka is not installed")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="NOT RUN: PySpark 4.2 is missing")

from firnline.client.admin import Admin
from tests.peers.ports import free_ports
from tests.spark import test_past_and_tail as batch
from tests.spark import test_stream_tail as stream
from tests.spark import tiered_topic
from tests.spark.tiered_topic import HALF, HALF_END, HALF_TIERED

_COUNT = re.compile(r'^kafka_network_requestmetrics_localtimems_count\{request="(\w+)"\} (\S+)$')
FETCH, OF_CONSUMER = "Fetch", "FetchConsumer"  # as in Kafka, one of a consumer counts as both
# What a plan asks for: which topics and offsets there are, and where leader epochs end.
OF_A_PLAN = {"ApiVersions", "Metadata", "ListOffsets", "OffsetForLeaderEpoch"}


class Site:
    """A broker with a tier, which counts its requests."""

    def __init__(self, directory: Path, metrics_port: int) -> None:
        self._url = f"http://127.0.0.1:{metrics_port}/metrics"
        self._made = tiered_topic.tiered_topic(directory, f"firnline.metrics.port={metrics_port}")

    def __enter__(self) -> "Site":
        broker, tier = self._made.__enter__()
        tiered_topic.half_tiered(broker)
        self.batch, self.stream = batch.Cluster(broker, tier), stream.Cluster(broker, tier)
        self.bootstrap = broker.bootstrap
        return self

    def __exit__(self, *problem: Any) -> None:
        self._made.__exit__(*problem)

    def requests(self) -> Counter[str]:
        """Return how many requests of each kind the broker has answered."""
        with urllib.request.urlopen(self._url, timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        found = (_COUNT.match(line) for line in lines)
        return Counter({each[1]: int(float(each[2])) for each in found if each is not None})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    (port,) = free_ports(1)
    with Site(tmp_path_factory.mktemp("counted"), port) as made:
        yield made


HISTORY = {"endingOffsets": json.dumps({HALF: {"0": HALF_TIERED}}), "maxRecordsPerPartition": "10"}


def test_no_record_of_the_tier_is_asked_of_the_brokers(site: Site) -> None:
    """Of the past nothing at all in a task, and in the plan as much as for a single record."""
    reader = site.batch.reader(**HISTORY)
    before = site.requests()
    plan = list(reader.partitions())
    planned = site.requests()
    assert len(plan) > 10
    assert [row["offset"] for row in batch.rows_of(reader, plan)] == list(range(HALF_TIERED))
    assert site.requests() == planned
    assert set(planned - before) <= OF_A_PLAN
    single = HISTORY | {"endingOffsets": json.dumps({HALF: {"0": 1}})}
    assert len(site.batch.reader(**single).partitions()) == 1
    assert site.requests() - planned == planned - before


def test_with_the_tier_alone_the_brokers_are_asked_nothing(site: Site) -> None:
    before = site.requests()
    assert len(site.batch.read(readFrom="tier")) == HALF_TIERED
    reader = site.stream.reader(readFrom="tier")
    start = reader.initialOffset()
    assert len(stream.rows_of(reader, start, stream.step(reader, start))) == HALF_TIERED
    assert site.requests() == before


def test_a_stream_asks_for_records_only_behind_the_tier(site: Site) -> None:
    options = {"maxOffsetsPerTrigger": "60"}
    reader = site.stream.reader(**options)
    start = reader.initialOffset()
    fetched = []
    for _ in range(4):
        before = site.requests()
        end = stream.step(reader, start)
        assert stream.rows_of(reader, start, end)
        asked = site.requests() - before
        assert set(asked) <= OF_A_PLAN | {FETCH, OF_CONSUMER}
        fetched.append(asked[FETCH])
        start = end
    assert start[HALF] == {"0": HALF_END}
    assert fetched[:3] == [0, 0, 0]
    assert fetched[3] > 0, "the tail comes from the broker, and its requests are counted"


def test_the_count_counts(site: Site) -> None:
    before = site.requests()
    with Admin(site.bootstrap) as admin:
        admin.metadata([])
    assert (site.requests() - before)["Metadata"] == 1
