"""The versions that we advertise: Kafka 4.3.1's, restricted to the supported APIs. PURE.

Produce is advertised from version 0, but 0 to 2 are refused: librdkafka before 2.7 does not compress with
gzip, lz4 and snappy for a broker whose minimum is 3 (C5, X46).
"""

from typing import NamedTuple


class ServedApi(NamedTuple):
    """One row: API key, the advertised range, the module of its handler."""

    key: int
    advertised_min: int
    advertised_max: int
    name: str


def kafka_name(name: str) -> str:
    """Return the name that Kafka gives to an API, for operators: JoinGroup for join_group."""
    return "".join(word.capitalize() for word in name.split("_"))


# key, min, max as in the rows `advertised broker` of the release's facts. Handlers are in
# api/handlers/kNN_name.py, messages in protocol/messages/kNN_name.py.
SERVED: tuple[ServedApi, ...] = tuple(
    ServedApi(*row)
    for row in (
        (0, 0, 13, "produce"),
        (1, 4, 18, "fetch"),
        (2, 1, 11, "list_offsets"),
        (3, 0, 13, "metadata"),
        (8, 2, 10, "offset_commit"),
        (9, 1, 10, "offset_fetch"),
        (10, 0, 6, "find_coordinator"),
        (11, 0, 9, "join_group"),
        (12, 0, 4, "heartbeat"),
        (13, 0, 5, "leave_group"),
        (14, 0, 5, "sync_group"),
        (15, 0, 6, "describe_groups"),
        (16, 0, 5, "list_groups"),
        (18, 0, 4, "api_versions"),
        (19, 2, 7, "create_topics"),
        (20, 1, 6, "delete_topics"),
        (21, 0, 2, "delete_records"),
        (22, 0, 5, "init_producer_id"),
        (23, 2, 4, "offset_for_leader_epoch"),
        (32, 1, 4, "describe_configs"),
        (33, 0, 2, "alter_configs"),
        (34, 1, 2, "alter_replica_log_dirs"),
        (35, 1, 5, "describe_log_dirs"),
        (37, 0, 3, "create_partitions"),
        (42, 0, 2, "delete_groups"),
        (43, 0, 2, "elect_leaders"),
        (44, 0, 1, "incremental_alter_configs"),
        (45, 0, 1, "alter_partition_reassignments"),
        (46, 0, 0, "list_partition_reassignments"),
        (47, 0, 0, "offset_delete"),
        (55, 0, 2, "describe_quorum"),
        (57, 0, 2, "update_features"),
        (60, 0, 2, "describe_cluster"),
        (64, 0, 0, "unregister_broker"),
        (68, 0, 1, "consumer_group_heartbeat"),
    )
)

# The same for controller listeners: rows `advertised controller`, without features that are not supported
# yet.
CONTROLLER_SERVED: tuple[ServedApi, ...] = tuple(
    ServedApi(*row)
    for row in (
        (1, 4, 18, "quorum_fetch"),
        (18, 0, 4, "api_versions"),
        (19, 2, 7, "create_topics"),
        (20, 1, 6, "delete_topics"),
        (32, 1, 4, "describe_configs"),
        (33, 0, 2, "alter_configs"),
        (37, 0, 3, "create_partitions"),
        (43, 0, 2, "elect_leaders"),
        (44, 0, 1, "incremental_alter_configs"),
        (45, 0, 1, "alter_partition_reassignments"),
        (46, 0, 0, "list_partition_reassignments"),
        (52, 0, 2, "vote"),
        (53, 0, 1, "begin_quorum_epoch"),
        (54, 0, 1, "end_quorum_epoch"),
        (55, 0, 2, "describe_quorum"),
        (56, 2, 3, "alter_partition"),
        (57, 0, 2, "update_features"),
        (58, 0, 0, "envelope"),
        (59, 0, 1, "fetch_snapshot"),
        (60, 0, 2, "describe_cluster"),
        (62, 0, 4, "broker_registration"),
        (63, 0, 2, "broker_heartbeat"),
        (64, 0, 0, "unregister_broker"),
        (67, 0, 0, "allocate_producer_ids"),
        (70, 0, 0, "controller_registration"),
        (73, 0, 0, "assign_replicas_to_dirs"),
        (82, 0, 0, "update_raft_voter"),
    )
)

# Requests that a broker may put into an Envelope for the active controller.
FORWARDABLE = frozenset({19, 20, 33, 37, 43, 44, 45, 46, 55, 57, 64})

PRODUCE_VERSION_MIN = 3
# Only ours, never advertised: the state of the tier, copying to it now, and the state of brokers and
# replicas. Also on controller listeners: every node has snapshots of the metadata.
CONTROLLER_PRIVATE: tuple[ServedApi, ...] = (
    ServedApi(32003, 0, 0, "cluster_status"),
    ServedApi(32011, 0, 0, "metadata_snapshots"),
    ServedApi(32012, 0, 0, "take_snapshot"),
)
PRIVATE: tuple[ServedApi, ...] = (
    ServedApi(32001, 0, 0, "tier_status"),
    ServedApi(32002, 0, 0, "tier_flush"),
    *CONTROLLER_PRIVATE,
)
