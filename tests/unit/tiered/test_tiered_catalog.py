"""The catalog: what a reader without a broker is told. Source: spec T62; docs/formats/catalog.md."""

import json
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from crc32c import crc32c

from firnline.base.ids import uuid_text
from firnline.stores.memory import MemoryStore
from firnline.stores.port import ObjectMissing, RemoteStorageError
from firnline.tiered.catalog.format import (
    OBJECT_BYTES_MAX,
    CatalogCorrupt,
    CatalogHead,
    CatalogSegment,
    PartRef,
    encode_head,
    encode_part,
    reference,
)
from firnline.tiered.catalog.writer import (
    FAN_OUT,
    HEADS_KEPT,
    REMOVED_MAX,
    TAIL_ROWS,
    CatalogState,
    CatalogWriter,
)
from firnline.tiered.objects import catalog_reader
from firnline.tiered.objects.catalog_changes import apply_update, begin_catalog, write_version
from firnline.tiered.objects.catalog_reader import (
    list_partitions,
    list_topics,
    read_catalog,
    read_part,
    resolve_topic,
)
from firnline.tiered.objects.layout import HeadName, head_key, heads_folder, parts_folder
from firnline.tiered.objects.names import mark_deleted, remove_catalog
from firnline.tiered.spi import RemoteSegment, SegmentState

TOPIC = bytes(15) + b"\x07"
OTHER = bytes(15) + b"\x08"


def segment(number: int, *, length: int = 10) -> RemoteSegment:
    base = number * length
    return RemoteSegment(
        topic_id=TOPIC,
        topic="t",
        partition=0,
        segment_id=number.to_bytes(16, "big"),
        base_offset=base,
        end_offset=base + length - 1,
        size_bytes=1000 + number,
        max_timestamp_ms=5000 + number,
        epochs=((0, base),),
        broker_id=1,
        event_timestamp_ms=1,
        state=SegmentState.COPY_FINISHED,
        custom_metadata=b"\x01\xff" if number == 3 else None,
        txn_index_empty=number % 2 == 0,
    )


def state(*numbers: int, log_start: int = 0, metadata_offset: int = 0) -> CatalogState:
    return CatalogState(
        topic="t",
        log_start_offset=log_start,
        log_end_offset=10_000_000,
        epochs=((0, 0),),
        segments={s.segment_id: s for s in map(segment, numbers)},
        metadata_partition=3,
        metadata_offset=metadata_offset,
    )


def writer(epoch: int = 0, listed: tuple[str, ...] = ()) -> CatalogWriter:
    return CatalogWriter(
        topic_id=TOPIC, partition=0, leader_epoch=epoch, broker_id=1, listed=listed
    )


def write(store: MemoryStore, by: CatalogWriter, what: CatalogState, now_ms: int = 0) -> int:
    """Write one cut; return the bytes put."""
    update, problem, deleted = write_version(store, by, what, now_ms)
    if problem is not None:
        by.failed(update)
        raise problem
    by.committed(update, deleted)
    return sum(len(data) for _, data in update.puts)


def numbers_read(store: MemoryStore) -> list[int]:
    catalog = read_catalog(store, TOPIC, 0)
    assert catalog is not None
    return [int.from_bytes(s.segment_id, "big") for s in catalog.segments]


def test_what_is_written_is_read_field_by_field() -> None:
    store = MemoryStore()
    write(store, writer(4), state(2, 3, metadata_offset=77), now_ms=123)
    catalog = read_catalog(store, TOPIC, 0)
    assert catalog is not None
    assert catalog.order == (4, 123)
    assert (catalog.topic, catalog.topic_id, catalog.partition) == ("t", TOPIC, 0)
    assert (catalog.metadata_partition, catalog.metadata_offset) == (3, 77)
    assert (catalog.log_start_offset, catalog.log_end_offset) == (0, 10_000_000)
    assert catalog.epochs == ((0, 0),)
    two, three = catalog.segments
    assert (two.base_offset, two.end_offset, two.size_bytes) == (20, 29, 1002)
    assert (two.max_timestamp_ms, two.epochs, two.custom_metadata) == (5002, ((0, 20),), None)
    assert three.custom_metadata == b"\x01\xff"
    stem = f"data/{uuid_text(TOPIC)}/0/00000000000000000020-{uuid_text(two.segment_id)}"
    assert two.key() == stem + ".log"
    assert ".txnindex" not in two.suffixes
    assert ".txnindex" in three.suffixes
    assert catalog.highest_offset == 39


