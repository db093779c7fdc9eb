"""The last offset of each key, in a table of fixed size: what compaction remembers of a log. PURE.

A slot holds 16 bytes of the key's hash and the offset plus one, so that a slot of zeros is empty; a key's
slot is the first free one from where its hash points. The hash is BLAKE2b with a secret of the round: two
keys share one with a chance of 2^-128, and nobody can look for such a pair, as with the MD5 that Kafka takes.
The table is the same, byte for byte, whether Python or _native.c fills it.
"""

from hashlib import blake2b
from struct import Struct

SLOT_BYTES = 24
SECRET_BYTES = 16
_HASH_BYTES = 16
_WORDS = Struct("<QQ")
_OFFSET = Struct("<Q")


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
        self.table = bytearray(slots * SLOT_BYTES)
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
        hashed = blake2b(key, digest_size=_HASH_BYTES, key=self.secret).digest()
        table, size = self.table, len(self.table)
        place = _WORDS.unpack(hashed)[0] % self.slots * SLOT_BYTES
        while True:
            (offset,) = _OFFSET.unpack_from(table, place + _HASH_BYTES)
            if not offset or table[place : place + _HASH_BYTES] == hashed:
                return place, hashed, offset
            place += SLOT_BYTES
            if place == size:
                place = 0
