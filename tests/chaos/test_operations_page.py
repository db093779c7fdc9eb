"""The table of symptoms in docs/OPERATIONS.md: each trouble is made, and the commands of its row are run.

One cluster of three nodes for all tests of the file, in their order: first all is well, then a store fails, a
node hangs, two nodes die, and all come back. The transcripts of the page are compared where they belong.
"""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from firnline.server.broker_metrics.reference import printed_on
from firnline.testing import Broker, Cluster
from tests import pages
from tests.chaos.image import CannotMount, in_memory, why_not
from tests.metrics_page import families_at
from tests.peers.nodes import eventually
from tests.peers.ports import free_ports, free_ports_in_a_row
from tests.peers.tools import shared
from tests.transcripts import run_transcript, steps
from tests.unit.cli.test_operations_page import METRIC, PAGE
from tests.unit.cli.tree import ALL

pytestmark = pytest.mark.slow
NODES = 3
ROWS = {row[0]: row[1:] for row in pages.rows_of(PAGE, "| you see |")}
# Rows that are not made here, by their beginning, and why. What the prose about damaged replicas and leader
# epochs says is run in the tests that LOST_BROKER of tests/unit/cli/test_operations_page.py names.
NOT_MADE = {
    "a node does not start": "each refusal is a test in test_operator_*.py",
    "`controller N: ...`": "tests/unit/cli/test_cluster.py and tests/unit/api/test_health.py make it",
    "`the log directory DIR has failed`": "tests/unit/broker/test_failing_disks.py makes it",
}
MADE: set[str] = set()
RAN: list[list[str]] = []  # commands of ours, without the word firnline
# Commands that the tests here do not run, by their beginning, and where they are run.
RUN_ELSEWHERE = {
    "dev": "tests/chaos/test_dev_and_its_tier.py, tests/unit/cli/test_dev_options.py",
    "storage format": "tests/chaos/test_operator_directories.py, examples/cluster/README.md",
    "tier check": "tests/unit/cli/test_tier_check.py, tests/compat/test_stores.py",
    "broker unregister": "tests/compat/test_operations.py, where a broker is gone for good",
}
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

    def is_well(self) -> None:
        """Wait until status says so. A node that was held up by other work tells of it for a minute."""
        said = "firnline cluster status"
        eventually("all is well", lambda: "all is well" in self.run(said, 0, 3), within_s=100)

    def transcript(self, heading: str, begins: str = "", **replaced: str) -> None:
        """Run the transcripts of a section of the page, or the one that begins with a command.

        Numbers, names that contain one, and the width of columns are not compared.
        """
        section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        found = [each for each in pages.fenced(section, "console") if begins in each]
        assert found, heading
        ports = {f"2909{1 + n}": str(self.cluster.port(n)) for n in self.cluster.node_ids}
        place, shell = self.cluster.directory, self.environment
        for block in found:
            RAN.extend(pages.ours("\n".join(step.command for step in steps(block))))
            run_transcript(
                block, place, shell,
                replaced=ports | replaced, within_s=100, are_numbers_compared=False,
            )  # fmt: skip


def shell_at(bootstrap: str, bin_: Path) -> dict[str, str]:
    """A shell in which `firnline` is ours, and asks these brokers."""
    bin_.mkdir(exist_ok=True)
    program = bin_ / "firnline"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m firnline "$@"\n')
    program.chmod(0o755)
    path = f"{bin_}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "FIRNLINE_BOOTSTRAP": bootstrap}


