"""Pins what a read will take, before it is read. SPARK.

cut = pin({"tier.uri": "/data/tier", "kafka.bootstrap.servers": "localhost:9092", "subscribe": "flights"})
spark.read.format("firnline").options(**options).option("asOf", cut).load()
"""

from collections.abc import Mapping

from firnline.spark.options.brokers import BROKER
from firnline.spark.options.parse import parse_options
from firnline.spark.planning.scan import plan_read
from firnline.stores.registry import open_store


def pin(options: Mapping[str, str]) -> str:
    """Return the cut that a read with these options would take now, as JSON in one line.

    Raises the errors of `plan_read`.
    """
    parsed = parse_options(options)
    if parsed.read_from == BROKER:
        return plan_read(None, parsed).cut.text()
    store = open_store(parsed.tier_uri, parsed.store_settings, is_writer=False)
    try:
        return plan_read(store, parsed).cut.text()
    finally:
        store.close()
