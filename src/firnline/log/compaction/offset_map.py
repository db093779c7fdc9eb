"""The last offset of each key, in a table of fixed size: what compaction remembers of a log. PURE.

A slot holds 16 bytes of the key's hash and the offset plus one, so that a slot of zeros is empty; a key's
slot is the first free one from where its hash points. The hash is SipHash-2-4 of 128 bits with a secret of
the round: two keys share one with a chance of 2^-128, and nobody can look for such a pair, as with the MD5
that Kafka takes. The table is the same, byte for byte, whether Python or _native.c fills it.
"""

import mmap
from contextlib import suppress
from struct import Struct, unpack_from

SLOT_BYTES = 24
SECRET_BYTES = 16
_HASH_BYTES = 16
_64_BITS = (1 << 64) - 1
_HUGE_PAGE_BYTES = 1 << 21
_WORDS = Struct("<QQ")
_OFFSET = Struct("<Q")


def siphash(key: bytes, secret: bytes) -> bytes:
    """Return the 16 bytes of SipHash-2-4-128, with a secret of 16. Source: Aumasson and Bernstein, 2012."""
    low, high = _WORDS.unpack(secret)
    a, b = low ^ 0x736F6D6570736575, high ^ 0x646F72616E646F6D ^ 0xEE
    c, d = low ^ 0x6C7967656E657261, high ^ 0x7465646279746573
    rest = len(key) % 8
    last = bytes(key[len(key) - rest :]).ljust(7, b"\0") + bytes([len(key) & 255])
    words = *unpack_from(f"<{len(key) // 8}Q", key), int.from_bytes(last, "little")
    for word in words:
        a, b, c, d = _mixed(a, b, c, d ^ word, 2)
        a ^= word
    a, b, c, d = _mixed(a, b, c ^ 0xEE, d, 4)
    first = a ^ b ^ c ^ d
    a, b, c, d = _mixed(a, b ^ 0xDD, c, d, 4)
    return _WORDS.pack(first, a ^ b ^ c ^ d)


def _mixed(a: int, b: int, c: int, d: int, rounds: int) -> tuple[int, int, int, int]:
    for _ in range(rounds):
        a = a + b & _64_BITS
        b = (b << 13 & _64_BITS | b >> 51) ^ a
        a = a << 32 & _64_BITS | a >> 32
        c = c + d & _64_BITS
        d = (d << 16 & _64_BITS | d >> 48) ^ c
        a = a + d & _64_BITS
        d = (d << 21 & _64_BITS | d >> 43) ^ a
        c = c + b & _64_BITS
        b = (b << 17 & _64_BITS | b >> 47) ^ c
        c = c << 32 & _64_BITS | c >> 32
    return a, b, c, d


def _zeros(size_bytes: int) -> bytearray | mmap.mmap:
    """Return memory; in pages so large, where the system has them, that a place is found without a walk.

    MemoryError when there is none.
    """
    if size_bytes < _HUGE_PAGE_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return bytearray(size_bytes)
    try:
        made = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as problem:
        raise MemoryError from problem
    with suppress(OSError):
        made.madvise(mmap.MADV_HUGEPAGE)
    return made


class OffsetMap:
    """Offsets by key. Invariant: `count` slots are in use, and at least one is not.

    table          the slots; zeros cost no memory until they are written
    latest_offset  the last offset whose batch was taken in whole, -1 before the first
    """

    __slots__ = ("count", "latest_offset", "secret", "slots", "table")

    def __init__(self, slots: int, secret: bytes) -> None:
        assert slots >= 2
        assert len(secret) == SECRET_BYTES
        self.slots = slots
        self.secret = secret
        self.table = _zeros(slots * SLOT_BYTES)
        self.count = 0
        self.latest_offset = -1

    def put(self, key: bytes, offset: int) -> None:
        """Note that `key` has a record at `offset`, which is not below that of any put before."""
        place, hashed, found = self._find(key)
        if not found:
            assert self.count < self.slots - 1, "the caller leaves room"
            self.table[place : place + _HASH_BYTES] = hashed
            self.count += 1
        _OFFSET.pack_into(self.table, place + _HASH_BYTES, offset + 1)

    def get(self, key: bytes) -> int:
        """Return the last offset of `key`, -1 when it has none here."""
        _place, _, found = self._find(key)
        return found - 1 if found else -1

    def _find(self, key: bytes) -> tuple[int, bytes, int]:
        """Return (place of its slot, hash, offset + 1 or 0)."""
        hashed = siphash(key, self.secret)
        table, size = self.table, len(self.table)
        place = _WORDS.unpack(hashed)[0] % self.slots * SLOT_BYTES
        while True:
            (offset,) = _OFFSET.unpack_from(table, place + _HASH_BYTES)
            if not offset or table[place : place + _HASH_BYTES] == hashed:
                return place, hashed, offset
            place += SLOT_BYTES
            if place == size:
                place = 0
