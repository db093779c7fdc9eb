"""Spark reads a tier in a real store: S3, HDFS, Azure. Secrets are references, and nothing shows them."""

import io
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tests.peers.servers import Server
from tests.peers.store_proxy import StoreProxy
from tests.spark.written_tier import WrittenPartition, batches

pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")

from pyspark.sql import DataFrame, SparkSession

from firnline.stores.cloud import is_secret
from firnline.stores.registry import open_store

pytestmark = [pytest.mark.spark, pytest.mark.peer]
OFFSETS = 5000
STORES = ("s3", "azurite", "hdfs")


@pytest.fixture(scope="module", params=STORES)
def server(request: pytest.FixtureRequest, start_store: Callable[[str], Server]) -> Server:
    """A server with the topic `t`, in two segments."""
    server = start_store(request.param)
    written = WrittenPartition(open_store(server.uri, server.settings), "t", 0)
    written.segment(batches(0, 2000, epoch=1), ((1, 0),))
    written.segment(batches(2000, OFFSETS, epoch=1), ((1, 2000),))
    written.publish(((1, 0),))
    return server


def options_of(uri: str, settings: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the options of a read whose secrets are in a file; see `secrets_in`."""
    file = folder / "store.properties"
    secrets = {key: value for key, value in settings.items() if is_secret(key, value)}
    file.write_text("".join(f"{key}={value}\n" for key, value in secrets.items()))
    file.chmod(0o600)
    shown = {key: f"${{file:{file}:{key}}}" for key in secrets}
    given = {f"tier.store.{key}": value for key, value in {**settings, **shown}.items()}
    return {"tier.uri": uri, "subscribe": "t", "splitBytes": "50k", **given}


def secrets_in(settings: Mapping[str, str]) -> list[str]:
    """Return the secrets among the settings of a server."""
    return [value for key, value in settings.items() if is_secret(key, value)]


def load(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    return spark.read.format("firnline").options(**options).load()


def test_the_same_table_comes_from_each_store(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    rows = load(spark, options_of(server.uri, server.settings, tmp_path))
    assert rows.rdd.getNumPartitions() > 1
    found = sorted((row.offset, row.value) for row in rows.select("offset", "value").collect())
    assert [offset for offset, _ in found] == list(range(OFFSETS))
    assert found[4321][1].startswith(b":4321")


@pytest.fixture
def s3(start_store: Callable[[str], Server]) -> Server:
    return start_store("s3")


def test_no_plan_task_table_or_error_has_a_secret(
    spark: SparkSession,
    s3: Server,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = secrets_in(s3.settings)
    assert secrets
    options = options_of(s3.uri, s3.settings, tmp_path)
    shown = io.StringIO()
    with redirect_stdout(shown):
        rows = load(spark, options).select("offset")
        for mode in ("simple", "extended", "formatted", "cost", "codegen"):
            rows.explain(mode=mode)
        assert rows.count() == OFFSETS
        shown.write(rows._jdf.queryExecution().toString())
        pairs = ", ".join(f"`{key}` '{value}'" for key, value in options.items())
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW secretive USING firnline OPTIONS ({pairs})")
        assert spark.sql("SELECT offset FROM secretive").count() == OFFSETS
        spark.sql("DESCRIBE EXTENDED secretive").show(100, truncate=False)
        # A wrong secret is in no error either, and the store repeats what it got.
        wrong = tmp_path / "wrong.properties"
        wrong.write_text("key=a-wrong-secret-nobody-may-see\n")
        refused = {**options, "tier.store.secret_access_key": f"${{file:{wrong}:key}}"}
        with pytest.raises(Exception, match="refuses the credentials") as problem:
            load(spark, refused).count()
    out, err = capfd.readouterr()
    said = shown.getvalue() + out + err + caplog.text + str(problem.value)
    for secret in (*secrets, "a-wrong-secret-nobody-may-see"):
        assert secret not in said
    assert "firnline" in shown.getvalue()


def test_a_literal_secret_is_refused_before_there_is_a_plan(
    spark: SparkSession, s3: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = {f"tier.store.{key}": value for key, value in s3.settings.items()}
    with pytest.raises(Exception, match="secret_access_key is a secret") as problem:
        load(spark, {"tier.uri": s3.uri, "subscribe": "t", **settings})
    out, err = capfd.readouterr()
    for secret in secrets_in(s3.settings):
        assert secret not in str(problem.value) + out + err


def test_spark_puts_variables_into_a_sql_text_and_that_is_refused(
    spark: SparkSession, s3: Server
) -> None:
    with pytest.raises(Exception, match=r"secret_access_key is a secret.*In a SQL text") as problem:
        spark.sql(
            f"CREATE TEMPORARY VIEW x USING firnline OPTIONS (`tier.uri` '{s3.uri}', subscribe 't',"
            f" `tier.store.secret_access_key` '${{env:PATH}}')"
        )
    assert os.environ["PATH"] not in str(problem.value)


def test_a_scan_of_a_store_with_latency_asks_ahead(
    spark: SparkSession, s3: Server, tmp_path: Path
) -> None:
    with StoreProxy(s3, latency_ms=20) as proxy:
        rows = load(
            spark, {**options_of(s3.uri, proxy.settings, tmp_path), "windowBytes": "20k"}
        ).select("offset")
        assert rows.count() == OFFSETS
        assert proxy.most_at_once > 1
