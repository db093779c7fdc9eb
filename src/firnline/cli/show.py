"""How commands print: aligned tables for people, JSON for programs; and the options they share. WORLD."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

# Wide enough that no cell is ever wrapped: a narrow terminal then breaks lines, not numbers.
_COLUMNS = 100_000

# The exit code when something is wrong; 1 means that no broker answered.
SOMETHING_IS_WRONG = 3


def broker_options(function: F) -> F:
    """Add --bootstrap-server and --format."""
    return broker_server_option(format_option(function))


def broker_server_option(function: F) -> F:
    """Add --bootstrap-server."""
    return click.option(
        "--bootstrap-server",
        "bootstrap",
        default="127.0.0.1:9092",
        show_default=True,
        metavar="HOST:PORT,...",
        help="Brokers of the cluster; the first that answers is asked.",
    )(function)


def format_option(function: F) -> F:
    """Add --format."""
    return click.option(
        "--format",
        "style",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="For people, or for programs.",
    )(function)


def rows(content: Sequence[Mapping[str, Any]], style: str, *, empty: str) -> None:
    """Print rows of the same keys. In a table, print `empty` if there are none."""
    if style == "json":
        as_json(list(content))
        return
    if not content:
        click.echo(empty, err=True)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    # In a terminal the words of a column name are stacked; in a pipe they are on one line.
    between = "\n" if sys.stdout.isatty() else " "
    for name in content[0]:
        is_number = all(isinstance(row[name], int | None) for row in content)
        table.add_column(
            name.replace("_", between),
            justify="right" if is_number else "left",
            vertical="bottom",
            no_wrap=True,
        )
    for row in content:
        table.add_row(*(_cell(row[name]) for name in content[0]))
    Console(width=_COLUMNS, highlight=False, markup=False).print(table)


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
