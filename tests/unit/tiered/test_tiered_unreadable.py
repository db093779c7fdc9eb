"""What nobody can read in `__remote_log_metadata` stops no node and deletes nothing. See decision 0025."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.api.handlers.k32001_tier_status import _problem
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from firnline.tiered.metadata.changes import from_record
from firnline.tiered.metadata.log import BATCH_BYTES_MAX, UNREADABLE, TopicMetadataLog
from firnline.tiered.metadata.records import decode
from firnline.tiered.reads.reader import RemoteLogReadResult
from firnline.tiered.spi import (
    DeleteState,
    PartitionDelete,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)
from tests.raw_batches import GZIP, misplaced_batch, raw_batch
from tests.worlds.decoded import all_records
from tests.worlds.tier import TOPIC_ID, WHERE, Cluster, Node, topic_config

HOURS_MS = 2 * 3_600_000
pytestmark = pytest.mark.loses_metadata


def metadata_of(node: Node) -> TopicMetadataLog:
    found = node.tier.services.metadata
    assert isinstance(found, TopicMetadataLog)
    return found


def tiered(cluster: Cluster) -> Node:
    """A leader that has copied five segments of one record, and holds the last record alone."""
    node = Node(cluster).start().lead(0)
    for text in "abcde":
        node.produce(0, text)
    node.produce(0, "f", roll=False)
    node.pass_time(5_000)
    node.expire_local()
    assert node.log.local_log_start_offset == 5
    node.pass_time(5_000)
    return node


def again(cluster: Cluster, node: Node, **changes: object) -> Node:
    """The same broker after a crash."""
    fresh = Node(cluster, fs=node.crash(), config=topic_config(**changes)).start()
    fresh.log.advance_high_watermark(fresh.log.log_end_offset)
    fresh.log.advance_log_start(0)
    return fresh.lead(1)


def place_of(cluster: Cluster, number: int) -> tuple[int, int]:
    """Where the record is that says the end of the copy of segment `number`."""
    partition = next(p for p, batches in cluster.metadata.items() if batches)
    finished = []
    for at, batch in enumerate(cluster.metadata[partition]):
        [record] = all_records(batch)
        said = from_record(decode(record.value or b""))
        if isinstance(said, SegmentUpdate) and said.state == SegmentState.COPY_FINISHED:
            finished.append(at)
    return partition, finished[number]


def spoil(cluster: Cluster, partition: int, at: int) -> int:
    """Put a batch that nobody can read in the place of one; return its offset."""
    (header,) = headers(cluster.metadata[partition][at])
    cluster.metadata[partition][at] = bytes(
        raw_batch(b"this is not gzip", codec=GZIP, base_offset=header.base_offset)
    )
    return header.base_offset


def texts(node: Node, offset: int) -> list[str]:
    """What a consumer gets from there on, as far as one answer goes."""
    found = node.read(offset, max_bytes=1)
    assert isinstance(found, RemoteLogReadResult), found
    return [(each.value or b"").decode() for each in all_records(found.records)][:1]  # type: ignore[arg-type]


def logs(cluster: Cluster) -> list[str]:
    return sorted(key for key in cluster.store.objects if key.endswith(".log"))


def catalog_of(cluster: Cluster) -> list[str]:
    return sorted(key for key in cluster.store.objects if key.startswith("catalog/"))


@pytest.mark.parametrize(
    "batch",
    [
        raw_batch(b"this is not gzip", codec=GZIP),
        raw_batch(b"", codec=3),
        raw_batch(gzip.compress(bytes(BATCH_BYTES_MAX + 1)), codec=GZIP),
        raw_batch(b"\x02\x00", count=5),
        build_batch([NewRecord(None, b"\x01\x63\x00", 1)]),
        build_batch([NewRecord(None, None, 1)]),
        misplaced_batch(1_000),
        misplaced_batch(-1),
    ],
    ids=["gzip", "lz4", "bomb", "cut off", "unknown type", "no value", "above", "below"],
)
def test_what_nobody_can_read_is_named_once_and_readers_are_served(batch: bytearray) -> None:
    cluster = Cluster()
    node = tiered(cluster)
    partition = metadata_of(node).partition_of(WHERE)
    offset = cluster.append(partition, batch).base_offset
    fresh = again(cluster, node)
    fresh.pass_time(60_000)
    named = [line for line in fresh.warnings if "cannot be read" in line]
    assert len(named) == 1
    assert f"topic=__remote_log_metadata partition={partition} offset=" in named[0]
    assert f"={offset} " in named[0]
    assert [texts(fresh, n) for n in range(5)] == [["a"], ["b"], ["c"], ["d"], ["e"]]
    (row,) = fresh.tier.status()
    assert "nothing of this partition is copied or deleted" in str(row.problem)
    assert fresh.tier.unreadable_offsets == cluster.ends[partition] - offset


def test_offsets_that_follow_one_another_are_given_up_one_by_one_as_they_were_named() -> None:
    cluster = Cluster()
    node = tiered(cluster)
    partition = metadata_of(node).partition_of(WHERE)
    offsets = [cluster.append(partition, raw_batch(b"?", codec=GZIP)).base_offset for _ in range(3)]
    node.pass_time(5_000)
    named = [line for line in node.warnings if "cannot be read" in line]
    assert len(named) == 3
    for count in (1, 2):
        cluster.given_up = {partition: [(each, each) for each in offsets[:count]]}
        assert metadata_of(node).withheld(WHERE) is not None
    cluster.given_up = {partition: [(each, each) for each in reversed(offsets)]}
    assert metadata_of(node).withheld(WHERE) is None


@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_copy_whose_end_cannot_be_read_is_never_taken_for_one_that_failed(number: int) -> None:
    """Its record says STARTED alone: what nobody finished is deleted, which here were the only records."""
    cluster = Cluster()
    node = tiered(cluster)
    before, catalogs = logs(cluster), catalog_of(cluster)
    assert catalogs
    partition, at = place_of(cluster, number)
    offset = spoil(cluster, partition, at)
    fresh = again(cluster, node)
    fresh.pass_time(HOURS_MS)
    assert logs(cluster) == before
    assert catalog_of(cluster) == catalogs
    assert fresh.log.log_start_offset == 0
    (row,) = fresh.tier.status()
    reported = _problem(row) or ""
    assert reported.startswith(UNREADABLE), "operators, and `doctor`, look for these words"
    assert f"no segment serves {number} to {number}" in reported
    served = [n for n in range(5) if n != number]
    assert [texts(fresh, n) for n in served] == [["abcde"[n]] for n in served]
    # Whoever gives it up gives up what it said: the copy counts as one that nobody finished.
    cluster.given_up = {partition: [(offset, offset)]}
    fresh.pass_time(HOURS_MS)
    assert set(before) - set(logs(cluster)) == {before[number]}


def test_limits_delete_nothing_while_some_metadata_cannot_be_read() -> None:
    cluster = Cluster()
    node = tiered(cluster)
    before = logs(cluster)
    partition = metadata_of(node).partition_of(WHERE)
    offset = cluster.append(partition, raw_batch(b"?", codec=GZIP)).base_offset
    fresh = again(cluster, node, retention_ms=1)
    fresh.produce(1, "g", "h")
    fresh.pass_time(HOURS_MS)
    fresh.expire_local()
    assert logs(cluster) == before
    assert (fresh.log.log_start_offset, fresh.log.local_log_start_offset) == (0, 5)
    cluster.given_up = {partition: [(0, offset - 1)]}  # another one
    fresh.pass_time(HOURS_MS)
    assert logs(cluster) == before
    cluster.given_up = {partition: [(offset, offset)]}
    fresh.pass_time(HOURS_MS)
    assert fresh.log.log_start_offset > 0
    assert not set(before) & set(logs(cluster))


def test_a_leader_that_runs_stops_copying_and_deleting_when_it_comes() -> None:
    cluster = Cluster()
    node = tiered(cluster)
    before = logs(cluster)
    partition = metadata_of(node).partition_of(WHERE)
    cluster.append(partition, raw_batch(b"?", codec=GZIP))
    node.pass_time(1_500)
    node.log.config = topic_config(retention_ms=1)
    node.produce(0, "g", "h")
    node.pass_time(HOURS_MS)
    assert logs(cluster) == before
    assert node.log.log_start_offset == 0
    cluster.given_up = {partition: [(0, 1_000)]}
    node.pass_time(HOURS_MS)
    assert node.log.log_start_offset > 0


def test_a_removal_under_way_ends_when_it_comes() -> None:
    """Between two segments that go: what the second one is needed for is not known any more."""
    cluster = Cluster()
    node = tiered(cluster)
    partition = metadata_of(node).partition_of(WHERE)
    node.log.config = topic_config(retention_ms=1)
    assert len(logs(cluster)) == 6
    node.held = lambda effect: getattr(effect, "name", "").startswith("delete t-0")
    node.pass_time(5_000)
    assert len(node.on_hold) == 1
    cluster.append(partition, raw_batch(b"?", codec=GZIP))
    node.pass_time(1_500)
    node.release()
    node.pass_time(HOURS_MS)
    assert len(logs(cluster)) == 5


def test_a_follower_gives_up_nothing_local_while_some_metadata_cannot_be_read() -> None:
    cluster = Cluster()
    leader = Node(cluster, 1).start().lead(0)
    leader.produce(0, "a", "b", "c")
    follower = Node(cluster, 2).start()
    follower.follow(leader)
    leader.pass_time(5_000)
    partition = metadata_of(leader).partition_of(WHERE)
    cluster.append(partition, raw_batch(b"?", codec=GZIP))
    follower.role(is_leader=False, epoch=0)
    follower.pass_time(HOURS_MS)
    follower.expire_local()
    assert follower.log.local_log_start_offset == 0
    cluster.given_up = {partition: [(0, 1_000)]}
    follower.pass_time(HOURS_MS)
    follower.log.roll(cluster.now_ms)
    follower.expire_local()
    assert follower.log.local_log_start_offset > 0


@pytest.mark.parametrize("leads", [True, False])
def test_local_files_of_before_stay_from_the_moment_on_that_it_comes(leads: bool) -> None:
    """They could have gone a moment ago; what came may say that the tier has their records no more."""
    cluster = Cluster()
    leader = Node(cluster, 1).start().lead(0)
    leader.produce(0, "a", "b", "c")
    follower = Node(cluster, 2).start()
    follower.follow(leader)
    follower.role(is_leader=False, epoch=0)
    node = leader if leads else follower
    leader.pass_time(5_000)
    follower.pass_time(5_000)
    follower.log.roll(cluster.now_ms)
    assert node.log.highest_remote_offset >= 0
    cluster.append(metadata_of(node).partition_of(WHERE), raw_batch(b"?", codec=GZIP))
    node.pass_time(1_500)
    cluster.now_ms += HOURS_MS
    node.expire_local()
    assert node.log.local_log_start_offset == 0
    node.pass_time(120_000)
    node.expire_local()
    assert node.log.local_log_start_offset == 0
    cluster.given_up = {metadata_of(node).partition_of(WHERE): [(0, 1_000)]}
    node.pass_time(120_000)
    node.expire_local()
    assert node.log.local_log_start_offset > 0


def test_a_deleted_topic_is_not_removed_by_half_a_history() -> None:
    cluster = Cluster()
    node = tiered(cluster)
    before = logs(cluster)
    partition = metadata_of(node).partition_of(WHERE)
    cluster.append(partition, raw_batch(b"?", codec=GZIP))
    fresh = again(cluster, node)
    del cluster.topics[TOPIC_ID]
    fresh.run(fresh.tier.on_topic_deleted(TOPIC_ID, "t", 1, was_tiered=True, now_ms=cluster.now_ms))
    fresh.pass_time(HOURS_MS)
    assert logs(cluster) == before
    cluster.given_up = {partition: [(0, 1_000)]}
    fresh.pass_time(HOURS_MS)
    assert logs(cluster) == []


def test_bytes_that_this_copy_alone_has_are_waited_for_and_never_skipped() -> None:
    cluster = Cluster()
    node = tiered(cluster)
    partition, at = place_of(cluster, 1)
    sound = cluster.metadata[partition][at]
    flipped = bytearray(sound)
    flipped[-3] ^= 1
    cluster.metadata[partition][at] = bytes(flipped)
    fresh = again(cluster, node)
    fresh.pass_time(60_000)
    (line,) = [line for line in fresh.warnings if "another CRC" in line]
    assert "fetched anew" in line
    assert not metadata_of(fresh).is_ready(WHERE)
    assert fresh.tier.unreadable_offsets == 0
    (row,) = fresh.tier.status()
    assert "a copy of it is damaged" in (_problem(row) or "")
    cluster.metadata[partition][at] = sound
    fresh.pass_time(60_000)
    assert [texts(fresh, n) for n in range(5)] == [["a"], ["b"], ["c"], ["d"], ["e"]]


@pytest.mark.parametrize("bit", [1 << 63, 1])
def test_a_batch_with_another_base_offset_is_waited_for_and_hides_no_record(bit: int) -> None:
    """No CRC covers a base offset: below what was read, or above the next ones, records were skipped."""
    cluster = Cluster()
    node = tiered(cluster)
    partition, at = place_of(cluster, 1)
    sound = cluster.metadata[partition][at]
    base_offset = int.from_bytes(sound[:8], "big")
    cluster.metadata[partition][at] = (base_offset ^ bit).to_bytes(8, "big") + sound[8:]
    fresh = again(cluster, node)
    fresh.pass_time(60_000)
    lines = [line for line in fresh.warnings if "is not the next one" in line]
    assert lines
    assert "fetched anew" in lines[0]
    assert not metadata_of(fresh).is_ready(WHERE)
    cluster.metadata[partition][at] = sound
    fresh.pass_time(60_000)
    assert [texts(fresh, n) for n in range(5)] == [["a"], ["b"], ["c"], ["d"], ["e"]]


def test_nothing_is_said_behind_damage_for_as_long_as_it_stands() -> None:
    """Each attempt to copy wrote a COPY_STARTED behind it, twice a minute, which nobody read."""
    cluster = Cluster()
    node = tiered(cluster)
    partition = metadata_of(node).partition_of(WHERE)
    damaged = build_batch([NewRecord(None, b"?", 1)])
    damaged[-1] ^= 1
    cluster.append(partition, damaged)
    node.pass_time(1_500)
    node.produce(0, "g", "h")
    end = cluster.ends[partition]
    node.pass_time(300_000)
    assert cluster.ends[partition] == end
    (row,) = node.tier.status()
    assert "a copy of it is damaged" in (_problem(row) or "")
    damaged[-1] ^= 1
    cluster.metadata[partition][-1] = bytes(cluster.metadata[partition][-1][:-1]) + damaged[-1:]
    cluster.given_up = {partition: [(0, 1_000)]}
    before = len(logs(cluster))
    node.pass_time(60_000)
    assert len(logs(cluster)) > before


def test_no_batch_opens_to_more_than_its_bound() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    bomb = raw_batch(gzip.compress(bytes(BATCH_BYTES_MAX + 1)), codec=GZIP)
    cluster.append(metadata_of(node).partition_of(WHERE), bomb)
    node.pass_time(5_000)
    assert any("opens to too many bytes" in line for line in node.warnings)


def test_a_flood_of_them_fills_neither_the_log_nor_the_memory() -> None:
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    partition = metadata_of(node).partition_of(WHERE)
    for _ in range(300):
        cluster.append(partition, raw_batch(b"?", codec=GZIP))
    node.pass_time(60_000)
    assert len([line for line in node.warnings if "cannot be read" in line]) == 20
    consumed = metadata_of(node)._consumed[partition]
    assert len(consumed.unreadable.spans) == 1
    assert consumed.unreadable.offset_count == 300


OFFSETS = st.one_of(st.integers(-3, 40), st.integers(-(2**63), 2**63 - 1))


@given(
    batches=st.lists(
        st.one_of(
            st.builds(
                raw_batch,
                st.binary(max_size=60),
                codec=st.integers(0, 7),
                count=st.integers(1, 9),
            ),
            st.binary(max_size=60).map(lambda value: build_batch([NewRecord(None, value, 1)])),
            st.tuples(st.integers(0, 3), st.binary(max_size=120)).map(
                lambda pair: build_batch([NewRecord(None, bytes((1, pair[0], 0)) + pair[1], 1)])
            ),
        ),
        max_size=6,
    )
)
@settings(max_examples=50, deadline=None)
def test_any_bytes_with_a_right_crc_are_read_past_and_readers_are_served(
    batches: list[bytearray],
) -> None:
    cluster = Cluster()
    node = tiered(cluster)
    before = logs(cluster)
    partition = metadata_of(node).partition_of(WHERE)
    for batch in batches:
        cluster.append(partition, bytearray(batch))
    fresh = again(cluster, node)
    fresh.pass_time(10_000)
    assert metadata_of(fresh).is_ready(WHERE)
    assert metadata_of(fresh)._consumed[partition].next_offset == cluster.ends[partition]
    assert texts(fresh, 0) == ["a"]
    assert set(before) <= set(logs(cluster))


@given(base=OFFSETS, end=OFFSETS, epochs=st.lists(st.tuples(OFFSETS, OFFSETS), max_size=3))
@settings(max_examples=50, deadline=None)
def test_a_segment_that_no_broker_can_have_copied_is_not_believed(
    base: int, end: int, epochs: list[tuple[int, int]]
) -> None:
    from firnline.tiered.metadata.changes import segment_record

    epochs = [(epoch % 2**31, offset) for epoch, offset in epochs]
    row = RemoteSegment(
        TOPIC_ID, "t", 0, bytes(16), base, end, 1, 1, tuple(epochs), 1, 1, SegmentState(0)
    )
    starts = [offset for _, offset in sorted(epochs)]
    is_possible = (
        0 <= base <= end and bool(epochs) and sorted(starts) == starts and starts[-1] <= end
    )
    try:
        assert from_record(segment_record(row)) is not None
        was_taken = True
    except ValueError:
        was_taken = False
    assert was_taken is is_possible


@pytest.mark.parametrize("size_bytes", [-1, 0])
def test_no_broker_can_have_copied_a_segment_of_less_than_nothing(size_bytes: int) -> None:
    from firnline.tiered.metadata.changes import segment_record

    row = RemoteSegment(
        TOPIC_ID, "t", 0, bytes(16), 0, 9, size_bytes, 1, ((0, 0),), 1, 1, SegmentState(0)
    )
    if size_bytes < 0:
        with pytest.raises(ValueError, match="-1 bytes"):
            from_record(segment_record(row))
    else:
        assert from_record(segment_record(row)) == row


def test_the_deletion_of_a_partition_that_is_known_goes_on_being_one() -> None:
    """A record that can be read is believed, whatever stands beside it: only nobody acts on it."""
    cluster = Cluster()
    node = tiered(cluster)
    change = PartitionDelete(TOPIC_ID, "t", 0, DeleteState.MARKED, 1, 1)
    node.run(metadata_of(node).put_partition_delete(change, lambda *_: [], cluster.now_ms))
    cluster.append(metadata_of(node).partition_of(WHERE), raw_batch(b"?", codec=GZIP))
    node.pass_time(HOURS_MS)
    assert metadata_of(node).delete_state(WHERE) == DeleteState.MARKED
    assert metadata_of(node).deletions() == []
