"""Spark reads a tier in an object store: the plan and every task open it by the user's options."""

from collections.abc import Callable

import pytest

from tests.peers.servers import Server
from tests.spark.written_tier import WrittenPartition, batches

pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")

from pyspark.sql import SparkSession

from firnline.stores.registry import open_store


@pytest.mark.spark
@pytest.mark.peer
@pytest.mark.parametrize("name", ["s3", "azurite"])
def test_spark_reads_a_tier_in_an_object_store(
    spark: SparkSession, start_store: Callable[[str], Server], name: str
) -> None:
    server = start_store(name)
    written = WrittenPartition(open_store(server.uri, server.settings), "t", 0)
    written.segment(batches(0, 2000, epoch=1), ((1, 0),))
    written.segment(batches(2000, 5000, epoch=1), ((1, 2000),))
    written.publish(((1, 0),))
    settings = {f"tier.store.{key}": value for key, value in server.settings.items()}
    rows = (
        spark.read.format("firnline")
        .options(**{"tier.uri": server.uri, "subscribe": "t", "splitBytes": "50k"}, **settings)
        .load()
    )
    assert rows.rdd.getNumPartitions() > 1
    assert sorted(row.offset for row in rows.select("offset").collect()) == list(range(5000))
