"""A controller whose directory is damaged, or another's, says so with file and remedy, or is whole again."""

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firnline.client.snapshots import QuorumMember, snapshots_of
from tests.peers.nodes import CONTROLLER, FIRNLINE, QUICK, Cluster, Node, eventually
from tests.peers.quorum import await_caught_up

SETTINGS = {
    **QUICK,
    "internal.metadata.log.segment.bytes": 4096,
    "metadata.max.idle.interval.ms": 50,
}


class Victim:
    """One of three controllers, which was killed -9; each test damages a fresh copy of its directory."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.node = cluster, cluster[1]
        await_caught_up(cluster)
        eventually(
            "three segments, of which two are known to be on the disk",
            lambda: len(_synced_logs(self.node)) > 1,
        )
        self.node.kill()
        self._kept = cluster.directory / "kept"
        shutil.copytree(self.node.data, self._kept)

    def damage(self, harm: Callable[[Node], object]) -> Node:
        """Put the directory back as it was left, and do harm to it."""
        self.node.kill()
        shutil.rmtree(self.node.data, ignore_errors=True)
        shutil.copytree(self._kept, self.node.data)
        harm(self.node)
        return self.node


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    directory = tmp_path_factory.mktemp("victim")
    with Cluster(directory, [(FIRNLINE, CONTROLLER)] * 3, SETTINGS) as cluster:
        yield Victim(cluster)


def _logs(node: Node) -> list[Path]:
    return sorted(node.metadata.glob("*.log"))


def _synced_logs(node: Node) -> list[Path]:
    """The segments below the recovery point that stands on the disk: not cut off, as others may be."""
    (path,) = node.data.rglob("recovery-point-offset-checkpoint")
    found = [line.split() for line in path.read_text().splitlines()[2:]]
    synced = int(next((row[2] for row in found if row[0] == "__cluster_metadata"), "0"))
    logs = _logs(node)
    return [log for log, after in itertools.pairwise(logs) if int(after.stem) <= synced]


def _newest(node: Node) -> Path:
    return sorted(node.metadata.glob("*-*.checkpoint"))[-1]


def _flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x40
    path.write_bytes(data)


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        # What was synced once is not cut off: this voter has promised it. The CRC does not cover the offset.
        (
            lambda n: _flip(_synced_logs(n)[-1], 150),
            ("damaged below its recovery point", "offset=", "remedy="),
        ),
        (
            lambda n: _flip(_synced_logs(n)[-1], 300),
            ("damaged below its recovery point", "offset=", "remedy="),
        ),
        (
            lambda n: (n.metadata / "quorum-state").write_text("{oops"),
            ("quorum-state is damaged", "quorum-state", "remedy="),
        ),
        (
            lambda n: _replace(n.data / "meta.properties", "node.id=1", "node.id=9"),
            ("belongs to", "9"),
        ),
        (
            lambda n: (n.data / "meta.properties").unlink(),
            ("not formatted", "firnline storage format"),
        ),
    ],
    ids=[
        "flipped offset in the log",
        "flipped byte in the log",
        "quorum-state",
        "another node",
        "not formatted",
    ],
)
def test_a_start_is_refused_with_what_is_wrong_and_what_to_do(
    victim: Victim, harm: Callable[[Node], object], said: tuple[str, ...]
) -> None:
    node = victim.damage(harm)
    before = len(node.log_text())
    # Not by way of `start`, which would format what is not formatted.
    node.launch()
    eventually("an end of the process", lambda: not node.is_running)
    reported = node.log_text()[before:]
    assert "Traceback" not in reported
    for words in (str(node.data), *said):
        assert words in reported, reported


@pytest.mark.parametrize(
    "harm",
    [
        lambda n: os.truncate(_logs(n)[-1], _logs(n)[-1].stat().st_size - 10),
        lambda n: _logs(n)[-1].write_bytes(_logs(n)[-1].read_bytes() + bytes(300)),
        lambda n: [p.unlink() for p in n.metadata.glob("*.index")],
        lambda n: (n.metadata / "leader-epoch-checkpoint").unlink(),
        lambda n: (n.metadata / "left.checkpoint.part").write_bytes(b"x"),
    ],
    ids=["torn tail", "zeros behind", "no indexes", "no epochs", "half a snapshot"],
)
def test_what_a_crash_may_leave_is_repaired_and_the_rest_comes_from_the_others(
    victim: Victim, harm: Callable[[Node], object]
) -> None:
    node = victim.damage(harm)
    node.start()
    view = await_caught_up(victim.cluster)
    assert view.ends[node.node_id] >= view.high_watermark


def _damage_snapshots_and_lose_the_first_segment(node: Node) -> None:
    for path in node.metadata.glob("*-*.checkpoint"):
        _flip(path, 200)
    first = _logs(node)[0]
    for path in node.metadata.glob(f"{first.stem}*"):
        if not path.name.endswith(".checkpoint"):
            path.unlink()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda n: _flip(_newest(n), 200), "another CRC than it says"),
        (lambda n: os.truncate(_newest(n), 200), "no footer"),
        (lambda n: _newest(n).write_bytes(bytes(500)), "is damaged"),
        (_damage_snapshots_and_lose_the_first_segment, "neither votes nor stands for election"),
    ],
    ids=["flipped", "cut", "zeros", "and the log does not begin at 0"],
)
def test_a_damaged_snapshot_is_renamed_and_the_rest_comes_from_log_or_leader(
    victim: Victim, harm: Callable[[Node], object], said: str
) -> None:
    node = victim.damage(lambda n: (os.chmod(_newest(n), 0o644), harm(n)))
    before = len(node.log_text())
    node.start()
    view = await_caught_up(victim.cluster)
    assert view.ends[node.node_id] >= view.high_watermark
    reported = node.log_text()[before:]
    assert said in reported, reported
    assert str(node.metadata) in reported
    damaged = list(node.metadata.glob("*.checkpoint.damaged"))
    assert damaged
    (row,) = snapshots_of([QuorumMember(node.node_id, "follower", f"127.0.0.1:{node.port}")])
    assert row.found is not None
    assert len(row.found.damaged) == len(damaged)
    eventually(
        "a voter that takes part in elections",
        lambda: (
            "neither votes" not in node.log_text()[before:]
            or "takes part in elections again" in node.log_text()[before:]
        ),
    )


def test_the_directory_of_another_cluster_is_refused_by_its_voters(victim: Victim) -> None:
    """Nothing local says so: the other voters do."""
    other = "f" * 22

    def harm(node: Node) -> None:
        _replace(node.data / "meta.properties", victim.cluster.cluster_id, other)

    node = victim.damage(harm)
    before = len(node.log_text())
    node.launch()
    eventually("an end of the process", lambda: not node.is_running)
    reported = node.log_text()[before:]
    assert "cluster" in reported
    assert other in reported or "INCONSISTENT_CLUSTER_ID" in reported, reported
    assert "Traceback" not in reported
