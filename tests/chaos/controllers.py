"""Kill controllers, or cut the power of all of them, while topics are made. WORLD. Reliability (f) 2.

Three controllers and a broker, processes of their own. What the broker acknowledged has to be in the
metadata for ever: on the disk of each controller at the end, and after each power cut. A kill takes one
controller, or two, or all; a power cut stops the three, takes the one disk they share as it is, and goes on
with new processes on it.
"""

import contextlib
import os
import random
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.image import copy_of_the_disk, make_image, mounted
from tests.chaos.kill import Report
from tests.chaos.workload import PATIENCE_S, SILENT
from tests.mixed.sameness import Disk, differences, read_disk
from tests.peers.nodes import BROKER, CONTROLLER, FIRNLINE, QUICK, Cluster, Node
from tests.peers.quorum import View, await_caught_up, await_leader
from tests.peers.stopped import stop_at_once

SETTINGS = {
    **QUICK,
    # Restarts meet segments that roll and snapshots that are new.
    "internal.metadata.log.segment.bytes": 4096,
    "metadata.max.idle.interval.ms": 200,
    # A broker that is fenced meanwhile takes no topics.
    "broker.session.timeout.ms": 60_000,
}


class TopicMaker:
    """Keeps making topics through a broker, and remembers those that it acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.made: list[str] = []
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **SILENT})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "TopicMaker":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)

    def await_more(self, count: int) -> None:
        """Return when that many more were acknowledged."""
        goal, deadline = len(self.made) + count, time.monotonic() + PATIENCE_S
        while len(self.made) < goal:
            assert time.monotonic() < deadline, f"{len(self.made)} topics made, {goal} wanted"
            time.sleep(0.01)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            name = f"made-{number}"
            with contextlib.suppress(KafkaException):
                made = self._admin.create_topics([NewTopic(name, 1, 1)], request_timeout=5)
                made[name].result()
                self.made.append(name)
            self._stop.wait(0.02)


def run_controller_kills(directory: Path, cycles: int, seed: int, kind: str = FIRNLINE) -> Report:
    """Kill -9 random controllers, `cycles` times; then all disks agree and nothing acknowledged lacks."""
    rng, report = random.Random(seed), Report()
    cluster = Cluster(directory, _members(kind), SETTINGS)
    with cluster:
        await_caught_up(cluster)
        with TopicMaker(cluster.bootstrap) as maker:
            for _ in range(cycles):
                maker.await_more(2)
                time.sleep(rng.uniform(0, 0.3))
                count = rng.choice((1, 1, 1, 2, 3))
                _kill_and_start(cluster, rng.sample(cluster.controllers, count), rng)
                report.faults += 1
                started = time.monotonic()
                await_leader(cluster)
                report.back_ms.append((time.monotonic() - started) * 1000)
            maker.await_more(2)
        view = await_caught_up(cluster)
        report.acked = len(maker.made)
        report.violations += tracebacks(cluster)
        cluster.kill()
    report.violations += violations(cluster.controllers, view, maker.made)
    return report


def _kill_and_start(cluster: Cluster, victims: Sequence[Node], rng: random.Random) -> None:
    for node in victims:
        node.kill()
    time.sleep(rng.uniform(0, 1.0))  # now and then the others have elected by then
    for node in victims:
        node.start(wait=False)
    for node in victims:
        node.await_answer()


def violations(nodes: Sequence[Node], view: View, made: Sequence[str]) -> list[str]:
    """Say what is wrong on the disks of nodes that are down, and which acknowledged topics they lack."""
    disks = [read_disk(str(node), node.metadata) for node in nodes]
    return differences(disks, view.high_watermark) + lost_topics(disks, made)


def lost_topics(disks: Sequence[Disk], made: Sequence[str]) -> list[str]:
    """Say which topics the disk with the most lacks."""
    longest = max(disks, key=lambda disk: disk.end)
    there = longest.image_at(longest.end[1]).topics_by_name
    lost = [name for name in made if name not in there]
    return [f"{len(lost)} acknowledged topics lost, first {lost[0]}"] if lost else []


def tracebacks(cluster: Cluster) -> list[str]:
    """Say which of our nodes printed a traceback."""
    texts = [(n, n.log_text()) for n in cluster.nodes.values() if n.kind == FIRNLINE]
    return [f"a traceback in the log of {node}" for node, text in texts if "Traceback" in text]


def run_controller_power_cuts(directory: Path, cuts: int, seed: int) -> Report:
    """Cut the power of all controllers, `cuts` times; each start and all that was acknowledged is checked."""
    rng, report = random.Random(seed), Report()
    with contextlib.ExitStack() as stack:
        disk = SharedDisk(directory)
        stack.callback(disk.close)
        cluster = Cluster(directory, _members(FIRNLINE), SETTINGS)
        for node in cluster.controllers:
            node.data = disk.at / str(node.node_id)
        stack.enter_context(cluster)
        await_caught_up(cluster)
        with TopicMaker(cluster.bootstrap) as maker:
            for _ in range(cuts):
                maker.await_more(2)
                time.sleep(rng.uniform(0, 0.3))
                acked = disk.cut_power(cluster, maker)
                report.faults += 1
                # Before anybody runs again: what is on the three disks has to hold what was acknowledged.
                disks = [read_disk(str(n), n.metadata, is_cut=True) for n in cluster.controllers]
                faults = lost_topics(disks, acked)
                started = time.monotonic()
                faults += _start_all(cluster.controllers)
                await_leader(cluster)
                report.back_ms.append((time.monotonic() - started) * 1000)
                report.violations += [f"cut {report.faults}: {fault}" for fault in faults]
            maker.await_more(2)
        view = await_caught_up(cluster)
        report.acked = len(maker.made)
        report.violations += tracebacks(cluster)
        cluster.kill()
        report.violations += violations(cluster.controllers, view, maker.made)
    return report


def losses_without_sync(directory: Path) -> tuple[int, list[str]]:
    """One cut of controllers that sync nothing: (topics acknowledged, what is wrong)."""
    with contextlib.ExitStack() as stack:
        disk = SharedDisk(directory)
        stack.callback(disk.close)
        cluster = Cluster(directory, _members(FIRNLINE), SETTINGS)
        for node in cluster.controllers:
            node.data = disk.at / str(node.node_id)
            node.environment["FIRNLINE_NATIVE"] = "0"  # native threads would sync all the same
            node.environment["PYTHONPATH"] = os.pathsep.join(
                [str(Path(__file__).with_name("no_sync")), os.environ.get("PYTHONPATH", "")]
            )
        for node in cluster.controllers:
            node.format()
        os.sync()  # a formatted directory is not what is cut
        stack.enter_context(cluster)
        await_caught_up(cluster)
        with TopicMaker(cluster.bootstrap) as maker:
            maker.await_more(5)
            acked = disk.cut_power(cluster, maker)
            cluster.kill()
        disks = [read_disk(str(n), n.metadata, is_cut=True) for n in cluster.controllers]
        return len(acked), lost_topics(disks, acked)


def _start_all(nodes: Sequence[Node]) -> list[str]:
    faults = []
    for node in nodes:
        node.start(wait=False)
    for node in nodes:
        try:
            node.await_answer()
        except RuntimeError as problem:
            faults.append(f"{node} refused to start: {str(problem)[-500:]}")
    return faults


class SharedDisk:
    """One mounted image with the directories of all controllers."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._image, self._copy = directory / "disk.img", directory / "copy.img"
        self.at = directory / "mnt"
        make_image(self._image)
        self._mount: Any = contextlib.ExitStack()
        self._mount.enter_context(mounted(self._image, self.at))

    def cut_power(self, cluster: Cluster, maker: TopicMaker) -> list[str]:
        """Stop the controllers, take the disk as it is, end them; return what was acknowledged by then."""
        for node in cluster.controllers:
            stop_at_once(node.pid)
        time.sleep(0.05)  # an answer that was sent before the stop arrives
        acked = list(maker.made)
        copy_of_the_disk(self._image, self._copy)
        for node in cluster.controllers:
            node.kill()
        self._mount.close()
        self._image.unlink()
        shutil.move(self._copy, self._image)
        self._mount.enter_context(mounted(self._image, self.at))
        return acked

    def close(self) -> None:
        self._mount.close()


def _members(kind: str) -> list[tuple[str, str]]:
    return [(kind, CONTROLLER)] * 3 + [(kind, BROKER)]
