"""The documentation says what the code says: every link, module, test and command it names is there."""

import re
from pathlib import Path

import pytest

from firnline.cli.main import COMMANDS, cli
from firnline.config.render import page

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
MODULE = re.compile(
    r"`((?:src/firnline/|tests/|bench/|docs/|examples/)?[\w/]+(?:\.py|\.svg|\.md|/\w+))`"
)
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


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "docs" / "decisions").glob("*.md"))
    assert numbers == list(range(len(numbers)))
