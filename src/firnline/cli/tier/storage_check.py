"""Checks what a `RemoteStorage` must do, on a user's own class. WORLD.

`firnline tier check` runs it. All segments belong to one topic with an id of its own, and are deleted at the
end. What each method promises: `firnline.tiered.spi.RemoteStorage`.
"""

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from firnline.base.ports import Buffer
from firnline.base.units import MIB
from firnline.formats import leader_epoch_checkpoint
from firnline.stores.conformance import Broken, Check, Outcome, expect, outcomes
from firnline.stores.port import ObjectMissing
from firnline.tiered.spi import (
    DeletesSegments,
    IndexKind,
    RemoteSegment,
    RemoteStorage,
    SegmentData,
    SegmentState,
    Source,
    bytes_source,
)

_MANY = 100
_LARGE_BYTES = 20 * MIB
_THREADS = 8
# The default of remote.log.metadata.custom.metadata.max.bytes.
_CUSTOM_BYTES_MAX = 128
_EPOCHS = ((0, 0), (3, 5))


class _Segment:
    """The bytes of one segment."""

    def __init__(self, log: bytes, *, has_transactions: bool = True) -> None:
        self.log = log
        seed = log[:8]
        self.indexes = {
            IndexKind.OFFSET: seed + b" offset index",
            IndexKind.TIMESTAMP: seed + b" time index",
            IndexKind.PRODUCER_SNAPSHOT: seed + b" producer snapshot",
            IndexKind.LEADER_EPOCH: leader_epoch_checkpoint.encode(_EPOCHS),
        }
        if has_transactions:
            self.indexes[IndexKind.TRANSACTION] = seed + b" transaction index"

    def data(self, log: Source | None = None) -> SegmentData:
        """Return what a broker hands over. log: instead of the log's own bytes."""
        transactions = self.indexes.get(IndexKind.TRANSACTION)
        return SegmentData(
            log=bytes_source(self.log) if log is None else log,
            offset_index=bytes_source(self.indexes[IndexKind.OFFSET]),
            time_index=bytes_source(self.indexes[IndexKind.TIMESTAMP]),
            producer_snapshot=bytes_source(self.indexes[IndexKind.PRODUCER_SNAPSHOT]),
            leader_epochs=bytes_source(self.indexes[IndexKind.LEADER_EPOCH]),
            txn_index=None if transactions is None else bytes_source(transactions),
        )


