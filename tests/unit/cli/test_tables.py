"""Tables: which columns a terminal gets, and that a pipe gets all of them."""

import os
import pty
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from firnline.base.errors import FirnlineError
from firnline.base.ids import TopicPartition
from firnline.cli.operations.log_dirs import print_table
from firnline.cli.show import paragraph, rows
from firnline.cli.terminal.exits import show_failure
from firnline.cli.terminal.table import folded, that_fit, width_of
from firnline.client.operations.brokers import Directory, ReplicaSize
from tests.unit.cli.tree import ALL, options_of

ROW = {
    "topic": "orders",
    "partition": 0,
    "leader_epoch": 1234567,
    "state": "ok",
    "remark": "a word " * 20,
}


def be_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))


def printed(capsys: pytest.CaptureFixture[str]) -> tuple[list[str], str]:
    said = capsys.readouterr()
    return said.out.splitlines(), said.err


def test_a_terminal_gets_the_columns_that_fit_and_the_names_of_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    be_a_terminal(monkeypatch, 80)
    rows([ROW], "table", empty="")
    lines, said = printed(capsys)
    assert lines[-1].split() == ["orders", "0", "1234567", "ok"]
    assert said == "1 more column with --wide: remark\n"
    be_a_terminal(monkeypatch, 30)
    rows([ROW], "table", empty="", less_important=["leader_epoch"])
    lines, said = printed(capsys)
    assert lines[-1].split() == ["orders", "0", "ok"]
    assert said == "2 more columns with --wide: leader epoch, remark\n"


def test_a_sentence_stands_below_its_row_and_within_the_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    be_a_terminal(monkeypatch, 80)
    rows([ROW], "table", empty="", sentences=["remark"])
    lines, said = printed(capsys)
    assert " ".join(" ".join(lines).split()).endswith(
        f"orders 0 1234567 ok {ROW['remark']}".strip()
    )
    assert max(map(len, lines)) <= 80
    assert not said
    path = "/" + "long-name/" * 20
    rows([{"where": "x", "what": f"see {path}"}], "table", empty="", sentences=["what"])
    assert f"    {path}" in printed(capsys)[0], "what people copy is not broken"


def test_a_pipe_gets_everything_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows([ROW], "table", empty="", less_important=["leader_epoch"], sentences=["remark"])
    (head, line), said = printed(capsys)
    assert head.split() == ["topic", "partition", "leader", "epoch", "state", "remark"]
    assert line.split() == ["orders", "0", "1234567", "ok", *["a", "word"] * 20]
    assert "\x1b" not in head + line
    assert not said


def test_the_columns_that_say_what_a_row_is_about_are_never_left_out() -> None:
    row = {"topic": "t" * 200, "partition": "0", "state": "ok"}
    assert that_fit([row], list(row), (), 80) == ["topic", "partition"]
    assert that_fit([row], list(row), (), 300) == list(row)


def test_wide_characters_take_two_columns() -> None:
    assert [width_of(text) for text in ("abc", "日本", "e\u0301")] == [3, 4, 1]


def test_lines_of_wide_characters_stay_within_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the number of characters the lines were twice as long."""
    be_a_terminal(monkeypatch, 40)
    words = "消費者 グループ の 遅れ は 三分 です " * 6
    rows([{"group": "x", "remark": words}], "table", empty="", sentences=["remark"])
    paragraph(words)
    lines, _ = printed(capsys)
    assert max(map(width_of, lines)) in range(33, 41), "full, and not too long"
    assert "".join(lines).count("遅れ") == 12
    assert all(line.startswith("    ") and not line.startswith("     ") for line in lines[2:8])


def test_a_text_is_folded_between_words_alone() -> None:
    assert [*folded("a b  c", 80)] == ["a b  c"]
    assert [*folded("aa bb cc", 5)] == ["aa bb", "cc"]
    assert [*folded("aa long-word bb", 5, indent="  ")] == ["  aa", "  long-word", "  bb"]
    assert [*folded("  aa bb", 5)] == ["  aa", "bb"]
    assert [*folded("", 5)] == []
    assert [*folded("see `a b` or c", 8)] == ["see", "`a b` or", "c"], "a command stays whole"


def test_an_essential_column_is_never_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the values of settings: a table of keys alone tells nobody anything."""
    short = {"of": "broker 1", "key": "listeners", "value": "a b", "set_by": "server.properties"}
    be_a_terminal(monkeypatch, 80)
    rows([short], "table", empty="", essential=["value"])
    assert printed(capsys)[0][-1].split() == [
        "broker",
        "1",
        "listeners",
        "a",
        "b",
        "server.properties",
    ]
    rows([short | {"value": "PLAINTEXT://:9092," * 6}], "table", empty="", essential=["value"])
    lines, said = printed(capsys)
    assert lines[-2].split() == ["broker", "1", "listeners", "server.properties"]
    assert lines[-1] == "    " + "PLAINTEXT://:9092," * 6
    assert not said


