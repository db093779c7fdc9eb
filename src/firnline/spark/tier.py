"""Opens the tier of a read, on the driver and on executors. SPARK, without Spark."""

from collections.abc import Mapping

from firnline.base.errors import ConfigError
from firnline.config.providers import Redaction
from firnline.spark.options.tier import STORE_PREFIX
from firnline.stores.port import ObjectStore
from firnline.stores.references import dereferenced
from firnline.stores.registry import open_store


def open_tier(uri: str, settings: Mapping[str, str]) -> ObjectStore:
    """Open the store of `uri`, which exists.

    settings  of its client library; references are replaced by what this machine has

    Raises ConfigError. Neither it nor any error of the store repeats what a reference stands for.
    """
    found = dereferenced({STORE_PREFIX + key: value for key, value in settings.items()})
    values = {key.removeprefix(STORE_PREFIX): value for key, value in found.values.items()}
    hidden = [text for texts in found.texts.values() for text in texts]
    try:
        return open_store(uri, values, is_writer=False, hidden=hidden)
    except ConfigError as problem:
        said = str(problem).replace("rsm.config.store.", STORE_PREFIX)
        raise ConfigError(Redaction(hidden)(said)) from None
