"""Requests that name the same topic, partition, group or resource twice. WORLD.

What Apache Kafka 4.3.1 answers stands in `REPORTED`, asked on 2026-11-23; `test_duplicates.py` asks both.
An answer is compared as the names and error codes in it, in no order: Kafka's own comes of its hash tables.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from firnline.base.errors import Code
from firnline.protocol.messages import k00_produce as m00
from firnline.protocol.messages import k01_fetch as m01
from firnline.protocol.messages import k02_list_offsets as m02
from firnline.protocol.messages import k03_metadata as m03
from firnline.protocol.messages import k08_offset_commit as m08
from firnline.protocol.messages import k09_offset_fetch as m09
from firnline.protocol.messages import k10_find_coordinator as m10
from firnline.protocol.messages import k13_leave_group as m13
from firnline.protocol.messages import k15_describe_groups as m15
from firnline.protocol.messages import k16_list_groups as m16
from firnline.protocol.messages import k19_create_topics as m19
from firnline.protocol.messages import k20_delete_topics as m20
from firnline.protocol.messages import k21_delete_records as m21
from firnline.protocol.messages import k23_offset_for_leader_epoch as m23
from firnline.protocol.messages import k32_describe_configs as m32
from firnline.protocol.messages import k33_alter_configs as m33
from firnline.protocol.messages import k34_alter_replica_log_dirs as m34
from firnline.protocol.messages import k35_describe_log_dirs as m35
from firnline.protocol.messages import k37_create_partitions as m37
from firnline.protocol.messages import k42_delete_groups as m42
from firnline.protocol.messages import k43_elect_leaders as m43
from firnline.protocol.messages import k44_incremental_alter_configs as m44
from firnline.protocol.messages import k45_alter_partition_reassignments as m45
from firnline.protocol.messages import k46_list_partition_reassignments as m46
from firnline.protocol.messages import k55_describe_quorum as m55
from firnline.protocol.messages import k57_update_features as m57
from firnline.protocol.schema import Message, Struct
from tests.worlds.list_log import batch

# Topics t and u of two partitions; groups g and h with commits of t.
TOPICS, GROUPS = ("t", "u"), ("g", "h")
_NAMES = (
    "name", "topic", "topic_name", "topic_id", "group_id", "key", "resource_name", "member_id", "feature",
    "partition_index", "partition_id", "partition", "index",
)  # fmt: skip
# Rows below these are not what was asked for.
_NOT_LOOKED_INTO = ("brokers", "configs", "nodes", "current_voters", "node_endpoints")
_TOPIC, _BROKER = 2, 4
_SHORTER = {
    "NO_REASSIGNMENT_IN_PROGRESS": "NONE_MOVES",
    "UNKNOWN_TOPIC_OR_PARTITION": "UNKNOWN",
    "__cluster_metadata": "@",
}


class World(NamedTuple):
    """What is true of the node that is asked."""

    topic_ids: dict[str, bytes]
    broker: str  # its id


class Case(NamedTuple):
    """A question, and its version."""

    name: str
    version: int
    ask: Callable[[World], Message]


def _rows(value: Any, ids: dict[bytes, str]) -> str:
    words = []
    for name in value.fields:
        one = getattr(value, name)
        if name in _NAMES and one not in (None, "", bytes(16)):
            said = ids.get(bytes(one), "?") if isinstance(one, bytes) else str(one)
            words.append(_SHORTER.get(said, said))
        elif name == "error_code" and one:
            words.append(_SHORTER.get(Code(one).name, Code(one).name))
        elif isinstance(one, Struct):
            words.append(_rows(one, ids))
        elif isinstance(one, list | tuple) and name not in _NOT_LOOKED_INTO:
            inner = [_rows(each, ids) for each in one if isinstance(each, Struct)]
            if inner:
                words.append("(" + " ".join(sorted(inner)) + ")")
    return ":".join(word for word in words if word)


def reported(answer: Any, world: World) -> str:
    """Say what an answer names, as words."""
    return _rows(answer, {topic_id: f"id-{name}" for name, topic_id in world.topic_ids.items()})


def _produce(*indexes: int) -> Message:
    parts = [m00.PartitionProduceData(index=i, records=bytes(batch())) for i in indexes]
    data = [m00.TopicProduceData(name="t", partition_data=parts)]
    return m00.ProduceRequest(acks=-1, timeout_ms=9_000, topic_data=data)


def _fetch(*indexes: int) -> Message:
    parts = [m01.FetchPartition(partition=i, partition_max_bytes=1000) for i in indexes]
    topics = [m01.FetchTopic(topic="t", partitions=parts)]
    return m01.FetchRequest(topics=topics, max_bytes=9999, session_epoch=-1)


def _list_offsets(*topics: tuple[int, ...]) -> Message:
    rows = [
        m02.ListOffsetsTopic(
            name="t",
            partitions=[m02.ListOffsetsPartition(partition_index=i, timestamp=-1) for i in indexes],
        )
        for indexes in topics
    ]
    return m02.ListOffsetsRequest(replica_id=-1, topics=rows)


def _metadata(names: tuple[str, ...] = (), ids: tuple[bytes, ...] = ()) -> Message:
    topics = [m03.MetadataRequestTopic(name=name) for name in names]
    topics += [m03.MetadataRequestTopic(name=None, topic_id=each) for each in ids]
    return m03.MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _commit(*topics: tuple[int, ...]) -> Message:
    rows = [
        m08.OffsetCommitRequestTopic(
            name="t",
            partitions=[
                m08.OffsetCommitRequestPartition(partition_index=i, committed_offset=7)
                for i in indexes
            ],
        )
        for indexes in topics
    ]
    return m08.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=rows)


def _offsets(group: str, *topics: tuple[int, ...]) -> m09.OffsetFetchRequestGroup:
    rows = [m09.OffsetFetchRequestGroupTopic(name="t", partition_indexes=i) for i in topics]
    return m09.OffsetFetchRequestGroup(group_id=group, topics=rows)


def _offset_fetch_7(*topics: tuple[int, ...]) -> Message:
    rows = [m09.OffsetFetchRequestTopic(name="t", partition_indexes=i) for i in topics]
    return m09.OffsetFetchRequest(group_id="g", topics=rows)


def _leave(*members: str) -> Message:
    rows = [m13.MemberIdentity(member_id=each) for each in members]
    return m13.LeaveGroupRequest(group_id="g", members=rows)


def _create(*names: str) -> Message:
    topics = [m19.CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in names]
    return m19.CreateTopicsRequest(topics=topics, timeout_ms=9_000)


def _delete_records(*indexes: int) -> Message:
    rows = [m21.DeleteRecordsPartition(partition_index=i, offset=0) for i in indexes]
    topics = [m21.DeleteRecordsTopic(name="t", partitions=rows)]
    return m21.DeleteRecordsRequest(topics=topics, timeout_ms=9_000)


def _epochs(*topics: tuple[int, ...]) -> Message:
    rows = [
        m23.OffsetForLeaderTopic(
            topic="t",
            partitions=[m23.OffsetForLeaderPartition(partition=i, leader_epoch=0) for i in indexes],
        )
        for indexes in topics
    ]
    return m23.OffsetForLeaderEpochRequest(replica_id=-1, topics=rows)


def _describe_configs(*resources: tuple[int, str], keys: list[str] | None = None) -> Message:
    rows = [
        m32.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name in resources
    ]
    return m32.DescribeConfigsRequest(resources=rows)


def _alter_configs(module: Any, names: tuple[str, ...], keys: tuple[str, ...]) -> Message:
    rows = [
        module.AlterConfigsResource(
            resource_type=_TOPIC,
            resource_name=name,
            configs=[module.AlterableConfig(name=key, value="1000000") for key in keys],
        )
        for name in names
    ]
    cls = getattr(module, "IncrementalAlterConfigsRequest", None) or module.AlterConfigsRequest
    made: Message = cls(resources=rows, validate_only=True)
    return made


def _move_dirs(*topics: tuple[int, ...]) -> Message:
    rows = [m34.AlterReplicaLogDirTopic(name="t", partitions=i) for i in topics]
    return m34.AlterReplicaLogDirsRequest(
        dirs=[m34.AlterReplicaLogDir(path="/nowhere", topics=rows)]
    )


def _describe_dirs(*topics: tuple[int, ...]) -> Message:
    rows = [m35.DescribableLogDirTopic(topic="t", partitions=i) for i in topics]
    return m35.DescribeLogDirsRequest(topics=rows)


def _elect(*topics: tuple[int, ...]) -> Message:
    rows = [m43.ElectionTopic(topic="t", partitions=i) for i in topics]
    return m43.ElectLeadersRequest(election_type=0, topic_partitions=rows, timeout_ms=9_000)


def _call_off(*topics: tuple[int, ...]) -> Message:
    rows = [
        m45.ReassignableTopic(
            name="t",
            partitions=[m45.ReassignablePartition(partition_index=i, replicas=None) for i in ix],
        )
        for ix in topics
    ]
    return m45.AlterPartitionReassignmentsRequest(topics=rows, timeout_ms=9_000)


def _moves(*topics: tuple[int, ...]) -> Message:
    rows = [m46.ListedTopic(name="t", partition_indexes=i) for i in topics]
    return m46.ListPartitionReassignmentsRequest(topics=rows, timeout_ms=9_000)


def _quorum(*topics: tuple[int, ...]) -> Message:
    rows = [
        m55.DescribeQuorumTopic(
            topic_name="__cluster_metadata",
            partitions=[m55.DescribeQuorumPartition(partition_index=i) for i in indexes],
        )
        for indexes in topics
    ]
    return m55.DescribeQuorumRequest(topics=rows)


def _grow(*names: str) -> Message:
    rows = [m37.CreatePartitionsTopic(name=name, count=3, assignments=None) for name in names]
    return m37.CreatePartitionsRequest(topics=rows, timeout_ms=9_000, validate_only=True)


def _raise_features(*names: str) -> Message:
    rows = [m57.FeatureUpdateKey(feature=n, max_version_level=1, upgrade_type=1) for n in names]
    return m57.UpdateFeaturesRequest(feature_updates=rows, validate_only=True, timeout_ms=9_000)


_T, _U = (_TOPIC, "t"), (_TOPIC, "u")
CASES = [
    Case("produce to a partition twice", 9, lambda w: _produce(0, 1, 0)),
    Case("fetch a partition twice", 12, lambda w: _fetch(0, 1, 0)),
    Case("list offsets of a partition twice", 7, lambda w: _list_offsets((0, 1, 0))),
    Case("list offsets of a topic twice", 10, lambda w: _list_offsets((0,), (0, 1))),
    Case("metadata of a topic twice", 12, lambda w: _metadata(("t", "u", "t"))),
    Case("metadata of a topic twice, v1", 1, lambda w: _metadata(("t", "u", "t"))),
    Case("metadata of an unknown topic twice", 12, lambda w: _metadata(("n", "u", "n"))),
    Case(
        "metadata of an id twice",
        12,
        lambda w: _metadata(ids=(w.topic_ids["t"], w.topic_ids["u"], w.topic_ids["t"])),
    ),
    Case("commit a partition twice", 8, lambda w: _commit((0, 1, 0))),
    Case("commit a topic twice", 8, lambda w: _commit((0,), (0, 1))),
    Case("offsets of a partition twice, v7", 7, lambda w: _offset_fetch_7((0, 1, 0))),
    Case("offsets of a topic twice, v7", 7, lambda w: _offset_fetch_7((0,), (0, 1))),
    Case(
        "offsets of a partition twice",
        9,
        lambda w: m09.OffsetFetchRequest(groups=[_offsets("g", (0, 1, 0))]),
    ),
    Case(
        "offsets of a topic twice",
        9,
        lambda w: m09.OffsetFetchRequest(groups=[_offsets("g", (0,), (0, 1))]),
    ),
    Case(
        "offsets of a group twice",
        9,
        lambda w: m09.OffsetFetchRequest(groups=[_offsets(g, (0,)) for g in ("g", "h", "g")]),
    ),
    Case(
        "coordinator of a group twice",
        4,
        lambda w: m10.FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h", "g"]),
    ),
    Case("leave twice", 4, lambda w: _leave("x", "y", "x")),
    Case("describe a group twice", 5, lambda w: m15.DescribeGroupsRequest(groups=["g", "h", "g"])),
    Case(
        "list groups of a state twice",
        4,
        lambda w: m16.ListGroupsRequest(states_filter=["Empty", "Empty"]),
    ),
    Case("create a topic twice", 7, lambda w: _create("n", "n")),
    Case(
        "delete a topic twice",
        5,
        lambda w: m20.DeleteTopicsRequest(topic_names=["n", "o", "n"], timeout_ms=9_000),
    ),
    Case("delete records of a partition twice", 2, lambda w: _delete_records(0, 1, 0)),
    Case("epochs of a partition twice", 4, lambda w: _epochs((0, 1, 0))),
    Case("epochs of a topic twice", 4, lambda w: _epochs((0,), (0, 1))),
    Case("settings of a topic twice", 4, lambda w: _describe_configs(_T, _U, _T)),
    Case("settings of a topic twice, v1", 1, lambda w: _describe_configs(_T, _U, _T)),
    Case(
        "settings of the broker twice",
        4,
        lambda w: _describe_configs((_BROKER, w.broker), (_BROKER, w.broker)),
    ),
    Case("change a topic's settings twice", 2, lambda w: _alter_configs(m33, ("t", "t"), ("x",))),
    Case(
        "change a setting twice",
        2,
        lambda w: _alter_configs(m33, ("t",), ("segment.bytes", "segment.bytes")),
    ),
    Case(
        "change some of a topic's settings twice",
        1,
        lambda w: _alter_configs(m44, ("t", "t"), ("segment.bytes",)),
    ),
    Case(
        "change one setting twice",
        1,
        lambda w: _alter_configs(m44, ("t",), ("segment.bytes", "segment.bytes")),
    ),
    Case("move a partition twice", 2, lambda w: _move_dirs((0, 1, 0))),
    Case("move a topic twice", 2, lambda w: _move_dirs((0,), (0, 1))),
    Case("look for a partition twice", 4, lambda w: _describe_dirs((0, 1, 0))),
    Case("look for a topic twice", 4, lambda w: _describe_dirs((0,), (0, 1))),
    Case("grow a topic twice", 3, lambda w: _grow("t", "u", "t")),
    Case(
        "delete a group twice",
        2,
        lambda w: m42.DeleteGroupsRequest(groups_names=["n", "o", "n"]),
    ),
    Case("elect for a partition twice", 2, lambda w: _elect((0, 1, 0))),
    Case("elect for a topic twice", 2, lambda w: _elect((0,), (0, 1))),
    Case("call a move off twice", 0, lambda w: _call_off((0, 1, 0))),
    Case("call moves of a topic off twice", 0, lambda w: _call_off((0,), (0, 1))),
    Case("list moves of a partition twice", 0, lambda w: _moves((0, 1, 0))),
    Case("list moves of a topic twice", 0, lambda w: _moves((0,), (0, 1))),
    Case("the quorum twice", 1, lambda w: _quorum((0, 0))),
    Case("the quorum's topic twice", 1, lambda w: _quorum((0,), (0,))),
    Case("raise a feature twice", 1, lambda w: _raise_features("x", "x")),
]

SILENCE = "no answer"
_TABLE = """
produce to a partition twice | (t:(0 1))
fetch a partition twice | (t:(0 1))
list offsets of a partition twice | (t:(0:INVALID_REQUEST 1))
list offsets of a topic twice | (t:(0:INVALID_REQUEST 1))
metadata of a topic twice | (t:id-t:(0 1) u:id-u:(0 1))
metadata of a topic twice, v1 | (t:(0 1) u:(0 1))
metadata of an unknown topic twice | (UNKNOWN:n u:id-u:(0 1))
metadata of an id twice | (t:id-t:(0 1) u:id-u:(0 1))
commit a partition twice | (t:(0 0 1))
commit a topic twice | (t:(0 1) t:(0))
offsets of a partition twice, v7 | (t:(0 0 1))
offsets of a topic twice, v7 | (t:(0 1) t:(0))
offsets of a partition twice | (g:(t:(0 0 1)))
offsets of a topic twice | (g:(t:(0 1) t:(0)))
offsets of a group twice | (g:(t:(0)) g:(t:(0)) h:(t:(0)))
coordinator of a group twice | (g g h)
leave twice | (x:UNKNOWN_MEMBER_ID x:UNKNOWN_MEMBER_ID y:UNKNOWN_MEMBER_ID)
describe a group twice | (g g h)
list groups of a state twice | (g h)
create a topic twice | (n:INVALID_REQUEST)
delete a topic twice | (n:INVALID_REQUEST o:UNKNOWN)
delete records of a partition twice | (t:(0 1))
epochs of a partition twice | (t:(0 0 1))
epochs of a topic twice | (t:(0 1) t:(0))
settings of a topic twice | (t t u)
settings of a topic twice, v1 | (t t u)
settings of the broker twice | (1 1)
change a topic's settings twice | no answer
change a setting twice | (INVALID_REQUEST:t)
change some of a topic's settings twice | (INVALID_REQUEST:t INVALID_REQUEST:t)
change one setting twice | (INVALID_REQUEST:t)
move a partition twice | (t:(0:LOG_DIR_NOT_FOUND 1:LOG_DIR_NOT_FOUND))
move a topic twice | (t:(0:LOG_DIR_NOT_FOUND 1:LOG_DIR_NOT_FOUND))
look for a partition twice | ((t:(0 1)))
look for a topic twice | ((t:(0 1)))
grow a topic twice | (t:INVALID_REQUEST u)
delete a group twice | (n:GROUP_ID_NOT_FOUND o:GROUP_ID_NOT_FOUND)
elect for a partition twice | (t:(0:ELECTION_NOT_NEEDED 0:ELECTION_NOT_NEEDED 1:ELECTION_NOT_NEEDED))
elect for a topic twice | (t:(0:ELECTION_NOT_NEEDED 1:ELECTION_NOT_NEEDED) t:(0:ELECTION_NOT_NEEDED))
call a move off twice | (t:(0:NONE_MOVES 0:NONE_MOVES 1:NONE_MOVES))
call moves of a topic off twice | (t:(0:NONE_MOVES 1:NONE_MOVES) t:(0:NONE_MOVES))
list moves of a partition twice |
list moves of a topic twice |
the quorum twice | (@:(0:UNKNOWN 0:UNKNOWN))
the quorum's topic twice | (@:(0:UNKNOWN) @:(0:UNKNOWN))
raise a feature twice | INVALID_UPDATE_VERSION
"""
REPORTED: dict[str, str] = {
    name.strip(): words.strip()
    for name, words in (row.split("|", 1) for row in _TABLE.strip("\n").splitlines())
}
# What we tell where that differs: Kafka appends what came last and drops the other records silently, and does
# not answer an AlterConfigs that names a topic twice. The rest is how rows stand under their topics.
OURS = {
    "produce to a partition twice": "(t:(0 0 1))",
    "change a topic's settings twice": "(INVALID_REQUEST:t INVALID_REQUEST:t)",
    "offsets of a topic twice, v7": "(t:(0 0 1))",
    "offsets of a topic twice": "(g:(t:(0 0 1)))",
    "elect for a topic twice": "(t:(0:ELECTION_NOT_NEEDED 0:ELECTION_NOT_NEEDED 1:ELECTION_NOT_NEEDED))",
}
