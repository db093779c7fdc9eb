"""Caches indexes of remote segments: recently used ones in memory, a bounded set on disk. PURE.

The files are `<log.dir>/remote-log-index-cache/<base offset>_<segment id>.{index,timeindex,txnindex}`, as in
Kafka. All of them are disposable: missing or damaged ones are fetched again, and indexes that the tier has
lost are rebuilt from the segment (T58). Only the event loop uses the state; workers only fetch or write
files, once for each segment, however many requests wait (X40). Source: spec 3.17; F18.
"""

from collections.abc import Callable
from functools import partial

from firnline.base.background import SlicedTask
from firnline.base.effects import Effects, Submit
from firnline.base.errors import FirnlineError
from firnline.base.ids import Uuid, uuid_from_text, uuid_text
from firnline.base.ports import Fs
from firnline.base.units import MIB
from firnline.tiered.hosted import Services
from firnline.tiered.objects.fingerprint import decode_fingerprint
from firnline.tiered.objects.index_files import (
    INDEX_SUFFIXES,
    MustRebuild,
    load_indexes,
    write_indexes,
)
from firnline.tiered.reads.indexes import IndexFiles, SegmentIndexes
from firnline.tiered.settings import store_timeout_ms
from firnline.tiered.spi import RemoteSegment, as_error

FOLDER = "remote-log-index-cache"
# The two owners of work in the pool "index". They take turns: followers that begin above the tier do not wait
# for the indexes of all consumers.
CONSUMERS, FOLLOWERS = "consumers", "followers"
MEMORY_BYTES = 64 * MIB
# To remove the indexes of so many segments takes a few ms.
REMOVED_PER_SLICE = 50


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
            if "." + suffix not in INDEX_SUFFIXES or not dot:
                fs.remove(path)
                continue
            sets.setdefault(stem, {})["." + suffix] = _size_of(fs, path)
        for stem, files in sets.items():
            segment_id = _segment_id_of(stem)
            if segment_id is None or len(files) != len(INDEX_SUFFIXES):
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
        if isinstance(result, MustRebuild):
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
        for _ in self.shrink_steps():
            pass

    def shrink_steps(self) -> SlicedTask:
        """Remove the least recently used files above the limit of the settings, in slices."""
        yield []
        count = 0
        while self._disk_bytes > self._services.settings.index_cache_bytes and self._on_disk:
            stem = self._forget_on_disk(next(iter(self._on_disk)))
            self._remove_files(f"{self._folder}/{stem}")
            count += 1
            if count % REMOVED_PER_SLICE == 0:
                yield []
        return []

    def _remove_files(self, path: str) -> None:
        for suffix in INDEX_SUFFIXES:
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
