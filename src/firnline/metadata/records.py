"""The records of the metadata log: all types and versions of Kafka 4.3.1, and their encoding. PURE.

A record has a null key and a framed value (`protocol/record_value.py`). The type numbers never change; 6, 13
and 16 were never released. Type 21 is read but never written. Source: KIP-631; spec Q13, Q14.
"""

from firnline.base.ports import Buffer
from firnline.protocol.record_value import decode_value, encode_value
from firnline.protocol.schema import Message, Struct, f


class BrokerEndpoint(Struct):
    name = f("string", "0+", "Listener name.")
    host = f("string", "0+", "Host name or address.")
    port = f("uint16", "0+", "TCP port.")
    security_protocol = f("int16", "0+", "0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.")


class BrokerFeature(Struct):
    name = f("string", "0+", "Feature name.")
    min_supported_version = f("int16", "0+", "Lowest level.")
    max_supported_version = f("int16", "0+", "Highest level.")


class RegisterBrokerRecord(Message, key=0, valid="0-4", flexible="0+"):
    broker_id = f("int32", "0+", "Node id of the broker.")
    is_migrating_zk_broker = f("bool", "2+", "Always false: ZooKeeper is gone.")
    incarnation_id = f("uuid", "0+", "Made anew with each start of the process.")
    broker_epoch = f("int64", "0+", "Broker epoch; -1 when unknown.")
    end_points = f([BrokerEndpoint], "0+", "Addresses by listener.")
    features = f([BrokerFeature], "0+", "Feature levels the node can run.")
    rack = f("string", "0+", "Rack of the node; null when not configured.", nullable="0+")
    fenced = f("bool", "0+", "Does it start fenced.", default=True)
    in_controlled_shutdown = f("bool", "1+", "Is it shutting down.")
    log_dirs = f(["uuid"], "3+", "Log directories that are usable.", tag=0)
    cordoned_log_dirs = f(
        ["uuid"],
        "4+",
        "Log directories that take nothing new; null when not said. KIP-1066.",
        default=None,
        nullable="4+",
        tag=1,
    )


class UnregisterBrokerRecord(Message, key=1, valid="0", flexible="0+"):
    broker_id = f("int32", "0+", "Node id of the broker.")
    broker_epoch = f("int64", "0+", "Broker epoch; -1 when unknown.")


class TopicRecord(Message, key=2, valid="0", flexible="0+"):
    name = f("string", "0+", "Topic name.")
    topic_id = f("uuid", "0+", "Topic id.")


class PartitionRecord(Message, key=3, valid="0-2", flexible="0+"):
    partition_id = f("int32", "0+", "Partition number.", default=-1)
    topic_id = f("uuid", "0+", "Topic id.")
    replicas = f(["int32"], "0+", "Node ids of all replicas, preferred first.")
    isr = f(["int32"], "0+", "In-sync replicas.")
    removing_replicas = f(["int32"], "0+", "Replicas on their way out.")
    adding_replicas = f(["int32"], "0+", "Replicas on their way in.")
    leader = f("int32", "0+", "Node id of the leader; -1 for none.", default=-1)
    leader_recovery_state = f("int8", "0+", "1 while recovering from an unclean election.", tag=0)
    leader_epoch = f("int32", "0+", "Leader epoch; -1 when unknown.", default=-1)
    partition_epoch = f("int32", "0+", "Counts changes to the partition.", default=-1)
    directories = f(["uuid"], "1+", "Log directory ids, in the order of the replicas.")
    eligible_leader_replicas = f(
        ["int32"],
        "2+",
        "Replicas that may lead without loss. KIP-966.",
        default=None,
        nullable="2+",
        tag=1,
    )
    last_known_elr = f(
        ["int32"],
        "2+",
        "The last of them when none is left. KIP-966.",
        default=None,
        nullable="2+",
        tag=2,
    )


class ConfigRecord(Message, key=4, valid="0", flexible="0+"):
    resource_type = f("int8", "0+", "2 topic, 4 broker, and so on.")
    resource_name = f("string", "0+", "Name of the resource.")
    name = f("string", "0+", "Configuration key.")
    value = f("string", "0+", "Setting; null removes the key.", nullable="0+")


