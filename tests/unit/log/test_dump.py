"""Any file of a log directory can be described, whole or damaged, and describing changes nothing."""

import json

import pytest

from firnline.base.errors import StorageError
from firnline.base.ids import TopicPartition
from firnline.log.directory import LogDirectory, format_directory
from firnline.log.dump import describe
from firnline.sim.disk import CrashableFs
from tests.log_world import ABORT, NOW, SeededRng, append, batch, end_txn, small

ID = bytes(range(16))


@pytest.fixture
def fs() -> CrashableFs:
    fs = CrashableFs()
    format_directory(fs, "/data", cluster_id="c", node_id=1, directory_id=ID)
    directory = LogDirectory(fs, "/data", cluster_id="c", node_id=1, unique=SeededRng().uuid)
    directory.start()
    log = directory.open(TopicPartition("t", 0), ID, small(), NOW)
    for number in range(20):
        append(log, batch("one", b"\xff\x00", pid=7, seq=number * 2, is_transactional=True))
    end_txn(log, 7, ABORT)
    directory.close(broker_epoch=12)
    return fs


def files(fs: CrashableFs) -> list[str]:
    return [
        *(f"/data/{n}" for n in fs.list_dir("/data") if n not in (".lock", "t-0")),
        *(f"/data/t-0/{name}" for name in fs.list_dir("/data/t-0")),
    ]


def content(fs: CrashableFs) -> dict[str, bytes]:
    return {path: fs.open(path).read(0, 1 << 20) for path in files(fs)}


def test_every_file_of_a_directory_is_described_and_left_alone(fs: CrashableFs) -> None:
    before = content(fs)
    assert len(before) > 12
    for path in before:
        for with_records in (False, True):
            rows = list(describe(fs, path, with_records=with_records))
            assert not any("problem" in row for row in rows), (path, rows)
            assert json.loads(json.dumps(rows)) == rows
    assert content(fs) == before


def test_rows_say_what_is_in_the_file(fs: CrashableFs) -> None:
    stem = "/data/t-0/00000000000000000000"
    (first, *_) = describe(fs, stem + ".log")
    assert (first["base_offset"], first["last_offset"], first["producer_id"]) == (0, 1, 7)
    (first, second, *_) = describe(fs, stem + ".log", with_records=True)
    assert (first["value"], second["value"], first["key"]) == ("one", "0xff00", "k")
    segments = [path for path in files(fs) if path.endswith(".log")]
    rows = [row for path in segments for row in describe(fs, path, with_records=True)]
    assert rows[-1]["control"] == "ABORT"
    (txn,) = [row for path in files(fs) if path.endswith(".txnindex") for row in describe(fs, path)]
    assert txn == {
        "producer_id": 7,
        "first_offset": 0,
        "last_offset": 40,
        "last_stable_offset": 41,
    }
    (entry,) = describe(fs, "/data/t-0/00000000000000000041.snapshot")
    assert (entry["producer_id"], entry["last_sequence"], entry["txn_first_offset"]) == (7, 39, -1)
    assert list(describe(fs, "/data/t-0/leader-epoch-checkpoint")) == [
        {"epoch": 0, "start_offset": 0}
    ]
    assert list(describe(fs, "/data/recovery-point-offset-checkpoint")) == [
        {"topic": "t", "partition": 0, "offset": 41}
    ]
    assert list(describe(fs, "/data/.kafka_cleanshutdown")) == [{"version": 0, "brokerEpoch": 12}]
    assert {"key": "cluster.id", "value": "c"} in describe(fs, "/data/meta.properties")
    index = list(describe(fs, stem + ".index"))
    times = list(describe(fs, stem + ".timeindex"))
    assert index
    assert all(row["offset"] in range(40) for row in index)
    assert times[-1]["timestamp"] == NOW


def test_damage_is_described_after_what_is_good(fs: CrashableFs) -> None:
    for path in files(fs):
        file = fs.open(path)
        file.append(b"\xff\xfe{")
        rows = list(describe(fs, path))
        if path.endswith(("partition.metadata", "meta.properties")):
            continue  # any text is a property
        assert "problem" in rows[-1], path


def test_a_file_of_another_kind_is_refused(fs: CrashableFs) -> None:
    fs.open("/data/x.txt", create=True)
    with pytest.raises(StorageError, match="not a file of a log directory"):
        describe(fs, "/data/x.txt")
    with pytest.raises(StorageError, match="no such file"):
        list(describe(fs, "/data/t-0/00000000000000000099.index"))


def test_condemned_files_are_described_by_what_they_were(fs: CrashableFs) -> None:
    fs.rename("/data/t-0/00000000000000000000.log", "/data/t-0/00000000000000000000.log.deleted")
    assert list(describe(fs, "/data/t-0/00000000000000000000.log.deleted"))
