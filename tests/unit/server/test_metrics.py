"""The metrics port: what it says, and that nobody pays for it who does not want it."""

import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from firnline.base.counting.times import Times
from firnline.base.errors import ConfigError
from firnline.base.limits import SCRAPE_SILENCE_S, SCRAPES_MAX
from firnline.broker.fetch_session import Full, Wanted
from firnline.log.retention import Overdue
from firnline.runtime.bounds.admission import Admission
from firnline.runtime.failed_requests import FailedRequests
from firnline.runtime.loop import Runtime
from firnline.runtime.poll import PollLoop
from firnline.runtime.steps import SlowSteps
from firnline.runtime.threads.pools import PoolFacts
from firnline.server import metrics, metrics_port, replica_metrics, tier_metrics
from firnline.server.metrics import Exporter
from firnline.stores.memory import MemoryStore
from firnline.stores.port import RemoteStorageError
from tests.worlds.harness import Harness

pytestmark = pytest.mark.slow

LABELS = ("step", "request", "version", "topic", "partition", "operation", "pool", "reason")
Values = dict[tuple[str, str], float]


@contextmanager
def shown(harness: Harness, slow: SlowSteps | None = None) -> Iterator[Exporter]:
    """An exporter of a harness, whose loop is whoever asks."""

    def ask(work: Callable[[], Any], timeout_s: float) -> Any:
        return work()

    loop = SimpleNamespace(
        slow_steps=slow or SlowSteps(), timers={"one": 1}, since_s=time.monotonic(), idle_s=0.0
    )
    runtime: Any = SimpleNamespace(
        node=harness.node,
        dispatcher=harness.dispatcher,
        servers=[],
        loop=loop,
        ask=ask,
        now_ms=lambda: harness.now_ms,
        stuck_compactions=0,
        abandoned_threads=3,
        pool_facts=lambda: {"read": PoolFacts(threads=10, busy=4, waiting=2)},
        failed_requests=FailedRequests(),
        answers=SimpleNamespace(held_bytes=0, waiting=0, refused=0, slow_readers=0),
        incoming=SimpleNamespace(held_bytes=0, waiting=0, slow_senders=0),
        admission=Admission(lambda call: None),
        flush_times=Times(),
        delayed=Counter,
    )
    exporter = Exporter(0)
    try:
        exporter.show(runtime)
        yield exporter
    finally:
        exporter.close()


