"""The state of a cluster as its nodes report it: brokers, controllers, partitions, replicas. WORLD.

Uses Kafka's public APIs where they suffice, so this works with Apache Kafka too. Broker and partition epochs,
controlled shutdown and the progress of followers come from an API of our own (ClusterStatus); if a node does
not serve it, they are -1 or None. The part of a node that does not answer is missing.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from firnline.base.errors import FirnlineError, KafkaError
from firnline.base.ids import uuid_text
from firnline.client.admin import EARLIEST, LATEST, Admin
from firnline.client.connection import Connection, NoAnswer, Unreachable
from firnline.client.deadline import Deadline, at_once
from firnline.client.quorum import QuorumInfo, describe_quorum
from firnline.client.wire import refuse
from firnline.protocol.messages.k18_api_versions import ApiVersionsRequest
from firnline.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from firnline.protocol.messages.k32003_cluster_status import ClusterStatusRequest

OK, OFFLINE = "ok", "offline"
UNDER_REPLICATED, UNDER_MIN_ISR = "under-replicated", "under-min-isr"
ALIVE, FENCED, LEAVING = "alive", "fenced", "controlled-shutdown"
# A controller fetches at least every half second.
_SILENT_MS = 10_000
_UNREADABLE_TIMEOUT_S = 2.0


class FollowerStatus(NamedTuple):
    """A replica as the leader knows it. `lag` in records; `behind_ms` since it had everything; -1: never."""

    broker_id: int
    broker_epoch: int
    log_end_offset: int
    lag: int
    behind_ms: int


class PartitionState(NamedTuple):
    """One partition; unknown offsets and epochs are -1."""

    topic: str
    partition: int
    state: str
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    min_insync_replicas: int
    followers: tuple[FollowerStatus, ...]

    @property
    def is_complete(self) -> bool:
        """Does every replica have everything that is committed?"""
        return self.leader >= 0 and len(self.isr) >= len(self.replicas)


class TopicState(NamedTuple):
    """One topic with its partitions, by number."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: list[PartitionState]


class BrokerState(NamedTuple):
    """One registered broker, and what it has. `broker_epoch` is -1 if unknown."""

    broker_id: int
    address: str
    rack: str | None
    state: str
    broker_epoch: int
    leads: int
    replicas: int
    in_sync: int
    offline: int


class ClusterState(NamedTuple):
    """A cluster at one moment; `quorum` is None while it has no leader.

    problems    for people: what is wrong now
    unreadable  records of internal topics that brokers have skipped: (broker, topic, count)
    """

    cluster_id: str
    quorum: QuorumInfo | None
    features: dict[str, int]
    brokers: list[BrokerState]
    topics: int
    partitions: int
    under_replicated: int
    under_min_isr: int
    offline: int
    problems: list[str]
    unreadable: list[tuple[int, str, int]]


# --------------------------------------------------------------------------------- partitions


def describe_topics(admin: Admin, names: Sequence[str] | None) -> list[TopicState]:
    """Return topics with their partitions, by name; None for all. KafkaError for an unknown topic."""
    answer = admin.metadata(names)
    for topic in answer.topics:
        refuse(topic.error_code, None, f"topic {topic.name}")
    topics = sorted(answer.topics, key=lambda topic: str(topic.name))
    reported = _reported_by_leaders(admin, answer, topics)
    return [
        TopicState(
            topic.name,
            uuid_text(topic.topic_id),
            topic.is_internal,
            [
                _partition(topic.name, part, reported.get((topic.name, part.partition_index)))
                for part in sorted(topic.partitions, key=lambda part: int(part.partition_index))
            ],
        )
        for topic in topics
    ]


def _reported_by_leaders(
    admin: Admin, answer: Any, topics: Iterable[Any]
) -> dict[tuple[str, int], dict[str, Any]]:
    """Return what each leader reports of its partitions, from ClusterStatus or else from ListOffsets."""
    led: dict[int, dict[str, list[int]]] = {}
    for topic in topics:
        for part in topic.partitions:
            led.setdefault(part.leader_id, {}).setdefault(topic.name, []).append(
                part.partition_index
            )
    leaders = [
        (admin.node(broker.node_id, broker.host, broker.port), led[broker.node_id])
        for broker in answer.brokers
        if broker.node_id in led
    ]
    deadline = admin.share()

    def ask(leader: tuple[Connection, dict[str, list[int]]]) -> dict[tuple[str, int], Any]:
        node, mine = leader
        try:
            return _status_of(node, sorted(mine), deadline)
        except NoAnswer:
            return {}
        except FirnlineError:
            return _offsets_of(admin, node, mine, deadline)

    return dict(chain.from_iterable(found.items() for found in at_once(ask, leaders)))


