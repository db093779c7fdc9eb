"""What operators do to one node of several: an old copy of its disk, its id given away, its tier forgotten.

Four nodes with a tier; the first three are the quorum. Records are in three copies, acks=all takes two.
"""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from firnline.client.admin import Admin
from firnline.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from firnline.records.batch import headers
from firnline.testing.cluster import Cluster
from firnline.testing.plugin import TIERED_TOPIC
from tests.chaos.operators import doctor
from tests.chaos.workload import PATIENCE_S, Workload, read_all, violations
from tests.peers.nodes import copy_while_used, eventually
from tests.wire.line import Line

TOPIC = "kept"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    base = tmp_path_factory.mktemp("cluster")
    (base / "tier").mkdir()
    options = ["broker.session.timeout.ms=2000", "broker.heartbeat.interval.ms=300"]
    options += ["initial.broker.registration.timeout.ms=4000"]
    options += ["firnline.new.topics.remote.storage.enable=false"]  # which are tiered, tests say
    found = Cluster(
        base / "nodes",
        nodes=4,
        tier=base / "tier",
        options=[word for each in options for word in ("-X", each)],
    )
    found.start()
    with Admin(found.bootstrap) as admin:
        admin.create_topic(
            TOPIC, partitions=4, replication_factor=3, configs={"min.insync.replicas": "2"}
        )
    found.await_in_sync(TOPIC)
    try:
        yield found
    finally:
        found.kill()


