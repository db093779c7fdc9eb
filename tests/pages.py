"""What a page tells its reader to type, and the words that it has in code. Pure, but for the reader of files.

A page is Markdown: words in code are between backquotes, blocks are indented by four blanks or fenced.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from firnline.cli.main import cli

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^ {4,}(.*)$", re.MULTILINE)
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_REDIRECTION = re.compile(r"[0-9]?>>? ?[^ ]+|<<? ?[^ ]+")
# What stands before a command on its line.
_BEFORE = {"until", "while", "if", "do", "then", "!", "exec"}
_ASSIGNMENT = re.compile(r"\w+=.*")
_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")


def fenced(page: str, *kinds: str) -> list[str]:
    """Return the fenced blocks of these kinds."""
    return [text for kind, text in _FENCED.findall(page) if kind in kinds]


def in_code(page: str) -> list[str]:
    """Return what is in code in the running text and in tables, each in one line."""
    text = _INDENTED.sub("", _FENCED.sub("", page))
    text = re.sub(r"\n(?=\S)(?![-|#*] |\d+\. )", " ", text)
    return [" ".join(span.split()) for span in _SPAN.findall(text)]


def rows_of(page: str, head: str) -> list[list[str]]:
    """Return the cells of the rows of the table whose first line begins with `head`."""
    lines = page[page.index(f"\n{head}") + 1 :].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def shell_of(page: str) -> str:
    """Return the lines for a shell: those of indented blocks, of `sh`, and behind the `$` of `console`."""
    lines = [*fenced(page, "sh"), *_INDENTED.findall(_FENCED.sub("", page))]
    for block in fenced(page, "console"):
        lines += [line[2:] for line in block.splitlines() if line[:2] in ("$ ", "> ")]
    return "\n".join(lines).replace("\\\n", " ")


def simple_commands(shell: str) -> Iterator[list[str]]:
    """Iterate over the commands of some lines for a shell, without what joins and redirects them.

    Those within `$(...)` come last.
    """
    lines = [part for line in shell.splitlines() for part in _SUBSTITUTION.findall(line)]
    for line in [*_SUBSTITUTION.sub("$X", shell).splitlines(), *lines]:
        lexer = shlex.shlex(_REDIRECTION.sub(" ", line), posix=True, punctuation_chars=";|&()")
        lexer.whitespace_split = True
        words: list[str] = []
        try:
            for word in [*lexer, ";"]:
                if set(word) <= set(";|&()"):
                    if words:
                        yield words
                    words = []
                elif words or (word not in _BEFORE and not _ASSIGNMENT.fullmatch(word)):
                    words.append(word)
        except ValueError:
            continue  # a quotation mark that another line closes, or an apostrophe of what is printed


def ours(shell: str) -> list[list[str]]:
    """Return the commands of Firnline in some lines for a shell, without the word `firnline`."""
    found = simple_commands(shell)
    return [words[1:] for words in found if words[0] == "firnline" and len(words) > 1]


def fault(words: list[str], *, may_lack: bool = False) -> str | None:
    """Return what the command line says against a command, or None: it would run it.

    may_lack  arguments and values that it needs may be missing, as where a text only names the command
    """
    group: click.Command = cli
    context = cli.make_context("firnline", [], resilient_parsing=True)
    rest = list(words)
    try:
        while isinstance(group, click.Group) and rest and not rest[0].startswith("-"):
            _, found, rest = group.resolve_command(context, rest)
            assert found is not None
            context = click.Context(found, parent=context, info_name=found.name)
            group = found
        if not (isinstance(group, click.Group) and not rest):
            with context:
                group.parse_args(context, rest)
    except click.MissingParameter as problem:
        return None if may_lack else problem.format_message()
    except click.UsageError as problem:
        said = problem.format_message()
        return None if may_lack and said.endswith("requires an argument.") else said
    except click.exceptions.Exit:
        return None  # --help
    return None


def texts_of(source: Path) -> str:
    """Return every text that the modules below a folder have, a line each; NUL where a value is put in."""
    found: list[str] = []
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = [
                    str(part.value) if isinstance(part, ast.Constant) else "\0"
                    for part in node.values
                ]
                found.append("".join(parts))
    return "\n".join(" ".join(text.split()) for text in found)
