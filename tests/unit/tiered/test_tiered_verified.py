"""What is copied was looked at: a damaged segment stays, and what can be made of its batches is made."""

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from crc32c import crc32c

from firnline.base.effects import Effects
from firnline.records.batch import HEADER_BYTES, headers, set_offset_and_epoch
from firnline.records.build import NewRecord, build_batch
from firnline.records.control import ControlType, encode_key
from firnline.server.allocator import OWN_PAGES_FROM_BYTES
from firnline.stores.memory import MemoryStore
from firnline.stores.port import RemoteStorageError
from firnline.tiered.catalog import keeper
from firnline.tiered.catalog.format import CatalogSegment, Details
from firnline.tiered.objects import storage, verified
from firnline.tiered.objects.catalog_reader import read_catalog
from firnline.tiered.objects.fingerprint import ObjectSum, decode_fingerprint, encode_fingerprint
from firnline.tiered.objects.layout import LOG, OFFSET_INDEX, SUFFIXES, TIME_INDEX, TXN_INDEX
from firnline.tiered.objects.verified import ToCopy, VerifiedSegment, read_verified
from firnline.tiered.spi import DamagedSegment
from tests.worlds.tier import TOPIC_ID, TP, WHERE, Cluster, Node

LIMIT_BYTES = 128  # remote.log.metadata.custom.metadata.max.bytes, as Kafka has it


