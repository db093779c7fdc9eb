"""`firnline completion`: completion in shells, of commands, options, topics and groups. WORLD.

Click's own machinery completes commands and options. Names come from the cluster, if it answers within a
second; else nothing is completed, and nothing is said.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

from firnline.cli.terminal import profiles
from firnline.cli.terminal.names import groups_of, topics_of

if TYPE_CHECKING:
    from firnline.client.admin import Admin

ANSWER_S = 1.0
VARIABLE = "_FIRNLINE_COMPLETE"
# Where each shell looks for it by itself; zsh once its `fpath` names the folder.
SHELLS = {
    "bash": "~/.local/share/bash-completion/completions/firnline",
    "zsh": "~/.zfunc/_firnline",
    "fish": "~/.config/fish/completions/firnline.fish",
}


def complete_topics(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the topics that begin with what is typed."""
    return _matches(context, parameter, incomplete, topics_of)


def complete_groups(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the groups that begin with what is typed."""
    return _matches(context, parameter, incomplete, groups_of)


def _matches(
    context: click.Context,
    parameter: click.Parameter,
    incomplete: str,
    names_of: Callable[["Admin"], list[str]],
) -> list[str]:
    """Return the names that match, without those that are typed already; none if no cluster answers."""
    from firnline.client.admin import Admin
    from firnline.client.deadline import Deadline

    typed = context.params.get(parameter.name or "") or ()
    try:
        bootstrap = context.params.get("bootstrap") or profiles.find("bootstrap").value
        with Admin(bootstrap, timeout_s=ANSWER_S, deadline=Deadline(ANSWER_S)) as admin:
            names = names_of(admin)
    except Exception:  # noqa: BLE001 - whatever it is, it does not belong into a line that is typed
        return []
    return [name for name in names if name.startswith(incomplete) and name not in typed]


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.option("--install", is_flag=True, help="Write it where new shells find it, and print where.")
def command(shell: str, install: bool) -> None:
    """Print the script that completes commands, options, topics and groups in a shell.

    With --install it is written to one of these files; its folder is made where it is missing:

    \b
    bash: ~/.local/share/bash-completion/completions/firnline  (for the package bash-completion)
    zsh:  ~/.zfunc/_firnline                                   (with fpath+=~/.zfunc before compinit)
    fish: ~/.config/fish/completions/firnline.fish

    Or for this shell alone: eval "$(firnline completion bash)". Topics and groups are those of the cluster
    that the command would ask, if it answers within a second.
    """
    from firnline.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None
    script = found(cli, {}, "firnline", VARIABLE).source()
    if not install:
        click.echo(script)
        return
    path = Path(SHELLS[shell]).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script + "\n")
    click.echo(f"wrote {path}: new shells complete")
