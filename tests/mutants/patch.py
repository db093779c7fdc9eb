"""Take a guard out of a loaded module: the source of one function, with a piece of it replaced. WORLD.

Nothing that ships can do this: a mutant exists only in the process that a test started for it.
"""

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FunctionType
from typing import Any, NamedTuple


class Mutant(NamedTuple):
    """One guard to take out, and who must notice.

    target    "module:Class.function" or "module:function", below `firnline.`
    find      a piece of the function's source, there exactly once; `replace` takes its place
    tests     test files or node ids, one of which must fail; or
    seeds     simulator seeds, one of which must end with one of `invariants`
    profile   of whole clusters, whose seeds they are; else they are those of the quorum
    also      guards that are enough without this one: they are out, too
    """

    name: str
    target: str
    find: str
    replace: str
    tests: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    seconds: int | None = None
    invariants: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    profile: str = ""
    also: "tuple[Mutant, ...]" = ()


@contextmanager
def without(mutant: Mutant) -> Iterator[None]:
    """Live without the guard for a while."""
    functions = [find(each) for each in (mutant, *mutant.also)]
    before = [function.__code__ for function in functions]
    apply(mutant)
    try:
        yield
    finally:
        for function, code in zip(functions, before, strict=True):
            function.__code__ = code


def find(mutant: Mutant) -> FunctionType:
    """The function that holds the guard."""
    module_name, _, path = mutant.target.partition(":")
    owner: Any = import_module(f"firnline.{module_name}")
    *owners, name = path.split(".")
    for each in owners:
        owner = getattr(owner, each)
    found = inspect.getattr_static(owner, name)
    function = found.fget if isinstance(found, property) else found
    assert isinstance(function, FunctionType), f"{mutant.target} is no function"
    return function


def apply(mutant: Mutant) -> None:
    """Replace the function's code where it is loaded. AssertionError when its source has changed."""
    for each in mutant.also:
        apply(each)
    function = find(mutant)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(mutant.find) == 1, f"{mutant.name}: {mutant.target} has changed"
    changed = source.replace(mutant.find, mutant.replace)
    made: dict[str, Any] = {}
    where = inspect.getsourcefile(function) or mutant.target
    exec(compile(_undecorated(changed), where, "exec"), function.__globals__, made)  # noqa: S102
    # The code and not the name: others may have imported the function itself.
    function.__code__ = made[function.__name__].__code__


def _undecorated(source: str) -> str:
    lines = source.splitlines(keepends=True)
    while lines[0].startswith("@"):
        lines.pop(0)
    return "".join(lines)
