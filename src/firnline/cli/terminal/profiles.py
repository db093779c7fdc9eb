"""Settings of the command line: options, then environment variables, then a profile, then defaults. WORLD.

A profile is a table of `profiles.toml` in the user's configuration directory: which cluster to ask, and how.
"""

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import click

from firnline.base.errors import ConfigError
from firnline.cli.terminal.names import did_you_mean

CHOSEN_WITH_OPTION = "firnline.profile"
PROFILE_VARIABLE = "FIRNLINE_PROFILE"
# The key outside of all profiles that names the one in use.
IN_USE = "use"
_FROM_VARIABLE = "environment variable"
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_AT_LINE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)")


class Setting(NamedTuple):
    """One setting: its variable, its default, and how to read a text; `read` raises ValueError."""

    variable: str
    default: Any
    expected: str
    read: Callable[[str], Any]


class Found(NamedTuple):
    """The value of a setting, and where it comes from."""

    value: Any
    source: str


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError
    return seconds


def _addresses(text: str) -> str:
    if not all(address.strip().rpartition(":")[2].isdecimal() for address in text.split(",")):
        raise ValueError
    return text


def _style(text: str) -> str:
    if text not in STYLES:
        raise ValueError
    return text


STYLES = ("table", "json")
SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        "bootstrap": Setting(
            "FIRNLINE_BOOTSTRAP", "127.0.0.1:9092", "host:port, or several with commas", _addresses
        ),
        "controllers": Setting(
            "FIRNLINE_CONTROLLERS", None, "host:port, or several with commas", _addresses
        ),
        "format": Setting("FIRNLINE_FORMAT", "table", " or ".join(STYLES), _style),
        "timeout": Setting("FIRNLINE_TIMEOUT", None, "seconds, more than 0", _seconds),
    }
)


def find(name: str) -> Found:
    """Return the value of a setting that no option gives. Raises ConfigError for a value that cannot be."""
    setting = SETTINGS[name]
    text = os.environ.get(setting.variable)
    if text:
        try:
            return Found(setting.read(text), f"{_FROM_VARIABLE} {setting.variable}")
        except ValueError:
            why = f"environment variable {setting.variable}={text}: expected {setting.expected}"
            raise ConfigError(why) from None
    profile, values = chosen()
    if name in values:
        return Found(values[name], f"profile {profile} in {path()}")
    return Found(setting.default, "default")


def is_from_variable(found: Found) -> bool:
    """Does the value come from the environment?"""
    return found.source.startswith(_FROM_VARIABLE)


def path() -> Path:
    """Return where the profiles are, whether the file exists or not."""
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "firnline" / "profiles.toml"


def chosen_name() -> tuple[str | None, str]:
    """Return the profile in use, or None, and what chose it."""
    context = click.get_current_context(silent=True)
    option = context.meta.get(CHOSEN_WITH_OPTION) if context is not None else None
    if option:
        return option, "--profile"
    if os.environ.get(PROFILE_VARIABLE):
        return os.environ[PROFILE_VARIABLE], f"environment variable {PROFILE_VARIABLE}"
    return read().in_use, f"`{IN_USE}` in {path()}"


def chosen() -> tuple[str | None, Mapping[str, Any]]:
    """Return the profile in use and its settings. Raises ConfigError for one that does not exist."""
    name, source = chosen_name()
    if name is None:
        return None, {}
    profiles = read().profiles
    if name not in profiles:
        raise no_profile(name, profiles, f"{source}: ")
    return name, profiles[name]


def no_profile(name: str, profiles: Mapping[str, Any], who: str = "") -> ConfigError:
    """Return the error for a profile that the file does not have. `who` names it comes first."""
    hint = did_you_mean(
        name, profiles,
        remedy="`firnline profile list` shows all",
        none=f"There are none: `firnline profile set {name} bootstrap=HOST:PORT` makes it",
    )  # fmt: skip
    return ConfigError(f"{who}no profile {name!r} in {path()}. {hint}")


