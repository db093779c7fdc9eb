"""Brokers as the cluster knows them, and their directories. WORLD.

Source: KIP-1073 (fenced brokers), KIP-631 (unregister), KIP-113 and KIP-827 (log directories).
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from firnline.base.errors import Code, FirnlineError, KafkaError
from firnline.base.ids import TopicPartition
from firnline.client.admin import Admin
from firnline.client.operations.partitions import at_the_same_time, by_topic
from firnline.client.operations.patience import ask_controller, ask_to_wait
from firnline.client.wire import refuse
from firnline.protocol.messages.k35_describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from firnline.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from firnline.protocol.messages.k64_unregister_broker import UnregisterBrokerRequest

_CODES = frozenset(Code)


class BrokerRow(NamedTuple):
    """One registered broker. is_fenced: None if the cluster does not say, as before Kafka 4.0."""

    broker: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool | None


class ReplicaSize(NamedTuple):
    """One replica in a directory. offset_lag_records: behind the high watermark, or, if it is a future
    replica, behind the one that it is to replace.
    """

    place: TopicPartition
    size_bytes: int
    offset_lag_records: int
    is_future: bool


class Directory(NamedTuple):
    """One log directory; unknown sizes are -1.

    problem  why it cannot be used; or why its broker did not tell, and then the path is ""
    """

    broker: int
    path: str
    problem: str | None
    is_offline: bool
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool
    replicas: list[ReplicaSize]


def list_brokers(admin: Admin) -> list[BrokerRow]:
    """Return the registered brokers by id; fenced ones too, where the cluster tells of them."""
    knows_fenced = admin.first.spoken()[DescribeClusterRequest.key].last >= 2
    answer = admin.first.ask(DescribeClusterRequest(include_fenced_brokers=knows_fenced))
    refuse(answer.error_code, answer.error_message, "the cluster")
    return sorted(
        BrokerRow(
            row.broker_id, row.host, row.port, row.rack, row.is_fenced if knows_fenced else None
        )
        for row in answer.brokers
    )


def unregister(admin: Admin, broker_id: int) -> None:
    """Forget a broker that will not return. KafkaError for one that is alive, or not registered.

    Kafka itself unregisters a live broker, which then serves nothing until it is restarted.
    """
    rows = {row.broker: row for row in list_brokers(admin)}
    row = rows.get(broker_id)
    if row is None:
        there = ", ".join(map(str, rows))
        raise KafkaError(
            Code.BROKER_ID_NOT_REGISTERED,
            f"broker {broker_id} is not registered: there are {there}",
        )
    if not row.is_fenced:
        where = f"broker {broker_id} is alive at {row.host}:{row.port}"
        why = f"{where}: stop it first, and wait until it is fenced"
        raise KafkaError(Code.INVALID_REQUEST, why)

    def ask() -> None:
        request = UnregisterBrokerRequest(broker_id=broker_id)
        answer = ask_to_wait(admin, admin.controller(), request)
        refuse(answer.error_code, answer.error_message, f"broker {broker_id}")

    ask_controller(admin, ask)


def directories(
    admin: Admin, brokers: Collection[int] | None, places: Sequence[TopicPartition] | None
) -> list[Directory]:
    """Return the log directories of live brokers, None for all; with these partitions, None for all.

    A broker that does not answer has one row, with the problem. KafkaError for a broker that is not alive.
    """
    nodes = {
        row.node_id: admin.node(row.node_id, row.host, row.port)
        for row in admin.metadata([]).brokers
    }
    unknown = set(brokers or ()) - set(nodes)
    if unknown:
        there = ", ".join(map(str, sorted(nodes)))
        why = f"no broker {min(unknown)} is alive: there are {there}"
        raise KafkaError(Code.BROKER_NOT_AVAILABLE, why)
    topics = None
    if places is not None:
        topics = [
            DescribableLogDirTopic(topic=name, partitions=indexes)
            for name, indexes in by_topic(places).items()
        ]

    def ask(broker_id: int) -> list[Directory]:
        try:
            answer = nodes[broker_id].ask(DescribeLogDirsRequest(topics=topics))
            refuse(answer.error_code, None, f"broker {broker_id}")
        except FirnlineError as problem:
            return [Directory(broker_id, "", str(problem), False, -1, -1, False, [])]
        return [_directory(broker_id, row) for row in answer.results]

    wanted = sorted(nodes if brokers is None else brokers)
    return [row for found in at_the_same_time(ask, wanted) for row in found]


def _directory(broker_id: int, row: Any) -> Directory:
    code = row.error_code
    problem = (Code(code).name if code in _CODES else f"error code {code}") if code else None
    replicas = [
        ReplicaSize(
            TopicPartition(topic.name, part.partition_index),
            part.partition_size,
            part.offset_lag,
            part.is_future_key,
        )
        for topic in row.topics
        for part in topic.partitions
    ]
    return Directory(
        broker_id,
        row.log_dir,
        problem,
        bool(code),
        row.total_bytes,
        row.usable_bytes,
        row.is_cordoned,
        sorted(replicas),
    )
