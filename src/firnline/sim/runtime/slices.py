"""Slices of a few items, so that three partitions show what else only a thousand would. SIM.

Whatever is done in slices says in a constant of its module how much goes into one. A run of a seed that has
`slice_items` makes all of them that small: then others have their turn between any two partitions.
"""

import pkgutil
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module

_NAME = re.compile(r"_?[A-Z_]*(PER_SLICE|PER_STEP|PER_FETCH|AT_ONCE|SLICE_COST)")
# The parts of a node that are the same in a simulation.
_PARTS = (
    *("api", "api.handlers", "base", "broker", "broker.tier", "controller", "coordinator", "log"),
    *("log.compaction", "metadata", "outbound", "raft", "replica", "tiered", "tiered.metadata"),
)


@cache
def constants() -> dict[tuple[str, str], int]:
    """Return what goes into a slice, by module and name. Handlers are loaded late, or else here."""
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
    """Let every slice be of so many items (or bytes: of one batch); 0: as they are in production."""
    before = constants() if items else {}
    for module, name in before:
        setattr(sys.modules[module], name, items)
    try:
        yield
    finally:
        for (module, name), value in before.items():
            setattr(sys.modules[module], name, value)
