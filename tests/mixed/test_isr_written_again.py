"""What a controller makes of an AlterPartition that asks for the ISR as it is: Kafka's, and ours.

A leader ends its own late requests by it (decision 0020): a list in another order is written down by both,
the same list by ours alone.
"""

from pathlib import Path

import pytest

from firnline.base.errors import Code
from firnline.metadata.image import ClusterImage, PartitionImage
from firnline.protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from firnline.protocol.messages.k56_alter_partition import (
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
    ProposedPartition,
)
from tests.mixed.sameness import read_disk
from tests.peers.nodes import BROKER, CONTROLLER, FIRNLINE, KAFKA, QUICK, Cluster, eventually
from tests.wire.line import Line

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]
ALTER_VERSION = 3


@pytest.mark.parametrize("kind", [KAFKA, FIRNLINE])
def test_another_order_of_the_isr_has_a_new_partition_epoch(tmp_path: Path, kind: str) -> None:
    members = [(kind, CONTROLLER), (FIRNLINE, BROKER), (FIRNLINE, BROKER)]
    with Cluster(tmp_path, members, QUICK) as cluster:
        decider, leader = cluster.controllers[0], cluster.brokers[0]
        ids = [node.node_id for node in cluster.brokers]
        row = CreatableReplicaAssignment(partition_index=0, broker_ids=ids)
        new = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[row])
        with Line(leader.address) as line:
            [made] = line.ask(CreateTopicsRequest(topics=[new], timeout_ms=30_000), 7).topics
        assert made.error_code == 0, made

        def image() -> ClusterImage:
            disk = read_disk("leader", leader.metadata, is_cut=True)
            return disk.image_at(disk.end[1])

        def partition() -> PartitionImage:
            return image().topics_by_name["t"].partitions[0]

        def is_complete() -> bool:
            return "t" in image().topics_by_name and set(partition().isr) == set(ids)

        eventually("both are in sync", is_complete)

        def asks(isr: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
            """Ask in the leader's name, and return (ISR, partition epochs more than before)."""
            brokers, now = image().brokers, partition()
            assert now.leader == leader.node_id
            proposed = ProposedPartition(
                partition_index=0,
                leader_epoch=now.leader_epoch,
                new_isr_with_epochs=[
                    BrokerState(broker_id=each, broker_epoch=brokers[each].epoch) for each in isr
                ],
                partition_epoch=now.partition_epoch,
            )
            request = AlterPartitionRequest(
                broker_id=leader.node_id,
                broker_epoch=brokers[leader.node_id].epoch,
                topics=[AlterPartitionTopic(topic_id=made.topic_id, partitions=[proposed])],
            )
            with Line(decider.address) as line:
                answer = line.ask(request, ALTER_VERSION)
            assert answer.error_code == 0, Code(answer.error_code)
            (part,) = answer.topics[0].partitions
            assert part.error_code == 0, Code(part.error_code)
            eventually(
                "the leader has heard",
                lambda: partition().partition_epoch == part.partition_epoch,
            )
            return tuple(part.isr), part.partition_epoch - now.partition_epoch

        as_it_is = partition().isr
        assert asks(as_it_is) == (as_it_is, 0 if kind == KAFKA else 1)
        reversed_isr = as_it_is[::-1]
        assert asks(reversed_isr) == (reversed_isr, 1)
        assert reversed_isr != as_it_is
