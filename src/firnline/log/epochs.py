"""Which leader epoch began at which offset: the lineage of a log. STORE: one checkpoint file.

The layout of the file: `formats/leader_epoch_checkpoint`. Neither an assignment nor a truncation waits for a
disk: the log's next syncs carry the file along, and until they have, recovery begins where the file and we
part, so that what a crash takes is read from the batches again (`unkept_from`, rel-P5). An epoch without a
batch is therefore never written, which spares ten thousand idle partitions a sync each at every start and
change of leader. Opening truncates what the file claims to what the log has (rel-P13). Epochs and offsets
ascend. Source: KIP-101, KIP-279; spec T46.
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
from firnline.log.checkpoint import read_whole, write_durably

# A replacement that waits for its sync; opening removes what a crash left of one.
_ASIDE = ".aside.tmp"


class _Aside(NamedTuple):
    """A replacement of the file on its way."""

    file: File
    entries: Epochs


class LeaderEpochs:
    """Epochs of one partition with the offset each began at; two ascending lists of one length."""

    __slots__ = (
        "_aside",
        "_epochs",
        "_fs",
        "_kept",
        "_keeps_start",
        "_path",
        "_placed",
        "_starts",
        "is_damaged",
        "unkept_from",
    )

    def __init__(self, fs: Fs, path: str) -> None:
        self._fs = fs
        self._path = path
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._kept: Epochs = ()  # what the file says, also after a power cut
        self._aside: _Aside | None = None
        self._keeps_start = False  # the file is to follow `truncate_from_start` soon
        self._placed: Epochs | None = None  # has taken the name, which is not synced yet
        self.is_damaged = False  # the file could not be read: recovery has to look at the batches
        # The first offset whose epoch a power cut may take from the file: recovery begins there.
        self.unkept_from = INT64_MAX
        self._load()
        self._kept = self.entries()

    def _load(self) -> None:
        data = read_whole(self._fs, self._path)
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
        """Note that `epoch` begins at `start_offset`; True when that was news. The file follows.

        Entries that contradict it, at or after its epoch or its start, are dropped.
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
        """Forget everything, and take over what of another lineage begins below `end_offset`.

        Return what replaces the file durably, in any thread, where it says anything else; `taken_over` then.
        """
        is_known = bool(self._epochs or self._kept or self._placed or self._aside)
        self._aside = self._placed = None  # what waits for a sync must not take the name any more
        self._epochs.clear()
        self._starts.clear()
        for epoch, start in entries:
            if start < end_offset:
                self._put(epoch, start)
        if not (is_known or self._epochs):
            return None
        return partial(self.replace_file, self.entries())

    def taken_over(self, entries: Epochs) -> None:
        """The file was replaced by these."""
        self._aside = self._placed = None  # older than this
        self._kept, self.is_damaged = entries, False
        self._compare()

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
        """Drop the epochs that begin at or after `end_offset`: the log ends there. The file follows."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            del self._epochs[keep:], self._starts[keep:]
            self._compare()

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget what was before `start_offset`; the epoch it lies in now begins there (spec T46).

        The file follows with its next replacement, and opening does it again: retention waits for no disk.
        """
        rest = _from(self.entries(), start_offset)
        self._epochs = [epoch for epoch, _ in rest]
        self._starts = [start for _, start in rest]

    # -- the file ----------------------------------------------------------------------------------

    def keep_start(self) -> None:
        """Have the next sync of the log carry along where the lineage begins, until that `is_start_kept`."""
        self._keeps_start = not self.is_start_kept

    @property
    def is_start_kept(self) -> bool:
        """The file begins where the lineage does, also after a power cut."""
        return self._kept[:1] == self.entries()[:1]

    def is_behind(self, log_end_offset: int) -> bool:
        """Whether a sync of the log, which ends there, is to carry the file along."""
        return self.unkept_from < log_end_offset or (self._keeps_start and not self.is_start_kept)

    def write(self) -> None:
        """Replace the file durably, here and now."""
        self.replace_file(self.entries())
        self.taken_over(self.entries())

    def replace_file(self, entries: Epochs) -> None:
        """Replace the file durably, in any thread; `taken_over` then."""
        write_durably(self._fs, self._path, leader_epoch_checkpoint.encode(entries))

    def write_aside(self) -> File | None:
        """Write the lineage beside the file: synced, it may `place`. None where it has taken the name."""
        entries = self.entries()
        if self._placed == entries:
            return None
        if self._aside is None or self._aside.entries != entries:
            # A new file: the sync of an older one may be under way.
            self._fs.remove(self._path + _ASIDE)
            file = self._fs.open(self._path + _ASIDE, create=True)
            file.append(leader_epoch_checkpoint.encode(entries))
            self._aside = _Aside(file, entries)
        return self._aside.file

    def place(self, file: File) -> bool:
        """`file` is synced: let it take the name, unless it is outdated; True when it did.

        The directory is to be synced next, and `placed_is_kept` told.
        """
        if self._aside is None or self._aside.file is not file:
            return False
        self._fs.rename(self._path + _ASIDE, self._path)
        self._placed, self._aside = self._aside.entries, None
        return True

    def placed_is_kept(self) -> None:
        """The directory was synced after `place`: no power cut undoes it."""
        if self._placed is not None:
            self._kept, self._placed = self._placed, None
            self._compare()

    def _compare(self) -> None:
        """Find the first offset that the file on disk gives to another epoch than we do."""
        ours = self.entries()
        start = ours[0][1] if ours else 0
        kept = _from(self._kept, start)
        self.unkept_from = INT64_MAX
        for mine, other in zip_longest(ours, kept):
            if mine != other:
                self.unkept_from = min(entry[1] for entry in (mine, other) if entry is not None)
                return


def _from(entries: Epochs, start_offset: int) -> Epochs:
    """Return the lineage of what is at or after `start_offset`."""
    gone = bisect_right(entries, start_offset, key=itemgetter(1))
    if gone == 0:
        return entries
    return ((entries[gone - 1][0], start_offset), *entries[gone:])
