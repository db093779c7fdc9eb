"""Caches indexes of remote segments: recently used ones in memory, a bounded set on disk. PURE.

The files are `<log.dir>/remote-log-index-cache/<base offset>_<segment id>.{index,timeindex,txnindex}`, as in
Kafka. All of them are disposable: missing or damaged ones are fetched again, and indexes that the tier has
lost are rebuilt from the segment (T58). Only the event loop uses the state; workers only fetch or write
files, once for each segment, however many requests wait (X40). Source: spec 3.17; F18.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from firnline.base.effects import Effects, Submit
from firnline.base.errors import FirnlineError, StorageError
from firnline.base.ids import NO_OFFSET, Uuid, uuid_from_text, uuid_text
from firnline.base.ports import Fs
from firnline.base.units import MIB
from firnline.formats import offset_index, time_index, transaction_index
from firnline.records.batch import HEADER_BYTES, headers, parse_header
from firnline.records.walk import WHY, BatchWalk, Slot
from firnline.stores.port import ObjectMissing
from firnline.tiered.catalog_writer import as_error
from firnline.tiered.hosted import Services
from firnline.tiered.objects.fingerprint import decode_fingerprint
from firnline.tiered.objects.layout import OFFSET_INDEX, TIME_INDEX, TXN_INDEX
from firnline.tiered.settings import store_timeout_ms
from firnline.tiered.spi import DamagedObject, IndexKind, RemoteSegment, RemoteStorage

FOLDER = "remote-log-index-cache"
# The two owners of work in the pool "index". They take turns: followers that begin above the tier do not wait
# for the indexes of all consumers.
CONSUMERS, FOLLOWERS = "consumers", "followers"
MEMORY_BYTES = 64 * MIB
REBUILD_READ_BYTES = 4 * MIB
REBUILD_INTERVAL_BYTES = 4096
_SUFFIXES = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)


class SearchStart(NamedTuple):
    """The position at which a search begins, and the facts that the indexes state about the batches there.

    ends          last offset of the batch at `position`; -1 at the start of the segment
    noted_offset  an offset whose batch has the greatest timestamp so far, `noted_ms`; -1: none
    """

    position: int
    ends: int
    noted_offset: int = NO_OFFSET
    noted_ms: int = -1


BEGINNING = SearchStart(0, NO_OFFSET)


class SegmentIndexes:
    """The indexes of one remote segment. Positions are bytes, offsets absolute."""

    __slots__ = (
        "_base_offset",
        "_offsets",
        "_positions",
        "_time_offsets",
        "_times_ms",
        "aborted",
        "size_bytes",
    )

    def __init__(self, base_offset: int, offsets: bytes, times: bytes, txns: bytes) -> None:
        self._base_offset = base_offset
        self._offsets, self._positions = offset_index.decode(offsets)
        self._times_ms, self._time_offsets = time_index.decode(times)
        self.aborted = transaction_index.decode(txns)
        self.size_bytes = len(offsets) + len(times) + len(txns)

    def start_for(self, offset: int) -> "SearchStart":
        """Return the start of the search for `offset`: at or before the batch with it."""
        slot = bisect_right(self._offsets, offset - self._base_offset) - 1
        if slot < 0:
            return BEGINNING
        return SearchStart(self._positions[slot], self._base_offset + self._offsets[slot])

    def start_for_time(self, timestamp_ms: int) -> "SearchStart":
        """Return the start of the search for the first record at or after the timestamp."""
        slot = bisect_left(self._times_ms, timestamp_ms) - 1
        if slot < 0:
            return BEGINNING
        noted_ms, offset = self._times_ms[slot], self._base_offset + self._time_offsets[slot]
        start = self.start_for(offset)
        return start._replace(noted_offset=offset, noted_ms=noted_ms) if start.position else start


class IndexFiles(NamedTuple):
    """The bytes of the three indexes; empty for an absent transaction index."""

    offsets: bytes
    times: bytes
    txns: bytes

    def is_sane(self, segment_bytes: int) -> bool:
        """Whether the files can belong to a segment of that size."""
        if len(self.offsets) % offset_index.ENTRY_BYTES or len(self.times) % time_index.ENTRY_BYTES:
            return False
        offsets, positions = offset_index.decode(self.offsets)
        if not offset_index.can_be(offsets, positions):
            return False
        if positions and positions[-1] >= segment_bytes:
            return False
        return time_index.is_ordered(*time_index.decode(self.times))

    def aborts_of(self, segment: RemoteSegment) -> bool:
        """Whether the transaction index can be the segment's: its markers are in the segment, in order."""
        base_offset, end_offset = segment.base_offset, segment.end_offset
        return transaction_index.decode_strict(self.txns, base_offset, end_offset) is not None


