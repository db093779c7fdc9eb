"""What version 2 of the catalog adds: what planners and new leaders learn without reading more."""

import json
from typing import Any

import pytest
from crc32c import crc32c

from firnline.base.ids import uuid_text
from firnline.stores.memory import MemoryStore
from firnline.stores.port import PAGE_OBJECTS, ObjectMissing
from firnline.tiered.catalog.format import CatalogCorrupt, Split, digest_of
from firnline.tiered.catalog.writer import HEADS_KEPT, TAIL_ROWS, CatalogWriter
from firnline.tiered.objects.catalog_changes import begin_catalog
from firnline.tiered.objects.catalog_reader import (
    READS_MAX,
    list_heads_of_topic,
    list_topics,
    read_catalog,
    read_head,
    read_rows,
)
from firnline.tiered.objects.layout import HeadName, heads_folder
from tests.unit.tiered.test_tiered_catalog import (
    TOPIC,
    crafted_head,
    crafted_part,
    crafted_row,
    state,
    write,
    writer,
)
from tests.worlds.counting_store import CountingStore


def test_a_row_says_what_a_planner_needs_and_reads_no_index_for() -> None:
    store = MemoryStore()
    splits = (Split(3, 40, 4), Split(9, 99, 4))
    row = crafted_row()._replace(min_timestamp_ms=-1, splits=splits)
    crafted_head(store, tail=(row, crafted_row()._replace(segment_id=b"\x01" * 16)))
    catalog = read_catalog(store, TOPIC, 0)
    assert catalog is not None
    one, other = catalog.segments
    assert one == row
    assert (other.min_timestamp_ms, other.splits) == (None, ())


def test_a_reference_says_which_offsets_and_times_are_below_it() -> None:
    """Or a planner has to read every part."""
    rows = [
        crafted_row()._replace(
            segment_id=bytes([n]) * 16,
            base_offset=n * 10,
            end_offset=n * 10 + 9,
            min_timestamp_ms=50 - n,
            max_timestamp_ms=100 + n,
        )
        for n in (3, 1, 2)
    ]
    store = MemoryStore()
    low, high = (crafted_part(store, f"0{n}", rows[n:], 0) for n in (0, 1))
    above = crafted_part(store, "1", [low, high], 1)
    assert (above.start_offset, above.end_offset) == (10, 39)
    assert (above.min_timestamp_ms, above.max_timestamp_ms) == (47, 103)
    assert (low.segments, high.segments, above.segments) == (3, 2, 5)
    assert above.digest == digest_of(r.segment_id for r in [*rows, *rows[1:]])
    assert digest_of([bytes([1]) * 16, bytes([2]) * 16]) == digest_of(
        [bytes([2]) * 16, b"\x01" * 16]
    )
    unknown = rows[0]._replace(min_timestamp_ms=None, max_timestamp_ms=-1)
    mixed = crafted_part(store, "02", [unknown, *rows], 0)
    assert (mixed.min_timestamp_ms, mixed.max_timestamp_ms) == (None, None)
    crafted_head(store, mixed)
    assert read_catalog(store, TOPIC, 0) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"start_offset": 1},
        {"end_offset": 10},
        {"min_timestamp_ms": 4},
        {"max_timestamp_ms": 4},
        {"segments": 2},
        {"digest": 7},
    ],
)
@pytest.mark.parametrize("level", [0, 1])
def test_a_part_has_what_its_reference_says_of_its_rows(change: dict[str, Any], level: int) -> None:
    """A planner that skips a part believes the reference."""
    store = MemoryStore()
    ref = crafted_part(store, "0", [crafted_row()], 0)
    if level:
        ref = crafted_part(store, "1", [ref], 1)
    crafted_head(store, ref._replace(**change))
    with pytest.raises(CatalogCorrupt, match="another one than its reference says"):
        read_catalog(store, TOPIC, 0)


@pytest.mark.parametrize("digest", [7, "0", "x" * 16, None])
def test_a_digest_is_sixteen_digits(digest: object) -> None:
    store = MemoryStore()
    crafted_head(store, crafted_part(store, "0", [crafted_row()], 0))
    [info] = store.list_prefix(heads_folder(TOPIC, 0))
    first = json.loads(store.get(info.key).split(b"\n")[0])
    first["parts"][0]["digest"] = digest
    body = json.dumps(first).encode() + b"\n"
    footer = json.dumps({"lines": 1, "crc32c": crc32c(body)}).encode() + b"\n"
    store.put(info.key, (body, footer), size_bytes=len(body + footer))
    with pytest.raises(CatalogCorrupt, match="part reference lacks a field"):
        read_catalog(store, TOPIC, 0)