class Profiles(NamedTuple):
    """The content of the file; `text` is the file itself."""

    profiles: Mapping[str, Mapping[str, Any]]
    in_use: str | None
    text: str


def read() -> Profiles:
    """Read the file; no profiles if there is none. Raises ConfigError with the line of a mistake."""
    file = path()
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        return Profiles({}, None, "")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
        raise ConfigError(f"cannot read {file}: {reason}") from None
    return parse(text)


def parse(text: str) -> Profiles:
    """Check the text of a file. Raises ConfigError with the line of a mistake."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        found = _AT_LINE.fullmatch(str(problem))
        said, line = (found[1], found[2]) if found else (str(problem), None)
        raise _mistake(text, int(line) if line else None, f"{said}: mend the line") from None
    in_use = content.pop(IN_USE, None)
    if not (in_use is None or isinstance(in_use, str)):
        raise _mistake(
            text, _line_of(text, None, IN_USE), f"{IN_USE} must be the name of a profile"
        )
    for name, values in content.items():
        if not isinstance(values, dict):
            why = f"{name} belongs to no profile: write it below a line such as [production]"
            raise _mistake(text, _line_of(text, None, name), why)
        for key, value in values.items():
            fault = _fault(key, value)
            if fault:
                raise _mistake(text, _line_of(text, name, key), f"[{name}] {fault}")
    return Profiles(content, in_use, text)


def _fault(key: str, value: Any) -> str | None:
    if key not in SETTINGS:
        return f"{key} is not a setting. {did_you_mean(key, SETTINGS)}"
    setting = SETTINGS[key]
    try:
        is_right = isinstance(value, str | int | float) and not isinstance(value, bool)
        return None if is_right and setting.read(str(value)) == value else _expected(key, value)
    except ValueError:
        return _expected(key, value)


def _expected(key: str, value: Any) -> str:
    return f"{key} = {value!r}: expected {SETTINGS[key].expected}"


def _mistake(text: str, line: int | None, what: str) -> ConfigError:
    at = line if line is not None else len(text.splitlines())
    return ConfigError(f"{path()}, line {at}: {what}")


def _line_of(text: str, profile: str | None, key: str) -> int | None:
    """Return the number of the line that states `key` of a profile."""
    section: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        stated = line.strip()
        if stated.startswith("["):
            section = stated.partition("]")[0].strip("[ \"'")
        elif section == profile and stated.partition("=")[0].strip(" \"'") == key:
            return number
    return None


# ------------------------------------------------------------------------------------- changes


def with_value(text: str, profile: str | None, key: str, value: str | float) -> str:
    """Return the text of a file with one value set; all other lines, and comments, stay as they are.

    profile  None: a key outside of all profiles
    """
    shown = str(value) if isinstance(value, float | int) else _quoted(value)
    stated = f"{key} = {shown}"
    lines = text.splitlines()
    at = _line_of(text, profile, key)
    if at is not None:
        lines[at - 1] = stated
    elif profile is None:
        lines.insert(0, stated)
    else:
        headings = [line.partition("]")[0].strip("[ \"'") for line in lines]
        if f"[{profile}]" not in [line.partition("#")[0].strip() for line in lines]:
            lines += [*([""] if lines else []), f"[{profile}]"]
            headings = [line.partition("]")[0].strip("[ \"'") for line in lines]
        lines.insert(headings.index(profile) + 1, stated)
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def checked_name(name: str) -> str:
    """Return the name of a profile. Raises ConfigError."""
    if not _NAME.fullmatch(name) or name == IN_USE:
        raise ConfigError(f"{name!r} cannot be the name of a profile: letters, digits, - and _")
    return name


def write(text: str) -> None:
    """Replace the file, unless the text has a mistake."""
    parse(text)
    file = path()
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.new")
    new.write_text(text, "utf-8")
    new.replace(file)