class PartitionChangeRecord(Message, key=5, valid="0-2", flexible="0+"):
    partition_id = f("int32", "0+", "Partition number.", default=-1)
    topic_id = f("uuid", "0+", "Topic id.")
    isr = f(
        ["int32"],
        "0+",
        "In-sync replicas; null when unchanged.",
        default=None,
        nullable="0+",
        tag=0,
    )
    leader = f("int32", "0+", "New leader; -1 for none, -2 when unchanged.", default=-2, tag=1)
    replicas = f(
        ["int32"], "0+", "All replicas; null when unchanged.", default=None, nullable="0+", tag=2
    )
    removing_replicas = f(
        ["int32"],
        "0+",
        "Replicas on their way out; null when unchanged.",
        default=None,
        nullable="0+",
        tag=3,
    )
    adding_replicas = f(
        ["int32"],
        "0+",
        "Replicas on their way in; null when unchanged.",
        default=None,
        nullable="0+",
        tag=4,
    )
    leader_recovery_state = f("int8", "0+", "1 recovering, 0 not, -1 unchanged.", default=-1, tag=5)
    directories = f(
        ["uuid"],
        "1+",
        "Log directory ids; null when unchanged.",
        default=None,
        nullable="1+",
        tag=8,
    )
    eligible_leader_replicas = f(
        ["int32"],
        "2+",
        "Replicas that may lead without loss. KIP-966.",
        default=None,
        nullable="2+",
        tag=6,
    )
    last_known_elr = f(
        ["int32"],
        "2+",
        "The last of them when none is left. KIP-966.",
        default=None,
        nullable="2+",
        tag=7,
    )


class FenceBrokerRecord(Message, key=7, valid="0", flexible="0+"):
    id = f("int32", "0+", "Node id of the broker.")
    epoch = f("int64", "0+", "Broker epoch.")


class UnfenceBrokerRecord(Message, key=8, valid="0", flexible="0+"):
    id = f("int32", "0+", "Node id of the broker.")
    epoch = f("int64", "0+", "Broker epoch.")


class RemoveTopicRecord(Message, key=9, valid="0", flexible="0+"):
    topic_id = f("uuid", "0+", "Topic id.")


class DelegationTokenRecord(Message, key=10, valid="0", flexible="0+"):
    owner = f("string", "0+", "Whose token it is.")
    requester = f("string", "0+", "Who asked for it.")
    renewers = f(["string"], "0+", "Who may renew it.")
    issue_timestamp = f("int64", "0+", "When it was made, ms.")
    max_timestamp = f("int64", "0+", "When it ends for good, ms.")
    expiration_timestamp = f("int64", "0+", "When it ends unless renewed, ms.")
    token_id = f("string", "0+", "Token id.")


class UserScramCredentialRecord(Message, key=11, valid="0", flexible="0+"):
    name = f("string", "0+", "User name.")
    mechanism = f("int8", "0+", "SCRAM mechanism: 1 SHA-256, 2 SHA-512.")
    salt = f("bytes", "0+", "Salt of the password.")
    stored_key = f("bytes", "0+", "Derived key that proofs are checked with.")
    server_key = f("bytes", "0+", "Derived key the server proves itself with.")
    iterations = f("int32", "0+", "Rounds of hashing.")


class FeatureLevelRecord(Message, key=12, valid="0", flexible="0+"):
    name = f("string", "0+", "Feature name.")
    feature_level = f("int16", "0+", "Level in force.")


class QuotaEntity(Struct):
    entity_type = f("string", "0+", "Kind: user, client-id or ip.")
    entity_name = f("string", "0+", "Name; null for the default of the kind.", nullable="0+")


class ClientQuotaRecord(Message, key=14, valid="0", flexible="0+"):
    entity = f([QuotaEntity], "0+", "Whom the quota is for.")
    quota_key = f("string", "0+", "Quota that is set.", name="Key")
    value = f("float64", "0+", "Limit to set.")
    remove = f("bool", "0+", "Drop the quota instead.")


class ProducerIdsRecord(Message, key=15, valid="0", flexible="0+"):
    broker_id = f("int32", "0+", "Node id of the broker.")
    broker_epoch = f("int64", "0+", "Broker epoch; -1 when unknown.", default=-1)
    next_producer_id = f("int64", "0+", "First id not handed out yet.")


