"""A producer: batches of unique records, sent until they are acknowledged. SIM.

Each partition has its own queue. Idempotent batches, one or several in flight, are sent again, byte for byte,
until they are answered. Others are sent one at a time, and only once, so that none can be there twice. What
acks=1 acknowledged is counted separately. Source: spec C13; KIP-98.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from firnline.base.effects import Effects, Send, SetTimer, Unanswered
from firnline.base.errors import Code
from firnline.base.ids import Uuid
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from firnline.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from firnline.records.build import NewRecord, build_batch
from firnline.sim.cluster.batch_queue import NO_PRODUCER, Batch, BatchQueue
from firnline.sim.cluster.client import Client, PartitionLeader
from firnline.sim.options import Options
from firnline.sim.world import EPOCH_S, Chance

ACKS_ALL, ACKS_ONE = -1, 1
_RETRY_MS = 100
# Of a compacted topic.
_KEYS = 200
_PRODUCE_TIMEOUT_MS = 3_000
# After so many attempts a batch is given up, and an idempotent queue begins with a new producer id.
_ATTEMPTS_MAX = 60
# The partition is gone, or never existed: the queue ends.
_GONE = (Code.UNKNOWN_TOPIC_ID, Code.UNKNOWN_TOPIC_OR_PARTITION)
_LOST_STATE = (
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Code.UNKNOWN_PRODUCER_ID,
    Code.INVALID_PRODUCER_EPOCH,
)


class Producer(Client):
    """`is_on` False: finish what is in flight, start nothing new.

    acknowledged   records that were acknowledged, with acks=all
    out_of_order   idempotent batches that the leader refused although their predecessors were acknowledged
    is_deposed     whether that leader epoch of a partition is over: its leader may lack the predecessors
    """

    def __init__(
        self,
        number: int,
        options: Options,
        chance: Chance,
        is_deposed: Callable[[tuple[Uuid, int], int], bool],
    ) -> None:
        super().__init__(options, chance)
        self.number = number
        self.is_on = True
        self.acknowledged = 0
        self.acknowledged_by_one = 0
        self.out_of_order: list[tuple[tuple[Uuid, int], str]] = []
        self._is_deposed = is_deposed
        self._queues: dict[tuple[Uuid, int], BatchQueue] = {}
        self._made = 0
        self._compacted = [topic.name for topic in self.shape.topics if topic.is_compacted]
        self._version_max = chance.pick((13, 13, 12, 9, 7))

    def start(self, now_ms: int) -> Effects:
        return [*super().start(now_ms), self._heartbeat(now_ms)]

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight."""
        return not any(queue.batches for queue in self._queues.values())

    def _heartbeat(self, now_ms: int) -> SetTimer:
        gap_ms = self.chance.between(1, 2 * self.shape.batch_gap_ms)
        return SetTimer(key="beat", at_ms=now_ms + gap_ms, then=self._produce)

    def on_places(self, now_ms: int) -> Effects:
        for key in self.places:
            if key not in self._queues:
                self._queues[key] = self._queue(key)
        for key in [key for key in self._queues if key not in self.places]:
            if self._queues[key].is_idle:
                del self._queues[key]
        return []

    def _queue(self, key: tuple[Uuid, int]) -> BatchQueue:
        is_plain = self.chance.happens(self.shape.plain_percent)
        is_one = is_plain and self.chance.happens(self.shape.acks_one_percent)
        depth = 1 if is_plain else self.shape.in_flight
        acks = ACKS_ONE if is_one else ACKS_ALL
        return BatchQueue(key, is_idempotent=not is_plain, acks=acks, depth=depth)

    def _produce(self, now_ms: int) -> Effects:
        """Start batches on a queue that has room."""
        effects: Effects = [self._heartbeat(now_ms)]
        free = [queue for queue in self._queues.values() if queue.room]
        if not self.is_on or not free:
            return effects
        return effects + self._go(self.chance.pick(free), now_ms)

    def _go(self, queue: BatchQueue, now_ms: int) -> Effects:
        """Get an id, fill the queue unless older batches come first, and send."""
        if queue.is_idempotent and queue.producer_id == NO_PRODUCER:
            queue.is_waiting = True
            then = partial(self._has_id, queue)
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            return [self.ask(self.any_broker(), request, then, channel="producer id")]
        queue.is_waiting = False
        self._fill(queue)
        return self._send(queue, now_ms)

    def _has_id(self, queue: BatchQueue, answer: Any, now_ms: int) -> Effects:
        if isinstance(answer, Unanswered) or answer.error_code:
            if queue.key not in self.places:
                queue.is_waiting = False
                return []
            return self._later(queue, now_ms)
        queue.producer_id, queue.sequence = answer.producer_id, 0
        return self._go(queue, now_ms)

    def _fill(self, queue: BatchQueue) -> None:
        """Add a burst of batches, together as large as one."""
        burst = 1 if queue.depth == 1 else self.chance.between(1, queue.depth)
        for _ in range(min(burst, queue.room)):
            is_even = self.shape.is_even
            drawn = self.chance.between(1, 2 * self.shape.batch_records) // burst
            count = self.shape.batch_records if is_even else max(1, drawn)
            self._made += 1
            value = b"%02d/%07d/%03d" if is_even else b"%d/%d/%d"
            rows = [
                self._keyed(queue, value % (self.number, self._made, row), self._time_ms(row))
                for row in range(count)
            ]
            data = build_batch(
                rows,
                producer_id=queue.producer_id,
                producer_epoch=0 if queue.is_idempotent else -1,
                base_sequence=queue.sequence if queue.is_idempotent else -1,
            )
            queue.add(bytes(data), count)

    def _keyed(self, queue: BatchQueue, value: bytes, time_ms: int) -> NewRecord:
        """A record; in a compacted topic with a key, and some of them delete it."""
        place = self.places.get(queue.key)
        if place is None or place.topic not in self._compacted:
            return NewRecord(None, value, time_ms)
        key = b"%d" % self.chance.below(_KEYS)
        return NewRecord(key, None if self.chance.happens(10) else value, time_ms)

    def _time_ms(self, row: int) -> int:
        """Return timestamps that mostly grow, like those of several machines."""
        spread_ms = 0 if self.shape.is_even else self.chance.below(50)
        return EPOCH_S * 1000 + self._made * 100 + row + spread_ms

    def _send(self, queue: BatchQueue, now_ms: int) -> Effects:
        """Send what is not in flight, oldest first."""
        place = self.places.get(queue.key)
        if place is None or any(batch.attempts >= _ATTEMPTS_MAX for batch in queue.batches):
            queue.give_up()
            return []
        if place.leader_id < 0:
            for batch in queue.batches:
                batch.attempts += not batch.is_flying
            return [*self.refresh_soon(now_ms), *self._later(queue, now_ms)]
        return [self._request(queue, batch, place) for batch in queue.to_send()]

    def _request(
        self, queue: BatchQueue, batch: Batch, place: PartitionLeader
    ) -> Send[ProduceResponse]:
        data = PartitionProduceData(index=place.partition, records=bytearray(batch.data))
        topic = TopicProduceData(name=place.topic, topic_id=place.topic_id, partition_data=[data])
        request = ProduceRequest(
            acks=queue.acks, timeout_ms=_PRODUCE_TIMEOUT_MS, topic_data=[topic]
        )
        return self.ask(
            place.leader_id,
            request,
            partial(self._answered, queue, batch, place.leader_epoch),
            channel=f"produce {place.partition % 2}",
            version_max=self._version_max,
        )

    def _answered(
        self, queue: BatchQueue, batch: Batch, leader_epoch: int, answer: Any, now_ms: int
    ) -> Effects:
        if batch not in queue.batches:
            return []  # given up meanwhile
        batch.is_flying = False
        if isinstance(answer, Unanswered):
            code = Code.NETWORK_EXCEPTION
        else:
            code = answer.responses[0].partition_responses[0].error_code
        if code == Code.NONE:
            if queue.acks == ACKS_ALL:
                self.acknowledged += batch.count
            else:
                self.acknowledged_by_one += batch.count
            queue.batches.remove(batch)
            return []
        if code in _LOST_STATE and (batch.is_first or code != Code.OUT_OF_ORDER_SEQUENCE_NUMBER):
            is_followed = batch.is_followed and code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
            if not is_followed and not self._is_deposed(queue.key, leader_epoch):
                text = f"{Code(code).name} for sequence {batch.sequence} of {queue.key}"
                self.out_of_order.append((queue.key, text))
            queue.give_up()
            return []
        if code in _GONE and queue.key not in self.places:
            queue.give_up()
            return []
        effects = self.refresh_soon(now_ms)
        if not queue.is_idempotent:
            # It may have been appended: another attempt could append it twice.
            queue.give_up()
            return effects
        return effects if queue.is_waiting else [*effects, *self._later(queue, now_ms)]

    def _later(self, queue: BatchQueue, now_ms: int) -> Effects:
        queue.is_waiting = True
        at_ms = now_ms + _RETRY_MS + self.chance.below(_RETRY_MS)
        key = ("queue", queue.key[0].hex(), queue.key[1])
        return [SetTimer(key=key, at_ms=at_ms, then=partial(self._go, queue))]
