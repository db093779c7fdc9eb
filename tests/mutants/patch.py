"""Take a guard out of a loaded module: the source of one function, with a piece of it replaced. WORLD.

Nothing that ships can do this: a mutant exists only in the process that a test started for it.
"""

import inspect
import textwrap
from importlib import import_module
from typing import Any, NamedTuple


class Mutant(NamedTuple):
    """One guard to take out, and who must notice.

    target    "module:Class.function" or "module:function", below `firnline.`
    find      a piece of the function's source, there exactly once; `replace` takes its place
    tests     test files or node ids, one of which must fail; or
    seeds     simulator seeds, one of which must end with one of `invariants`
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


def apply(mutant: Mutant) -> None:
    """Replace the function in the module that is loaded. AssertionError when its source has changed."""
    module_name, _, path = mutant.target.partition(":")
    module = import_module(f"firnline.{module_name}")
    *owners, name = path.split(".")
    owner: Any = module
    for each in owners:
        owner = getattr(owner, each)
    found = inspect.getattr_static(owner, name)
    function = found.fget if isinstance(found, property) else found
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(mutant.find) == 1, f"{mutant.name}: {mutant.target} has changed"
    changed = source.replace(mutant.find, mutant.replace)
    made: dict[str, Any] = {}
    exec(compile(changed, inspect.getsourcefile(function) or name, "exec"), vars(module), made)  # noqa: S102
    setattr(owner, name, made[name])
