"""How commands print: aligned tables for people, JSON for programs. WORLD.

JSON has the same shape for one and for many: a command that can name or find several things prints a list,
or an object with lists, however many there are. A command about one thing prints an object.
"""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from firnline.cli.terminal.exits import SOMETHING_IS_WRONG
from firnline.cli.terminal.options import (
    bootstrap_option,
    broker_options,
    broker_server_option,
    connect,
    deadline,
    format_option,
    is_wide,
    profile_option,
    set_option,
    timeout_option,
    unset_option,
)
from firnline.cli.terminal.table import lines_of, that_fit, wrapped

__all__ = [
    "SOMETHING_IS_WRONG",
    "as_json",
    "bootstrap_option",
    "broker_options",
    "broker_server_option",
    "bytes_of",
    "connect",
    "deadline",
    "duration_of",
    "facts",
    "format_option",
    "pairs",
    "paragraph",
    "profile_option",
    "rows",
    "set_option",
    "size_of",
    "timeout_option",
    "unset_option",
]


def rows(
    content: Sequence[Mapping[str, Any]],
    style: str,
    *,
    empty: str,
    less_important: Sequence[str] = (),
    sentences: Sequence[str] = (),
    essential: Sequence[str] = (),
) -> None:
    """Print rows of the same keys. In a table, print `empty` if there are none.

    less_important  columns that a terminal may be too narrow for, the first to be left out first; without
                    them the last columns are left out. A pipe, a file and --wide get all columns.
    sentences       columns of any length, which are lines below their row in a terminal
    essential       columns that are lines below their row where a terminal is too narrow for them
    """
    if style == "json":
        as_json(list(content))
        return
    if not content:
        click.echo(empty, err=True)
        return
    cells = [{name: _cell(row[name]) for name in row} for row in content]
    names = list(content[0])
    numbers = {name for name in names if all(isinstance(row[name], int | None) for row in content)}
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    shown, below, width = names, [], shutil.get_terminal_size().columns
    if is_terminal and not is_wide():
        below = [name for name in names if name in sentences]
        in_columns = [name for name in names if name not in sentences]
        shown = that_fit(cells, in_columns, less_important, width)
        if missing := [name for name in essential if name not in shown]:
            below += missing
            in_columns = [name for name in in_columns if name not in missing]
            shown = that_fit(cells, in_columns, less_important, width)
    for line in lines_of(cells, shown, numbers, below, width, is_stacked=is_terminal):
        click.echo(line)
    left_out = [name.replace("_", " ") for name in names if name not in (*shown, *below)]
    if left_out:
        more = f"{len(left_out)} more column{'s' if len(left_out) > 1 else ''}"
        paragraph(f"{more} with --wide: {', '.join(left_out)}", err=True)


def paragraph(text: str, *, err: bool = False) -> None:
    """Print a sentence; in a terminal no line breaks within a word. A pipe and a file get one line."""
    click.echo(wrapped(text, sys.stderr if err else sys.stdout), err=err)


def size_of(size_bytes: int, count: int) -> str:
    """Return the number of some files and their total size, for people: 3.0 MB in 3."""
    return f"{bytes_of(size_bytes)} in {count}" if count else "-"


def bytes_of(size_bytes: int) -> str:
    """Return a size for people, in the unit that leaves one to three digits before the point: 3.4 kB."""
    size, unit = float(size_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 999.95:
            break
        size, unit = size / 1000, larger
    return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"


def duration_of(duration_ms: int) -> str:
    """Return a duration for people, in the largest unit of which it has two: 3 min."""
    seconds = max(0, duration_ms) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def as_json(content: Any) -> None:
    """Print one JSON value."""
    click.echo(json.dumps(content, indent=2))


def facts(content: Mapping[str, Any]) -> None:
    """Print the name and value of each fact, one a line."""
    width = max(map(len, content))
    for name, value in content.items():
        click.echo(f"{name.replace('_', ' ').ljust(width)}  {_cell(value)}")


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def pairs(items: Sequence[str], option: str) -> dict[str, str]:
    """Parse each `key=value` of an option that may be repeated."""
    found = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{item!r} is not key=value", param_hint=option)
        found[name.strip()] = value
    return found
