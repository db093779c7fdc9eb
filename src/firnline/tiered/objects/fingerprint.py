"""What the copier knows of a segment's bytes, so that a reader can tell them from damaged ones. PURE.

A batch's CRC leaves out its base offset and its leader epoch, and says nothing about which batches there
should be. The copier has seen every batch; what it saw becomes a fingerprint, which travels as the
custom metadata (KIP-917) of COPY_FINISHED, so that every later leader knows it, and from there into the
catalog. Custom metadata, big endian, at most 61 bytes:

    2  "FL"        1  version, 1       1  flags: 1 = may have gaps
    4  CRC of the first batch, as its header states it
    4  CRC-32C of the first 21 bytes of every batch, in order
    1  which objects there are: bit i is `SUFFIXES[i]`
    8  for each of them: length (uint32), CRC-32C of all its bytes

Format of the catalog's fields: docs/formats/catalog.md.
"""

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from firnline.base.ports import Buffer
from firnline.tiered.objects.layout import SUFFIXES
from firnline.tiered.spi import DamagedObject

_HEAD = Struct(">2sBBIIB")
_SUM = Struct(">II")
_MARK, _VERSION = b"FL", 1
_HAS_GAPS = 1


class ObjectSum(NamedTuple):
    """Length and CRC-32C of one object."""

    size_bytes: int
    crc: int


class Fingerprint(NamedTuple):
    """What was seen of one segment when it was copied.

    may_have_gaps  offsets are missing that a compaction took; False: batch follows batch, without a gap,
                   from the segment's first offset to its last.
    first_crc      the CRC of the first batch, by which a segment is told from another of the same shape.
    heads_crc      CRC-32C over the first `HEADS_BYTES` of all batches: with it and each batch's own CRC
                   every byte of the log object is known.
    sums           length and CRC of each object, by suffix.
    """

    may_have_gaps: bool
    first_crc: int
    heads_crc: int
    sums: tuple[tuple[str, ObjectSum], ...]

    def sum_of(self, suffix: str) -> ObjectSum | None:
        """Return what is known of one object."""
        return dict(self.sums).get(suffix)

    def fits(self, suffix: str, data: Buffer) -> bool:
        """Whether `data` is the whole object, byte for byte; True for one that nothing is known of."""
        known = self.sum_of(suffix)
        return known is None or (len(data) == known.size_bytes and crc32c(data) == known.crc)

    def check(self, key: str, suffix: str, data: Buffer) -> None:
        """Raise DamagedObject if `data` is not the object."""
        if not self.fits(suffix, data):
            raise DamagedObject(
                "an object of the tier is not what was copied", key=key, size_bytes=len(data)
            )


def encode_fingerprint(known: Fingerprint) -> bytes:
    """Return the custom metadata that says it."""
    sums = dict(known.sums)
    there = sum(1 << i for i, suffix in enumerate(SUFFIXES) if suffix in sums)
    flags = _HAS_GAPS if known.may_have_gaps else 0
    head = _HEAD.pack(_MARK, _VERSION, flags, known.first_crc, known.heads_crc, there)
    return head + b"".join(_SUM.pack(*sums[suffix]) for suffix in SUFFIXES if suffix in sums)


def decode_fingerprint(data: bytes | None) -> Fingerprint | None:
    """Return what custom metadata says; None where it says something else, or nothing."""
    if data is None or len(data) < _HEAD.size:
        return None
    mark, version, flags, first_crc, heads_crc, there = _HEAD.unpack_from(data)
    suffixes = [suffix for i, suffix in enumerate(SUFFIXES) if there >> i & 1]
    if (mark, version) != (_MARK, _VERSION) or len(data) != _HEAD.size + 8 * len(suffixes):
        return None
    sums = [ObjectSum(*row) for row in _SUM.iter_unpack(data[_HEAD.size :])]
    return Fingerprint(bool(flags & _HAS_GAPS), first_crc, heads_crc, tuple(zip(suffixes, sums)))