def run(command: str, environment: dict[str, str], *codes: int) -> str:
    RAN.extend(pages.ours(command))
    done = subprocess.run(
        ["bash", "-c", command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,  # some wait until all is well: a node that was held up tells of it for a minute
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode in (codes or (0,)), f"$ {command}\n{said}"
    assert "Traceback" not in said, said
    return said


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("page")
    port = free_ports_in_a_row(3)  # the nodes have this one and the next ones
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
    site.is_well()
    site.transcript("What to look at")


def test_every_metric_of_the_page_is_on_the_page_of_a_node(site: Site) -> None:
    named = {
        re.sub(r"_(?:total|bucket)$", "", name)
        for span in pages.in_code(PAGE)
        for name in METRIC.findall(span)
        if name.startswith(("firnline_", "kafka_", "python_"))
    }
    assert len(named) > 30
    for node in range(NODES):
        at = f"http://127.0.0.1:{site.metrics_port + node}/metrics"
        there = families_at(at)
        assert named - there == set()
        assert there == {*printed_on()["tier"]}, "docs/reference/metric-families.md has them"


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


def test_a_record_in_the_tier_is_explained(site: Site) -> None:
    tier = {"/mnt/tier": str(site.cluster.tier)}
    site.transcript("The tier", "$ firnline tier explain", **tier)
    written = site.run("firnline tier metadata")
    assert "state=COPY_SEGMENT_FINISHED" in site.run("firnline tier metadata --of orders-0")
    assert "orders-0" in written


def test_a_lease_of_a_topic_is_ended(site: Site) -> None:
    (command,) = [c for c in pages.in_code(PAGE) if c.endswith("--unset firnline.retention.leases")]
    lease = f"job-1:{int(time.time() * 1000) + 3_600_000}"
    site.run(f"firnline config alter --topic orders --any-key firnline.retention.leases={lease}")
    described = "firnline topic describe orders"
    eventually("the lease is shown", lambda: f"leases={lease}" in site.run(described))
    assert site.run(command.replace("NAME", "orders")) == "altered orders\n"
    eventually("the lease has ended", lambda: lease not in site.run(described))
    (command,) = [c for c in pages.in_code(PAGE) if "--set remote.storage" in c]
    assert site.run(command.replace("TOPIC", "orders")) == "altered orders\n"


def test_what_kafkas_scripts_have(site: Site) -> None:
    site.transcript("Commands that Kafka's scripts have")


@pytest.mark.peer
def test_kafkas_tool_gives_records_up_as_the_page_says(site: Site) -> None:
    """Of offsets that are not there, so that nothing is lost."""
    (line,) = [
        each for each in pages.shell_of(PAGE).splitlines() if each.startswith("kafka-configs")
    ]
    tool, *words = shlex.split(line)
    values = {
        "...": site.cluster.bootstrap,
        "P:OFFSET": "0:1000001",
        "P:FIRST-LAST": "1:1000002-1000003",
    }
    for name, value in values.items():
        words = [word.replace(name, value) for word in words]
    assert "Completed updating" in shared().use(tool.removeprefix("kafka-"), *words)
    found = site.run("firnline config describe --broker-defaults")
    assert "0:1000001,1:1000002-1000003" in found


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
        gives_up = "does not copy segments"
        eventually("it gives up", lambda: gives_up in site.run("firnline tier status", 3))
        site.transcript("The tier", "$ firnline tier status")
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
    site.logged("controller changed controller=none")
    refused = site.run("echo x | firnline produce risky --timeout 2", 1)  # with an ISR of one, too
    assert "broker 3, which leads partition 0, is not there: cannot reach a broker at" in refused
    site.transcript("When controllers are lost")
    began_s = time.monotonic()
    assert "no-controller" in site.run("firnline doctor --watch 0 --newest 0", 3)
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
    (grep,) = [each for each in pages.in_code(PAGE) if each.startswith("grep ")]
    for of_page, here in (("topic=orders", "topic=risky"), ("partition=3", "partition=0")):
        assert of_page in grep
        grep = grep.replace(of_page, here)
    told = site.run(f"cd {site.cluster.directory} && {grep}")
    assert "partition offline" in told
    assert "unclean election" in told
    site.run("echo other | firnline produce risky")


def test_after_a_crash_the_node_cuts_what_was_lost(site: Site) -> None:
    Row("after a crash")
    Row("consumers see other records")
    site.cluster.start_node(3)
    site.logged("logs recovered .*bytes_cut=")
    site.logged("log truncated log=risky-0 ")
    (wait,) = [line for line in pages.shell_of(PAGE).splitlines() if line.startswith("until ")]
    site.run(wait)


def test_epochs_have_run_out_and_begin_again_at_a_lower_one(site: Site) -> None:
    """What 'When epochs run out' does to all nodes, with numbers that are not at their end."""
    site.run("firnline topic describe --under-replicated", 0)
    site.cluster.stop()
    ends: dict[Path, int] = {}
    for node_id in site.cluster.node_ids:
        place = site.cluster.directory / f"node-{node_id}" / "data"
        assert "damage" not in site.run(f"firnline dump {place}")
        newest = max((place / "__cluster_metadata-0").glob("*.log"))
        last = site.run(f"firnline dump --batches {newest}").splitlines()[-1]
        (epoch,) = re.findall(r"leader_epoch\D+(\d+)", last)
        ends[newest.with_name("quorum-state")] = int(epoch)
    epoch = max(ends.values())
    for path in ends:
        state = json.loads(path.read_text())
        assert {"leaderEpoch", "leaderId", "votedId"} <= state.keys()
        path.write_text(json.dumps({**state, "leaderEpoch": epoch, "leaderId": -1, "votedId": -1}))
    site.cluster.start()
    site.is_well()
    (now,) = re.findall(r"\nepoch +(\d+)\n", site.run("firnline quorum status"))
    assert epoch < int(now) < epoch + 10, "the next one, or a few later after votes that nobody won"


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

                def says(pattern: str) -> bool:
                    said = run("firnline cluster status", environment, 0, 3)
                    return re.search(pattern, said) is not None

                def fails() -> bool:  # the first three seconds may not be enough to fill it
                    run(f"{many} | firnline produce t {small}", environment, 1)
                    return says(r"appends to t fail: \d+ so far")

                eventually("appends fail", fails)
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


def parts_of(words: list[str]) -> tuple[list[str], set[str]]:
    """Return the names of a command, and its options."""
    names = [word for word in words if re.fullmatch(r"[a-z][a-z-]*", word)]
    known = [" ".join(names[:n]) for n in (3, 2, 1) if " ".join(names[:n]) in ALL]
    return known[0].split() if known else names[:1], {w for w in words if w.startswith("-")}


def test_every_command_of_the_page_was_run() -> None:
    """With the options that the page gives it. The tests above have run, in this order."""
    ran = [parts_of(words) for words in RAN]
    on_page = [*pages.ours(pages.shell_of(PAGE))]
    for span in pages.in_code(PAGE):
        on_page += pages.ours(span)
    missing = []
    for words in on_page:
        names, options = parts_of(words)
        is_group = not any(known == " ".join(names) for known in ALL)
        if " ".join(words).startswith(tuple(RUN_ELSEWHERE)) or is_group:
            continue
        if not any(names == some and options <= given for some, given in ran):
            missing.append(" ".join(words))
    assert missing == []
    assert len({" ".join(parts_of(words)[0]) for words in on_page}) > 20