class _MustRebuild(DamagedObject):
    """The tier has no indexes that fit: they are to be made from the whole segment."""


Loaded = Callable[[SegmentIndexes | FirnlineError, int], Effects]


class IndexCache:
    """The node's index cache. `folder` None: memory only."""

    def __init__(self, services: Services, log_dir: str | None) -> None:
        self._services = services
        self._folder = None if log_dir is None else f"{log_dir}/{FOLDER}"
        self._memory: dict[Uuid, SegmentIndexes] = {}  # least recently used first
        self._memory_bytes = 0
        self._on_disk: dict[Uuid, tuple[str, int]] = {}  # stem and bytes, least recently used first
        self._disk_bytes = 0
        self._loading: dict[Uuid, list[Loaded]] = {}
        self._writing: dict[Uuid, None] = {}  # segments whose files are being written
        self._dead: dict[Uuid, None] = {}  # segments that were removed during their load or write
        self._distrusted: dict[
            Uuid, None
        ] = {}  # segments whose indexes in the tier do not match their batches

    def open(self) -> None:
        """Take over the files of the last run; remove temporary files and incomplete sets. Reads no file."""
        if self._folder is None:
            return
        fs = self._services.fs
        fs.make_dir(self._folder)
        sets: dict[str, dict[str, int]] = {}
        for name in fs.list_dir(self._folder):
            stem, dot, suffix = name.rpartition(".")
            path = f"{self._folder}/{name}"
            if "." + suffix not in _SUFFIXES or not dot:
                fs.remove(path)
                continue
            sets.setdefault(stem, {})["." + suffix] = _size_of(fs, path)
        for stem, files in sets.items():
            segment_id = _segment_id_of(stem)
            if segment_id is None or len(files) != len(_SUFFIXES):
                self._remove_files(f"{self._folder}/{stem}")
                continue
            self._on_disk[segment_id] = (stem, sum(files.values()))
            self._disk_bytes += sum(files.values())
        self._shrink_disk()

    def load(self, segment: RemoteSegment, then: Loaded, now_ms: int) -> Effects:
        """Call back with the indexes of a segment, from memory, from disk, or from the tier."""
        segment_id = segment.segment_id
        found = self._memory.pop(segment_id, None)
        if found is not None:
            self._memory[segment_id] = found
            return then(found, now_ms)
        waiting = self._loading.get(segment_id)
        if waiting is not None:
            waiting.append(then)
            return []
        self._loading[segment_id] = [then]
        return self._fetch(segment, now_ms, may_rebuild=self._may_rebuild(segment))

    def _may_rebuild(self, segment: RemoteSegment) -> bool:
        """Whether a load reads the whole segment, to check it (`check_identity`) or to index it."""
        known = decode_fingerprint(segment.custom_metadata)
        has_gaps = known is not None and known.may_have_gaps
        return has_gaps or segment.segment_id in self._distrusted

    def _fetch(self, segment: RemoteSegment, now_ms: int, *, may_rebuild: bool) -> Effects:
        """Load the indexes in a worker; to read the whole segment for that takes another time limit."""
        segment_id = segment.segment_id
        path = None if self._folder is None else f"{self._folder}/{_stem(segment)}"
        services = self._services
        work = partial(
            load_indexes,
            services.storage,
            services.fs,
            segment,
            path,
            is_on_disk=segment_id in self._on_disk,
            is_distrusted=segment_id in self._distrusted,
            may_rebuild=may_rebuild,
        )
        return services.circuits.submit(
            "read",
            now_ms,
            name=f"indexes of {segment.topic}-{segment.partition} at {segment.base_offset}",
            pool="index",
            work=work,
            then=partial(self._loaded, segment),
            owner=CONSUMERS,
            run_timeout_ms=store_timeout_ms(segment.size_bytes if may_rebuild else 0),
        )

    def _loaded(
        self, segment: RemoteSegment, result: tuple[IndexFiles, bool] | Exception, now_ms: int
    ) -> Effects:
        segment_id = segment.segment_id
        if isinstance(result, _MustRebuild):
            return self._fetch(segment, now_ms, may_rebuild=True)
        waiting = self._loading.pop(segment_id)
        if isinstance(result, Exception):
            self._dead.pop(segment_id, None)
            error = as_error(result)
            return [effect for then in waiting for effect in then(error, now_ms)]
        files, is_on_disk = result
        indexes = SegmentIndexes(segment.base_offset, *files)
        effects: Effects = []
        if segment_id not in self._dead:
            self._keep(segment, indexes)
            if is_on_disk:
                self._note_on_disk(segment, indexes.size_bytes)
            elif self._folder is not None and segment_id not in self._writing:
                effects = self._write(segment, files, f"{self._folder}/{_stem(segment)}")
        elif segment_id not in self._writing:
            del self._dead[segment_id]
        return [*effects, *(effect for then in waiting for effect in then(indexes, now_ms))]

    def _write(self, segment: RemoteSegment, files: IndexFiles, path: str) -> Effects:
        """Write the files in a worker of their disk, without a time limit: nobody waits for it."""
        self._writing[segment.segment_id] = None
        return [
            Submit(
                name=f"keep indexes of {segment.topic}-{segment.partition} at {segment.base_offset}",
                pool="disk",
                path=path,
                work=partial(write_indexes, self._services.fs, path, files),
                then=partial(self._written, segment, files),
            )
        ]

    def _written(
        self, segment: RemoteSegment, files: IndexFiles, result: Exception | None, now_ms: int
    ) -> Effects:
        segment_id = segment.segment_id
        del self._writing[segment_id]
        if segment_id in self._dead:
            if segment_id not in self._loading:
                del self._dead[segment_id]
            self._remove_files(f"{self._folder}/{_stem(segment)}")
        elif not isinstance(result, Exception):
            self._note_on_disk(segment, sum(map(len, files)))
        return []

    def _note_on_disk(self, segment: RemoteSegment, size_bytes: int) -> None:
        if self._folder is None:
            return
        self._forget_on_disk(segment.segment_id)
        self._on_disk[segment.segment_id] = (_stem(segment), size_bytes)
        self._disk_bytes += size_bytes
        self._shrink_disk()

    def _keep(self, segment: RemoteSegment, indexes: SegmentIndexes) -> None:
        self._memory[segment.segment_id] = indexes
        self._memory_bytes += indexes.size_bytes
        while self._memory_bytes > MEMORY_BYTES and len(self._memory) > 1:
            oldest = next(iter(self._memory))
            self._memory_bytes -= self._memory.pop(oldest).size_bytes

    def remove(self, segment_id: Uuid) -> None:
        """The segment is deleted, or its bytes are wrong: remove its indexes from the cache."""
        found = self._memory.pop(segment_id, None)
        if found is not None:
            self._memory_bytes -= found.size_bytes
        on_disk = self._forget_on_disk(segment_id)
        if on_disk is not None:
            self._remove_files(f"{self._folder}/{on_disk}")
        if segment_id in self._loading or segment_id in self._writing:
            self._dead[segment_id] = None

    def distrust(self, segment_id: Uuid) -> None:
        """The indexes in the tier do not match the batches: rebuild them from the batches from now on."""
        self._distrusted[segment_id] = None
        self.remove(segment_id)

    def _forget_on_disk(self, segment_id: Uuid) -> str | None:
        known = self._on_disk.pop(segment_id, None)
        if known is None:
            return None
        self._disk_bytes -= known[1]
        return known[0]

    def _shrink_disk(self) -> None:
        limit = self._services.settings.index_cache_bytes
        while self._disk_bytes > limit and self._on_disk:
            segment_id = next(iter(self._on_disk))
            stem = self._forget_on_disk(segment_id)
            self._remove_files(f"{self._folder}/{stem}")

    def _remove_files(self, path: str) -> None:
        for suffix in _SUFFIXES:
            self._services.fs.remove(path + suffix)


