"""Check that the batches of a segment, and its other objects, are the ones that were copied. SPARK.

The CRC of a batch does not cover its base offset and leader epoch, and no CRC says which batches there should
be. So the headers of all batches that a task passes, wanted or not, are compared with their neighbours and
with the catalog, in complete columns. Source: decision 0023.
"""

import logging
from collections.abc import Mapping

import numpy as np
from crc32c import crc32c

from firnline.records.walk import HEADS_BYTES
from firnline.spark.frames import Frames, Ints, Mask
from firnline.spark.log_lines import warn
from firnline.spark.planning.plan import Piece, Segment
from firnline.spark.schema import CorruptSegment
from firnline.stores.port import ObjectMissing, ObjectStore

_log = logging.getLogger(__name__)


class Continuity:
    """Checks the batches of one piece, window by window; then `finish`.

    If the catalog says that the segment has no gaps, each batch begins where the previous one ended, from the
    first offset of the segment to its last. If there may be gaps, offsets ascend within the segment, and a
    checksum over all headers covers the rest. An old catalog says neither; then the rules that hold for both
    apply. Raises CorruptSegment.
    """

    def __init__(self, piece: Piece) -> None:
        self._piece = piece
        segment = self._segment = piece.segment
        known = segment.fingerprint
        self._may_have_gaps = known is None or known.may_have_gaps
        self._is_complete = piece.begin_position == 0 and piece.end_position == segment.size_bytes
        self._sums_heads = known is not None and known.may_have_gaps and self._is_complete
        self._heads_crc = 0
        self._next: int | None = segment.base_offset if piece.begin_position == 0 else None
        self._at = piece.begin_position
        starts = [start for _, start in segment.epochs]
        self._epoch_starts = np.array(starts, dtype=np.int64)
        self._epochs = np.array([epoch for epoch, _ in segment.epochs], dtype=np.int64)

    @property
    def needs_all(self) -> bool:
        """Whether the result needs every batch of the piece, also those after the last wanted one."""
        return self._sums_heads

    def note(self, frames: Frames) -> None:
        """Compare the next batches with what is expected."""
        base = frames.column("base_offset")
        count = frames.column("record_count")
        delta = frames.column("last_offset_delta")
        last = base + delta
        expected = np.empty_like(base)
        expected[0] = self._begin(frames, int(base[0]), int(last[0]))
        expected[1:] = last[:-1] + 1
        self._refuse(base, base < expected, "a batch begins before the previous one ends", expected)
        if not self._may_have_gaps:
            self._refuse(base, base > expected, "records are missing before a batch", expected)
            self._refuse(base, count != delta + 1, "a batch has fewer records than offsets")
        else:
            self._refuse(base, (count < 0) | (count > delta + 1), "a batch has too many records")
            self._refuse(base, delta < 0, "a batch ends before it begins")
        self._refuse(base, last > self._segment.end_offset, "a batch is beyond its segment's end")
        self._check_epochs(base, frames.column("leader_epoch"))
        if self._sums_heads:
            prefixes = frames.heads.view(np.uint8).reshape(len(base), -1)[:, :HEADS_BYTES]
            self._heads_crc = crc32c(prefixes.tobytes(), self._heads_crc)
        self._next = int(last[-1]) + 1
        self._at += int(frames.ends[-1] - frames.begins[0])

    def finish(self) -> None:
        """The piece was read to its end: check that nothing is missing."""
        piece, segment = self._piece, self._segment
        end = segment.base_offset if self._next is None else self._next
        if self._at != piece.end_position:
            raise self._damage("a byte range ends inside a batch", end, position=self._at)
        if end < piece.reaches or (end < piece.next_offset and not self._may_have_gaps):
            raise self._damage("records are missing at the end of a byte range", end)
        if end > piece.next_offset >= 0:
            raise self._damage(
                "a split names the wrong batch",
                end, split_offset=piece.next_offset, position=self._at,
            )  # fmt: skip
        if piece.end_position < segment.size_bytes:
            return
        if not self._may_have_gaps and end != segment.end_offset + 1:
            raise self._damage("records are missing at the end of a segment", end)
        known = segment.fingerprint
        if self._sums_heads and known is not None and self._heads_crc != known.heads_crc:
            raise self._damage("the batches are not those that were copied", segment.base_offset)

    def _begin(self, frames: Frames, base: int, last: int) -> int:
        """Return the expected first offset of these batches; check the identity of the piece's first
        batch.
        """
        if self._next is not None:
            if self._at == 0:
                known = self._segment.fingerprint
                if known is not None and int(frames.heads["crc"][0]) != known.first_crc:
                    raise self._damage("the object belongs to another segment", base)
            return self._next
        if self._piece.first_offset >= 0:
            if base != self._piece.first_offset:
                raise self._damage(
                    "a split names the wrong batch",
                    base, split_offset=self._piece.first_offset, position=self._at,
                )  # fmt: skip
        elif last != self._piece.first_ends:
            raise self._damage(
                "an index entry names the wrong batch",
                base, last_offset=last, indexed=self._piece.first_ends, position=self._at,
            )  # fmt: skip
        if base < self._segment.base_offset:
            raise self._damage("a batch is before its segment's first offset", base)
        return base

    def _check_epochs(self, base: Ints, epochs: Ints) -> None:
        if not len(self._epochs):
            return
        slot = np.searchsorted(self._epoch_starts, base, side="right") - 1
        # The history may begin above the segment's first offset, if the log start truncated it.
        wrong = (slot >= 0) & (self._epochs[slot] != epochs)
        self._refuse(base, wrong, "a batch is of another leader epoch than its offset")

    def _refuse(self, base: Ints, bad: Mask, why: str, expected: Ints | None = None) -> None:
        if not bad.any():
            return
        first = int(np.flatnonzero(bad)[0])
        facts: Mapping[str, object] = {} if expected is None else {"expected": int(expected[first])}
        raise self._damage(why, int(base[first]), **facts)

    def _damage(self, why: str, offset: int, /, **facts: object) -> CorruptSegment:
        return CorruptSegment(why, segment=self._piece.key, offset=offset, **facts)


def load_optional(store: ObjectStore, segment: Segment, suffix: str) -> bytes | None:
    """Return an index that can be done without; None if it is missing or is not what was copied."""
    if suffix not in segment.suffixes:
        return None
    key = segment.key(suffix)
    try:
        data = store.get(key)
    except ObjectMissing:
        warn(_log, "an object is missing in the tier", key=key)
        return None
    if segment.fingerprint is not None and not segment.fingerprint.fits(suffix, data):
        warn(_log, "an object of the tier is not what was copied, and is ignored", key=key)
        return None
    return data


def load_needed(store: ObjectStore, segment: Segment, suffix: str) -> bytes:
    """Return an object that nothing can replace. Raises CorruptSegment if it is not what was copied."""
    key = segment.key(suffix)
    data = store.get(key)
    if segment.fingerprint is not None and not segment.fingerprint.fits(suffix, data):
        raise CorruptSegment(
            "an object of the tier is not what was copied",
            object=key,
            offset=segment.base_offset,
            size_bytes=len(data),
        )
    return data
