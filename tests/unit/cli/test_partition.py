"""`firnline partition`: plans, moves, cancellation and elections at brokers of a few lines."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.client.connection import Unreachable
from firnline.protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from firnline.protocol.messages.k43_elect_leaders import (
    ElectedPartition,
    ElectedTopic,
    ElectLeadersResponse,
)
from firnline.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignedPartition,
    ReassignedTopic,
)
from firnline.protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    MovingPartition,
    MovingTopic,
)
from tests.unit.cli.fake_cluster import FakeCluster, fake_cluster, once


class Moving:
    """A cluster that moves: `moves` are under way, `wanted` is what was asked for, `refused` codes."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.moves: list[MovingPartition] = []
        self.wanted: dict[int, list[int] | None] = {}
        self.refused: dict[int, Code] = {}
        self.looks = 0
        self.ends_after = 10_000
        cluster.answer(46, self.listed)
        cluster.answer(45, self.reassigned)
        cluster.answer(43, self.elected)
        for number, broker in enumerate(cluster.brokers, 1):
            broker.answers[35] = lambda request, me=number: self.sizes(me)

    def listed(self, request: Any) -> ListPartitionReassignmentsResponse:
        self.looks += 1
        if self.looks > self.ends_after:
            self.moves = []
        topics = [MovingTopic(name="events", partitions=self.moves)] if self.moves else []
        return ListPartitionReassignmentsResponse(topics=topics, error_message=None)

    def reassigned(self, request: Any) -> AlterPartitionReassignmentsResponse:
        rows = []
        for part in request.topics[0].partitions:
            code = self.refused.get(part.partition_index, Code.NONE)
            rows.append(
                ReassignedPartition(
                    partition_index=part.partition_index, error_code=code, error_message=None
                )
            )
            if not code:
                asked = part.replicas
                self.wanted[part.partition_index] = None if asked is None else [*asked]
        return AlterPartitionReassignmentsResponse(
            responses=[ReassignedTopic(name="events", partitions=rows)], error_message=None
        )

    def elected(self, request: Any) -> ElectLeadersResponse:
        asked = request.topic_partitions
        indexes = [2] if asked is None else asked[0].partitions
        rows = [
            ElectedPartition(
                partition_id=n, error_code=self.refused.get(n, Code.NONE), error_message=None
            )
            for n in indexes
        ]
        return ElectLeadersResponse(
            replica_election_results=[ElectedTopic(topic="events", partition_result=rows)]
        )

    def sizes(self, me: int) -> DescribeLogDirsResponse:
        rows = [
            DescribeLogDirsPartition(partition_index=n, partition_size=1000 if me == 1 else 250)
            for n in range(4)
        ]
        topic = DescribeLogDirsTopic(name="events", partitions=rows)
        return DescribeLogDirsResponse(
            results=[DescribeLogDirsResult(log_dir="/d", topics=[topic])]
        )

    def run(self, *words: str, stdin: str = "") -> Any:
        return self.cluster.run("partition", *words, stdin=stdin)


@pytest.fixture
def moving() -> Iterator[Moving]:
    with fake_cluster() as made:
        yield Moving(made)


def one_move() -> MovingPartition:
    return MovingPartition(
        partition_index=0, replicas=[1, 2], adding_replicas=[2], removing_replicas=[1]
    )


# ------------------------------------------------------------------------------------------- move


def test_a_plan_alone_moves_nothing(moving: Moving) -> None:
    done = moving.run("move", "events:0,1", "--replicas", "2")
    assert done.exit_code == 0
    assert "1.0 kB" in done.stdout, "what is to be copied"
    assert "add --execute" in done.stderr
    assert moving.wanted == {}


def test_only_partitions_that_are_elsewhere_are_moved(moving: Moving) -> None:
    done = moving.run("move", "events", "--replicas", "2", "--execute")
    assert done.stderr == "began 2 moves: see firnline partition status\n"
    assert moving.wanted == {0: [2], 2: [2]}
    done = moving.run("move", "events:1", "--replicas", "2", "--execute")
    assert done.stderr == "all of them are there already: nothing to move\n"


def test_replicas_are_spread_over_brokers_with_few_moves(moving: Moving) -> None:
    moving.cluster.replicas = {("events", n): [1] for n in range(4)}
    done = moving.run("move", "events", "--brokers", "1,2", "--execute", "--format", "json")
    assert [row["to"] for row in json.loads(done.stdout)] == [[2], [2]]
    assert len(moving.wanted) == 2


