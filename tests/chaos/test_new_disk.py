"""A broker whose disk is taken away comes back on a new one: it follows, joins the ISR, leads again."""

from pathlib import Path

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from tests.chaos.replicas import SETTINGS, await_so
from tests.chaos.workload import PATIENCE_S, SILENT, Workload, read_all, violations
from tests.peers.nodes import BROKER, CONTROLLER, FIRNLINE, Cluster

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
        await_so(lambda: _state(admin).leader == BROKERS[0], "the first replica leads")
        with Workload(cluster.bootstrap, TOPIC, 1) as work:
            work.await_acks(500)
            wiped = cluster[BROKERS[0]]
            wiped.kill()
            await_so(lambda: BROKERS[0] not in _state(admin).isrs, "it is out of the ISR")
            wiped.wipe()
            wiped.start()
            await_so(lambda: sorted(_state(admin).isrs) == list(BROKERS), "it is in sync")
            await_so(lambda: _elected(admin), "it leads again")
            work.await_acks(500)
            work.finish()
        acked = work.acked()
        assert violations(acked, read_all(cluster.bootstrap, TOPIC, 1), work.sent) == []


def _state(admin: AdminClient) -> PartitionMetadata:
    return admin.list_topics(TOPIC, timeout=PATIENCE_S).topics[TOPIC].partitions[0]


def _elected(admin: AdminClient) -> bool:
    admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)]).result(PATIENCE_S)
    return bool(_state(admin).leader == BROKERS[0])
