"""A cluster of Spark reads a tier: a master and two workers, which have nothing of the source tree."""

import json
import shutil
import zlib
from collections import Counter
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

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
# A job starts three JVMs and their Python workers, and needs 20 s of a core. One job is enough for each
# `make test`: that of the wheel and of the worker that is killed.
long_form = pytest.mark.soak
SECRET = "OF_THE_STORE"  # a variable of all machines
JOB = Path(__file__).with_name("cluster_job.py")


class World(NamedTuple):
    """A cluster, and an environment with the wheel."""

    cluster: SparkCluster
    python: Path
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
        cluster.add_workers()
        yield World(cluster, python, folder)


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tier that a broker has made, which is stopped."""
    with tiered_topic(tmp_path_factory.mktemp("broker")) as (_, made):
        pass
    return made


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


def worker_at(folder: str) -> str:
    """Return the worker in whose directory an executor ran."""
    return Path(folder).parts[-4]


def test_a_wheel_brings_the_code_and_a_worker_that_is_killed_costs_no_row(
    world: World, tmp_path: Path
) -> None:
    written = WrittenPartition(DirectoryStore(str(tmp_path / "tier")), "long", 0)
    for base in range(0, 16_000, 2000):
        written.segment(batches(base, base + 2000))
    written.publish()
    ran = tmp_path / "ran"
    ran.mkdir()
    options = {"tier.uri": str(tmp_path / "tier"), "subscribe": "long", "minPartitions": "16"}
    # No task begins before both workers have an executor.
    both = {"spark.scheduler.minRegisteredResourcesRatio": "1.0"}
    job = world.submit("by-wheel", {"options": options, "slow_s": 0.5, "ran": str(ran)}, confs=both)

    def done() -> Counter[str]:
        """Return how many tasks each worker has ended."""
        return Counter(worker_at(path.read_text()) for path in ran.iterdir() if not path.suffix)

    def both_ended_two() -> bool:
        """Whoever has a second one has handed over the first."""
        assert job.process.poll() is None, f"the job ended: {job.log.read_text()[-4000:]}"
        return sum(number > 1 for number in done().values()) == 2

    try:
        eventually("both ended two", both_ended_two, within_s=240)
        world.cluster.kill("worker-2")
        assert done().total() < 14, "it is not the middle of the scan"
        said = job.wait()
    finally:
        job.stop()
        world.cluster.add_workers()
    (found,) = world.rows("by-wheel")
    assert facts(found) == expected(options)
    assert [row[1] for row in found] == list(range(16_000))
    assert {row[3] for row in found} == {str(world.python)}
    assert {worker_at(row[4]) for row in found} == {"worker-1", "worker-2"}
    assert "asOf=" in said


@long_form
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


@long_form
def test_an_archive_brings_the_code(world: World, tier: Path) -> None:
    options = {"tier.uri": str(tier), "subscribe": TOPIC}
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


@long_form
def test_a_client_of_spark_connect_needs_nothing_of_ours(world: World, tier: Path) -> None:
    pytest.importorskip("grpc", reason="NOT RUN: grpcio is not installed: pyspark[connect]")
    options = {"tier.uri": str(tier), "subscribe": TOPIC}
    folder = world.folder / "by-connect"
    bare = environment(world.folder / "client", "grpc")  # with Spark and without Firnline
    server = world.cluster.connect_server(folder, {"PYSPARK_PYTHON": str(world.python)})
    try:
        remote = f"sc://127.0.0.1:{world.cluster.connect_port}"
        argument = world.argument("by-connect", [{"options": options}], remote)
        client = folder / "client"
        client.mkdir()
        job = Path(shutil.copy(JOB, client))
        Job(
            [str(bare), str(job), argument],
            client,
            clean_environment(client, world.cluster.spark),
        ).wait()
    finally:
        server.stop()
    (found,) = world.rows("by-connect")
    assert facts(found) == expected(options)
    assert {row[3] for row in found} == {str(world.python)}
