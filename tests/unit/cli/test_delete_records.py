"""`firnline topic delete-records`: what it deletes, and what it refuses before anything is lost."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.base.ids import TopicPartition
from firnline.client.admin import Admin
from firnline.client.operations.partitions import delete_records
from firnline.protocol.messages.k21_delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tests.unit.cli.fake_cluster import FakeCluster, fake_cluster, once


class Deleting:
    """Answers DeleteRecords; `deleted` is what was asked for, `refused` the codes of partitions."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.deleted: dict[int, int] = {}
        self.refused: dict[int, Code] = {}
        cluster.answer(21, self.delete)

    def delete(self, request: Any) -> DeleteRecordsResponse:
        results = []
        (topic,) = request.topics
        for part in topic.partitions:
            code = self.refused.get(part.partition_index, Code.NONE)
            if not code:
                self.deleted[part.partition_index] = part.offset
            results.append(
                DeleteRecordsPartitionResult(
                    partition_index=part.partition_index, low_watermark=part.offset, error_code=code
                )
            )
        return DeleteRecordsResponse(
            topics=[DeleteRecordsTopicResult(name=topic.name, partitions=results)]
        )

    def run(self, *words: str, stdin: str = "") -> Any:
        return self.cluster.run("topic", "delete-records", *words, stdin=stdin)


@pytest.fixture
def deleting() -> Iterator[Deleting]:
    with fake_cluster() as made:
        yield Deleting(made)


def test_nothing_is_deleted_that_nobody_agreed_to(deleting: Deleting) -> None:
    done = deleting.run("events", "--to-offset", "50")
    assert done.exit_code == 2
    assert "Delete up to 160 records for good?" in done.stderr
    done = deleting.run("events", "--to-offset", "50", "--dry-run")
    assert (done.exit_code, done.stderr) == (0, "nothing was deleted\n")
    assert deleting.deleted == {}


def test_each_leader_is_asked_for_its_partitions(deleting: Deleting) -> None:
    assert deleting.run("events:0-2", "--to-offset", "50", "--yes").exit_code == 0
    assert deleting.deleted == {0: 50, 1: 50, 2: 50}
    assert len(deleting.cluster.asked("DeleteRecordsRequest")) == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["events", "-p", "0:20", "-p", "3:30"], {0: 20, 3: 30}),
        (["events:0", "--to-latest"], {0: 100}),
        (["events:0,1", "--before", "1970-01-01T00:00:05Z"], {0: 42, 1: 100}),
        (["events:0", "--to-offset", "3"], {}),
    ],
)
def test_what_can_be_deleted(
    deleting: Deleting, words: list[str], expected: dict[int, int]
) -> None:
    deleting.cluster.offsets["events", 0, 5000] = 42
    assert deleting.run(*words, "--yes").exit_code == 0
    assert deleting.deleted == expected


def test_kafkas_file_is_read(deleting: Deleting) -> None:
    rows = [{"topic": "events", "partition": n, "offset": o} for n, o in ((0, 20), (1, -1))]
    text = json.dumps({"version": 1, "partitions": rows})
    assert deleting.run("--offsets-file", "-", "--yes", stdin=text).exit_code == 0
    assert deleting.deleted == {0: 20, 1: 100}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "has no offsets"),
        ('{"version": 2, "partitions": []}', "version 2 is not known"),
        ('{"partitions": []}', "names no partition"),
        ('{"partitions": [{"topic": "events", "partition": 0}]}', "'offset' is missing"),
        ('{"partitions": [{"topic": "events", "partition": 0, "offset": "9"}]}', "not a partition"),
        ('{"partitions": [{"topic": "events", "partition": 0, "offset": -2}]}', "not an offset"),
        ("[]", "has no offsets"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(deleting: Deleting, text: str, said: str) -> None:
    done = deleting.run("--offsets-file", "-", "--yes", stdin=text)
    assert done.exit_code == 2
    assert said in done.stderr
    assert deleting.deleted == {}


def test_an_offset_past_the_end_stops_all_of_it(deleting: Deleting) -> None:
    done = deleting.run("events", "-p", "0:50", "-p", "1:101", "--yes")
    assert "events-1 ends at 100: 101 is past it; nothing was deleted" in str(done.exception)
    assert deleting.deleted == {}


def test_a_refusal_of_one_partition_hides_no_other(deleting: Deleting) -> None:
    deleting.refused = {1: Code.POLICY_VIOLATION}
    done = deleting.run("events", "--to-offset", "50", "--yes", "--format", "json")
    assert done.exit_code == 3
    rows = json.loads(done.stdout)
    assert [row["is_deleted"] for row in rows] == [True, False, True, True]
    assert rows[1]["problem"] == "POLICY_VIOLATION: events-1"
    done = deleting.run("events", "--to-offset", "60", "--yes")
    assert "refused: POLICY_VIOLATION: events-1" in done.stdout


def test_a_leader_that_is_silent_hides_no_other_outcome(deleting: Deleting) -> None:
    places = {TopicPartition("events", n): 50 for n in (0, 1)}
    deleting.cluster.brokers[1].port = 1
    with Admin(deleting.cluster.bootstrap, timeout_s=2) as admin:
        found = delete_records(admin, places)
    assert found[TopicPartition("events", 0)] == 50
    said = str(found[TopicPartition("events", 1)])
    assert said.startswith("LEADER_NOT_AVAILABLE: broker 2, its leader: cannot reach")


def test_a_log_that_begins_later_is_left_alone(deleting: Deleting) -> None:
    deleting.cluster.offsets["events", 1, -2] = 60
    assert deleting.run("events:0,1", "--to-offset", "50", "--yes").exit_code == 0
    assert deleting.deleted == {0: 50}


def test_a_partition_without_a_leader_is_told_at_the_deadline(deleting: Deleting) -> None:
    deleting.cluster.leaderless = {("events", 1)}
    places = {TopicPartition("events", n): 50 for n in (0, 1)}
    with Admin(deleting.cluster.bootstrap, timeout_s=2) as admin:
        found = delete_records(admin, places)
    assert found[TopicPartition("events", 0)] == 50
    assert str(found[TopicPartition("events", 1)]) == (
        "LEADER_NOT_AVAILABLE: events-1: no broker leads it"
    )


def test_a_leader_that_has_moved_is_looked_up_again(deleting: Deleting) -> None:
    def moved(request: Any) -> DeleteRecordsResponse:
        deleting.refused = dict.fromkeys(range(4), Code.NOT_LEADER_OR_FOLLOWER)
        answer = deleting.delete(request)
        deleting.refused = {}
        return answer

    deleting.cluster.answer(21, once(moved, deleting.delete))
    assert deleting.run("events:0", "--to-offset", "50", "--yes").exit_code == 0
    assert deleting.deleted == {0: 50}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["events"], "which records?"),
        (["events", "--to-latest", "--to-offset", "5"], "which records?"),
        (["--to-latest"], "name the topics"),
        (["events", "other", "-p", "0:1"], "name the topics (with -p: one)"),
        (["events", "-p", "0"], "is not like 0:123"),
        (["events", "-p", "0:1", "-p", "0:2"], "is there twice"),
    ],
)
def test_wrong_usage_is_told(deleting: Deleting, words: list[str], said: str) -> None:
    done = deleting.run(*words, "--yes")
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
