"""How a Fetch reads from the tier: the port that `broker/fetch.py` calls. PURE."""

from collections.abc import Callable
from typing import Protocol

from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.base.ids import TopicPartition, Uuid
from firnline.tiered.reads.reader import RemoteLogReadResult

RemoteReadCallback = Callable[[RemoteLogReadResult | KafkaError, int], Effects]
# Called with the callback of a read that is not waited for any more, and `now_ms`. Calls it with an error, at
# once, if the read has outlived an earlier Fetch, too: one answer without records for it is enough.
StopRemoteRead = Callable[[RemoteReadCallback, int], Effects]


class RemoteRead(Protocol):
    """Reads from the tier. Calls `then` once, at once or later; errors are values (T41)."""

    def __call__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        offset: int,
        epoch: int,
        max_bytes: int,
        isolation: int,
        then: RemoteReadCallback,
        now_ms: int,
    ) -> Effects: ...
