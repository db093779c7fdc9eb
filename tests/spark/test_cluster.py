"""A cluster of Spark reads a tier: a master and two workers, which have nothing of the source tree."""

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")

from firnline.spark.options.parse import parse_options
from firnline.spark.schema import COLUMNS
from firnline.spark.source import FirnlineReader
from firnline.stores.directory import DirectoryStore
from tests.peers.kafka import PeerMissing
from tests.peers.nodes import eventually
from tests.peers.spark_cluster import (
    Job,
    SparkCluster,
    build_wheel,
    packed,
    wheel_environment,
)
from tests.spark.tiered_topic import TOPIC, tiered_topic
from tests.spark.written_tier import WrittenPartition, batches

pytestmark = pytest.mark.spark
JOB = Path(__file__).with_name("cluster_job.py")


class World(NamedTuple):
    """A cluster, an environment with the wheel, and a tier whose broker is stopped."""

    cluster: SparkCluster
    python: Path
    tier: Path
    folder: Path

    def submit(
        self,
        name: str,
        options: Mapping[str, str],
        *,
        python: str = "",
        confs: Mapping[str, str] = {},
        words: tuple[str, ...] = (),
        environment: Mapping[str, str] = {},
        **what: Any,
    ) -> Job:
        """Send the job, with its driver in a folder of the name."""
        out = str(self.folder / f"{name}.json")
        return self.cluster.submit(
            JOB,
            json.dumps({"options": dict(options), "out": out, **what}),
            folder=self.folder / name,
            environment={"PYSPARK_PYTHON": python or str(self.python), **environment},
            options=words,
            confs=confs,
        )

    def found(self, name: str) -> dict[str, Any]:
        """Return what a job wrote."""
        found: dict[str, Any] = json.loads((self.folder / f"{name}.json").read_text())
        return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        cluster = SparkCluster(folder / "nodes")
        stack.callback(cluster.stop)  # its processes start while the wheel is built
        try:
            wheel = build_wheel(folder / "wheel")
        except PeerMissing as problem:
            pytest.skip(f"NOT RUN: {problem}")
        python = wheel_environment(folder / "environment", wheel)
        with tiered_topic(folder / "broker") as (_, tier):
            pass
        cluster.add_workers()
        yield World(cluster, python, tier, folder)


def expected(options: Mapping[str, str]) -> list[list[Any]]:
    """What this process reads, without Spark: partition, offset and CRC of the value."""
    reader = FirnlineReader(parse_options(options), COLUMNS)
    found = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            for p, o, v in zip(
                *(batch[name].to_pylist() for name in ("partition", "offset", "value")), strict=True
            ):
                found.append([p, o, None if v is None else zlib.crc32(v)])
    return sorted(found)


def test_a_wheel_in_the_environment_of_the_executors_brings_the_code(world: World) -> None:
    options = {"tier.uri": str(world.tier), "subscribe": TOPIC, "minPartitions": "6"}
    said = world.submit("by-wheel", options).wait()
    found = world.found("by-wheel")["rows"]
    assert sorted(row[:3] for row in found) == expected(options)
    assert {row[3] for row in found} == {str(world.python)}
    executors = {Path(row[4]).parts[-4] for row in found}
    assert executors == {"worker-1", "worker-2"}
    assert "asOf=" in said


def test_an_archive_brings_the_code(world: World) -> None:
    options = {"tier.uri": str(world.tier), "subscribe": TOPIC}
    archive = packed(world.python.parent.parent, world.folder / "environment.tar.gz")
    # Spark unpacks it for executors alone, and plans with the same relative path.
    driver = world.folder / "by-archive"
    driver.mkdir()
    (driver / "environment").symlink_to(world.python.parent.parent)
    world.submit(
        "by-archive",
        options,
        python="./environment/bin/python",
        words=("--archives", f"{archive}#environment"),
    ).wait()
    found = world.found("by-archive")["rows"]
    assert sorted(row[:3] for row in found) == expected(options)
    assert all(str(world.cluster.folder) in row[3] or row[3].startswith("./") for row in found)


def test_a_worker_is_killed_in_mid_scan_and_every_offset_comes_once(
    world: World, tmp_path: Path
) -> None:
    tier = tmp_path / "tier"
    written = WrittenPartition(DirectoryStore(str(tier)), "long", 0)
    for base in range(0, 24_000, 2000):
        written.segment(batches(base, base + 2000))
    written.publish()
    ran = tmp_path / "ran"
    ran.mkdir()
    options = {"tier.uri": str(tier), "subscribe": "long", "minPartitions": "24"}
    job = world.submit("killed", options, slow_s=0.2, ran=str(ran))
    try:
        eventually("tasks have ended", lambda: len(os.listdir(ran)) >= 4, within_s=60)
        world.cluster.kill("worker-2")
        assert len(os.listdir(ran)) < 20, "it is not the middle of the scan"
        job.wait()
    finally:
        job.stop()
        world.cluster.add_workers()
    found = world.found("killed")["rows"]
    assert sorted(row[:3] for row in found) == expected(options)
    assert [row[1] for row in sorted(found)] == list(range(24_000))
