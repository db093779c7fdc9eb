"""A producer: batches of records that never repeat, sent until they are acknowledged. SIM.

Each partition is a lane of its own, with one batch under way: idempotent ones are sent again, byte for byte,
until somebody answers; plain ones once, so that nothing of theirs may be there twice. What acks=1 promised is
counted apart. Source: spec C13; KIP-98.
"""

from functools import partial
from typing import Any

from firnline.base.effects import Effects, SetTimer, Unanswered
from firnline.base.errors import Code
from firnline.base.ids import Uuid
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from firnline.records.build import NewRecord, build_batch
from firnline.sim.cluster.client import Client
from firnline.sim.options import Options
from firnline.sim.world import EPOCH_S, Chance

ACKS_ALL, ACKS_ONE = -1, 1
_RETRY_MS = 100
_PRODUCE_TIMEOUT_MS = 3_000
# After so many attempts a batch is given up, and an idempotent lane begins anew.
_ATTEMPTS_MAX = 60
_NO_PRODUCER = -1
# The partition is gone, or was never there: the lane ends.
_GONE = (Code.UNKNOWN_TOPIC_ID, Code.UNKNOWN_TOPIC_OR_PARTITION)
_LOST_STATE = (
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Code.UNKNOWN_PRODUCER_ID,
    Code.INVALID_PRODUCER_EPOCH,
)


class Lane:
    """One partition as this producer writes to it."""

    __slots__ = (
        "acks",
        "attempts",
        "batch",
        "count",
        "is_idempotent",
        "is_waiting",
        "key",
        "producer_id",
        "sequence",
    )

    def __init__(self, key: tuple[Uuid, int], *, is_idempotent: bool, acks: int) -> None:
        self.key = key
        self.is_idempotent = is_idempotent
        self.acks = acks
        self.producer_id = _NO_PRODUCER
        self.sequence = 0
        self.batch: bytes | None = None
        self.count = 0
        self.attempts = 0
        self.is_waiting = False  # something was asked, or will be in a moment


