"""Options that commands share: which cluster to ask, until when, and how to print. WORLD."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from firnline.base.errors import KafkaError
from firnline.cli.terminal import profiles
from firnline.cli.terminal.names import explained

if TYPE_CHECKING:
    from firnline.client.admin import Admin
    from firnline.client.deadline import Deadline

F = TypeVar("F", bound=Callable[..., Any])

TIMEOUT_S = 30.0
_DEADLINE = "firnline.deadline"
_WIDE = "firnline.wide"


def broker_options(function: F) -> F:
    """Add the options of a command that asks a cluster and prints what it found."""
    return broker_server_option(format_option(function))


def broker_server_option(function: F) -> F:
    """Add the options of a command that asks a cluster: where it is, and until when."""
    return bootstrap_option(timeout_option(TIMEOUT_S)(function))


def bootstrap_option(function: F) -> F:
    """Add --bootstrap-server, which is the argument `bootstrap`, and --profile."""
    return click.option(
        "--bootstrap-server",
        "-b",
        "bootstrap",
        default=lambda: _found("bootstrap"),
        show_default=profiles.SETTINGS["bootstrap"].default,
        metavar="HOST:PORT,...",
        help="Brokers of the cluster; the first that answers is asked. [env: FIRNLINE_BOOTSTRAP]",
    )(profile_option(function))


def _found(name: str) -> Any:
    """Return the value of a setting; None while a shell completes, where nobody could read an error."""
    is_completion = click.get_current_context().resilient_parsing
    return None if is_completion else profiles.find(name).value


def profile_option(function: F) -> F:
    """Add --profile."""
    return click.option(
        "--profile",
        is_eager=True,
        expose_value=False,
        metavar="NAME",
        callback=_keep_profile,
        help="A profile of profiles.toml, see `firnline profile`. [env: FIRNLINE_PROFILE]",
    )(function)


def _keep_profile(context: click.Context, _: click.Parameter, name: str | None) -> None:
    if name:
        context.meta[profiles.CHOSEN_WITH_OPTION] = name


def timeout_option(default_s: float) -> Callable[[F], F]:
    """Add --timeout, which begins the deadline of the command: see `deadline`."""

    def begin(context: click.Context, _: click.Parameter, timeout_s: float) -> None:
        from firnline.client.deadline import Deadline

        context.meta[_DEADLINE] = Deadline(timeout_s)

    return click.option(
        "--timeout",
        default=lambda: _found("timeout") or default_s,
        show_default=f"{default_s:g}",
        type=click.FloatRange(0.0, min_open=True),
        expose_value=False,
        callback=begin,
        metavar="SECONDS",
        help="Give up after this time, whatever hangs. [env: FIRNLINE_TIMEOUT]",
    )


class _Renamed(click.Option):
    """An option whose older names still work, and are shown nowhere."""

    def __init__(self, names: Sequence[str], *, older: Sequence[str] = (), **attributes: Any):
        super().__init__([*names, *older], **attributes)
        self._older = older

    def get_help_record(self, context: click.Context) -> tuple[str, str] | None:
        accepted = self.opts
        self.opts = [name for name in accepted if name not in self._older]
        try:
            return super().get_help_record(context)
        finally:
            self.opts = accepted


def set_option(
    text: str, *, name: str = "overrides", older: Sequence[str] = ()
) -> Callable[[F], F]:
    """Add --set, which is how all commands take settings; it is the argument `name`.

    text   for --help
    older  names that this option of the command had before
    """
    return click.option(
        "-X", "--set", name, cls=_Renamed, older=older, multiple=True, metavar="KEY=VALUE", help=text
    )  # fmt: skip


def unset_option(text: str, *, name: str, older: Sequence[str] = ()) -> Callable[[F], F]:
    """Add --unset, which is how all commands return a setting to its default."""
    return click.option(
        "--unset", name, cls=_Renamed, older=older, multiple=True, metavar="KEY", help=text
    )


def format_option(function: F) -> F:
    """Add --format, which is the argument `style`, and --wide."""
    wide = click.option(
        "--wide",
        is_flag=True,
        expose_value=False,
        callback=_keep_wide,
        help="All columns of a table, also those that do not fit into the terminal.",
    )
    return click.option(
        "--format",
        "style",
        type=click.Choice(profiles.STYLES),
        default=lambda: _found("format"),
        show_default=profiles.SETTINGS["format"].default,
        help="For people, or for programs. [env: FIRNLINE_FORMAT]",
    )(wide(function))


def _keep_wide(context: click.Context, _: click.Parameter, is_wide: bool) -> None:
    context.meta[_WIDE] = is_wide


def is_wide() -> bool:
    """Has --wide been given?"""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_WIDE))


def deadline() -> "Deadline":
    """Return the deadline of the running command, which began when its options were read."""
    from firnline.client.deadline import Deadline

    context = click.get_current_context(silent=True)
    found = context.meta.get(_DEADLINE) if context is not None else None
    return found if isinstance(found, Deadline) else Deadline(TIMEOUT_S)


@contextmanager
def connect(
    bootstrap: str, *, is_anew: bool = False, silent_s: float = math.inf
) -> Iterator["Admin"]:
    """Ask the cluster at `bootstrap` until the deadline of the command.

    is_anew   the deadline begins now: a person was asked before, or the command waits on purpose
    silent_s  how long one broker may be silent, if that is less

    Errors about a topic or a group that the cluster does not have name the nearest one.
    """
    from firnline.client.admin import Admin
    from firnline.client.deadline import Deadline

    until = Deadline(deadline().timeout_s) if is_anew else deadline()
    timeout_s = min(until.timeout_s, silent_s)
    with Admin(bootstrap, timeout_s=timeout_s, deadline=until) as admin:
        try:
            yield admin
        except KafkaError as problem:
            raise explained(problem, admin) from None
