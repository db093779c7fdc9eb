"""The system tables `topics`, `partitions` and `segments` of a tier, without Spark."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="NOT RUN: pyarrow is not installed")

from firnline.base.errors import ConfigError
from firnline.base.ids import uuid_text
from firnline.cli.dump import facts_of
from firnline.spark.tables.options import is_table, parse_table_options
from firnline.spark.tables.read import plan_table, read_table
from firnline.spark.tables.tier import CatalogPlace, TierTask
from firnline.stores.directory import DirectoryStore
from firnline.stores.port import ObjectMissing
from firnline.tiered.catalog.format import CatalogCorrupt, CatalogTopic
from firnline.tiered.objects.catalog_changes import begin_catalog
from firnline.tiered.objects.layout import HeadName, heads_folder
from tests.spark.reading_tables import ms, rows
from tests.spark.written_tier import T0, WrittenPartition, batches

OLD, NEW = 1, 2


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    """Topic `t`, deleted and created again; the new one has two partitions and a history in parts."""
    store = DirectoryStore(str(tmp_path))
    old = WrittenPartition(store, "t", 0, number=OLD)
    old.segment(batches(0, 100), is_old=True)
    old.publish()
    marker = f"names/t/{T0 + 5:019d}-{uuid_text(old.topic_id)}.deleted"
    store.put(marker, (b"",), size_bytes=0)
    zero = WrittenPartition(store, "t", 0, number=NEW)
    for start in range(0, 600, 100):
        zero.segment(batches(start, start + 100, epoch=1), ((1, 0),), split_bytes=1000)
    zero.publish(((1, 0),), rows_per_part=2, refs_per_part=2, tail=1, log_start=100)
    one = WrittenPartition(store, "t", 1, number=NEW)
    one.publish(((3, 0),))
    return tmp_path


def test_topics_are_all_ids_of_a_name_also_the_deleted_one(tier: Path) -> None:
    found = rows("topics", tier_uri=str(tier))
    assert [(r["topic"], r["topic_id"], r["is_deleted"], r["partitions"]) for r in found] == [
        ("t", uuid_text(bytes([OLD]) * 16), True, 1),
        ("t", uuid_text(bytes([NEW]) * 16), False, 2),
    ]
    assert {r["registered"].timestamp() for r in found} == {T0 / 1000}


def test_partitions_say_what_dump_prints_of_their_newest_head(tier: Path) -> None:
    found = rows("partitions", tier_uri=str(tier))
    assert [(r["topic_id"], r["partition"]) for r in found] == [
        (uuid_text(bytes([number]) * 16), partition)
        for number, partition in ((OLD, 0), (NEW, 0), (NEW, 1))
    ]
    for row in found:
        folder = tier / f"catalog/{row['topic_id']}/{row['partition']}/heads"
        head = next(facts_of(max(folder.iterdir())))
        written_ms = round(row["written"].timestamp() * 1000)
        epochs = [[e["epoch"], e["start_offset"]] for e in row["leader_epochs"]]
        assert {
            "topic": row["topic"], "topicId": row["topic_id"], "partition": row["partition"],
            "leaderEpoch": row["leader_epoch"], "sequence": row["sequence"],
            "brokerId": row["broker_id"], "writtenMs": written_ms,
            "metadataPartition": row["metadata_partition"], "metadataOffset": row["metadata_offset"],
            "logStartOffset": row["log_start_offset"], "logEndOffset": row["log_end_offset"],
            "leaderEpochs": epochs,
        }.items() <= head.items()  # fmt: skip
        assert row["source"] == "tier"
        assert row["replicas"] is row["isr"] is row["leader"] is None


def as_dumped(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `segments` with the names and forms of a catalog."""
    line: dict[str, Any] = {
        "id": row["segment_id"], "base": row["base_offset"], "end": row["end_offset"],
        "bytes": row["size_bytes"], "maxTimestampMs": ms(row["max_timestamp"]),
        "epochs": [[e["epoch"], e["start_offset"]] for e in row["epochs"]],
        "stem": row["stem"], "objects": row["objects"],
    }  # fmt: skip
    if row["min_timestamp"] is not None:
        line["minTimestampMs"] = ms(row["min_timestamp"])
    if row["splits"]:
        line["splits"] = [
            [s["offset"], s["position"], ms(s["max_timestamp"])] for s in row["splits"]
        ]
    if row["may_have_gaps"] is not None:
        line |= {
            "mayHaveGaps": row["may_have_gaps"], "firstCrc32c": row["first_crc32c"],
            "headsCrc32c": row["heads_crc32c"],
            "sums": {s["object"]: [s["size_bytes"], s["crc32c"]] for s in row["sums"]},
        }  # fmt: skip
    return line