def test_a_plan_can_be_stored_and_taken_back(moving: Moving, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    words = ("move", "events:0", "--replicas", "2,1", "--execute", "--rollback", str(before))
    assert moving.run(*words).exit_code == 0
    moving.cluster.replicas["events", 0] = [2, 1]
    assert moving.run("move", "--file", str(before), "--execute").exit_code == 0
    assert moving.wanted == {0: [1]}


def test_what_is_exported_is_kafkas_format(moving: Moving) -> None:
    done = moving.run("move", "events:0", "--replicas", "2", "--export")
    row = {"topic": "events", "partition": 0, "replicas": [2]}
    assert json.loads(done.stdout) == {"version": 1, "partitions": [row]}
    with_directories = json.dumps({"version": 1, "partitions": [{**row, "log_dirs": ["/d"]}]})
    done = moving.run("move", "--file", "-", "--execute", stdin=with_directories)
    assert "log_dirs are not used" in done.stderr
    assert moving.wanted == {0: [2]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no plan"),
        ('{"partitions": []}', "'version' is missing"),
        ('{"version": 1, "partitions": []}', "names no partition"),
        ('{"version": 1, "partitions": [{"topic": "events", "partition": 0}]}', "'replicas' is"),
        (
            '{"version": 1, "partitions": [{"topic": "events", "partition": 0, "replicas": [1, 1]}]}',
            "one of them twice",
        ),
        (
            '{"version": 1, "partitions": [{"topic": "events", "partition": "0", "replicas": [1]}]}',
            "not a partition with its replicas",
        ),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(moving: Moving, text: str, said: str) -> None:
    done = moving.run("move", "--file", "-", "--execute", stdin=text)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


def test_a_broker_that_is_not_alive_is_no_target(moving: Moving) -> None:
    for words in (("--replicas", "1,9"), ("--brokers", "1,9")):
        done = moving.run("move", "events:0", *words, "--execute")
        assert "no broker 9 is alive: there are 1, 2" in str(done.exception)
    done = moving.run("move", "events", "--brokers", "1", "--replication-factor", "2")
    assert "is to have 2 replicas, but only 1 brokers are named" in str(done.exception)
    assert moving.wanted == {}


def test_a_partition_that_moves_already_is_not_moved_elsewhere(moving: Moving) -> None:
    moving.moves = [one_move()]
    done = moving.run("move", "events:0", "--replicas", "2", "--execute")
    assert "events-0 moves already" in str(done.exception)
    assert moving.wanted == {}


def test_a_refusal_of_one_partition_hides_no_other(moving: Moving) -> None:
    moving.refused = {0: Code.INVALID_REPLICA_ASSIGNMENT}
    done = moving.run("move", "events", "--replicas", "2", "--execute")
    assert done.exit_code == 3
    assert "refused: INVALID_REPLICA_ASSIGNMENT: events-0" in done.stdout
    assert "began 1 move:" in done.stderr
    assert moving.wanted == {2: [2]}


def test_the_wait_ends_with_the_moves(moving: Moving) -> None:
    def begun(request: Any) -> AlterPartitionReassignmentsResponse:
        moving.moves, moving.ends_after = [one_move()], moving.looks + 1
        moving.cluster.replicas["events", 0] = [2]
        return moving.reassigned(request)

    moving.cluster.answer(45, begun)
    done = moving.run("move", "events:0", "--replicas", "2", "--execute", "--wait")
    assert done.exit_code == 0, done.output


def test_a_wait_that_is_over_too_soon_and_a_move_that_was_called_off_are_told(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firnline.cli.operations.move._METADATA_S", 0.1)

    def begun(request: Any) -> AlterPartitionReassignmentsResponse:
        moving.moves = [one_move()]
        return moving.reassigned(request)

    moving.cluster.answer(45, begun)
    words = ("move", "events:0", "--replicas", "2", "--execute", "--wait")
    done = moving.run(*words, "--within", "10ms")
    assert done.exit_code == 3
    assert "these still move" in done.stderr
    moving.moves, moving.ends_after = [], moving.looks + 1
    moving.cluster.answer(45, moving.reassigned)
    done = moving.run(*words)
    assert done.exit_code == 3
    assert "events-0 did not move: it is on 1" in done.stderr


def test_the_controller_is_asked_again_while_there_is_none(moving: Moving) -> None:
    nobody = ListPartitionReassignmentsResponse(error_code=Code.NOT_CONTROLLER, error_message=None)
    moving.cluster.answer(46, once(lambda request: nobody, moving.listed))
    assert moving.run("status").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["move", "events"], "where to?"),
        (["move", "--brokers", "1"], "name the partitions"),
        (["move", "events", "--brokers", "1", "--replicas", "1"], "where to?"),
        (["move", "events", "--replicas", "1", "--wait"], "--wait goes with --execute"),
        (["move", "events", "--replicas", "1", "--export", "--execute"], "leave out --execute"),
        (["move", "events", "--replicas", "1,1"], "names a broker twice"),
        (["move", "events", "--replicas", "one"], "is not like 1,2,3"),
        (["move", "events", "--replicas", "1", "--replication-factor", "1"], "goes with --brokers"),
        (["cancel"], "which moves?"),
        (["cancel", "events", "--all"], "which moves?"),
        (["elect"], "of which partitions?"),
    ],
)
def test_wrong_usage_is_told(moving: Moving, words: list[str], said: str) -> None:
    done = moving.run(*words)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


