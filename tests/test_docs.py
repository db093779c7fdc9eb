"""The documentation says what the code says: every link, module, test and command it names is there."""

import re
import shlex
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from firnline.cli.main import COMMANDS, cli
from firnline.cli.terminal import reference
from firnline.config.render import page
from tests import pages
from tests.kips import INDEX, rows_of
from tests.kips import PAGES as KIP_PAGES
from tests.mutants.rows import is_guarded
from tests.mutants.table import MUTANTS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
# A file, or a folder of the tree: what is in a node's directories (`data/`) is no path of ours.
FILE = re.compile(r"`((?:[\w.*-]+/)*[\w.*-]+\.(?:py|pyi|c|h|svg|md|jsonl|toml|txt|sh))(?:::\w+)?`")
FOLDER = re.compile(r"`((?:src|tests|bench|docs|examples|tools)/[\w*/-]+)`")
MODULE = re.compile(
    r"`((?:"
    + "|".join(sorted(path.name for path in (ROOT / "src" / "firnline").iterdir() if path.is_dir()))
    + r")(?:/\w+)+/?)`"
)
# A word in backquotes that is a path from the root: it has a folder, or an ending.
PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+|[\w-]+\.(?:md|toml))`")
TARGET = re.compile(r"(?:`|^ {4})make ([a-z-]+)", re.MULTILINE)
COMMAND = re.compile(r"^ {4}(?:\w+=\w+ )?\.venv/bin/(.+)$", re.MULTILINE)
TEST = re.compile(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)`")
# Rows of LIMITS.md: a constant, its module where that is not base/limits.py; or a setting.
PLACED = re.compile(r"`(_?[A-Z][A-Z0-9_]+)` in `([\w/]+\.py)`")
CONSTANT = re.compile(r"`(_?[A-Z][A-Z0-9_]+)`")
SETTING = re.compile(r"`([a-z]+(?:\.[a-z]+)+)`")


def test_the_settings_page_is_what_the_declarations_say() -> None:
    stored = (ROOT / "docs" / "reference" / "config.md").read_text()
    assert stored == page(), "run `make docs`"


def test_the_page_of_commands_is_what_the_commands_say() -> None:
    stored = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert stored == reference.page(), "run `make docs`"


def each_page(function: Callable[..., None]) -> Callable[..., None]:
    """Run a test on each page; its id is the page's path."""
    return pytest.mark.parametrize(
        "path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix()
    )(function)


@each_page
def test_every_link_leads_somewhere(path: Path) -> None:
    for target, anchor in LINK.findall(path.read_text()):
        if "://" in target:
            continue
        page = path.parent / target if target else path
        assert page.exists(), target
        if anchor and page.suffix == ".md":
            assert anchor in _anchors(page), f"{target}#{anchor}"


def _anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links to them."""
    headings = HEADING.findall(page.read_text())
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


@each_page
def test_every_path_named_is_there(path: Path) -> None:
    text = path.read_text()
    named = [*FILE.findall(text), *FOLDER.findall(text), *MODULE.findall(text)]
    roots = (ROOT, ROOT / "src", ROOT / "src" / "firnline", path.parent)
    missing = [each for each in named if not any(any(root.glob(each)) for root in roots)]
    assert not missing


@pytest.fixture(scope="module")
def tests() -> dict[str, str]:
    """The source of every file of tests, by its path from the root."""
    files = sorted((ROOT / "tests").rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in files}


@each_page
def test_every_test_named_is_there(path: Path, tests: dict[str, str]) -> None:
    everything = "\n".join(tests.values())
    for file, name in TEST.findall(path.read_text()):
        assert f"def {name}(" in (tests[file] if file else everything), name


def test_the_index_of_kips_counts_the_rows_of_each_page() -> None:
    index = INDEX.read_text()
    counted = re.findall(
        r"\| (\d+) \| (\d+) \| \[[\w-]+\]\(kips/([\w-]+)\.md\) \|$", index, re.MULTILINE
    )
    assert sorted(name for _, _, name in counted) == [path.stem for path in KIP_PAGES]
    for rows, guarded, name in counted:
        there = rows_of(INDEX.parent / "kips" / f"{name}.md")
        held = [row for row in there if is_guarded(row)]
        assert (int(rows), int(guarded)) == (len(there), len(held)), name


def test_every_row_of_the_limits_names_what_bounds_it() -> None:
    """Goal: no row outlives its bound. Method: look up each constant and each setting."""
    settings = set(SETTING.findall((ROOT / "docs" / "reference" / "config.md").read_text()))
    rows = [
        line.split(" | ")[1]
        for line in (ROOT / "docs" / "LIMITS.md").read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| bound |")
    ]
    assert len(rows) > 40
    for bound in rows:
        elsewhere = dict(PLACED.findall(bound))
        for name in CONSTANT.findall(bound):
            module = elsewhere.get(name, "base/limits.py")
            source = (ROOT / "src" / "firnline" / module).read_text()
            assert re.search(rf"^{name}\b.* = ", source, re.MULTILINE), f"{module}: {name}"
        for name in SETTING.findall(bound):
            assert name in settings, name
        assert any(kind.search(bound) for kind in (CONSTANT, SETTING, FILE)) or "ulimit" in bound


def test_every_command_in_the_readme_is_there() -> None:
    text = (ROOT / "README.md").read_text()
    used = re.findall(r"^ {4}firnline (\w+)(?: (\w+))?", text, re.MULTILINE)
    assert len(used) > 5
    for noun, verb in used:
        assert noun in COMMANDS
        command = cli.get_command(None, noun)  # type: ignore[arg-type]
        verbs = getattr(command, "commands", None)
        assert verbs is None or verb in verbs, f"{noun} {verb}"


# Pages with commands; docs/reference/cli.md is printed from them.
TYPED = [*PAGES, *ROOT.glob("examples/*/README.md"), ROOT / "deploy" / "README.md"]
TYPED.remove(ROOT / "docs" / "reference" / "cli.md")
# What a reader puts in place of the words in capitals that are no text.
PLACEHOLDERS = {r"\bN\b": "1", r"\bDIRECTORY\b|\bFILE\.\.\.": "."}
FEWEST = {"OPERATIONS.md": 80, "CLIENT.md": 6, "SPARK.md": 5, "MIGRATION.md": 3}


@pytest.mark.parametrize("path", TYPED, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_command_line_takes_every_command_of_a_page(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those in blocks as they stand there; the text may name one without all that it needs."""
    monkeypatch.chdir(tmp_path)
    Path("server.properties").touch()
    text = path.read_text()
    for placeholder, value in PLACEHOLDERS.items():
        text = re.sub(placeholder, value, text)
    found = [(words, pages.fault(words)) for words in pages.ours(pages.shell_of(text))]
    for span in pages.in_code(text):
        found += [(words, pages.fault(words, may_lack=True)) for words in pages.ours(span)]
    assert [each for each in found if each[1]] == []
    assert len(found) >= FEWEST.get(path.name, 0), "the walk lost commands"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_make_target_named_is_there(path: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(targets) > 8
    assert [name for name in TARGET.findall(path.read_text()) if name not in targets] == []


def test_every_path_in_the_contributors_guide_is_there() -> None:
    named = PATH.findall((ROOT / "CONTRIBUTING.md").read_text())
    assert len(named) > 40
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_command_in_the_contributors_guide_is_there() -> None:
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


def test_the_stairs_are_those_that_imports_keep() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [set(layer.split(" | ")) for layer in contracts["contracts"][0]["layers"]]
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    steps = re.findall(r"^\| \d[^|]* \| (`[^|]+) \|", text, re.MULTILINE)
    assert [set(re.findall(r"`(\w+)`", step)) for step in steps] == layers[1:], "but for __main__"


def test_the_page_of_dependencies_names_those_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    page_of_them = ROOT / "docs" / "decisions" / "0003-dependencies.md"
    rows = re.findall(r"^\| (`[^|]+) \|", page_of_them.read_text(), re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([\w-]+)`", row)]
    assert sorted(named) == sorted(each.partition(">")[0] for each in declared)


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "docs" / "decisions").glob("*.md"))
    assert numbers == list(range(len(numbers)))
