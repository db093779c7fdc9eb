"""Requests about topics, replicas and brokers, nearly all of them bad. WORLD.

What Apache Kafka 4.3.1 answers stands in `admin_table.py`; `test_admin_requests.py` asks both. An answer is
compared as its error codes in order, equal ones counted.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from firnline.base.errors import Code
from firnline.protocol.messages import k19_create_topics as m19
from firnline.protocol.messages import k20_delete_topics as m20
from firnline.protocol.messages import k21_delete_records as m21
from firnline.protocol.messages import k33_alter_configs as m33
from firnline.protocol.messages import k34_alter_replica_log_dirs as m34
from firnline.protocol.messages import k37_create_partitions as m37
from firnline.protocol.messages import k43_elect_leaders as m43
from firnline.protocol.messages import k45_alter_partition_reassignments as m45
from firnline.protocol.messages import k46_list_partition_reassignments as m46
from firnline.protocol.messages import k56_alter_partition as m56
from firnline.protocol.messages import k57_update_features as m57
from firnline.protocol.messages import k62_broker_registration as m62
from firnline.protocol.messages import k63_broker_heartbeat as m63
from firnline.protocol.messages import k64_unregister_broker as m64
from firnline.protocol.messages import k73_assign_replicas_to_dirs as m73
from firnline.protocol.schema import Message, Struct

CONTROLLER_NODE, BROKER_NODE = 1, 2
NOBODY, UNKNOWN_ID = (
    99,
    77,
)  # a broker that is not there, and one that registered and does nothing more
UNKNOWN_DIR, OTHER_ID = b"stranger dir id.", b"another topic id"
MOST = 2**31 - 1
TOPIC, PARTITIONS = "t", 2
SOON_MS = 30_000
MANY = [f"n{i}" for i in range(100_000)]


@dataclass(frozen=True)
class World:
    """What is true of the cluster: topic t with 2 partitions on broker 2 alone, broker 77 fenced."""

    cluster_id: str
    topic_id: bytes
    leader_epoch: int
    unknown_epoch: int


@dataclass(frozen=True)
class Case:
    """A question to the controller's listener (1) or the broker's (2), and its version."""

    name: str
    to: int
    version: int
    ask: Callable[[World], Message]


def codes(message: Any) -> Iterator[str]:
    """Yield the error codes of an answer in the order of its fields."""
    for name in message.fields:
        value = getattr(message, name)
        if name == "error_code":
            yield Code(value).name
        elif isinstance(value, Struct):
            yield from codes(value)
        elif isinstance(value, list | tuple):
            for item in value:
                if isinstance(item, Struct):
                    yield from codes(item)


def reported(answer: Any) -> str:
    """Say what an answer tells, as words."""
    words = [(word, len(list(same))) for word, same in groupby(codes(answer))]
    return " ".join(word if count == 1 else f"{word}*{count}" for word, count in words)


# ------------------------------------------------------------------------------------------ requests


def register(w_cluster_id: str) -> Message:
    """How broker 77 comes to be."""
    listener = m62.BrokerListener(name="PLAINTEXT", host="127.0.0.1", port=1, security_protocol=0)
    feature = m62.BrokerSupportedFeature(
        name="metadata.version", min_supported_version=7, max_supported_version=30
    )
    return m62.BrokerRegistrationRequest(
        broker_id=UNKNOWN_ID, cluster_id=w_cluster_id, incarnation_id=OTHER_ID,
        listeners=[listener], features=[feature], log_dirs=[UNKNOWN_DIR],
    )  # fmt: skip


def create(*names: str, **fields: Any) -> Message:
    """CreateTopics of one partition on one broker each."""
    plan = {"num_partitions": 1, "replication_factor": 1} | fields
    timeout_ms = plan.pop("timeout_ms", SOON_MS)
    topics = [m19.CreatableTopic(name=name, **plan) for name in names]
    return m19.CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms)


def assigned(*assignment: Sequence[int], first: int = 0, **fields: Any) -> Message:
    """CreateTopics with replicas chosen by hand."""
    rows = [
        m19.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
        for index, brokers in enumerate(assignment, first)
    ]
    plan = {"num_partitions": -1, "replication_factor": -1, "assignments": rows} | fields
    return create("new", **plan)


def configured(key: str, value: str | None) -> Message:
    """CreateTopics with a setting."""
    return create("new", configs=[m19.CreatableTopicConfig(name=key, value=value)])


def delete(*names: str | None, topic_id: bytes = bytes(16)) -> Message:
    """DeleteTopics by name, or by id where there is none."""
    rows = [m20.DeleteTopicState(name=name, topic_id=topic_id) for name in names]
    return m20.DeleteTopicsRequest(topics=rows, timeout_ms=SOON_MS)


def grow(name: str, count: int, *assignment: Sequence[int], times: int = 1) -> Message:
    """CreatePartitions."""
    rows = [m37.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assignment]
    topic = m37.CreatePartitionsTopic(name=name, count=count, assignments=rows or None)
    return m37.CreatePartitionsRequest(topics=[topic] * times, timeout_ms=SOON_MS)


def move(replicas: Sequence[int] | None, *, name: str = TOPIC, partition: int = 0) -> Message:
    """AlterPartitionReassignments of one partition; None calls a move off."""
    given = None if replicas is None else list(replicas)
    row = m45.ReassignablePartition(partition_index=partition, replicas=given)
    topic = m45.ReassignableTopic(name=name, partitions=[row])
    return m45.AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=SOON_MS)


def moves(name: str, partition: int) -> Message:
    """ListPartitionReassignments."""
    topic = m46.ListedTopic(name=name, partition_indexes=[partition])
    return m46.ListPartitionReassignmentsRequest(topics=[topic], timeout_ms=SOON_MS)


def elect(kind: int, name: str, partition: int) -> Message:
    """ElectLeaders for one partition."""
    topic = m43.ElectionTopic(topic=name, partitions=[partition])
    return m43.ElectLeadersRequest(election_type=kind, topic_partitions=[topic], timeout_ms=SOON_MS)


def truncate(name: str, partition: int, offset: int) -> Message:
    """DeleteRecords."""
    row = m21.DeleteRecordsPartition(partition_index=partition, offset=offset)
    topic = m21.DeleteRecordsTopic(name=name, partitions=[row])
    return m21.DeleteRecordsRequest(topics=[topic], timeout_ms=SOON_MS)


def configure(kind: int, name: str, key: str, value: str | None) -> Message:
    """AlterConfigs, the older way."""
    row = m33.AlterableConfig(name=key, value=value)
    resource = m33.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[row])
    return m33.AlterConfigsRequest(resources=[resource])


def put(path: str, name: str, partition: int) -> Message:
    """AlterReplicaLogDirs."""
    topic = m34.AlterReplicaLogDirTopic(name=name, partitions=[partition])
    return m34.AlterReplicaLogDirsRequest(dirs=[m34.AlterReplicaLogDir(path=path, topics=[topic])])


def level(name: str, wanted: int, kind: int = 1) -> Message:
    """UpdateFeatures."""
    row = m57.FeatureUpdateKey(feature=name, max_version_level=wanted, upgrade_type=kind)
    return m57.UpdateFeaturesRequest(feature_updates=[row], timeout_ms=SOON_MS)


def propose(w: World, **changes: Any) -> Message:
    """AlterPartition by broker 77, rightly but for what `changes` say."""
    topic_id = changes.pop("topic_id", w.topic_id)
    body = {
        "broker_id": changes.pop("broker_id", UNKNOWN_ID),
        "broker_epoch": changes.pop("broker_epoch", w.unknown_epoch),
    }
    isr = changes.pop("isr", [BROKER_NODE])
    row = {
        "partition_index": 0,
        "leader_epoch": w.leader_epoch,
        "new_isr": isr,
        "new_isr_with_epochs": [m56.BrokerState(broker_id=each) for each in isr],
        "partition_epoch": 0,
    } | changes
    topic = m56.AlterPartitionTopic(topic_id=topic_id, partitions=[m56.ProposedPartition(**row)])
    return m56.AlterPartitionRequest(topics=[topic], **body)


def heartbeat(w: World, **changes: Any) -> Message:
    """A heartbeat of broker 77 that stays fenced."""
    body = {
        "broker_id": UNKNOWN_ID,
        "broker_epoch": w.unknown_epoch,
        "current_metadata_offset": 0,
        "want_fence": True,
    } | changes
    return m63.BrokerHeartbeatRequest(**body)


def place(w: World, **changes: Any) -> Message:
    """AssignReplicasToDirs by broker 77, which has no replica."""
    body = {"broker_id": UNKNOWN_ID, "broker_epoch": w.unknown_epoch} | {
        name: changes.pop(name) for name in ("broker_id", "broker_epoch") if name in changes
    }
    row = m73.AssignedPartition(partition_index=changes.get("partition", 0))
    topic = m73.AssignedTopic(topic_id=changes.get("topic_id", w.topic_id), partitions=[row])
    directory = m73.AssignedDirectory(id=changes.get("directory", UNKNOWN_DIR), topics=[topic])
    return m73.AssignReplicasToDirsRequest(directories=[directory], **body)


def unregister(broker_id: int) -> Message:
    """UnregisterBroker."""
    return m64.UnregisterBrokerRequest(broker_id=broker_id)


# -------------------------------------------------------------------------------------------- cases

NAMES = {
    "with a slash": "a/b",
    "of two dots": "..",
    "of a dot": ".",
    "of nothing": "",
    "that climbs": "../../etc",
    "with a space": "a b",
    "with a zero byte": "a\0b",
    "with a backslash": "a\\b",
    "with an umlaut": "\u00e4",
    "of 249 letters": "n" * 249,
    "of 250 letters": "n" * 250,
    "of the metadata log": "__cluster_metadata",
}


def _c(name: str, ask: Callable[[World], Message], version: int) -> Case:
    return Case(name, CONTROLLER_NODE, version, ask)


def _b(name: str, ask: Callable[[World], Message], version: int) -> Case:
    return Case(name, BROKER_NODE, version, ask)


TOPICS = (
    *(
        _b(f"a topic name {words}", lambda w, n=name: create(n), 7)  # type: ignore[misc]
        for words, name in NAMES.items()
        if len(name) != 249
    ),
    _b("more replicas than brokers", lambda w: create("new", replication_factor=3), 7),
    _b("replicas above int16's middle", lambda w: create("new", replication_factor=32767), 7),
    _b("no replicas", lambda w: create("new", replication_factor=0), 7),
    _b("fewer replicas than none", lambda w: create("new", replication_factor=-2), 7),
    _b("no partitions", lambda w: create("new", num_partitions=0), 7),
    _b("fewer partitions than none", lambda w: create("new", num_partitions=-2), 7),
    _b("2^31-1 partitions", lambda w: create("new", num_partitions=MOST), 7),
    _b("10,001 partitions", lambda w: create("new", num_partitions=10_001), 7),
    _b("twice the same", lambda w: create("new", "new"), 7),
    _b("one that is there", lambda w: create(TOPIC), 7),
    _b("100,000 topics", lambda w: create(*MANY, timeout_ms=10 * SOON_MS), 7),
    _b("on a broker that is not there", lambda w: assigned([NOBODY]), 7),
    _b("on a broker below zero", lambda w: assigned([-1]), 7),
    _b("twice on a broker", lambda w: assigned([BROKER_NODE, BROKER_NODE]), 7),
    _b("on no broker", lambda w: assigned([]), 7),
    _b("on a fenced broker alone", lambda w: assigned([UNKNOWN_ID]), 7),
    _b("partitions from 1 on", lambda w: assigned([BROKER_NODE], first=1), 7),
    _b("partitions from -1 on", lambda w: assigned([BROKER_NODE], [BROKER_NODE], first=-1), 7),
    _b("unequal replicas", lambda w: assigned([BROKER_NODE], [BROKER_NODE, UNKNOWN_ID]), 7),
    _b("counts beside replicas", lambda w: assigned([BROKER_NODE], num_partitions=1), 7),
    _b("an unknown setting", lambda w: configured("what.ever", "1"), 7),
    _b("a setting of null", lambda w: configured("retention.ms", None), 7),
    _b("a setting out of range", lambda w: configured("retention.ms", "-9"), 7),
    _b("delete what is not there", lambda w: delete("no"), 6),
    _b("delete a name that climbs", lambda w: delete("../../etc"), 6),
    _b("delete an unknown id", lambda w: delete(None, topic_id=OTHER_ID), 6),
    _b("delete no name and no id", lambda w: delete(None), 6),
    _b("delete twice the same", lambda w: delete(TOPIC, TOPIC), 6),
    _b("delete by name and id", lambda w: delete(TOPIC, topic_id=w.topic_id), 6),
)
PARTITIONS_CASES = (
    _b("grow to nothing", lambda w: grow(TOPIC, 0), 3),
    _b("grow below nothing", lambda w: grow(TOPIC, -1), 3),
    _b("grow to fewer", lambda w: grow(TOPIC, 1), 3),
    _b("grow to as many", lambda w: grow(TOPIC, PARTITIONS), 3),
    _b("grow to 10,003", lambda w: grow(TOPIC, 10_003), 3),
    _b("grow to 2^31-1", lambda w: grow(TOPIC, MOST), 3),
    _b("grow what is not there", lambda w: grow("no", 3), 3),
    _b("grow what climbs", lambda w: grow("../../etc", 3), 3),
    _b("grow onto nobody", lambda w: grow(TOPIC, 3, [NOBODY]), 3),
    _b("grow by fewer than assigned", lambda w: grow(TOPIC, 3, [BROKER_NODE], [BROKER_NODE]), 3),
    _b("grow with other factors", lambda w: grow(TOPIC, 3, [BROKER_NODE, UNKNOWN_ID]), 3),
    _b("grow onto a fenced broker", lambda w: grow(TOPIC, 3, [UNKNOWN_ID]), 3),
    _b("grow twice", lambda w: grow(TOPIC, 3, times=2), 3),
    _b("move to nobody", lambda w: move([NOBODY]), 1),
    _b("move to one below zero", lambda w: move([-1]), 1),
    _b("move twice to one", lambda w: move([BROKER_NODE, BROKER_NODE]), 1),
    _b("move nowhere", lambda w: move([]), 1),
    _b("move an unknown topic", lambda w: move([BROKER_NODE], name="no"), 1),
    _b("move an unknown partition", lambda w: move([BROKER_NODE], partition=9), 1),
    _b("move partition 2^31-1", lambda w: move([BROKER_NODE], partition=MOST), 1),
    _b("move partition -1", lambda w: move([BROKER_NODE], partition=-1), 1),
    _b("call off no move", lambda w: move(None), 1),
    _b("call off an unknown topic", lambda w: move(None, name="no"), 1),
    _b("list an unknown topic", lambda w: moves("no", 0), 0),
    _b("list an unknown partition", lambda w: moves(TOPIC, MOST), 0),
    _b("elect for an unknown topic", lambda w: elect(0, "no", 0), 2),
    _b("elect for an unknown partition", lambda w: elect(0, TOPIC, MOST), 2),
    _b("elect for partition -1", lambda w: elect(0, TOPIC, -1), 2),
    _b("elect where it is not needed", lambda w: elect(0, TOPIC, 0), 2),
    _b("elect uncleanly where it is not needed", lambda w: elect(1, TOPIC, 0), 2),
    _b("elect uncleanly for an unknown topic", lambda w: elect(1, "no", 0), 2),
    _b("elect in no known way", lambda w: elect(7, TOPIC, 0), 2),
    _b("delete records of an unknown topic", lambda w: truncate("no", 0, 0), 2),
    _b("delete records of an unknown partition", lambda w: truncate(TOPIC, MOST, 0), 2),
    _b("delete records beyond the end", lambda w: truncate(TOPIC, 0, 5), 2),
    _b("delete records below zero", lambda w: truncate(TOPIC, 0, -2), 2),
    _b("delete records of the metadata log", lambda w: truncate("__cluster_metadata", 0, 1), 2),
)
CONFIGS = (
    _b("configure an unknown topic", lambda w: configure(2, "no", "retention.ms", "1"), 2),
    _b("configure a name that climbs", lambda w: configure(2, "../..", "retention.ms", "1"), 2),
    _b("configure no topic", lambda w: configure(2, "", "retention.ms", "1"), 2),
    _b("configure by null", lambda w: configure(2, TOPIC, "retention.ms", None), 2),
    _b("configure out of range", lambda w: configure(2, TOPIC, "retention.ms", "-9"), 2),
    _b("configure an unknown key", lambda w: configure(2, TOPIC, "what.ever", "1"), 2),
    _b("configure another broker", lambda w: configure(4, "99", "log.retention.ms", "1"), 2),
    _b("configure a broker of letters", lambda w: configure(4, "abc", "log.retention.ms", "1"), 2),
    _b("configure a kind unknown", lambda w: configure(99, "x", "a", "1"), 2),
    _b("put an unknown topic", lambda w: put("/nowhere", "no", 0), 2),
    _b("put into no directory of ours", lambda w: put("/nowhere", TOPIC, 0), 2),
    _b("raise an unknown feature", lambda w: level("what.ever", 1), 2),
    _b("raise a level too far", lambda w: level("metadata.version", 99), 2),
    _b("raise to below zero", lambda w: level("metadata.version", -1), 2),
    _b("raise to where it stands", lambda w: level("metadata.version", 30), 2),
    _b("lower without leave", lambda w: level("metadata.version", 20), 2),
    _b("lower a level too far", lambda w: level("metadata.version", 1, 3), 2),
    _b("change in no known way", lambda w: level("metadata.version", 30, 9), 2),
)
BROKERS = (
    _c("propose as nobody", lambda w: propose(w, broker_id=NOBODY), 3),
    _c("propose in a later epoch", lambda w: propose(w, broker_epoch=w.unknown_epoch + 1), 3),
    _c("propose in an earlier epoch", lambda w: propose(w, broker_epoch=w.unknown_epoch - 1), 3),
    _c("propose in no epoch", lambda w: propose(w, broker_epoch=-1), 3),
    _c("propose for an unknown id", lambda w: propose(w, topic_id=OTHER_ID), 3),
    _c("propose for an unknown id, v2", lambda w: propose(w, topic_id=OTHER_ID), 2),
    _c("propose for an unknown partition", lambda w: propose(w, partition_index=MOST), 3),
    _c("propose for partition -1", lambda w: propose(w, partition_index=-1), 3),
    _c("propose for a later leader", lambda w: propose(w, leader_epoch=w.leader_epoch + 9), 3),
    _c("propose for an earlier leader", lambda w: propose(w, leader_epoch=w.leader_epoch - 1), 3),
    _c("propose for a later state", lambda w: propose(w, partition_epoch=99), 3),
    _c("propose without leading", propose, 3),
    _c("propose without leading, v2", propose, 2),
    _c("propose nobody", lambda w: propose(w, isr=[]), 3),
    _c("beat as nobody", lambda w: heartbeat(w, broker_id=NOBODY), 1),
    _c("beat in a later epoch", lambda w: heartbeat(w, broker_epoch=w.unknown_epoch + 1), 1),
    _c("beat in an earlier epoch", lambda w: heartbeat(w, broker_epoch=w.unknown_epoch - 1), 1),
    _c("beat in no epoch", lambda w: heartbeat(w, broker_epoch=-1), 1),
    _c("beat rightly", heartbeat, 1),
    _c("beat from the future", lambda w: heartbeat(w, current_metadata_offset=1 << 60), 1),
    _c(
        "beat with a strange directory failed",
        lambda w: heartbeat(w, offline_log_dirs=[OTHER_ID]),
        1,
    ),
    _c("beat to shut down", lambda w: heartbeat(w, want_shut_down=True), 1),
    _c("place as nobody", lambda w: place(w, broker_id=NOBODY), 0),
    _c("place in a later epoch", lambda w: place(w, broker_epoch=w.unknown_epoch + 1), 0),
    _c("place in an earlier epoch", lambda w: place(w, broker_epoch=w.unknown_epoch - 1), 0),
    _c("place an unknown id", lambda w: place(w, topic_id=OTHER_ID), 0),
    _c("place an unknown partition", lambda w: place(w, partition=MOST), 0),
    _c("place what others have", place, 0),
    _c("place in a strange directory", lambda w: place(w, directory=OTHER_ID), 0),
    _b("forget nobody", lambda w: unregister(NOBODY), 0),
    _b("forget one below zero", lambda w: unregister(-1), 0),
)
PARTS = {
    "topics": TOPICS,
    "partitions": PARTITIONS_CASES,
    "configs": CONFIGS,
    "brokers": BROKERS,
}