# ------------------------------------------------------------------------------- status and cancel


def test_progress_is_what_the_new_replicas_have(moving: Moving) -> None:
    moving.moves = [one_move()]
    (row,) = json.loads(moving.run("status", "--format", "json").stdout)
    assert (row["copied_bytes"], row["size_bytes"]) == (250, 1000)
    assert "250 B" in moving.run("status").stdout


def test_a_replica_on_its_way_to_another_directory_is_no_progress(moving: Moving) -> None:
    moving.moves = [one_move()]
    there = moving.cluster.brokers[1].answers[35]

    def with_future(request: Any) -> Any:
        answer: Any = there(request)
        future = DescribeLogDirsPartition(partition_index=0, partition_size=900, is_future_key=True)
        topic = DescribeLogDirsTopic(name="events", partitions=[future])
        answer.results = [*answer.results, DescribeLogDirsResult(log_dir="/e", topics=[topic])]
        return answer

    moving.cluster.brokers[1].answers[35] = with_future
    (row,) = json.loads(moving.run("status", "--format", "json").stdout)
    assert row["copied_bytes"] == 250


def test_a_broker_that_restarts_ends_no_wait(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving.moves = [one_move()]
    answers: list[Any] = [Unreachable("down"), Unreachable("down"), []]

    def look(*_: object) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Unreachable):
            raise answer
        return answer

    monkeypatch.setattr("firnline.cli.operations.progress._look", look)
    monkeypatch.setattr("firnline.cli.operations.progress.LOOK_S", 0.01)
    assert moving.run("status", "--wait").exit_code == 0
    answers[:] = [Unreachable("gone")] * 1000
    monkeypatch.setattr("firnline.cli.operations.progress.SILENCE_S", 0.05)
    assert isinstance(moving.run("status", "--wait").exception, Unreachable)


def test_progress_of_a_broker_that_is_silent_is_unknown_or_what_the_others_say(
    moving: Moving,
) -> None:
    moving.moves = [one_move()]
    for broker in moving.cluster.brokers:
        del broker.answers[35]
    (row,) = json.loads(moving.run("status", "--format", "json").stdout)
    assert (row["copied_bytes"], row["size_bytes"]) == (-1, -1)


def test_moves_are_cancelled(moving: Moving) -> None:
    assert moving.run("cancel", "--all").stderr == "no partition moves\n"
    moving.moves = [one_move()]
    assert moving.run("cancel", "events").exit_code == 0
    assert moving.wanted == {0: None}, "only what moves"
    moving.refused = {1: Code.NO_REASSIGNMENT_IN_PROGRESS}
    done = moving.run("cancel", "events:0,1")
    assert done.exit_code == 3
    assert "NO_REASSIGNMENT_IN_PROGRESS" in done.stdout


# ------------------------------------------------------------------------------------------ elect


def test_leaders_are_elected_each_with_its_own_outcome(moving: Moving) -> None:
    moving.refused = {1: Code.ELECTION_NOT_NEEDED}
    done = moving.run("elect", "events:0,1", "--format", "json")
    assert done.exit_code == 0
    assert [row["result"] for row in json.loads(done.stdout)] == ["elected", "not needed"]
    moving.refused[0] = Code.PREFERRED_LEADER_NOT_AVAILABLE
    done = moving.run("elect", "events:0,1")
    assert done.exit_code == 3
    assert "PREFERRED_LEADER_NOT_AVAILABLE" in done.stdout


def test_all_partitions_in_need_are_meant_by_all(moving: Moving) -> None:
    done = moving.run("elect", "--all", "--format", "json")
    assert [row["partition"] for row in json.loads(done.stdout)] == [2]
    (request,) = moving.cluster.asked("ElectLeadersRequest")
    assert request.topic_partitions is None
    assert request.election_type == 0


def test_an_unclean_election_is_agreed_to(moving: Moving) -> None:
    done = moving.run("elect", "events:0", "--unclean")
    assert done.exit_code == 2
    assert "unclean leaders of events-0? Acknowledged records may be lost" in done.stderr
    assert not moving.cluster.asked("ElectLeadersRequest")
    assert moving.run("elect", "events:0", "--unclean", "--yes").exit_code == 0
    assert moving.cluster.asked("ElectLeadersRequest")[0].election_type == 1