def test_no_catalog_is_none_and_not_an_error() -> None:
    assert read_catalog(MemoryStore(), TOPIC, 0) is None
    assert list_topics(MemoryStore()) == []
    assert resolve_topic(MemoryStore(), "t") is None


def test_history_is_not_rewritten_per_copy() -> None:
    """Goal: the bytes put for one more segment do not grow with history. Method: 3,000 segments."""
    store, by = MemoryStore(), writer()
    all_numbers: list[int] = []
    most = 0
    for number in range(3000):
        all_numbers.append(number)
        if number % 10 == 0 or number > 2900:
            most = max(most, write(store, by, state(*all_numbers), now_ms=number))
    row_bytes = 400
    assert most < row_bytes * (TAIL_ROWS * 2 + FAN_OUT * 4)
    assert numbers_read(store) == all_numbers
    heads = store.list_prefix(heads_folder(TOPIC, 0))
    assert len(heads) == HEADS_KEPT
    assert max(info.size_bytes for info in heads) < row_bytes * (TAIL_ROWS + FAN_OUT * 3)


def test_a_new_leader_writes_all_history_at_once() -> None:
    store = MemoryStore()
    write(store, writer(9), state(*range(2500)))
    assert numbers_read(store) == list(range(2500))


def test_rows_below_the_log_start_are_hidden_and_their_parts_collected() -> None:
    store, by = MemoryStore(), writer()
    write(store, by, state(*range(200)))
    parts_before = len(store.list_prefix(parts_folder(TOPIC, 0)))
    write(store, by, state(*range(150, 200), log_start=1505), now_ms=1)
    assert numbers_read(store) == list(range(150, 200))
    for _ in range(HEADS_KEPT):
        write(store, by, state(*range(150, 200), log_start=1505))
    assert len(store.list_prefix(parts_folder(TOPIC, 0))) < parts_before
    assert numbers_read(store) == list(range(150, 200))


def test_a_segment_removed_from_the_middle_of_history_is_not_listed() -> None:
    store, by = MemoryStore(), writer()
    write(store, by, state(*range(100)))
    left = [n for n in range(100) if n not in (5, 50, 99)]
    write(store, by, state(*left))
    assert numbers_read(store) == left
    write(store, by, state(*left, 100))
    assert numbers_read(store) == [*left, 100]


def test_many_removals_rewrite_history_instead_of_growing_the_head() -> None:
    store, by = MemoryStore(), writer()
    everything = list(range(1000))
    write(store, by, state(*everything))
    left = everything[REMOVED_MAX + 10 :]
    write(store, by, state(*left))
    assert numbers_read(store) == left
    newest = store.list_prefix(heads_folder(TOPIC, 0))[-1]
    assert json.loads(store.get(newest.key).splitlines()[0])["removed"] == []


