"""Settings of the session as options of a read: they count where no option is given."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")

from pyspark.sql import SparkSession

from firnline.spark.session import options_of
from firnline.stores.directory import DirectoryStore
from tests.spark.written_tier import WrittenPartition, batches

pytestmark = pytest.mark.spark


def test_settings_are_options_and_an_option_comes_before_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name, end in (("one", 30), ("other", 50)):
        written = WrittenPartition(DirectoryStore(str(tmp_path / name)), "t", 0)
        written.segment(batches(0, end))
        written.publish()
    settings = {
        "spark.firnline.tier.uri": str(tmp_path / "one"),
        "spark.firnline.subscribe": "t",
        "spark.firnlines.not.ours": "x",
    }
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        given = options_of(spark)
        assert given == {"tier.uri": str(tmp_path / "one"), "subscribe": "t"}
        reader = spark.read.format("firnline").options(**given)
        assert reader.load().count() == 30
        assert reader.option("TIER.URI", str(tmp_path / "other")).load().count() == 50
        # In a SQL text Spark itself puts its settings in.
        spark.sql(
            "CREATE OR REPLACE TEMPORARY VIEW from_settings USING firnline OPTIONS"
            " (`tier.uri` '${spark.firnline.tier.uri}', subscribe 't')"
        )
        assert spark.sql("SELECT * FROM from_settings").count() == 30
        spark.conf.set("spark.firnline.tier.store.secret_access_key", "seen-by-everybody")
        with pytest.raises(Exception, match="secret_access_key is a secret") as problem:
            spark.read.format("firnline").options(**options_of(spark)).load()
        assert "seen-by-everybody" not in str(problem.value)
    finally:
        for key in (*settings, "spark.firnline.tier.store.secret_access_key"):
            spark.conf.unset(key)
