"""What the metrics port says of replicas, and of requests to all listeners of a node."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

from firnline.base.counting.times import Times
from firnline.log.recovery import at_once
from firnline.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from firnline.runtime.bounds.admission import Admission
from firnline.runtime.failed_requests import FailedRequests
from firnline.runtime.steps import SlowSteps
from firnline.server import metrics, replica_metrics
from firnline.server.replica_metrics import ReplicaFacts
from tests.unit.broker.test_replication import BROKERS, isr, leader, produce, started
from tests.worlds.cluster import CLIENT_PORT, CONTROLLER_PORT, Rig


def looked(node: Any) -> replica_metrics.ReplicaFacts:
    return at_once(replica_metrics.look(node))


def facts(rig: Rig) -> ReplicaFacts:
    """Of the broker that leads."""
    found = leader(rig)
    assert found is not None
    return looked(rig[found].broker)


def values(found: ReplicaFacts) -> dict[str, float]:
    return {
        sample.name.removeprefix("kafka_server_replicamanager_"): sample.value
        for family in replica_metrics.families(found)
        for sample in family.samples
    }


def test_a_replica_that_falls_out_of_sync_is_counted_and_so_is_its_return() -> None:
    rig = started(min_isr=2)
    produce(rig, "one")
    found = facts(rig)
    assert (found.partitions, found.leaders, found.under_replicated) == (1, 1, 0)
    assert (found.at_min_isr, found.under_min_isr) == (0, 0)
    head = leader(rig)
    assert head is not None
    one, other = (n for n in BROKERS if n != head)
    rig.cut.add((one, head))
    produce(rig, "two", acks=1)  # who has all stays, however silent
    rig.until(lambda: isr(rig) == tuple(sorted((head, other))))
    found = facts(rig)
    assert (found.under_replicated, found.at_min_isr, found.under_min_isr) == (1, 1, 0)
    assert found.changes[:2] == (0, 1)
    rig.cut.add((other, head))
    produce(rig, "three", acks=1)
    rig.until(lambda: isr(rig) == (head,))
    assert (facts(rig).at_min_isr, facts(rig).under_min_isr) == (0, 1)
    rig.cut.clear()
    rig.until(lambda: isr(rig) == BROKERS)
    found = facts(rig)
    assert found.changes == (2, 2, 0)
    assert values(found)["isrexpands_total"] == 2
    assert values(found)["isrshrinks_total"] == 2
    assert values(found)["underreplicatedpartitions"] == 0
    assert values(found)["underminisrpartitioncount"] == 0


def test_a_partition_that_moves_is_counted_as_such_and_not_as_under_replicated() -> None:
    rig = started()
    rig.until(lambda: isr(rig) == BROKERS)
    made = rig.create_topic(4, "t2", replicas=1)
    assert made.error_code == 0
    rig.until(lambda: any(("t2", 0) in rig[n].broker.partitions for n in BROKERS))
    old = next(n for n in BROKERS if ("t2", 0) in rig[n].broker.partitions)
    new = next(n for n in BROKERS if n != old)
    rig.cut.add((new, old))
    wanted = ReassignablePartition(partition_index=0, replicas=[new])
    topic = ReassignableTopic(name="t2", partitions=[wanted])
    request = AlterPartitionReassignmentsRequest(topics=[topic])
    assert rig.ask(old, request, 0).error_code == 0
    rig.until(lambda: looked(rig[old].broker).reassigning == 1)
    assert looked(rig[old].broker).under_replicated == 0
    rig.cut.clear()
    rig.until(lambda: ("t2", 0) not in rig[old].broker.partitions)
    assert looked(rig[new].broker).reassigning == 0


def test_requests_to_all_listeners_of_a_combined_node_are_counted() -> None:
    rig = Rig({1: "controller,broker", 2: "broker"}).start()
    rig.create_topic(1, "t")
    member = rig[1]
    clients = member.dispatchers[CLIENT_PORT + 1][1]
    controllers = member.dispatchers[CONTROLLER_PORT + 1][1]
    counted = SimpleNamespace(evicted=0, refused=0)
    servers = [
        SimpleNamespace(
            dispatcher=each,
            connection_count=1,
            accepted=3,
            listener="PLAINTEXT",
            counted=counted,
            slow_requests=0,
        )
        for each in (controllers, clients, clients)
    ]
    runtime: Any = SimpleNamespace(
        node=member.node,
        dispatcher=clients,
        servers=servers,
        loop=SimpleNamespace(slow_steps=SlowSteps(), timers=(), since_s=0.0, idle_s=0.0),
        delayed=Counter,
        admission=Admission(lambda call: None),
        flush_times=Times(),
        stuck_compactions=0,
        abandoned_threads=0,
        failed_requests=FailedRequests(),
        answers=SimpleNamespace(held_bytes=0, waiting=0, refused=0, slow_readers=0),
        incoming=SimpleNamespace(held_bytes=0, waiting=0, slow_senders=0),
        now_ms=lambda: rig.now_ms,
    )
    rows = {row.name: row.requests for row in at_once(metrics.look(runtime)).requests}
    assert rows["broker_heartbeat"] > 0
    assert rows["create_topics"] == 1
