"""Loads the indexes of a remote segment: cached files, objects of the tier, or rebuilt from batches. STORE.

Source: spec 3.17, T58; decision 0023.
"""

from firnline.base.errors import StorageError
from firnline.base.ports import Fs
from firnline.base.units import MIB
from firnline.formats import offset_index, time_index
from firnline.records.batch import HEADER_BYTES, headers, parse_header
from firnline.records.walk import WHY, BatchWalk, Slot
from firnline.stores.port import ObjectMissing
from firnline.tiered.objects.fingerprint import decode_fingerprint
from firnline.tiered.objects.layout import OFFSET_INDEX, TIME_INDEX, TXN_INDEX
from firnline.tiered.reads.indexes import IndexFiles
from firnline.tiered.spi import DamagedObject, IndexKind, RemoteSegment, RemoteStorage

REBUILD_READ_BYTES = 4 * MIB

REBUILD_INTERVAL_BYTES = 4096

INDEX_SUFFIXES = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
_TEMPORARY = ".tmp"


class MustRebuild(DamagedObject):
    """The tier has no indexes that fit: they are to be made from the whole segment."""


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
            files = IndexFiles(*(_read(fs, path + suffix) for suffix in INDEX_SUFFIXES))
            if _fits(files, segment) and _txns_fit(files, segment):
                return files, True
        except StorageError:
            pass  # the cache is disposable: fetch it again
    files = fetch_indexes(storage, segment, is_distrusted=is_distrusted, may_rebuild=may_rebuild)
    return files, False


def write_indexes(fs: Fs, path: str, files: IndexFiles) -> None:
    """Write the files of a segment. A full disk removes them, and raises StorageError."""
    try:
        for suffix, data in zip(INDEX_SUFFIXES, files):
            _write(fs, path + suffix, data)
    except StorageError:
        for suffix in INDEX_SUFFIXES:
            fs.remove(path + suffix)
            # It would stay until the next start, counted by nobody.
            fs.remove(path + suffix + _TEMPORARY)
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
        raise MustRebuild("the tier has no indexes that fit", base_offset=segment.base_offset)
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
    temporary = path + _TEMPORARY
    fs.remove(temporary)
    file = fs.open(temporary, create=True)
    try:
        if data:
            file.append(data)
    finally:
        file.close()
    fs.rename(temporary, path)
