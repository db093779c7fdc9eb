"""The state of a cluster: what its brokers and controllers say, and who says nothing. WORLD.

Metadata is old where no controller is active, and even an active one needs some seconds to notice that a
broker died. So every broker and controller is asked itself, all of them at the same time. What only a node
could say that does not answer is unknown, and reported as last known. Works with Apache Kafka too: what only
ClusterStatus has, an API of our own, is then missing.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from firnline.base.errors import FirnlineError
from firnline.client.cluster import ELECTED_S
from firnline.client.connection import Connection, Unreachable, parse_address
from firnline.client.deadline import Deadline, attempts
from firnline.client.probes import Node, Probe, ask_all, probe_brokers, why_not
from firnline.client.quorum import QuorumInfo, state_of
from firnline.client.wire import refuse
from firnline.protocol.messages.k03_metadata import MetadataRequest
from firnline.protocol.messages.k18_api_versions import ApiVersionsRequest
from firnline.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from firnline.protocol.messages.k32003_cluster_status import ClusterStatusRequest

ALIVE, FENCED, LEAVING, NO_ANSWER = "alive", "fenced", "controlled-shutdown", "no answer"
# A controller fetches at least every half second. One that does not answer is given less time.
_SILENT_MS, _SILENT_AND_DEAF_MS = 10_000, 3_000
_ALL_TOPICS = MetadataRequest(topics=None, allow_auto_topic_creation=False)
_RETRY_S = 0.2
# How long one node may be silent: a part of the time of all, between these.
_PROBE_MIN_S, _PROBE_MAX_S, _PROBE_PART = 1.0, 3.0, 4
# What tells more about a node, and about controllers.
_PROCESS = "its log, and whether its process runs"
_PROCESSES = "the log of each controller, and whether most of them run"
# Brokers that are asked to forward a question: one may be about to die.
_FORWARDERS = 3


class BrokerState(NamedTuple):
    """One registered broker, and what it has. `broker_epoch` is -1 if unknown.

    state       ALIVE, FENCED, LEAVING; NO_ANSWER: it was asked, and did not answer
    last_known  its state in the metadata
    """

    broker_id: int
    address: str
    rack: str | None
    state: str
    last_known: str
    broker_epoch: int
    leads: int
    replicas: int
    in_sync: int
    offline: int


class ClusterState(NamedTuple):
    """A cluster at one moment; `quorum` is None while it has no leader.

    is_current  a controller is active: the metadata is that of now. Else it is the last that is known
    under_replicated, under_min_isr, offline  of the partitions, by the metadata and their leaders
    unknown     partitions whose leader does not answer, or does not know yet that it leads: their state is
                not known
    problems    for people: what is wrong now, each with the command that tells more
    unreadable  records of internal topics that brokers have skipped: (broker, topic, count)
    """

    cluster_id: str
    is_current: bool
    quorum: QuorumInfo | None
    features: dict[str, int]
    brokers: list[BrokerState]
    topics: int
    partitions: int
    under_replicated: int
    under_min_isr: int
    offline: int
    unknown: int
    problems: list[str]
    unreadable: list[tuple[int, str, int]]


class Survey(NamedTuple):
    """The state of a cluster, and what each broker said of itself, by its id."""

    state: ClusterState
    probes: Mapping[int, Probe]


class _Seen(NamedTuple):
    """What was asked: the metadata of one broker, the one at `address`, and a probe of each."""

    address: tuple[str, int]
    cluster: Any
    versions: Any
    metadata: Any
    probes: Mapping[int, Probe]
    registered: Mapping[int, Any]


def cluster_state(bootstrap: str, *, timeout_s: float, brokers_min: int = 0) -> ClusterState:
    """Return the state of the cluster behind `bootstrap`: addresses of brokers, separated by commas.

    timeout_s    how long all of it may take, a second at least: nodes that do not answer, and waiting for an
                 active controller
    brokers_min  fewer alive brokers are a problem

    Raises Unreachable when no address answers.
    """
    return survey(bootstrap, timeout_s=timeout_s, brokers_min=brokers_min).state


def survey(bootstrap: str, *, timeout_s: float, brokers_min: int = 0) -> Survey:
    """As `cluster_state`, with what each broker said."""
    until_s = time.monotonic() + timeout_s
    probe_s = min(_PROBE_MAX_S, max(_PROBE_MIN_S, timeout_s / _PROBE_PART))
    seen = _look(bootstrap, probe_s)
    quorum, deaf = _quorum(seen, probe_s, until_s)
    seen, needed = _with_min_isr(seen, probe_s, until_s)
    parts = [part for topic in seen.metadata.topics for part in topic.partitions]
    brokers = _brokers(seen, parts)
    silent = {each.broker_id for each in brokers if each.state == NO_ANSWER}
    thin = _thin(seen)
    under_min_isr = sum(
        len(thin[key].isr_nodes) < needed[key] for key in thin.keys() & needed.keys()
    )
    found = ClusterState(
        cluster_id=seen.cluster.cluster_id,
        is_current=quorum is not None,
        quorum=quorum,
        features={row.name: row.max_version_level for row in seen.versions.finalized_features},
        brokers=brokers,
        topics=len(seen.metadata.topics),
        partitions=len(parts),
        under_replicated=sum(_is_thin(part) for part in parts),
        under_min_isr=under_min_isr,
        offline=sum(part.leader_id < 0 for part in parts),
        unknown=sum(part.leader_id in silent for part in parts) + len(thin.keys() - needed.keys()),
        problems=[],
        unreadable=_unreadable(seen.probes),
    )
    alive = sum(each.state == ALIVE for each in brokers)
    few = [] if alive >= brokers_min else [f"{alive} of {brokers_min} brokers are alive"]
    controllers = _of_controllers(seen, deaf, probe_s)
    found = found._replace(problems=few + _problems(found, seen.probes, deaf) + controllers)
    return Survey(found, seen.probes)


# ------------------------------------------------------------------------------------ asking


def _look(bootstrap: str, probe_s: float) -> _Seen:
    """Ask the bootstrap address that answers and knows most; then every broker that it knows."""
    addresses = [parse_address(text.strip()) for text in bootstrap.split(",") if text.strip()]
    if not addresses:
        raise Unreachable("no address given: expected host:port")
    nodes: list[Node[tuple[str, int]]] = [((host, port), host, port) for host, port in addresses]
    if len(nodes) > 1:
        first = probe_brokers(nodes, probe_s)
        answering = [key for key, probe in first.items() if probe.why is None]
        known = {key: getattr(first[key].status, "metadata_offset", -1) for key in answering}
        addresses = sorted(answering, key=lambda key: -known[key]) or addresses[-1:]
    with Connection(*addresses[0], timeout_s=probe_s, deadline=Deadline(2 * probe_s)) as node:
        cluster = node.ask(DescribeClusterRequest(include_fenced_brokers=True))
        refuse(cluster.error_code, cluster.error_message, "the cluster")
        name = {"client_software_name": "firnline", "client_software_version": "1"}
        versions = node.ask(ApiVersionsRequest(**name))
        metadata = node.ask(_ALL_TOPICS)
    rows = [(int(row.broker_id), str(row.host), int(row.port)) for row in cluster.brokers]
    probes = probe_brokers(rows, probe_s)
    statuses = [probe.status for probe in probes.values() if probe.status is not None]
    newest = max(statuses, key=lambda status: int(status.metadata_offset), default=None)
    registered = {} if newest is None else {row.broker_id: row for row in newest.brokers}
    return _Seen(addresses[0], cluster, versions, metadata, probes, registered)


def _quorum(
    seen: _Seen, probe_s: float, until_s: float
) -> tuple[QuorumInfo | None, dict[int, str]]:
    """Return the quorum as its leader describes it, None if there is none; and the voters that are deaf."""
    voters = _voters(seen)
    if not voters:
        return _by_a_broker(seen, probe_s, until_s), {}
    while True:
        answers = ask_all(voters.values(), _described(seen.cluster.cluster_id), probe_s)
        deaf = {
            node_id: f"{voters[node_id][1]}:{voters[node_id][2]}, {why_not(answer)}"
            for node_id, answer in answers.items()
            if isinstance(answer, Unreachable)
        }
        for answer in answers.values():
            if isinstance(answer, QuorumInfo) and answer.leader_id >= 0:
                return answer, deaf
        if len(deaf) == len(voters):  # perhaps only brokers can be reached from here
            return _by_a_broker(seen, probe_s, until_s), deaf
        if time.monotonic() + _RETRY_S >= until_s:
            return None, deaf
        time.sleep(_RETRY_S)


def _voters(seen: _Seen) -> dict[int, Node[int]]:
    """Return the controllers that brokers know, with their addresses."""
    statuses = [probe.status for probe in seen.probes.values() if probe.status is not None]
    return {
        int(each.node_id): (int(each.node_id), str(each.host), int(each.port))
        for status in statuses
        for each in status.controllers
    }


def _of_controllers(seen: _Seen, deaf: Mapping[int, str], probe_s: float) -> list[str]:
    """Return what nodes that are only controllers say is wrong with them."""
    voters = _voters(seen)
    rows = [row for node_id, row in voters.items() if node_id not in (*seen.probes, *deaf)]
    return [
        _line(f"controller {node_id}: {each.what}", each.see)
        for node_id, probe in sorted(probe_brokers(rows, probe_s).items())
        if probe.status is not None
        for each in probe.status.problems
    ]


def _described(cluster_id: str) -> Callable[[Connection], QuorumInfo]:
    return lambda node: state_of(node, cluster_id, timeout_s=None)


def _by_a_broker(seen: _Seen, probe_s: float, until_s: float) -> QuorumInfo | None:
    """Ask a broker, which forwards the question: controllers may be out of reach from here."""
    answering = [
        (int(row.broker_id), str(row.host), int(row.port))
        for row in seen.cluster.brokers
        if seen.probes[row.broker_id].why is None
    ]
    while True:
        for answer in ask_all(
            answering[:_FORWARDERS], _described(seen.cluster.cluster_id), probe_s
        ).values():
            if isinstance(answer, QuorumInfo) and answer.leader_id >= 0:
                return answer
        if time.monotonic() + _RETRY_S >= until_s:
            return None
        time.sleep(_RETRY_S)


def _with_min_isr(
    seen: _Seen, probe_s: float, until_s: float
) -> tuple[_Seen, dict[tuple[str, int], int]]:
    """Return how many in-sync replicas acks=all needs, by the leaders of partitions that lack replicas.

    A leader that was just elected may not know it yet, and one that was asked too late leads no more. So the
    metadata is asked for again, too, and returned: the numbers of partitions are all of one moment.
    """
    needed: dict[tuple[str, int], int] = {}
    for attempt in attempts(min(until_s - time.monotonic(), ELECTED_S)):
        seen = _with_new_metadata(seen, probe_s) if attempt else seen
        thin = _thin(seen)
        missing = {key: int(part.leader_id) for key, part in thin.items() if key not in needed}
        needed |= _needed_in_sync(seen, missing, probe_s)
        if needed.keys() >= thin.keys():
            break
    return seen, needed


def _with_new_metadata(seen: _Seen, probe_s: float) -> _Seen:
    """Return it as it is if the broker does not answer any more."""
    try:
        with Connection(*seen.address, deadline=Deadline(probe_s)) as node:
            return seen._replace(metadata=node.ask(_ALL_TOPICS))
    except FirnlineError:
        return seen


def _thin(seen: _Seen) -> dict[tuple[str, int], Any]:
    """Return the partitions that lack a replica in sync, and whose leader answers, by topic and number.

    Leaders that answered no probe are asked nothing: the partitions of these are unknown.
    """
    asked = {node_id for node_id, probe in seen.probes.items() if probe.status is not None}
    return {
        (str(topic.name), int(part.partition_index)): part
        for topic in seen.metadata.topics
        for part in topic.partitions
        if part.leader_id in asked and _is_thin(part)
    }


def _needed_in_sync(
    seen: _Seen, leaders: Mapping[tuple[str, int], int], probe_s: float
) -> dict[tuple[str, int], int]:
    """Return how many in-sync replicas acks=all needs, as far as the leaders of the partitions say it."""
    names = sorted({topic for topic, _ in leaders})
    rows = [
        (int(row.broker_id), str(row.host), int(row.port))
        for row in seen.cluster.brokers
        if row.broker_id in leaders.values()
    ]

    def ask(node: Connection) -> dict[tuple[str, int], int]:
        answer = node.ask(ClusterStatusRequest(topics=names, only_led=True))
        return {
            (str(topic.name), int(part.partition)): int(part.min_insync_replicas)
            for topic in answer.topics
            for part in topic.partitions
            if part.min_insync_replicas >= 0
        }

    found: dict[tuple[str, int], int] = {}
    for answer in ask_all(rows, ask, probe_s).values():
        found |= {} if isinstance(answer, FirnlineError) else answer
    return found


# --------------------------------------------------------------------------------- concluding


def _is_thin(part: Any) -> bool:
    return len(part.isr_nodes) < len(part.replica_nodes)


def _brokers(seen: _Seen, parts: Sequence[Any]) -> list[BrokerState]:
    leads = Counter(part.leader_id for part in parts)
    replicas = Counter(node for part in parts for node in part.replica_nodes)
    in_sync = Counter(node for part in parts for node in part.isr_nodes)
    offline = Counter(node for part in parts for node in part.offline_replicas)
    found = []
    for row in sorted(seen.cluster.brokers, key=lambda row: int(row.broker_id)):
        known = seen.registered.get(row.broker_id)
        last_known = _last_known(row, known)
        is_silent = seen.probes[row.broker_id].why is not None and last_known != FENCED
        found.append(
            BrokerState(
                broker_id=row.broker_id,
                address=f"{row.host}:{row.port}",
                rack=row.rack,
                state=NO_ANSWER if is_silent else last_known,
                last_known=last_known,
                broker_epoch=-1 if known is None else known.broker_epoch,
                leads=leads[row.broker_id],
                replicas=replicas[row.broker_id],
                in_sync=in_sync[row.broker_id],
                offline=offline[row.broker_id],
            )
        )
    return found


def _last_known(row: Any, known: Any) -> str:
    if row.is_fenced:
        return FENCED
    return LEAVING if known is not None and known.in_controlled_shutdown else ALIVE


def _unreadable(probes: Mapping[int, Probe]) -> list[tuple[int, str, int]]:
    return sorted(
        (broker_id, str(each.topic), int(each.records))
        for broker_id, probe in probes.items()
        if probe.status is not None
        for each in probe.status.unreadable
    )


def _problems(
    found: ClusterState, probes: Mapping[int, Probe], deaf: Mapping[int, str]
) -> list[str]:
    lines = _of_quorum(found, deaf)
    for each in found.brokers:
        lines += _of_broker(each, probes[each.broker_id])
    for count, what, command in (
        (found.offline, "without a leader", "topic describe --unavailable"),
        (found.unknown, "whose leader reports nothing", "topic describe"),
        (
            found.under_min_isr,
            "with fewer in-sync replicas than acks=all needs",
            "topic describe --under-replicated",
        ),
        (
            found.under_replicated,
            "with fewer in-sync replicas than replicas",
            "topic describe --under-replicated",
        ),
    ):
        if count:
            noun = "partition" if count == 1 else "partitions"
            lines.append(_line(f"{count} {noun} {what}", f"`firnline {command}`"))
    return lines


def _line(what: str, see: str) -> str:
    """Return one problem: what is wrong, and what tells more."""
    return f"{what} (see {see})"


def _of_quorum(found: ClusterState, deaf: Mapping[int, str]) -> list[str]:
    if found.quorum is None:
        what = "no controller is active: nothing can be changed, and what metadata says may be old"
        lines = [_line(what, _PROCESSES)]
        return lines + [
            f"controller {node_id} does not answer: {why}" for node_id, why in sorted(deaf.items())
        ]
    return [
        _line(f"controller {row.node_id} is silent", "`firnline quorum status`")
        for row in found.quorum.replicas
        if _is_silent(row, found.quorum, is_deaf=row.node_id in deaf)
    ]


def _is_silent(row: Any, quorum: QuorumInfo, *, is_deaf: bool) -> bool:
    if row.role != "follower" or quorum.now_ms < 0:
        return False
    limit_ms = _SILENT_AND_DEAF_MS if is_deaf else _SILENT_MS
    return bool(row.last_fetch_ms < 0 or quorum.now_ms - row.last_fetch_ms > limit_ms)


def _of_broker(broker: BrokerState, probe: Probe) -> list[str]:
    who = f"broker {broker.broker_id}"
    if broker.state == NO_ANSWER:
        what = f"{who} does not answer at {broker.address}: {probe.why}. Last known: {broker.last_known}"
        return [_line(f"{what}, leader of {broker.leads} partitions", _PROCESS)]
    if broker.state != ALIVE:
        what = f"{who} is {broker.state}"
        if probe.why is None:
            return [_line(f"{what}, and answers at {broker.address}", "its log")]
        return [_line(f"{what}, and does not answer at {broker.address}: {probe.why}", _PROCESS)]
    lines = []
    if broker.offline:
        what = f"{who} cannot serve {broker.offline} of its replicas: its log says why"
        lines.append(_line(what, "`firnline topic describe --under-replicated`"))
    for each in [] if probe.status is None else probe.status.problems:
        lines.append(_line(f"{who}: {each.what}", each.see))
    return lines