def until(what: str, is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.fixture
def load(cluster: Cluster) -> Iterator[Workload]:
    """Records with acks=all all the while; afterwards each is there once and in order."""
    topic = f"{TOPIC}-{time.monotonic_ns()}"
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(
            topic, partitions=4, replication_factor=3, configs={"min.insync.replicas": "2"}
        )
    cluster.await_in_sync(topic)
    with Workload(cluster.bootstrap, topic, 4) as work:
        work.await_acks(100)
        yield work
        work.await_acks(100)
        work.finish()
    cluster.await_in_sync()
    found = read_all(cluster.bootstrap, topic, 4)
    assert violations(work.acked(), found, work.sent) == []


def home(cluster: Cluster, node_id: int) -> Path:
    return cluster.directory / f"node-{node_id}"


def test_an_old_copy_of_a_disk_costs_nothing_where_others_have_the_records(
    cluster: Cluster, load: Workload
) -> None:
    """The snapshot of a virtual machine: it fetches what it lacks, of the metadata as of the records."""
    node_id = 3  # a voter, and a broker
    data = home(cluster, node_id) / "data"
    cluster.stop_node(node_id)
    shutil.copytree(data, data.with_name("old"))
    cluster.start_node(node_id)
    cluster.await_in_sync()
    load.await_acks(200)
    cluster.kill_node(node_id)
    shutil.rmtree(data)
    data.with_name("old").rename(data)
    cluster.start_node(node_id)
    cluster.await_in_sync()


def test_two_nodes_with_one_id_the_second_is_refused(cluster: Cluster, load: Workload) -> None:
    """A copy of the node's disk, started on another machine: as another port here."""
    copy = cluster.directory.parent / "copy"
    copy_while_used(home(cluster, 4), copy)
    (copy / "data" / ".kafka_cleanshutdown").unlink(missing_ok=True)
    text = (copy / "server.properties").read_text()
    text = re.sub(r"(?m)^listeners=.*$", "listeners=PLAINTEXT://127.0.0.1:0", text)
    text = re.sub(r"(?m)^log.dirs=.*$", f"log.dirs={copy / 'data'}", text)
    (copy / "server.properties").write_text(text)
    command = [sys.executable, "-m", "firnline", "server", "-c", str(copy / "server.properties")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert "another broker with this node.id is running: stop it, or give this one an id" in last
    load.await_acks(100)
    assert cluster.is_running(4)


def test_a_lowered_min_insync_replicas_costs_nothing_while_two_copies_live(
    cluster: Cluster, load: Workload
) -> None:
    """What was acknowledged by two stays in two; from then on one is enough, as the setting says."""
    with Admin(cluster.bootstrap) as admin:
        admin.alter_topic(load.topic, changes={"min.insync.replicas": "1"})
    load.await_acks(100)
    cluster.kill_node(4)
    load.await_acks(200)
    cluster.start_node(4)
    cluster.await_in_sync()


def test_a_broker_without_a_tier_serves_no_tiered_partition_that_it_is_given(
    cluster: Cluster,
) -> None:
    """T61: the others keep it; with its tier it takes it."""
    topic = "tiered"
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(topic, partitions=1, replication_factor=3, configs=TIERED_TOPIC)
    cluster.await_in_sync(topic)
    forgetful = 4
    move(cluster, topic, [1, 2, 3])
    until("it is moved", lambda: set(replicas_of(cluster, topic)[0]) == {1, 2, 3})
    with Workload(cluster.bootstrap, topic, 1) as work:
        work.await_acks(300)
        settings = home(cluster, forgetful) / "server.properties"
        with_tier = settings.read_text()
        cluster.stop_node(forgetful)
        switch = "remote.log.storage.system.enable="
        settings.write_text(with_tier.replace(f"{switch}true", f"{switch}false"))
        cluster.start_node(forgetful)
        move(cluster, topic, [1, 2, forgetful])
        line = f'topic={topic} partition=0 error="its topic is tiered, and this broker has no tier'
        until("it says so", lambda: line in cluster.log_text(forgetful))
        work.await_acks(100)
        assert forgetful not in replicas_of(cluster, topic)[1]
        settings.write_text(with_tier)
        cluster.stop_node(forgetful)
        cluster.start_node(forgetful)
        until("it follows", lambda: forgetful in replicas_of(cluster, topic)[1])
        work.finish()
    found = read_all(cluster.bootstrap, topic, 1)
    assert violations(work.acked(), found, work.sent) == []


def replicas_of(cluster: Cluster, topic: str) -> tuple[list[int], list[int]]:
    """Of its one partition: the replicas, and those in sync."""
    with Admin(cluster.bootstrap) as admin:
        (found,) = admin.metadata([topic]).topics
    part = found.partitions[0]
    return list(part.replica_nodes), list(part.isr_nodes)


def move(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    row = ReassignablePartition(partition_index=0, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[row])]
    )
    with Line(("127.0.0.1", cluster.port(1))) as line:
        answer = line.ask(request, 0)
    assert answer.error_code == 0
    assert all(p.error_code == 0 for t in answer.responses for p in t.partitions), answer


def test_a_replica_that_differs_is_found_and_repaired_as_the_doctor_says(cluster: Cluster) -> None:
    """Damage of before: another record of the right length and checksum, below what is committed."""
    topic = "forked"
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(topic, partitions=1, replication_factor=4, configs={})
    cluster.await_in_sync(topic)
    node_id = (
        4 if cluster.leader_of(topic) != 4 else 3
    )  # a leader that is stopped leads no more: a finding
    with Workload(cluster.bootstrap, topic, 1) as work:
        work.await_acks(200)
        work.finish()
    cluster.await_in_sync(topic)
    at = ("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--newest", "0")
    code, found = doctor(*at)
    assert (code, found["findings"]) == (0, []), found
    assert found["looked_at"]["partitions over the brokers"] == 1
    cluster.stop_node(node_id)
    path = home(cluster, node_id) / "data" / f"{topic}-0"
    offset = fork(next(path.glob("*.log")))
    cluster.start_node(node_id)
    cluster.await_in_sync(topic)
    assert cluster.leader_of(topic) != node_id, "who leads again is decided every five minutes"
    code, found = doctor(*at)
    assert code == 3
    (finding,) = found["findings"]
    assert (finding["kind"], finding["where"]) == ("replicas-differ", f"{topic}-0")
    assert finding["what"].startswith(f"offset {offset}: ")
    assert f"broker {node_id} has" in finding["what"]
    assert "move the partition's directory there away" in finding["remedy"]
    cluster.stop_node(node_id)
    both = ("--data-dir", path.parent, "--data-dir", home(cluster, 1) / "data")

    def is_found() -> bool:
        code, found = doctor(*both, "--topic", topic)
        return (code, [each["kind"] for each in found["findings"]]) == (3, ["replicas-differ"])

    # What is committed stands in a checkpoint that a running broker writes every five seconds.
    eventually("the files differ", is_found)
    path.rename(path.parent.parent / "away")
    cluster.start_node(node_id)
    cluster.await_in_sync(topic)
    until("the copies are the same", lambda: doctor(*at)[0] == 0)

    # A disk changes a byte of a node that was stopped cleanly: a start looks at no old file.
    cluster.stop_node(node_id)
    offset = fork(next(path.glob("*.log")), fits=False)
    cluster.start_node(node_id)
    cluster.await_in_sync(topic)
    code, found = doctor(*at)
    (finding,) = found["findings"]
    assert (code, finding["kind"], finding["where"]) == (3, "replica-damaged", f"{topic}-0")
    assert finding["what"].startswith(f"offset {offset}: ")
    assert re.search(rf"broker {node_id} has .*, damaged: ", finding["what"])
    assert f"stop broker {node_id}, move its directory {topic}-0" in finding["remedy"]


def fork(file: Path, *, fits: bool = True) -> int:
    """Give one batch in the middle another content; return its offset.

    fits  it gets the checksum of that, too
    """
    data = bytearray(file.read_bytes())
    found = [*headers(data)]
    batch = found[len(found) // 2]
    end = batch.position + batch.size_bytes
    data[end - 3] ^= 0x01
    if fits:
        begin = batch.position + 21  # what the checksum covers
        data[begin - 4 : begin] = crc32c(bytes(data[begin:end])).to_bytes(4, "big")
    file.write_bytes(data)
    return batch.base_offset
