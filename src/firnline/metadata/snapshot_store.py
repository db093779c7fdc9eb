"""The snapshots in the directory of the metadata log: write, rename, open, retire. STORE.

A snapshot is written to a `.part` file, which is never loaded, and checked batch by batch. It is synced, then
renamed, and counts when its name is durable too. A retired snapshot is renamed `.deleted` at once and removed
after the delete delay, so that its readers can finish. File names are Kafka's. Source: KIP-630; spec Q6, Q9,
Q12, Q41, Q43; rel-Q10, rel-Q15.
"""

from collections.abc import Iterable, Sequence

from firnline.base.effects import Effects, SetTimer, Submit
from firnline.base.errors import KafkaError
from firnline.base.ids import OffsetAndEpoch
from firnline.base.log_lines.quorum import SNAPSHOT_RETIRED
from firnline.base.ports import File, Fs
from firnline.formats.names import DELETED
from firnline.log.file_syncs import DirSync
from firnline.metadata.snapshot_file import (
    PART,
    SUFFIX,
    SnapshotCheck,
    snapshot_name,
    stored_names,
)
from firnline.raft.snapshot_rules import StoredSnapshot


class PartFile:
    """A snapshot that is being written; `raft.ports.SnapshotPart`."""

    __slots__ = ("_check", "_file", "_fs", "path", "snapshot_id")

    def __init__(self, fs: Fs, path: str, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshot_id = snapshot_id
        self.path = path
        self._fs = fs
        self._check = SnapshotCheck()
        self._file = fs.open(path, create=True)

    @property
    def size_bytes(self) -> int:
        return self._file.size()

    @property
    def last_contained_ms(self) -> int:
        """Append time of the last log record in it, ms; known after the header."""
        return self._check.last_contained_ms

    def append(self, data: bytes) -> KafkaError | None:
        """Write the next bytes, unless they cannot be part of a snapshot."""
        problem = self._check.feed(data)
        if problem is None:
            self._file.append(data)
        return problem

    def problem(self) -> KafkaError | None:
        return self._check.problem()

    def files(self) -> Sequence[File]:
        return [self._file]

    def close(self) -> None:
        self._file.close()

    def discard(self) -> None:
        self._file.close()
        self._fs.remove(self.path)


class OpenSnapshot:
    """A complete snapshot, open for reading; `raft.ports.SnapshotFile`."""

    __slots__ = ("_file", "size_bytes")

    def __init__(self, file: File) -> None:
        self._file = file
        self.size_bytes = file.size()

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`."""
        return self._file.read(position, size)

    def close(self) -> None:
        self._file.close()


class SnapshotStore:
    """The complete snapshots of one directory, except 0-0, the bootstrap one (Q12).

    Invariant: a snapshot is in `ids` from when its file and its name are durable until it is renamed
    `.deleted`.
    """

    def __init__(
        self, fs: Fs, directory: str, sound: Iterable[StoredSnapshot], *, delete_delay_ms: int
    ) -> None:
        """`sound`: the snapshots that are complete and undamaged; the others do not count."""
        self._fs = fs
        self._directory = directory
        self._delete_delay_ms = delete_delay_ms
        self._facts = {one.snapshot_id: one for one in sound}
        names = stored_names(fs, directory)
        self._names = {snapshot_id: names[snapshot_id] for snapshot_id in self._facts}
        self._ids: list[OffsetAndEpoch] | None = None  # sorted; None: to be sorted again
        self._parts = 0

    def ids(self) -> Sequence[OffsetAndEpoch]:
        """Every id, oldest first (Q3: by epoch, then offset)."""
        if self._ids is None:
            self._ids = sorted(self._names, key=lambda one: (one.epoch, one.offset))
        return self._ids

    @property
    def newest_id(self) -> OffsetAndEpoch | None:
        ids = self._ids or self.ids()
        return ids[-1] if ids else None

    @property
    def earliest_id(self) -> OffsetAndEpoch | None:
        ids = self._ids or self.ids()
        return ids[0] if ids else None

    def open(self, snapshot_id: OffsetAndEpoch) -> OpenSnapshot | None:
        """Open a snapshot for reading; None if it does not exist."""
        name = self._names.get(snapshot_id)
        return None if name is None else OpenSnapshot(self._fs.open_to_read(self._path(name)))

    def facts(self) -> list[StoredSnapshot]:
        """Return size and last contained log time of each snapshot, oldest first."""
        return [self._facts[snapshot_id] for snapshot_id in self.ids()]

    # -- writing -----------------------------------------------------------------------------------

    def start_part(self, snapshot_id: OffsetAndEpoch) -> PartFile:
        """Begin to write a snapshot. The start has removed parts that an earlier process left."""
        self._parts += 1
        stem = snapshot_name(snapshot_id).removesuffix(SUFFIX)
        path = self._path(f"{stem}-{self._parts}{SUFFIX}{PART}")
        return PartFile(self._fs, path, snapshot_id)

    def give_name(self, part: PartFile) -> File:
        """Make a complete, synced part read-only and rename it; return what the caller must sync next
        (Q9)."""
        assert part.problem() is None, "only a complete part gets its name"
        part.close()
        self._fs.make_read_only(part.path)
        self._fs.rename(part.path, self._path(snapshot_name(part.snapshot_id)))
        return DirSync(self._fs, self._directory)

    def register(self, part: PartFile) -> None:
        """File and name of the snapshot are durable: it counts from now on."""
        snapshot_id = part.snapshot_id
        self._names[snapshot_id] = snapshot_name(snapshot_id)
        self._ids = None
        self._facts[snapshot_id] = StoredSnapshot(
            snapshot_id, part.size_bytes, part.last_contained_ms
        )

    def forget(self, snapshot_id: OffsetAndEpoch) -> None:
        """Remove a snapshot that has its name but never counted."""
        assert snapshot_id not in self._names
        self._fs.remove(self._path(snapshot_name(snapshot_id)))

    # -- removing ----------------------------------------------------------------------------------

    def retire_before(self, log_start_offset: int, *, now_ms: int) -> Effects:
        """Mark every snapshot before the log start as deleted; the effects remove the files later."""
        return self.mark_deleted(
            self.take_before(log_start_offset), log_start_offset, now_ms=now_ms
        )

    def take_before(self, log_start_offset: int) -> list[tuple[OffsetAndEpoch, str]]:
        """Take the snapshots before the log start out of `ids`; return them with their paths."""
        gone = [each for each in self.ids() if each.offset < log_start_offset]
        for snapshot_id in gone:
            self._facts.pop(snapshot_id, None)
        return [(each, self._path(self._take(each))) for each in gone]

    def mark_deleted(
        self, gone: Sequence[tuple[OffsetAndEpoch, str]], log_start_offset: int, *, now_ms: int
    ) -> Effects:
        """Rename the files of retired snapshots to `.deleted`; the effects remove them later."""
        deleted: list[str] = []
        notes: Effects = []
        for snapshot_id, path in gone:
            notes.append(
                SNAPSHOT_RETIRED(
                    snapshot=snapshot_name(snapshot_id), log_start_offset=log_start_offset
                )
            )
            self._fs.rename(path, path + DELETED)
            deleted.append(path + DELETED)
        if not deleted:
            return []
        fs = self._fs

        def remove() -> None:
            for path in deleted:
                fs.remove(path)

        submit = Submit(
            name=f"remove snapshots of {self._directory}",
            pool="disk",
            path=self._directory,
            work=remove,
            # The next start finds what could not be removed (Q43).
            then=lambda result, now: [],
        )
        return [
            *notes,
            SetTimer(
                key=("remove-snapshots", self._directory, deleted[0]),
                at_ms=now_ms + self._delete_delay_ms,
                then=lambda now: [submit],
            ),
        ]

    def repair(self, log_start_offset: int) -> None:
        """At the start: remove unfinished parts, files marked as deleted, and snapshots before the log start
        (Q43)."""
        for name in self._fs.list_dir(self._directory):
            if name.endswith((SUFFIX + PART, SUFFIX + DELETED)):
                self._fs.remove(self._path(name))
        for snapshot_id in self.ids():
            if snapshot_id.offset < log_start_offset:
                self._fs.remove(self._path(self._take(snapshot_id)))

    def _take(self, snapshot_id: OffsetAndEpoch) -> str:
        """Take a snapshot out of `ids`; return its file name."""
        self._ids = None
        return self._names.pop(snapshot_id)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"
