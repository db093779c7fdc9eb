"""How commands print: aligned tables for people, JSON for programs; and the options they share. WORLD."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

# Wide enough that a line of a pipe is never folded.
_PIPE_COLUMNS = 100_000


def broker_options(function: F) -> F:
    """Add --bootstrap-server and --format."""
    server = click.option(
        "--bootstrap-server",
        "bootstrap",
        default="127.0.0.1:9092",
        show_default=True,
        metavar="HOST:PORT",
        help="A broker of the cluster.",
    )
    return server(format_option(function))


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
    """Print rows of the same keys; `empty` is said to people where there are none."""
    if style == "json":
        as_json(list(content))
        return
    if not content:
        click.echo(empty, err=True)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in content[0]:
        is_number = all(isinstance(row[name], int) for row in content)
        table.add_column(
            name.replace("_", " "), justify="right" if is_number else "left", overflow="fold"
        )
    for row in content:
        table.add_row(*(_cell(row[name]) for name in content[0]))
    width = None if sys.stdout.isatty() else _PIPE_COLUMNS
    Console(width=width, highlight=False, markup=False).print(table)


def as_json(content: Any) -> None:
    """Print one JSON value."""
    click.echo(json.dumps(content, indent=2))


def facts(content: Mapping[str, Any]) -> None:
    """Print name and value of a few facts, one a line."""
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
