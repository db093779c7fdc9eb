"""RemoteStorage on any object store: six objects per segment, the log last. STORE.

Keys contain the segment's id, so that a repeated copy overwrites only its own objects; no operation lists.
Source: spec 3.9; docs/formats/tier.md.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from crc32c import crc32c

from firnline.base.errors import ConfigError
from firnline.base.ports import Buffer
from firnline.base.units import KIB, MIB
from firnline.stores.port import NewObject, ObjectStore, RemoteStorageError, StoreRefused, view
from firnline.stores.registry import URI_FORMS, enclosing, open_store, store_settings
from firnline.stores.side_by_side import run_side_by_side, run_within
from firnline.tiered.objects.binding import Binding, bind, check_bound
from firnline.tiered.objects.fingerprint import ObjectSum, decode_fingerprint
from firnline.tiered.objects.layout import (
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    SUFFIXES,
    TIME_INDEX,
    TXN_INDEX,
    segment_stem,
)
from firnline.tiered.spi import (
    DamagedObject,
    IndexKind,
    RemoteSegment,
    SegmentData,
    SegmentState,
    Source,
)

# Below the size from which the C library maps each block anew (4 MiB): page faults took longer than the read.
READ_BACK_BYTES = 4 * MIB - 64 * KIB
# How long the start of a node waits for the store.
START_S = 5.0
URI = "uri"
# Set for a node that has used the tier before: then the tier has to exist, and is not created.
IN_USE = "tier.in.use"
# The cluster to which the tier has to belong.
CLUSTER_ID = "cluster.id"
_SUFFIX_OF = {
    IndexKind.OFFSET: OFFSET_INDEX,
    IndexKind.TIMESTAMP: TIME_INDEX,
    IndexKind.PRODUCER_SNAPSHOT: PRODUCER_SNAPSHOT,
    IndexKind.TRANSACTION: TXN_INDEX,
    IndexKind.LEADER_EPOCH: LEADER_EPOCHS,
}


class ObjectStorage:
    """The built-in RemoteStorage, configured by `uri`, or made with a store."""

    def __init__(self, store: ObjectStore | None = None) -> None:
        self._store = store
        self._binding: Binding | None = None
        self._is_bound = False
        # Why the store did not answer when the node started, or refused it: for the operator.
        self.problem: RemoteStorageError | None = None

    @property
    def store(self) -> ObjectStore:
        """The object store, in which the catalog is, too."""
        assert self._store is not None, "configure() comes first"
        return self._store

    def configure(self, settings: Mapping[str, str]) -> None:
        """Open the store of `uri`, and check its cluster. Raises ConfigError, WrongTier.

        If the store does not answer within START_S, each leader checks its cluster before it writes: clients
        of the node need not wait for a store that hangs.
        """
        if self._store is None:
            uri = settings.get(URI)
            if not uri:
                raise ConfigError(
                    f"the tier needs a location: {URI_FORMS}",
                    key=f"rsm.config.{URI}",
                )
            self._store = open_store(uri, store_settings(settings), is_new=IN_USE not in settings)
        cluster_id = settings.get(CLUSTER_ID)
        if cluster_id:
            uri = settings.get(URI, "")
            above = partial(_above, uri, store_settings(settings))
            self._binding = Binding(cluster_id, IN_USE in settings, uri, above)
            try:
                run_within(START_S, self.check_owner)
            except RemoteStorageError as problem:
                self.problem = problem

    def check_owner(self) -> None:
        """Check that the store belongs to the cluster; bind it if it has not answered since the start.

        Blocks. Raises WrongTier; RemoteStorageError from a store that does not answer.
        """
        if self._binding is None:
            return
        if self._is_bound:
            check_bound(self.store, self._binding.cluster_id)
        else:
            bind(self.store, self._binding)
            self._is_bound = True

    def copy_segment(self, segment: RemoteSegment, data: SegmentData) -> bytes | None:
        """See `RemoteStorage`. The custom metadata is the fingerprint of the objects.

        Each object is read back from the store, to check its length and checksum.
        """
        sources: dict[str, Source | None] = {
            OFFSET_INDEX: data.offset_index,
            TIME_INDEX: data.time_index,
            TXN_INDEX: data.txn_index,
            PRODUCER_SNAPSHOT: data.producer_snapshot,
            LEADER_EPOCHS: data.leader_epochs,
            LOG: data.log,
        }
        assert tuple(sources) == SUFFIXES
        known = decode_fingerprint(data.fingerprint)
        if known is None:  # then nobody would compare what the kernel copies
            sources[LOG] = data.log._replace(open_file=None)
        stem, at_once = stem_of(segment), self.store.calls_at_once
        # The log is the last: a segment with a log has all objects.
        self.store.put_together(
            [
                NewObject(stem + suffix, source.chunks(), source.size_bytes, source.open_file)
                for suffix, source in sources.items()
                if source is not None
            ]
        )
        sums = known.sums if known is not None else ()
        run_side_by_side([partial(_check, self.store, stem + each, s) for each, s in sums], at_once)
        return data.fingerprint

    def fetch_segment(self, segment: RemoteSegment, position: int, size_bytes: int) -> Buffer:
        """See `RemoteStorage`. Ranges are clamped to the end, because stores refuse others (T58)."""
        size_bytes = min(size_bytes, segment.size_bytes - position)
        if size_bytes <= 0:
            return b""
        return view(self.store, stem_of(segment) + LOG, position, size_bytes)

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        """See `RemoteStorage`."""
        return self.store.get(stem_of(segment) + _SUFFIX_OF[kind])

    def delete_segment(self, segment: RemoteSegment) -> None:
        """See `RemoteStorage`."""
        self.delete_segments((segment,))

    def delete_segments(self, segments: Sequence[RemoteSegment]) -> None:
        """See `DeletesSegments`. Logs are deleted first: a segment with a log has all objects.

        An upload of a copy that was not finished is aborted before: it cannot end after the deletion then.
        """
        for segment in segments:
            if segment.state == SegmentState.COPY_STARTED or segment.is_abandoned:
                with suppress(
                    StoreRefused
                ):  # credentials that may write need not be allowed to list uploads
                    self.store.abort_unfinished(0, stem_of(segment))
        stems = [stem_of(segment) for segment in segments]
        self.store.delete_many([stem + LOG for stem in stems])
        others = [suffix for suffix in SUFFIXES if suffix != LOG]
        self.store.delete_many([stem + suffix for stem in stems for suffix in others])

    def close(self) -> None:
        """Close the store."""
        if self._store is not None:
            self._store.close()


def _above(uri: str, settings: Mapping[str, str]) -> list[tuple[str, ObjectStore]]:
    return [(each, open_store(each, settings, is_writer=False)) for each in enclosing(uri)]


def _check(store: ObjectStore, key: str, expected: ObjectSum) -> None:
    found = stored_sum(store, key, expected.size_bytes)
    if found != expected:
        raise DamagedObject(
            "the store has other bytes than those that were put",
            key=key,
            put=tuple(expected),
            holds=tuple(found),
        )


def stored_sum(store: ObjectStore, key: str, size_bytes: int) -> ObjectSum:
    """Return length and checksum of an object in the store; stops after one byte too many.

    No range begins at the end of the object, or in an empty object, because stores refuse that (T58).
    """
    if not size_bytes:
        data = store.get(key)
        return ObjectSum(len(data), crc32c(data))
    size, crc = 0, 0
    while size < size_bytes:
        left = size_bytes - size
        asked = left + 1 if left <= READ_BACK_BYTES else READ_BACK_BYTES
        part = view(store, key, size, asked)
        got = len(part)
        size, crc = size + got, crc32c(part, crc)
        del part  # otherwise the next one needs memory of its own
        if got < asked:
            break
    return ObjectSum(size, crc)


def stem_of(segment: RemoteSegment) -> str:
    """Return the key of a segment's objects without their suffix."""
    return segment_stem(
        segment.topic_id,
        segment.partition,
        base_offset=segment.base_offset,
        segment_id=segment.segment_id,
    )