class Producer(Client):
    """`is_on` False: what is under way is brought to its end, nothing more is begun.

    acknowledged   records that success was heard of, at acks=all
    out_of_order   idempotent batches whose predecessors were acknowledged, and that no leader took
    """

    def __init__(self, number: int, options: Options, chance: Chance) -> None:
        super().__init__(options, chance)
        self.number = number
        self.is_on = True
        self.acknowledged = 0
        self.acknowledged_by_one = 0
        self.out_of_order: list[str] = []
        self._lanes: dict[tuple[Uuid, int], Lane] = {}
        self._made = 0
        self._version_max = chance.pick((13, 13, 12, 9, 7))

    def start(self, now_ms: int) -> Effects:
        return [*super().start(now_ms), self._beat(now_ms)]

    @property
    def is_idle(self) -> bool:
        """Is nothing under way?"""
        return not any(lane.batch for lane in self._lanes.values())

    def _beat(self, now_ms: int) -> SetTimer:
        gap_ms = self.chance.between(1, 2 * self.shape.batch_gap_ms)
        return SetTimer(key="beat", at_ms=now_ms + gap_ms, then=self._produce)

    def on_places(self, now_ms: int) -> Effects:
        for key in self.places:
            if key not in self._lanes:
                self._lanes[key] = self._lane(key)
        for key in [key for key in self._lanes if key not in self.places]:
            if not self._lanes[key].is_waiting:
                del self._lanes[key]
        return []

    def _lane(self, key: tuple[Uuid, int]) -> Lane:
        is_plain = self.chance.happens(self.shape.plain_percent)
        is_one = is_plain and self.chance.happens(self.shape.acks_one_percent)
        return Lane(key, is_idempotent=not is_plain, acks=ACKS_ONE if is_one else ACKS_ALL)

    def _produce(self, now_ms: int) -> Effects:
        """Begin a batch on a lane that is free."""
        effects: Effects = [self._beat(now_ms)]
        free = [lane for lane in self._lanes.values() if not lane.is_waiting]
        if not self.is_on or not free:
            return effects
        lane = self.chance.pick(free)
        lane.is_waiting = True
        return effects + self._go(lane, now_ms)

    def _go(self, lane: Lane, now_ms: int) -> Effects:
        if lane.is_idempotent and lane.producer_id == _NO_PRODUCER:
            then = partial(self._has_id, lane)
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            return [self.ask(self.any_broker(), request, then, channel="producer id")]
        if lane.batch is None:
            self._fill(lane)
        return self._send(lane, now_ms)

    def _has_id(self, lane: Lane, answer: Any, now_ms: int) -> Effects:
        if isinstance(answer, Unanswered) or answer.error_code:
            if lane.key not in self.places:
                lane.is_waiting = False
                return []
            return self._later(lane, now_ms)
        lane.producer_id, lane.sequence = answer.producer_id, 0
        return self._go(lane, now_ms)

    def _fill(self, lane: Lane) -> None:
        lane.count = self.chance.between(1, 2 * self.shape.batch_records)
        self._made += 1
        rows = [
            NewRecord(None, b"%d/%d/%d" % (self.number, self._made, row), self._time_ms(row))
            for row in range(lane.count)
        ]
        batch = build_batch(
            rows,
            producer_id=lane.producer_id,
            producer_epoch=0 if lane.is_idempotent else -1,
            base_sequence=lane.sequence if lane.is_idempotent else -1,
        )
        lane.batch, lane.attempts = bytes(batch), 0

    def _time_ms(self, row: int) -> int:
        """Times that mostly grow, as records of several machines do."""
        return EPOCH_S * 1000 + self._made * 100 + row + self.chance.below(50)

    def _send(self, lane: Lane, now_ms: int) -> Effects:
        place = self.places.get(lane.key)
        lane.attempts += 1
        if place is None or lane.attempts > _ATTEMPTS_MAX:
            return self._given_up(lane)
        if place.leader_id < 0 or lane.batch is None:
            return [*self.refresh_soon(now_ms), *self._later(lane, now_ms)]
        data = PartitionProduceData(index=place.partition, records=bytearray(lane.batch))
        topic = TopicProduceData(name=place.topic, topic_id=place.topic_id, partition_data=[data])
        request = ProduceRequest(acks=lane.acks, timeout_ms=_PRODUCE_TIMEOUT_MS, topic_data=[topic])
        return [
            self.ask(
                place.leader_id,
                request,
                partial(self._answered, lane),
                channel=f"produce {place.partition % 2}",
                version_max=self._version_max,
            )
        ]

    def _answered(self, lane: Lane, answer: Any, now_ms: int) -> Effects:
        if isinstance(answer, Unanswered):
            code = Code.NETWORK_EXCEPTION
        else:
            code = answer.responses[0].partition_responses[0].error_code
        if code == Code.NONE:
            if lane.acks == ACKS_ALL:
                self.acknowledged += lane.count
            else:
                self.acknowledged_by_one += lane.count
            return self._done(lane)
        if code in _LOST_STATE:
            self.out_of_order.append(
                f"{Code(code).name} for sequence {lane.sequence} of {lane.key}"
            )
            return self._given_up(lane)
        if code in _GONE and lane.key not in self.places:
            return self._given_up(lane)
        effects = self.refresh_soon(now_ms)
        if not lane.is_idempotent:
            # It may have been appended: another attempt could append it twice.
            return [*effects, *self._done(lane)]
        return [*effects, *self._later(lane, now_ms)]

    def _later(self, lane: Lane, now_ms: int) -> Effects:
        at_ms = now_ms + _RETRY_MS + self.chance.below(_RETRY_MS)
        key = ("lane", lane.key[0].hex(), lane.key[1])
        return [SetTimer(key=key, at_ms=at_ms, then=partial(self._go, lane))]

    def _done(self, lane: Lane) -> Effects:
        lane.sequence += lane.count
        lane.batch, lane.is_waiting = None, False
        return []

    def _given_up(self, lane: Lane) -> Effects:
        """Whether it was appended nobody knows: what follows is of another producer."""
        lane.producer_id = _NO_PRODUCER
        return self._done(lane)
