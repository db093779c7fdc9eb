"""Blocks of producer ids, each handed out once in the cluster's life. PURE. Source: KIP-730."""

from typing import NamedTuple

from firnline.base.errors import Code, KafkaError
from firnline.base.units import INT64_MAX
from firnline.metadata import records as r
from firnline.metadata.image import ClusterImage
from firnline.metadata.result import ControllerResult

BLOCK_SIZE = 1000


class ProducerIdBlock(NamedTuple):
    """Ids from `first_id` on, `size` of them."""

    first_id: int
    size: int


def allocate_producer_ids(
    image: ClusterImage, *, broker_id: int, broker_epoch: int
) -> ControllerResult[ProducerIdBlock | KafkaError]:
    """Hand the next block to a registered broker; its epoch must be that of the registration."""
    problem = epoch_problem(image, broker_id=broker_id, broker_epoch=broker_epoch)
    if problem is not None:
        return ControllerResult([], problem)
    first_id = max(image.next_producer_id, 0)
    if first_id > INT64_MAX - BLOCK_SIZE:
        return ControllerResult([], KafkaError(Code.UNKNOWN_SERVER_ERROR, "producer ids ran out"))
    record = r.ProducerIdsRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first_id + BLOCK_SIZE
    )
    return ControllerResult([record], ProducerIdBlock(first_id, BLOCK_SIZE))


def epoch_problem(image: ClusterImage, *, broker_id: int, broker_epoch: int) -> KafkaError | None:
    """Say why a request is not from the present incarnation of a broker, or return None."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        why = f"no broker {broker_id} is registered"
        return KafkaError(Code.STALE_BROKER_EPOCH, why)
    if broker.epoch != broker_epoch:
        why = f"broker {broker_id} is registered with another epoch"
        return KafkaError(Code.STALE_BROKER_EPOCH, why)
    return None
