"""Whether the Python that Spark starts has what a read of the tier needs. WORLD.

Spark looks for data sources in its own Python: PYSPARK_DRIVER_PYTHON, else PYSPARK_PYTHON, else `python3` on
the PATH. If that one lacks Firnline, Spark says "Failed to find the data source: firnline" and no more.
"""

import os
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_NEEDED = ("pyspark", "pyarrow", "firnline")
_START_S = 60
# PySpark 4.0 has no filters of data sources, so the source cannot be loaded there.
_NEWER = "pyspark>=4.1"
_PROBE = f"""
from importlib.util import find_spec
missing = [name for name in {_NEEDED} if find_spec(name) is None]
if "pyspark" not in missing and find_spec("pyspark.sql.worker.data_source_pushdown_filters") is None:
    missing.append("{_NEWER}")
print(*missing)
"""


class WrongPython(NamedTuple):
    """An interpreter that Spark would start, and what is wrong with it."""

    variable: str
    what: str
    remedy: str


def wrong_pythons() -> Iterator[WrongPython]:
    """Look at each interpreter that the environment names for Spark; yield those that cannot read a tier."""
    for variable in VARIABLES:
        python = os.environ.get(variable)
        if not python:
            continue
        try:
            done = subprocess.run(
                [python, "-c", _PROBE], capture_output=True, text=True, check=True, timeout=_START_S
            )
        except (OSError, subprocess.SubprocessError) as problem:
            yield WrongPython(variable, f"{python} does not run: {problem}", f"unset {variable}")
            continue
        if missing := done.stdout.split():
            yield WrongPython(
                variable,
                f"{python} cannot import {', '.join(missing)}: Spark would not find the data source",
                f"{python} -m pip install 'firnline[spark]'; or unset {variable}",
            )
