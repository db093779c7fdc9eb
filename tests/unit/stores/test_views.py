"""Ranges of large objects are not copied: a copy would hold up the event loop by the interpreter lock."""

from crc32c import crc32c

from firnline.base.ports import Buffer
from firnline.stores.memory import MemoryStore
from firnline.stores.port import view
from firnline.tiered.objects.layout import LOG
from firnline.tiered.objects.storage import ObjectStorage, stem_of, stored_sum
from firnline.tiered.spi import RemoteSegment

SEGMENT = RemoteSegment(
    topic_id=bytes(15) + b"\x07",
    topic="t",
    partition=3,
    segment_id=bytes(15) + b"\x01",
    base_offset=40,
    end_offset=49,
    size_bytes=10,
    max_timestamp_ms=1,
    epochs=((0, 40),),
    broker_id=1,
    event_timestamp_ms=1,
)


class InPlace(MemoryStore):
    """A store whose client library keeps the bytes, and which copies no range."""

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        assert size_bytes is None, "a range is copied"
        return super().get(key)

    def view(self, key: str, position: int, size_bytes: int) -> Buffer:
        return memoryview(self.objects[key])[position : position + size_bytes]


def with_log(store: MemoryStore) -> MemoryStore:
    store.put(stem_of(SEGMENT) + LOG, (b"0123456789",), size_bytes=10)
    return store


def test_records_of_a_segment_are_fetched_without_a_copy() -> None:
    store = with_log(InPlace())
    found = ObjectStorage(store).fetch_segment(SEGMENT, 3, 4)
    assert isinstance(found, memoryview)
    assert found.obj is store.objects[stem_of(SEGMENT) + LOG]
    assert found == b"3456"


def test_a_copy_is_read_back_without_another_one() -> None:
    store = with_log(InPlace())
    found = stored_sum(store, stem_of(SEGMENT) + LOG, 10)
    assert found == (10, crc32c(b"0123456789"))


def test_a_store_without_views_gives_its_bytes() -> None:
    store = with_log(MemoryStore())
    assert view(store, stem_of(SEGMENT) + LOG, 3, 4) == b"3456"
