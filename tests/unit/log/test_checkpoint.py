"""Checkpoints: Kafka's bytes, replaced durably, and a damaged one is never a crash loop."""

from pathlib import Path

import pytest

from firnline.base.errors import StorageError
from firnline.base.ids import TopicPartition, uuid_from_text
from firnline.log import checkpoint
from firnline.runtime.disk import RealFs

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ID = uuid_from_text("AcLmMGEbThaJjG9xQcV9gA")


def test_offsets_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    path = f"{tmp_path}/{checkpoint.RECOVERY_POINTS}"
    checkpoint.write_offsets(RealFs(), path, {B0: 7, A1: 0, A0: 2**40})
    assert Path(path).read_text() == f"0\n3\na 0 {2**40}\na 1 0\nb 0 7\n"
    assert checkpoint.read_offsets(RealFs(), path) == {A0: 2**40, A1: 0, B0: 7}
    assert not Path(path + ".tmp").exists()


@pytest.mark.parametrize(
    "data",
    [
        "",
        "garbage",
        "0\n",
        "1\n1\na 0 5\n",
        "0\n2\na 0 5\n",
        "0\n1\na 0\n",
        "0\n1\na x 5\n",
        "\x00" * 40,
    ],
)
def test_a_damaged_checkpoint_counts_as_empty(tmp_path: Path, data: str) -> None:
    """Reliability d 93: the safe default, never a crash loop."""
    path = tmp_path / "c"
    path.write_text(data)
    assert checkpoint.read_offsets(RealFs(), str(path)) == {}
    assert checkpoint.read_offsets(RealFs(), str(tmp_path / "none")) == {}


def test_half_of_a_topic_id_that_a_power_cut_left_is_written_over(tmp_path: Path) -> None:
    (tmp_path / checkpoint.PARTITION_METADATA).write_text("vers")
    checkpoint.place_partition_metadata(RealFs(), str(tmp_path), ID).close()
    assert checkpoint.read_partition_metadata(RealFs(), str(tmp_path)) == ID


def test_a_negative_offset_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_text("0\n2\na 0 -5\nb 0 3\n")
    assert checkpoint.read_offsets(RealFs(), str(path)) == {B0: 3}


def test_bytes_that_are_not_text_count_as_empty(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_bytes(b"\xff\xfe\x00")
    assert checkpoint.read_offsets(RealFs(), str(path)) == {}


def test_partition_metadata_has_kafkas_bytes(tmp_path: Path) -> None:
    fs = RealFs()
    assert checkpoint.read_partition_metadata(fs, str(tmp_path)) is None
    checkpoint.write_partition_metadata(fs, str(tmp_path), ID)
    text = (tmp_path / "partition.metadata").read_text()
    assert text == "version: 0\ntopic_id: AcLmMGEbThaJjG9xQcV9gA"
    assert checkpoint.read_partition_metadata(fs, str(tmp_path)) == ID


@pytest.mark.parametrize(
    "text", ["", "version: 1\ntopic_id: AcLmMGEbThaJjG9xQcV9gA", "version: 0\ntopic_id: x"]
)
def test_a_damaged_topic_id_is_an_error_not_a_guess(tmp_path: Path, text: str) -> None:
    (tmp_path / "partition.metadata").write_text(text)
    with pytest.raises(StorageError, match="damaged"):
        checkpoint.read_partition_metadata(RealFs(), str(tmp_path))


def test_a_replacement_shorter_than_a_left_over_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "c.tmp").write_text("left over by a crash, and long")
    checkpoint.write_durably(RealFs(), f"{tmp_path}/c", b"short")
    assert (tmp_path / "c").read_bytes() == b"short"
