"""The judge of logs and images sees what it is for: planted differences, one at a time."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from firnline.base.ids import OffsetAndEpoch
from firnline.metadata import records as r
from firnline.metadata.features import record_version
from firnline.metadata.image import METADATA_VERSION
from firnline.metadata.loader import Loader
from firnline.metadata.snapshot_file import snapshot_batches, snapshot_name, write_snapshot
from firnline.protocol.schema import Message
from firnline.records.build import NewRecord, build_batch
from firnline.runtime.disk import RealFs
from tests.mixed.sameness import Disk, differences, read_disk
from tests.worlds.decoded import image_records

LEVEL = 30
TOPIC = (77).to_bytes(16, "big")
RECORDS: Sequence[Message] = (
    r.FeatureLevelRecord(name=METADATA_VERSION, feature_level=LEVEL),
    r.TopicRecord(name="t", topic_id=TOPIC),
    r.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"),
    r.NoOpRecord(),
    r.NoOpRecord(),
)


def written(
    path: Path, content: Sequence[Message] = RECORDS, *, start: int = 0, epoch: int = 1
) -> None:
    """Write a log of one batch a record, from `start` on."""
    path.mkdir()
    data = b"".join(
        build_batch(
            [NewRecord(None, r.encode(record, record_version(record, LEVEL)), 1000 + offset)],
            base_offset=offset,
            leader_epoch=epoch,
        )
        for offset, record in enumerate(content)
        if offset >= start
    )
    (path / f"{start:020d}.log").write_bytes(data)


def snapshot(path: Path, content: Sequence[Message], end: int) -> None:
    """Write the snapshot of the first `end` records."""
    loader = Loader()
    loader.load(content[:end], offset=end - 1, epoch=1)
    batches = snapshot_batches(
        image_records(loader.image()),
        epoch=1,
        metadata_version=LEVEL,
        last_contained_ms=1,
        now_ms=1,
    )
    write_snapshot(RealFs(), str(path), snapshot_name(OffsetAndEpoch(end, 1)), batches)


def disks(base: Path) -> list[Disk]:
    return [read_disk(p.name, p) for p in sorted(base.iterdir())]


def test_equal_disks_are_equal_also_where_a_snapshot_replaces_the_beginning(tmp_path: Path) -> None:
    written(tmp_path / "a")
    written(tmp_path / "b", start=3)
    snapshot(tmp_path / "b", RECORDS, 3)
    snapshot(tmp_path / "a", RECORDS, 2)
    assert differences(disks(tmp_path), 5) == []


CHANGED = r.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="2")


@pytest.mark.parametrize(
    ("content", "epoch", "said"),
    [
        ((*RECORDS[:2], CHANGED, *RECORDS[3:]), 1, "a has 2-2 of epoch 1: ConfigRecord"),
        ((*RECORDS[:2], CHANGED, *RECORDS[3:]), 1, "images of a and b at 5: configs"),
        (RECORDS, 2, "b has 0-0 of epoch 2: FeatureLevelRecord"),
    ],
    ids=["a record", "an image", "an epoch"],
)
def test_another_record_is_seen(
    tmp_path: Path, content: Sequence[Message], epoch: int, said: str
) -> None:
    written(tmp_path / "a")
    written(tmp_path / "b", content, epoch=epoch)
    assert any(said in fault for fault in differences(disks(tmp_path), 5))


def test_a_log_that_ends_early_is_seen(tmp_path: Path) -> None:
    written(tmp_path / "a")
    written(tmp_path / "b", RECORDS[:4])
    assert differences(disks(tmp_path), 5) == ["b ends at 4, before 5"]


def test_a_snapshot_that_says_something_else_is_seen(tmp_path: Path) -> None:
    written(tmp_path / "a")
    written(tmp_path / "b")
    snapshot(tmp_path / "b", (*RECORDS[:2], CHANGED), 3)
    assert any(fault.startswith("snapshot ") for fault in differences(disks(tmp_path), 5))


def test_damage_is_seen_and_a_cut_is_none(tmp_path: Path) -> None:
    written(tmp_path / "a")
    log = tmp_path / "a" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"x")
    with pytest.raises(AssertionError, match="damage"):
        read_disk("a", tmp_path / "a")
    assert read_disk("a", tmp_path / "a", is_cut=True).end == (1, 4)
