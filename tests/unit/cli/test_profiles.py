"""Profiles: what they set, what overrides them, and what a bad file is told."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from firnline.base.errors import ConfigError
from firnline.cli.main import cli
from firnline.cli.terminal import profiles

GOOD = """# my clusters
use = "test"

[test]  # the small one
bootstrap = "one:9092,two:9092"
timeout = 5

[production]
bootstrap = "big:9092"
controllers = "big:9093"
format = "json"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the profiles are, without the user's own settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv(profiles.PROFILE_VARIABLE, raising=False)
    for setting in profiles.SETTINGS.values():
        monkeypatch.delenv(setting.variable, raising=False)
    path = tmp_path / "firnline" / "profiles.toml"
    path.parent.mkdir()
    return path


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["profile", *words])


def shown(*words: str) -> dict[str, tuple[str, str]]:
    """Return what `profile show` says of each setting: its value, and where it comes from."""
    lines = run("show", "--format", "table", *words).stdout.splitlines()[1:]
    parts = [line.split(maxsplit=2) for line in lines]
    return {part[0]: (part[1], part[2]) for part in parts if len(part) == 3}


def test_an_option_overrides_a_variable_a_profile_and_the_default(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown()["bootstrap"] == ("127.0.0.1:9092", "default")
    file.write_text(GOOD)
    assert shown()["bootstrap"] == ("one:9092,two:9092", f"profile test in {file}")
    assert shown()["timeout"][0] == "5"
    monkeypatch.setenv("FIRNLINE_BOOTSTRAP", "variable:1")
    assert shown()["bootstrap"] == ("variable:1", "environment variable FIRNLINE_BOOTSTRAP")
    result = CliRunner().invoke(cli, ["topic", "list", "-b", "127.0.0.1:1"])
    assert "127.0.0.1:1:" in str(result.exception)


def test_a_profile_is_chosen_by_option_then_variable_then_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(GOOD + '[third]\nbootstrap = "third:1"\n')
    assert shown()["bootstrap"][0] == "one:9092,two:9092"
    monkeypatch.setenv("FIRNLINE_PROFILE", "production")
    assert shown()["bootstrap"][0] == "big:9092"
    assert shown("--profile", "third")["bootstrap"][0] == "third:1"
    assert run("show").stdout.startswith("["), "the profile says JSON"


def test_every_setting_of_a_profile_reaches_the_commands(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('use = "x"\n[x]\nbootstrap = "127.0.0.1:1"\ntimeout = 0.2\nformat = "json"\n')
    result = CliRunner().invoke(cli, ["topic", "list"])
    assert "127.0.0.1:1:" in str(result.exception)
    file.write_text('use = "x"\n[x]\ncontrollers = "127.0.0.1:2"\n')
    result = CliRunner().invoke(cli, ["quorum", "status"])
    assert "127.0.0.1:2:" in str(result.exception)
    result = CliRunner().invoke(cli, ["quorum", "status", "-b", "127.0.0.1:3"])
    assert "127.0.0.1:3:" in str(result.exception), "an option is nearer than a profile"
    monkeypatch.setenv("FIRNLINE_BOOTSTRAP", "127.0.0.1:4")
    result = CliRunner().invoke(cli, ["quorum", "status"])
    assert "127.0.0.1:4:" in str(result.exception), "and so is a variable"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a]\nbootstrap = \n", "line 2: Invalid value: mend the line"),
        ("[a]\nbootstrap = 5\n", "line 2: [a] bootstrap = 5: expected host:port"),
        ("[a]\n\nbotstrap = 'x:1'\n", "line 3: [a] botstrap is not a setting. Did you mean 'bootstrap'?"),
        ("[a]\ntimeout = 1\n[b]\ntimeout = -1\n", "line 4: [b] timeout = -1: expected seconds"),
        ("[a]\nformat = 'xml'\n", "line 2: [a] format = 'xml': expected table or json"),
        ("[a]\ntimeout = true\n", "line 2: [a] timeout = True: expected seconds"),
        ("bootstrap = 'x:1'\n", "line 1: bootstrap belongs to no profile: write it below a line"),
        ("use = 5\n", "line 1: use must be the name of a profile"),
        ("use = 'tset'\n[test]\n", "no profile 'tset' in"),
        ("[a\n", "line 1: "),
    ],
)  # fmt: skip
def test_a_mistake_in_the_file_is_named_with_its_line(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    problem = CliRunner().invoke(cli, ["topic", "list"]).exception
    assert isinstance(problem, ConfigError)
    assert said in str(problem)
    assert str(file) in str(problem)
    assert CliRunner().invoke(cli, ["topic", "list", "--help"]).exit_code == 0


def test_a_file_that_cannot_be_read_is_named(file: Path) -> None:
    file.write_bytes(b"\xff")
    assert str(run("list").exception) == f"cannot read {file}: it is not UTF-8"
    file.unlink()
    file.mkdir()
    assert str(run("list").exception) == f"cannot read {file}: Is a directory"


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("TIMEOUT", "soon"),
        ("TIMEOUT", "0"),
        ("TIMEOUT", "inf"),
        ("FORMAT", "xml"),
        ("BOOTSTRAP", "x"),
    ],
)
def test_a_variable_that_cannot_be_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    monkeypatch.setenv(f"FIRNLINE_{variable}", text)
    problem = CliRunner().invoke(cli, ["topic", "list"]).exception
    assert f"environment variable FIRNLINE_{variable}={text}: expected" in str(problem)


def test_a_profile_that_is_missing_gets_the_nearest(file: Path) -> None:
    file.write_text(GOOD)
    assert "Did you mean 'production'?" in str(run("use", "prodution").exception)
    result = CliRunner().invoke(cli, ["topic", "list", "--profile", "tset"])
    assert str(result.exception) == f"--profile: no profile 'tset' in {file}. Did you mean 'test'?"


def test_set_and_use_change_a_line_and_leave_the_others(file: Path) -> None:
    assert run("set", "test", "bootstrap=one:1", "timeout=2.5").exit_code == 0
    assert run("use", "test").exit_code == 0
    assert profiles.parse(file.read_text())[:2] == (
        {"test": {"bootstrap": "one:1", "timeout": 2.5}},
        "test",
    )
    file.write_text(GOOD)
    assert run("set", "test", "bootstrap=three:1", "format=json").exit_code == 0
    assert run("use", "production").exit_code == 0
    text = file.read_text()
    assert "# my clusters" in text
    assert "[test]  # the small one" in text
    found = profiles.parse(text)
    assert found.in_use == "production"
    assert found.profiles["test"] == {"bootstrap": "three:1", "timeout": 5, "format": "json"}
    assert found.profiles["production"] == profiles.parse(GOOD).profiles["production"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("a b", "timeout=1"), "cannot be the name of a profile"),
        (("use", "timeout=1"), "cannot be the name of a profile"),
        (("a", "timout=1"), "timout is not a setting. Did you mean 'timeout'?"),
        (("a", "timeout=x"), "timeout=x: expected seconds"),
        (("a", 'bootstrap=x"y'), "expected host:port"),
    ],
)
def test_what_cannot_be_set_changes_nothing(file: Path, words: tuple[str, ...], said: str) -> None:
    file.write_text(GOOD)
    assert said in str(run("set", *words).exception)
    assert file.read_text() == GOOD


def test_list_marks_the_one_in_use(file: Path) -> None:
    file.write_text(GOOD)
    lines = [line.split() for line in run("list").stdout.splitlines()]
    assert [line[:3] for line in lines[1:]] == [
        ["production", "no", "big:9092"],
        ["test", "yes", "one:9092,two:9092"],
    ]
