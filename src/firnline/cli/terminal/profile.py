"""`firnline profile`: clusters by name, in a file. WORLD."""

import click

from firnline.base.errors import ConfigError
from firnline.cli.show import as_json, format_option, pairs, rows
from firnline.cli.terminal import profiles
from firnline.cli.terminal.names import did_you_mean
from firnline.cli.terminal.options import profile_option


@click.group()
def command() -> None:
    """Name clusters, and choose the one that commands ask.

    A profile has any of bootstrap, controllers, format and timeout. Options override environment variables
    (FIRNLINE_BOOTSTRAP, FIRNLINE_CONTROLLERS, FIRNLINE_FORMAT, FIRNLINE_TIMEOUT), and those override the
    profile, which --profile, FIRNLINE_PROFILE or `firnline profile use` chooses. The file is
    ~/.config/firnline/profiles.toml, or below XDG_CONFIG_HOME:

    \b
    use = "production"
    [production]
    bootstrap = "one:9092,two:9092"
    timeout = 5
    """


@command.command("list")
@format_option
def list_(style: str) -> None:
    """List the profiles; the one in use has a yes."""
    found = profiles.read()
    in_use, _ = profiles.chosen_name()
    content = [
        {"profile": name, "in_use": name == in_use}
        | {key: values.get(key) for key in profiles.SETTINGS}
        for name, values in sorted(found.profiles.items())
    ]
    rows(
        content, style, empty=f"no profiles in {profiles.path()}: see `firnline profile set --help`"
    )


@command.command()
@profile_option
@format_option
def show(style: str) -> None:
    """Show the settings that commands use now, and where each comes from."""
    content = []
    for name in profiles.SETTINGS:
        value, source = profiles.find(name)
        if value is None and name == "timeout":
            source = "default: that of each command"
        content.append({"setting": name, "value": value, "from": source})
    rows(content, style, empty="")


@command.command()
@click.argument("name")
def use(name: str) -> None:
    """Let commands use this profile from now on."""
    found = profiles.read()
    if name not in found.profiles:
        raise profiles.no_profile(name, found.profiles)
    profiles.write(profiles.with_value(found.text, None, profiles.IN_USE, name))
    click.echo(f"commands use {name} from now on")


@command.command("set")
@click.argument("name")
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@format_option
def set_(name: str, settings: tuple[str, ...], style: str) -> None:
    """Make a profile, or change its settings; the other lines of the file stay as they are.

    \b
    firnline profile set production bootstrap=one:9092,two:9092 timeout=5
    """
    profiles.checked_name(name)
    text = profiles.read().text
    for key, value in pairs(settings, "KEY=VALUE").items():
        if key not in profiles.SETTINGS:
            raise ConfigError(f"{key} is not a setting. {did_you_mean(key, profiles.SETTINGS)}")
        try:
            read = profiles.SETTINGS[key].read(value)
        except ValueError:
            raise ConfigError(
                f"{key}={value}: expected {profiles.SETTINGS[key].expected}"
            ) from None
        text = profiles.with_value(text, name, key, read)
    profiles.write(text)
    if style == "json":
        as_json({"profile": name, **profiles.parse(text).profiles[name]})
    else:
        click.echo(f"profile {name} is in {profiles.path()}")
