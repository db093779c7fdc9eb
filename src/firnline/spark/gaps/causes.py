"""Why a read does not give an offset: a closed list, and what `onGap` makes of each. PURE.

Where the sources of a read do not tell two causes apart, there is a cause that names both: none is guessed.
Source: decision 0048.
"""

from typing import NamedTuple

from firnline.base.ids import Uuid

# The offset has something that is no record for this reader.
CONTROL, ABORTED = "control_marker", "aborted"
# The record was there, and a rule of the topic removed it.
COMPACTED = "compacted"
RETENTION_TIME, RETENTION_SIZE = "retention_time", "retention_size"
DELETE_RECORDS = "delete_records"
EXPIRED_OR_DELETED = "expired_or_deleted"  # one of the last three
# The record is not there yet, or not for this reader.
UNDECIDED, NOT_IN_TIER, NOT_WRITTEN = "undecided", "not_in_tier", "not_written"
# The record was there, and no rule says that it may be gone.
TRUNCATED, TOPIC_DELETED, LOST = "truncated", "topic_deleted", "lost"
COMPACTED_OR_LOST = "compacted_or_lost"

CAUSES = (
    CONTROL, ABORTED, COMPACTED, RETENTION_TIME, RETENTION_SIZE, DELETE_RECORDS, EXPIRED_OR_DELETED,
    UNDECIDED, NOT_IN_TIER, NOT_WRITTEN, TRUNCATED, TOPIC_DELETED, LOST, COMPACTED_OR_LOST,
)  # fmt: skip
NO_RECORDS = (CONTROL, ABORTED)
LOSSES = (TRUNCATED, TOPIC_DELETED, LOST)

ON_GAP = "onGap"
EXPLAIN, FAIL, SKIP = GAP_ACTIONS = ("explain", "fail", "skip")


class Missing(NamedTuple):
    """Offsets [start, end) that a read does not give, for one cause.

    detail  the evidence: what says that it is this cause
    The rest is None where it is not known, or not one for all of the offsets.
    """

    start_offset: int
    end_offset: int
    cause: str
    detail: str
    segment_id: str | None = None
    leader_epoch: int | None = None
    producer_id: int | None = None


class LeftOut(NamedTuple):
    """What a plan leaves out of one partition."""

    topic: str
    topic_id: Uuid
    partition: int
    missing: tuple[Missing, ...]


def is_loss(cause: str) -> bool | None:
    """Whether records are gone that no rule of the topic let go; None if that is not known."""
    return None if cause == COMPACTED_OR_LOST else cause in LOSSES


def is_refused(on_gap: str | None, *, fail_on_data_loss: bool, cause: str) -> bool:
    """Whether a read fails because of a gap.

    on_gap  None: not given. Then, as in Spark's own source, each requested offset that is gone or not there
            yet is data loss; what compaction removed is not looked for.
    """
    if on_gap == FAIL:
        return cause not in NO_RECORDS
    if on_gap is None:
        return fail_on_data_loss and cause not in (*NO_RECORDS, COMPACTED, COMPACTED_OR_LOST)
    return fail_on_data_loss and is_loss(cause) is not False


def is_reported(on_gap: str | None, cause: str) -> bool:
    """Whether the log says that a gap was left out. A loss, or what may be one, is never silent."""
    if cause in (*NO_RECORDS, COMPACTED):
        return False
    return on_gap != SKIP or is_loss(cause) is not False
