"""A new leader takes over what its predecessor wrote: what it reads and puts, and who may delete what."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from unittest import mock

import pytest

from firnline.base.ids import uuid_text
from firnline.stores.memory import MemoryStore
from firnline.stores.port import ObjectInfo, ObjectMissing, RemoteStorageError
from firnline.tiered.catalog import writer as writer_module
from firnline.tiered.catalog.format import (
    OBJECT_BYTES_MAX,
    SPLIT_BYTES,
    CatalogCorrupt,
    CatalogHead,
    CatalogSegment,
    Details,
    Split,
    decode_head,
    encode_head,
    encode_part,
)
from firnline.tiered.catalog.guard import Before, Compared, compare
from firnline.tiered.catalog.writer import HEADS_KEPT, REMOVED_MAX, TAIL_ROWS, CatalogWriter
from firnline.tiered.objects.catalog_changes import (
    PredecessorGone,
    begin_catalog,
    read_part_once,
)
from firnline.tiered.objects.catalog_reader import list_heads, list_partitions, read_catalog
from firnline.tiered.objects.layout import (
    CATALOG_FOLDER,
    PARTS_FOLDER,
    head_key,
    heads_folder,
    old_parts_folder,
    parts_folder,
)
from firnline.tiered.objects.names import remove_catalog
from firnline.tiered.spi import Everything
from tests.unit.tiered.test_tiered_catalog import (
    TOPIC,
    numbers_read,
    segment,
    state,
    write,
    writer,
)
from tests.worlds.counting_store import CountingStore
from tests.worlds.old_catalog import put_old_catalog


def begin(
    store: MemoryStore, epoch: int, numbers: Sequence[int], deleted: Sequence[int] = (), **more: int
) -> tuple[CatalogWriter, Compared]:
    """Do what a keeper does before the first head of a leader."""
    before = begin_catalog(store, topic="t", topic_id=TOPIC, partition=0, now_ms=epoch)
    return begun(store, epoch, before, numbers, deleted, **more)


def begun(
    store: MemoryStore,
    epoch: int,
    before: Before,
    numbers: Sequence[int],
    deleted: Sequence[int] = (),
    *,
    log_start: int = 0,
) -> tuple[CatalogWriter, Compared]:
    everything = Everything([segment(n) for n in numbers], [segment(n).segment_id for n in deleted])
    read = partial(read_part_once, store, {})
    found = compare(before, (), everything, log_start_offset=log_start, gone=(), read=read)
    by = writer(epoch, before.listed)
    if found.taken is not None:
        by.take(found.taken)
    return by, found


def keys_of(store: MemoryStore, epoch: int) -> list[str]:
    keys = (k for k in store.objects if k.startswith((CATALOG_FOLDER, PARTS_FOLDER)))
    return [k for k in keys if f"/{epoch:010d}-" in k]


@pytest.fixture
def small() -> Iterator[None]:
    """Trees of a few rows have all levels, and are written again after a few deletions."""
    with mock.patch.multiple(writer_module, TAIL_ROWS=3, FAN_OUT=2, BULK_ROWS=6, REMOVED_MAX=4):
        yield


# -------------------------------------------------------------------------------------- what it costs


@pytest.mark.parametrize("count", [1_000, 10_000])
def test_a_failover_asks_for_and_puts_no_more_with_a_longer_history(count: int) -> None:
    store = CountingStore()
    numbers = range(count)
    old = writer(5)
    write(store, old, state(*numbers))
    for more in range(40):
        write(store, old, state(*range(count + more)), now_ms=more)
    numbers = range(count + 39)
    store.asked.clear()
    store.put_bytes = 0
    by, found = begin(store, 6, numbers)
    assert found.missing == []
    write(store, by, state(*numbers, count + 39), now_ms=50)
    calls = [call for call, _ in store.asked]
    assert calls.count("get") <= 2, "the head, and once more after the put"
    assert calls.count("list") <= 3
    assert store.put_bytes < 120_000
    assert numbers_read(store) == [*numbers, count + 39]


def test_a_failover_with_a_few_changes_reads_a_few_parts() -> None:
    """One segment was deleted elsewhere, and the log start moved into the history."""
    store = CountingStore()
    write(store, writer(5), state(*range(5000)))
    left = [n for n in range(1500, 5000) if n != 4000]
    store.asked.clear()
    by, found = begin(store, 6, left, [4000], log_start=15_000)
    assert found.missing == []
    assert len([key for call, key in store.asked if "parts/" in key]) <= 3
    write(store, by, state(*left, log_start=15_000))
    assert numbers_read(store) == left


def test_segments_that_metadata_lost_are_found_in_the_one_part_that_differs() -> None:
    store = CountingStore()
    write(store, writer(5), state(*range(5000)))
    store.asked.clear()
    _, found = begin(store, 6, [n for n in range(5000) if n not in (77, 78)])
    assert [row.base_offset for row in found.missing] == [770, 780]
    assert len([key for call, key in store.asked if "parts/" in key]) == 1


def test_segments_of_the_same_number_and_offsets_are_not_taken_for_the_others() -> None:
    """A metadata topic that forked may have as many, with other ids."""
    store = MemoryStore()
    write(store, writer(5), state(*range(100)))
    before = begin_catalog(store, topic="t", topic_id=TOPIC, partition=0, now_ms=6)
    others = [
        segment(n)._replace(segment_id=bytes([255]) + segment(n).segment_id[1:]) for n in (7,)
    ]
    rows = [segment(n) for n in range(100) if n != 7] + others
    read = partial(read_part_once, store, {})
    found = compare(before, (), Everything(rows, ()), log_start_offset=0, gone=(), read=read)
    assert [row.segment_id for row in found.missing] == [segment(7).segment_id]


# ------------------------------------------------------------------------------------- what it keeps


def with_splits(number: int, *, splits: int = 3) -> tuple[Any, Details]:
    row = segment(number)._replace(size_bytes=splits * SPLIT_BYTES)
    base = row.base_offset
    places = [Split(base + n, n * SPLIT_BYTES, 5000) for n in range(1, min(splits, 9))]
    return row, Details(4000 + number, tuple(places))


def test_what_a_leader_learned_of_a_segment_outlives_it_and_a_history_written_again() -> None:
    """Its successors never walk over the segment."""
    store = MemoryStore()
    rows = {n: with_splits(n) for n in range(REMOVED_MAX + 200)}

    def what(*numbers: int) -> Any:
        kept = {rows[n][0].segment_id: rows[n][0] for n in numbers}
        return state()._replace(
            segments=kept, details={rows[n][0].segment_id: rows[n][1] for n in numbers}
        )

    write(store, writer(5), what(*rows))
    before = begin_catalog(store, topic="t", topic_id=TOPIC, partition=0, now_ms=6)
    read = partial(read_part_once, store, {})
    everything = Everything([row for row, _ in rows.values()], ())
    found = compare(before, (), everything, log_start_offset=0, gone=(), read=read)
    by = writer(6, before.listed)
    assert found.taken is not None
    by.take(found.taken)
    write(store, by, what(*rows)._replace(details={}))
    left = [n for n in rows if n > REMOVED_MAX]
    write(store, by, what(*left)._replace(details={}))
    catalog = read_catalog(store, TOPIC, 0)
    assert catalog is not None
    head = decode_head(store.objects[max(k for k in store.objects if "/heads/" in k)], "")
    assert head.removed == ()
    assert [(s.min_timestamp_ms, s.splits) for s in catalog.segments] == [rows[n][1] for n in left]


def test_a_part_stays_small_whatever_is_in_its_rows() -> None:
    """Segments of 2 GiB have 255 splits: 1,024 rows of these would be too large for a reader."""
    row, _ = with_splits(1)
    splits = tuple(Split(2**62 + n, n * SPLIT_BYTES, 2**62) for n in range(1, 256))
    big = CatalogSegment(
        row.segment_id, 2**62, 2**63 - 1, 2**31, 2**62, ((2**31, 2**62),) * 40, "x" * 100,
        (".log",), min_timestamp_ms=-(2**62), splits=splits,
    )  # fmt: skip
    count = writer_module._bulk_rows([big] * 1024)
    assert TAIL_ROWS <= count < 1024
    assert len(encode_part(TOPIC, 0, [big] * count, 0)) < OBJECT_BYTES_MAX // 3
    small_row = big._replace(splits=(), epochs=((0, 2**62),))
    assert writer_module._bulk_rows([small_row] * 2000) == 1024


def test_a_segment_that_comes_back_is_listed_again() -> None:
    """Its row is in a part, and was said to be removed."""
    store, by = MemoryStore(), writer()
    write(store, by, state(*range(100)))
    write(store, by, state(*[n for n in range(100) if n != 7]))
    write(store, by, state(*range(100)))
    assert numbers_read(store) == list(range(100))
    by, _ = begin(store, 1, [n for n in range(100) if n != 8], [8])
    write(store, by, state(*[n for n in range(100) if n != 8]))
    by, _ = begin(store, 2, range(100))
    write(store, by, state(*range(100)))
    assert numbers_read(store) == list(range(100))


def test_a_damaged_part_costs_a_history_and_no_row() -> None:
    store = MemoryStore()
    write(store, writer(5), state(*range(200)))
    damaged = min(info.key for info in store.list_prefix(parts_folder(TOPIC, 0)))
    store.objects[damaged] = store.objects[damaged][:-40]
    left = [n for n in range(200) if n != 3]
    by, found = begin(store, 6, left, [3])
    assert found.missing == []
    write(store, by, state(*left))
    assert numbers_read(store) == left
    assert all("/0000000006-" in ref.key for ref in by._tree.levels[0])


# ---------------------------------------------------------------------------------------- who deletes


def test_there_are_never_more_heads_than_a_listing_of_many_partitions_can_bear() -> None:
    store = MemoryStore()
    for epoch in (5, 6, 7):
        by, _ = begin(store, epoch, range(100))
        for now_ms in range(6):
            write(store, by, state(*range(100)), now_ms=epoch * 100 + now_ms)
            assert len(store.list_prefix(heads_folder(TOPIC, 0))) <= HEADS_KEPT
    assert keys_of(store, 6) == []


@pytest.mark.usefixtures("small")
def test_a_deposed_leader_deletes_no_part_that_its_successor_took_over() -> None:
    """It has not heard of the successor, and its history changes so much that it is written again."""
    store = MemoryStore()
    old = writer(5)
    write(store, old, state(*range(40)))
    new, _ = begin(store, 6, range(40))
    write(store, new, state(*range(40)), now_ms=2)
    taken = [k for k in keys_of(store, 5) if k.startswith(PARTS_FOLDER)]
    for now_ms in range(3, 12):
        write(store, old, state(*range(20, 40)), now_ms=now_ms)
    assert taken
    assert all(key in store.objects for key in taken)
    assert numbers_read(store) == list(range(40))


def begun_while_the_old_one_writes() -> tuple[MemoryStore, CatalogWriter]:
    """A leader has looked at what to take over, and its predecessor has deleted that since."""
    store = MemoryStore()
    old = writer(5)
    write(store, old, state(*range(40)))
    new, _ = begin(store, 6, range(40))
    for now_ms in range(3, 12):
        write(store, old, state(*range(20, 40)), now_ms=now_ms)
    return store, new


@pytest.mark.usefixtures("small")
def test_a_successor_whose_predecessor_deletes_meanwhile_counts_on_nothing_of_it() -> None:
    """The other order: heads and parts are deleted between its look and its put."""
    store, new = begun_while_the_old_one_writes()
    with pytest.raises(PredecessorGone):
        write(store, new, state(*range(40)), now_ms=20)
    new.distrust_parts()
    write(store, new, state(*range(40)), now_ms=21)
    assert numbers_read(store) == list(range(40))


@pytest.mark.usefixtures("small")
def test_a_first_head_whose_leader_died_before_it_looked_again_is_not_believed() -> None:
    """Its parts were deleted while its put hung; the next leader must not take them over."""
    store, new = begun_while_the_old_one_writes()
    read = partial(read_part_once, store, {})
    for key, data in new.prepare(state(*range(40)), 20, read).puts:
        store.put(key, (data,), size_bytes=len(data))  # and then it was killed
    with pytest.raises(ObjectMissing):
        read_catalog(store, TOPIC, 0)
    third, found = begin(store, 7, range(40))
    assert found.missing == []
    write(store, third, state(*range(40)), now_ms=30)
    assert numbers_read(store) == list(range(40))


@pytest.mark.usefixtures("small")
def test_parts_of_a_leader_that_was_deposed_long_ago_are_not_taken_over() -> None:
    """Its last head is left. The newer ones of a listing are gone, because their leader still writes."""
    store = CountingStore()
    deposed = writer(5)
    write(store, deposed, state(*range(40)))
    present, _ = begin(store, 6, range(40))
    write(store, present, state(*range(40)), now_ms=2)
    write(store, deposed, state(*range(40)), now_ms=3)
    listed = store.list_prefix(heads_folder(TOPIC, 0))
    for now_ms in range(4, 12):
        write(store, present, state(*range(20, 40)), now_ms=now_ms)
    assert [name.leader_epoch for name in list_heads(store.objects)] == [6, 6, 6, 5]
    before = begin_from(store, listed)
    assert before.head is not None
    assert before.head.leader_epoch == 6
    third, found = begun(store, 7, before, range(20, 40), range(20))
    assert found.missing == []
    write(store, third, state(*range(20, 40)), now_ms=30)
    assert numbers_read(store) == list(range(20, 40))


def begin_from(store: MemoryStore, listed: Sequence[ObjectInfo]) -> Before:
    """Begin with an old listing of the heads; later ones are as the store is."""
    listings = [list(listed)]

    def list_prefix(prefix: str) -> list[ObjectInfo]:
        is_old = listings and prefix == heads_folder(TOPIC, 0)
        return listings.pop() if is_old else MemoryStore.list_prefix(store, prefix)

    with mock.patch.object(store, "list_prefix", list_prefix):
        return begin_catalog(store, topic="t", topic_id=TOPIC, partition=0, now_ms=7)


@pytest.mark.usefixtures("small")
def test_behind_a_damaged_head_parts_are_read_and_not_taken_over() -> None:
    """Those of an older head may be deleted at any time: its leader counts on the damaged one."""
    store = MemoryStore()
    old = writer(5)
    for now_ms in (1, 2):
        write(store, old, state(*range(40)), now_ms=now_ms)
    newest = list_heads(store.objects)[0]
    store.objects[head_key(TOPIC, 0, newest)] = b"{}"
    new, found = begin(store, 6, range(40))
    assert found.taken is not None
    assert found.taken.levels == ()
    write(store, new, state(*range(40)), now_ms=3)
    for key in keys_of(store, 5):
        del store.objects[key]
    assert numbers_read(store) == list(range(40))


@pytest.mark.usefixtures("small")
def test_a_part_is_deleted_only_after_every_head_that_refers_to_it() -> None:
    """Who has such a head in his hands, reader or new leader, could not tell that it is out of date."""
    store = CountingStore()
    by = writer(5)
    write(store, by, state(*range(40)))

    def check(call: str, key: str) -> None:
        if call == "delete" and key.startswith(PARTS_FOLDER):
            for name in list_heads(store.objects):
                head = decode_head(store.objects[head_key(TOPIC, 0, name)], key)
                found = read_catalog(store, TOPIC, 0, name)
                assert found is not None
                assert key not in [ref.key for ref in head.parts]

    store.before = check
    for number in range(30):
        write(store, by, state(*range(number, 40 + number), log_start=number * 10), now_ms=number)
        by, _ = begin(store, 6 + number, range(number, 40 + number)) if number % 7 == 6 else (by, 0)
    assert numbers_read(store) == list(range(29, 69))


@pytest.mark.usefixtures("small")
def test_a_head_that_may_not_be_deleted_keeps_its_parts() -> None:
    """The delete failed, or may take effect later."""
    store = CountingStore()
    by = writer(5)
    write(store, by, state(*range(40)))
    first = max(k for k in store.objects if "/heads/" in k)

    def refuse(call: str, key: str) -> None:
        if call == "delete" and key == first:
            raise RemoteStorageError("no answer")

    store.before = refuse
    for now_ms in range(1, 10):
        write(store, by, state(*range(20, 40)), now_ms=now_ms)
    name = list_heads([first])[0]
    assert read_catalog(store, TOPIC, 0, name) is not None
    store.before = lambda call, key: None
    write(store, by, state(*range(20, 40)), now_ms=20)
    assert first not in store.objects


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.usefixtures("small")
def test_what_a_killed_leader_left_is_swept_by_its_successor(late: bool) -> None:
    """A part without a head; with `late` it lands only after the successor has begun."""
    store = MemoryStore()
    old = writer(5)
    write(store, old, state(*range(20)))
    read = partial(read_part_once, store, {})
    puts = old.prepare(state(*range(40)), 5, read).puts[:-1]
    assert puts
    if not late:
        for key, data in puts:
            store.put(key, (data,), size_bytes=len(data))
    new, _ = begin(store, 6, range(20))
    write(store, new, state(*range(20)), now_ms=6)
    for key, data in puts:
        store.put(key, (data,), size_bytes=len(data))
    for now_ms in range(7, 8 + HEADS_KEPT):
        write(store, new, state(*range(20)), now_ms=now_ms)
    assert not any(key in store.objects for key, _ in puts)
    assert numbers_read(store) == list(range(20))
    parts = {info.key for info in store.list_prefix(parts_folder(TOPIC, 0))}
    for now_ms in range(20, 25):
        write(store, new, state(*range(20)), now_ms=now_ms)
    assert {info.key for info in store.list_prefix(parts_folder(TOPIC, 0))} == parts


@pytest.mark.usefixtures("small")
def test_a_sweep_waits_until_only_heads_of_its_leader_are_left() -> None:
    """Else a head of the predecessor may still need what the newest one does not."""
    store = CountingStore()
    old = writer(5)
    write(store, old, state(*range(40)))
    inherited = max(k for k in store.objects if "/heads/" in k)

    def refuse(call: str, key: str) -> None:
        if call == "delete" and key == inherited:
            raise RemoteStorageError("no answer")

    before = begin_catalog(store, topic="t", topic_id=TOPIC, partition=0, now_ms=6)
    new = writer(6, before.listed)  # whatever it took over, that head is not its own
    store.before = refuse
    for now_ms in range(2, 9):
        write(store, new, state(*range(20, 40)), now_ms=now_ms)
    assert read_catalog(store, TOPIC, 0, list_heads([inherited])[0]) is not None
    left = {info.key for info in store.list_prefix(parts_folder(TOPIC, 0))}
    store.before = lambda call, key: None
    for now_ms in range(10, 13):
        write(store, new, state(*range(20, 40)), now_ms=now_ms)
    assert {info.key for info in store.list_prefix(parts_folder(TOPIC, 0))} < left


def test_a_crafted_head_has_a_leader_read_and_delete_nothing_of_another_topic() -> None:
    """Who may write a catalog could otherwise have objects deleted that he may not delete himself."""
    store = MemoryStore()
    write(store, writer(5), state(*range(100)))
    key = max(k for k in store.objects if "/heads/" in k)
    head = decode_head(store.objects[key], key)
    strange = head.parts[0]._replace(key=f"data/{uuid_text(TOPIC)}/0/{1:010d}-{1:019d}-000.jsonl")
    store.put(strange.key, (b"x",), size_bytes=1)
    data = encode_head(head._replace(parts=(strange, *head.parts[1:])))
    store.put(key, (data,), size_bytes=len(data))
    by, _ = begin(store, 6, range(100))
    write(store, by, state(*range(100)), now_ms=6)
    assert numbers_read(store) == list(range(100)), "readers refuse such a reference"
    by.take(writer_module.Taken(None, (), ((strange,),), (), {}))
    for now_ms in range(7, 13):
        write(store, by, state(*range(40, 100), log_start=400), now_ms=now_ms)
    assert strange.key in store.objects


@pytest.mark.usefixtures("small")
def test_the_sweep_of_a_deposed_leader_spares_parts_whose_head_is_to_come() -> None:
    store = MemoryStore()
    old = writer(5)
    for now_ms in range(HEADS_KEPT):
        write(store, old, state(*range(20)), now_ms=now_ms)
    new, _ = begin(store, 6, range(20))
    read = partial(read_part_once, store, {})
    update = new.prepare(state(*range(40)), 5, read)
    *parts, head = update.puts
    for key, data in parts:
        store.put(key, (data,), size_bytes=len(data))
    for now_ms in range(10, 13):
        write(store, old, state(*range(20)), now_ms=now_ms)
    store.put(head[0], (head[1],), size_bytes=len(head[1]))
    assert parts
    assert numbers_read(store) == list(range(40))


# ------------------------------------------------------------------------------------------ version 1


def an_old_catalog(count: int) -> tuple[MemoryStore, str]:
    store = MemoryStore()
    write(store, writer(5), state(*range(count)), now_ms=7)
    found = read_catalog(store, TOPIC, 0)
    assert found is not None
    head = CatalogHead(*found[:12], parts=(), removed=(), tail=())
    store = MemoryStore()
    return store, put_old_catalog(store, head, found.segments)


def test_a_catalog_of_version_1_is_read_and_written_as_version_2_with_the_next_head() -> None:
    store, key = an_old_catalog(100)
    assert len(store.list_prefix(old_parts_folder(TOPIC, 0))) == 3
    assert numbers_read(store) == list(range(100))
    assert list_partitions(store, TOPIC) == (0,)
    by, found = begin(store, 6, range(100))
    assert found.missing == []
    write(store, by, state(*range(100)), now_ms=8)
    newest = list_heads(store.objects)[0]
    head = decode_head(store.objects[head_key(TOPIC, 0, newest)], "")
    assert (head.version, head.follows) == (2, None)
    assert all(ref.key.startswith(PARTS_FOLDER) for ref in head.parts)
    assert numbers_read(store) == list(range(100))
    for now_ms in range(9, 13):
        write(store, by, state(*range(100)), now_ms=now_ms)
    assert key not in store.objects
    assert store.list_prefix(old_parts_folder(TOPIC, 0)) == []


def test_what_only_a_catalog_of_version_1_has_is_missed() -> None:
    store, _ = an_old_catalog(100)
    _, found = begin(store, 6, [n for n in range(100) if n not in (3, 99)])
    assert [row.base_offset for row in found.missing] == [30, 990]


def test_a_head_refers_to_parts_where_those_of_its_version_are() -> None:
    store, key = an_old_catalog(100)
    head = decode_head(store.objects[key], key)
    ref = head.parts[0]._replace(segments=32, start_offset=0)
    data = encode_head(head._replace(parts=(ref,)))
    store.put(key, (data,), size_bytes=len(data))
    with pytest.raises(CatalogCorrupt, match="another's"):
        read_catalog(store, TOPIC, 0)


def test_a_topic_that_is_removed_while_its_catalog_is_upgraded_leaves_nothing() -> None:
    """Parts and heads of both versions; the leader that had not heard of it puts one more."""
    store, _ = an_old_catalog(100)
    by, _ = begin(store, 6, range(100))
    write(store, by, state(*range(100)), now_ms=8)
    remove_catalog(store, topic="t", topic_id=TOPIC, partition=0)
    assert store.objects == {}
    update = by.prepare(state(*range(140)), 9, partial(read_part_once, store, {}))
    for key, data in update.puts:
        store.put(key, (data,), size_bytes=len(data))
    remove_catalog(store, topic="t", topic_id=TOPIC, partition=0)
    assert store.objects == {}
