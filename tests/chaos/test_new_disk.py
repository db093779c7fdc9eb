"""A broker whose disk is taken away comes back on a new one: it follows, joins the ISR, leads again."""

import contextlib
from pathlib import Path

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.replicas import SETTINGS
from tests.chaos.workload import PATIENCE_S, SILENT, Workload, read_all, violations
from tests.peers.nodes import BROKER, CONTROLLER, FIRNLINE, Cluster, eventually
from tests.peers.topics import await_partition, is_complete, partitions_of

TOPIC = "wiped"
BROKERS = (2, 3, 4)


def test_a_broker_on_a_new_disk_leads_again(tmp_path: Path) -> None:
    """Its directory has another id: the controller lets it lead once it was told (KIP-858)."""
    members = [(FIRNLINE, CONTROLLER), *[(FIRNLINE, BROKER)] * 3]
    with Cluster(tmp_path, members, SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **SILENT})
        config = {"min.insync.replicas": "2"}
        assignment = [list(BROKERS)]
        topic = NewTopic(TOPIC, 1, replica_assignment=assignment, config=config)
        admin.create_topics([topic])[TOPIC].result(PATIENCE_S)
        await_partition(admin, TOPIC, lambda it: it.leader == BROKERS[0])
        with Workload(cluster.bootstrap, TOPIC, 1) as work:
            work.await_acks(500)
            wiped = cluster[BROKERS[0]]
            wiped.kill()
            await_partition(admin, TOPIC, lambda it: BROKERS[0] not in it.isrs)
            wiped.wipe()
            wiped.start()
            await_partition(admin, TOPIC, is_complete)
            eventually("it leads again", lambda: _elected(admin), within_s=PATIENCE_S)
            work.await_acks(500)
            work.finish()
        acked = work.acked()
        assert violations(acked, read_all(cluster.bootstrap, TOPIC, 1), work.sent) == []


def _elected(admin: AdminClient) -> bool:
    with contextlib.suppress(KafkaException):
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)]).result(PATIENCE_S)
    return any(each.leader == BROKERS[0] for each in partitions_of(admin, TOPIC).values())
