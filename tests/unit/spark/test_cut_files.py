"""The cut of a read with many partitions is in a file, which `asOf` takes."""

import os
from pathlib import Path

import pytest

from firnline.base.errors import ConfigError
from firnline.base.ids import Uuid
from firnline.spark.access import cut_files
from firnline.spark.access.cut_files import cut_text, show_cut, with_cut
from firnline.spark.planning.cut import Bounds, Cut, TopicCut, parse_cut


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"firnline-cuts-{os.geteuid()}"


def cut_of(partitions: int, end: int = 10) -> Cut:
    bounds = {number: Bounds(0, end + number, 0, 4) for number in range(partitions)}
    return Cut({"flights": TopicCut(Uuid(bytes(range(16))), bounds)}, read_committed=True)


def printed(capsys: pytest.CaptureFixture[str], cut: Cut) -> str:
    show_cut(cut)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("firnline: asOf=")
    return line.removeprefix("firnline: asOf=")


@pytest.mark.parametrize("partitions", [1, 100, 101, 1000])
def test_what_a_read_prints_gives_its_cut_again(
    capsys: pytest.CaptureFixture[str], folder: Path, partitions: int
) -> None:
    """However many partitions it has: a topic of 1,000 had no cut that anybody could see."""
    cut = cut_of(partitions)
    given = printed(capsys, cut)
    assert parse_cut(cut_text(given)) == cut
    assert len(given) < 10_000
    assert given.startswith(str(folder)) == (partitions > 100)
    again = with_cut({"ASOF": given, "subscribe": "/no/file"})
    assert parse_cut(again["ASOF"]) == cut
    assert again["subscribe"] == "/no/file"
    assert printed(capsys, cut) == given  # the same cut is the same file


def test_a_file_may_be_named_as_a_uri_and_may_have_been_copied(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    copy = tmp_path / "a cut.json"
    copy.write_text(Path(printed(capsys, cut_of(200))).read_text())
    for given in (str(copy), copy.as_uri(), f"file:{copy}", f" {copy}\n"):
        assert parse_cut(cut_text(given)) == cut_of(200)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"driver cannot read.*file=/nowhere/cut.json"):
        cut_text("/nowhere/cut.json")
    with pytest.raises(ConfigError, match="driver cannot read"):
        cut_text("/a\0b")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="no regular file"):
        cut_text(str(tmp_path / "pipe"))
    other = tmp_path / "other"
    other.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="driver cannot read"):
        cut_text(str(other))
    for given in ("cut.json", "{}", "[]"):
        with pytest.raises(ConfigError, match=r"neither like \{.*nor the absolute path"):
            parse_cut(cut_text(given))


def test_the_newest_files_are_kept_and_not_all(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fears a job with a read every second, which fills the disk of its driver."""
    monkeypatch.setattr(cut_files, "FILES_KEPT", 3)
    made = []
    for number in range(5):
        made.append(Path(printed(capsys, cut_of(101, end=number))))
        os.utime(made[-1], (number, number))
    assert sorted(folder.iterdir()) == sorted(made[2:])
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_somebody_else_is_not_used(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    """The name is known beforehand, and everybody may write to the temporary directory."""
    trap = tmp_path / "trap"
    trap.mkdir()
    folder.symlink_to(trap)
    given = printed(capsys, cut_of(101))
    assert parse_cut(cut_text(given)) == cut_of(101)
    assert list(trap.iterdir()) == []


def test_where_nothing_can_be_written_the_line_says_so(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    show_cut(cut_of(101))
    assert list(folder.iterdir()) == []  # else each read left a file on a full disk
    assert "101 partitions" in (line := capsys.readouterr().err)
    assert "No space left" in line
    assert "pin()" in line
    show_cut(Cut({}, read_committed=False))
    assert capsys.readouterr().err == ""
