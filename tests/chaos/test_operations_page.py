"""The table of symptoms in docs/OPERATIONS.md: each trouble is made, and the commands of its row are run.

One cluster of three nodes for all tests of the file, in their order: first all is well, then a store fails, a
node hangs, two nodes die, and all come back. The transcripts of the page are compared where they belong.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from firnline.testing import Broker, Cluster
from tests import pages
from tests.chaos.image import CannotMount, in_memory, why_not
from tests.peers.nodes import eventually
from tests.peers.ports import free_ports
from tests.transcripts import run_transcript
from tests.unit.cli.test_operations_page import METRIC, PAGE

pytestmark = pytest.mark.slow
NODES = 3
ROWS = {row[0]: row[1:] for row in pages.rows_of(PAGE, "| you see |")}
# Rows that are not made here, by their beginning, and why.
NOT_MADE = {
    "a node does not start": "each refusal is a test in test_operator_*.py",
    "`controller N: ...`": "tests/unit/cli/test_cluster.py and tests/unit/api/test_health.py make it",
    "`the log directory DIR has failed`": "tests/unit/broker/test_failing_disks.py makes it",
}
MADE: set[str] = set()
SETTINGS = {
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "remote.log.manager.task.interval.ms": 500,
    "num.partitions": 3,
}


class Row:
    """A row of the table: what it tells to run and to look for."""

    def __init__(self, begins: str) -> None:
        (self.see,) = [see for see in ROWS if see.startswith(begins)]
        self.cells = ROWS[self.see]
        MADE.add(self.see)

    def commands(self, **values: str) -> list[str]:
        """Return its commands, with values in place of their words in capitals."""
        spans = [span for cell in self.cells for span in re.findall(r"`([^`]+)`", cell)]
        found = [span for span in spans if pages.ours(span)]
        for name, value in values.items():
            found = [re.sub(rf"\b{name}\b", value, command) for command in found]
        return found


class Site:
    """The cluster, a shell at it, and what its nodes log."""

    def __init__(self, cluster: Cluster, bin_: Path, metrics_port: int) -> None:
        self.cluster, self.metrics_port = cluster, metrics_port
        self.environment = shell_at(cluster.bootstrap, bin_)

    def run(self, command: str, *codes: int) -> str:
        """Run a command line; return what it prints to both ends."""
        return run(command, self.environment, *codes)

    def logged(self, pattern: str) -> str:
        """Wait for a line in the log of any node, and return the last one."""

        def look() -> str | None:
            logs = [self.cluster.log_text(node_id) for node_id in self.cluster.node_ids]
            found = [line for log in logs for line in log.splitlines() if re.search(pattern, line)]
            return found[-1] if found else None

        return str(eventually(f"a line with {pattern}", look))

    def status_says(self, pattern: str) -> str:
        """Wait until `cluster status` says it, and ends with 3."""

        def look() -> str | None:
            said = self.run("firnline cluster status", 0, 3)
            return said if re.search(pattern, said) and "all is well" not in said else None

        return str(eventually(f"status says {pattern}", look))

    def transcript(self, heading: str) -> None:
        """Run the transcripts of a section of the page."""
        section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        found = pages.fenced(section, "console")
        assert found, heading
        ports = {f"2909{1 + n}": str(self.cluster.port(n)) for n in self.cluster.node_ids}
        for block in found:
            place, shell = self.cluster.directory, self.environment
            run_transcript(block, place, shell, replaced=ports, within_s=30)


def shell_at(bootstrap: str, bin_: Path) -> dict[str, str]:
    """A shell in which `firnline` is ours, and asks these brokers."""
    bin_.mkdir(exist_ok=True)
    program = bin_ / "firnline"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m firnline "$@"\n')
    program.chmod(0o755)
    path = f"{bin_}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "FIRNLINE_BOOTSTRAP": bootstrap}


def run(command: str, environment: dict[str, str], *codes: int) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode in (codes or (0,)), f"$ {command}\n{said}"
    assert "Traceback" not in said, said
    return said


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("page")
    (port,) = free_ports(1)  # the nodes have this one and the next ones
    settings = SETTINGS | {"firnline.metrics.port": port}
    cluster = Cluster(home / "c", nodes=NODES, tier=home / "tier", settings=settings)
    cluster.start()
    try:
        made = Site(cluster, home / "bin", port)
        made.run("firnline topic create orders")
        made.run("seq 3000 | firnline produce orders -p 0")
        yield made
    finally:
        cluster.kill()


# ---------------------------------------------------------------------------- all is well


def test_what_to_look_at_when_all_is_well(site: Site) -> None:
    eventually("all is well", lambda: "all is well" in site.run("firnline cluster status", 0, 3))
    site.transcript("What to look at")


def test_every_metric_of_the_page_is_on_the_page_of_a_node(site: Site) -> None:
    named = {
        re.sub(r"_(?:total|bucket)$", "", name)
        for span in pages.in_code(PAGE)
        for name in METRIC.findall(span)
        if name.startswith(("firnline_", "kafka_", "python_"))
    }
    assert len(named) > 30
    there: set[str] = set()
    for node in range(NODES):
        at = f"http://127.0.0.1:{site.metrics_port + node}/metrics"
        with urllib.request.urlopen(at, timeout=30) as answer:
            found = re.findall(r"^# TYPE (\w+)", answer.read().decode(), re.MULTILINE)
        there |= {re.sub(r"_total$", "", name) for name in found}
    assert named - there == set()


def test_no_client_connects(site: Site) -> None:
    (command,) = Row("no client connects").commands()
    for node_id in site.cluster.node_ids:
        site.logged("ready at")
        at = f"127.0.0.1:{site.cluster.port(node_id)}"
        assert "cluster" in site.run(command.replace("HOST:PORT", at), 0, 3)
    (free,) = free_ports(1)
    assert "cannot reach" in site.run(command.replace("HOST:PORT", f"127.0.0.1:{free}"), 1)


def test_nothing_that_is_not_built_is_waited_for(site: Site) -> None:
    assert Row("a client fails at once").commands() == []
    options = {"bootstrap.servers": site.cluster.bootstrap, "transactional.id": "t", "log_level": 0}
    with pytest.raises(Exception, match=r"transactional\.id"):
        Producer(options).init_transactions(20)
    site.logged("client refused host=.* client_id=rdkafka .*do not set transactional.id")


def test_somebody_floods_a_node(site: Site) -> None:
    Row("somebody floods a node")
    for _ in range(60):
        with socket.create_connection(("127.0.0.1", site.cluster.port(1))) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            client.recv(1)
    site.logged(r"request refused host=.*")
    time.sleep(1.5)
    with socket.create_connection(("127.0.0.1", site.cluster.port(1))) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
    site.logged(r"left_out=|lines left out")


def test_a_lag_grows(site: Site) -> None:
    site.run("firnline consume orders -g shop -n 1000 >/dev/null")
    listed, described = (
        site.run(each) for each in Row("the lag of a group").commands(GROUP="shop")
    )
    assert re.search(r"shop .* 2000\n", listed)
    assert re.search(r"orders +0 +1000 +3000 +2000\n", described)
    site.logged("group rebalance began group=shop reason=.* client_id=.* host=")


def test_an_offset_is_not_there_any_more(site: Site) -> None:
    site.run("firnline topic delete-records orders:0 --to-offset 2000 --yes")
    group, topic, reset = Row("a consumer gets OFFSET_OUT_OF_RANGE").commands(
        GROUP="shop", T="orders"
    )
    assert re.search(r"orders +0 +1000 +3000", site.run(group))
    assert re.search(r"\n +0 +ok .* 2000 +3000 +3000 ", site.run(topic))
    site.run(reset)
    assert re.search(r"orders +0 +2000 +3000 +1000\n", site.run(group))


def test_spark_counts_fewer(site: Site) -> None:
    status, flush = Row("Spark counts fewer").commands(T="orders")
    site.run("seq 10 | firnline produce orders -p 0")
    assert "records are not in the tier" in site.run(status)
    assert re.search(r"orders +0 +3010 +3009", site.run(flush))
    assert "not in the tier" not in site.run(status)


def test_metadata_snapshots(site: Site) -> None:
    (command,) = Row("a start takes long").commands()
    assert "none" in site.run(command)
    (take,) = [
        span for span in pages.in_code(PAGE) if span.startswith("firnline quorum snapshots take")
    ]
    site.run(take)
    assert re.search(r"\n +2 +\w+ +\d+", site.run(command))


# ---------------------------------------------------------------------------- the store fails


def test_the_store_of_the_tier_fails(site: Site) -> None:
    row = Row("reads of old records fail")
    (status, *_) = row.commands()
    data = Path(str(site.cluster.tier)) / "data"
    data.rename(data.with_name("aside"))
    data.write_text("a file where the objects should be")
    try:
        site.run("seq 2000 | firnline produce orders -p 0")
        site.run("firnline tier flush orders --timeout 2", 3)
        site.status_says("copies to the tier fail: orders-0: ")
        assert str(data) in site.run(status, 3)
        site.run("firnline consume orders -p 0 -o -1 -n 1")  # what is local is still read
    finally:
        data.unlink()
        data.with_name("aside").rename(data)


# ---------------------------------------------------------------------------- one node hangs


def test_a_node_hangs(site: Site) -> None:
    row = Row("a broker comes and goes")
    stopped = site.cluster.pid(2)
    os.kill(stopped, signal.SIGSTOP)
    try:
        site.status_says("broker 2 does not answer at .*: no answer in time")
        site.logged("broker fenced broker=2")
        site.status_says("broker 2 is fenced, and does not answer at .*: no answer in time")
    finally:
        os.kill(stopped, signal.SIGCONT)
    site.logged("broker unfenced broker=2")
    site.status_says("broker 2: it served nobody for ")
    assert "firnline_loop_longest_step_seconds" in row.cells[0]


# ---------------------------------------------------------------------------- two nodes die


def test_a_replica_less_than_acks_all_needs(site: Site) -> None:
    """One node is stopped. In the next test another is killed: two of three controllers are away then."""
    Row("producers get NOT_ENOUGH_REPLICAS")
    site.run("firnline topic create thin -p 1 -r 3 -c min.insync.replicas=3")
    site.run("firnline topic create risky --replica-assignment 3:2 -c min.insync.replicas=1")
    site.cluster.stop_node(2)
    one, many = "ISR shrunk topic=thin .*", "more ISRs shrunk count=.*"
    site.logged(f'(?:{one}|{many})reason="controlled shutdown"')
    refused = site.run("echo x | firnline produce thin --timeout 2", 1)
    assert "2 of 3 replicas in sync, which may be fewer than min.insync.replicas" in refused
    site.run("seq 100 | firnline produce risky")


def test_no_controller_is_active(site: Site) -> None:
    row = Row("no topic can be created")
    site.cluster.kill_node(3)
    Row("`broker N does not answer`")
    site.status_says("no controller is active")  # the last one may have been it, and resigns soon
    site.logged("controller changed controller=none|the active controller does not answer")
    site.transcript("When controllers are lost")
    began_s = time.monotonic()
    assert "no-controller" in site.run("firnline doctor --watch 0", 3)
    assert time.monotonic() - began_s < 30
    assert row.commands() == ["firnline cluster status"]


def test_a_partition_is_offline_and_an_unclean_election_costs_records(site: Site) -> None:
    row = Row("clients time out on one partition")
    site.cluster.start_node(2)
    site.status_says("broker 3 is fenced, and does not answer at .*: Connection refused")
    site.logged("partition offline topic=risky .*reason=.* isr=3 ")
    describe, elect = row.commands()
    assert re.search(r"risky +0 +offline +none", site.run(describe, 3))
    site.transcript("When a broker is lost")
    site.run(f"{elect} risky:0 --yes")
    site.logged("unclean election topic=risky partition=0 leader=2")
    site.run("echo other | firnline produce risky")


def test_after_a_crash_the_node_cuts_what_was_lost(site: Site) -> None:
    Row("after a crash")
    Row("consumers see other records")
    site.cluster.start_node(3)
    site.logged("logs recovered .*bytes_cut=")
    site.logged("log truncated log=risky-0 ")
    (wait,) = [line for line in pages.shell_of(PAGE).splitlines() if line.startswith("until ")]
    site.run(wait)


# ---------------------------------------------------------------------------- a disk is full


def test_a_disk_is_full(tmp_path: Path) -> None:
    full, filling = Row("producers time out, consumers read on"), Row("`the disk of DIR")
    if reason := why_not():
        pytest.skip(reason)
    try:
        with in_memory(tmp_path / "disk", 12 << 20) as disk:
            broker = Broker(disk / "data", tier=tmp_path / "tier")
            broker.log_file = tmp_path / "broker.log"
            with broker:
                environment = shell_at(broker.bootstrap, tmp_path / "bin")
                run("firnline topic create t -c remote.storage.enable=false", environment)
                many = "head -c 16000000 /dev/zero | tr '\\0' x | fold -w 1000"
                small = "-X batch.size=16384 --timeout 3"
                run(f"{many} | firnline produce t {small}", environment, 1)

                def says(pattern: str) -> bool:
                    said = run("firnline cluster status", environment, 3)
                    return re.search(pattern, said) is not None

                assert says(r"appends to t fail: \d+ so far")
                nearly = rf"the disk of {disk}.*: \d+ of \d+ MiB are free"
                eventually("the disk is called nearly full", lambda: says(nearly))
                for command in [*full.commands(), *filling.commands()]:
                    run(command, environment)
                run("df -h", environment)
                run("firnline consume t -n 1", environment)
                run("firnline topic delete t", environment)
    except CannotMount as problem:
        pytest.skip(str(problem))


def test_every_row_of_the_table_is_made_or_it_is_said_why_not() -> None:
    """The tests above have run, in this order."""
    not_made = {see for see in ROWS if any(see.startswith(begins) for begins in NOT_MADE)}
    assert len(not_made) == len(NOT_MADE)
    assert {*ROWS} == MADE | not_made