def test_an_error_breaks_between_words_in_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = FirnlineError("no topic 'tpoic'. There are: a-topic-with-a-long-name, orders.")
    show_failure(problem)
    assert printed(capsys)[1] == f"firnline: {problem}\n"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "50")
    show_failure(problem)
    said = printed(capsys)[1].splitlines()
    assert said == ["firnline: no topic 'tpoic'. There are:", "a-topic-with-a-long-name, orders."]


def test_log_dirs_leaves_nothing_out_at_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fears a path that takes the place of what is left of the disk."""
    path = "/var/lib/firnline/data-of-the-first-disk/and-of-this-node"
    place = TopicPartition("orders-of-the-shop", 3)
    replica = ReplicaSize(place, 123_456_789, 12_345, is_future=False)
    found = Directory(
        broker=1,
        path=path,
        problem=None,
        is_offline=False,
        total_bytes=999_999_999_000,
        usable_bytes=123_456_789_000,
        is_cordoned=False,
        replicas=[replica],
    )
    be_a_terminal(monkeypatch, 80)
    for by in ("directory", "topic", "partition"):
        print_table([found], by)
        lines, said = printed(capsys)
        assert not said, by
        assert lines[-1].strip() == path
        assert "123.5 MB" in lines[-2]
        assert max(map(len, lines)) <= 80
    print_table([found._replace(path="/data")], "directory")
    assert "/data" in printed(capsys)[0][-1]


def test_a_paragraph_breaks_between_words_in_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "no word of this-or-that is cut in two, nor any other " * 3
    paragraph(text)
    assert printed(capsys)[0] == [text]
    be_a_terminal(monkeypatch, 40)
    paragraph(text)
    lines, _ = printed(capsys)
    assert max(map(len, lines)) <= 40
    assert " ".join(lines) == text.strip()
    assert not any(line.endswith("-") for line in lines)


def in_a_terminal(*words: str, columns: int = 80) -> list[str]:
    """Run a command in a pseudo-terminal; return its lines."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns)}
    done = subprocess.Popen(
        [sys.executable, "-m", "firnline", *words], stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    data = b""
    try:
        while piece := os.read(ours, 4096):
            data += piece
    except OSError:  # a terminal that nobody writes to any more
        pass
    done.wait(30)
    os.close(ours)
    return data.decode().replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()


@pytest.mark.slow
def test_a_real_terminal_is_recognized(tmp_path: object) -> None:
    words = ("tier", "check", str(tmp_path))
    lines = in_a_terminal(*words)
    assert max(map(len, lines)) <= 80
    assert "remark" not in lines[0]
    assert "remark" in in_a_terminal(*words, "--wide")[0]


def test_every_table_can_be_wide() -> None:
    shown = {path: options_of(each) for path, each in ALL.items()}
    tables = [path for path, options in shown.items() if "table" in _choices(options)]
    assert len(tables) > 12
    assert [path for path in tables if "--wide" not in shown[path]] == []


def _choices(options: Mapping[str, object]) -> Sequence[str]:
    return list(getattr(getattr(options.get("--format"), "type", None), "choices", ()))