def _stem(segment: RemoteSegment) -> str:
    return f"{segment.base_offset}_{uuid_text(segment.segment_id)}"


def _segment_id_of(stem: str) -> Uuid | None:
    base, _, text = stem.partition("_")
    try:
        return uuid_from_text(text) if base.isdecimal() else None
    except ValueError:
        return None


def _size_of(fs: Fs, path: str) -> int:
    file = fs.open(path)
    try:
        return file.size()
    finally:
        file.close()


# ------------------------------------------------------------------- in worker threads (they block)


def load_indexes(
    storage: RemoteStorage,
    fs: Fs,
    segment: RemoteSegment,
    path: str | None,
    *,
    is_on_disk: bool,
    is_distrusted: bool = False,
    may_rebuild: bool = True,
) -> tuple[IndexFiles, bool]:
    """Return the indexes of a segment: from disk if they are valid there (True), else from the tier (False).

    Raises DamagedObject if the log object belongs to another segment, or a transaction index is damaged.
    """
    check_identity(storage, segment)
    if path is not None and is_on_disk:
        try:
            files = IndexFiles(*(_read(fs, path + suffix) for suffix in _SUFFIXES))
            if _fits(files, segment) and _txns_fit(files, segment):
                return files, True
        except StorageError:
            pass  # the cache is disposable: fetch it again
    files = fetch_indexes(storage, segment, is_distrusted=is_distrusted, may_rebuild=may_rebuild)
    return files, False


