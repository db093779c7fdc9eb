"""The options that say where the tier is, and how its store is reached. SPARK, without Spark.

Spark keeps the options of a read in plans, in tasks, in the definitions of tables and on its pages. So a
secret is no option: a reference to it is. Source: KIP-297; decision 0047.
"""

from collections.abc import Mapping
from pathlib import Path

from firnline.base.errors import ConfigError
from firnline.config.providers import providers_in
from firnline.stores.cloud import is_secret
from firnline.stores.references import FORMS, PROVIDER_CLASSES
from firnline.stores.registry import path_of

TIER_URI = "tier.uri"
# Before each setting of a store's client library, as `rsm.config.store.` is for a broker.
STORE_PREFIX = "tier.store."


def parse_tier(options: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the URI of the tier, empty if there is none, and the settings of its store, with references.

    options  the user's, with names in lower case. Raises ConfigError, which names the option and no value
    """
    uri = options.get(TIER_URI, "").strip()
    if TIER_URI in options and not uri:
        raise ConfigError(
            f"{TIER_URI} is empty, as a variable that is not set: give it, or leave it out"
        )
    path = path_of(uri) if uri else None
    if path is not None:
        refuse_relative(TIER_URI, uri if uri.startswith("~") else path)
    settings = {
        name.removeprefix(STORE_PREFIX): value
        for name, value in options.items()
        if name.startswith(STORE_PREFIX)
    }
    for key, value in settings.items():
        _refuse_unknown_providers(key, value)
        if not uri.startswith("hdfs:"):  # its settings have names of their own; none is a secret
            _refuse_literal_secret(key, value)
    return uri, settings


def refuse_relative(option: str, path: str) -> None:
    """Refuse a path that is another directory for each process that reads."""
    if path.startswith("~") or not Path(path).is_absolute():
        raise ConfigError(
            f"{option} must be absolute: driver and executors have different working directories",
            given=path, remedy=f"give {Path(path).expanduser().absolute()}",
        )  # fmt: skip


def _refuse_unknown_providers(key: str, value: str) -> None:
    for provider in providers_in(value):
        if provider not in PROVIDER_CLASSES:
            raise ConfigError(f"{STORE_PREFIX}{key}: no provider {provider}; write {FORMS}")


def _refuse_literal_secret(key: str, value: str) -> None:
    if is_secret(key, value) and not providers_in(value):
        raise ConfigError(
            f"{STORE_PREFIX}{key} is a secret, and Spark shows the options of a read: give a reference,"
            f" {FORMS}, to what driver and executors have. In a SQL text Spark replaces ${{env:NAME}}"
            " itself; use ${file:...} there"
        )
