"""The options that name the store of a tier, as a broker's settings do. WORLD."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from firnline.base.errors import ConfigError
from firnline.cli.server import read_file
from firnline.cli.terminal.options import set_option
from firnline.config.broker import BrokerConfig, broker_keys
from firnline.config.load import read_environment, read_overrides
from firnline.config.parse import parse
from firnline.config.providers import resolve
from firnline.server.plugins import STORAGE_KEY, check_built_in
from firnline.stores.references import SystemSources
from firnline.stores.registry import store_settings
from firnline.tiered.objects.storage import URI

F = TypeVar("F", bound=Callable[..., Any])

# What a broker's settings say about its store. The others need not be there, nor be right.
_KEYS = (
    *(STORAGE_KEY, "remote.log.storage.manager.class.path"),
    *("remote.log.storage.manager.impl.prefix", "node.id", "log.dir", "log.dirs"),
    "metadata.log.dir",
)


def store_options(function: F) -> F:
    """Add --set and --config."""
    settings = set_option("Set rsm.config.store.*.")
    file = click.option(
        "--config", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Take rsm.config.* from this server.properties.",
    )  # fmt: skip
    return settings(file(function))


def tier_config(overrides: tuple[str, ...], file: Path | None) -> BrokerConfig:
    """Return what -X, the environment and a server.properties say about the store of a broker's tier.

    All other settings have their defaults: neither does the file have to be complete. Raises ConfigError.
    """
    stated = {} if file is None else read_file(file)
    stated |= read_environment(os.environ) | read_overrides(overrides)
    resolved = resolve(stated, SystemSources())
    values = dict(resolved.values)
    if "broker.id" in values:
        values.setdefault("node.id", values["broker.id"])
    known = broker_keys()
    fields = {
        known[name].attribute: parse(known[name], values[name], is_hidden=name in resolved.texts)
        for name in _KEYS
        if name in values
    }
    return BrokerConfig(**fields, stated=values, resolved=resolved.texts)  # type: ignore[arg-type]


def named_store(
    uri: str | None, config: BrokerConfig, *, usage: str
) -> tuple[str, Mapping[str, str]]:
    """Return the URI of the store and the settings of its client library.

    config  what `tier_config` returned
    usage   how the command names a store; part of the ConfigError if nothing does
    """
    prefix = config.remote_log_storage_manager_impl_prefix
    settings = config.with_prefix(prefix)
    if config.remote_log_storage_manager_class_name is None:
        check_built_in(prefix, settings)
    uri = uri or settings.get(URI)
    if not uri:
        raise ConfigError(f"name the store: {usage}, or --config with {prefix}{URI}")
    return uri, store_settings(settings)
