"""What a read of one partition comes to, as a value. PURE.

A read is one of: `Local` (bytes, or nothing yet), `BelowLocalStart` (the tier has it; whoever knows
the tier goes on), `Closer` (another replica is nearer), `Diverging` (the reader's history is not ours), or a
KafkaError: OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
Source: spec T35, C14; KIP-392.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from firnline.base.errors import KafkaError
from firnline.base.slices import Records

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
# Followers see all that the log has.
READ_LOG_END = -1


class AbortedTransaction(Protocol):
    """One aborted transaction that reaches into what was read; offsets count records."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


class Local(NamedTuple):
    """Whole batches of the local log, in offset order; `records` is empty when nothing is readable yet.

    aborted  None for a reader that sees uncommitted records, else what it must leave out
    """

    records: Records
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[AbortedTransaction] | None


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


class Closer(NamedTuple):
    """Nothing was read: the broker `replica_id` has the offset, and is nearer to the reader (KIP-392)."""

    replica_id: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


ReadOutcome = Local | BelowLocalStart | Closer | Diverging | KafkaError