def test_segments_say_what_dump_prints_of_heads_and_parts(tier: Path) -> None:
    found = rows("segments", tier_uri=str(tier))
    dumped = {
        fact["stem"]: fact
        for path in [*tier.rglob("heads/*.jsonl"), *tier.glob("parts/**/*.jsonl")]
        for fact in facts_of(path)
        if "stem" in fact
    }
    below_start = [stem for stem, line in dumped.items() if line["end"] < 100 and "sums" in line]
    assert len(below_start) == 1
    assert {row["stem"] for row in found} == set(dumped) - set(below_start)
    for row in found:
        assert as_dumped(row) == dumped[row["stem"]]
    assert [row["is_deleted"] for row in found] == [True] + [False] * 5
    assert [row["base_offset"] for row in found] == [0, 100, 200, 300, 400, 500]


def test_columns_are_selected_in_the_order_that_was_asked_for(tier: Path) -> None:
    options = parse_table_options({"table": "segments", "tier.uri": str(tier)})
    (task,) = plan_table(options)
    (batch,) = read_table(options, task, ("end_offset", "topic"))
    assert batch.schema.names == ["end_offset", "topic"]
    assert batch.to_pylist()[0] == {"end_offset": 99, "topic": "t"}


def test_a_flipped_byte_is_an_error_that_names_the_object(tier: Path) -> None:
    part = next(iter(sorted(tier.glob("parts/**/*.jsonl"))))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    with pytest.raises(CatalogCorrupt, match=part.name):
        rows("segments", tier_uri=str(tier))


def test_a_partition_that_is_removed_during_the_read_has_no_row_and_a_line_in_the_log(
    tier: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone = uuid_text(bytes([OLD]) * 16)
    for table in ("partitions", "segments"):
        options = parse_table_options({"table": table, "tier.uri": str(tier)})
        (task,) = plan_table(options)
        topic = CatalogTopic(bytes([7]) * 16, "gone", T0, is_deleted=True)
        assert isinstance(task, TierTask)
        removed = task._replace(places=(CatalogPlace(topic, 0, HeadName(1, 1)),))
        assert list(read_table(options, removed, ("topic",))) == []
        assert "removed from the tier while it was read topic=gone" in caplog.text
        caplog.clear()
    # A part that is gone under a head that is there is no removal.
    next(iter(sorted(tier.glob("parts/**/*.jsonl")))).unlink()
    with pytest.raises(ObjectMissing):
        rows("segments", tier_uri=str(tier))
    assert any((tier / heads_folder(bytes([OLD]) * 16, 0)).iterdir()), gone


def test_an_empty_tier_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no catalog was found.*uri="):
        rows("topics", tier_uri=str(tmp_path))


def test_a_topic_without_a_catalog_has_a_row(tmp_path: Path) -> None:
    begin_catalog(
        DirectoryStore(str(tmp_path)), topic="new", topic_id=bytes(16), partition=0, now_ms=T0
    )
    assert [(r["topic"], r["partitions"]) for r in rows("topics", tier_uri=str(tmp_path))] == [
        ("new", 0)
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"table": "partition", "tier.uri": "/t"},
            "no such table: partition; did you mean partitions",
        ),
        ({"table": "xyz", "tier.uri": "/t"}, "known are records, topics"),
        ({"table": "topics"}, "table topics needs tier.uri or log.dirs"),
        ({"table": "segments"}, "table segments needs tier.uri"),
        (
            {"table": "segments", "tier.uri": "/t", "subscribe": "x"},
            "table segments does not use the option subscribe; it uses table, tier.uri",
        ),
        ({"table": "segments", "log.dirs": "/t"}, "does not use the option log.dirs"),
        ({"table": "topics", "tier.uri": "/t", "tier.urj": "x"}, "did you mean tier.uri"),
        ({"table": "topics", "log.dirs": " , "}, "log.dirs is empty"),
        ({"table": "topics", "tier.uri": "/t", "asOfOffset": "3"}, "asOfOffset needs log.dirs"),
        ({"table": "topics", "log.dirs": "/t", "asOfOffset": "-3"}, "must be an offset"),
    ],
)
def test_wrong_options_are_refused_by_name(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_table_options(given)


def test_records_are_the_default_and_files_of_nodes_win_over_the_tier() -> None:
    assert not is_table({"tier.uri": "/t"})
    assert not is_table({"TABLE": " Records "})
    assert is_table({"table": "Topics"})
    options = parse_table_options(
        {"TABLE": "topics", "tier.uri": "/t", "log.dirs": "/a, /b", "tier.store.region": "x"}
    )
    assert (options.tier_uri, options.log_dirs) == ("", ("/a", "/b"))
    assert json.dumps(dict(options.store_settings)) == '{"region": "x"}'
