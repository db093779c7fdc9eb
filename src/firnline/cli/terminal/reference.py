"""Writes docs/reference/cli.md from the commands: `make docs`. WORLD."""

import inspect
import re
import sys
from collections.abc import Iterator

import click

from firnline.cli.main import cli
from firnline.cli.terminal.exits import EXIT_CODES

_HEAD = """\
# Commands

Generated from the commands by `make docs`. `firnline COMMAND --help` prints the same.

## What all commands share

- **Which cluster**: `-b` or `--bootstrap-server`, else `FIRNLINE_BOOTSTRAP`, else the profile, else
  `127.0.0.1:9092`. `firnline profile show` says where each value comes from. Of several addresses the first
  that answers is used.
- **Until when**: `--timeout` bounds the whole command, however many nodes hang, and whatever it waits for.
- **Tables** fit into the terminal: less important columns are left out, and one line on stderr says so.
  `--wide` shows all columns. A pipe or a file always gets all columns, each row on one line, so that scripts
  can rely on them. Sizes are in powers of 1000, `3.4 kB`.
- **JSON** (`--format json`) has exact numbers, bytes and milliseconds, and the same shape for one thing and
  for many. A command that can name or find several things prints a list, or an object with lists, also for
  one or none. A command about one thing prints an object. `dump` prints one object per line, which names
  its file.
- **Names** that a cluster does not have get the nearest one: `no topic 'tpoic'. Did you mean 'topic'?`
- **Errors** are one line on stderr. With `FIRNLINE_DEBUG=1` a traceback is printed instead.
- **Completion** in bash, zsh and fish: `firnline completion --help`.

| exit code | meaning |
|---|---|
"""
_PARAGRAPHS = re.compile(r"\n\s*\n")


def page() -> str:
    """Return docs/reference/cli.md."""
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items())
    context = click.Context(cli, info_name="firnline")
    parts = [_HEAD, codes]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        parts += _section(command, f"firnline {name}", level=2)
    return "".join(parts)


def _section(command: click.Command, path: str, *, level: int) -> Iterator[str]:
    yield f"\n{'#' * level} {path}\n\n{_text(command.help or '')}\n"
    context = click.Context(command, info_name=path)
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield f"\n    {' '.join([path, *command.collect_usage_pieces(context)])}\n"
        yield from _options(command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _section(inner, f"{path} {name}", level=min(level + 1, 4))


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    records = [
        found
        for each in command.params
        if isinstance(each, click.Option) and (found := each.get_help_record(context)) is not None
    ]
    if records:
        yield "\n| option | |\n|---|---|\n"
    for names, said in records:
        yield f"| `{_cell(names)}` | {_cell(said)} |\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _text(text: str) -> str:
    """Return the help of a command as Markdown: what is not to be wrapped there is code here."""
    parts = []
    for paragraph in _PARAGRAPHS.split(inspect.cleandoc(text)):
        if paragraph.startswith("\b"):
            lines = paragraph.removeprefix("\b").strip("\n").splitlines()
            parts.append("\n".join(f"    {line}" for line in lines))
        else:
            parts.append(paragraph)
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