class BrokerRegistrationChangeRecord(Message, key=17, valid="0-3", flexible="0+"):
    broker_id = f("int32", "0+", "Node id of the broker.")
    broker_epoch = f("int64", "0+", "Broker epoch; -1 when unknown.")
    fenced = f("int8", "0+", "1 fenced now, -1 not any more, 0 unchanged.", tag=0)
    in_controlled_shutdown = f("int8", "1+", "1 shutting down, 0 unchanged.", tag=1)
    log_dirs = f(["uuid"], "2+", "Log directories that are usable.", tag=2)
    cordoned_log_dirs = f(
        ["uuid"],
        "3+",
        "Log directories that take nothing new; null when not said. KIP-1066.",
        default=None,
        nullable="3+",
        tag=3,
    )


class AccessControlEntryRecord(Message, key=18, valid="0", flexible="0+"):
    id = f("uuid", "0+", "Id of the entry.")
    resource_type = f("int8", "0+", "2 topic, 4 broker, and so on.")
    resource_name = f("string", "0+", "Name of the resource.")
    pattern_type = f("int8", "0+", "3 literal, 4 prefix.")
    principal = f("string", "0+", "Whom the entry is about.")
    host = f("string", "0+", "From where; * for anywhere.")
    operation = f("int8", "0+", "Operation the entry is about.")
    permission_type = f("int8", "0+", "2 deny, 3 allow.")


class RemoveAccessControlEntryRecord(Message, key=19, valid="0", flexible="0+"):
    id = f("uuid", "0+", "Id of the entry.")


class NoOpRecord(Message, key=20, valid="0", flexible="0+"):
    pass


class ZkMigrationStateRecord(Message, key=21, valid="0", flexible="0+"):
    zk_migration_state = f("int8", "0+", "State of the migration; read and ignored.")


class RemoveUserScramCredentialRecord(Message, key=22, valid="0", flexible="0+"):
    name = f("string", "0+", "User name.")
    mechanism = f("int8", "0+", "SCRAM mechanism: 1 SHA-256, 2 SHA-512.")


class BeginTransactionRecord(Message, key=23, valid="0", flexible="0+"):
    name = f(
        "string",
        "0+",
        "What the transaction is for, for the log.",
        default=None,
        nullable="0+",
        tag=0,
    )


class EndTransactionRecord(Message, key=24, valid="0", flexible="0+"):
    pass


class AbortTransactionRecord(Message, key=25, valid="0", flexible="0+"):
    reason = f("string", "0+", "Why it was given up.", default=None, nullable="0+", tag=0)


class RemoveDelegationTokenRecord(Message, key=26, valid="0", flexible="0+"):
    token_id = f("string", "0+", "Token id.")


class ControllerEndpoint(Struct):
    name = f("string", "0+", "Listener name.")
    host = f("string", "0+", "Host name or address.")
    port = f("uint16", "0+", "TCP port.")
    security_protocol = f("int16", "0+", "0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.")


class ControllerFeature(Struct):
    name = f("string", "0+", "Feature name.")
    min_supported_version = f("int16", "0+", "Lowest level.")
    max_supported_version = f("int16", "0+", "Highest level.")


class RegisterControllerRecord(Message, key=27, valid="0", flexible="0+"):
    controller_id = f("int32", "0+", "Node id of the controller.")
    incarnation_id = f("uuid", "0+", "Made anew with each start of the process.")
    zk_migration_ready = f("bool", "0+", "Always false: ZooKeeper is gone.")
    end_points = f([ControllerEndpoint], "0+", "Addresses by listener.")
    features = f([ControllerFeature], "0+", "Feature levels the node can run.")


class ClearElrRecord(Message, key=28, valid="0", flexible="0+"):
    topic_name = f("string", "0+", "Topic name; empty for all topics.")


TYPES: dict[int, type[Message]] = {
    record.key: record
    for record in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        NoOpRecord,
        ZkMigrationStateRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RemoveDelegationTokenRecord,
        RegisterControllerRecord,
        ClearElrRecord,
    )
}


def encode(record: Message, version: int) -> bytes:
    """Return the value of a metadata log record: `record` at `version`."""
    assert TYPES[record.key] is type(record)
    return encode_value(record, version)


def decode(value: Buffer) -> Message:
    """Return the record in the value of a metadata log record.

    Raises ProtocolError for an unknown frame, type or version, and for bytes left over: a node that skipped a
    metadata record would have another image than the other nodes.
    """
    return decode_value(TYPES, value)
