"""The `firnline` command: where each subcommand is, and how an error is shown. WORLD.

Subcommands are imported when they are used, so `firnline --version` takes little longer than importing click.
"""

from importlib import import_module

import click

from firnline import __version__
from firnline.cli.terminal import exits
from firnline.cli.terminal.names import did_you_mean

# name -> (module, one line for --help)
COMMANDS = {
    "dev": (
        "firnline.cli.dev",
        "Start a broker, or a cluster, for development, without configuration.",
    ),
    "server": ("firnline.cli.server", "Start a node from a server.properties file."),
    "storage": ("firnline.cli.storage", "Prepare the directories of a node."),
    "produce": (
        "firnline.cli.client.produce",
        "Send records to a topic: lines of stdin, keys, JSON lines.",
    ),
    "consume": (
        "firnline.cli.client.consume",
        "Print the records of topics; follow them, count them.",
    ),
    "topic": ("firnline.cli.topic", "Create, list, describe, alter and delete topics."),
    "group": ("firnline.cli.group", "List, describe, reset and delete consumer groups."),
    "config": ("firnline.cli.operations.config", "Settings of topics and brokers."),
    "partition": ("firnline.cli.operations.partition", "Move partitions, and elect leaders."),
    "broker": ("firnline.cli.operations.broker", "List brokers, and forget one that is gone."),
    "log-dirs": ("firnline.cli.operations.log_dirs", "What is in the directories of the brokers."),
    "cluster": ("firnline.cli.cluster", "Brokers, controllers and partitions in one view."),
    "quorum": (
        "firnline.cli.quorum",
        "Show the metadata quorum: its leader and the lag of each member.",
    ),
    "tier": ("firnline.cli.tier.command", "Show what is in the remote tier; check a store."),
    "doctor": ("firnline.cli.doctor", "Say what is wrong, and the command that mends it."),
    "sim": ("firnline.cli.sim", "Simulate a quorum, or a whole cluster, from a seed."),
    "dump": ("firnline.cli.dump", "Print the files of a log as text."),
    "profile": (
        "firnline.cli.terminal.profile",
        "Name clusters, and choose the one that commands ask.",
    ),
    "completion": (
        "firnline.cli.terminal.completion",
        "Print the script that completes words in a shell.",
    ),
}


class LazyGroup(click.Group):
    """A group whose subcommands are in the modules named by COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = did_you_mean(args[0], COMMANDS, remedy=f"There are: {', '.join(COMMANDS)}")
            ctx.fail(f"No such command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="firnline")
def cli() -> None:
    """A Kafka-compatible event log in Python."""


def main() -> None:
    """Run the command line, and exit with a code of `exits.EXIT_CODES`."""
    exits.run(cli)
