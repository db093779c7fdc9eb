"""One Spark for all tests that need it, started when the first of them runs."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")
    from firnline.base.errors import ConfigError
    from firnline.spark.session import session

    try:
        started = session("tests", cores=2, is_brief=True)
    except ConfigError as problem:
        pytest.skip(f"NOT RUN: {problem}")
    yield started
    started.stop()
