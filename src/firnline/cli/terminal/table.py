"""Aligned tables, and which columns fit into a terminal. WORLD.

No cell is ever cut or folded: if even the columns that matter do not fit, the terminal breaks the line.
"""

import re
import shutil
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TextIO

import click

Row = Mapping[str, str]
_BETWEEN = 2
_INDENT = " " * 4
# These say what a row is about: they are the last to be left out.
_FIRST = 2
# A word, with the blanks before it. What is in backticks is one: people copy it.
_PARTS = re.compile(r"\s*(?:[^\s`]*`[^`]*`\S*|\S+)")


def that_fit(
    rows: Sequence[Row], names: Sequence[str], less_important: Sequence[str], width: int
) -> list[str]:
    """Return the columns that fit into `width`, in their order.

    Leaves out the less important ones first, then from the last column on, but never the first two.
    """
    shown = list(names)
    first_to_go = [name for name in less_important if name in shown]
    rest = [name for name in reversed(shown[_FIRST:]) if name not in first_to_go]
    widths = {name: _column_width(rows, name) for name in names}
    for name in (*first_to_go, *rest):
        if sum(widths[each] + _BETWEEN for each in shown) - _BETWEEN <= width:
            break
        shown.remove(name)
    return shown


def lines_of(
    rows: Sequence[Row],
    names: Sequence[str],
    numbers: Collection[str],
    below: Sequence[str],
    width: int,
    *,
    is_stacked: bool,
) -> Iterator[str]:
    """Iterate over the lines of a table: its head, then its rows.

    numbers     the columns that are right-aligned
    below       what stands in lines of at most `width` below each row, and is no column
    is_stacked  the words of a column's name are on lines of their own; else on one line
    """
    heads = {name: name.split("_") if is_stacked else [name.replace("_", " ")] for name in names}
    height = max(map(len, heads.values()))
    padded = {name: [""] * (height - len(words)) + words for name, words in heads.items()}
    widths = {
        name: max(map(width_of, [*padded[name], *(row[name] for row in rows)])) for name in names
    }
    for level in range(height):
        line = _line({name: padded[name][level] for name in names}, names, widths, numbers)
        yield click.style(line, bold=True) if is_stacked else line
    for row in rows:
        yield _line(row, names, widths, numbers)
        for name in below:
            yield from folded(row[name], width, indent=_INDENT)


def _line(
    row: Row, names: Sequence[str], widths: Mapping[str, int], numbers: Collection[str]
) -> str:
    cells = []
    for name in names:
        space = " " * (widths[name] - width_of(row[name]))
        cells.append(space + row[name] if name in numbers else row[name] + space)
    return (" " * _BETWEEN).join(cells).rstrip()


def _column_width(rows: Sequence[Row], name: str) -> int:
    return max(map(width_of, [*name.split("_"), *(row[name] for row in rows)]))


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes: two for each wide character."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


def wrapped(text: str, stream: TextIO | None) -> str:
    """Return a text for a terminal without a line break within a word; for a pipe or a file, as it is."""
    if stream is None or not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join("\n".join(folded(line, width)) for line in text.splitlines())


def folded(text: str, width: int, *, indent: str = "") -> Iterator[str]:
    """Iterate over lines of at most `width` columns; a longer word has a line of its own. Blanks are kept.

    `textwrap` counts characters: a line of wide ones would be twice as long as the terminal.
    """
    line = ""
    for part in _PARTS.findall(text):
        if line.strip() and width_of(indent + line + part.rstrip()) > width:
            yield indent + line.rstrip()
            line = part.lstrip()
        else:
            line += part
    if line.strip():
        yield indent + line.rstrip()
