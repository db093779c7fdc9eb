"""The outcome of reading one partition, as a value, and the errors with which a partition refuses. PURE.

A read ends in one of:

  Local                 batches of the local log, or nothing yet
  BelowLocalStart       only the remote tier has the offset
  Cold                  a thread has to read the pages first
  PreferredReadReplica  a replica nearer to the consumer has the offset (KIP-392)
  Diverging             the log of the reader and the log here differ (KIP-595)
  KafkaError            OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or
                        NOT_LEADER_OR_FOLLOWER

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
# Followers read up to the log end offset.
READ_LOG_END = -1


class Local(NamedTuple):
    """Complete batches of the local log, in offset order; `records` is empty if nothing is readable yet.

    aborted  the transactions that the reader must skip; None for a read_uncommitted reader
    """

    records: Records
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[AbortedTxn] | None


class BelowLocalStart(NamedTuple):
    """The log contains `offset`, local files do not. `epoch` is from the leader epoch cache (T35)."""

    offset: int
    epoch: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int

    def with_records(self, records: Records, aborted: Sequence[AbortedTxn] | None) -> Local:
        """Return the outcome with records of the tier."""
        return Local(
            records, self.high_watermark, self.last_stable_offset, self.log_start_offset, aborted
        )


class Diverging(NamedTuple):
    """The reader's last epoch ends here before its fetch offset: it must truncate to `end_offset`."""

    epoch: int
    end_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class Cold(NamedTuple):
    """The pages are not in memory: the caller has `place` read by a thread, then reads again."""

    place: PageRange


class PreferredReadReplica(NamedTuple):
    """Nothing was read: broker `replica_id` has the offset and is nearer to the consumer (KIP-392)."""

    replica_id: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


ReadOutcome = Local | BelowLocalStart | PreferredReadReplica | Cold | Diverging | KafkaError


# -- the errors with which a partition refuses a request

NOT_LEADER = KafkaError(Code.NOT_LEADER_OR_FOLLOWER, "this node does not lead the partition")
BEING_CUT = KafkaError(Code.REPLICA_NOT_AVAILABLE, "the replica is being truncated; try again")
INDEX_IS_BUILT = KafkaError(
    Code.REPLICA_NOT_AVAILABLE, "an index of the log is being rebuilt; try again"
)
NO_TIER = KafkaError(
    Code.OFFSET_OUT_OF_RANGE, "the offset is only in a remote tier, and this broker has none"
)
# A follower reads the tier itself (T29).
MOVED_TO_TIER = KafkaError(
    Code.OFFSET_MOVED_TO_TIERED_STORAGE, "the offset is below the local log start offset"
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
    """The error for a reader that may read from a follower (KIP-392); None unless a truncation runs."""
    if refusal is NOT_LEADER:
        return None if log.truncation is None else BEING_CUT
    return refusal


def unread(problem: StorageError) -> KafkaError | Cold:
    """The outcome of a read of local files that raised `problem`."""
    if isinstance(problem, PagesCold):
        return Cold(problem.place)
    return INDEX_IS_BUILT if isinstance(problem, IndexDamaged) else STORAGE_FAILED
