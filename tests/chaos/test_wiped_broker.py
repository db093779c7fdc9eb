"""A broker comes back with an empty disk while its leader asks for the incarnation that died. Real processes.

Rows 2, 3, 4, 6 and 7 of the race table of KIP-903 (spec 2.9); all 13 run on whole nodes of one process in
tests/props/test_stale_epoch_races.py. A leads, B follows; a proxy before A and before each controller keeps
requests back, and requests in the name of the dead incarnation are made by hand. A producer with acks=all
goes on through everything. At the end of each test B has joined with its new epoch, which is row 7; no change
of the ISR was written down before that one; what was acknowledged is there, once and in order, on both.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from firnline.base.errors import Code
from firnline.metadata.image import BrokerImage, ClusterImage, PartitionImage
from firnline.protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from firnline.protocol.messages.k03_metadata import MetadataRequest
from firnline.protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from firnline.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from firnline.protocol.messages.k56_alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
    ProposedPartition,
)
from firnline.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from tests.chaos.controllers import tracebacks
from tests.chaos.workload import PATIENCE_S, Workload, read_all, violations
from tests.mixed.sameness import read_disk
from tests.peers.nodes import BROKER, CONTROLLER, FIRNLINE, QUICK, Cluster, eventually
from tests.peers.proxy import Passing, Proxy
from tests.peers.quorum import await_leader
from tests.wire.line import Line

CONTROLLERS, A, B = (1, 2, 3), 4, 5
SETTINGS = {**QUICK, "broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 300}
FETCH, ALTER = 17, 3


class Stage:
    """Three controllers and two brokers, with a proxy before all of them but B."""

    def __init__(self, directory: Path) -> None:
        members = [(FIRNLINE, CONTROLLER)] * 3 + [(FIRNLINE, BROKER)] * 2
        self.cluster = Cluster(directory, members, SETTINGS)
        self.proxies = {n: Proxy(self.cluster[n].address) for n in (*CONTROLLERS, A)}
        self.cluster.advertised_ports |= {n: proxy.port for n, proxy in self.proxies.items()}

    def ask(self, node_id: int, request: Any, version: int) -> Any:
        """Ask a node itself."""
        with Line(self.cluster[node_id].address) as line:
            return line.ask(request, version)

    def image(self) -> ClusterImage:
        """The metadata as far as A has it."""
        while True:
            with contextlib.suppress(AssertionError, OSError, ValueError):
                disk = read_disk("A", self.cluster[A].metadata, is_cut=True)
                return disk.image_at(disk.end[1])

    def broker(self, node_id: int) -> BrokerImage:
        return self.image().brokers[node_id]

    def until(self, is_so: Callable[[], Any]) -> None:
        eventually("it comes to that", is_so, within_s=2 * PATIENCE_S)

    def is_served(self, node_id: int) -> bool:
        """Whether A tells clients of a broker: A's own image has it unfenced."""
        found = self.ask(A, MetadataRequest(topics=[]), 12)
        return node_id in [each.node_id for each in found.brokers]

    def close(self) -> None:
        self.cluster.kill()
        for proxy in self.proxies.values():
            proxy.__exit__(None, None, None)