def _status_of(
    node: Connection, names: Sequence[str], deadline: Deadline
) -> dict[tuple[str, int], dict[str, Any]]:
    answer = node.ask(ClusterStatusRequest(topics=names, only_led=True), deadline=deadline)
    return {
        (topic.name, part.partition): {
            "partition_epoch": part.partition_epoch,
            "log_start_offset": part.log_start_offset,
            "high_watermark": part.high_watermark,
            "log_end_offset": part.log_end_offset,
            "min_insync_replicas": part.min_insync_replicas,
            "followers": tuple(_follower(each, part.log_end_offset) for each in part.followers),
        }
        for topic in answer.topics
        for part in topic.partitions
    }


def _follower(row: Any, leader_end_offset: int) -> FollowerStatus:
    is_known = row.log_end_offset >= 0 and leader_end_offset >= 0
    lag = max(0, leader_end_offset - row.log_end_offset) if is_known else -1
    return FollowerStatus(row.broker_id, row.broker_epoch, row.log_end_offset, lag, row.behind_ms)


def _offsets_of(
    admin: Admin, node: Connection, mine: dict[str, list[int]], deadline: Deadline
) -> dict[tuple[str, int], dict[str, Any]]:
    """Return what any broker reports; nothing for one that does not answer."""
    reported: dict[tuple[str, int], dict[str, Any]] = {}
    try:
        for name, partitions in sorted(mine.items()):
            starts = admin.offsets(node, name, partitions, EARLIEST, deadline=deadline)
            ends = admin.offsets(node, name, partitions, LATEST, deadline=deadline)
            for index in partitions:
                reported[name, index] = {
                    "log_start_offset": starts.get(index, -1),
                    "high_watermark": ends.get(index, -1),
                }
    except Unreachable:
        pass
    return reported


def _partition(topic: str, part: Any, reported: dict[str, Any] | None) -> PartitionState:
    found = {
        "partition_epoch": -1,
        "log_start_offset": -1,
        "high_watermark": -1,
        "log_end_offset": -1,
        "min_insync_replicas": -1,
        "followers": (),
        **(reported or {}),
    }
    replicas, isr = tuple(part.replica_nodes), tuple(part.isr_nodes)
    if part.leader_id < 0:
        state = OFFLINE
    elif len(isr) < found["min_insync_replicas"]:
        state = UNDER_MIN_ISR
    else:
        state = UNDER_REPLICATED if len(isr) < len(replicas) else OK
    return PartitionState(
        topic=topic,
        partition=part.partition_index,
        state=state,
        leader=part.leader_id,
        leader_epoch=part.leader_epoch,
        replicas=replicas,
        isr=isr,
        offline=tuple(part.offline_replicas),
        **found,
    )


# ------------------------------------------------------------------------------------ cluster


def cluster_state(
    admin: Admin, bootstrap: str, *, timeout_s: float, brokers_min: int = 0
) -> ClusterState:
    """Return the state of the cluster behind `bootstrap`, the addresses that `admin` was made with.

    timeout_s    how long to wait for a leader of the metadata quorum; at most half of the time of `admin`
    brokers_min  fewer alive brokers are a problem

    Raises Unreachable when no address answers.
    """
    cluster = admin.first.ask(DescribeClusterRequest(include_fenced_brokers=True))
    refuse(cluster.error_code, cluster.error_message, "the cluster")
    versions = admin.first.ask(
        ApiVersionsRequest(client_software_name="firnline", client_software_version="1")
    )
    metadata = admin.metadata(None)
    parts = [part for topic in metadata.topics for part in topic.partitions]
    brokers = _brokers(admin, cluster, parts)
    thin = [t.name for t in metadata.topics if any(_is_thin(part) for part in t.partitions)]
    weak = describe_topics(admin, thin) if thin else []
    states = [part.state for topic in weak for part in topic.partitions]
    found = ClusterState(
        cluster_id=cluster.cluster_id,
        quorum=_quorum(bootstrap, admin.share(timeout_s)),
        features={row.name: row.max_version_level for row in versions.finalized_features},
        brokers=brokers,
        topics=len(metadata.topics),
        partitions=len(parts),
        under_replicated=sum(_is_thin(part) for part in parts),
        under_min_isr=states.count(UNDER_MIN_ISR),
        offline=sum(part.leader_id < 0 for part in parts),
        problems=[],
        unreadable=_unreadable(cluster, admin.share(_UNREADABLE_TIMEOUT_S)),
    )
    problems = _problems(found)
    alive = sum(each.state == ALIVE for each in brokers)
    if alive < brokers_min:
        problems.insert(0, f"{alive} of {brokers_min} brokers are alive")
    return found._replace(problems=problems)


