"""Kafka's messages, one API key per file: request and response, all versions. PURE.

Start at `MODULES`. A file is imported when its key is first asked for.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module

from firnline.protocol.schema import Message

# API key -> (module, Kafka's name of the API).
MODULES: dict[int, tuple[str, str]] = {
    0: ("k00_produce", "Produce"),
    1: ("k01_fetch", "Fetch"),
    2: ("k02_list_offsets", "ListOffsets"),
    3: ("k03_metadata", "Metadata"),
    8: ("k08_offset_commit", "OffsetCommit"),
    9: ("k09_offset_fetch", "OffsetFetch"),
    10: ("k10_find_coordinator", "FindCoordinator"),
    11: ("k11_join_group", "JoinGroup"),
    12: ("k12_heartbeat", "Heartbeat"),
    13: ("k13_leave_group", "LeaveGroup"),
    14: ("k14_sync_group", "SyncGroup"),
    15: ("k15_describe_groups", "DescribeGroups"),
    16: ("k16_list_groups", "ListGroups"),
    17: ("k17_sasl_handshake", "SaslHandshake"),
    18: ("k18_api_versions", "ApiVersions"),
    19: ("k19_create_topics", "CreateTopics"),
    20: ("k20_delete_topics", "DeleteTopics"),
    21: ("k21_delete_records", "DeleteRecords"),
    22: ("k22_init_producer_id", "InitProducerId"),
    23: ("k23_offset_for_leader_epoch", "OffsetForLeaderEpoch"),
    27: ("k27_write_txn_markers", "WriteTxnMarkers"),
    32: ("k32_describe_configs", "DescribeConfigs"),
    33: ("k33_alter_configs", "AlterConfigs"),
    34: ("k34_alter_replica_log_dirs", "AlterReplicaLogDirs"),
    35: ("k35_describe_log_dirs", "DescribeLogDirs"),
    36: ("k36_sasl_authenticate", "SaslAuthenticate"),
    37: ("k37_create_partitions", "CreatePartitions"),
    42: ("k42_delete_groups", "DeleteGroups"),
    43: ("k43_elect_leaders", "ElectLeaders"),
    44: ("k44_incremental_alter_configs", "IncrementalAlterConfigs"),
    45: ("k45_alter_partition_reassignments", "AlterPartitionReassignments"),
    46: ("k46_list_partition_reassignments", "ListPartitionReassignments"),
    47: ("k47_offset_delete", "OffsetDelete"),
    52: ("k52_vote", "Vote"),
    53: ("k53_begin_quorum_epoch", "BeginQuorumEpoch"),
    54: ("k54_end_quorum_epoch", "EndQuorumEpoch"),
    55: ("k55_describe_quorum", "DescribeQuorum"),
    56: ("k56_alter_partition", "AlterPartition"),
    57: ("k57_update_features", "UpdateFeatures"),
    58: ("k58_envelope", "Envelope"),
    59: ("k59_fetch_snapshot", "FetchSnapshot"),
    60: ("k60_describe_cluster", "DescribeCluster"),
    61: ("k61_describe_producers", "DescribeProducers"),
    62: ("k62_broker_registration", "BrokerRegistration"),
    63: ("k63_broker_heartbeat", "BrokerHeartbeat"),
    64: ("k64_unregister_broker", "UnregisterBroker"),
    65: ("k65_describe_transactions", "DescribeTransactions"),
    66: ("k66_list_transactions", "ListTransactions"),
    67: ("k67_allocate_producer_ids", "AllocateProducerIds"),
    68: ("k68_consumer_group_heartbeat", "ConsumerGroupHeartbeat"),
    70: ("k70_controller_registration", "ControllerRegistration"),
    73: ("k73_assign_replicas_to_dirs", "AssignReplicasToDirs"),
    75: ("k75_describe_topic_partitions", "DescribeTopicPartitions"),
    82: ("k82_update_raft_voter", "UpdateRaftVoter"),
}

# Ours alone: answered, never advertised, and no part of `REQUESTS`.
PRIVATE_MODULES: dict[int, tuple[str, str]] = {
    32001: ("k32001_tier_status", "TierStatus"),
    32002: ("k32002_tier_flush", "TierFlush"),
    32003: ("k32003_cluster_status", "ClusterStatus"),
    32011: ("k32011_metadata_snapshots", "MetadataSnapshots"),
    32012: ("k32012_take_snapshot", "TakeSnapshot"),
}

_loaded: dict[int, tuple[type[Message], type[Message]]] = {}


def api_name(key: int) -> str | int:
    """Return the name of an API, such as ListOffsets; of one that is not known here, its key."""
    return MODULES[key][1] if key in MODULES else key


def messages_of(key: int) -> tuple[type[Message], type[Message]]:
    """Return the request and the response of an API; KeyError for a key that has no messages here."""
    found = _loaded.get(key)
    if found is None:
        module_name, name = MODULES[key] if key in MODULES else PRIVATE_MODULES[key]
        module = import_module(f"{__name__}.{module_name}")
        found = (getattr(module, f"{name}Request"), getattr(module, f"{name}Response"))
        _loaded[key] = found
    return found


class _Messages(Mapping[int, tuple[type[Message], type[Message]]]):
    """All of them by API key; looking at one imports that one alone."""

    def __getitem__(self, key: int) -> tuple[type[Message], type[Message]]:
        return messages_of(key)

    def __iter__(self) -> Iterator[int]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


REQUESTS: Mapping[int, tuple[type[Message], type[Message]]] = _Messages()
