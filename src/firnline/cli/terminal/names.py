"""Names that people type: the nearest known one, and errors that name it. WORLD."""

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from firnline.base.errors import Code, FirnlineError, KafkaError

if TYPE_CHECKING:
    from firnline.client.admin import Admin

_SHOWN = 5
# What `client.wire.refuse` says of them: the kind of thing, and its name.
_ABOUT = re.compile(r"(topic|group) ([^:]+)")
_UNKNOWN = {
    Code.UNKNOWN_TOPIC_OR_PARTITION: "topic",
    Code.GROUP_ID_NOT_FOUND: "group",
}
# What older releases of click have in place of an exception with the name, such as 8.1.
_NO_COMMAND = re.compile(r"No such command (['\"])(.*)\1\.")


class UnknownName(FirnlineError):
    """The cluster has nothing of this name."""


def did_you_mean(
    name: str,
    known: Iterable[str],
    *,
    remedy: str = "",
    none: str = "There are none",
    most: int = _SHOWN,
) -> str:
    """Return a sentence that names the nearest of `known`, or all if they are few, or else the remedy.

    none  what is said if nothing is known
    """
    from firnline.config.parse import nearest

    names = sorted(known)
    near = nearest(name, names)
    if near is not None:
        return f"Did you mean {near!r}?"
    if 0 < len(names) <= _SHOWN:
        return f"There {'is' if len(names) == 1 else 'are'}: {', '.join(names)}."
    if not names:
        return f"{none}."
    return f"{remedy}." if remedy else ""


def explained_usage(problem: click.ClickException) -> click.ClickException:
    """Return a better error for an unknown command or option: it names the nearest, or where it belongs."""
    from firnline.config.parse import nearest

    context = getattr(problem, "ctx", None)
    if context is None:
        return problem
    group = context.command
    command = getattr(problem, "command_name", None)
    if command is None and (unknown := _NO_COMMAND.fullmatch(problem.message)):
        command = unknown[2]
    if command is not None and isinstance(group, click.Group):
        known = group.list_commands(context)
        hint = did_you_mean(command, known, remedy=f"There are: {', '.join(known)}")
        return click.UsageError(f"No such command {command!r}. {hint}", context)
    if not isinstance(problem, click.NoSuchOption):
        return problem
    remedy = f"`{context.command_path} --help` shows all"
    if isinstance(group, click.Group) and not group.invoke_without_command:
        remedy = f"Options stand behind the command: {context.command_path} COMMAND {problem.option_name}"
    near = nearest(problem.option_name.lstrip("-"), _options_of(context))
    hint = f"{remedy}." if near is None else f"Did you mean '--{near}'?"
    return click.UsageError(f"No such option {problem.option_name!r}. {hint}", context)


def _options_of(context: click.Context) -> list[str]:
    """Return the long options of a command without their dashes, which all names have in common."""
    return [
        name.lstrip("-")
        for each in context.command.get_params(context)
        if isinstance(each, click.Option) and not each.hidden
        for name in (*each.opts, *each.secondary_opts)
        if name.startswith("--")
    ]


def unknown_name(kind: str, name: str, known: Iterable[str], *, remedy: str) -> UnknownName:
    """Return the error for a name that the cluster does not know: no topic 'tpoic'. Did you mean 'topic'?"""
    return UnknownName(f"no {kind} {name!r}. {did_you_mean(name, known, remedy=remedy)}")


def explained(problem: KafkaError, admin: "Admin") -> FirnlineError:
    """Return a better error for a topic or a group that the cluster does not have, else `problem`."""
    kind = _UNKNOWN.get(problem.code)
    about = _ABOUT.match(problem.why)
    if kind is None or about is None or about[1] != kind:
        return problem
    try:
        known = _KNOWN[kind](admin)
    except FirnlineError:
        return problem
    if about[2] in known:
        return problem  # it exists by now, or the error is about something else
    return unknown_name(kind, about[2], known, remedy=f"`firnline {kind} list` shows all")


def topics_of(admin: "Admin") -> list[str]:
    """Return the names of all topics of a cluster, but internal ones."""
    return [row.name for row in admin.topics() if not row.is_internal]


def groups_of(admin: "Admin") -> list[str]:
    """Return the names of all groups of a cluster."""
    from firnline.client.groups import list_groups

    return [row.group for row in list_groups(admin)]


_KNOWN: dict[str, Callable[["Admin"], list[str]]] = {"topic": topics_of, "group": groups_of}
