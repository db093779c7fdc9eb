"""`firnline tier check`: whether a store, or a user's own class, does what a tier needs. WORLD."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from firnline.base.errors import ConfigError
from firnline.cli.show import SOMETHING_IS_WRONG, format_option, rows
from firnline.cli.tier.storage_check import StorageCheck
from firnline.cli.tier.store import named_store, store_options, tier_config
from firnline.config.broker import BrokerConfig
from firnline.server.plugins import STORAGE_KEY, own_storage
from firnline.stores.cloud import secret_in_use
from firnline.stores.conformance import Outcome, StoreCheck
from firnline.stores.port import ObjectStore
from firnline.stores.registry import open_store
from firnline.tiered.objects.storage import ObjectStorage
from firnline.tiered.spi import RemoteStorage


@click.command()
@click.argument("uri", required=False)
@store_options
@format_option
def check(uri: str | None, overrides: tuple[str, ...], file: Path | None, style: str) -> None:
    """Check that a store does what a tier needs: a directory, or a store that the tier can use.

    It puts about 1,100 objects of 21 MiB in all below a folder of its own, and deletes them again. In a
    directory the file .firnline-tier, which marks it as a tier, stays, and there and in HDFS an empty folder.
    If the settings name a class of your own (remote.log.storage.manager.class.name), it is loaded and
    configured as by a broker, and copies, reads and deletes about 120 segments of a topic of its own. The
    exit status is 3 if the store does not do what it must.
    """
    config = tier_config(overrides, file)
    storage = own_storage(config)
    if storage is not None:
        outcomes = list(_of_class(storage, uri, config))
    else:
        uri, given = named_store(uri, config, usage="firnline tier check URI")
        outcomes = list(StoreCheck(open_store(uri, given), _wrong(uri, given)).run())
    rows(list(_rows(outcomes)), style, empty="nothing was checked", sentences=("remark",))
    if any(outcome.problem for outcome in outcomes):
        sys.exit(SOMETHING_IS_WRONG)


def _of_class(storage: RemoteStorage, uri: str | None, config: BrokerConfig) -> Iterator[Outcome]:
    """Check a class, and the object store in it if it is made of the built-in one."""
    if uri:
        raise ConfigError(
            f"{STORAGE_KEY}={config.remote_log_storage_manager_class_name} is a class of your own, which"
            " knows its store by its settings",
            remedy=f"leave out {uri} to check the class, or the class to check {uri}",
        )
    try:
        if isinstance(storage, ObjectStorage):
            yield from _redacted(StoreCheck(storage.store).run(), config)
        yield from _redacted(StorageCheck(storage).run(), config)
    finally:
        storage.close()


def _redacted(outcomes: Iterator[Outcome], config: BrokerConfig) -> Iterator[Outcome]:
    """Hide secrets of the settings: a class of a user may repeat them in its errors."""
    for each in outcomes:
        problem = None if each.problem is None else config.redact(each.problem)
        yield each._replace(problem=problem)


class _Wrong:
    """Opens the same store with another secret."""

    def __init__(self, uri: str, settings: Mapping[str, str]) -> None:
        self._uri = uri
        self._settings = settings

    def __call__(self) -> ObjectStore:
        return open_store(self._uri, self._settings)


def _wrong(uri: str, given: Mapping[str, str]) -> _Wrong | None:
    """Return what opens the store with a wrong secret, if a setting or the environment has the right one."""
    secret = secret_in_use(uri, given)
    if secret is None:
        return None
    key, value = secret
    # The same length and alphabet, and the same padding of Base64: the store, not the client, has to
    # refuse it.
    body, end = value[:-4], value[-4:]
    other = body.swapcase()[::-1] + end
    return None if other == value else _Wrong(uri, {**given, key: other})


def _rows(outcomes: list[Outcome]) -> Iterator[dict[str, object]]:
    for outcome in outcomes:
        yield {
            "check": outcome.name,
            "result": "ok" if outcome.problem is None else "FAILED",
            "ms": outcome.took_ms,
            "remark": outcome.problem or outcome.note,
        }
