"""`firnline tier check`: whether a store does what a tier needs. WORLD."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from firnline.cli.show import SOMETHING_IS_WRONG, format_option, rows
from firnline.cli.tier.store import named_store, store_options
from firnline.stores.conformance import Outcome, StoreCheck
from firnline.stores.port import ObjectStore
from firnline.stores.registry import open_store

# A setting with one of these at its end is a secret that can be wrong.
_SECRETS = ("secret_access_key", "account_key", "access_key")


@click.command()
@click.argument("uri", required=False)
@store_options
@format_option
def check(uri: str | None, overrides: tuple[str, ...], file: Path | None, style: str) -> None:
    """Check that a store does what a tier needs: a directory, or a store that the tier can use.

    It puts about 1,100 objects of 21 MiB in all below a folder of its own, and deletes them again. The exit
    status is 3 if the store does not do what it must.
    """
    uri, given = named_store(uri, overrides, file, usage="firnline tier check URI")
    store = open_store(uri, given)
    outcomes = list(StoreCheck(store, _wrong(uri, given)).run())
    rows(list(_rows(outcomes)), style, empty="nothing was checked")
    if any(outcome.problem for outcome in outcomes):
        sys.exit(SOMETHING_IS_WRONG)


class _Wrong:
    """Opens the same store with another secret."""

    def __init__(self, uri: str, settings: Mapping[str, str]) -> None:
        self._uri = uri
        self._settings = settings

    def __call__(self) -> ObjectStore:
        return open_store(self._uri, self._settings)


def _wrong(uri: str, given: Mapping[str, str]) -> _Wrong | None:
    """Return what opens the store with a wrong secret, if a setting names the right one."""
    for key, value in given.items():
        if key.replace(".", "_").endswith(_SECRETS):
            # The same length and alphabet, and the same padding of Base64: the store, not the client, has to
            # refuse it.
            body, end = value[:-4], value[-4:]
            return _Wrong(uri, {**given, key: body.swapcase()[::-1] + end})
    return None


def _rows(outcomes: list[Outcome]) -> Iterator[dict[str, object]]:
    for outcome in outcomes:
        yield {
            "check": outcome.name,
            "result": "ok" if outcome.problem is None else "FAILED",
            "ms": outcome.took_ms,
            "remark": outcome.problem or outcome.note,
        }
