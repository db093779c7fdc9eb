"""Pins what a read will take, before it is read. SPARK.

cut = pin({"tier.uri": "/data/tier", "kafka.bootstrap.servers": "localhost:9092", "subscribe": "flights"})
spark.read.format("firnline").options(**options).option("asOf", cut).load()
"""

from collections.abc import Mapping

from firnline.spark.access.tier import open_tier
from firnline.spark.options.brokers import BROKER
from firnline.spark.options.parse import parse_options
from firnline.spark.planning.scan import plan_read


def pin(options: Mapping[str, str]) -> str:
    """Return the cut that a read with these options would take now, as JSON in one line.

    Raises the errors of `plan_read`.
    """
    parsed = parse_options(options)
    if parsed.read_from == BROKER:
        return plan_read(None, parsed).cut.text()
    store = open_tier(parsed.tier_uri, parsed.store_settings)
    try:
        return plan_read(store, parsed).cut.text()
    finally:
        store.close()
