"""DeleteRecords: move the log start up, for good. PURE.

The answer is the low watermark: the least log start over live replicas, which with one replica is
ours, at once. Followers learn of it in the answers to their Fetches, and tell in the next one how far they
are; it is waited for as long as the client says. Local segments below it go with the next retention run,
remote ones with the tier's. Source: KIP-107, KIP-630; spec T44, Q52, I24.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from firnline.base.effects import CancelTimer, Effects, SetTimer
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import METADATA_TOPIC, SYSTEM_TOPICS
from firnline.replica.partition import Partition

TO_HIGH_WATERMARK = -1


def protected_topic(topic: str) -> KafkaError | None:
    """Refuse topics whose records only their owner may delete."""
    if topic == METADATA_TOPIC:
        return _SNAPSHOTS
    # A client that empties the tier's metadata would lose the tier: refused too, unlike Kafka 4.3.1 (T44).
    return _INTERNAL if topic in SYSTEM_TOPICS else None


class Deleted(NamedTuple):
    """Records that are gone here: those of the partition below `required_offset`."""

    partition: Partition
    required_offset: int


def delete_records(partition: Partition, before_offset: int) -> Deleted | KafkaError:
    """Delete what is below `before_offset` (-1: the high watermark) from the log of the leader.

    OFFSET_OUT_OF_RANGE above the high watermark or below zero; POLICY_VIOLATION where the topic's
    cleanup policy does not delete.
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
    if offset > log.log_start_offset:
        log.advance_log_start(offset)
    return Deleted(partition, offset)


# One outcome for each that was deleted: its low watermark, or why it is not known.
DeleteRecordsCallback = Callable[[list[int | KafkaError], int], Effects]


class Deletions:
    """Answers that wait until all live replicas have deleted what the leader has."""

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
        """Run `then(outcomes, now_ms)` when every low watermark is there, or after `timeout_ms`.

        REQUEST_TIMED_OUT for one that is not; what refuses now for one that is led here no more.
        """
        self._serial += 1
        waiting = _Waiting(deleted, then, ("delete records", self._serial))
        return waiting.begin(timeout_ms, now_ms)


class _Waiting:
    """One request."""

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
            partition.deletion_waiters.add(required_offset, self._teller(place))
            # Those who wait for records learn of it now, and not when their wait ends.
            effects += partition.fetch_waiters.followers_at_once(now_ms)
        return effects

    def _teller(self, place: int) -> Callable[[int], Effects]:
        def told(now_ms: int) -> Effects:
            if place not in self._left or self._then is None:
                return []
            self._look(place)
            if place in self._left:  # a replica came that is not there yet
                partition, required_offset = self._left[place]
                partition.deletion_waiters.add(required_offset, told)
            return [] if self._left else [CancelTimer(key=self._timer), *self._answer(now_ms)]

        return told

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
        assert then is not None, "it is answered once"
        return then(self._outcomes, now_ms)


# Its cleanup policy is snapshot: only a snapshot that holds what they say lets records go (Q52, rel-Q18).
_SNAPSHOTS = KafkaError(Code.POLICY_VIOLATION, f"records of {METADATA_TOPIC} go by snapshots alone")
_INTERNAL = KafkaError(Code.INVALID_TOPIC_EXCEPTION, "records of internal topics stay")
_POLICY = KafkaError(Code.POLICY_VIOLATION, "the topic's cleanup policy does not delete")
_OUT_OF_RANGE = KafkaError(Code.OFFSET_OUT_OF_RANGE, "no such offset below the high watermark")
_TIMED_OUT = KafkaError(Code.REQUEST_TIMED_OUT, "a replica has not deleted the records yet")
