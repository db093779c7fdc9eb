"""A cluster of Spark reads a tier: a master and two workers, which have nothing of the source tree."""

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")

from firnline.spark.options.parse import parse_options
from firnline.spark.schema import COLUMNS
from firnline.spark.source import FirnlineReader
from firnline.stores.directory import DirectoryStore
from firnline.stores.registry import open_store
from tests.peers import s3
from tests.peers.kafka import PeerMissing
from tests.peers.nodes import eventually
from tests.peers.servers import Server
from tests.peers.spark_cluster import (
    Job,
    SparkCluster,
    build_wheel,
    clean_environment,
    environment,
    packed,
)
from tests.spark.tiered_topic import TOPIC, tiered_topic
from tests.spark.written_tier import WrittenPartition, batches

# Each job starts five JVMs and their Python workers: half a minute on two cores, and too slow for Spark's own
# deadlines beside other tests.
pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]
SECRET = "OF_THE_STORE"  # a variable of all machines
JOB = Path(__file__).with_name("cluster_job.py")


class World(NamedTuple):
    """A cluster, an environment with the wheel, and a tier whose broker is stopped."""

    cluster: SparkCluster
    python: Path
    client: Path  # a Python with Spark and without Firnline
    tier: Path
    folder: Path

    def submit(
        self,
        name: str,
        *reads: dict[str, Any],
        python: str = "",
        words: tuple[str, ...] = (),
        confs: Mapping[str, str] = {},
    ) -> Job:
        """Send the job, with its driver in a folder of the name."""
        return self.cluster.submit(
            JOB,
            self.argument(name, reads),
            folder=self.folder / name,
            environment={"PYSPARK_PYTHON": python or str(self.python), SECRET: s3.SECRET},
            options=words,
            confs=confs,
        )

    def argument(self, name: str, reads: Sequence[dict[str, Any]], remote: str = "") -> str:
        """Return the argument of cluster_job.py."""
        return json.dumps({"reads": reads, "out": str(self.out(name)), "remote": remote})

    def out(self, name: str) -> Path:
        """Return the file that a job writes."""
        return self.folder / f"{name}.json"

    def rows(self, name: str) -> list[list[list[Any]]]:
        """Return the rows of each read of a job."""
        return [sorted(rows) for rows in json.loads(self.out(name).read_text())]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        cluster = SparkCluster(folder / "nodes", {SECRET: s3.SECRET})
        stack.callback(cluster.stop)
        try:
            wheel = build_wheel(folder / "wheel")
        except PeerMissing as problem:
            pytest.skip(f"NOT RUN: {problem}")
        python = environment(folder / "environment", "grpc", wheel=wheel)
        client = environment(folder / "client", "grpc")
        with tiered_topic(folder / "broker") as (_, tier):
            pass
        cluster.add_workers()
        yield World(cluster, python, client, tier, folder)


