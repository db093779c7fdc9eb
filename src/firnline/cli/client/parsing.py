"""Parsers of options: a value that is wrong is a usage error, which names the option. WORLD."""

from collections.abc import Callable
from typing import TypeVar

import click

from firnline.cli.records.escapes import unescape

S = TypeVar("S")
T = TypeVar("T")


def parsed(option: str, parse: Callable[[S], T], value: S) -> T:
    """Parse the value of an option. A ValueError becomes BadParameter."""
    try:
        return parse(value)
    except ValueError as problem:
        raise click.BadParameter(str(problem), param_hint=option) from None


def delimiter_of(option: str, text: str | None, *, may_be_empty: bool) -> bytes | None:
    """Parse a delimiter with escapes; None where there is none."""
    found = None if text is None else parsed(option, unescape, text)
    if found == b"" and not may_be_empty:
        raise click.BadParameter("a delimiter has at least one byte", param_hint=option)
    return found
