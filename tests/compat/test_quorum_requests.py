"""A controller asked by hand, rightly and wrongly: ours answers as Apache Kafka's does."""

import time
from collections.abc import Iterator

import pytest

from tests.compat.quorum_cases import Case, World, reported
from tests.compat.quorum_table import TABLE
from tests.peers.nodes import CONTROLLER, FIRNLINE, KAFKA, QUICK, Cluster, Node, eventually
from tests.peers.quorum import await_caught_up, await_leader
from tests.wire.line import Line

# Nobody misses a leader meanwhile, and nothing is written; after each record there is a snapshot.
STILL = {
    **QUICK,
    "controller.quorum.fetch.timeout.ms": 30_000,
    "metadata.max.idle.interval.ms": 0,
    "metadata.log.max.record.bytes.between.snapshots": 1,
}


DISTURBING = "disturb"  # the part of the table that makes the quorum elect


class Asked:
    """Three controllers of one kind, in a second epoch at least, with a snapshot."""

    def __init__(self, cluster: Cluster, kind: str) -> None:
        self.cluster, self.kind = cluster, kind

    def settle(self) -> None:
        """Have epochs, registrations and a snapshot behind us: stop the first leader."""
        await_caught_up(self.cluster)
        nodes = self.cluster.nodes.values()
        eventually("snapshots", lambda: all(list(n.metadata.glob("*-*.checkpoint")) for n in nodes))
        self._have_another_leader()
        if len(_epochs(self._leader())) < 2:  # it had loaded a snapshot of all that was before
            self._have_another_leader()

    def _have_another_leader(self) -> None:
        first = await_caught_up(self.cluster)
        self.cluster[first.leader].stop()
        await_leader(self.cluster, after_epoch=first.epoch)
        self.cluster[first.leader].start()
        eventually("registrations and a snapshot of all of them", self._is_still)

    def _leader(self) -> Node:
        return self.cluster[await_caught_up(self.cluster).leader]

    def _is_still(self) -> bool:
        before = self.world()
        time.sleep(0.5)
        return self.world() == before and before.snapshot[0] == before.end_offset

    def world(self) -> World:
        """What is true now."""
        view = await_caught_up(self.cluster)
        node = self.cluster[view.leader]
        names = [p.stem.split("-") for p in node.metadata.glob("*.checkpoint")]
        found = max(((int(epoch), int(offset)) for offset, epoch in names), default=(0, 0))
        newest = node.metadata / f"{found[1]:020d}-{found[0]:010d}.checkpoint"
        follower, other = (n for n in self.cluster.nodes if n != view.leader)
        return World(
            self.cluster.cluster_id,
            view.leader,
            follower,
            other,
            view.epoch,
            view.ends[view.leader],
            (found[1], found[0]),
            newest.stat().st_size if newest.exists() else 0,
            min(int(p.stem) for p in node.metadata.glob("*.log")),
            *_first_epoch(node),
        )

    def answer(self, case: Case, world: World) -> str:
        """Ask and say what was told, or what became of the connection."""
        node: Node = self.cluster[getattr(world, case.to)]
        try:
            with Line(node.address) as line:
                return reported(line.ask(case.ask(world), case.version), world)
        except (AssertionError, OSError) as problem:
            return str(problem)


def _epochs(node: Node) -> list[tuple[int, int]]:
    """The epochs of its log and where each begins, as leader-epoch-checkpoint says."""
    rows = (node.metadata / "leader-epoch-checkpoint").read_text().split("\n")[2:]
    return [(int(epoch), int(start)) for epoch, start in (row.split() for row in rows if row)]


def _first_epoch(node: Node) -> tuple[int, int]:
    """The first epoch of the log, and where the next one begins."""
    (epoch, _), (_, end), *_ = [*_epochs(node), (0, 0), (0, 0)]
    return epoch, end


@pytest.fixture(
    scope="module", params=[pytest.param(KAFKA, marks=pytest.mark.peer), FIRNLINE], ids=str
)
def asked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Asked]:
    """A quorum of one kind, used by all tests of this file."""
    directory = tmp_path_factory.mktemp(request.param)
    with Cluster(directory, [(request.param, CONTROLLER)] * 3, STILL) as cluster:
        found = Asked(cluster, request.param)
        found.settle()
        yield found


@pytest.mark.parametrize("part", TABLE)
def test_every_question_gets_the_answer_that_kafka_gives(asked: Asked, part: str) -> None:
    """One test a part of the table, so that all wrong answers are seen at once.

    Only what disturbs the quorum changes what is true of it, so the others are asked one after the other:
    to know that all is still as it was takes the time that a follower's Fetch waits at its leader.
    """
    wrong = []
    world = asked.world()
    for case in TABLE[part]:
        wanted = case.kafka
        if asked.kind == FIRNLINE and case.ours is not None:
            wanted = case.ours
        if not wanted:
            continue  # it would end a Kafka process, or its quorum
        if part == DISTURBING:
            world = asked.world()
        found = asked.answer(case, world)
        if found != wanted and part != DISTURBING:
            before, world = world, asked.world()
            if world != before:  # on a busy machine they elected meanwhile
                found = asked.answer(case, world)
        if found != wanted:
            wrong.append(f"{case.name} (to the {case.to}, v{case.version})\n  {found}\n  {wanted}")
    assert not wrong, "told and wanted:\n" + "\n".join(wrong)


def test_all_that_was_asked_ended_nobody(asked: Asked) -> None:
    assert [node for node in asked.cluster.nodes.values() if not node.is_running] == []
    logs = [node.log_text() for node in asked.cluster.nodes.values()]
    if asked.kind == FIRNLINE:
        assert not [text for text in logs if "Traceback" in text]
