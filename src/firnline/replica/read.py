"""What a read of one partition comes to, as a value, and why a partition refuses. PURE.

A read is one of: `Local` (bytes, or nothing yet), `BelowLocalStart` (the tier has it; whoever knows
the tier goes on), `Cold` (a thread has to read first), `Closer` (another replica is nearer), `Diverging` (the
reader's history is not ours), or a KafkaError: OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH,
UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
Source: spec T35, C14; KIP-392.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from firnline.base.cold_pages import PageRange, PagesCold
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.slices import Records
from firnline.formats.transaction_index import AbortedTxn
from firnline.log.sparse_index import IndexDamaged

if TYPE_CHECKING:
    from firnline.log.log import Log

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
# Followers see all that the log has.
READ_LOG_END = -1


class Local(NamedTuple):
    """Whole batches of the local log, in offset order; `records` is empty when nothing is readable yet.

    aborted  None for a reader that sees uncommitted records, else what it must leave out
    """

    records: Records
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[AbortedTxn] | None


class BelowLocalStart(NamedTuple):
    """`offset` is in the log but no longer in local files. `epoch` is from our own epoch cache (T35)."""

    offset: int
    epoch: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class Diverging(NamedTuple):
    """The reader's last epoch ends before its offset: it must truncate to `end_offset` (KIP-595)."""

    epoch: int
    end_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class Cold(NamedTuple):
    """What is to be read is not in memory: whoever asks has `place` brought there, and asks again."""

    place: PageRange


class Closer(NamedTuple):
    """Nothing was read: the broker `replica_id` has the offset, and is nearer to the reader (KIP-392)."""

    replica_id: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


ReadOutcome = Local | BelowLocalStart | Closer | Cold | Diverging | KafkaError


# -- why a partition does not do what it is asked for

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


def unread(problem: StorageError) -> KafkaError | Cold:
    """What a client is told of a read of local files that failed, or has to come later."""
    if isinstance(problem, PagesCold):
        return Cold(problem.place)
    return INDEX_IS_BUILT if isinstance(problem, IndexDamaged) else STORAGE_FAILED
