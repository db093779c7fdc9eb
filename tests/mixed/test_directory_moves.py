"""A data directory goes on under the other kind of process: Apache Kafka's under ours, ours under Kafka."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.mixed.belongings import OPEN_RECORDS, USER, Belongings, Home
from tests.mixed.reader import PATIENCE_S
from tests.peers import kafka
from tests.peers.nodes import (
    AT_ZERO,
    COMBINED,
    FIRNLINE,
    KAFKA,
    QUICK,
    Cluster,
    Node,
    eventually,
)

pytestmark = [pytest.mark.peer, pytest.mark.timeout(900)]
SETTINGS = {
    **QUICK,
    # Kafka lets the session of a node that was killed end before it takes the next one.
    "broker.session.timeout.ms": 3000,
    "auto.create.topics.enable": "false",
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.backoff.ms": 200,
    "log.retention.check.interval.ms": 1000,
}
# Files that Kafka writes and we never: they stay as they were.
THEIRS = ("bootstrap.checkpoint", "meta.properties")
_STRAY = "nothing-0.0123456789abcdef0123456789abcdef-stray"


def one_node(directory: Path, kind: str) -> Cluster:
    """A node that is broker and sole controller, with two log directories."""
    cluster = Cluster(directory, [(kind, COMBINED)], SETTINGS, is_default=True)
    node = cluster[1]
    node.settings["log.dirs"] = f"{node.data},{node.data.with_name('more')}"
    return cluster


def start_as(cluster: Cluster, kind: str) -> Home:
    """Start the node that is down as the other kind, and return what clients talk to when it serves."""
    node = cluster.hand_over(1, kind)
    node.start()
    return home(node)


def home(node: Node) -> Home:
    return Home(f"127.0.0.1:{node.port}", node.address)


@dataclass
class Story:
    """What was seen at each station."""

    had: list[Belongings] = field(default_factory=list)  # when the first process went
    found: list[Belongings] = field(default_factory=list)  # when the next one came
    files: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    refusal: str = ""
    users: list[str] = field(default_factory=list)
    open: tuple[int, int, int] = (-1, -1, -1)  # of the open transaction, under ours


def contents(node: Node) -> dict[str, bytes]:
    paths = [folder / name for folder in folders(node) for name in THEIRS]
    paths += [p for folder in folders(node) for p in folder.glob("*-[0-9]/partition.metadata")]
    paths += [folder / "notes.txt" for folder in folders(node)]
    return {str(p): p.read_bytes() for p in paths if p.exists()}


def folders(node: Node) -> list[Path]:
    return [node.data, node.data.with_name("more")]


def cleaner_checkpoints(node: Node) -> list[Path]:
    paths = [folder / "cleaner-offset-checkpoint" for folder in folders(node)]
    return [path for path in paths if path.exists()]


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return story_of_kafkas(tmp_path_factory.mktemp("kafkas"))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return story_of_ours(tmp_path_factory.mktemp("ours"))


def story_of_kafkas(directory: Path) -> Story:
    """A directory of Kafka's: refused with its features, taken without them, back, and taken again."""
    story = Story()
    cluster = one_node(directory, KAFKA)
    with cluster:
        at = home(cluster[1])
        at.fill(with_all_features=True)
        eventually(
            "Kafka has cleaned the compacted topic",
            lambda: any("tidy" in path.read_text() for path in cleaner_checkpoints(cluster[1])),
            within_s=PATIENCE_S,
        )
        cluster[1].stop()
        refused = cluster.hand_over(1, FIRNLINE)
        refused.format()
        refused.launch()
        assert refused.process is not None
        assert refused.process.wait(PATIENCE_S) == 1
        refused.process = None
        story.refusal = refused.log_text()

        at = start_as(cluster, KAFKA)
        where = f"127.0.0.1:{cluster[1].port}"
        kafka.tool("features", "--bootstrap-server", where, "downgrade", *AT_ZERO)
        story.had.append(at.look())
        at.leave_open()
        cluster[1].kill()
        for folder in folders(cluster[1]):
            (folder / "notes.txt").write_text("of nobody")
            (folder / _STRAY).mkdir()
        before = contents(cluster[1])

        at = start_as(cluster, FIRNLINE)
        story.found.append(at.look())
        story.open = at.of_the_open()
        at.change("made-under-ours")
        story.had.append(at.look())
        after = contents(cluster[1])
        story.files = {name: (data, after.get(name, b"")) for name, data in before.items()}
        cluster[1].kill()

        at = start_as(cluster, KAFKA)
        story.found.append(at.look())
        story.users = at.scram_users()
        # Not by its timeout: after kill -9 Kafka takes a partition that has no leader yet for a deleted one,
        # and writes down an end without its marker. It does so with nobody but Kafka on the directory, too.
        at.come_back()
        eventually(
            "the transaction that was open is aborted",
            lambda: at.of_the_open() == (0, OPEN_RECORDS, OPEN_RECORDS + 1),
            within_s=PATIENCE_S,
        )
        at.change("made-under-kafka")
        story.had.append(at.look())
        cluster[1].stop()

        at = start_as(cluster, FIRNLINE)
        story.found.append(at.look())
    return story


