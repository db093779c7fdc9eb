"""The leader epoch cache of a log: which leader epoch began at which offset. STORE: one checkpoint file.

The layout of the file: `formats/leader_epoch_checkpoint`. Epochs and offsets ascend. No change waits for the
disk; the next sync of the log writes the file, too:
1. `assign` or a truncation changes the cache. `unkept_from` is the first offset at which cache and file
   differ: recovery begins there at the latest, and reads the epochs from the batches again (rel-P5).
2. `write_temporary` writes a temporary file, which the log's Flush syncs.
3. `place` renames it; `placed_is_kept` is called once the directory is synced.
So an epoch without a batch is never written, which saves ten thousand idle partitions a sync each at every
leader change. Opening truncates the entries to the log end (rel-P13). Source: KIP-101, KIP-279; spec T46.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from operator import itemgetter
from typing import NamedTuple

from firnline.base.ids import NO_EPOCH, NO_OFFSET
from firnline.base.ports import File, Fs
from firnline.base.units import INT64_MAX
from firnline.formats import leader_epoch_checkpoint
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.log.checkpoint import read_file, write_durably

# The temporary file that waits for its sync; opening removes one that a crash left.
_TEMPORARY = ".aside.tmp"


class _Temporary(NamedTuple):
    """The temporary file and its entries."""

    file: File
    entries: Epochs


class LeaderEpochs:
    """The epochs of one partition and their start offsets: two ascending lists of the same length."""

    __slots__ = (
        "_epochs",
        "_fs",
        "_keeps_start",
        "_kept",
        "_path",
        "_placed",
        "_starts",
        "_temporary",
        "is_damaged",
        "unkept_from",
    )

    def __init__(self, fs: Fs, path: str) -> None:
        self._fs = fs
        self._path = path
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._kept: Epochs = ()  # the durable content of the file
        self._temporary: _Temporary | None = None
        self._keeps_start = False  # the next sync is to write the file after `truncate_from_start`
        self._placed: Epochs | None = None  # renamed, but the directory is not synced yet
        self.is_damaged = False  # the file could not be read: recovery has to read the batches
        # The first offset whose epoch is not durable in the file: recovery begins there at the latest.
        self.unkept_from = INT64_MAX
        self._load()
        self._kept = self.entries()

    def _load(self) -> None:
        data = read_file(self._fs, self._path)
        if data is None:
            return
        try:
            rows = leader_epoch_checkpoint.decode(data)
        except ValueError:
            self.is_damaged = True
            return
        for epoch, start in rows:
            if epoch < 0 or start < 0:
                self.is_damaged = True
            else:
                self._put(epoch, start)

    def entries(self) -> Epochs:
        """Return every (epoch, start offset), ascending."""
        return tuple(zip(self._epochs, self._starts))

    @property
    def latest_epoch(self) -> int:
        """The newest epoch, -1 when there is none."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` begins at `start_offset`; True when that changed the cache.

        Drops the entries that contradict it: those of the same or a later epoch or start offset.
        """
        assert epoch >= 0, "an epoch of the log is never unknown"
        assert start_offset >= 0
        if self._epochs and self._epochs[-1] == epoch and start_offset >= self._starts[-1]:
            return False
        self._put(epoch, start_offset)
        self._compare()
        return True

    def _put(self, epoch: int, start_offset: int) -> None:
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)

    def take_over(self, entries: Epochs, end_offset: int) -> Callable[[], None] | None:
        """Replace all entries by those of another lineage that begin below `end_offset`.

        Returns the function that replaces the file durably, on any thread, or None where the file needs no
        change. The caller runs it and then calls `taken_over`.
        """
        is_known = bool(self._epochs or self._kept or self._placed or self._temporary)
        self._temporary = self._placed = (
            None  # a file that waits for its sync must not be renamed any more
        )
        self._epochs.clear()
        self._starts.clear()
        for epoch, start in entries:
            if start < end_offset:
                self._put(epoch, start)
        if not (is_known or self._epochs):
            return None
        return partial(self.replace_file, self.entries())

    def taken_over(self, entries: Epochs) -> None:
        """The file was replaced by these entries."""
        self._temporary = self._placed = None  # older than this
        self._kept, self.is_damaged = entries, False
        self._compare()

    def complete(self, earlier: Epochs) -> None:
        """Put the epochs of earlier records in front, which the file lost; the next sync writes it."""
        later = self.entries()
        self._epochs.clear()
        self._starts.clear()
        for epoch, start in (*earlier, *later):
            if not self._epochs or epoch > self._epochs[-1]:
                self._put(epoch, start)
        self._compare()

    def epoch_at(self, offset: int) -> int | None:
        """Return the leader epoch of `offset`, None when that is not known."""
        slot = bisect_right(self._starts, offset) - 1
        return self._epochs[slot] if slot >= 0 else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the newest epoch not above `epoch`; (-1, -1) when not known.

        A follower truncates to it. For an epoch before the first known one the result is the start of the
        first known one: earlier records are deleted here. Source: KIP-101, KIP-279.
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
        """Drop the epochs that begin at or after `end_offset`, where the log ends now."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            del self._epochs[keep:], self._starts[keep:]
            self._compare()

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop the epochs before `start_offset`; the epoch that contains it now begins there (spec T46).

        Retention does not wait for the disk: the file changes with its next replacement, and opening the log
        repeats this.
        """
        rest = _from(self.entries(), start_offset)
        self._epochs = [epoch for epoch, _ in rest]
        self._starts = [start for _, start in rest]

    # -- the file ----------------------------------------------------------------------------------

    def keep_start(self) -> None:
        """Have the next syncs of the log write the file until its first entry `is_start_kept`."""
        self._keeps_start = not self.is_start_kept

    @property
    def kept_start_offset(self) -> int:
        """Where the durable file begins."""
        if not self._epochs:
            return INT64_MAX  # there is nothing to keep
        return self._kept[0][1] if self._kept else 0

    @property
    def is_start_kept(self) -> bool:
        """Whether the first entry is durable in the file."""
        return self._kept[:1] == self.entries()[:1]

    def is_behind(self, log_end_offset: int) -> bool:
        """Whether a sync of the log up to `log_end_offset` has to write the file, too."""
        return self.unkept_from < log_end_offset or (self._keeps_start and not self.is_start_kept)

    def write(self) -> None:
        """Replace the file durably, blocking."""
        self.replace_file(self.entries())
        self.taken_over(self.entries())

    def replace_file(self, entries: Epochs) -> None:
        """Replace the file durably, on any thread; call `taken_over` afterwards."""
        write_durably(self._fs, self._path, leader_epoch_checkpoint.encode(entries))

    def write_temporary(self) -> File | None:
        """Write the lineage beside the file: synced, it may `place`. None where it has taken the name."""
        entries = self.entries()
        if self._placed == entries:
            return None
        if self._temporary is None or self._temporary.entries != entries:
            # A new file: the sync of an older one may be under way.
            self._fs.remove(self._path + _TEMPORARY)
            file = self._fs.open(self._path + _TEMPORARY, create=True)
            file.append(leader_epoch_checkpoint.encode(entries))
            self._temporary = _Temporary(file, entries)
        return self._temporary.file

    def place(self, file: File) -> bool:
        """`file` is synced: rename it, unless it is outdated; True when it was renamed.

        The caller syncs the directory next, and then calls `placed_is_kept`.
        """
        if self._temporary is None or self._temporary.file is not file:
            return False
        self._fs.rename(self._path + _TEMPORARY, self._path)
        self._placed, self._temporary = self._temporary.entries, None
        return True

    def placed_is_kept(self) -> None:
        """The directory was synced after `place`: the rename is durable."""
        if self._placed is not None:
            self._kept, self._placed = self._placed, None
            self._compare()

    def _compare(self) -> None:
        """Find the first offset whose epoch differs between the cache and the durable file."""
        ours = self.entries()
        start = ours[0][1] if ours else 0
        kept = _from(self._kept, start)
        self.unkept_from = INT64_MAX
        for mine, other in zip_longest(ours, kept):
            if mine != other:
                self.unkept_from = min(entry[1] for entry in (mine, other) if entry is not None)
                return


def _from(entries: Epochs, start_offset: int) -> Epochs:
    """Return the entries for offsets at or after `start_offset`."""
    gone = bisect_right(entries, start_offset, key=itemgetter(1))
    if gone == 0:
        return entries
    return ((entries[gone - 1][0], start_offset), *entries[gone:])
