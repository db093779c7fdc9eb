"""Why a partition does not do what it is asked for. PURE."""

from typing import TYPE_CHECKING

from firnline.base.errors import Code, KafkaError, StorageError
from firnline.log.index_damage import IndexDamaged

if TYPE_CHECKING:
    from firnline.log.log import Log

NOT_LEADER = KafkaError(Code.NOT_LEADER_OR_FOLLOWER, "this node does not lead the partition")
BEING_CUT = KafkaError(
    Code.REPLICA_NOT_AVAILABLE, "the replica gives up what its leader has not; try again"
)
INDEX_IS_BUILT = KafkaError(
    Code.REPLICA_NOT_AVAILABLE, "an index of the log is built again; try again"
)
RETIRED = KafkaError(Code.NOT_LEADER_OR_FOLLOWER, "the replica has left this node")
STALE_BROKER = KafkaError(
    Code.NOT_LEADER_OR_FOLLOWER, "a newer incarnation of this broker is registered"
)
STORAGE_FAILED = KafkaError(Code.KAFKA_STORAGE_ERROR, "the log directory failed")
FENCED = KafkaError(Code.FENCED_LEADER_EPOCH, "the client's leader epoch is older than ours")
UNKNOWN_EPOCH = KafkaError(
    Code.UNKNOWN_LEADER_EPOCH, "the client's leader epoch is newer than ours"
)
OUT_OF_RANGE = KafkaError(Code.OFFSET_OUT_OF_RANGE, "no such offset in the log")
TOO_FEW_BEFORE = KafkaError(
    Code.NOT_ENOUGH_REPLICAS, "fewer in-sync replicas than min.insync.replicas"
)
TOO_FEW_AFTER = KafkaError(
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "in-sync replicas fell below min.insync.replicas"
)


def of_any_replica(refusal: KafkaError | None, log: "Log") -> KafkaError | None:
    """What stands against a read by who need not ask the leader: not before the log is whole. KIP-392."""
    if refusal is NOT_LEADER:
        return None if log.truncation is None else BEING_CUT
    return refusal


def unread(problem: StorageError) -> KafkaError:
    """What a client is told of a read of local files that failed."""
    return INDEX_IS_BUILT if isinstance(problem, IndexDamaged) else STORAGE_FAILED