def story_of_ours(directory: Path) -> Story:
    """A directory of ours: killed, under Kafka, stopped, and back."""
    story = Story()
    cluster = one_node(directory, FIRNLINE)
    with cluster:
        at = home(cluster[1])
        at.fill(with_all_features=False)
        story.had.append(at.look())
        cluster[1].kill()
        at = start_as(cluster, KAFKA)
        story.found.append(at.look())
        at.change("made-under-kafka")
        story.had.append(at.look())
        cluster[1].stop()
        at = start_as(cluster, FIRNLINE)
        story.found.append(at.look())
    return story


def test_a_directory_with_features_that_we_lack_is_refused_with_the_command_that_helps(
    kafkas: Story,
) -> None:
    """... and Kafka starts on it again, which the rest of the story shows."""
    assert "kafka-features.sh" in kafkas.refusal
    for name in AT_ZERO[1::2]:
        assert f"--feature {name}" in kafkas.refusal
    assert "Traceback" not in kafkas.refusal


@pytest.mark.parametrize(
    "move", [0, 1, 2], ids=["to ours, killed", "back to kafka, killed", "to ours"]
)
def test_all_that_kafka_had_is_there_after_each_move(kafkas: Story, move: int) -> None:
    """Goal: topics, ids, records of every codec, transactions, offsets, settings, however it ended."""
    assert kafkas.had[move].differences(kafkas.found[move]) == []
    assert len(kafkas.had[move].records) >= 6
    assert len(kafkas.had[move].commits) == 2


@pytest.mark.parametrize("move", [0, 1], ids=["to kafka, killed", "back to ours"])
def test_all_that_we_had_is_there_after_each_move(ours: Story, move: int) -> None:
    assert ours.had[move].differences(ours.found[move]) == []
    assert len(ours.had[move].commits) == 1


def test_an_open_transaction_stays_open_until_its_producer_is_back_under_kafka(
    kafkas: Story,
) -> None:
    """Goal: nobody reads what was not committed, and nothing hides what follows for ever.
    Method: the rest of the story is told only when Kafka has aborted it."""
    assert kafkas.open == (0, OPEN_RECORDS, 0)
    assert len(kafkas.had[0].records["transactions-0"]) == 20


def test_files_that_only_kafka_writes_are_left_as_they_are(kafkas: Story) -> None:
    assert [name for name, (before, after) in kafkas.files.items() if before != after] == []
    assert any("notes.txt" in name for name in kafkas.files)


def test_users_that_only_kafka_acts_on_are_kept(kafkas: Story) -> None:
    assert kafkas.users == [USER]
