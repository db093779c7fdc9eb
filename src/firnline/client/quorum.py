"""The metadata quorum as its leader describes it, asked through a broker or a controller. WORLD.

A broker forwards the request. A controller that is not the leader says who is; then we ask that one. Of
several addresses the first that answers is used. Source: KIP-595, KIP-836, KIP-919.
"""

from typing import Any, NamedTuple

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import METADATA_TOPIC, ZERO_UUID, uuid_text
from firnline.client.connection import (
    Connection,
    NoAnswer,
    NoController,
    Unreachable,
    first_to_answer,
    parse_address,
)
from firnline.client.deadline import Deadline
from firnline.client.wire import refuse
from firnline.protocol.messages.k55_describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from firnline.protocol.messages.k60_describe_cluster import DescribeClusterRequest

_BROKERS, _CONTROLLERS = 1, 2
_RETRY_S = 0.2
_ANSWER_S = 5.0
# Errors during an election, or before its result is known.
_LATER = (Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_CONTROLLER, Code.REQUEST_TIMED_OUT)


class ReplicaRow(NamedTuple):
    """One member of the quorum. Times are ms since 1970 on the leader's clock, -1 for never."""

    node_id: int
    role: str
    log_end_offset: int
    lag: int
    last_fetch_ms: int
    last_caught_up_ms: int
    address: str
    directory_id: str


class QuorumInfo(NamedTuple):
    """The quorum at one moment, as its leader sees it."""

    cluster_id: str
    leader_id: int
    epoch: int
    high_watermark: int
    now_ms: int
    replicas: list[ReplicaRow]


def describe_quorum(
    bootstrap: str,
    *,
    is_controller: bool,
    timeout_s: float = 10.0,
    deadline: Deadline | None = None,
) -> QuorumInfo:
    """Ask for the state of the quorum; addresses of brokers or of controllers, separated by commas.

    Retries until `timeout_s` is over, or until `deadline`, while there is no leader. Raises Unreachable when
    no address answers, NoController when there still is no leader, KafkaError for a refusal.
    """
    addresses = [parse_address(text.strip()) for text in bootstrap.split(",") if text.strip()]
    if not addresses:
        raise Unreachable("no address given")
    until = deadline or Deadline(timeout_s)
    while True:
        connections = [Connection(*each, timeout_s=_ANSWER_S, deadline=until) for each in addresses]
        first = first_to_answer(connections, wait_s=until.left_s())
        try:
            return _ask(first, until, is_controller=is_controller)
        except KafkaError as problem:
            if problem.code not in _LATER:
                raise
            until.pause(_RETRY_S)
            if until.is_over:
                raise NoController(str(problem)) from None
        finally:
            for each in connections:
                each.close()


def _ask(first: Connection, until: Deadline, *, is_controller: bool) -> QuorumInfo:
    kind = _CONTROLLERS if is_controller else _BROKERS
    cluster = first.ask(DescribeClusterRequest(endpoint_type=kind))
    refuse(cluster.error_code, cluster.error_message, "the cluster")
    if not is_controller:
        return state_of(first, cluster.cluster_id)
    for each in cluster.brokers:
        if each.broker_id == cluster.controller_id:
            with Connection(each.host, each.port, timeout_s=_ANSWER_S, deadline=until) as leader:
                return state_of(leader, cluster.cluster_id)
    raise KafkaError(Code.NOT_CONTROLLER, "no active controller is known")


def state_of(asked: Connection, cluster_id: str, *, timeout_s: float | None = 35.0) -> QuorumInfo:
    """Ask a node that leads the quorum, or a broker, which forwards the question and may wait for that.

    timeout_s  None: that of the connection
    """
    partition = DescribeQuorumPartition(partition_index=0)
    topic = DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=[partition])
    try:
        answer = asked.ask(DescribeQuorumRequest(topics=[topic]), timeout_s=timeout_s)
    except NoAnswer:
        # It answered the question before at once: now it waits for a controller to forward this one to.
        raise NoController(f"{asked.address} found none that answers in time") from None
    refuse(answer.error_code, answer.error_message, "the metadata quorum")
    ((part,),) = ([*each.partitions] for each in answer.topics)
    refuse(part.error_code, part.error_message, "the metadata quorum")
    addresses = {
        node.node_id: f"{listener.host}:{listener.port}"
        for node in answer.nodes
        for listener in node.listeners[:1]
    }
    voters = [
        (row, "leader" if row.replica_id == part.leader_id else "follower")
        for row in sorted(part.current_voters, key=lambda row: row.replica_id)
    ]
    observers = sorted(part.observers, key=lambda row: row.replica_id)
    everybody = voters + [(row, "observer") for row in observers]
    leader = next((row for row, role in everybody if role == "leader"), None)
    end_offset = part.high_watermark if leader is None else leader.log_end_offset
    return QuorumInfo(
        cluster_id=cluster_id,
        leader_id=part.leader_id,
        epoch=part.leader_epoch,
        high_watermark=part.high_watermark,
        now_ms=-1 if leader is None else leader.last_caught_up_timestamp,
        replicas=[_row(row, role, end_offset, addresses) for row, role in everybody],
    )


def _row(row: Any, role: str, end_offset: int, addresses: dict[int, str]) -> ReplicaRow:
    return ReplicaRow(
        node_id=row.replica_id,
        role=role,
        log_end_offset=row.log_end_offset,
        lag=max(0, end_offset - row.log_end_offset),
        last_fetch_ms=row.last_fetch_timestamp,
        last_caught_up_ms=row.last_caught_up_timestamp,
        address=addresses.get(row.replica_id, ""),
        directory_id=(
            "" if row.replica_directory_id == ZERO_UUID else uuid_text(row.replica_directory_id)
        ),
    )
