"""`firnline partition move --at-a-time`: how many move at once, Ctrl-C, and how the same command goes on."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.protocol.messages.k46_list_partition_reassignments import MovingPartition
from tests.unit.cli.fake_cluster import fake_cluster
from tests.unit.cli.test_partition import Moving

TO_TWO = ("move", "events", "--replicas", "2,1", "--execute", "--at-a-time")


class Slow(Moving):
    """Each move that is begun ends after `lasts` looks; -1: never. `most` moved at the same time."""

    lasts = 2
    most = 0
    is_called_off = False
    batches: list[int]
    left: dict[int, int]

    def listed(self, request: Any) -> Any:
        self.left = {n: looks - 1 for n, looks in self.left.items()}
        for n in [n for n, looks in self.left.items() if looks == 0]:
            self.end(n)
        self.moves = [self.row(n) for n in sorted(self.left)]
        return super().listed(request)

    def reassigned(self, request: Any) -> Any:
        answer = super().reassigned(request)
        indexes = [p.partition_index for p in request.topics[0].partitions]
        self.batches.append(len(indexes))
        self.left |= {n: self.lasts for n in indexes if n not in self.refused}
        self.most = max(self.most, len(self.left))
        return answer

    def end(self, index: int) -> None:
        del self.left[index]
        if self.is_called_off:
            return
        self.cluster.replicas["events", index] = list(self.wanted[index] or ())

    def row(self, index: int) -> MovingPartition:
        return MovingPartition(
            partition_index=index, replicas=[2, 1], adding_replicas=[2], removing_replicas=[]
        )


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    monkeypatch.setattr("firnline.cli.operations.pace.LOOK_S", 0.01)
    with fake_cluster() as made:
        found = Slow(made)
        found.left, found.batches = {}, []
        made.replicas = {("events", n): [1] for n in range(4)}
        yield found


def test_no_more_than_so_many_move_at_once(slow: Slow) -> None:
    done = slow.run(*TO_TWO, "2")
    assert (done.exit_code, done.stderr) == (0, "moved 4 partitions\n")
    assert (slow.most, sum(slow.batches)) == (2, 4)
    assert slow.cluster.replicas == {("events", n): [2, 1] for n in range(4)}
    assert len(done.stdout.splitlines()) == 5, "the plan, before anything moves"
    done = slow.run(*TO_TWO, "2")
    assert done.stderr == "all of them are there already: nothing to move\n"


def test_a_partition_that_is_refused_holds_up_no_other(slow: Slow) -> None:
    slow.refused = {1: Code.INVALID_REPLICA_ASSIGNMENT}
    done = slow.run(*TO_TWO, "1", "--format", "json")
    assert done.exit_code == 3
    assert [(row["is_begun"], bool(row["problem"])) for row in json.loads(done.stdout)] == [
        (True, False), (False, True), (True, False), (True, False),
    ]  # fmt: skip
    assert "moved 4" not in done.stderr


def test_when_the_time_is_over_nothing_more_begins(slow: Slow) -> None:
    slow.lasts = -1
    done = slow.run(*TO_TWO, "1", "--within", "1s")
    assert done.exit_code == 3
    assert "these still move:" in done.stderr
    assert done.stderr.endswith("3 partitions not begun: the same command goes on\n")
    assert slow.batches == [1]


def test_a_move_that_somebody_called_off_is_told(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firnline.cli.operations.move._METADATA_S", 0.1)
    slow.is_called_off = True
    done = slow.run("move", "events:0", *TO_TWO[2:], "1")
    assert done.exit_code == 3
    assert "events-0 did not move: it is on 1" in done.stderr


@pytest.mark.slow
def test_ctrl_c_leaves_what_has_begun_and_the_same_command_goes_on(slow: Slow) -> None:
    slow.lasts = -1
    words = ("partition", *TO_TWO, "1", "--bootstrap-server", slow.cluster.bootstrap)
    process = subprocess.Popen(
        [sys.executable, "-m", "firnline", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    limit_s = time.monotonic() + 30
    while slow.looks < 3 and time.monotonic() < limit_s:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said == (
        "\ninterrupted: 0 partitions moved, 1 still moves (firnline partition status), 3 not begun."
        " The same command goes on\n"
    )
    assert slow.batches == [1]
    status = slow.run("status", "--format", "json")
    assert [row["partition"] for row in json.loads(status.stdout)] == [0], "this shows what moves"

    slow.left, slow.lasts = {0: 8}, 2
    done = slow.run(*TO_TWO, "1")
    assert (done.exit_code, done.stderr) == (0, "moved 4 partitions\n")
    assert (slow.batches, slow.most) == ([1, 1, 1, 1], 1), "the one on its way is not begun anew"


def test_one_that_moves_to_other_brokers_is_left_alone(slow: Slow) -> None:
    slow.left = {0: -1}
    done = slow.run("move", "events", "--replicas", "2", "--execute", "--at-a-time", "1")
    assert "events-0 moves already: wait for it, or firnline partition cancel" in str(
        done.exception
    )
    assert slow.batches == []


def test_the_way_back_is_not_lost_when_the_command_is_given_again(
    slow: Slow, tmp_path: Path
) -> None:
    before = tmp_path / "before.json"
    words = (*TO_TWO, "4", "--rollback", str(before))
    plan = [word for word in words if word not in ("--execute", "--at-a-time", "4")]
    assert slow.run(*plan).exit_code == 0
    stored = before.read_text()
    assert slow.run(*words).exit_code == 0, "the same way back is no other"
    slow.cluster.replicas["events", 3] = [1]  # as if it had been interrupted before the last one
    done = slow.run(*words)
    assert done.exit_code == 2
    assert "before.json is there already, and leads elsewhere" in done.stderr
    assert before.read_text() == stored


@pytest.mark.parametrize("words", [("--throttle", "1000"), ("--throttle",)])
def test_who_wants_a_throttle_hears_what_to_do_instead(slow: Slow, words: tuple[str, ...]) -> None:
    done = slow.run("move", "events", "--replicas", "2", *words)
    assert done.exit_code == 2
    assert "Firnline's brokers have no quotas of replication" in done.stderr
    assert "--at-a-time 1" in done.stderr


def test_only_what_is_executed_can_be_paced(slow: Slow) -> None:
    done = slow.run("move", "events", "--replicas", "2", "--at-a-time", "1")
    assert done.exit_code == 2
    assert "--wait goes with --execute, and so does --at-a-time" in done.stderr
