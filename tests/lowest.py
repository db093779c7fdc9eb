"""The lowest versions that pyproject.toml declares, as constraints for pip: for `make lowest`. WORLD.

    python -m tests.lowest > constraints.txt

They are computed from the bounds, so no list of them can differ.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_DECLARED = re.compile(r"(?P<name>[\w-]+)(?:\[[\w,-]+\])?(?P<bounds>[^;]*)(?P<marker>;.*)?")
_BOUND = re.compile(r"\s*(?:>=|==)\s*([\w.]+)\s*")


def packages(project: dict[str, Any]) -> list[str]:
    """Return what the table `project` declares, of all extras, too; not an extra that takes another one."""
    extras = project["optional-dependencies"].values()
    declared = [*project["dependencies"], *(each for extra in extras for each in extra)]
    return [each for each in declared if not each.startswith(f"{project['name']}[")]


def constraints(project: dict[str, Any]) -> list[str]:
    """Return `name==version` of each package that the table `project` and its extras declare, sorted.

    ValueError for a package without a lowest version, or with two.
    """
    found: dict[str, str] = {}
    for declared in packages(project):
        parts = _DECLARED.fullmatch(declared)
        assert parts is not None, declared
        lowest = [
            bound[1] for each in parts["bounds"].split(",") if (bound := _BOUND.fullmatch(each))
        ]
        if len(lowest) != 1:
            raise ValueError(f"no lowest version: {declared}")
        pin = f"{parts['name']}=={lowest[0]}"
        if found.setdefault(parts["name"], pin) != pin:
            raise ValueError(f"two lowest versions: {declared}")
    return sorted(found.values())


def declared_project() -> dict[str, Any]:
    """Return the table `project` of pyproject.toml."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


if __name__ == "__main__":
    print("\n".join(constraints(declared_project())))