class Race:
    """One row, on a topic of its own: A leads, the ISR is {A}, and A's request for B is kept back."""

    def __init__(self, stage: Stage, topic: str) -> None:
        self.stage, self.topic = stage, topic
        self.b = stage.cluster[B]
        row = CreatableReplicaAssignment(partition_index=0, broker_ids=[A])
        new = CreatableTopic(
            name=topic, num_partitions=-1, replication_factor=-1, assignments=[row]
        )
        [made] = stage.ask(A, CreateTopicsRequest(topics=[new], timeout_ms=30_000), 7).topics
        assert made.error_code == 0, made
        self.topic_id = made.topic_id
        self.work = Workload(stage.cluster.bootstrap, topic, 1)

    def __enter__(self) -> Self:
        self.work.__enter__()
        self.work.await_acks(40)
        for n in CONTROLLERS:
            self.stage.proxies[n].keep_back("alter", self.is_alter)
        moved = ReassignablePartition(partition_index=0, replicas=[A, B])
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=self.topic, partitions=[moved])]
        )
        assert self.stage.ask(A, request, 0).error_code == 0
        self.stage.until(lambda: self.partition.directories[1:] == self.stage.broker(B).log_dirs)
        self.request = self.newest_alter()
        epochs = self.proposed(self.request)
        assert list(epochs) == [A, B]
        self.a_epoch, self.b_epoch = epochs[A], epochs[B]
        assert self.partition.isr == (A,)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.work.__exit__(kind, problem, trace)

    @property
    def partition(self) -> PartitionImage:
        return self.stage.image().topics_by_id[self.topic_id].partitions[0]

    def is_alter(self, passing: Passing) -> bool:
        request = passing.request
        return isinstance(request, AlterPartitionRequest) and self.topic_id in [
            topic.topic_id for topic in request.topics
        ]

    def await_alter(self, known: tuple[Passing, ...]) -> Passing:
        """Return a request of A that is kept back and not known yet."""

        def look() -> list[Passing]:
            kept = [p for n in CONTROLLERS for p in self.stage.proxies[n].kept("alter")]
            return [p for p in kept if p not in known]

        self.stage.until(look)
        return look()[-1]

    def newest_alter(self) -> Passing:
        """Return the request that is about the partition as it is; the ones before it pass in vain."""
        passing = self.await_alter(())
        known = (passing,)
        while self.row(passing).partition_epoch < self.partition.partition_epoch:
            passing.release()
            passing = self.await_alter(known)
            known = (*known, passing)
        return passing

    # ---- what happens

    def b_dies(self) -> None:
        """B is killed and, after its session, fenced; nothing is left on its disk but what the disk is."""
        self.b.kill()
        self.stage.until(lambda: not self.stage.is_served(B))
        names = (self.b.data / "meta.properties").read_bytes()
        self.b.wipe()
        # Under another directory id its news of that would overtake A's request (KIP-858).
        self.b.format()
        (self.b.data / "meta.properties").write_bytes(names)

    def b_returns(self) -> None:
        """A new incarnation of B, which all know; A's requests are still kept back."""
        self.b.start()
        self.stage.until(lambda: self.stage.is_served(B))
        assert self.stage.broker(B).epoch > self.b_epoch

    def arrives(self, passing: Passing) -> Code:
        """What A's request is told at last: one that met no active controller is sent again."""
        known: tuple[Passing, ...] = ()
        while True:
            passing.release()
            answer = passing.await_answer()
            if answer is not None and answer.error_code != Code.NOT_CONTROLLER:
                return self.code_of(answer)
            known = (*known, passing)
            passing = self.await_alter(known)
            assert self.proposed(passing) == {A: self.a_epoch, B: self.b_epoch}

    def by_hand(self) -> Code:
        """A's request for the dead incarnation of B, once more, at the active controller."""
        now = self.partition
        row = ProposedPartition(
            partition_index=0,
            leader_epoch=now.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=A, broker_epoch=self.a_epoch),
                BrokerState(broker_id=B, broker_epoch=self.b_epoch),
            ],
            partition_epoch=now.partition_epoch,
        )
        topic = AlterPartitionTopic(topic_id=self.topic_id, partitions=[row])
        request = AlterPartitionRequest(broker_id=A, broker_epoch=self.a_epoch, topics=[topic])

        def answer() -> Any:
            found = self.stage.ask(await_leader(self.stage.cluster).leader, request, ALTER)
            return None if found.error_code == Code.NOT_CONTROLLER else found

        return self.code_of(eventually("a controller decides", answer, within_s=PATIENCE_S))

    def row(self, passing: Passing) -> ProposedPartition:
        """What a request of A says of this partition; it may be about others, too."""
        assert isinstance(passing.request, AlterPartitionRequest)
        found = [t for t in passing.request.topics if t.topic_id == self.topic_id]
        return found[0].partitions[0]

    def proposed(self, passing: Passing) -> dict[int, int]:
        """Whom it names, with the epochs."""
        return {m.broker_id: m.broker_epoch for m in self.row(passing).new_isr_with_epochs}

    def code_of(self, answer: Any) -> Code:
        """Of the one partition in an answer to AlterPartition."""
        assert answer.error_code == 0, Code(answer.error_code)
        found = [t for t in answer.topics if t.topic_id == self.topic_id]
        return Code(found[0].partitions[0].error_code)

    def fetch_of_the_dead(self) -> Any:
        """Fetch as the dead incarnation of B, which claims to have all; return the partition's row."""
        part = FetchPartition(
            partition=0,
            current_leader_epoch=self.partition.leader_epoch,
            fetch_offset=1 << 40,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=B, replica_epoch=self.b_epoch),
            topics=[FetchTopic(topic_id=self.topic_id, partitions=[part])],
        )
        [topic] = self.stage.ask(A, request, FETCH).responses
        return topic.partitions[0]

    # ---- how each row ends

    def b_joins(self) -> None:
        """Row 7: both know the new epoch, B has caught up, and it is taken in with that epoch."""
        epoch = self.stage.broker(B).epoch
        assert epoch > self.b_epoch
        for n in CONTROLLERS:
            self.stage.proxies[n].let_go("alter")
        self.stage.until(lambda: set(self.partition.isr) == {A, B})
        self.stage.until(self._taken)
        [taken] = self._taken()
        assert self.proposed(taken) == {A: self.a_epoch, B: epoch}
        # No other change was written down since the first request was made.
        assert self.row(taken).partition_epoch == self.row(self.request).partition_epoch
        self.check_complete()

    def _taken(self) -> list[Passing]:
        """Requests for this topic that the controller granted."""
        seen = [p for n in CONTROLLERS for p in self.stage.proxies[n].seen if self.is_alter(p)]
        answered = [(p, p.answer) for p in seen if isinstance(p.answer, AlterPartitionResponse)]
        return [p for p, answer in answered if not answer.error_code and not self.code_of(answer)]

    def check_complete(self) -> None:
        self.work.await_acks(40)
        self.work.finish()
        found = read_all(self.stage.cluster.bootstrap, self.topic, 1)
        assert violations(self.work.acked(), found, self.work.sent) == []
        assert self.partition.leader == A
        self.stage.until(lambda: self._copy(A) == self._copy(B))
        assert self._copy(A)
        assert tracebacks(self.stage.cluster) == []

    def _copy(self, node_id: int) -> bytes:
        directory = self.stage.cluster[node_id].data / f"{self.topic}-0"
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    found = Stage(tmp_path_factory.mktemp("wiped"))
    with contextlib.closing(found), found.cluster:
        yield found
        found.cluster.kill()  # nobody waits for five nodes to leave in order


