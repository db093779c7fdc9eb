"""The options that name the store of a tier, as a broker's settings do. WORLD."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from firnline.base.errors import ConfigError
from firnline.config.load import read_overrides
from firnline.config.properties import parse_properties
from firnline.config.providers import resolve
from firnline.server.config_sources import SystemSources
from firnline.stores.registry import store_settings

F = TypeVar("F", bound=Callable[..., Any])

_PREFIX = "rsm.config."
_URI = "uri"


def store_options(function: F) -> F:
    """Add -X and --config."""
    settings = click.option(
        "-X", "overrides", multiple=True, metavar="KEY=VALUE", help="Set rsm.config.store.*."
    )
    file = click.option(
        "--config", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Take rsm.config.* from this server.properties.",
    )  # fmt: skip
    return settings(file(function))


def named_store(
    uri: str | None, overrides: tuple[str, ...], file: Path | None, *, usage: str
) -> tuple[str, dict[str, str]]:
    """Return the URI of the store and the settings of its client library.

    usage  how the command names a store; part of the ConfigError if nothing does
    """
    stated = parse_properties(file.read_text()) if file is not None else {}
    stated = resolve(stated | read_overrides(overrides), SystemSources()).values
    settings = {k.removeprefix(_PREFIX): v for k, v in stated.items() if k.startswith(_PREFIX)}
    uri = uri or settings.get(_URI)
    if not uri:
        raise ConfigError(f"name the store: {usage}, or --config with rsm.config.uri")
    return uri, store_settings(settings)
