"""What the quorum asks of the world: a log, a place for votes, and somebody to tell. PURE.

`metadata/meta_log.py` supplies both stores; `metadata/quorum.py` listens. Source: KIP-595.
"""

from collections.abc import Sequence
from typing import Protocol

from firnline.base.effects import Effects
from firnline.base.ports import File
from firnline.raft.election_state import ElectionState


class ReplicatedLog(Protocol):
    """The log of `__cluster_metadata-0`, as the quorum sees it."""

    @property
    def start_offset(self) -> int:
        """First offset that is still here, inclusive."""
        ...

    @property
    def end_offset(self) -> int:
        """Offset the next record gets."""
        ...

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record or of the snapshot the log starts at; 0 for neither (Q4)."""
        ...

    def append(self, batch: bytearray, *, epoch: int, now_ms: int) -> int:
        """Append one whole batch and return its base offset. StorageError if it cannot be written."""
        ...

    def unsynced(self) -> Sequence[File]:
        """The files to sync so that everything below `end_offset` survives a power cut."""
        ...

    def synced(self, end_offset: int) -> None:
        """Hear that everything below `end_offset` survives now."""
        ...

    def advance_high_watermark(self, offset: int) -> None:
        """Hear that everything below `offset` is committed."""
        ...


class ElectionStore(Protocol):
    """Where epoch and vote are kept. What `save` was given survives a power cut when it returns."""

    def load(self) -> ElectionState | None:
        """The last saved state; None when there is none. StorageError for a damaged one."""
        ...

    def save(self, state: ElectionState) -> None: ...


class RaftListener(Protocol):
    """Who applies what the quorum commits."""

    def on_leader(self, epoch: int, now_ms: int) -> Effects:
        """This node leads `epoch`, and everything before that epoch is committed and was told (Q39)."""
        ...

    def on_committed(self, end_offset: int, now_ms: int) -> Effects:
        """Everything below `end_offset` is committed."""
        ...