def test_a_planner_reads_no_part_that_it_does_not_want() -> None:
    store, by = CountingStore(), writer()
    write(store, by, state(*range(TAIL_ROWS * 5)))
    name = list_heads_of_topic(store, TOPIC)[0]
    head = read_head(store, TOPIC, 0, name)
    assert len(head.parts) > 3
    store.asked.clear()
    found = read_rows(store, head, lambda ref: ref.start_offset <= 400 <= ref.end_offset)
    assert len(store.asked) == 1
    assert any(s.base_offset == 400 for s in found.segments)


def test_one_listing_finds_the_newest_heads_of_all_partitions() -> None:
    store = CountingStore()
    for partition in (0, 2, 10):
        by = CatalogWriter(topic_id=TOPIC, partition=partition, leader_epoch=4, broker_id=1)
        for now_ms in (1, 2, 3):
            write(store, by, state(*range(100)), now_ms=now_ms)
    store.asked.clear()
    heads = list_heads_of_topic(store, TOPIC)
    assert heads == dict.fromkeys((0, 2, 10), HeadName(4, 3))
    assert list(heads) == [0, 2, 10]
    folder = f"catalog/{uuid_text(TOPIC)}/"
    assert store.asked == [("list", folder)]
    for partition, head in heads.items():
        assert read_catalog(store, TOPIC, partition, head) is not None
    calls = [call for call, _ in store.asked]
    assert calls.count("list") == 1, "a head that is known is not listed again"
    assert all("/heads/" in info.key for info in store.list_prefix(folder)), "parts are elsewhere"


def test_the_heads_of_a_thousand_partitions_are_in_three_pages() -> None:
    """A planner lists them all: three keys for each partition, however long the leaders write."""
    store = MemoryStore()
    for partition in range(50):
        by = CatalogWriter(topic_id=TOPIC, partition=partition, leader_epoch=4, broker_id=1)
        for now_ms in range(5):
            write(store, by, state(1, 2), now_ms=now_ms)
    found = store.list_prefix(f"catalog/{uuid_text(TOPIC)}/")
    assert len(found) <= 3 * 50
    assert PAGE_OBJECTS == 1000, "the keys of a page in S3"
    assert len(list_heads_of_topic(store, TOPIC)) == 50


def test_one_listing_names_all_topics_with_their_ids_former_ones_included() -> None:
    store = CountingStore()
    for number, topic in enumerate(("t", "t", "u")):
        topic_id = bytes([number + 1]) * 16
        begin_catalog(store, topic=topic, topic_id=topic_id, partition=0, now_ms=number)
    store.asked.clear()
    assert [(each.topic, each.topic_id) for each in list_topics(store)] == [
        ("t", bytes([1]) * 16), ("t", bytes([2]) * 16), ("u", bytes([3]) * 16),
    ]  # fmt: skip
    assert [call for call, _ in store.asked] == ["list"]


def test_a_head_of_an_old_listing_is_looked_for_again() -> None:
    store, by = MemoryStore(), writer()
    write(store, by, state(1))
    (head,) = list_heads_of_topic(store, TOPIC).values()
    for number in range(2, 3 + HEADS_KEPT):
        write(store, by, state(*range(1, number + 1)))
    catalog = read_catalog(store, TOPIC, 0, head)
    assert catalog is not None
    assert len(catalog.segments) == HEADS_KEPT + 2


def test_a_reader_lists_a_partition_a_few_times_and_then_says_what_is_gone() -> None:
    """The topic may have been deleted: that is no empty table either."""
    store, by = CountingStore(), writer()
    write(store, by, state(1))
    (head,) = list_heads_of_topic(store, TOPIC).values()
    store.objects.clear()
    store.asked.clear()
    with pytest.raises(ObjectMissing, match="no listing shows a newer one"):
        read_catalog(store, TOPIC, 0, head)
    assert [call for call, _ in store.asked].count("list") == READS_MAX - 1
