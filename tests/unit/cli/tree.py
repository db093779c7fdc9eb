"""All commands, for tests of the rules that each of them keeps."""

from collections.abc import Iterator

import click

from firnline.cli.main import cli

# What a command needs to run at all, besides its arguments.
WORDS = {
    "broker unregister": ("--yes",),
    "config alter": ("retention.ms=1", "--topic", "events"),
    "config describe": ("--topic", "events"),
    "group delete-offsets": ("--topic", "events"),
    "group reset": ("--all-topics", "--to-latest"),
    "partition cancel": ("--all",),
    "partition elect": ("--all",),
    "partition move": ("events", "--brokers", "1"),
    "quorum describe": ("--status",),
    "quorum snapshots take": ("--all",),
    "topic alter": ("--partitions", "2"),
    "topic delete-records": ("events", "--to-latest", "--yes"),
}


def commands(group: click.Group = cli, *path: str) -> Iterator[tuple[str, click.Command]]:
    """Iterate over the commands that do something: `topic list`, and the command."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        words = (*path, name)
        if isinstance(found, click.Group):
            yield from commands(found, *words)
        if not isinstance(found, click.Group) or found.invoke_without_command:
            yield " ".join(words), found


def options_of(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command by each of their names."""
    return {
        name: each
        for each in command.params
        if isinstance(each, click.Option)
        for name in each.opts
    }


def words_of(path: str, command: click.Command) -> list[str]:
    """Return the words of a command that runs: with a value for each argument that it needs."""
    needed = [each for each in command.params if isinstance(each, click.Argument) and each.required]
    values = ("1" if isinstance(each.type, click.IntRange) else "events" for each in needed)
    return [*path.split(), *WORDS.get(path, ()), *values]


ALL = dict(commands())
# Those that ask a cluster.
ASKING = {path: each for path, each in ALL.items() if "--bootstrap-server" in options_of(each)}
