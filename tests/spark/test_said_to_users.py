"""What a user of Spark sees on the terminal when the tier does not have everything."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")

from firnline.stores.directory import DirectoryStore
from tests.spark.written_tier import WrittenPartition, batch

pytestmark = pytest.mark.spark

_JOB = """
import sys
from firnline.spark.session import session

spark = session("said", is_brief=True)
options = {"tier.uri": sys.argv[1], "subscribe": "t"}
print("rows:", spark.read.format("firnline").options(**options).load().count())
"""


def test_a_count_of_a_tier_that_lacks_records_says_so_with_the_command(tmp_path: Path) -> None:
    """50 records that were not copied, and Spark said 0 without a word."""
    store = DirectoryStore(str(tmp_path / "tier"))
    WrittenPartition(store, "t", 0).publish()
    known = WrittenPartition(store, "t", 1)
    known.segment([batch(0, 7)])
    known.publish(log_end=9)
    done = subprocess.run(
        [sys.executable, "-c", _JOB, str(tmp_path / "tier")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )
    assert "rows: 7\n" in done.stdout, done.stderr
    assert "no segment is in the tier yet, so no record is read partitions=t-0" in done.stderr
    assert "the newest records, and they are not read partitions=t-1 at_least=2" in done.stderr
    assert done.stderr.count("`firnline tier flush t`") == 2
