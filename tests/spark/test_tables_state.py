"""`topics` and `partitions` as of any offset, compared with the image that a node's loader has there."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyarrow", reason="NOT RUN: pyarrow is not installed")

from firnline.base.errors import ConfigError, StorageError
from firnline.base.ids import OffsetAndEpoch, uuid_text
from firnline.metadata import records as r
from firnline.metadata.image import ClusterImage
from firnline.metadata.loader import Loader
from firnline.metadata.snapshot_file import snapshot_batches, snapshot_name
from firnline.records.build import NewRecord, build_batch
from firnline.spark.tables import files, replay, state
from tests.metadata_stories import Life
from tests.spark.reading_tables import rows
from tests.worlds.decoded import image_records

EPOCH, NOW = 4, 1_700_000_000_000


class Written(NamedTuple):
    """A log directory with a life in it; the image at each end of a batch, and the snapshots' offsets."""

    directory: Path
    images: dict[int, ClusterImage]
    snapshots: list[int]


def write_life(
    directory: Path, life: Life, *, snapshot_every: int, segment_batches: int = 7
) -> Written:
    """Write the log of a life in segments, and snapshots after so many batches."""
    place = directory / "__cluster_metadata-0"
    place.mkdir(parents=True)
    loader, images, snapshots = Loader(), {0: Loader().image()}, list[int]()
    offset = since = 0
    for number, values in enumerate(life.encoded()):
        fresh = [NewRecord(None, value, NOW + number) for value in values]
        batch = bytes(build_batch(fresh, base_offset=offset, leader_epoch=EPOCH))
        if number % segment_batches == 0:
            segment = place / f"{offset:020d}.log"
        with segment.open("ab") as file:
            file.write(batch)
        loader.apply(batch)
        offset += len(values)
        images[offset] = loader.image()
        since += 1
        if since > snapshot_every and not loader.is_in_transaction:
            since = 0
            made = snapshot_batches(
                image_records(loader.image()), epoch=EPOCH, metadata_version=life.level,
                last_contained_ms=NOW, now_ms=NOW,
            )  # fmt: skip
            name = snapshot_name(OffsetAndEpoch(offset, EPOCH))
            (place / name).write_bytes(b"".join(map(bytes, made)))
            snapshots.append(offset)
    return Written(directory, images, snapshots)


def topics_of(image: ClusterImage) -> list[tuple[Any, ...]]:
    return sorted((t.name, uuid_text(i), len(t.partitions)) for i, t in image.topics_by_id.items())


def partitions_of(image: ClusterImage) -> list[dict[str, Any]]:
    found = [
        {
            "topic": topic.name, "topic_id": uuid_text(topic_id), "partition": number,
            "leader": one.leader, "leader_epoch": one.leader_epoch,
            "partition_epoch": one.partition_epoch, "replicas": list(one.replicas),
            "isr": list(one.isr), "removing_replicas": list(one.removing_replicas),
            "adding_replicas": list(one.adding_replicas), "eligible_leader_replicas": list(one.elr),
            "last_known_elr": list(one.last_known_elr),
            "leader_recovery_state": one.leader_recovery_state,
            "directories": [uuid_text(d) for d in one.directories], "source": "metadata",
        }
        for topic_id, topic in image.topics_by_id.items()
        for number, one in topic.partitions.items()
    ]  # fmt: skip
    return sorted(found, key=lambda row: (row["topic_id"], row["partition"]))


