"""Producer ids for idempotent producers, from blocks that the controller allocates. PURE.

An id is never used twice, over all brokers and restarts: a block that is not used up when a node stops is
lost. Requests wait while the next block is being allocated. Source: KIP-98, KIP-730.

Transactions are not supported yet: the handler refuses a request with a transactional id with
UNSUPPORTED_VERSION, which clients treat as final at once (they would retry a coordinator error).
"""

from collections.abc import Callable
from typing import NamedTuple

from firnline.base.effects import Effect, Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import ProducerIdBlock
from firnline.base.units import INT64_MAX

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


class NewProducer(NamedTuple):
    """The id and epoch of a new producer."""

    producer_id: int
    producer_epoch: int


Allocated = Callable[[ProducerIdBlock | KafkaError, int], Effects]
Allocate = Callable[[Allocated], Effects]
InitProducerIdCallback = Callable[[NewProducer | KafkaError], Effect]


class ProducerIds:
    """Hands out ids; calls `allocate` for the next block when a block is used up.

    _next, _end  the rest of the block: [_next, _end). `_next` only grows within it, so no id is given twice;
                 the controller allocates no block twice
    _waiting     requests without an id, oldest first. Not empty exactly while an allocation is under way:
                 one at a time, and no later request overtakes
    """

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._waiting: list[InitProducerIdCallback] = []

    def init(
        self, *, producer_id: int, producer_epoch: int, answer: InitProducerIdCallback
    ) -> Effects:
        """Give an idempotent producer an id with epoch 0.

        A producer that states its old id gets a new one as well: without transactions we keep no state in
        which its epoch could be raised (KIP-360 leaves that to the client). Only one of id and epoch is an
        INVALID_REQUEST.
        """
        if (producer_id == NO_PRODUCER_ID) != (producer_epoch == NO_PRODUCER_EPOCH):
            return [
                answer(
                    KafkaError(Code.INVALID_REQUEST, "producer id and epoch must be given together")
                )
            ]
        if self._waiting or self._next >= self._end:
            self._waiting.append(answer)
            return self._allocate(self._on_allocated) if len(self._waiting) == 1 else []
        return [answer(self._take())]

    def _take(self) -> NewProducer:
        assert self._next < self._end <= INT64_MAX, "an id is given once, and from a block"
        self._next += 1
        return NewProducer(self._next - 1, 0)

    def _on_allocated(self, result: ProducerIdBlock | KafkaError, now_ms: int) -> Effects:
        """Answer the waiting requests. Without a block they must retry; after a small block, allocate
        another.
        """
        assert self._waiting, "an allocation is under way while requests wait, and ends once"
        assert self._next >= self._end, "a block is used up before the next one"
        if isinstance(result, KafkaError):
            waiting, self._waiting = self._waiting, []
            later = KafkaError(
                Code.COORDINATOR_LOAD_IN_PROGRESS, "no producer ids available at the moment"
            )
            return [answer(later) for answer in waiting]
        self._next, self._end = result.first_id, result.first_id + result.size
        served, self._waiting = self._waiting[: result.size], self._waiting[result.size :]
        effects: Effects = [answer(self._take()) for answer in served]
        return effects + self._allocate(self._on_allocated) if self._waiting else effects
