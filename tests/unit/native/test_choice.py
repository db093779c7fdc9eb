"""Who chooses between compiled code and Python, and that the rest does not notice."""

import ast
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.turns import in_turns
from tests.unit.native.compiled import native, needs_native

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
# Of unit/api and unit/records the others call nothing that is compiled.
ROOMS = ("unit/api/test_short_paths.py", "unit/runtime", "unit/records", "unit/log", "unit/spark")
WITHOUT = ["unit/records/test_times.py", "unit/runtime/test_freeing.py"]
# One round of the fuzzer: `unit/native` compares both cleaners byte for byte.
ONE_ROUND = "not nothing_is_lost_and_nothing_comes_back or 10"
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


def test_where_there_is_a_compiler_what_is_declared_was_compiled() -> None:
    """The build goes on without C that does not compile, and what an older source left behind stays."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        pytest.skip(f"NOT RUN: there is no {compiler}")
    assert native is not None, "src/firnline/_native.c does not compile"
    declared = ast.parse((ROOT / "src/firnline/_native.pyi").read_text()).body
    names = {each.name for each in declared if isinstance(each, ast.FunctionDef)}
    assert names == {
        name for name in dir(native) if callable(getattr(native, name)) and name[0] != "_"
    }


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
@pytest.mark.parametrize("room", in_turns(ROOMS))
def test_a_room_that_uses_it_passes_its_tests_the_other_way_too(room: str) -> None:
    """With compiled code in this run they are run without it here, and the other way round."""
    other = "1" if os.environ.get("FIRNLINE_NATIVE") == "0" else "0"
    tests = [str(ROOT / "tests" / room), *(f"--ignore={ROOT / 'tests' / file}" for file in WITHOUT)]
    # The slow ones are about threads, sizes and processes: what is compiled makes no difference to them.
    quick = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", "-k", ONE_ROUND)
    done = python(*quick, *tests, FIRNLINE_NATIVE=other)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