def scrape(exporter: Exporter, labels: tuple[str, ...] = LABELS) -> Values:
    """Value by (name, labels of interest)."""
    url = f"http://127.0.0.1:{exporter.port}/metrics"
    with urllib.request.urlopen(url, timeout=30) as answer:
        text = answer.read().decode()
    return {
        (
            sample.name,
            "/".join(sample.labels[name] for name in labels if name in sample.labels),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_a_node_did_is_counted_under_the_names_of_kafkas_dashboards() -> None:
    harness = Harness()
    harness.create_topic(partitions=2)
    harness.produced("a", "b")
    harness.produced("c")
    harness.values()
    with shown(harness) as exporter:
        found = scrape(exporter)
    assert found["kafka_network_requestmetrics_requests_total", "Produce/9"] == 2
    assert found["kafka_network_requestmetrics_requests_total", "CreateTopics/7"] == 1
    assert found["kafka_server_brokertopicmetrics_totalproducerequests_total", ""] == 2
    assert found["kafka_server_brokertopicmetrics_totalfetchrequests_total", ""] == 1
    assert found["kafka_server_brokertopicmetrics_bytesin_total", ""] > 2 * 61
    assert found["kafka_server_brokertopicmetrics_bytesout_total", ""] > 2 * 61
    assert found["kafka_server_replicamanager_partitioncount", ""] == 2
    assert found["kafka_server_replicamanager_leadercount", ""] == 2
    assert found["kafka_controller_kafkacontroller_activecontrollercount", ""] == 1
    assert found["kafka_controller_kafkacontroller_globaltopiccount", ""] == 1
    assert found["kafka_log_log_logendoffset", "t/0"] == 3
    assert found["kafka_log_log_logendoffset", "t/1"] == 0
    assert found["kafka_log_log_numlogsegments", "t/0"] == 1
    assert found["process_resident_memory_bytes", ""] > 0


def test_what_waits_for_the_tier_is_reported() -> None:
    harness = Harness(store=MemoryStore())
    harness.create_topic(remote_storage_enable="true")
    with shown(harness) as exporter:
        found = scrape(exporter)
    assert found["kafka_server_brokertopicmetrics_remotecopylagbytes", "t/0"] == 0
    assert found["kafka_server_brokertopicmetrics_remotelogsizebytes", "t/0"] == 0
    assert found["firnline_tier_copy_lag_seconds", "t/0"] == 0


def test_what_was_read_ahead_of_consumers_is_counted() -> None:
    harness = Harness(store=MemoryStore())
    assert harness.node.tier is not None
    counters = harness.node.tier.services.counters
    counts = {"bytes": 40, "hits": 3, "hit_bytes": 30, "errors": 1}
    for name, count in counts.items():
        setattr(counters, f"read_ahead_{name}", count)
    with shown(harness) as exporter:
        found = scrape(exporter)
    for name, count in counts.items():
        assert found[f"firnline_tier_read_ahead_{name}_total", ""] == count


# T50: what shipped, and what KIP-405 had called it.
RENAMED = {
    "remotefetchrequests": "remotereadrequests",
    "remotefetchbytes": "remotebytesin",
    "remotefetcherrors": "remotereaderror",
    "remotecopybytes": "remotebytesout",
    "remotecopyerrors": "remotewriteerror",
}
OTHERS = (
    "remotecopyrequests",
    "remotedeleterequests",
    "remotedeleteerrors",
    "buildremotelogauxstaterequests",
    "buildremotelogauxstateerrors",
)


def test_what_the_tier_did_is_counted_for_the_node_and_for_each_topic_under_both_names() -> None:
    harness = Harness(store=MemoryStore())
    harness.create_topic(remote_storage_enable="true")
    assert harness.node.tier is not None
    counters = harness.node.tier.services.counters
    counted = [field for field, _, _ in tier_metrics._COUNTERS]
    for number, what in enumerate(counted, 1):
        counters.add("t", what, number)
        counters.add("deleted long ago", what, 100)
    with shown(harness) as exporter:
        found = scrape(exporter)
    prefix = "kafka_server_brokertopicmetrics_"
    names = {name for _, _, each in tier_metrics._COUNTERS for name in each}
    assert names == {*RENAMED, *RENAMED.values(), *OTHERS}
    for number, (_, _, same) in enumerate(tier_metrics._COUNTERS, 1):
        for name in same:
            assert found[f"{prefix}{name}_total", "t"] == number
            assert found[f"{prefix}{name}_total", ""] == number + 100
            assert (f"{prefix}{name}_total", "deleted long ago") not in found


def test_queues_threads_waits_and_backlogs_of_the_tier_are_reported() -> None:
    harness = Harness(store=MemoryStore())
    harness.create_topic(remote_storage_enable="true")
    tier = harness.node.tier
    assert tier is not None
    tier.services.copy_throttle.note(40, harness.now_ms)
    tier.services.copy_throttle.note(60, harness.now_ms)
    tier.services.fetch_times.note(7, harness.now_ms)
    tier.local_audit.found[False] = {"t-0": Overdue(0, False, 12345)}
    harness.node.fetching.remote_expired = 3
    harness.node.listing_offsets.remote_expired = 4
    with shown(harness) as exporter:
        found = scrape(exporter)
    assert found["kafka_server_remotelogmanager_remote_copy_throttle_time_avg", ""] == 50
    assert found["kafka_server_remotelogmanager_remote_copy_throttle_time_max", ""] == 60
    assert found["kafka_server_remotelogmanager_remote_fetch_throttle_time_avg", ""] == 0
    reading = "kafka_log_remote_remotelogmanager_remotelogreaderfetchrateandtimems_"
    assert found[f"{reading}sum", ""] == found[f"{reading}max", ""] == 7
    assert found[f"{reading}count", ""] == 1
    pool = "kafka_log_remote_remotestoragethreadpool_remotelogreader"
    assert found[f"{pool}taskqueuesize", ""] == found["firnline_pool_waiting", "read"] == 2
    assert found[f"{pool}avgidlepercent", ""] == pytest.approx(0.6)
    assert found["firnline_pool_busy", "read"] == 4
    assert found["firnline_pool_threads", "read"] == 10
    assert found["firnline_tier_local_overdue_bytes", "not copied"] == 12345
    assert found["firnline_tier_local_overdue_bytes", "not deleted"] == 0
    assert found["firnline_tier_partitions_to_remove", ""] == 0
    assert found["kafka_server_delayedremotefetchmetrics_expires_total", ""] == 3
    assert found["kafka_server_delayedremotelistoffsetsmetrics_expires_total", ""] == 4


def test_a_node_without_a_tier_has_no_metrics_of_one() -> None:
    with shown(Harness()) as exporter:
        found = scrape(exporter)
    assert not [name for name, _ in found if "remote" in name or "firnline_tier" in name]


def test_a_store_of_the_tier_that_fails_is_reported() -> None:
    harness = Harness(store=MemoryStore())
    assert harness.node.tier is not None
    circuits = harness.node.tier.services.circuits
    circuits.open("write", RemoteStorageError("503"), harness.now_ms - 7000)
    circuits.overdue("read at 7", harness.now_ms - 12_000, harness.now_ms)
    with shown(harness) as exporter:
        found = scrape(exporter)
    assert found["firnline_tier_store_open", "write"] == 1
    assert found["firnline_tier_store_open_seconds", "write"] == 7
    assert found["firnline_tier_store_open", "read"] == 0
    assert found["firnline_tier_store_open_seconds", "read"] == 0
    assert found["firnline_tier_store_unanswered_seconds", ""] == 12


def test_more_partitions_than_anybody_checks_are_only_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "PARTITION_SERIES_MAX", 3)
    harness = Harness()
    harness.create_topic(partitions=4)
    with shown(harness) as exporter:
        found = scrape(exporter)
    assert found["kafka_server_replicamanager_partitioncount", ""] == 4
    assert not [name for name, _ in found if name.startswith("kafka_log_log_")]


def test_a_port_in_use_is_refused_by_name() -> None:
    first = Exporter(0)
    try:
        with pytest.raises(ConfigError, match=r"firnline\.metrics\.port"):
            Exporter(first.port)
    finally:
        first.close()
    Exporter(first.port).close()


def test_a_look_that_fails_is_an_error_of_the_one_who_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = Harness()

    def broken(runtime: Any) -> Any:
        raise RuntimeError("a bug of the metrics")

    monkeypatch.setattr(metrics, "look", broken)
    with shown(harness) as exporter, pytest.raises(urllib.error.HTTPError, match="500"):
        scrape(exporter)


def test_a_thread_gets_what_the_loop_found_or_raised() -> None:
    """And the loop goes on: a question is no reason to stop."""

    loop = PollLoop()
    node: Any = SimpleNamespace()
    runtime = Runtime(node, loop, threads={})
    answers: list[object] = []

    def ask() -> None:
        answers.append(runtime.ask(lambda: 41 + 1, 30))
        try:
            runtime.ask(lambda: 1 // 0, 30)
        except ZeroDivisionError as problem:
            answers.append(type(problem))
        runtime.ask(loop.stop, 30)

    asker = threading.Thread(target=ask)
    asker.start()
    loop.run()
    asker.join()
    assert answers == [42, ZeroDivisionError]
    assert runtime.failure is None
    with pytest.raises(TimeoutError):
        runtime.ask(lambda: None, 0.01)
    runtime.close()
    loop.close()


def test_the_library_is_loaded_only_where_the_port_is_set() -> None:
    code = "import firnline.server.main, sys; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_what_held_the_loop_up_is_reported_by_name() -> None:
    slow = SlowSteps()
    slow.ended("request metadata", 0.020)
    slow.ended("request metadata", 0.010)
    slow.turn_ended(0.030)
    with shown(Harness(), slow) as exporter:
        found = scrape(exporter)
    assert found["firnline_loop_slow_steps_total", "request metadata"] >= 1
    assert found["firnline_loop_longest_step_seconds", "request metadata"] == 0.02
    assert found["firnline_loop_busy_steps_total", "request metadata"] >= 1
    assert found["firnline_loop_longest_step_cpu_seconds", "request metadata"] == 0.02
    assert found["firnline_loop_slow_turns_total", ""] == 1
    assert found["firnline_loop_longest_turn_seconds", ""] == 0.03
    assert found["firnline_loop_timers", ""] == 1
    assert found["firnline_abandoned_threads", ""] == 3


def test_requests_that_failed_inside_are_counted_by_api() -> None:
    with shown(Harness()) as exporter:
        failed: FailedRequests = exporter._runtime.failed_requests  # type: ignore[union-attr]
        failed.add("join_group", "host", None, ValueError("too long"))
        assert scrape(exporter)["firnline_failed_requests_total", "JoinGroup"] == 1


def test_what_answers_hold_and_who_paid_for_it_is_shown() -> None:
    with shown(Harness()) as exporter:
        answers: Any = exporter._runtime.answers  # type: ignore[union-attr]
        answers.held_bytes, answers.waiting, answers.refused, answers.slow_readers = 7, 2, 3, 4
        found = scrape(exporter)
        assert found["firnline_answers_held_bytes", ""] == 7
        assert found["firnline_answers_waiting", ""] == 2
        assert found["firnline_answers_refused_total", ""] == 3
        assert found["firnline_slow_readers_closed_total", ""] == 4


def test_full_tables_and_who_made_room_are_shown() -> None:
    harness = Harness()
    with shown(harness) as exporter:
        runtime: Any = exporter._runtime
        counted = SimpleNamespace(evicted=5, refused=6)
        server = SimpleNamespace(
            dispatcher=harness.dispatcher,
            connection_count=1,
            accepted=3,
            listener="PLAINTEXT",
            counted=counted,
            slow_requests=2,
        )
        runtime.servers = [server, server]  # two listeners that are counted together
        runtime.incoming = SimpleNamespace(held_bytes=7, waiting=8, slow_senders=9)
        harness.node.groups._member_counts.evicted = 10
        harness.node.storage.producers.forgotten = 11
        sessions = harness.node.fetching.sessions
        asked = partial(sessions.context, uses_ids=True, now_ms=0, owner=("User:me", "10.0.0.1"))
        topic_id = b"t" * 16
        wanted = [Wanted(None, topic_id, index, fetch_offset=0, max_bytes=1) for index in (0, 1)]
        assert isinstance(asked(0, 0, wanted, ()), Full)
        sessions.evicted, sessions.refused = 3, 4
        found = scrape(exporter)
        assert found["firnline_connections_evicted_total", ""] == 5
        assert found["firnline_connections_refused_total", ""] == 6
        assert found["firnline_incoming_held_bytes", ""] == 7
        assert found["firnline_incoming_waiting", ""] == 8
        assert found["firnline_slow_senders_closed_total", ""] == 9 + 2 + 2
        assert found["firnline_group_members_evicted_total", ""] == 10
        assert found["firnline_group_members_pending", ""] == 0
        assert found["firnline_producers_forgotten_total", ""] == 11
        cache = "kafka_server_fetchsessioncache_"
        assert found[cache + "incrementalfetchsessionevictions_total", ""] == 3
        assert found["firnline_fetch_sessions_refused_total", ""] == 4
        assert found[cache + "numincrementalfetchsessions", ""] == 1
        assert found[cache + "numincrementalfetchpartitionscached", ""] == 2


def test_a_look_at_many_partitions_is_taken_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_metrics, "PARTITIONS_PER_SLICE", 10)
    monkeypatch.setattr(metrics, "PARTITIONS_PER_SLICE", 10)
    harness = Harness()
    harness.create_topic(partitions=95)
    asked: list[object] = []
    with shown(harness) as exporter:
        runtime: Any = exporter._runtime
        ask = runtime.ask
        runtime.ask = lambda work, timeout_s: asked.append(work) or ask(work, timeout_s)  # type: ignore[func-returns-value]
        found = scrape(exporter)
    assert found["kafka_server_replicamanager_partitioncount", ""] == 95
    assert found["kafka_server_replicamanager_leadercount", ""] == 95
    assert len([name for name, _ in found if name == "kafka_log_log_size"]) == 95
    assert len(asked) > 95 / 10


def test_who_asks_for_metrics_and_does_not_go_on_takes_a_few_threads_and_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each had a thread and a descriptor of the node for as long as it liked, and there was no bound."""
    assert metrics_port.ScrapeHandler.timeout == SCRAPE_SILENCE_S
    monkeypatch.setattr(metrics_port.ScrapeHandler, "timeout", 6.0)
    exporter = Exporter(0)
    slow = [socket.create_connection(("127.0.0.1", exporter.port)) for _ in range(40)]
    try:
        for each in slow[SCRAPES_MAX:]:
            each.settimeout(5)
            assert each.recv(1) == b"", "there is no room for it"
        for each in slow[:SCRAPES_MAX]:
            each.settimeout(20)
            assert each.recv(1) == b"", "it said nothing for so long"
        with urllib.request.urlopen(
            f"http://127.0.0.1:{exporter.port}/metrics", timeout=10
        ) as page:
            assert page.status == 200
    finally:
        for each in slow:
            each.close()
        exporter.close()
    assert "Traceback" not in capfd.readouterr().err
