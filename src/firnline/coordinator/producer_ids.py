"""Producer ids for idempotent producers, from blocks that the controller hands out. PURE.

An id is never given twice, over all brokers and restarts: a block that was not used up when a node
stops is lost. Who asks while the next block is on its way waits for it. Source: KIP-98, KIP-730.

Transactions are not here yet: a request with a transactional id is refused by the handler with
UNSUPPORTED_VERSION, which clients take as final at once (a coordinator error they would retry).
"""

from collections.abc import Callable
from typing import NamedTuple

from firnline.base.effects import Effect, Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.units import INT64_MAX

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


class ProducerIdBlock(NamedTuple):
    """Ids from `first` on, `size` of them; the controller gives blocks of 1000."""

    first: int
    size: int


class NewProducer(NamedTuple):
    """What a producer begins with."""

    producer_id: int
    producer_epoch: int


Allocated = Callable[[ProducerIdBlock | KafkaError, int], Effects]
Allocate = Callable[[Allocated], Effects]
Answer = Callable[[NewProducer | KafkaError], Effect]


class ProducerIds:
    """Hands out ids; asks `allocate` for the next block when the one it has is used up."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0  # exclusive
        self._waiting: list[Answer] = []

    def init(self, *, producer_id: int, producer_epoch: int, answer: Answer) -> Effects:
        """Give an idempotent producer an id, epoch 0.

        A producer that names the id it had gets a new one all the same: without transactions nothing
        is kept that its epoch could be counted up in (KIP-360 has the client do that). Naming only
        one of id and epoch is an INVALID_REQUEST.
        """
        if (producer_id == NO_PRODUCER_ID) != (producer_epoch == NO_PRODUCER_EPOCH):
            return [answer(KafkaError(Code.INVALID_REQUEST, "producer id without epoch, or so"))]
        if self._waiting or self._next >= self._end:
            self._waiting.append(answer)
            return self._allocate(self._on_allocated) if len(self._waiting) == 1 else []
        return [answer(self._take())]

    def _take(self) -> NewProducer:
        assert self._next < self._end <= INT64_MAX
        self._next += 1
        return NewProducer(self._next - 1, 0)

    def _on_allocated(self, result: ProducerIdBlock | KafkaError, now_ms: int) -> Effects:
        """Serve who waits. Without a block all are to try again; a small block is followed by another."""
        if isinstance(result, KafkaError):
            waiting, self._waiting = self._waiting, []
            later = KafkaError(Code.COORDINATOR_LOAD_IN_PROGRESS, "no producer ids at the moment")
            return [answer(later) for answer in waiting]
        self._next, self._end = result.first, result.first + result.size
        served, self._waiting = self._waiting[: result.size], self._waiting[result.size :]
        effects: Effects = [answer(self._take()) for answer in served]
        return effects + self._allocate(self._on_allocated) if self._waiting else effects
