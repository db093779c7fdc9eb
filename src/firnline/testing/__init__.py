"""Brokers and clusters for tests, with pytest (`plugin.py`) and without it. WORLD; users may use it.

    from firnline.testing import Broker

    with Broker() as broker:
        orders = broker.create_topic("orders", partitions=3)
        orders.put("order 1")
        assert orders.values() == [b"order 1"]

The names are imported when they are first used: the pytest plugin is part of each test run on a machine with
Firnline, and costs it nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firnline.testing.broker import Broker
    from firnline.testing.cluster import Cluster
    from firnline.testing.process import Died
    from firnline.testing.topic import Record, Topic

__all__ = ["Broker", "Cluster", "Died", "Record", "Topic"]
_MODULES = {
    "Broker": "broker",
    "Cluster": "cluster",
    "Died": "process",
    "Record": "topic",
    "Topic": "topic",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
