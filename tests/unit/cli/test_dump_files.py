"""Any file of a log directory is told, whole or damaged, and telling it changes nothing."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from firnline.base.errors import ConfigError
from firnline.base.ids import OffsetAndEpoch, TopicPartition
from firnline.cli.dump import facts_of, verdicts
from firnline.cli.main import cli
from firnline.log.checkpoint import format_directory
from firnline.log.directory import LogDirectory
from firnline.metadata.meta_log import open_meta_log
from firnline.records.batch import headers
from firnline.runtime.disk import RealFs
from tests.worlds.chance import SeededRng
from tests.worlds.log import ABORT, NOW, append, batch, end_txn, small
from tests.worlds.meta_log import DELETE_DELAY_MS, commit, extend, freeze, retire
from tests.worlds.quorum import broker_config

ID = bytes(range(16))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory that was closed in order, with every kind of file."""
    fs, path = RealFs(), str(tmp_path / "data")
    format_directory(fs, path, cluster_id="c", node_id=1, directory_id=ID)
    directory = LogDirectory(fs, path, cluster_id="c", node_id=1, unique=SeededRng().uuid)
    directory.start()
    log = directory.open(TopicPartition("t", 0), ID, small(), NOW)
    for number in range(20):
        append(log, batch("one", b"\xff\x00", pid=7, seq=number * 2, is_transactional=True))
    end_txn(log, 7, ABORT)
    directory.close(broker_epoch=12)
    return tmp_path / "data"


def facts(path: Path) -> list[dict[str, Any]]:
    return [dict(fact) for fact in facts_of(path)]


def files(data: Path) -> list[Path]:
    return [path for path in sorted(data.rglob("*")) if path.is_file() and path.name != ".lock"]


def test_every_file_of_a_directory_is_reported_and_left_alone(data: Path) -> None:
    before = {path: path.read_bytes() for path in files(data)}
    assert len(before) > 12
    for path in before:
        path.chmod(0o444)
        rows = facts(path)
        assert not any("damage" in row for row in rows), (path, rows)
        assert json.loads(json.dumps(rows)) == rows
    assert {path: path.read_bytes() for path in files(data)} == before


def test_facts_say_what_is_in_the_file(data: Path) -> None:
    partition = data / "t-0"
    segments = sorted(partition.glob("*.log"))
    records = [row for path in segments for row in facts(path) if "record" in row]
    assert (records[0]["value"], records[1]["value"], records[0]["key"]) == ("one", "0xff00", "k")
    assert records[-1]["control"] == "ABORT"
    (txn,) = [row for path in partition.glob("*.txnindex") for row in facts(path)]
    assert txn == {
        "producer_id": 7,
        "first_offset": 0,
        "last_offset": 40,
        "last_stable_offset": 41,
    }
    (entry,) = facts(partition / "00000000000000000041.snapshot")
    assert (entry["producer_id"], entry["last_sequence"], entry["txn_first_offset"]) == (7, 39, -1)
    assert facts(partition / "leader-epoch-checkpoint") == [{"epoch": 0, "start_offset": 0}]
    assert facts(data / "recovery-point-offset-checkpoint") == [
        {"topic": "t", "partition": 0, "offset": 41}
    ]
    assert facts(data / ".kafka_cleanshutdown") == [{"version": 0, "brokerEpoch": 12}]
    (meta,) = facts(data / "meta.properties")
    assert meta["cluster.id"] == "c"
    (owner,) = facts(partition / "partition.metadata")
    assert owner == {"version": "0", "topic_id": "AAECAwQFBgcICQoLDA0ODw"}
    index = facts(segments[0].with_suffix(".index"))
    assert index
    assert all(row["offset"] in range(40) for row in index)
    assert facts(segments[0].with_suffix(".timeindex"))[-1]["timestamp_ms"] == NOW


def test_damage_is_reported_after_what_is_good(data: Path) -> None:
    for path in files(data):
        with path.open("ab") as file:
            file.write(b"\xff\xfe{")
        if path.name not in ("partition.metadata", "meta.properties"):  # any text is a property
            assert "damage" in facts(path)[-1], path


