"""Names that are typed wrong: every message names the nearest, or what there is, and guesses alike."""

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from firnline.cli.main import cli
from firnline.cli.terminal.names import did_you_mean, explained_usage
from firnline.config.parse import is_slip, nearest
from tests.unit.cli.fake_cluster import fake_cluster
from tests.unit.cli.tree import ALL, commands, options_of

SOURCE = Path(__file__).parents[3] / "src" / "firnline"


def test_the_error_of_click_8_1_has_the_command_in_its_text_alone() -> None:
    context = click.Context(cli, info_name="firnline")
    explained = explained_usage(click.UsageError("No such command 'topik'.", context))
    assert explained.message == "No such command 'topik'. Did you mean 'topic'?"
    other = click.UsageError("No such thing 'topik'.", context)
    assert explained_usage(other) is other


@pytest.mark.parametrize(
    ("typed", "known", "is_one"),
    [
        ("ordres", "orders", True),
        ("order", "orders", True),
        ("eventts", "events", True),
        ("eventd", "events", True),
        ("EVENTS", "events", True),
        ("orders", "orders", False),
        ("events-1", "events-2", False),
        ("events2", "events", False),
        ("events-a", "events-b", False),
        ("many.a", "many.b", False),
        ("abc", "abd", False),
        ("payments", "orders", False),
        ("odrers", "ordesr", False),
    ],
)
def test_one_slip_of_the_fingers(typed: str, known: str, is_one: bool) -> None:
    assert is_slip(typed, known) is is_slip(known, typed) is is_one


def test_the_nearest_is_the_slip_and_case_makes_no_difference() -> None:
    assert nearest("RETENTION.MS", ["segment.ms", "retention.ms"]) == "retention.ms"
    assert nearest("tets", ["tests", "test"]) == nearest("tets", ["test", "tests"])
    assert nearest("subscrib", ["subscribe"], alike=0.99) == "subscribe"
    assert nearest("kafka.foo", ["kafka.fetch"], alike=0.85) is None


def test_names_are_guessed_in_one_place() -> None:
    guessing = re.compile(r"get_close_matches|import difflib|from difflib")
    found = [path for path in SOURCE.rglob("*.py") if guessing.search(path.read_text())]
    assert found == [SOURCE / "config" / "parse.py"]


def test_what_is_said_where_nothing_is_known() -> None:
    assert did_you_mean("x", []) == "There are none."
    assert did_you_mean("x", [], none="None: `make` makes one") == "None: `make` makes one."


def said(*words: str) -> str:
    """Return the last line of a usage error, as the command itself shows it."""
    try:
        cli.main([*words], prog_name="firnline", standalone_mode=False)
    except click.ClickException as problem:
        return explained_usage(problem).format_message()
    raise AssertionError(f"{words} is no wrong usage")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tpoic",), "No such command 'tpoic'. Did you mean 'topic'?"),
        (("group", "lsit"), "No such command 'lsit'. Did you mean 'list'?"),
        (("sim", "xyz"), "No such command 'xyz'. There are: replay, run."),
        (("topic", "list", "--intrnal"), "No such option '--intrnal'. Did you mean '--internal'?"),
        (
            ("broker", "list", "-y"),
            "No such option '-y'. `firnline broker list --help` shows all.",
        ),
        (
            ("--profile", "x", "topic", "list"),
            "No such option '--profile'. Options stand behind the command:"
            " firnline COMMAND --profile.",
        ),
        (("--verison",), "No such option '--verison'. Did you mean '--version'?"),
        (("dev", "--throttle"), "No such option '--throttle'. `firnline dev --help` shows all."),
        (
            ("topic", "delete-records", "t", "--before-offset", "1"),
            "No such option '--before-offset'. Did you mean '--to-offset'?",
        ),
    ],
)
def test_commands_and_options(words: tuple[str, ...], message: str) -> None:
    assert said(*words) == message


def test_every_command_knows_its_options_by_a_slip() -> None:
    """Whatever the command is, the option with a letter less gets the option."""
    for path, command in ALL.items():
        names = [name for name in options_of(command) if len(name) > 6 and name.startswith("--")]
        for name in names:
            slip = name[:-2] + name[-1]
            if slip in names or options_of(command)[name].hidden:
                continue
            others = [each for each in names if each != name and is_slip(slip, each)]
            if not others and not any(each.startswith(slip) for each in names):
                assert name in said(*path.split(), slip), (path, slip)


@pytest.mark.slow
def test_the_process_says_it_in_the_same_words() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "firnline", "partition", "move", "t", "--brokerz", "1"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.endswith("Error: No such option '--brokerz'. Did you mean '--brokers'?\n")


def test_the_groups_of_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firnline.cli.terminal.names.groups_of", lambda _: ["billing"])
    from firnline.cli.terminal import names

    monkeypatch.setitem(names._KNOWN, "group", lambda _: ["billing"])
    monkeypatch.setattr(
        "firnline.cli.operations.group_offsets.group_state",
        lambda *_: type("State", (), {"is_there": False}),
    )
    with fake_cluster() as cluster:
        done = cluster.run("group", "reset", "biling", "--all-topics", "--to-latest")
    assert str(done.exception) == "no group 'biling'. Did you mean 'billing'?"


@pytest.mark.parametrize("command", ["consume", "produce"])
def test_a_format_that_was_to_be_json(command: str) -> None:
    done = CliRunner().invoke(cli, [command, "t", "--format", "jsn"])
    assert done.exit_code == 2
    assert "'jsn' names no field: did you mean json?" in done.output


# ---------------------------------------------------------------------- one spelling of settings


def test_every_command_that_takes_settings_takes_set() -> None:
    """--set KEY=VALUE is how settings are given, and --unset KEY how they return to their defaults."""
    takes = {
        path: options_of(command)
        for path, command in commands()
        if any(
            option.metavar == "KEY=VALUE"
            and isinstance(option, click.Option)
            and option.opts != ["--property"]  # as in Kafka's tool
            for option in command.params
        )
    }
    assert {"dev", "server", "topic create", "topic alter", "config alter", "consume"} <= set(takes)
    for path, options in takes.items():
        assert options["--set"] is options["-X"], path
    for path in ("topic alter", "config alter"):
        assert options_of(ALL[path])["--unset"] is options_of(ALL[path])["--delete"]


def test_older_spellings_work_and_are_not_shown() -> None:
    create = options_of(ALL["topic create"])
    assert create["-c"] is create["--config"] is create["--set"]
    for path in ("topic create", "topic alter", "config alter"):
        shown = CliRunner().invoke(cli, [*path.split(), "--help"]).output
        assert "-X, --set KEY=VALUE" in shown
        assert "--config" not in shown
        assert "--delete " not in shown
