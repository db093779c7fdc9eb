"""The notebook of the examples prints what it says."""

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")
pytest.importorskip("confluent_kafka", reason="NOT RUN: confluent-kafka is not installed")

from pyspark.sql import SparkSession

from tests.spark.notebook import run

NOTEBOOK = Path(__file__).parents[2] / "examples" / "past_and_tail.ipynb"


@pytest.mark.spark
def test_each_cell_of_the_notebook_prints_what_the_notebook_shows(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    cells = run(NOTEBOOK)
    assert len(cells) >= 9
    assert sum(1 for _, kept, _ in cells if kept) >= 5
    for source, kept, printed in cells:
        assert printed == kept, source
