"""What operators do to the directories of a node: not mounted, mixed up, put back from an old copy.

Refused with the remedy, or nothing is lost; where no node can know, what is lost is what the table says.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from firnline.testing.plugin import Broker
from tests.chaos.operators import RECORDS, copy_of, doctor, fill, numbers, produce, running
from tests.chaos.test_operator_errors import one_line, refused

ALL = list(range(RECORDS))
TOPICS = ("t0", "t1", "t2", "t3")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directories `a`, with the metadata, and `b` of one node, with topics in both."""
    base = tmp_path_factory.mktemp("filled")
    with running(node(base)) as broker:
        fill(broker, *TOPICS)
    assert in_second(base)
    assert len(in_second(base)) < len(TOPICS)
    return base


@pytest.fixture
def base(filled: Path, tmp_path: Path) -> Path:
    return copy_of(filled, tmp_path / "copy")


def directories(base: Path) -> tuple[str, ...]:
    return ("-X", f"log.dirs={base / 'a'},{base / 'b'}")


def node(base: Path) -> Broker:
    return Broker(base / "a", options=directories(base))


def in_second(base: Path) -> list[str]:
    """The topics whose logs are in the second directory."""
    return sorted(path.name[:-2] for path in (base / "b").glob("t*-0"))


def dev(base: Path) -> str:
    """The one line of a start that is refused."""
    return refused("--port", "0", "--dir", base / "a", *directories(base))


