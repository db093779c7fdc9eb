"""What a user of Spark can do about an error of the tier. SPARK, without Spark.

The library of a store and the code that finds damage serve brokers, too, where other things help.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from firnline.base.errors import StorageError
from firnline.spark.options.tier import STORE_PREFIX
from firnline.spark.schema import CorruptSegment
from firnline.stores.cloud import SCHEMES
from firnline.stores.port import RemoteStorageError, StoreRefused
from firnline.stores.registry import path_of
from firnline.tiered.catalog.format import CatalogCorrupt

_REMEDY = "remedy"
_DIRECTORY = (
    "driver and executors must all see the directory under this path, and be allowed to read it"
)
_REACH = "see that the store can be reached from the machine that says this"
_STORE = (
    f"{_REACH}; {STORE_PREFIX}timeout (30s) is how long"
    f" a request may take, {STORE_PREFIX}max_retries (1) how often it is repeated"
)
_DAMAGE = (
    "put the object back from a copy of the tier; readFrom=broker reads what brokers still have on their"
    " disks, and offsets before and after it can be read as ever"
)


@contextmanager
def advised(uri: str) -> Iterator[None]:
    """Add to an error of the tier at `uri`, or of what lies there, what helps; unless it says so itself."""
    try:
        yield
    except StorageError as problem:
        remedy = _remedy(problem, uri)
        if remedy is not None:
            problem.facts.setdefault(_REMEDY, remedy)
        raise


def _remedy(problem: StorageError, uri: str) -> str | None:
    if isinstance(problem, (CorruptSegment, CatalogCorrupt)):
        return _DAMAGE
    if not isinstance(problem, RemoteStorageError) or isinstance(problem, StoreRefused):
        return None
    if uri.partition("://")[0] in SCHEMES:
        return _STORE
    return _REACH if path_of(uri) is None else _DIRECTORY
