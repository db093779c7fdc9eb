"""A controller's decision: the records to write, and the response after their commit. PURE."""

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from firnline.metadata.delta import Replay
from firnline.metadata.image import ClusterImage
from firnline.protocol.schema import Message

R = TypeVar("R")


class Prepared(NamedTuple):
    """The records of a large decision, encoded and applied to the image that it was based on.

    body  the values as records of a batch
    """

    image: ClusterImage
    values: Sequence[bytes]
    body: bytearray
    replay: Replay


class ControllerResult(NamedTuple, Generic[R]):
    """Records to write, and the response to send when they are committed.

    `is_atomic`: readers see all of the records or none of them; they go into one batch. Other results may be
    spread over batches, in order, such as the many partitions of a fenced broker. `prepared`: the work that
    `MetadataQuorum.prepare` did before.
    """

    records: Sequence[Message]
    response: R
    is_atomic: bool = True
    prepared: Prepared | None = None