def storage_format(base: Path) -> tuple[int, str]:
    """Format what is not formatted, as an operator does by hand; (exit code, what it says)."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "log.dirs": f"{base / 'a'},{base / 'b'}",
    }
    file = base / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    known = [d / "meta.properties" for d in (base / "a", base / "b")]
    text = next(path.read_text() for path in known if path.exists())
    cluster_id = text.partition("cluster.id=")[2].splitlines()[0]
    command = [sys.executable, "-m", "firnline", "storage", "format", "-c", str(file)]
    command += ["--cluster-id", cluster_id, "--ignore-formatted"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def assert_all_there(base: Path) -> None:
    with running(node(base)) as broker:
        assert {topic: numbers(broker, topic) for topic in TOPICS} == dict.fromkeys(TOPICS, ALL)


@pytest.mark.parametrize("which", ["a", "b"])
def test_a_directory_that_is_not_mounted_is_refused(base: Path, which: str) -> None:
    """Gone, or an empty mount point: taken for a new disk, what was on it would be begun anew."""
    (base / which).rename(base / "away")
    line = dev(base)
    assert f"{base / which} is not formatted" in line
    assert "mount its disk" in line
    (base / which).mkdir()
    assert line == dev(base)
    shutil.rmtree(base / which)
    (base / "away").rename(base / which)
    assert_all_there(base)


@pytest.mark.parametrize("which", ["a", "b"])
def test_a_directory_without_its_meta_properties_is_refused(base: Path, which: str) -> None:
    away = base / which / "meta.properties"
    text = away.read_text()
    away.unlink()
    for line in (dev(base), storage_format(base)[1]):
        assert f"{base / which} holds logs" in line
        assert "no meta.properties" in line
        assert "node.id=1" in line
    away.write_text(text)
    assert_all_there(base)


def test_metadata_that_is_lost_takes_no_logs_along(base: Path) -> None:
    """A node alone in its quorum that began anew would take every log for one of a deleted topic."""
    shutil.rmtree(base / "a")
    code, line = storage_format(base)
    assert one_line(code, line) == line.strip()
    assert "belong to no topic without it" in line
    assert [path.name for path in (base / "b").glob("t*-0")]


def test_a_new_disk_for_one_that_is_lost_costs_what_only_it_had(base: Path) -> None:
    """Formatted by hand, with one replica of each topic: nobody has it, and the others are as they were."""
    lost = in_second(base)
    shutil.rmtree(base / "b")
    code, _ = storage_format(base)
    assert code == 0
    with running(node(base)) as broker:
        found = {topic: numbers(broker, topic) for topic in TOPICS}
    assert found == {topic: [] if topic in lost else ALL for topic in TOPICS}


def test_an_old_copy_under_the_only_replica_costs_what_came_after_it(base: Path) -> None:
    """No node can know: it is as if the records had never been. Those of before are there."""
    copy_of(base, base.with_name("old"))
    with running(node(base)) as broker:
        produce(broker, "t0", RECORDS, 3)
        fill(broker, "later")
    shutil.rmtree(base)
    base.with_name("old").rename(base)
    assert_all_there(base)


def test_old_metadata_beside_newer_logs_costs_no_record(base: Path) -> None:
    """An old copy of the disk with the metadata alone: topics made since are unknown, their logs stay."""
    copy_of(base / "a", base / "old")
    newer = [f"n{number}" for number in range(3)]
    with running(node(base)) as broker:
        fill(broker, *newer)
    strays = sorted(path.name for path in (base / "b").glob("n*-0"))
    assert strays
    new = (base / "a").rename(base / "new")
    (base / "old").rename(base / "a")
    broker = node(base)
    with running(broker):
        assert {topic: numbers(broker, topic) for topic in TOPICS} == dict.fromkeys(TOPICS, ALL)
    renamed = sorted(path.name for path in (base / "b").glob("n*-stray"))
    assert [name.partition(".")[0] for name in renamed] == strays
    assert all(
        f'path={base / "b" / name} reason="these records belong to no topic' in broker.log_text()
        for name in renamed
    )
    code, found = doctor("--data-dir", base / "a", "--data-dir", base / "b")
    assert code == 3
    assert [(each["kind"], Path(each["where"]).name) for each in found["findings"]] == [
        ("kept-aside", name) for name in renamed
    ]
    # The newer copy comes back, and each directory under its name: all is as it was.
    shutil.rmtree(base / "a")
    new.rename(base / "a")
    for name in renamed:
        (base / "b" / name).rename(base / "b" / name.partition(".")[0])
    with running(node(base)) as broker:
        assert {topic: numbers(broker, topic) for topic in newer} == dict.fromkeys(newer, ALL)


def test_directories_in_another_order_do_not_begin_an_empty_cluster(base: Path) -> None:
    """`log.dirs=b,a`, or each mounted where the other was: the metadata is in the first of them."""
    a, b, away = base / "a", base / "b", base / "away"

    def swap() -> None:
        a.rename(away)
        b.rename(a)
        away.rename(b)

    swap()
    line = dev(base)
    assert f"the metadata of this node is in {b}/__cluster_metadata-0, and not in {a}" in line
    assert f"set metadata.log.dir={b}" in line
    swap()
    assert_all_there(base)


@pytest.mark.parametrize("which", ["again", "link", "copy", "meta.properties"])
def test_a_directory_that_is_named_twice_or_copied_is_refused(base: Path, which: str) -> None:
    """It was told to stop another server, or to format a directory that was all right."""
    a, b, away = base / "a", base / "b", base / "away"
    also = a if which == "again" else b
    if which != "again":
        copy_of(b, away)
    if which == "link":
        shutil.rmtree(b)
        b.symlink_to(a)
    elif which == "copy":
        shutil.rmtree(b)
        copy_of(a, b)
    elif which == "meta.properties":
        shutil.copy(a / "meta.properties", b)
    line = refused("--port", "0", "--dir", a, "-X", f"log.dirs={a},{also}")
    assert f"log.dirs names one directory twice: {a} and {also}" in line
    assert "format" not in line
    if which != "again":
        b.unlink() if which == "link" else shutil.rmtree(b)
        away.rename(b)
    assert_all_there(base)


def test_a_file_where_a_directory_was_is_refused(base: Path) -> None:
    (base / "b").rename(base / "away")
    (base / "b").touch()
    line = dev(base)
    assert str(base / "b") in line
    assert "put the directory back" in line
    (base / "b").unlink()
    (base / "away").rename(base / "b")
    assert_all_there(base)