def test_rows_2_and_6_a_request_and_a_fetch_of_the_dead_incarnation_come_late(stage: Stage) -> None:
    with Race(stage, "rows-2-and-6") as race:
        stage.proxies[A].keep_back(
            "fetch",
            lambda passing: (
                isinstance(passing.request, FetchRequest)
                and passing.request.replica_state.replica_id == B
            ),
        )
        late = stage.proxies[A].await_kept("fetch")
        race.b_dies()
        assert race.arrives(race.request) is Code.INELIGIBLE_REPLICA
        race.work.await_acks(40)  # A counts on itself alone again
        race.b_returns()
        late.release()
        answer = late.await_answer()
        [row] = [p for t in answer.responses if t.topic_id == race.topic_id for p in t.partitions]
        assert (row.error_code, bool(row.records)) == (Code.NOT_LEADER_OR_FOLLOWER, False)
        assert race.fetch_of_the_dead().error_code == Code.NOT_LEADER_OR_FOLLOWER
        assert race.by_hand() is Code.INELIGIBLE_REPLICA
        stage.proxies[A].let_go("fetch")
        race.b_joins()


def test_rows_3_and_4_the_empty_broker_is_registered_then_unfenced_then_a_new_controller_is_asked(
    stage: Stage,
) -> None:
    with Race(stage, "rows-3-and-4") as race:
        race.b_dies()
        for n in CONTROLLERS:
            stage.proxies[n].keep_back(
                "beat",
                lambda passing: (
                    isinstance(passing.request, BrokerHeartbeatRequest)
                    and passing.request.broker_id == B
                ),
            )
        race.b.start(wait=False)
        stage.until(lambda: stage.broker(B).epoch > race.b_epoch)
        assert stage.broker(B).fenced
        assert race.by_hand() is Code.INELIGIBLE_REPLICA  # row 3
        assert stage.broker(B).fenced
        for n in CONTROLLERS:
            stage.proxies[n].let_go("beat")
        stage.until(lambda: stage.is_served(B))
        old = stage.cluster[await_leader(stage.cluster).leader]
        old.kill()
        # Its connection broke: A asks the next controller, with what it had asked for.
        again = race.await_alter((race.request,))
        assert race.row(again) == race.row(race.request)
        assert race.by_hand() is Code.INELIGIBLE_REPLICA
        assert race.arrives(again) is Code.INELIGIBLE_REPLICA  # row 4
        race.work.await_acks(40)
        old.start()
        race.b_joins()
