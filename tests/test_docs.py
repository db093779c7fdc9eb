"""The documentation says what the code says: every link, module, test and command it names is there."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from firnline.cli.main import COMMANDS, cli
from firnline.config.render import page
from tests.mutants.table import MUTANTS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
MODULE = re.compile(
    r"`((?:src/firnline/|tests/|bench/|docs/|examples/)?[\w/]+(?:\.py|\.svg|\.md|/\w+))`"
)
# A word in backquotes that is a path from the root: it has a folder, or an ending.
PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+|[\w-]+\.(?:md|toml))`")
TARGET = re.compile(r"(?:`|^ {4})make ([a-z-]+)", re.MULTILINE)
COMMAND = re.compile(r"^ {4}(?:\w+=\w+ )?\.venv/bin/(.+)$", re.MULTILINE)
TEST = re.compile(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)`")


def test_the_settings_page_is_what_the_declarations_say() -> None:
    stored = (ROOT / "docs" / "reference" / "config.md").read_text()
    assert stored == page(), "run `make docs`"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(path: Path) -> None:
    for target in LINK.findall(path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize("name", ["KAFKA_MAP.md", "KIPS.md", "ARCHITECTURE.md"])
def test_every_module_named_is_there(name: str) -> None:
    named = MODULE.findall((ROOT / "docs" / name).read_text())
    assert len(named) > 10
    missing = [
        each
        for each in named
        if not any((root / each).exists() for root in (ROOT, ROOT / "src/firnline"))
    ]
    assert not missing


def test_every_test_named_is_there() -> None:
    tests = {path: path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    everything = "\n".join(tests.values())
    named = TEST.findall((ROOT / "docs" / "KIPS.md").read_text())
    assert len(named) > 20
    missing = [name for _, name in named if f"def {name}(" not in everything]
    assert not missing


def test_every_command_in_the_readme_is_there() -> None:
    text = (ROOT / "README.md").read_text()
    used = re.findall(r"^ {4}firnline (\w+)(?: (\w+))?", text, re.MULTILINE)
    assert len(used) > 5
    for noun, verb in used:
        assert noun in COMMANDS
        command = cli.get_command(None, noun)  # type: ignore[arg-type]
        verbs = getattr(command, "commands", None)
        assert verbs is None or verb in verbs, f"{noun} {verb}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_make_target_named_is_there(path: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(targets) > 8
    assert [name for name in TARGET.findall(path.read_text()) if name not in targets] == []


def test_every_path_that_contributors_are_told_is_there() -> None:
    named = PATH.findall((ROOT / "CONTRIBUTING.md").read_text())
    assert len(named) > 40
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_command_that_contributors_are_told_is_there() -> None:
    commands = [
        shlex.split(line) for line in COMMAND.findall((ROOT / "CONTRIBUTING.md").read_text())
    ]
    assert len(commands) > 12
    assert [problem for command in commands for problem in _lacks(*command)] == []


def _lacks(program: str, *words: str) -> list[str]:
    """What of a command is not there: its module, an option, a path, a test or a mutant."""
    paths = [word for word in words if word.startswith("tests/")]
    missing = [path for path in paths if not _has(*path.split("::"))]
    if program == "firnline":
        group = cli.get_command(None, words[0])  # type: ignore[arg-type]
        command = getattr(group, "commands", {}).get(words[1])
        known = {option for each in command.params for option in each.opts} if command else set()
        return [word for word in words if word.startswith("-") and word not in known]
    if words[:1] == ("-m",) and words[1] != "pytest":
        module = find_spec(words[1])
        source = Path(module.origin).read_text() if module and module.origin else ""
        missing += [word for word in words[2:] if word.startswith("-") and word not in source]
        missing += [] if source else [words[1]]
        if words[1] == "tests.mutants.catch":
            missing += [name for name in words[2:] if name not in {each.name for each in MUTANTS}]
    return missing


def _has(path: str, test: str = "") -> bool:
    found = ROOT / path
    return found.exists() and (not test or f"def {test}(" in found.read_text())


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "docs" / "decisions").glob("*.md"))
    assert numbers == list(range(len(numbers)))
