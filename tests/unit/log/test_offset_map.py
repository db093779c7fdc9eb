"""The table of keys: its hash is the one that is published, and large ones are memory like small ones."""

import mmap

import pytest

from firnline.log.compaction import offset_map
from firnline.log.compaction.offset_map import OffsetMap, siphash

# Of the authors' reference implementation, and OpenSSL's: of bytes 0, 1, 2, ... with the secret 0, 1, ... 15.
KNOWN = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    9: "264499060ad9baabc47f8b02bb6d71ed",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    63: "5150d1772f50834a503e069a973fbd7c",
    255: "1c9bb67528165f8e468248e3799b0eab",
    256: "67a00304d3834c4612eaee7b5f579acb",
    300: "ce005a406d14b36d5386b5f7a7e1b311",
}


@pytest.mark.parametrize("size", KNOWN)
def test_the_hash_is_siphash_2_4_of_128_bits(size: int) -> None:
    assert siphash(bytes(n & 255 for n in range(size)), bytes(range(16))).hex() == KNOWN[size]


def test_a_key_has_another_place_under_another_secret() -> None:
    assert siphash(b"key", bytes(16)) != siphash(b"key", bytes(15) + b"\1")


def test_a_large_table_keeps_what_is_put_into_it() -> None:
    offsets = OffsetMap(200_000, bytes(16))
    for number in range(2000):
        offsets.put(b"%d" % (number % 1000), number)
    assert [offsets.get(b"%d" % number) for number in range(1001)] == [*range(1000, 2000), -1]
    assert len(offsets.table) == 200_000 * 24


@pytest.mark.parametrize("slots", [2, 3, 5, 8])
def test_a_small_table_is_filled_to_its_last_slot_but_one(slots: int) -> None:
    """What finds its place taken goes on to the next one, and from the end to the beginning."""
    for first in range(20):
        offsets = OffsetMap(slots, bytes(16))
        for number in range(slots - 1):
            offsets.put(b"%d" % (first + number), number)
        found = [offsets.get(b"%d" % (first + number)) for number in range(slots)]
        assert found == [*range(slots - 1), -1]


def test_a_table_that_does_not_fit_into_memory_is_reported_as_such(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_args: int, **_more: int) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refused)
    with pytest.raises(MemoryError):
        offset_map._zeros(1 << 30)
