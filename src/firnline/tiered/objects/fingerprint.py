"""The fingerprint of a segment's bytes, by which a reader detects damaged ones. PURE.

The CRC of a batch does not cover its base offset and its leader epoch, and cannot show a missing batch. The
copier reads every batch, and makes a fingerprint. It is stored as the custom metadata (KIP-917) of
COPY_FINISHED, where every later leader finds it, and in the catalog. Custom metadata, big endian, at most 61
bytes:

    2  "FL"        1  version, 1       1  flags: 1 = may have gaps
    4  CRC of the first batch, from its header
    4  CRC-32C of the first 21 bytes of every batch, in order
    1  the existing objects: bit i is `SUFFIXES[i]`
    8  for each of them: length (uint32), CRC-32C of all its bytes

Format of the catalog's fields: docs/formats/catalog.md.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
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
    """The fingerprint of one segment, made when it was copied.

    may_have_gaps  compaction may have removed offsets; False: the batches follow one another without a gap,
                   from the segment's first offset to its last
    first_crc      the CRC of the first batch, which distinguishes segments of the same shape
    heads_crc      CRC-32C over the first `HEADS_BYTES` of all batches: with it and the batches' own CRCs
                   every byte of the log object is covered
    sums           length and CRC of each object, by suffix
    """

    may_have_gaps: bool
    first_crc: int
    heads_crc: int
    sums: tuple[tuple[str, ObjectSum], ...]

    def sum_of(self, suffix: str) -> ObjectSum | None:
        """Return length and CRC of one object."""
        return dict(self.sums).get(suffix)

    def fits(self, suffix: str, data: Buffer) -> bool:
        """Whether `data` is the complete object, byte for byte; True for an object without a sum."""
        known = self.sum_of(suffix)
        return known is None or (len(data) == known.size_bytes and crc32c(data) == known.crc)

    def check(self, key: str, suffix: str, data: Buffer) -> None:
        """Raise DamagedObject if `data` is not the object."""
        if not self.fits(suffix, data):
            raise DamagedObject(
                "an object of the tier is not what was copied", key=key, size_bytes=len(data)
            )


def encode_fingerprint(known: Fingerprint) -> bytes:
    """Return the custom metadata of a fingerprint. Raises struct.error for numbers beyond 32 bits."""
    suffixes = tuple([suffix for suffix, _ in known.sums])
    sums = list(chain.from_iterable([entry for _, entry in known.sums]))
    return pack_fingerprint(known.may_have_gaps, known.first_crc, known.heads_crc, suffixes, sums)


def pack_fingerprint(
    may_have_gaps: bool,
    first_crc: int,
    heads_crc: int,
    suffixes: tuple[str, ...],
    sums: Sequence[int],
) -> bytes:
    """As `encode_fingerprint`; `sums` has length and CRC in turn, for one suffix after the other."""
    there, order, layout = _layout(suffixes)
    numbers = [sums[i] for i in order]
    flags = _HAS_GAPS if may_have_gaps else 0
    return layout.pack(_MARK, _VERSION, flags, first_crc, heads_crc, there, *numbers)


@lru_cache(maxsize=256)
def _layout(suffixes: tuple[str, ...]) -> tuple[int, tuple[int, ...], Struct]:
    """Return the bits of the objects, where each number of the metadata is in the sums, and their layout."""
    places = {suffix: i for i, suffix in enumerate(suffixes)}
    there = [suffix for suffix in SUFFIXES if suffix in places]
    bits = sum(1 << SUFFIXES.index(suffix) for suffix in there)
    order = tuple(2 * places[suffix] + i for suffix in there for i in (0, 1))
    return bits, order, Struct(_HEAD.format + "II" * len(there))


def decode_fingerprint(data: bytes | None) -> Fingerprint | None:
    """Return the fingerprint in custom metadata; None if there is none."""
    if data is None or len(data) < _HEAD.size:
        return None
    mark, version, flags, first_crc, heads_crc, there = _HEAD.unpack_from(data)
    suffixes = [suffix for i, suffix in enumerate(SUFFIXES) if there >> i & 1]
    if (mark, version) != (_MARK, _VERSION) or len(data) != _HEAD.size + 8 * len(suffixes):
        return None
    sums = [ObjectSum(*row) for row in _SUM.iter_unpack(data[_HEAD.size :])]
    return Fingerprint(bool(flags & _HAS_GAPS), first_crc, heads_crc, tuple(zip(suffixes, sums)))
