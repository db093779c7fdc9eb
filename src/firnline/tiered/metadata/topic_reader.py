"""What the metadata of the tier needs of the broker: the records of `__remote_log_metadata`. PURE."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from firnline.base.effects import Effects
from firnline.base.errors import StorageError
from firnline.records.unreadable import Span


class MetadataTopicReader(Protocol):
    """Reads `__remote_log_metadata` on this node. Synchronous; reads at most from the page cache."""

    def partition_count(self) -> int | None:
        """The number of partitions in the committed image; None while the topic does not exist."""
        ...

    def bounds(self, partition: int) -> tuple[int, int] | None:
        """Return (log start offset, high watermark); None while they are not certain."""
        ...

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Return committed complete batches from the one with `offset` on; b"" at the high watermark.

        StorageError: the files of the partition cannot be read; call `read_failed`.
        """
        ...

    def read_failed(self, partition: int, problem: StorageError, now_ms: int) -> Effects:
        """Take the log directory of the partition offline, if its disk has failed (rel-P9)."""
        ...

    def leads(self, partition: int) -> bool:
        """Whether this node leads the metadata partition, and so removes its deleted topics."""
        ...

    def given_up(self, partition: int) -> Sequence[Span]:
        """The unreadable offsets that the operator has given up."""
        ...

    def fork(self, partition: int, offset: int, epoch: int) -> int | None:
        """Return where the records up to `offset`, the last in `epoch`, leave the leader's history, or None.

        `epoch` is -1 if the record before `offset` is unknown.
        """
        ...

    def catch_up(
        self,
        positions: Mapping[int, tuple[int, int]],
        then: Callable[[int, int], Effects],
        now_ms: int,
        *,
        is_fresh: bool = False,
    ) -> Effects:
        """Read from other leaders what each partition has from (an offset, the epoch before it) on.

        Partitions that this node leads are skipped.

        `then(partition, now_ms)` is called whenever more of one can be read, or its end is known.
        `is_fresh`: `bounds` are unknown until a response to this call.
        """
        ...