def flip(bit: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        out = bytearray(data)
        out[bit // 8] ^= 1 << bit % 8
        return bytes(out)

    return change


def rows(cluster: Cluster) -> list[CatalogSegment]:
    catalog = read_catalog(cluster.store, TOPIC_ID, 0)
    assert catalog is not None
    return list(catalog.segments)


def data_keys(cluster: Cluster) -> list[str]:
    return [key for key in cluster.store.objects if key.startswith("data/")]


def three_segments(**settings: Any) -> Node:
    node = Node(Cluster(), **settings).start().lead(3)
    for _ in range(3):
        node.produce(3, "a", "bb", "ccc")
    return node


def bits_of_a_segment() -> list[int]:
    """Of each batch: what no CRC covers, and a few that it does."""
    node = three_segments()
    file = node.fs.open(node.log.closed_segments()[1].stem_path + LOG)
    found = []
    for head in headers(file.read(0, file.size())):
        at = head.position * 8
        found += [*range(at, at + 21 * 8, 5), at + 22 * 8, at + 60 * 8, at + (HEADER_BYTES + 3) * 8]
    return found


@pytest.mark.parametrize("start", [0, 3])
def test_a_damaged_segment_and_what_follows_it_stay_and_the_rest_is_served(start: int) -> None:
    for bit in bits_of_a_segment()[start::8]:
        node = three_segments()
        notified: list[str] = []

        def on_damaged(
            _where: Any, problem: Any, _now: int, notified: list[str] = notified
        ) -> Effects:
            notified.append(str(problem))
            return []

        node.tier.services.on_damaged = on_damaged
        node.damage(node.log.closed_segments()[1].stem_path + LOG, flip(bit))
        node.pass_time(5 * 60_000)
        assert [(s.base_offset, s.end_offset) for s in node.segments()] == [(0, 2)], bit
        assert [row.end_offset for row in rows(node.cluster)] == [2]
        assert len(data_keys(node.cluster)) == 5
        (row,) = node.tier.status()
        assert row.problem is not None
        assert "partition=t-0" in row.problem
        assert "offset=" in row.problem
        assert row.copy_lag_segments == 2
        assert len(node.warnings) == len(notified) == 1, "said once, not with every try"
        assert node.tier.services.counters.damaged_segments == 1
        node.expire_local()
        assert node.log.local_log_start_offset == 3, "what is not in the tier stays"
        assert node.read(0).records
        assert node.log.read_batches(6, max_bytes=1)


def test_replicas_that_all_have_the_damage_do_not_depose_each_other_for_ever() -> None:
    node = three_segments()
    notified: list[str] = []

    def on_damaged(_where: Any, problem: Any, _now: int) -> Effects:
        notified.append(str(problem))
        return []

    node.tier.services.on_damaged = on_damaged
    node.damage(node.log.closed_segments()[0].stem_path + LOG, flip(100))
    for epoch in range(3, 9):  # it is elected again, for the others are no better
        node.lead(epoch)
        node.pass_time(1000)
    assert len(notified) == 1
    for epoch, expected in ((9, 2), (10, 2), (11, 3)):
        node.cluster.now_ms += 11 * 60_000
        node.lead(epoch)
        node.pass_time(1000)
        assert len(notified) == expected, "each time it waits twice as long"


def test_a_low_limit_of_custom_metadata_does_not_stop_the_tier() -> None:
    """The fingerprint is the project's own: an operator's limit from before there was one still holds."""
    node = three_segments(custom_metadata_max_bytes=0)
    node.pass_time(1000)
    assert [s.end_offset for s in node.segments()] == [2, 5, 8]
    assert all(row.fingerprint is not None for row in rows(node.cluster))


def test_a_piece_that_is_read_back_fits_into_memory_that_the_process_keeps() -> None:
    """Each block from OWN_PAGES_FROM_BYTES on is mapped anew, and each of its pages costs a fault."""
    assert storage.READ_BACK_BYTES + sys.getsizeof(b"") < OWN_PAGES_FROM_BYTES


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 17])
@pytest.mark.parametrize("extra", [-1, 0, 1, 9])
def test_a_range_that_begins_at_the_end_is_never_asked_for(
    size: int, extra: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Object stores refuse it: a segment of a whole number of reads could never be confirmed."""

    class Strict(MemoryStore):
        def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
            if size_bytes is not None and position >= len(self.objects[key]):
                raise RemoteStorageError("the range is not satisfiable")
            return super().get(key, position, size_bytes)

    monkeypatch.setattr(storage, "READ_BACK_BYTES", 8)
    store = Strict()
    put = ObjectSum(size, crc32c(bytes(size)))
    held = bytes(max(size + extra, 0))
    store.put("a", (held,), size_bytes=len(held))
    if len(held) < size:  # what is cut off is found, by either
        with suppress(RemoteStorageError):
            assert storage.stored_sum(store, "a", size) != put
    else:
        assert (storage.stored_sum(store, "a", size) == put) == (len(held) == size)


def test_a_segment_that_was_repaired_is_copied() -> None:
    node = three_segments()
    path = node.log.closed_segments()[1].stem_path + LOG
    node.damage(path, flip(100))
    node.pass_time(60_000)
    node.damage(path, flip(100))
    node.pass_time(15 * 60_000)
    assert [s.end_offset for s in node.segments()] == [2, 5, 8]
    assert node.tier.status()[0].problem is None


def test_a_damaged_index_is_built_again_for_the_copy() -> None:
    sound = three_segments()
    sound.pass_time(1000)
    expected = sorted(sound.cluster.store.objects[k] for k in data_keys(sound.cluster))
    for suffix in (OFFSET_INDEX, TIME_INDEX):
        for bit in range(0, 96, 7):
            node = three_segments()
            node.damage(node.log.closed_segments()[1].stem_path + suffix, flip(bit))
            node.pass_time(1000)
            found = [node.cluster.store.objects[k] for k in data_keys(node.cluster)]
            assert sorted(found) == expected, (suffix, bit)
            assert suffix in node.warnings[0] or bit > 88, "the low byte may name the same batch"


def transaction(node: Node, producer: int, sequence: int, *, is_aborted: bool) -> None:
    kinds: dict[str, Any] = {"producer_id": producer, "producer_epoch": 0, "is_transactional": True}
    for number, text in enumerate("xy"):
        node.produce(3, text, roll=False, base_sequence=sequence + number, **kinds)
    kind = ControlType.ABORT if is_aborted else ControlType.COMMIT
    marker = NewRecord(encode_key(kind), bytes(6), node.cluster.now_ms)
    node.log.append_as_leader(
        build_batch([marker], is_control=True, **kinds),
        leader_epoch=3, now_ms=node.cluster.now_ms, origin="coordinator",
    )  # fmt: skip


def with_transactions() -> Node:
    node = Node(Cluster()).start().lead(3)
    for round_ in range(2):
        transaction(node, 7, 4 * round_, is_aborted=True)
        transaction(node, 8, 2 * round_, is_aborted=False)
        transaction(node, 7, 4 * round_ + 2, is_aborted=True)
        node.produce(3, f"tail {round_}")
    return node


def test_aborted_transactions_and_producers_are_those_of_the_batches() -> None:
    sound = with_transactions()
    assert all(sound.fs.exists(s.stem_path + ".txnindex") for s in sound.log.closed_segments())
    sound.pass_time(1000)
    expected = sorted(sound.cluster.store.objects[k] for k in data_keys(sound.cluster))
    changes: list[Callable[[bytes], bytes]] = [lambda data: data[:-34], lambda data: b""]
    changes += [flip(bit) for bit in range(0, 2 * 34 * 8, 23)]
    for change in changes:
        for suffix in (TXN_INDEX, ".snapshot"):
            node = with_transactions()
            second = node.log.closed_segments()[1]
            node.damage(
                second.snapshot_path if suffix == ".snapshot" else second.stem_path + suffix, change
            )
            node.pass_time(1000)
            found = [node.cluster.store.objects[k] for k in data_keys(node.cluster)]
            assert sorted(found) == expected
            assert len(node.warnings) == 1


def test_a_transaction_index_that_is_lost_is_made_of_the_batches() -> None:
    node = with_transactions()
    node.damage(node.log.closed_segments()[1].stem_path + TXN_INDEX, lambda data: b"")
    node.pass_time(1000)
    sizes = [
        len(node.cluster.store.objects[k]) for k in data_keys(node.cluster) if k.endswith(TXN_INDEX)
    ]
    assert sizes == [2 * 34, 2 * 34]


def test_a_transaction_index_that_is_lost_is_made_of_the_batches_where_those_before_are_gone() -> (
    None
):
    """Local retention took them: what producers had done before the segment is in its snapshot."""
    node = with_transactions()
    _, second = node.log.closed_segments()
    due = ToCopy(
        TP, node.log.path, second, [], ((3, second.base_offset),), b"", 1, may_have_gaps=False
    )
    expected = txns(read_verified(node.fs, due))
    node.damage(second.stem_path + TXN_INDEX, lambda data: b"")
    assert txns(read_verified(node.fs, due)) == expected
    assert len(expected) == 2 * 34


def test_producers_that_no_snapshot_knows_are_those_of_all_batches_that_are_here() -> None:
    sound = with_transactions()
    sound.pass_time(1000)
    expected = sorted(sound.cluster.store.objects[k] for k in data_keys(sound.cluster))
    node = with_transactions()
    first, second = node.log.closed_segments()
    for segment in (first, second):
        node.damage(segment.snapshot_path, lambda data: b"")
    node.pass_time(1000)
    assert sorted(node.cluster.store.objects[k] for k in data_keys(node.cluster)) == expected
    due = ToCopy(
        TP, node.log.path, second, [first], ((3, second.base_offset),), b"", 1, may_have_gaps=False
    )
    node.damage(first.stem_path + LOG, lambda data: data[:-1])
    with pytest.raises(DamagedSegment, match="an earlier segment is damaged"):
        read_verified(node.fs, due)


def test_a_damaged_snapshot_below_a_segment_does_not_change_its_aborted_transactions() -> None:
    """Where what producers did before is not known, the batches alone do not say what was aborted."""
    node = Node(Cluster()).start()
    node.log.epochs.assign(3, 0)
    kinds: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    node.produce(3, "begins", base_sequence=0, **kinds)
    transaction(node, 8, 0, is_aborted=True)
    marker = NewRecord(encode_key(ControlType.ABORT), bytes(6), node.cluster.now_ms)
    node.log.append_as_leader(
        build_batch([marker], is_control=True, **kinds),
        leader_epoch=3, now_ms=node.cluster.now_ms, origin="coordinator",
    )  # fmt: skip
    node.produce(3, "tail")
    first, second = node.log.closed_segments()
    due = ToCopy(
        TP, node.log.path, second, [], ((3, second.base_offset),), b"", 1, may_have_gaps=False
    )
    expected = txns(read_verified(node.fs, due))
    assert len(expected) == 2 * 34
    node.damage(first.snapshot_path, flip(50))
    assert txns(read_verified(node.fs, due)) == expected
    node.damage(second.stem_path + TXN_INDEX, lambda data: data[:-1])
    with pytest.raises(DamagedSegment, match="transactions"):
        read_verified(node.fs, due)


def txns(sound: VerifiedSegment) -> bytes:
    source = sound.data.txn_index
    return b"" if source is None else b"".join(map(bytes, source.chunks()))


def with_a_gap() -> Node:
    node = Node(Cluster()).start()
    for offset in (0, 1, 5, 6):
        batch = bytearray(build_batch([NewRecord(b"k", b"v", 1)]))
        set_offset_and_epoch(batch, 0, offset, 3)
        while node.log.log_end_offset <= offset:  # missing offsets are told twice
            node.log.append_as_follower(batch, leader_epoch=3, now_ms=node.cluster.now_ms)
    node.log.advance_high_watermark(7)
    node.log.roll(node.cluster.now_ms)
    return node


def test_gaps_are_copied_where_a_compaction_is_on_record_and_nowhere_else() -> None:
    node = with_a_gap()
    node.log.compaction.first_dirty_offset = -1
    node.lead(4).pass_time(60_000)
    assert node.segments() == []
    assert "never compacted" in str(node.tier.status()[0].problem)
    node = with_a_gap()
    assert node.log.compaction.may_have_gaps, "its leader's log had them"
    node.lead(4).pass_time(60_000)
    assert len(node.segments()) == 1
    (row,) = rows(node.cluster)
    assert row.fingerprint is not None
    assert row.fingerprint.may_have_gaps


def test_what_the_store_holds_is_confirmed_before_the_copy_counts() -> None:
    node = three_segments()
    put = node.cluster.store.put

    def rotting(key: str, chunks: Any, *, size_bytes: int) -> None:
        put(key, chunks, size_bytes=size_bytes)
        if key.endswith(LOG) and rotting_left:
            rotting_left.pop()
            node.cluster.store.objects[key] = flip(77)(node.cluster.store.objects[key])

    rotting_left = [1]
    node.cluster.store.put = rotting  # type: ignore[method-assign]
    node.pass_time(0)
    assert node.segments() == []
    assert "has other bytes than those that were put" in str(node.tier.status()[0].problem)
    assert data_keys(node.cluster) == []
    node.pass_time(60_000)
    assert [s.end_offset for s in node.segments()] == [2, 5, 8]


def test_a_file_that_changes_between_the_look_and_the_copy_is_not_stored() -> None:
    node = three_segments()
    path = node.log.closed_segments()[0].stem_path + LOG
    copy = node.storage.copy_segment

    def late(segment: Any, data: Any) -> Any:
        node.damage(path, flip(500))
        return copy(segment, data)

    node.storage.copy_segment = late  # type: ignore[method-assign]
    node.pass_time(0)
    assert node.segments() == []
    assert "changed while it was copied" in str(node.tier.status()[0].problem)
    assert data_keys(node.cluster) == []


def test_a_store_may_have_the_kernel_copy_the_file_that_was_verified() -> None:
    node = three_segments()
    given: list[Any] = []
    copy = node.storage.copy_segment

    def seeing(segment: Any, data: Any) -> Any:
        file = data.log.open_file()
        given.append((file.read(0, data.log.size_bytes), b"".join(data.log.chunks())))
        return copy(segment, data)

    node.storage.copy_segment = seeing  # type: ignore[method-assign]
    node.pass_time(1000)
    assert len(given) == 3
    assert all(of_file == of_chunks for of_file, of_chunks in given)


def test_every_later_leader_knows_what_was_copied() -> None:
    node = three_segments()
    node.pass_time(1000)
    before = rows(node.cluster)
    assert all(row.fingerprint is not None for row in before)
    assert all(row.custom_metadata is None for row in before)
    other = Node(node.cluster, 2).start()
    other.follow(node)
    other.lead(9).pass_time(1000)
    catalog = read_catalog(node.cluster.store, TOPIC_ID, 0)
    assert catalog is not None
    assert catalog.leader_epoch == 9
    assert list(catalog.segments) == before


def test_a_fingerprint_fits_into_custom_metadata() -> None:
    node = with_transactions()
    node.pass_time(1000)
    known = rows(node.cluster)[0].fingerprint
    assert known is not None
    assert sorted(suffix for suffix, _ in known.sums) == sorted(SUFFIXES)
    data = encode_fingerprint(known)
    assert len(data) <= LIMIT_BYTES
    assert decode_fingerprint(data) == known
    for other in (None, b"", b"plug-in", data + b"x", data[:-1], b"FX" + data[2:]):
        assert decode_fingerprint(other) is None


def test_a_row_names_batches_at_which_a_reader_may_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is the first at or after a further 8 MiB; what is before it is as old as the split says."""
    monkeypatch.setattr(verified, "SPLIT_BYTES", 600)
    monkeypatch.setattr(verified, "CHUNK_BYTES", 400)
    node = Node(Cluster()).start().lead(0)
    times = [50, 90, 40, 95, 60, 120, 10]
    for number in range(40):
        size = 700 if number % 11 == 5 else number % 90
        record = NewRecord(None, b"v" * size, times[number % 7] + number)
        node.append(0, record, roll=number == 39)
    node.pass_time(1000)
    (row,) = rows(node.cluster)
    heads = list(headers(node.cluster.store.objects[row.key()]))
    expected = []
    mark = 600
    for number, head in enumerate(heads):
        if head.position >= mark:
            newest = max(h.max_timestamp for h in heads[:number])
            expected.append((head.base_offset, head.position, newest))
            mark = (head.position // 600 + 1) * 600
    assert list(row.splits) == expected
    assert len(expected) > 5
    assert row.min_timestamp_ms == min(h.max_timestamp for h in heads)


def test_segments_smaller_than_a_split_have_none() -> None:
    node = three_segments()
    node.pass_time(1000)
    assert [row.splits for row in rows(node.cluster)] == [()] * 3
    assert all(row.min_timestamp_ms is not None for row in rows(node.cluster))


def test_what_is_kept_for_rows_that_cannot_be_written_is_bounded() -> None:
    node = three_segments()
    catalog = node.tier._tasks[WHERE].catalog
    for number in range(keeper.DETAILS_MAX + 10):
        catalog.note_details(number.to_bytes(16, "big"), Details())
    assert len(catalog._details) == keeper.DETAILS_MAX
    node.pass_time(2000)
    assert not {row.segment_id for row in rows(node.cluster)} & catalog._details.keys()
