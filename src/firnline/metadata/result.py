"""What a decision consists of: records that say what is to be, and the answer once it is. PURE."""

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from firnline.protocol.schema import Message

R = TypeVar("R")


class ControllerResult(NamedTuple, Generic[R]):
    """Records to write, and the response that is true when they are committed.

    `is_atomic`: all of the records or none of them may ever be seen; they go into one batch. Others may
    be spread over batches, in order, as a broker's fencing with its many partitions.
    """

    records: Sequence[Message]
    response: R
    is_atomic: bool = True
