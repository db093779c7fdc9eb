"""Snapshot files: whole or refused, Kafka's bytes, and never half there."""

from collections.abc import Sequence

import pytest

from firnline.base.errors import StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.metadata import records as r
from firnline.metadata.loader import READ_BYTES, SnapshotLoader
from firnline.metadata.snapshot_file import (
    Snapshot,
    SnapshotCheck,
    parse_snapshot_name,
    read_snapshot,
    snapshot_batches,
    snapshot_name,
    write_snapshot,
)
from firnline.metadata.snapshot_store import OpenSnapshot
from firnline.protocol.schema import Message
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from firnline.records.control import (
    ControlType,
    KRaftVersionRecord,
    SnapshotHeaderRecord,
    encode_key,
    encode_value,
)
from firnline.sim.disk import CrashableFs, Operation
from tests.worlds.chance import SeededRng

CONTENT = [
    r.FeatureLevelRecord(name="metadata.version", feature_level=30),
    *(r.TopicRecord(name=f"t{n}", topic_id=n.to_bytes(16, "big")) for n in range(1, 2500)),
]
# What `kafka-storage.sh format` of 4.3.1 wrote for metadata.version 30 and all other features at 0 is
# this, but for the times: a header batch, one data batch, a footer batch.
KAFKA_SIZES = [83, 91, 75]


def batches(content: Sequence[Message], epoch: int = 3) -> list[bytearray]:
    return list(
        snapshot_batches(content, epoch=epoch, metadata_version=30, last_contained_ms=77, now_ms=99)
    )


def a_disk() -> CrashableFs:
    fs = CrashableFs()
    fs.make_dir("/d")
    fs.sync_dir("/")
    return fs


def test_what_is_written_is_read() -> None:
    fs = a_disk()
    write_snapshot(fs, "/d", "x.checkpoint", batches(CONTENT))
    found = read_snapshot(fs, "/d/x.checkpoint")
    assert found == Snapshot(77, CONTENT, 0)
    assert fs.list_dir("/d") == ["x.checkpoint"]


def test_the_layout_is_kafkas() -> None:
    """Q7: header and footer are batches of their own; offsets count from 0; the epoch is the id's."""
    complete = batches(CONTENT)
    found = [next(headers(batch)) for batch in complete]
    assert [h.is_control for h in found] == [True, False, False, False, True]
    assert [h.base_offset for h in found] == [0, 1, 1001, 2001, 2501]
    assert {h.leader_epoch for h in found} == {3}
    assert [len(batch) for batch in batches(CONTENT[:1], epoch=0)] == KAFKA_SIZES


def test_an_empty_image_is_a_snapshot_too() -> None:
    fs = a_disk()
    write_snapshot(fs, "/d", "x.checkpoint", batches([]))
    assert read_snapshot(fs, "/d/x.checkpoint").records == []


@pytest.mark.parametrize("cut", [0, 1, 82, 83, 100, -75, -1])
def test_a_snapshot_that_ends_early_is_refused(cut: int) -> None:
    fs = a_disk()
    complete = b"".join(batches(CONTENT[:5]))
    fs.open("/d/x", create=True).append(complete[:cut])
    with pytest.raises(StorageError, match="damaged"):
        read_snapshot(fs, "/d/x")


def test_any_byte_that_changed_is_noticed() -> None:
    complete = b"".join(batches(CONTENT[:5]))
    for position in range(0, len(complete), 3):
        fs = a_disk()
        damaged = bytearray(complete)
        damaged[position] ^= 0x55
        fs.open("/d/x", create=True).append(damaged)
        try:
            found = read_snapshot(fs, "/d/x")
        except StorageError:
            continue
        # Base offset and leader epoch are outside of the CRC, and a snapshot does not need them.
        assert found.records == CONTENT[:5], position


def test_a_snapshot_with_batches_after_its_footer_or_before_its_header_is_refused() -> None:
    first, *rest = batches(CONTENT[:5])
    for order in ([first, *rest, rest[0]], [*rest, first], rest, [first, first[:0], *rest[:-1]]):
        fs = a_disk()
        fs.open("/d/x", create=True).append(b"".join(order))
        with pytest.raises(StorageError, match="damaged"):
            read_snapshot(fs, "/d/x")


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_every_codec_is_read(codec: int) -> None:
    """Q49."""
    first, _, last = batches(CONTENT[:1])
    rows = [NewRecord(None, r.encode(record, 0), 1) for record in CONTENT[:50]]
    fs = a_disk()
    middle = build_batch(rows, base_offset=1, codec=codec)
    data = bytes(first + middle + last)
    fs.open("/d/x", create=True).append(data)
    assert list(read_snapshot(fs, "/d/x").records) == CONTENT[:50]
    check = SnapshotCheck()
    assert check.feed(data) is None
    assert check.problem() is None
    loader = SnapshotLoader(OffsetAndEpoch(9, 3), OpenSnapshot(fs.open("/d/x")))
    for _ in loader.steps():
        pass
    assert len(loader.image().topics_by_name) == 49


