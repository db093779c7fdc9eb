"""Frameworks of Python on Firnline, unchanged: what a small program in each sees. WORLD.

The programs are in `tests/compat/frameworks`. They run in a virtual environment of their own
(`tests/peers/frameworks.py`), killed and started again where the framework promises to go on.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firnline.testing import Broker, Topic
from tests.peers import frameworks
from tests.peers.kafka import PeerMissing

pytestmark = pytest.mark.peer
PROGRAMS = Path(__file__).parent / "frameworks"
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python that has the frameworks."""
    try:
        return frameworks.fetch()
    except PeerMissing as problem:
        pytest.skip(f"NOT RUN: {problem}")


class Program:
    """One of the programs, in a process of its own."""

    def __init__(self, python: Path, name: str, arguments: tuple[str, ...], log: Path) -> None:
        self.log = log
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [python, PROGRAMS / f"{name}.py", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=log.parent,
                env=environment,
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Stop it in order."""
        self.process.terminate()
        self.process.wait(PATIENCE_S)

    def await_(self, what: str, look: Callable[[], bool]) -> None:
        """Wait until something is so; AssertionError with the log if the program ends before."""
        deadline = time.monotonic() + PATIENCE_S
        while not look():
            ended = self.process.poll()
            if ended is not None or time.monotonic() > deadline:
                said = self.log.read_text(errors="replace")[-3000:]
                raise AssertionError(f"{what}: not so; the program ended with {ended}:\n{said}")
            time.sleep(0.05)


@pytest.fixture
def start(python: Path, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Start a program by its name, with arguments; killed after the test."""
    started: list[Program] = []

    def begin(name: str, *arguments: object) -> Program:
        words = tuple(map(str, arguments))
        started.append(Program(python, name, words, tmp_path / "program.log"))
        return started[-1]

    yield begin
    for each in started:
        each.kill()


@pytest.fixture
def pair(firnline_session_broker: Broker) -> tuple[Topic, Topic]:
    """A topic that a program reads, and one that it writes."""
    return firnline_session_broker.create_topic(), firnline_session_broker.create_topic()


def test_quixstreams_loses_nothing_when_it_is_killed(
    start: Callable[..., Program], pair: tuple[Topic, Topic], tmp_path: Path
) -> None:
    """At least once, with state: the second process has nothing of the first one's files."""
    source, target = pair
    for number in range(30):
        source.put(*(f"{number}-{each}" for each in range(50)), key=f"key {number % 3}")
    app = start("quix", source.bootstrap, source, target, tmp_path / "state-1", 900)
    app.await_("some are counted", lambda: len(target.records()) > 300)
    app.kill()
    before = len(target.records())
    assert before < 1500, "it was killed too late"
    source.put("the last", key="key 0")
    app = start("quix", source.bootstrap, source, target, tmp_path / "state-2")
    app.await_("the last is counted", lambda: b"the last" in (target.values()[-1] or b""))
    rows = [(record.key, json.loads(record.value or b"")) for record in target.records()]
    wanted = {f"{number}-{each}" for number in range(30) for each in range(50)} | {"the last"}
    assert {row["value"] for _, row in rows} == wanted
    # Counts go on from the changelog: none that was committed is counted from the beginning again.
    highest = {key: max(row["seen"] for k, row in rows if k == key) for key, _ in rows}
    assert all(highest[f"key {n}".encode()] >= 500 for n in range(3))


def test_faust_recovers_a_table_from_its_changelog(
    start: Callable[..., Program], pair: tuple[Topic, Topic], tmp_path: Path
) -> None:
    """The second process has nothing of the first one's files, and counts on.

    faust may count a word again, or miss one that comes while it starts, as on Apache Kafka.
    """
    source, target = pair

    def counts(first: int = 0) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {"snow": [], "ice": []}
        for value in target.values()[first:]:
            word, _, count = (value or b"").decode().partition("=")
            found[word].append(int(count))
        return found

    source.put("snow", "ice", "snow")
    app = start("tables", source.bootstrap, source, target, tmp_path / "data-1")
    app.await_("the words are counted", lambda: len(counts()["snow"]) > 1 and counts()["ice"] != [])
    app.stop()
    before, position = counts(), len(target.records())
    assert [before["snow"][:2], before["ice"][:1]] == [[1, 2], [1]]
    app = start("tables", source.bootstrap, source, target, tmp_path / "data-2")
    app.await_("it is ready again", lambda: app.log.read_text().count("Worker ready") == 2)
    source.put("snow", "ice")
    app.await_("the words are counted on", lambda: all(counts(position).values()))
    after = counts(position)
    assert {word: after[word][0] for word in after} == {w: before[w][-1] + 1 for w in before}


def test_faststream_subscribes_and_publishes(
    start: Callable[..., Program], pair: tuple[Topic, Topic]
) -> None:
    source, target = pair
    app = start("subscriber", source.bootstrap, source, target)
    source.put(*(json.dumps({"number": n, "item": "skis"}) for n in range(100)))
    app.await_("all have receipts", lambda: len(target.records()) >= 100)
    assert target.values() == [f"{number}: SKIS".encode() for number in range(100)]


def test_the_members_of_an_aiokafka_group_share_a_topic(
    start: Callable[..., Program], firnline_session_broker: Broker
) -> None:
    topic = firnline_session_broker.create_topic(partitions=4)
    app = start("group", topic.bootstrap, topic, 200)
    assert app.process.wait(PATIENCE_S) == 0, app.log.read_text()
    found = json.loads(app.log.read_text().splitlines()[-1])
    assert found["assigned"] == [2, 2]
    for act, seen in enumerate(found["seen"]):
        assert seen == sorted(f"{act}-{number}" for number in range(200))