def write_indexes(fs: Fs, path: str, files: IndexFiles) -> None:
    """Write the files of a segment. A full disk removes them, and raises StorageError."""
    try:
        for suffix, data in zip(_SUFFIXES, files):
            _write(fs, path + suffix, data)
    except StorageError:
        for suffix in _SUFFIXES:
            fs.remove(path + suffix)
        raise


def check_identity(storage: RemoteStorage, segment: RemoteSegment) -> None:
    """Check by its first batch that the log object is the one that was copied (decision 0023).

    In a segment with gaps a wrong offset cannot be detected by the neighbours: there all batches are checked.
    """
    known = decode_fingerprint(segment.custom_metadata)
    if known is None or not segment.size_bytes:
        return
    if known.may_have_gaps:
        rebuild_indexes(storage, segment)
        return
    head = storage.fetch_segment(segment, 0, HEADER_BYTES)
    if len(head) < HEADER_BYTES or parse_header(head).crc != known.first_crc:
        raise DamagedObject(
            "an object of the tier belongs to another segment", base_offset=segment.base_offset
        )


def _fits(files: IndexFiles, segment: RemoteSegment) -> bool:
    """Whether offset and time index are those that were copied; for old segments, whether they can be."""
    known = decode_fingerprint(segment.custom_metadata)
    if known is None:
        return files.is_sane(segment.size_bytes)
    return known.fits(OFFSET_INDEX, files.offsets) and known.fits(TIME_INDEX, files.times)


def _txns_fit(files: IndexFiles, segment: RemoteSegment) -> bool:
    known = decode_fingerprint(segment.custom_metadata)
    if known is None or segment.txn_index_empty:
        return files.aborts_of(segment)
    return known.fits(TXN_INDEX, files.txns)


