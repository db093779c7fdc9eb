"""What a decision consists of: records that say what is to be, and the answer once it is. PURE."""

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from firnline.metadata.delta import Replay
from firnline.metadata.image import ClusterImage
from firnline.protocol.schema import Message

R = TypeVar("R")


class Prepared(NamedTuple):
    """The records of a large decision, encoded and applied to the image that it was made on.

    body  the values as records of a batch
    """

    image: ClusterImage
    values: Sequence[bytes]
    body: bytearray
    replay: Replay


class ControllerResult(NamedTuple, Generic[R]):
    """Records to write, and the response that is true when they are committed.

    `is_atomic`: all of the records or none of them may ever be seen; they go into one batch. Others may
    be spread over batches, in order, as a broker's fencing with its many partitions.
    `prepared`: what was done of the writing before (`MetadataQuorum.prepare`).
    """

    records: Sequence[Message]
    response: R
    is_atomic: bool = True
    prepared: Prepared | None = None
