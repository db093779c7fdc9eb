"""Put a compacted segment in the place of those it stands for, so that a crash leaves old or new. STORE.

Kafka's names: `.cleaned` is not decided yet, `.swap` is, `.deleted` is to go. The file of batches is the last
of the new ones to be renamed `.swap`, and the first to take its own name; the old ones leave oldest first.
Nothing here waits for a disk: the new files are synced before, and names change in the order they were
changed.

A start finishes or undoes what a crash left, as Kafka's does: a `.swap` counts unless a `.cleaned` at or
below its offset is there too; it replaces every segment from its base to its last offset. Those of the group
that lie beyond it stay until the next round: what is in them is no newer than what lies above.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Sequence

from firnline.base.background import SliceBudget
from firnline.base.errors import StorageError
from firnline.base.ports import Fs
from firnline.formats import names
from firnline.log.compaction.rounds import CleanedGroup
from firnline.records.file_scan import good_batches

_LOG_FIRST = names.SEGMENT_SUFFIXES
_LOG_LAST = (*names.SEGMENT_SUFFIXES[1:], names.LOG)
_CONDEMNED = (names.DELETED, ".tmp")
_NAMES_PER_SLICE = 1_000
_ODD = (*_CONDEMNED, names.CLEANED, names.SWAP)


def is_complete(fs: Fs, path: str, group: CleanedGroup) -> bool:
    """Whether the new segment is there, as long as it was said to be.

    Asked before any name is changed: what was swapped for nothing would be removed for good. Without a
    descriptor to look with (EMFILE), too, the old segments stay, and the directory has not failed.
    """
    try:
        file = fs.open(f"{path}/{names.stem(group.bases[0])}{names.LOG}{names.CLEANED}")
    except StorageError:
        return False
    size_bytes = file.size()
    file.close()
    return size_bytes == group.size_bytes


class SwapUndone(StorageError):
    """The disk has no room for a name: all names are as they were before the swap."""


def swap_in(fs: Fs, path: str, bases: Sequence[int], snapshots: Iterable[str]) -> list[str]:
    """Let the `.cleaned` segment at bases[0] take the place of those at `bases`; return what is to go.

    snapshots  paths of producer snapshots that no segment begins at any more

    SwapUndone on a full disk: a longer name may need room. Any other StorageError leaves the swap half-way,
    to be finished or undone by the next start.
    """
    changed: list[tuple[str, str]] = []

    def rename(old: str, new: str) -> None:
        fs.rename(old, new)
        changed.append((old, new))

    try:
        return _swap(fs, path, bases, snapshots, rename)
    except StorageError as problem:
        if not problem.is_passing:
            raise
        # The way back goes through the same names as the way there: a start knows each of them.
        for old, new in reversed(changed):
            fs.rename(new, old)
        raise SwapUndone(problem.why, **problem.facts) from problem


def _swap(
    fs: Fs,
    path: str,
    bases: Sequence[int],
    snapshots: Iterable[str],
    rename: Callable[[str, str], None],
) -> list[str]:
    new = f"{path}/{names.stem(bases[0])}"
    there = [suffix for suffix in _LOG_LAST if fs.exists(new + suffix + names.CLEANED)]
    for suffix in there:
        rename(new + suffix + names.CLEANED, new + suffix + names.SWAP)
    gone = [
        f"{path}/{names.stem(base)}{suffix}" for base in bases for suffix in names.SEGMENT_SUFFIXES
    ]
    gone = [place for place in (*gone, *snapshots) if fs.exists(place)]
    for place in gone:
        rename(place, place + names.DELETED)
    for suffix in _LOG_FIRST:
        if suffix in there:
            rename(new + suffix + names.SWAP, new + suffix)
    return [place + names.DELETED for place in gone]


def finish_renames(fs: Fs, path: str, found: Collection[str]) -> Generator[None, None, bool]:
    """Remove what was condemned or not finished; complete a compaction that had been decided.

    `found` is the list of the directory. True when there was anything to do. Yields after each file, and
    after each MiB that it has to read: what was done by then is as good as a crash there would leave it.
    """
    odd = yield from _names_with(found, lambda name: name.endswith(_ODD))
    if not odd:
        return False
    cleaned = [name for name in odd if name.endswith(names.CLEANED)]
    undecided = min((_base_of(name, names.CLEANED) for name in cleaned), default=None)
    swaps = [name for name in odd if name.endswith(names.SWAP)]
    undone = [
        name for name in swaps if undecided is not None and _base_of(name, names.SWAP) >= undecided
    ]
    condemned = [name for name in odd if name.endswith(_CONDEMNED)]
    # What is not decided goes before what says so.
    for name in (*condemned, *undone, *cleaned):
        fs.remove(f"{path}/{name}")
        yield
    decided = [name for name in swaps if name not in undone]
    for name in decided:
        pair = names.parse_segment_file(name.removesuffix(names.SWAP))
        if pair is not None and pair[1] == names.LOG:
            yield from _remove_replaced(fs, path, pair[0], found)
    for suffix in _LOG_FIRST:
        for name in decided:
            if name.endswith(suffix + names.SWAP):
                fs.rename(f"{path}/{name}", f"{path}/{name.removesuffix(names.SWAP)}")
                yield
    return True


def _names_with(
    found: Collection[str], is_wanted: Callable[[str], bool]
) -> Generator[None, None, list[str]]:
    wanted = []
    for count, name in enumerate(found, 1):
        if is_wanted(name):
            wanted.append(name)
        if count % _NAMES_PER_SLICE == 0:
            yield
    return wanted


def _base_of(name: str, suffix: str) -> int:
    pair = names.parse_segment_file(name.removesuffix(suffix))
    return -1 if pair is None else pair[0]


def _remove_replaced(
    fs: Fs, path: str, base_offset: int, found: Collection[str]
) -> Generator[None, None, None]:
    """Remove the segments that the compacted one at `base_offset` stands for, oldest first."""
    file = fs.open(f"{path}/{names.stem(base_offset)}{names.LOG}{names.SWAP}")
    end = base_offset + 1
    pace = SliceBudget()
    for batch in good_batches(file, base_offset):
        end = batch.header.next_offset
        if pace.is_over(batch.header.size_bytes):
            yield
    file.close()

    def is_replaced(name: str) -> bool:
        pair = names.parse_segment_file(name)
        return pair is not None and pair[1] != names.SNAPSHOT and base_offset <= pair[0] < end

    for name in sorted((yield from _names_with(found, is_replaced))):
        fs.remove(f"{path}/{name}")
        yield