class StorageCheck:
    """The checks of one configured class. Its methods are called from several threads, as by a broker."""

    def __init__(self, storage: RemoteStorage) -> None:
        self._storage = storage
        self._topic_id = os.urandom(16)
        self._topic = f"firnline-tier-check-{uuid.uuid4().hex[:8]}"
        self._copied: dict[bytes, RemoteSegment] = {}

    def run(self) -> Iterator[Outcome]:
        """Yield an outcome for each check, and clean up. If the first fails, skip the others."""
        checks: list[Check] = [
            ("a copied segment can be read, complete", self._readable),
            ("ranges end where the log ends", self._ranges),
            ("each index comes back", self._indexes),
            ("a repeated copy of the same segment", self._repeated),
            ("a copy that fails says so", self._failed),
            ("two segments with the same offsets", self._same_offsets),
            ("custom metadata", self._custom_metadata),
            ("a segment that does not exist", self._missing),
            ("a deleted segment", self._deleted),
            ("a delete of what does not exist", self._deletes_nothing),
            (f"{_MANY} small segments, {_THREADS} threads", self._many),
            (f"a segment of {_LARGE_BYTES // MIB} MiB", self._large),
        ]
        if isinstance(self._storage, DeletesSegments):
            checks.append(("several segments deleted together", self._together))
        yield from outcomes(checks, ("all that was copied can be deleted", self._clean))

    # ------------------------------------------------------------------------- the steps of a check

    def _named(self, content: _Segment, base_offset: int = 0) -> RemoteSegment:
        """Return the metadata of a segment that is not copied yet."""
        return RemoteSegment(
            topic_id=self._topic_id,
            topic=self._topic,
            partition=0,
            segment_id=os.urandom(16),
            base_offset=base_offset,
            end_offset=base_offset + 9,
            size_bytes=len(content.log),
            max_timestamp_ms=int(time.time() * 1000),
            epochs=_EPOCHS,
            broker_id=0,
            event_timestamp_ms=int(time.time() * 1000),
            txn_index_empty=IndexKind.TRANSACTION not in content.indexes,
        )

    def _copy(self, content: _Segment, segment: RemoteSegment | None = None) -> RemoteSegment:
        """Copy a segment, and return its metadata as a broker keeps it after that."""
        segment = segment or self._named(content)
        self._copied[segment.segment_id] = segment
        custom = self._storage.copy_segment(segment, content.data())
        if custom is not None and not isinstance(custom, bytes):
            raise Broken(f"copy_segment returned {type(custom).__name__}, not bytes or None")
        done = segment._replace(state=SegmentState.COPY_FINISHED, custom_metadata=custom)
        self._copied[segment.segment_id] = done
        return done

    def _expect_log(self, segment: RemoteSegment, log: bytes) -> None:
        found = self._fetch(segment, 0, max(len(log), 1))
        expect(found, log, "the log's bytes")

    def _fetch(self, segment: RemoteSegment, position: int, size_bytes: int) -> bytes:
        return bytes(self._storage.fetch_segment(segment, position, size_bytes))

    def _expect_indexes(self, segment: RemoteSegment, content: _Segment) -> None:
        for kind, expected in content.indexes.items():
            expect(bytes(self._storage.fetch_index(segment, kind)), expected, f"index {kind.name}")

    def _absent(self, segment: RemoteSegment) -> None:
        """Raise Broken unless each read says that the object does not exist."""
        _expect_missing("reading its log", lambda: self._fetch(segment, 0, 5))
        for kind in IndexKind:
            _expect_missing(f"reading index {kind.name}", self._index_reader(segment, kind))

    def _index_reader(self, segment: RemoteSegment, kind: IndexKind) -> Callable[[], bytes]:
        return lambda: self._storage.fetch_index(segment, kind)

    # ------------------------------------------------------------------------------------- checks

    def _readable(self) -> str | None:
        content = _Segment(b"0123456789")
        segment = self._copy(content)
        self._expect_log(segment, content.log)
        return None

    def _ranges(self) -> str | None:
        segment = self._copy(_Segment(b"0123456789"))
        for position, size_bytes, expected in (
            (0, 4, b"0123"),
            (3, 4, b"3456"),
            (9, 1, b"9"),
            (8, 100, b"89"),
            (10, 1, b""),
            (11, 5, b""),
        ):
            found = self._fetch(segment, position, size_bytes)
            expect(found, expected, f"{size_bytes} bytes from {position} of 10")
        return None

    def _indexes(self) -> str | None:
        content = _Segment(b"with transactions")
        self._expect_indexes(self._copy(content), content)
        content = _Segment(b"without transactions", has_transactions=False)
        segment = self._copy(content)
        self._expect_indexes(segment, content)
        reads = self._index_reader(segment, IndexKind.TRANSACTION)
        _expect_missing("reading the transaction index of a segment without one", reads)
        return None

    def _repeated(self) -> str | None:
        first, second = _Segment(b"first"), _Segment(b"after")
        segment = self._named(first)
        for content in (first, first, second):
            done = self._copy(content, segment)
            self._expect_log(done, content.log)
            self._expect_indexes(done, content)
        return None

    def _failed(self) -> str | None:
        """A copy that is cut off must not look finished, and can be repeated."""
        content = _Segment(b"0123456789")
        for what, source in (
            ("of 3 bytes that were announced as 10", Source(10, lambda: (b"012",))),
            ("whose source failed", Source(10, _breaks)),
        ):
            segment = self._named(content)
            self._copied[segment.segment_id] = segment
            try:
                self._storage.copy_segment(segment, content.data(source))
            except Exception:  # noqa: BLE001 - the error is the class's own choice
                self._expect_log(self._copy(content, segment), content.log)
                continue
            raise Broken(f"a copy {what} succeeded")
        return None

    def _same_offsets(self) -> str | None:
        """After a leader election two leaders may have copied the same offsets: by the id they differ."""
        contents = [_Segment(b"of one leader"), _Segment(b"of the other")]
        segments = [self._copy(content) for content in contents]
        for segment, content in zip(segments, contents, strict=True):
            self._expect_log(segment, content.log)
            self._expect_indexes(segment, content)
        self._storage.delete_segment(segments[0])
        self._absent(segments[0])
        self._expect_log(segments[1], contents[1].log)
        return None

    def _custom_metadata(self) -> str | None:
        custom = self._copy(_Segment(b"x")).custom_metadata
        if custom is None:
            return "none"
        if len(custom) > _CUSTOM_BYTES_MAX:
            raise Broken(
                f"copy_segment returned {len(custom)} bytes; a broker takes {_CUSTOM_BYTES_MAX}, or what"
                " remote.log.metadata.custom.metadata.max.bytes says"
            )
        return f"{len(custom)} bytes"

    def _missing(self) -> str | None:
        self._absent(self._named(_Segment(b"0123456789")))
        return None

    def _deleted(self) -> str | None:
        segment = self._copy(_Segment(b"0123456789"))
        self._storage.delete_segment(segment)
        self._absent(segment)
        return None

    def _deletes_nothing(self) -> str | None:
        self._storage.delete_segment(self._named(_Segment(b"x")))
        segment = self._copy(_Segment(b"x"))
        self._storage.delete_segment(segment)
        self._storage.delete_segment(segment)
        return None

    def _many(self) -> str | None:
        contents = [_Segment(f"{number:05d} ".encode() * 100) for number in range(_MANY)]

        def both(number: int) -> RemoteSegment:
            content = contents[number]
            segment = self._copy(content, self._named(content, number * 10))
            self._expect_log(segment, content.log)
            return segment

        began_s = time.monotonic()
        with ThreadPoolExecutor(_THREADS) as pool:
            segments = list(pool.map(both, range(_MANY)))
            took_s = time.monotonic() - began_s
            for segment, content in zip(segments, contents, strict=True):
                self._expect_log(segment, content.log)
            list(pool.map(self._storage.delete_segment, segments))
        self._absent(segments[0])
        self._absent(segments[-1])
        return f"{_MANY / took_s:.0f} copied and read a second"

    def _large(self) -> str | None:
        log = os.urandom(MIB) * (_LARGE_BYTES // MIB - 1) + os.urandom(MIB)
        content = _Segment(log)
        segment = self._copy(content)
        found = b"".join(
            self._fetch(segment, position, MIB) for position in range(0, _LARGE_BYTES, MIB)
        )
        if found != log:
            raise Broken("the bytes that come back are not those that were copied")
        expect(self._fetch(segment, 8 * MIB - 3, 6), log[8 * MIB - 3 : 8 * MIB + 3], "a range")
        return None

    def _together(self) -> str | None:
        assert isinstance(self._storage, DeletesSegments)
        segments = [self._copy(_Segment(f"{number}".encode())) for number in range(3)]
        self._storage.delete_segments([*segments, self._named(_Segment(b"x"))])
        for segment in segments:
            self._absent(segment)
        return None

    def _clean(self) -> str | None:
        for segment in self._copied.values():
            self._storage.delete_segment(segment)
        return None


def _breaks() -> Iterable[Buffer]:
    yield b"012"
    raise OSError("the local disk failed")


def _expect_missing(what: str, call: Callable[[], object]) -> None:
    try:
        found = call()
    except ObjectMissing:
        return
    except Exception as problem:  # noqa: BLE001 - a user's own class may raise anything
        raise Broken(
            f"{what} raises {type(problem).__name__}: {problem}; expected: ObjectMissing"
            " (firnline.stores.port)"
        ) from None
    shown = f"{type(found).__name__} {str(found)[:40]!r}"
    raise Broken(f"{what} returns {shown}, though it does not exist; expected: ObjectMissing")
