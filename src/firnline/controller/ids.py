"""Producer id blocks, each allocated once in the life of the cluster. PURE. Source: KIP-730."""

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import ProducerIdBlock
from firnline.base.units import INT64_MAX
from firnline.metadata import records as r
from firnline.metadata.image import ClusterImage
from firnline.metadata.result import ControllerResult

BLOCK_SIZE = 1000


def allocate_producer_ids(
    image: ClusterImage, *, broker_id: int, broker_epoch: int
) -> ControllerResult[ProducerIdBlock | KafkaError]:
    """Allocate the next block to a registered broker, whose broker epoch must be current."""
    problem = epoch_problem(image, broker_id=broker_id, broker_epoch=broker_epoch)
    if problem is not None:
        return ControllerResult([], problem)
    first_id = max(image.next_producer_id, 0)
    if first_id > INT64_MAX - BLOCK_SIZE:
        return ControllerResult(
            [], KafkaError(Code.UNKNOWN_SERVER_ERROR, "no producer ids are left")
        )
    record = r.ProducerIdsRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first_id + BLOCK_SIZE
    )
    return ControllerResult([record], ProducerIdBlock(first_id, BLOCK_SIZE))


def epoch_problem(image: ClusterImage, *, broker_id: int, broker_epoch: int) -> KafkaError | None:
    """The error if a request is not from the registered incarnation of a broker, or None."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        why = f"no broker {broker_id} is registered"
        return KafkaError(Code.STALE_BROKER_EPOCH, why)
    if broker.epoch != broker_epoch:
        why = f"broker {broker_id} is registered with another broker epoch"
        return KafkaError(Code.STALE_BROKER_EPOCH, why)
    return None
