"""Two replicas of a partition, compared batch by batch."""

from firnline.client.replica_diff import Difference, batch_summaries, first_difference
from firnline.records.build import NewRecord, build_batch


def log(*values: bytes) -> bytes:
    """Return one batch a value, from offset 0 on."""
    batches = [
        build_batch([NewRecord(None, value, 1)], base_offset=number, leader_epoch=1)
        for number, value in enumerate(values)
    ]
    return b"".join(map(bytes, batches))


def difference(one: bytes, other: bytes) -> Difference | None:
    return first_difference(batch_summaries(one), batch_summaries(other), begin=0, end=2)


def test_equal_replicas_do_not_differ() -> None:
    assert difference(log(b"a", b"b"), log(b"a", b"b")) is None


def test_other_records_differ() -> None:
    found = difference(log(b"a", b"b"), log(b"a", b"c"))
    assert found is not None
    assert found.one is not None
    assert found.other is not None
    assert (found.offset, found.one.is_intact, found.other.is_intact) == (1, True, True)


def test_a_byte_that_the_disk_has_changed_is_found_though_the_checksum_is_as_before() -> None:
    whole = log(b"a", b"b")
    flipped = bytearray(whole)
    flipped[-2] ^= 1
    found = difference(whole, bytes(flipped))
    assert found is not None
    assert found.one is not None
    assert found.other is not None
    assert (found.offset, found.one.is_intact, found.other.is_intact) == (1, True, False)
    both = difference(bytes(flipped), bytes(flipped))
    assert both is not None
    assert both.offset == 1, "also where both have the same damage"
