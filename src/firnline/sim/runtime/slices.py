"""Slices of a few items, so that three partitions show what otherwise only a thousand would. SIM.

Every task that runs in slices has a constant with the slice size in its module. A run whose seed has
`slice_items` sets all of them that low, so that other work runs between any two partitions.
"""

import pkgutil
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module

_NAME = re.compile(r"_?[A-Z_]*(PER_SLICE|PER_STEP|PER_FETCH|AT_ONCE|SLICE_COST)")
# Parts of a node that are the same in a simulation.
_PARTS = (
    *("api", "api.handlers", "base", "broker", "broker.tier", "controller", "coordinator", "log"),
    *("log.compaction", "metadata", "outbound", "raft", "replica", "tiered", "tiered.metadata"),
)


@cache
def constants() -> dict[tuple[str, str], int]:
    """Return all slice sizes, by module and name. Handlers are imported lazily, so import them here."""
    found = {}
    for part in _PARTS:
        package = import_module(f"firnline.{part}")
        for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for name, value in vars(import_module(each.name)).items():
                if _NAME.fullmatch(name) and type(value) is int:
                    found[each.name, name] = value
    return found


@contextmanager
def small_slices(items: int) -> Iterator[None]:
    """Set every slice size to so many items (bytes: to one batch); 0: as in production."""
    before = constants() if items else {}
    for module, name in before:
        setattr(sys.modules[module], name, items)
    try:
        yield
    finally:
        for (module, name), value in before.items():
            setattr(sys.modules[module], name, value)