def _is_thin(part: Any) -> bool:
    return len(part.isr_nodes) < len(part.replica_nodes)


def _quorum(bootstrap: str, deadline: Deadline) -> QuorumInfo | None:
    try:
        found = describe_quorum(bootstrap, is_controller=False, deadline=deadline)
    except (KafkaError, Unreachable):
        return None
    return found if found.leader_id >= 0 else None


def _brokers(admin: Admin, cluster: Any, parts: Sequence[Any]) -> list[BrokerState]:
    try:
        status = admin.first.ask(ClusterStatusRequest(topics=[]))
        known = {row.broker_id: row for row in status.brokers}
    except FirnlineError:
        known = {}
    return [
        BrokerState(
            broker_id=row.broker_id,
            address=f"{row.host}:{row.port}",
            rack=row.rack,
            state=_broker_state(row, known.get(row.broker_id)),
            broker_epoch=known[row.broker_id].broker_epoch if row.broker_id in known else -1,
            leads=sum(part.leader_id == row.broker_id for part in parts),
            replicas=sum(row.broker_id in part.replica_nodes for part in parts),
            in_sync=sum(row.broker_id in part.isr_nodes for part in parts),
            offline=sum(row.broker_id in part.offline_replicas for part in parts),
        )
        for row in sorted(cluster.brokers, key=lambda row: int(row.broker_id))
    ]


def _unreadable(cluster: Any, deadline: Deadline) -> list[tuple[int, str, int]]:
    """Return the unreadable records that brokers report; none for one that does not answer, or is Kafka's.

    Asks all brokers at the same time: some may be behind a firewall.
    """
    rows = [row for row in cluster.brokers if not row.is_fenced]
    return sorted(
        chain.from_iterable(at_once(lambda row: _unreadable_records(row, deadline), rows))
    )


def _unreadable_records(row: Any, deadline: Deadline) -> list[tuple[int, str, int]]:
    try:
        with Connection(row.host, row.port, deadline=deadline) as node:
            reported = node.ask(ClusterStatusRequest(topics=[])).unreadable
    except FirnlineError:
        return []
    return [(int(row.broker_id), str(each.topic), int(each.records)) for each in reported]


def _broker_state(row: Any, known: Any) -> str:
    if row.is_fenced:
        return FENCED
    return LEAVING if known is not None and known.in_controlled_shutdown else ALIVE


def _problems(found: ClusterState) -> list[str]:
    problems = []
    if found.quorum is None:
        problems.append("no controller is active: the cluster cannot be changed")
    else:
        silent = [row for row in found.quorum.replicas if _is_silent(row, found.quorum)]
        problems += [f"controller {row.node_id} is silent" for row in silent]
    problems += [
        f"broker {each.broker_id} is {each.state}" for each in found.brokers if each.state != ALIVE
    ]
    problems += [
        f"broker {each.broker_id} cannot serve {each.offline} of its replicas: its log says why"
        for each in found.brokers
        if each.state == ALIVE and each.offline
    ]
    for count, what in (
        (found.offline, "without a leader"),
        (found.under_min_isr, "with fewer in-sync replicas than acks=all needs"),
        (found.under_replicated, "with fewer in-sync replicas than replicas"),
    ):
        if count:
            problems.append(f"{count} partition{'s' if count > 1 else ''} {what}")
    return problems


def _is_silent(row: Any, quorum: QuorumInfo) -> bool:
    if row.role != "follower" or quorum.now_ms < 0:
        return False
    return bool(row.last_fetch_ms < 0 or quorum.now_ms - row.last_fetch_ms > _SILENT_MS)
