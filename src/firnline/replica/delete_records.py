"""DeleteRecords: raises the log start offset of a partition for good. PURE.

The leader raises its log start offset at once. Followers learn of it from Fetch responses and report theirs
in their next Fetch. The response is the low watermark, the lowest log start offset of all live replicas: it
waits until that has reached the requested offset, or for the client's timeout. The next retention run deletes
local segments below it, the tier's own run remote ones. Source: KIP-107, KIP-630; spec T44, Q52, I24.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from firnline.base.effects import CancelTimer, Effects, SetTimer
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import METADATA_TOPIC, SYSTEM_TOPICS
from firnline.replica.partition import Partition

TO_HIGH_WATERMARK = -1


def protected_topic(topic: str) -> KafkaError | None:
    """The error for topics whose records no client may delete, or None."""
    if topic == METADATA_TOPIC:
        return _SNAPSHOTS
    # Without its metadata the tier is lost: refused too, unlike in Kafka 4.3.1 (T44).
    return _INTERNAL if topic in SYSTEM_TOPICS else None


class Deleted(NamedTuple):
    """The records of a partition below `required_offset`, deleted on the leader."""

    partition: Partition
    required_offset: int


def delete_records(partition: Partition, before_offset: int) -> Deleted | KafkaError:
    """Delete the records below `before_offset` (-1: the high watermark) on the leader.

    OFFSET_OUT_OF_RANGE above the high watermark or below zero; POLICY_VIOLATION if the topic's
    cleanup policy does not include delete.
    """
    refusal = protected_topic(partition.topic_partition.topic) or partition.refusal
    if refusal is not None:
        return refusal
    log = partition.log
    if "delete" not in log.config.cleanup_policy:
        return _POLICY
    offset = log.high_watermark if before_offset == TO_HIGH_WATERMARK else before_offset
    if offset < 0 or offset > log.high_watermark:
        return _OUT_OF_RANGE
    log.advance_log_start(offset)  # below the log start it only confirms that
    return Deleted(partition, offset)


# One outcome per partition: its low watermark, or an error.
DeleteRecordsCallback = Callable[[list[int | KafkaError], int], Effects]


class Deletions:
    """Requests that wait until all live replicas have deleted the records."""

    def __init__(self) -> None:
        self._serial = 0

    def when_replicated(
        self,
        deleted: Sequence[Deleted],
        *,
        timeout_ms: int,
        then: DeleteRecordsCallback,
        now_ms: int,
    ) -> Effects:
        """Call `then(outcomes, now_ms)` once every low watermark reached its offset, or after `timeout_ms`.

        REQUEST_TIMED_OUT for one that has not; the partition's refusal if this broker leads it no more.
        """
        self._serial += 1
        waiting = _Waiting(deleted, then, ("delete records", self._serial))
        return waiting.begin(timeout_ms, now_ms)


class _Waiting:
    """One delayed request."""

    def __init__(
        self, deleted: Sequence[Deleted], then: DeleteRecordsCallback, timer: tuple[str, int]
    ) -> None:
        self._outcomes: list[int | KafkaError] = [_TIMED_OUT] * len(deleted)
        self._left = dict(enumerate(deleted))
        self._then: DeleteRecordsCallback | None = then
        self._timer = timer

    def begin(self, timeout_ms: int, now_ms: int) -> Effects:
        for place in list(self._left):
            self._look(place)
        if not self._left:
            return self._answer(now_ms)
        effects: Effects = [
            SetTimer(key=self._timer, at_ms=now_ms + max(timeout_ms, 0), then=self._timed_out)
        ]
        for place, (partition, required_offset) in list(self._left.items()):
            partition.deletion_waiters.add(required_offset, self._waiter(place))
            # Answer delayed fetches of followers, so that they learn of it now.
            effects += partition.fetch_waiters.followers_at_once(now_ms)
        return effects

    def _waiter(self, place: int) -> Callable[[int], Effects]:
        def advanced(now_ms: int) -> Effects:
            if place not in self._left or self._then is None:
                return []
            self._look(place)
            if place in self._left:  # a replica joined that has not deleted them yet
                partition, required_offset = self._left[place]
                partition.deletion_waiters.add(required_offset, advanced)
            return [] if self._left else [CancelTimer(key=self._timer), *self._answer(now_ms)]

        return advanced

    def _look(self, place: int) -> None:
        partition, required_offset = self._left[place]
        if partition.refusal is not None:
            self._outcomes[place] = partition.refusal
        elif partition.low_watermark >= required_offset:
            self._outcomes[place] = partition.low_watermark
        else:
            return
        del self._left[place]

    def _timed_out(self, now_ms: int) -> Effects:
        for place in list(self._left):
            self._look(place)
        return self._answer(now_ms)

    def _answer(self, now_ms: int) -> Effects:
        then, self._then = self._then, None
        assert then is not None, "a request is answered once"
        return then(self._outcomes, now_ms)


# Only a snapshot that contains the records allows their deletion (Q52, rel-Q18).
_SNAPSHOTS = KafkaError(Code.POLICY_VIOLATION, f"only snapshots delete records of {METADATA_TOPIC}")
_INTERNAL = KafkaError(Code.INVALID_TOPIC_EXCEPTION, "records of internal topics cannot be deleted")
_POLICY = KafkaError(Code.POLICY_VIOLATION, "the topic's cleanup.policy does not include delete")
_OUT_OF_RANGE = KafkaError(
    Code.OFFSET_OUT_OF_RANGE, "the offset is negative or above the high watermark"
)
_TIMED_OUT = KafkaError(Code.REQUEST_TIMED_OUT, "a replica has not deleted the records yet")