def facts(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Return partition, offset and CRC of the value, of the rows of a job."""
    return [list(row[:3]) for row in rows]


def expected(options: Mapping[str, str]) -> list[list[Any]]:
    """What this process reads, without Spark: partition, offset and CRC of the value."""
    reader = FirnlineReader(parse_options(options), COLUMNS)
    found = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            columns = (batch[name].to_pylist() for name in ("partition", "offset", "value"))
            for p, o, v in zip(*columns, strict=True):
                found.append([p, o, None if v is None else zlib.crc32(v)])
    return sorted(found)


def workers_of(rows: Iterable[Sequence[Any]]) -> set[str]:
    """Return the workers in whose directories executors read the rows."""
    return {Path(row[4]).parts[-4] for row in rows}


def test_a_wheel_brings_the_code_and_a_worker_that_is_killed_costs_no_row(
    world: World, tmp_path: Path
) -> None:
    written = WrittenPartition(DirectoryStore(str(tmp_path / "tier")), "long", 0)
    for base in range(0, 24_000, 2000):
        written.segment(batches(base, base + 2000))
    written.publish()
    ran = tmp_path / "ran"
    ran.mkdir()
    short = {"tier.uri": str(world.tier), "subscribe": TOPIC, "minPartitions": "6"}
    long = {"tier.uri": str(tmp_path / "tier"), "subscribe": "long", "minPartitions": "24"}
    job = world.submit(
        "by-wheel", {"options": short}, {"options": long, "slow_s": 0.2, "ran": str(ran)}
    )
    try:
        eventually("tasks have ended", lambda: len(os.listdir(ran)) >= 4, within_s=240)
        world.cluster.kill("worker-2")
        assert len(os.listdir(ran)) < 20, "it is not the middle of the scan"
        said = job.wait()
    finally:
        job.stop()
        world.cluster.add_workers()
    first, second = world.rows("by-wheel")
    assert facts(first) == expected(short)
    assert {row[3] for row in first} == {str(world.python)}
    assert workers_of(first) == {"worker-1", "worker-2"}
    assert "asOf=" in said
    assert facts(second) == expected(long)
    assert [row[1] for row in second] == list(range(24_000))


@pytest.mark.peer
def test_executors_have_the_secret_of_a_store_from_their_own_environment(
    world: World, start_store: Callable[[str], Server]
) -> None:
    server = start_store("s3")
    written = WrittenPartition(open_store(server.uri, server.settings), "t", 0)
    written.segment(batches(0, 2000))
    written.publish()
    settings = {**server.settings, "secret_access_key": f"${{env:{SECRET}}}"}
    options = {f"tier.store.{key}": value for key, value in settings.items()}
    options |= {"tier.uri": server.uri, "subscribe": "t", "minPartitions": "4"}
    events = world.folder / "events"
    events.mkdir()
    confs = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
    confs |= {"spark.eventLog.compress": "false"}
    said = world.submit("by-secret", {"options": options}, confs=confs).wait()
    (found,) = world.rows("by-secret")
    assert [row[1] for row in found] == list(range(2000))
    logged = [path.read_bytes() for path in events.rglob("*") if path.is_file()]
    assert any(b"SparkListenerTaskEnd" in each for each in logged)
    for text in (said, world.cluster.said(), world.cluster.page(""), *map(repr, logged)):
        assert s3.SECRET not in text


def test_an_archive_brings_the_code(world: World) -> None:
    options = {"tier.uri": str(world.tier), "subscribe": TOPIC}
    top = world.python.parent.parent
    archive = packed(top, world.folder / "environment.tar.gz")
    # Spark unpacks it for executors alone, and plans with the Python of the same relative path.
    driver = world.folder / "by-archive"
    driver.mkdir()
    (driver / "environment").symlink_to(top)
    words = ("--archives", f"{archive}#environment")
    world.submit(
        "by-archive", {"options": options}, python="./environment/bin/python", words=words
    ).wait()
    (found,) = world.rows("by-archive")
    assert facts(found) == expected(options)
    assert all(row[3].startswith(str(world.cluster.folder)) for row in found)


def test_a_client_of_spark_connect_needs_nothing_of_ours(world: World) -> None:
    pytest.importorskip("grpc", reason="NOT RUN: grpcio is not installed: pyspark[connect]")
    options = {"tier.uri": str(world.tier), "subscribe": TOPIC}
    folder = world.folder / "by-connect"
    server = world.cluster.connect_server(folder, {"PYSPARK_PYTHON": str(world.python)})
    try:
        remote = f"sc://127.0.0.1:{world.cluster.connect_port}"
        argument = world.argument("by-connect", [{"options": options}], remote)
        client = folder / "client"
        client.mkdir()
        job = Path(shutil.copy(JOB, client))
        Job(
            [str(world.client), str(job), argument],
            client,
            clean_environment(client, world.cluster.spark),
        ).wait()
    finally:
        server.stop()
    (found,) = world.rows("by-connect")
    assert facts(found) == expected(options)
    assert {row[3] for row in found} == {str(world.python)}