def test_an_index_that_is_in_use_by_kafka_is_not_cut_by_looking_at_it(data: Path) -> None:
    """Kafka makes an index in full length; its tail of zeros is there until the segment is closed."""
    path = data / "t-0" / "00000000000000000000.timeindex"
    rows = facts(path)
    path.write_bytes(path.read_bytes() + bytes(1200))
    size = path.stat().st_size
    assert facts(path) == rows
    assert path.stat().st_size == size


@pytest.mark.parametrize("suffix", [".deleted", ".swap", ".cleaned"])
def test_condemned_files_are_reported_by_what_they_were(data: Path, suffix: str) -> None:
    for name in ("00000000000000000000.log", "00000000000000000000.timeindex"):
        path = data / "t-0" / name
        rows = facts(path)
        assert rows
        assert facts(path.rename(path.with_name(name + suffix))) == rows


def checked(path: Path) -> tuple[int, list[dict[str, Any]]]:
    result = CliRunner().invoke(cli, ["dump", str(path), "--format", "json"])
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def test_a_directory_gets_a_verdict(data: Path) -> None:
    before = {path: path.read_bytes() for path in files(data)}
    code, rows = checked(data)
    assert code == 0
    assert rows[-1] == {"directory": str(data), "verdict": "whole"}
    reported = {row["file"]: row["verdict"] for row in rows[:-1]}
    assert {data / name for name in reported} >= set(before)
    assert set(reported.values()) <= {"whole", "not in use", "not looked at"}
    assert {path: path.read_bytes() for path in files(data)} == before
    victim = data / "t-0" / "00000000000000000000.log"
    victim.write_bytes(victim.read_bytes()[:-3])
    code, rows = checked(data)
    assert code == 3
    (wrong,) = [row for row in rows[:-1] if row["verdict"] == "not whole"]
    assert wrong["file"] == "t-0/00000000000000000000.log"
    assert "bytes after the last complete batch" in wrong["damage"]
    assert rows[-1]["verdict"] == "not whole"


def test_what_a_running_broker_removes_meanwhile_is_passed_over(data: Path) -> None:
    found = verdicts(data)
    first = next(found)
    shutil.rmtree(data / "t-0")
    rest = list(found)
    assert "t-0" not in first["file"]
    assert not [fact for fact in rest if fact.get("file", "").startswith("t-0")]
    assert rest[-1] == {"directory": str(data), "verdict": "whole"}


def metadata_directory(tmp_path: Path) -> Path:
    """A metadata log that begins at offset 8, where its only snapshot ends."""
    fs = RealFs()
    config = broker_config(internal_metadata_log_segment_bytes="400", log_dirs=str(tmp_path))
    log = open_meta_log(fs, config, now_ms=NOW)
    extend(log, *[1] * 10)
    commit(log)
    freeze(log, OffsetAndEpoch(8, 1))
    retire(log, 8).pass_time(DELETE_DELAY_MS)
    log.close()
    return tmp_path / "__cluster_metadata-0"


def test_a_metadata_directory_is_checked_as_the_node_checks_it(tmp_path: Path) -> None:
    directory = metadata_directory(tmp_path)
    assert checked(directory)[0] == 0
    (snapshot,) = directory.glob("*.checkpoint")
    content = snapshot.read_bytes()
    snapshot.chmod(0o644)
    first = next(headers(content))
    snapshot.write_bytes(content[first.size_bytes :])
    code, rows = checked(directory)
    assert code == 3
    wrong = [row for row in rows if row["verdict"] == "not whole"]
    assert wrong[0]["file"] == snapshot.name
    assert "neither an older one nor the log" in wrong[1]["damage"]
    snapshot.unlink()
    code, rows = checked(tmp_path)
    assert code == 3
    assert "starts after 0 and no snapshot holds what was before" in rows[-2]["damage"]


def test_what_is_not_in_use_is_no_damage(tmp_path: Path) -> None:
    directory = metadata_directory(tmp_path)
    for name in ("x.part", "x.damaged", "x.deleted", "x.forgotten"):
        (directory / f"00000000000000000004-0000000001.checkpoint{name[1:]}").write_bytes(b"?")
    code, rows = checked(directory)
    assert code == 0
    assert [row["verdict"] for row in rows].count("not in use") == 4


def test_facts_are_of_a_file(data: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory"):
        facts(data / "t-0")
