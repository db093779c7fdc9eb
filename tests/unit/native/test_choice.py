"""Who chooses between compiled code and Python, and that the rest does not notice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.native.compiled import needs_native

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
ROOMS = ["unit/api", "unit/runtime", "unit/records", "unit/log", "unit/spark"]
SHOW = """
from firnline.api.fast_path import common_request as a
from firnline.records.fast_path import common_batch as b
from firnline.runtime.turn import turn as c
print(*sorted({f.__module__ for f in (a, b, c)}))
"""


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@needs_native
def test_compiled_code_is_taken_where_it_is() -> None:
    assert python("-c", SHOW, FIRNLINE_NATIVE="").stdout.split() == ["firnline._native"]


def test_the_environment_forbids_compiled_code() -> None:
    reported = python("-c", SHOW, FIRNLINE_NATIVE="0").stdout.split()
    assert reported == [
        "firnline.api.fast_path",
        "firnline.records.fast_path",
        "firnline.runtime.turn",
    ]


def test_without_compiled_code_all_runs_in_python(tmp_path: Path) -> None:
    """As after an installation without a C compiler: the module is not there."""
    hide = "import sys; sys.modules['firnline._native'] = None\n"
    reported = python("-c", hide + SHOW, FIRNLINE_NATIVE="1").stdout.split()
    assert "firnline._native" not in reported
    assert len(reported) == 3


@pytest.mark.timeout(600)
def test_the_rooms_that_use_it_pass_their_tests_the_other_way_too() -> None:
    """With compiled code in this run they are run without it here, and the other way round."""
    other = "1" if os.environ.get("FIRNLINE_NATIVE") == "0" else "0"
    rooms = [str(ROOT / "tests" / room) for room in ROOMS]
    # The slow ones are about threads, sizes and processes: what is compiled makes no difference to them.
    quick = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow")
    done = python(*quick, *rooms, FIRNLINE_NATIVE=other)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
