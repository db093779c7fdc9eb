"""The fuzzer's own checks find what they are for, and what was found is told with few bursts."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fuzz import play as playing
from tests.fuzz.known import Known, Member
from tests.fuzz.node import Finding, Node, Others, Slow
from tests.fuzz.play import Outcome, Player, Tally


class Ended:
    """A process that has ended, or not."""

    def __init__(self, returncode: int | None) -> None:
        self.returncode = returncode

    def poll(self) -> int | None:
        return self.returncode


def node(base: Path, said: str, returncode: int | None = None) -> Node:
    made = Node(base)
    (base / "data.log").write_text(said)
    made.broker.process = Ended(returncode)  # type: ignore[assignment]
    return made


@pytest.mark.parametrize(
    "said",
    [
        "Traceback (most recent call last):",
        "a request failed inside; its connection is closed: fetch",
        "CRITICAL firnline: the node stops: broker 1",
        "the log directory /a failed and is out of use",
    ],
)
def test_what_a_log_must_not_say_is_found_once(tmp_path: Path, said: str) -> None:
    made = node(tmp_path, f"all is well\n{said}\n")
    with pytest.raises(Finding, match="all is well"):
        made.look()
    made.look()


def test_a_node_that_has_ended_is_found(tmp_path: Path) -> None:
    node(tmp_path / "runs", "").look()
    with pytest.raises(Finding, match="it ended with 1: no room"):
        node(tmp_path / "ended", "no room", 1).look()


def test_another_client_that_waits_is_found(tmp_path: Path) -> None:
    asking = Others(node(tmp_path, ""))
    asking.waited_s = [0.01] * 97 + [1.5] * 3
    asking.are_unharmed()
    asking.waited_s = [0.01] * 90 + [0.2] * 10
    with pytest.raises(Slow):
        asking.are_unharmed()
    asking.waited_s = [0.01] * 99 + [2.5]
    with pytest.raises(Slow):
        asking.are_unharmed()
    asking.problem = ConnectionResetError("gone")
    with pytest.raises(Finding, match="another client: ConnectionResetError"):
        asking.are_unharmed()


def test_an_answer_that_nobody_asked_for_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = node(tmp_path, "")
    monkeypatch.setattr(Node, "known", lambda self: Known())
    player = Player(made, 1)
    lane = SimpleNamespace(asked=[])
    with pytest.raises(Finding, match="number 7, which nobody asked for"):
        player._take(lane, b"\0\0\0\7rest")  # type: ignore[arg-type]


def test_a_member_that_is_unknown_now_is_forgotten() -> None:
    known = Known()
    known.members.extend([Member("g", "m-1", 1), Member("g", "m-2", 1)])
    focus = {"group_id": "g", "member_id": "m-1"}
    known.learn(12, focus, SimpleNamespace(error_code=25))
    assert list(known.members) == [Member("g", "m-2", 1)]


@pytest.mark.parametrize("recent", [[], list(range(30, 50))])
def test_a_finding_is_reported_with_the_bursts_that_it_takes(
    monkeypatch: pytest.MonkeyPatch, recent: list[int]
) -> None:
    guilty = {33, 41}

    def play(base: Path, seed: int, numbers: Sequence[int], *, rounds: int = 1) -> Outcome:
        return Outcome(Tally(), "it ended with 1" if guilty <= set(numbers) else "")

    monkeypatch.setattr(playing, "play", play)
    fewest = playing.shrink(1, range(50), recent)
    assert guilty <= set(fewest)
    assert len(fewest) <= 6