@pytest.mark.parametrize("missing", [0, 80, 400_000])
def test_a_batch_larger_than_one_read_is_loaded_in_full_or_refused(missing: int) -> None:
    """Kafka's may have 8 MiB; the end of the file may be in the middle of one."""
    first, last = batches([])
    large = [
        r.TopicRecord(name="t", topic_id=b"t" * 16),
        *(
            r.ConfigRecord(resource_type=2, resource_name="t", name=f"k{n}", value="v" * 30_000)
            for n in range(30)
        ),
    ]
    middle = build_batch([NewRecord(None, r.encode(each, 0), 1) for each in large], base_offset=1)
    data = bytes(first + middle + last)
    fs = a_disk()
    fs.open("/d/x", create=True).append(data[: len(data) - missing])
    loader = SnapshotLoader(OffsetAndEpoch(32, 3), OpenSnapshot(fs.open("/d/x")))
    if missing:
        with pytest.raises(StorageError, match="damaged"):
            list(loader.steps())
    else:
        list(loader.steps())
        (settings,) = loader.image().configs.values()
        assert len(settings) == 30


def test_a_large_batch_does_not_make_the_reads_after_it_large() -> None:
    """Each read is a step of the loop: after a batch of 8 MiB all of them would be that long."""

    class Asked(OpenSnapshot):
        def read(self, position: int, size_bytes: int) -> bytes:
            sizes.append(size_bytes)
            return super().read(position, size_bytes)

    sizes: list[int] = []
    topics = [
        r.TopicRecord(name=f"{n:0200d}", topic_id=n.to_bytes(16, "big")) for n in range(1, 3_000)
    ]
    first, *rest = batches(topics)
    settings = [
        r.ConfigRecord(resource_type=2, resource_name="t", name=f"k{n}", value="v" * 30_000)
        for n in range(30)
    ]
    large = build_batch([NewRecord(None, r.encode(each, 0), 1) for each in settings], base_offset=1)
    fs = a_disk()
    fs.open("/d/x", create=True).append(bytes(first + large + b"".join(rest)))
    for _ in SnapshotLoader(OffsetAndEpoch(32, 3), Asked(fs.open("/d/x"))).steps():
        pass
    at = sizes.index(len(large))
    assert set(sizes[:at] + sizes[at + 1 :]) == {READ_BYTES}
    assert len(sizes) > at + 2


def test_the_writer_compresses_nothing() -> None:
    """Q49: as shipped."""
    assert {header.codec for batch in batches(CONTENT) for header in headers(batch)} == {NONE}


def test_large_records_do_not_make_a_large_batch() -> None:
    """Kafka takes no batch beyond 8 MiB."""
    large = [
        r.ConfigRecord(resource_type=2, resource_name=f"t{n}", name="k", value="v" * 30_000)
        for n in range(1000)
    ]
    sizes = [len(batch) for batch in batches(large)]
    assert max(sizes) < 400_000
    assert sum(sizes) > 30_000_000


def test_a_snapshot_reports_that_its_voters_are_dynamic() -> None:
    """Q7: KRaftVersion stands in the header's batch; types nobody knows yet are skipped (Q8)."""
    rows = [
        NewRecord(encode_key(ControlType.SNAPSHOT_HEADER), encode_value(SnapshotHeaderRecord()), 1),
        NewRecord(
            encode_key(ControlType.KRAFT_VERSION),
            encode_value(KRaftVersionRecord(kraft_version=1)),
            1,
        ),
        NewRecord(b"\x00\x00\x00\x63", b"?", 1),
    ]
    *_, last = batches([])
    fs = a_disk()
    fs.open("/d/x", create=True).append(build_batch(rows, is_control=True) + last)
    assert read_snapshot(fs, "/d/x").kraft_version == 1


@pytest.mark.parametrize("seed", range(30))
def test_a_crash_while_writing_leaves_no_snapshot_that_is_not_complete(seed: int) -> None:
    """Q9: the name is there only when the bytes are."""
    rng = SeededRng(seed)
    fs = a_disk()
    operations: list[Operation] = ["append", "sync", "rename", "sync_dir"]
    operation = operations[seed % 4]
    fs.fail(operation, "/d", "EIO", skip=rng.below(3) if operation == "append" else 0)
    with pytest.raises(StorageError):
        write_snapshot(fs, "/d", "x.checkpoint", batches(CONTENT))
    after = fs.crash(rng)
    if after.exists("/d/x.checkpoint"):
        assert list(read_snapshot(after, "/d/x.checkpoint").records) == CONTENT


def test_a_snapshot_that_was_written_survives_any_crash() -> None:
    fs = a_disk()
    write_snapshot(fs, "/d", "x.checkpoint", batches(CONTENT))
    after = fs.crash(SeededRng(1), keep="none")
    assert list(read_snapshot(after, "/d/x.checkpoint").records) == CONTENT


def test_names_are_kafkas_and_both_widths_of_the_epoch_are_read() -> None:
    """Q6."""
    snapshot_id = OffsetAndEpoch(1234, 5)
    assert snapshot_name(snapshot_id) == "00000000000000001234-0000000005.checkpoint"
    assert parse_snapshot_name(snapshot_name(snapshot_id)) == snapshot_id
    wide = "00000000000000001234-00000000000000000005.checkpoint"
    assert parse_snapshot_name(wide) == snapshot_id
    for name in (
        "bootstrap.checkpoint",
        snapshot_name(snapshot_id) + ".part",
        snapshot_name(snapshot_id) + ".deleted",
        "1234-5.checkpoint",
        "00000000000000001234-2147483648.checkpoint",  # no epoch
        "00000000000000001234.log",
    ):
        assert parse_snapshot_name(name) is None
