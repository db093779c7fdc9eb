"""The documentation says what the code says: every link, module, test and command it names is there."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from firnline.cli.main import COMMANDS, cli
from firnline.config.render import page
from tests.kips import INDEX, rows_of
from tests.kips import PAGES as KIP_PAGES
from tests.mutants.rows import is_guarded

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
TEST = re.compile(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)`")
# Rows of LIMITS.md: a constant, its module where that is not base/limits.py; or a setting.
PLACED = re.compile(r"`(_?[A-Z][A-Z0-9_]+)` in `([\w/]+\.py)`")
CONSTANT = re.compile(r"`(_?[A-Z][A-Z0-9_]+)`")
SETTING = re.compile(r"`([a-z]+(?:\.[a-z]+)+)`")


def test_the_settings_page_is_what_the_declarations_say() -> None:
    stored = (ROOT / "docs" / "reference" / "config.md").read_text()
    assert stored == page(), "run `make docs`"


def each_page(function: Callable[[Path], None]) -> Callable[[Path], None]:
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
