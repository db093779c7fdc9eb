"""Metrics by the names that dashboards draw: times, windows, twins, and limits on the number of series."""

from collections.abc import Iterable

import pytest
from prometheus_client.core import Metric

from firnline.api import health
from firnline.api.dispatch import RequestCount
from firnline.base.counting.machine import DiskSpace
from firnline.base.counting.requests import RequestTimes
from firnline.base.counting.traffic import TrafficByTopic
from firnline.base.errors import ConfigError
from firnline.cli.dev import dev_config
from firnline.log.recovery import at_once
from firnline.server.broker_metrics import traffic
from firnline.server.broker_metrics.requests import LoopTime, RequestFacts, RequestFamilies
from firnline.server.broker_metrics.window import Window
from firnline.server.metrics import Exporter
from tests.unit.server.test_metrics import scrape, shown
from tests.worlds.harness import Harness

Values = dict[tuple[str, ...], float]
_NETWORK = "kafka_network_requestmetrics_"


def values(families: Iterable[Metric]) -> Values:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def fetches(consumer_ms: float, follower_ms: float) -> RequestCount:
    """Two Fetches, one of a consumer and one of a follower."""
    consumers, followers = RequestTimes(), RequestTimes()
    consumers.add(consumer_ms, 1.0)
    followers.add(follower_ms, 1.0)
    return RequestCount(
        "fetch", 12, 2, 10, 10, of_followers=1, answers_without_error=1, errors={1: 1},
        times=consumers.copy(), follower_times=followers.copy(),
    )  # fmt: skip


def test_a_fetch_is_shown_as_fetch_and_as_that_of_a_consumer_or_a_follower() -> None:
    found = values(RequestFamilies().families([fetches(10.0, 500.0)], RequestFacts()))
    for name in ("requests_total", "requestspersec"):
        rows = [(kind, found[_NETWORK + name, kind, "12"]) for kind in ("Fetch", "FetchConsumer")]
        assert rows == [("Fetch", 2), ("FetchConsumer", 1)]
    assert found[_NETWORK + "totaltimems", "FetchConsumer", "0.99"] == pytest.approx(10, rel=0.25)
    assert found[_NETWORK + "totaltimems", "FetchFollower", "0.99"] == pytest.approx(500, rel=0.25)
    assert found[_NETWORK + "totaltimems", "Fetch", "0.99"] == pytest.approx(500, rel=0.25)
    assert found[_NETWORK + "totaltimems_count", "Fetch"] == 2
    assert found[_NETWORK + "errors_total", "Fetch", "OFFSET_OUT_OF_RANGE"] == 1
    assert found[_NETWORK + "errorspersec", "Fetch", "NONE"] == 1
    assert found[_NETWORK + "throttletimems", "Fetch", "0.5"] == 0


def test_an_api_that_nobody_asked_for_has_no_times() -> None:
    row = RequestCount("metadata", 12, 0, 0, 0)
    found = values(RequestFamilies().families([row], RequestFacts()))
    assert not [name for name, *_ in found if "timems" in name and "flush" not in name]


def test_what_is_idle_is_that_of_the_last_minute() -> None:
    families = RequestFamilies()
    name = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"
    for now_ms, ran_s, idle_s, shown_part in (
        (0, 100.0, 90.0, 0.9),  # since the start
        (30_000, 130.0, 90.0, 0.0),
        (60_000, 160.0, 105.0, 0.25),
        (120_000, 220.0, 165.0, 1.0),
    ):
        facts = RequestFacts(now_ms=now_ms, loop=LoopTime(ran_s, idle_s))
        assert values(families.families([], facts))[name,] == pytest.approx(shown_part)


def test_a_window_forgets_what_is_older_than_a_minute_however_often_it_is_asked() -> None:
    window = Window()
    assert window.since(0, {"a": (5.0,)}) == {"a": [5.0]}
    for now_ms in range(1_000, 60_000, 1_000):
        assert window.since(now_ms, {"a": (6.0,)}) == {"a": [1.0]}
    assert window.since(66_000, {"a": (6.0,), "b": (2.0,)}) == {"a": [0.0], "b": [2.0]}
    assert len(window._samples) <= 14


def test_topics_are_shown_up_to_a_limit_and_their_sum_always() -> None:
    counted = TrafficByTopic()
    for number in range(traffic.TOPIC_SERIES_MAX):
        counted.join(f"t{number}").messages_in = 2
    prefix = "kafka_server_brokertopicmetrics_messagesin"
    found = values(traffic.families(at_once(traffic.look(counted))))
    assert found[f"{prefix}_total",] == found[f"{prefix}persec",] == 2_000
    assert found[f"{prefix}persec", "t7"] == 2
    counted.join("one too many")
    found = values(traffic.families(at_once(traffic.look(counted))))
    assert found[f"{prefix}_total",] == 2_000
    assert (f"{prefix}persec", "t7") not in found


def test_each_problem_is_a_metric_and_so_are_the_disks() -> None:
    harness = Harness()
    harness.create_topic()
    machine = harness.node.machine
    machine.disks["/d"] = DiskSpace(free_bytes=1, total_bytes=1_000)
    machine.was_late(2_500, harness.now_ms)
    with shown(harness) as exporter:
        found = scrape(exporter, ("kind", "logDirectory"))
    kinds = {kind: found["firnline_problems", kind] for kind in health.KINDS}
    assert {kind for kind, value in kinds.items() if value} == {"disk-nearly-full", "loop-held-up"}
    assert (found["firnline_disk_free_bytes", "/d"], found["firnline_disk_total_bytes", "/d"]) == (
        1,
        1_000,
    )
    assert found["firnline_loop_held_up_seconds", ""] == 2.5
    assert found["kafka_log_logmanager_offlinelogdirectorycount", ""] == 0
    assert found["kafka_server_kafkaserver_brokerstate", ""] == 3
    assert found["kafka_coordinator_group_groupmetadatamanager_numgroupsstable", ""] == 0


def test_metrics_listen_where_the_setting_says_and_nowhere_else() -> None:
    assert dev_config(9092, "/d", None, {}).firnline_metrics_host == "127.0.0.1"
    named = dev_config(9092, "/d", None, {"firnline.metrics.host": "127.0.0.2"})
    exporter = Exporter(0, host=named.firnline_metrics_host)
    try:
        assert exporter._server.server_address[0] == "127.0.0.2"
    finally:
        exporter.close()
    with pytest.raises(ConfigError, match=r"203\.0\.113\.1.*firnline\.metrics\.host"):
        Exporter(0, host="203.0.113.1")
