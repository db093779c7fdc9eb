"""Prometheus evaluates our alert rules: on pages of real nodes, well and dead, and of nodes in trouble.

Three nodes are asked for their pages while all is well, after one was killed, and after two. Troubles that
would cost minutes are made of the page on which all is well: one value of it changes. What a metric is in its
trouble, tests of that metric show; here it is whether the alert selects what a real page has, fires, and is
quiet otherwise.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from firnline.testing.cluster import Cluster
from tests.chaos.test_operator_status import Nodes, load, metrics_in
from tests.dashboards import page
from tests.peers import promtool
from tests.peers.kafka import PeerMissing
from tests.peers.nodes import eventually
from tests.peers.ports import free_ports_in_a_row

pytestmark = [pytest.mark.slow, pytest.mark.peer]
RULES = Path(__file__).parents[2] / "deploy/prometheus/alerts.yml"
NODES = 3
_WELL_MIN, _TROUBLE_MIN = 10, 45
_JOB = "firnline"
Page = dict[str, float]  # by series, as Prometheus writes it
# By alert, what changes on a page on which all is well: the metric, labels that it has there, and the value.
TROUBLES: Mapping[str, Sequence[tuple[str, dict[str, str], float]]] = {
    "FirnlineOfflinePartitions": [("kafka_controller_kafkacontroller_offlinepartitionscount", {}, 1)],
    "FirnlineUnderMinIsr": [("kafka_server_replicamanager_underminisrpartitioncount", {}, 1)],
    "FirnlineLogDirectoryOffline": [("kafka_log_logmanager_offlinelogdirectorycount", {}, 1)],
    "FirnlineAppendsFail": [("firnline_failed_appends_total", {}, 3)],
    "FirnlineDiskNearlyFull": [("firnline_disk_free_bytes", {}, 1)],
    "FirnlineLoopHeldUp": [("firnline_loop_held_up_seconds", {}, 3)],
    "FirnlineBusy": [("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", {}, 0.05)],
    "FirnlineTierStoreFails": [("firnline_tier_store_open", {"operation": "copy"}, 1)],
    "FirnlineTierStoreUnanswered": [("firnline_tier_store_unanswered_seconds", {}, 20)],
    "FirnlineTierSegmentsUnexplained": [("firnline_tier_unexplained_segments", {"topic": "tiered"}, 2)],
    "FirnlineTierCopiesBehind": [("firnline_tier_copy_lag_seconds", {"topic": "tiered"}, 700)],
    "FirnlineTierLocalBytesOverdue": [("firnline_tier_local_overdue_bytes", {"reason": "not copied"}, 1)],
    "FirnlineSnapshotsFail": [("firnline_metadata_snapshots_failed_total", {}, 1)],
    "FirnlineSnapshotDamaged": [
        ("firnline_metadata_snapshots_damaged", {}, 1),
        ("firnline_metadata_lacks_promised_records", {}, 1),
    ],
    "FirnlineControllerUnknown": [
        ("kafka_server_raft_metrics_current_leader", {}, -1),
        ("firnline_problems", {"kind": "no-leader"}, 1),
    ],
    "FirnlineProblem": [
        ("firnline_problems", {"kind": "disk-silent"}, 1),
        ("firnline_problems", {"kind": "clock-doubted"}, 1),
        ("firnline_problems", {"kind": "tier-copies-fail"}, 1),
    ],
}  # fmt: skip
ONE_DEAD = {"FirnlineNodeDown", "FirnlineBrokerFenced", "FirnlineUnderReplicated"}
TWO_DEAD = {"FirnlineNodeDown", "FirnlineNoController", "FirnlineControllerUnknown"}
ALL_DEAD = {"FirnlineNodeDown", "FirnlineNoController"}
NOBODY_ASKED = {"FirnlineNotScraped", "FirnlineNoController"}
# What depends on the machine that runs the test: a loop that was held up, a disk that is full.
_OF_THE_MACHINE = {
    "firnline_loop_held_up_seconds": 0.0,
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": 1.0,
}


def rules() -> dict[str, Any]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def delay_min(alert: str) -> int:
    """How long its trouble lasts before it fires, in minutes."""
    text = rules()[alert].get("for", "0m")
    return math.ceil(int(text[:-1]) / (60 if text.endswith("s") else 1))


class Pages:
    """What Prometheus would have of three nodes, at three moments."""

    def __init__(self, nodes: Nodes, port: int) -> None:
        self._port = port
        named = {name for rule in rules().values() for name in metrics_in(rule["expr"])}
        self._names = named | ONE_DEAD_SERIES.keys() | TWO_DEAD_SERIES.keys()
        eventually("all is well", nodes.well, within_s=90)
        self.well: Page = eventually(
            "and stays so", lambda: self._having({}, (), without=_FOR_A_MOMENT), within_s=90
        )
        nodes.cluster.kill_node(3)
        self.one_dead: Page = eventually(
            "others lead, and say it",
            lambda: self._having(ONE_DEAD_SERIES, (3,), without=_FOR_A_MOMENT),
            within_s=90,
        )
        nodes.cluster.kill_node(2)
        self.two_dead: Page = eventually(
            "the last one has no leader", lambda: self._having(TWO_DEAD_SERIES, (2, 3)), within_s=90
        )
        self.all_dead = {_series("up", {}, f"node-{n}"): 0.0 for n in (1, 2, 3)}

    def _taken(self, dead: Sequence[int]) -> Page:
        found: Page = {}
        for node in range(1, NODES + 1):
            at = f"node-{node}"
            found[_series("up", {}, at)] = float(node not in dead)
            if node in dead:
                continue
            for each in page(self._port + node - 1):
                if each.name in self._names and not math.isnan(each.value):
                    value = _OF_THE_MACHINE.get(each.name, each.value)
                    if each.name == "firnline_disk_free_bytes":
                        value = 1e30
                    found[_series(each.name, each.labels, at)] = value
        return found

    def _having(
        self, wanted: Mapping[str, str], dead: Sequence[int], without: Sequence[str] = ()
    ) -> Page | None:
        """The pages, once one of them has each of these series above 0, and none has a problem `without`."""
        found = self._taken(dead)
        if any(f'kind="{kind}"' in s and v > 0 for s, v in found.items() for kind in without):
            return None
        has = [
            any(s.startswith(name) and label in s and v > 0 for s, v in found.items())
            for name, label in wanted.items()
        ]
        return found if all(has) else None


ONE_DEAD_SERIES = {
    "kafka_controller_kafkacontroller_fencedbrokercount": "",
    "kafka_server_replicamanager_underreplicatedpartitions": "",
}
# What a node reports while others take over; a page is stretched over most of an hour.
_FOR_A_MOMENT = ("disk-silent", "tier-copies-fail")
TWO_DEAD_SERIES = {"firnline_problems": 'kind="no-leader"'}


def _series(name: str, labels: Mapping[str, str], instance: str) -> str:
    every = {**labels, "instance": instance, "job": _JOB}
    return name + "{" + ",".join(f'{k}="{v}"' for k, v in sorted(every.items())) + "}"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    try:
        promtool.fetch()
    except PeerMissing as problem:
        pytest.skip(f"NOT RUN: {problem}")
    home = tmp_path_factory.mktemp("alerts")
    port = free_ports_in_a_row(NODES)
    settings = {
        "firnline.metrics.port": port,
        "remote.log.manager.task.interval.ms": 500,
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
    }
    cluster = Cluster(home / "c", nodes=NODES, tier=home / "tier", settings=settings)
    cluster.start()
    try:
        nodes = Nodes(cluster, port)
        for name, more in (("t", ()), ("tiered", ("-c", "remote.storage.enable=true"))):
            made = nodes.run("topic", "create", name, "-p", "3", "--replication-factor", "3", *more)
            assert made.returncode == 0, made.stderr
        load(cluster)
        yield Pages(nodes, port)
    finally:
        cluster.kill()


def changed(well: Page, metric: str, labels: Mapping[str, str], value: float) -> Page:
    """The page with another value of one series; it has that series."""
    for series in well:
        if series.startswith(metric + "{") and all(
            f'{k}="{v}"' in series for k, v in labels.items()
        ):
            return {**well, series: value}
    raise AssertionError(f"no real page has {metric} with {labels}")


def story(well: Page, trouble: Page, expected: set[str], after_min: int, *, only: bool) -> Any:
    """A test for promtool: ten minutes all is well, then trouble; the alerts that fire `after_min` later.

    only  look at the expected alerts alone
    """
    rows = []
    for series in well.keys() | trouble.keys():
        before = f"{well[series]!r}+0x{_WELL_MIN - 1}" if series in well else f"_x{_WELL_MIN}"
        value = trouble.get(series)
        after = f"stale _x{_TROUBLE_MIN}" if value is None else f"{value!r}+0x{_TROUBLE_MIN}"
        rows.append({"series": series, "values": f"{before} {after}"})
    chosen = f',alertname=~"{"|".join(sorted(expected))}"' if only else ""
    firing = 'group by (alertname) (ALERTS{alertstate="firing"' + chosen + "})"
    fires = [{"labels": f'{{alertname="{each}"}}', "value": 1} for each in sorted(expected)]
    return {
        "interval": "1m",
        "input_series": rows,
        "promql_expr_test": [
            {"expr": firing, "eval_time": f"{_WELL_MIN - 1}m", "exp_samples": []},
            {"expr": firing, "eval_time": f"{_WELL_MIN + after_min}m", "exp_samples": fires},
        ],
    }


def assert_passes(tmp_path: Path, *stories: Any) -> None:
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": list(stories)}))
    done = promtool.run("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_rules(pages: Pages) -> None:
    done = promtool.run("check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_fired_below(pages: Pages) -> None:
    shown = TROUBLES.keys() | ONE_DEAD | TWO_DEAD | ALL_DEAD | NOBODY_ASKED
    assert shown == rules().keys()


@pytest.mark.parametrize("alert", TROUBLES)
def test_it_fires_in_its_trouble_and_no_other_does(
    pages: Pages, tmp_path: Path, alert: str
) -> None:
    well = pages.well
    after_min = delay_min(alert) + 2
    troubles = [changed(well, *each) for each in TROUBLES[alert]]
    assert_passes(tmp_path, *(story(well, t, {alert}, after_min, only=False) for t in troubles))


def test_all_are_quiet_while_all_is_well(pages: Pages, tmp_path: Path) -> None:
    assert_passes(tmp_path, story(pages.well, pages.well, set(), _TROUBLE_MIN - 1, only=False))


def test_a_node_that_is_dead_is_noticed(pages: Pages, tmp_path: Path) -> None:
    after_min = _TROUBLE_MIN - 1
    assert_passes(tmp_path, story(pages.well, pages.one_dead, ONE_DEAD, after_min, only=False))


def test_a_quorum_that_is_lost_is_noticed(pages: Pages, tmp_path: Path) -> None:
    """The last controller told the leader that was dead; the alert looked at that alone."""
    assert_passes(tmp_path, story(pages.well, pages.two_dead, TWO_DEAD, 4, only=True))


def test_a_cluster_that_is_dead_is_noticed(pages: Pages, tmp_path: Path) -> None:
    """No series was left, and a sum of none is none: all alerts were quiet."""
    assert_passes(tmp_path, story(pages.well, pages.all_dead, ALL_DEAD, 6, only=False))


def test_a_prometheus_that_asks_nobody_says_so(pages: Pages, tmp_path: Path) -> None:
    assert_passes(tmp_path, story(pages.well, {}, NOBODY_ASKED, 12, only=False))