def fetch_indexes(
    storage: RemoteStorage,
    segment: RemoteSegment,
    *,
    is_distrusted: bool = False,
    may_rebuild: bool = True,
) -> IndexFiles:
    """Fetch the indexes; rebuild lost or damaged ones from the segment (T58)."""
    is_good = False
    if not is_distrusted:
        try:
            files = IndexFiles(
                storage.fetch_index(segment, IndexKind.OFFSET),
                storage.fetch_index(segment, IndexKind.TIMESTAMP),
                b"",
            )
            is_good = _fits(files, segment)
        except ObjectMissing:
            pass
    if not is_good and not may_rebuild:
        raise _MustRebuild("the tier has no indexes that fit", base_offset=segment.base_offset)
    if not is_good:
        files = rebuild_indexes(storage, segment)
    if segment.txn_index_empty:
        return files
    try:
        files = files._replace(txns=storage.fetch_index(segment, IndexKind.TRANSACTION))
    except ObjectMissing:
        if decode_fingerprint(segment.custom_metadata) is not None:
            raise
        return files  # a segment without one has no aborted transactions (T40)
    if not _txns_fit(files, segment):
        raise DamagedObject(
            "a remote transaction index is damaged", base_offset=segment.base_offset
        )
    return files


def rebuild_indexes(storage: RemoteStorage, segment: RemoteSegment) -> IndexFiles:
    """Index the batches of the segment, as the log does.

    Raises DamagedObject if they are not those that were copied: their index would be wrong, too.
    """
    walk = BatchWalk(segment.base_offset, segment.end_offset, segment.epochs)
    offsets, positions = offset_index.columns()
    times_ms, time_offsets = time_index.columns()
    indexed = 0
    largest_ms = noted_ms = -1
    largest_relative = 0
    while walk.position < segment.size_bytes:
        start = walk.position
        for header in headers(_complete_batches(storage, segment, walk)):
            relative, position = header.last_offset - segment.base_offset, start + header.position
            if header.max_timestamp > largest_ms:
                largest_ms, largest_relative = header.max_timestamp, relative
            if position - indexed >= REBUILD_INTERVAL_BYTES:
                offsets.append(relative)
                positions.append(position)
                indexed = position
                if largest_ms > noted_ms:
                    noted_ms = largest_ms
                    times_ms.append(noted_ms)
                    time_offsets.append(largest_relative)
    known = decode_fingerprint(segment.custom_metadata)
    if known is not None and (
        known.heads_crc != walk.state[Slot.HEADS_CRC] or known.may_have_gaps < walk.has_gaps
    ):
        raise DamagedObject(
            "a remote segment is not what was copied", base_offset=segment.base_offset
        )
    return IndexFiles(
        offset_index.encode(offsets, positions), time_index.encode(times_ms, time_offsets), b""
    )


def _complete_batches(
    storage: RemoteStorage, segment: RemoteSegment, walk: BatchWalk
) -> memoryview:
    """Fetch the next bytes, at least one batch, and walk over the complete batches."""
    position, size_bytes = walk.position, REBUILD_READ_BYTES
    data = storage.fetch_segment(segment, position, size_bytes)
    passed = walk.feed(data)
    if not passed and not walk.problem and len(data) == size_bytes:
        data = storage.fetch_segment(segment, position, parse_header(data).size_bytes)
        passed = walk.feed(data)
    if walk.problem or not passed:
        raise DamagedObject(
            WHY.get(walk.problem, "a remote segment is shorter than its metadata states"),
            base_offset=segment.base_offset,
            offset=walk.state[Slot.NEXT_OFFSET],
            position=walk.position,
        )
    return memoryview(data)[:passed]


def _read(fs: Fs, path: str) -> bytes:
    file = fs.open(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def _write(fs: Fs, path: str, data: bytes) -> None:
    """Write a temporary file and rename it, without a sync: after a power cut the set fails its check."""
    temporary = path + ".tmp"
    fs.remove(temporary)
    file = fs.open(temporary, create=True)
    try:
        if data:
            file.append(data)
    finally:
        file.close()
    fs.rename(temporary, path)