def check(written: Written, as_of: int | None) -> None:
    given = {} if as_of is None else {"asOfOffset": as_of}
    image = written.images[max(written.images) if as_of is None else as_of]
    found = rows("topics", log_dirs=written.directory, **given)
    assert sorted((t["topic"], t["topic_id"], t["partitions"]) for t in found) == topics_of(image)
    of_tier = ("broker_id", "written", "log_start_offset", "log_end_offset", "leader_epochs")
    partitions = []
    for row in rows("partitions", log_dirs=written.directory, **given):
        assert all(row[name] is None for name in of_tier)
        assert row["is_deleted"] is False
        partitions.append({name: row[name] for name in row if row[name] is not None})
        partitions[-1].pop("is_deleted")
    partitions.sort(key=lambda row: (row["topic_id"], row["partition"]))
    assert partitions == partitions_of(image)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans of a batch or two, and snapshots of many tasks."""
    monkeypatch.setattr(files, "SPAN_BYTES", 500)
    monkeypatch.setattr(state, "SPAN_BYTES", 500)
    monkeypatch.setattr(state, "_PART_PER_LOG", 0)
    monkeypatch.setattr("firnline.metadata.snapshot_file._RECORDS_PER_BATCH", 3)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("seed", range(4))
def test_the_state_at_each_offset_is_the_image_that_a_node_has_there(
    tmp_path: Path, seed: int
) -> None:
    written = write_life(tmp_path, Life(seed).write(600), snapshot_every=15)
    assert len(written.snapshots) > 1
    ends = sorted(written.images)
    before_and_after = {s for one in written.snapshots for s in ends if abs(s - one) < 8}
    for as_of in sorted({*ends[::9], *before_and_after}):
        check(written, as_of)
    check(written, None)


def test_a_life_without_snapshots_is_read_from_its_log(tmp_path: Path) -> None:
    written = write_life(tmp_path, Life(9).write(200), snapshot_every=10**9)
    for as_of in sorted(written.images)[::5]:
        check(written, as_of)


@pytest.mark.usefixtures("small_parts")
def test_a_topic_is_named_in_an_earlier_part_than_its_partitions(tmp_path: Path) -> None:
    life = Life(1)
    life.batches.append(
        [r.TopicRecord(name="wide", topic_id=b"w" * 16)]
        + [
            r.PartitionRecord(partition_id=n, topic_id=b"w" * 16, replicas=[1], isr=[1], leader=1)
            for n in range(60)
        ]
    )
    life.batches.append([r.NoOpRecord()])
    written = write_life(tmp_path, life, snapshot_every=1)
    assert len(state.plan_state("partitions", (str(tmp_path),), None)) > 5
    check(written, None)


def test_an_offset_that_the_files_do_not_have_is_refused_with_the_nearest(tmp_path: Path) -> None:
    written = write_life(tmp_path, Life(2).write(400), snapshot_every=30)
    end = max(written.images)
    with pytest.raises(ConfigError, match=rf"beyond the end.*given={end + 1} newest={end}"):
        rows("partitions", log_dirs=tmp_path, asOfOffset=end + 1)
    place = tmp_path / "__cluster_metadata-0"
    for segment in sorted(place.glob("*.log"))[:6]:
        segment.unlink()
    start = int(min(place.glob("*.log")).stem)
    oldest = min(s for s in written.snapshots if s >= start)
    for snapshot in written.snapshots:
        if snapshot < oldest:
            (place / snapshot_name(OffsetAndEpoch(snapshot, EPOCH))).unlink()
    check(written, oldest)
    check(written, None)
    for table in ("topics", "partitions"):
        with pytest.raises(ConfigError, match=rf"does not go back to asOfOffset.*oldest={oldest}"):
            rows(table, log_dirs=tmp_path, asOfOffset=oldest - 1)
    with pytest.raises(ConfigError, match=rf"does not go back to asOfOffset.*oldest={start}"):
        rows("metadata", log_dirs=tmp_path, asOfOffset=start - 1)


def test_a_log_that_begins_after_its_newest_snapshot_is_refused(tmp_path: Path) -> None:
    written = write_life(tmp_path, Life(2).write(400), snapshot_every=30)
    place = tmp_path / "__cluster_metadata-0"
    for segment in sorted(place.glob("*.log"))[:-1]:
        segment.unlink()
    for snapshot in written.snapshots[1:]:
        (place / snapshot_name(OffsetAndEpoch(snapshot, EPOCH))).unlink()
    with pytest.raises(StorageError, match="begins after the newest snapshot"):
        rows("topics", log_dirs=tmp_path)


def test_a_snapshot_that_was_fetched_without_a_log_is_the_state(tmp_path: Path) -> None:
    written = write_life(tmp_path, Life(3).write(300), snapshot_every=30)
    for segment in (tmp_path / "__cluster_metadata-0").glob("*.log"):
        segment.unlink()
    images = {o: image for o, image in written.images.items() if o <= written.snapshots[-1]}
    check(written._replace(images=images), None)


def test_a_damaged_snapshot_is_an_error_and_an_older_offset_can_be_read(tmp_path: Path) -> None:
    written = write_life(tmp_path, Life(4).write(300), snapshot_every=30)
    newest = (
        tmp_path
        / "__cluster_metadata-0"
        / snapshot_name(OffsetAndEpoch(written.snapshots[-1], EPOCH))
    )
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 4
    newest.write_bytes(data)
    with pytest.raises(StorageError, match=rf"damaged.*{newest.name}.*position=\d+"):
        rows("partitions", log_dirs=tmp_path)
    check(written, max(o for o in written.images if o < written.snapshots[-1]))


def test_records_of_a_transaction_count_when_it_ends(tmp_path: Path) -> None:
    one, two = b"1" * 16, b"2" * 16
    life = Life(1)
    life.batches += [
        [r.BeginTransactionRecord(name="a")],
        [r.TopicRecord(name="kept", topic_id=one)],
        [r.EndTransactionRecord()],
        [r.BeginTransactionRecord(name="b")],
        [r.TopicRecord(name="gone", topic_id=two)],
        [r.AbortTransactionRecord(reason="x")],
        [r.BeginTransactionRecord(name="c")],
        [r.TopicRecord(name="open", topic_id=two)],
    ]
    write_life(tmp_path, life, snapshot_every=10**9)
    first = len(life.batches[0])

    def names(as_of: int) -> list[str]:
        return [row["topic"] for row in rows("topics", log_dirs=tmp_path, asOfOffset=as_of)]

    assert [names(first + n) for n in range(9)] == [[], [], [], *[["kept"]] * 6]
    spans = next(task.log for task in state.plan_state("topics", (str(tmp_path),), None))
    everything = [one.record for one in replay.applied(spans, 0, 10**6)]
    assert [m.name for m in everything if isinstance(m, r.TopicRecord)] == ["kept"]


def test_a_partition_that_the_log_creates_again_has_one_row(tmp_path: Path) -> None:
    topic_id = b"t" * 16
    life = Life(1)
    life.batches += [
        [r.TopicRecord(name="t", topic_id=topic_id)],
        [r.PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1)],
        [r.NoOpRecord()],
        [r.PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[2], isr=[2], leader=2)],
    ]
    written = write_life(tmp_path, life, snapshot_every=2)
    assert written.snapshots[-1] < max(written.images)
    (row,) = rows("partitions", log_dirs=tmp_path)
    assert (row["topic"], row["leader"]) == ("t", 2)
    check(written, None)
