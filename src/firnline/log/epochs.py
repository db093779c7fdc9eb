"""Which leader epoch began at which offset: the lineage of a log. STORE: one checkpoint file.

`leader-epoch-checkpoint` is a version 0 checkpoint of `epoch start-offset` lines. It is replaced durably with
each assignment and each truncation of the end (spec T46), later after one of the start, which opening does
again; it never claims offsets beyond the log: opening truncates it to what the log has (rel-P13). Epochs and
offsets ascend. Source: KIP-101, KIP-279.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial

from firnline.base.ids import NO_EPOCH, NO_OFFSET
from firnline.base.ports import Fs
from firnline.log.checkpoint import parse_entries, read_whole, write_entries


class LeaderEpochs:
    """Epochs of one partition with the offset each began at; two ascending lists of one length."""

    __slots__ = ("_epochs", "_fs", "_is_unwritten", "_path", "_starts", "is_damaged")

    def __init__(self, fs: Fs, path: str) -> None:
        self._fs = fs
        self._path = path
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._is_unwritten = False
        self.is_damaged = False  # the file could not be read: recovery has to look at the batches
        self._load()

    def _load(self) -> None:
        data = read_whole(self._fs, self._path)
        if data is None:
            return
        try:
            rows = [(int(epoch), int(start)) for epoch, start in parse_entries(data, 2)]
        except ValueError:
            self.is_damaged = True
            return
        for epoch, start in rows:
            if epoch < 0 or start < 0:
                self.is_damaged = True
            else:
                self._put(epoch, start)

    def entries(self) -> tuple[tuple[int, int], ...]:
        """Return every (epoch, start offset), ascending."""
        return tuple(zip(self._epochs, self._starts))

    @property
    def latest_epoch(self) -> int:
        """The newest epoch, -1 when there is none."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` begins at `start_offset`; True when that was news, and is now on disk.

        Entries that contradict it, at or after its epoch or its start, are dropped.
        """
        if not self.note(epoch, start_offset):
            return False
        self.write()
        return True

    def note(self, epoch: int, start_offset: int) -> bool:
        """`assign` without the file: for recovery and for a batch of changes; `write` has to follow."""
        assert epoch >= 0, "an epoch of the log is never unknown"
        assert start_offset >= 0
        if self._epochs and self._epochs[-1] == epoch and start_offset >= self._starts[-1]:
            return False
        self._put(epoch, start_offset)
        return True

    def assign_later(self, epoch: int, start_offset: int) -> Callable[[], None] | None:
        """`assign`, with the file written by the returned call, off the loop; None when it was no news.

        Until that is done nothing may be appended, and nothing else may change the lineage.
        """
        if not self.note(epoch, start_offset):
            return None
        self.is_damaged = self._is_unwritten = False
        return partial(write_entries, self._fs, self._path, self.entries())

    def _put(self, epoch: int, start_offset: int) -> None:
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)

    def replace(self, entries: tuple[tuple[int, int], ...]) -> None:
        """Take over a whole lineage, from the tier or from a leader, durably."""
        self._epochs, self._starts = [], []
        for epoch, start in entries:
            self._put(epoch, start)
        self.write()

    def epoch_at(self, offset: int) -> int | None:
        """Return the epoch that `offset` was written in, None when that is not known."""
        slot = bisect_right(self._starts, offset) - 1
        return self._epochs[slot] if slot >= 0 else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the newest epoch not above `epoch`; (-1, -1) when not known.

        A follower truncates to it. For an epoch before the first known one the answer is where the first
        known one begins: what was before is gone here. Source: KIP-101, KIP-279.
        """
        if epoch == NO_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return NO_EPOCH, NO_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        after = bisect_right(self._epochs, epoch)
        if after == 0:
            return epoch, self._starts[0]
        return self._epochs[after - 1], self._starts[after]

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that begin at or after `end_offset`."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            del self._epochs[keep:], self._starts[keep:]
            self.write()

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget what was before `start_offset`; the epoch it lies in now begins there (spec T46).

        The file follows with the next `write`: retention must not wait for the disk.
        """
        gone = bisect_right(self._starts, start_offset)
        if gone == 0 or (gone == 1 and self._starts[0] == start_offset):
            return
        del self._epochs[: gone - 1], self._starts[: gone - 1]
        self._starts[0] = start_offset
        self._is_unwritten = True

    def clear(self) -> None:
        """Forget everything."""
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self.write()

    def write(self) -> None:
        """Replace the file durably."""
        write_entries(self._fs, self._path, self.entries())
        self.is_damaged = self._is_unwritten = False

    def close(self) -> None:
        """Write what truncations of the start left to be written."""
        if self._is_unwritten:
            self.write()
