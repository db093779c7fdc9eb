"""The rows of docs/kips: a clause of a KIP, the modules that keep it and the tests that fail without it."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "docs" / "KIPS.md"
PAGES = sorted((ROOT / "docs" / "kips").glob("*.md"))
_TEST = re.compile(r"`(?:tests/[\w/]+\.py::)?(test_\w+)`")
_TEST_FILE = re.compile(r"`(tests/[\w/]+\.py)`")
_IDS = re.compile(r"\brel-[A-Z]\d+|\b[A-Z]\d+\b")


class Row(NamedTuple):
    """One row. `number` counts the rows of its page from 1."""

    page: str
    number: int
    text: str
    tests: tuple[str, ...]
    test_files: tuple[str, ...]
    ids: tuple[str, ...]

    @property
    def name(self) -> str:
        """How reports call the row."""
        return f"{self.page} row {self.number}"


def rows_of(page: Path) -> list[Row]:
    """All rows of one page, in its order. ValueError where a line of a table is neither head nor row."""
    found: list[Row] = []
    lines = page.read_text().splitlines()
    for line, following in zip(lines, [*lines[1:], ""]):
        if not line.startswith("| ") or following.startswith("|---"):
            continue
        tests, files = tuple(_TEST.findall(line)), tuple(_TEST_FILE.findall(line))
        if not tests and not files:
            raise ValueError(f"{page.name}: a row without a test: {line}")
        ids = tuple(_IDS.findall(line))
        found.append(Row(page.stem, len(found) + 1, line, tests, files, ids))
    return found


def all_rows() -> list[Row]:
    """The rows of all pages."""
    return [row for page in PAGES for row in rows_of(page)]