def test_parts_below_the_log_start_are_not_even_asked_for() -> None:
    store, by = MemoryStore(), writer()
    count = TAIL_ROWS * (FAN_OUT + 5)
    for end in range(TAIL_ROWS, count, TAIL_ROWS):
        write(store, by, state(*range(end)))
    live = range(TAIL_ROWS * (FAN_OUT - 4), count)  # inside the one part of the second level
    write(store, by, state(*live, log_start=live[0] * 10))
    asked = []
    get = store.get

    def noting(key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        asked.append(key)
        return get(key, position, size_bytes)

    store.get = noting  # type: ignore[method-assign]
    assert numbers_read(store) == list(live)
    assert len(asked) <= 1 + 1 + 4 + 5


def test_a_late_deposed_leader_does_not_take_its_successors_objects_for_its_own() -> None:
    """Its listing may come after the successor's first head."""
    store = MemoryStore()
    write(store, writer(6), state(*range(50)), now_ms=1)
    listed = begin_catalog(store, topic="t", topic_id=TOPIC, partition=0, now_ms=1)
    late = writer(5, listed.listed)
    for _ in range(HEADS_KEPT + 2):
        write(store, late, state(1), now_ms=2)
    assert numbers_read(store) == list(range(50))


def test_an_object_that_went_away_is_looked_for_again_once() -> None:
    store = MemoryStore(is_late=True)
    by = writer()
    write(store, by, state(1))
    store.show()
    for number in range(2, 3 + HEADS_KEPT):
        write(store, by, state(*range(1, number + 1)))  # the head that is listed is deleted

    class Refreshing(MemoryStore):
        lists = 0

        def list_prefix(self, prefix: str):  # type: ignore[no-untyped-def]
            self.lists += 1
            if self.lists == 2:
                store.show()
            return store.list_prefix(prefix)

    reader = Refreshing()
    reader.objects = store.objects
    catalog = read_catalog(reader, TOPIC, 0)
    assert catalog is not None
    assert len(catalog.segments) == HEADS_KEPT + 2


def test_a_listing_that_stays_late_is_an_error_and_never_an_empty_answer() -> None:
    store = MemoryStore(is_late=True)
    by = writer()
    write(store, by, state(1))
    store.show()
    for _ in range(HEADS_KEPT + 1):
        write(store, by, state(1, 2))
    with pytest.raises(ObjectMissing):
        read_catalog(store, TOPIC, 0)


def test_a_deposed_leader_sorts_below_and_deletes_nothing_of_its_successor() -> None:
    store = MemoryStore()
    old, new = writer(5), writer(6)
    write(store, old, state(*range(40)), now_ms=900)
    write(store, new, state(*range(41)), now_ms=100)
    for number in range(40, 60):
        write(store, old, state(*range(number)), now_ms=1000 + number)
    assert numbers_read(store) == list(range(41))


def test_a_new_leader_collects_what_the_old_one_left() -> None:
    store = MemoryStore()
    write(store, writer(5), state(*range(100)))
    listed = begin_catalog(store, topic="t", topic_id=TOPIC, partition=0, now_ms=1)
    by = writer(6, listed.listed)
    for _ in range(HEADS_KEPT + 1):
        write(store, by, state(*range(100)))
    left = store.list_prefix(f"catalog/{uuid_text(TOPIC)}/0/")
    assert [info.key for info in left if "/0000000005-" in info.key] == []
    assert numbers_read(store) == list(range(100))


def test_the_same_leader_epoch_again_continues_above_what_is_listed() -> None:
    """A restart may come back in the same epoch, with a clock that went back."""
    store = MemoryStore()
    write(store, writer(5), state(1), now_ms=1000)
    listed = begin_catalog(store, topic="t", topic_id=TOPIC, partition=0, now_ms=10)
    again = writer(5, listed.listed)
    write(store, again, state(1, 2), now_ms=10)
    assert numbers_read(store) == [1, 2]


def test_a_failed_attempt_does_not_reuse_its_names() -> None:
    store, by = MemoryStore(), writer()
    first = by.prepare(state(*range(50)), 7, partial(read_part, store))
    by.failed(first)
    second = by.prepare(state(*range(51)), 7, partial(read_part, store))
    assert not {key for key, _ in first.puts} & {key for key, _ in second.puts}
    by.committed(second, apply_update(store, by, second))
    apply_update(store, by, first)  # the first one arrives after all
    assert numbers_read(store) == list(range(51))


@pytest.mark.parametrize("harm", ["cut", "flip", "footer", "empty", "json"])
def test_a_damaged_object_is_refused_entirely(harm: str) -> None:
    store = MemoryStore()
    write(store, writer(), state(1, 2))
    (info,) = store.list_prefix(heads_folder(TOPIC, 0))
    data = store.objects[info.key]
    store.objects[info.key] = {
        "cut": data[:-30],
        "flip": data.replace(b'"base":10', b'"base":11'),
        "footer": data[: data.rfind(b"\n", 0, -1) + 1],
        "empty": b"",
        "json": b"[1]\n" + data,
    }[harm]
    with pytest.raises(CatalogCorrupt):
        read_catalog(store, TOPIC, 0)


def test_a_damaged_part_is_refused() -> None:
    store = MemoryStore()
    write(store, writer(), state(*range(50)))
    (info,) = store.list_prefix(parts_folder(TOPIC, 0))
    store.objects[info.key] = store.objects[info.key].replace(b'"base":10,', b'"base":11,')
    with pytest.raises(CatalogCorrupt, match="differs from its reference"):
        read_catalog(store, TOPIC, 0)


@pytest.mark.parametrize(
    ("field", "why"),
    [('"brokerId":', "catalog head"), ('"base":', "catalog row"), ('"level":', "part reference")],
)
def test_a_catalog_that_lacks_a_field_is_refused_by_name(field: str, why: str) -> None:
    """As another program may write it: whole, and not what this one reads."""
    store = MemoryStore()
    write(store, writer(), state(*range(50)))
    (info,) = store.list_prefix(heads_folder(TOPIC, 0))
    *lines, _ = store.objects[info.key].decode().splitlines()
    body = "".join(re.sub(f"{field}-?[0-9]+,", "", line) + "\n" for line in lines).encode()
    footer = {"lines": len(lines), "crc32c": crc32c(body)}
    store.objects[info.key] = body + json.dumps(footer).encode() + b"\n"
    with pytest.raises(CatalogCorrupt, match=f"a {why} lacks a field"):
        read_catalog(store, TOPIC, 0)


def test_a_catalog_of_a_newer_format_says_so() -> None:
    store = MemoryStore()
    write(store, writer(), state(1))
    (info,) = store.list_prefix(heads_folder(TOPIC, 0))
    data = store.objects[info.key].replace(b'"version":2', b'"version":3')
    body = data[: data.rfind(b"\n", 0, -1) + 1]
    footer = {"lines": body.count(b"\n"), "crc32c": crc32c(body)}
    store.objects[info.key] = body + json.dumps(footer).encode() + b"\n"
    with pytest.raises(CatalogCorrupt, match="newer Firnline: update the reader"):
        read_catalog(store, TOPIC, 0)


def test_a_name_means_the_newest_topic_and_older_ids_stay_reachable() -> None:
    store = MemoryStore()
    begin_catalog(store, topic="t", topic_id=OTHER, partition=0, now_ms=100)
    begin_catalog(store, topic="t", topic_id=TOPIC, partition=0, now_ms=200)
    begin_catalog(store, topic="t", topic_id=OTHER, partition=1, now_ms=300)  # no second entry
    write(store, writer(), state(1))
    found = resolve_topic(store, "t")
    assert found is not None
    assert (found.topic_id, found.is_deleted) == (TOPIC, False)
    assert list_partitions(store, TOPIC) == (0,)
    assert [t.topic_id for t in list_topics(store)] == [OTHER, TOPIC]
    mark_deleted(store, topic="t", topic_id=TOPIC, now_ms=400)
    found = resolve_topic(store, "t")
    assert found is not None
    assert found.topic_id == OTHER


def test_a_topic_being_deleted_is_marked_and_then_leaves_nothing() -> None:
    store = MemoryStore()
    begin_catalog(store, topic="t", topic_id=TOPIC, partition=0, now_ms=1)
    write(store, writer(), state(*range(50)))
    mark_deleted(store, topic="t", topic_id=TOPIC, now_ms=2)
    found = resolve_topic(store, "t")
    assert found is not None
    assert found.is_deleted
    remove_catalog(store, topic="t", topic_id=TOPIC, partition=0)
    assert store.objects == {}


def test_the_names_of_a_topic_go_with_its_last_partition() -> None:
    store = MemoryStore()
    begin_catalog(store, topic="t", topic_id=TOPIC, partition=0, now_ms=1)
    write(store, writer(), state(1))
    other = CatalogWriter(topic_id=TOPIC, partition=1, leader_epoch=0, broker_id=1)
    write(store, other, state(1))
    assert list_partitions(store, TOPIC) == (0, 1)
    remove_catalog(store, topic="t", topic_id=TOPIC, partition=0)
    assert resolve_topic(store, "t") is not None
    remove_catalog(store, topic="t", topic_id=TOPIC, partition=1)
    assert store.objects == {}


def test_a_put_whose_bytes_are_fewer_than_declared_leaves_nothing() -> None:
    store = MemoryStore()
    with pytest.raises(RemoteStorageError):
        store.put("a/b", (b"abc",), size_bytes=4)
    assert store.objects == {}


# ------------------------------------------------------------------------------------------ crafted


def crafted_part(store: MemoryStore, name: str, rows: Sequence[object], level: int) -> PartRef:
    """Put a part whose footer is right, whatever is in it; return the reference to it."""
    key = f"{parts_folder(TOPIC, 0)}{name}.jsonl"
    data = encode_part(TOPIC, 0, rows, level)  # type: ignore[arg-type]
    store.put(key, (data,), size_bytes=len(data))
    return reference(key, level, rows, data)  # type: ignore[arg-type]


def crafted_row() -> CatalogSegment:
    return CatalogSegment(bytes(16), 0, 9, 100, 5, ((0, 0),), "data/x", (".log",))


def crafted_head(store: MemoryStore, *parts: PartRef, **other: Any) -> None:
    head = CatalogHead("t", TOPIC, 0, 0, 0, 1, 0, 0, 0, 0, 100, ((0, 0),), parts, (), ())._replace(
        **other
    )
    data = encode_head(head)
    store.put(head_key(TOPIC, 0, head.order), (data,), size_bytes=len(data))


def test_a_few_kilobytes_are_not_read_as_a_million_rows() -> None:
    """Parts that name the part below 32 times each: 32 to the power of 4 rows, in 16 KB."""
    store = MemoryStore()
    ref = crafted_part(store, "0", [crafted_row()], 0)
    for level in range(1, 4):
        ref = crafted_part(store, str(level), [ref] * 32, level)
    crafted_head(store, *[ref] * 32)
    with pytest.raises(CatalogCorrupt, match="refers to a part twice"):
        read_catalog(store, TOPIC, 0)


@pytest.mark.parametrize("step", [0, -1, 2])
def test_levels_go_down_by_one(step: int) -> None:
    store = MemoryStore()
    ref = crafted_part(store, "0", [crafted_row()], 0)
    ref = crafted_part(store, "1", [ref], step)
    crafted_head(store, ref)
    with pytest.raises(CatalogCorrupt):
        read_catalog(store, TOPIC, 0)


def test_a_deep_catalog_is_refused_and_recurses_nowhere() -> None:
    store = MemoryStore()
    ref = crafted_part(store, "0", [crafted_row()], 0)
    for level in range(1, 2000):
        ref = crafted_part(store, str(level), [ref], level)
    crafted_head(store, ref)
    with pytest.raises(CatalogCorrupt, match="of no catalog"):
        read_catalog(store, TOPIC, 0)


def test_a_part_of_somebody_else_is_not_read() -> None:
    store = MemoryStore()
    ref = crafted_part(store, "0", [crafted_row()], 0)
    elsewhere = ref.key.replace("parts/", "heads/")
    store.put(elsewhere, (store.get(ref.key),), size_bytes=ref.size_bytes)
    crafted_head(store, ref._replace(key=elsewhere))
    with pytest.raises(CatalogCorrupt, match="another's"):
        read_catalog(store, TOPIC, 0)


@pytest.mark.parametrize("change", [{"rows": 2}, {"level": 1}, {"size_bytes": 1 << 40}])
def test_a_part_is_what_its_reference_says(change: dict[str, Any]) -> None:
    store = MemoryStore()
    ref = crafted_part(store, "0", [crafted_row()], 0)
    crafted_head(store, ref._replace(**change))
    with pytest.raises(CatalogCorrupt):
        read_catalog(store, TOPIC, 0)


def test_the_rows_of_a_cut_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_reader, "ROWS_MAX", 2)
    store = MemoryStore()
    crafted_head(store, *(crafted_part(store, str(n), [crafted_row()], 0) for n in range(2)))
    assert read_catalog(store, TOPIC, 0) is not None
    crafted_head(store, *(crafted_part(store, str(n), [crafted_row()], 0) for n in range(3)))
    with pytest.raises(CatalogCorrupt, match="too many rows"):
        read_catalog(store, TOPIC, 0)


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000 + b"]" * 100_000,
        b'{"id":' * 5_000 + b"1" + b"}" * 5_000,
        b"1" * 10_000,
        b'"text"',
        b"null",
        b"\xff",
        b'{"x":"\\ud800"}',
    ],
    ids=["lists", "objects", "a number", "a text", "null", "no UTF-8", "half a character"],
)
@pytest.mark.parametrize("place", ["first", "row"])
def test_lines_that_are_no_catalog_are_refused_in_words(line: bytes, place: str) -> None:
    store = MemoryStore()
    crafted_head(store)
    [info] = store.list_prefix(heads_folder(TOPIC, 0))
    head = store.get(info.key).split(b"\n")[0]
    body = (line if place == "first" else head + b"\n" + line) + b"\n"
    footer = json.dumps({"lines": body.count(b"\n"), "crc32c": crc32c(body)}).encode() + b"\n"
    store.put(info.key, (body, footer), size_bytes=len(body + footer))
    with pytest.raises(CatalogCorrupt):
        read_catalog(store, TOPIC, 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base", 10),
        ("base", -1),
        ("end", 2**63),
        ("end", float("inf")),
        ("bytes", -1),
        ("stem", "\ud800"),
        ("epochs", [[0, 2**80]]),
        ("epochs", 7),
        ("sums", []),
        ("minTimestampMs", "soon"),
        ("splits", [[1, 2]]),
        ("splits", [[0, 50, 5]]),
        ("splits", [[10, 50, 5]]),
        ("splits", [[5, 0, 5]]),
        ("splits", [[5, 100, 5]]),
        ("splits", [[5, 50, 5], [5, 60, 5]]),
        ("splits", [[5, 50, 5], [6, 50, 5]]),
        ("splits", [[5, 50, 5], [6, 60, 4]]),
        ("splits", [[5, 50, 2**63]]),
    ],
)
def test_a_row_that_names_no_segment_is_refused_in_words(field: str, value: object) -> None:
    store = MemoryStore()
    crafted_head(store, tail=(crafted_row(),))
    [info] = store.list_prefix(heads_folder(TOPIC, 0))
    head, row, *_ = store.get(info.key).split(b"\n")
    changed = {**json.loads(row), "mayHaveGaps": field == "sums", field: value}
    if field != "sums":
        del changed["mayHaveGaps"]
    body = head + b"\n" + json.dumps(changed).encode() + b"\n"
    footer = json.dumps({"lines": 2, "crc32c": crc32c(body)}).encode() + b"\n"
    store.put(info.key, (body, footer), size_bytes=len(body + footer))
    with pytest.raises(CatalogCorrupt):
        read_catalog(store, TOPIC, 0)


def test_an_object_of_a_million_lines_is_not_decoded() -> None:
    store = MemoryStore()
    body = b"{}\n" * 1_000_000
    key = head_key(TOPIC, 0, HeadName(0, 0))
    store.put(key, (body,), size_bytes=len(body))
    with pytest.raises(CatalogCorrupt, match="too many lines"):
        read_catalog(store, TOPIC, 0)
    store.put(key, (b" " * (OBJECT_BYTES_MAX + 1),), size_bytes=OBJECT_BYTES_MAX + 1)
    with pytest.raises(CatalogCorrupt, match="too long"):
        read_catalog(store, TOPIC, 0)
