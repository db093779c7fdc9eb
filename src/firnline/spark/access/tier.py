"""Opens the tier of a read, on the driver and on executors. SPARK, without Spark."""

import os
from collections.abc import Mapping
from threading import Lock

from firnline.base.errors import ConfigError
from firnline.config.providers import Redaction
from firnline.spark.options.tier import STORE_PREFIX
from firnline.stores.cloud import SCHEMES
from firnline.stores.port import ObjectStore
from firnline.stores.references import dereferenced
from firnline.stores.registry import open_store

# To make a client of these stores takes 20 ms of CPU, and its first request a new connection: more than all
# else in a small task. Spark's workers read many, so the last clients are kept. Their `close` does nothing.
KEPT = 4
_kept: dict[object, ObjectStore] = {}
_change = Lock()


def open_tier(uri: str, settings: Mapping[str, str]) -> ObjectStore:
    """Open the store of `uri`, which exists.

    settings  of its client library; references are replaced by what this machine has

    Raises ConfigError. Neither it nor any error of the store repeats what a reference stands for.
    """
    found = dereferenced({STORE_PREFIX + key: value for key, value in settings.items()})
    values = {key.removeprefix(STORE_PREFIX): value for key, value in found.values.items()}
    hidden = [text for texts in found.texts.values() for text in texts]
    scheme = SCHEMES.get(uri.partition("://")[0])
    if scheme is None:
        return _opened(uri, values, hidden)
    # A secret that has changed is another client, also one that the client library takes from a variable.
    variables = {k: v for k, v in os.environ.items() if k.startswith(scheme.variables)}
    same = (uri, tuple(sorted(values.items())), tuple(sorted(variables.items())))
    with _change:
        store = _kept.pop(same, None) or _opened(uri, values, hidden)
        _kept[same] = store
        while len(_kept) > KEPT:
            del _kept[next(iter(_kept))]
    return store


def _opened(uri: str, values: Mapping[str, str], hidden: list[str]) -> ObjectStore:
    try:
        return open_store(uri, values, is_writer=False, hidden=hidden)
    except ConfigError as problem:
        said = str(problem).replace("rsm.config.store.", STORE_PREFIX)
        raise ConfigError(Redaction(hidden)(said)) from None
