"""Who reaches a controller's listener, and whether the operator is told: everybody, or nobody."""

from pathlib import Path

import pytest

from firnline.config.load import load, read_properties
from firnline.server.main import exposed_listeners, misnamed_controller
from tests.worlds.effects import said

EXAMPLES = Path(__file__).parents[3] / "examples"
NODE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
}


def test_a_controllers_listener_that_everybody_reaches_is_said_with_the_remedy() -> None:
    for host in ("", "0.0.0.0", "[::]"):
        listeners = f"PLAINTEXT://:9092,CONTROLLER://{host}:9093"
        (line,) = exposed_listeners(load({**NODE, "listeners": listeners}))
        assert "listener=CONTROLLER host=" in said(line)
        assert "instead=CONTROLLER://10.0.0.1:9093" in said(line)
    listeners = "PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9093"
    assert exposed_listeners(load({**NODE, "listeners": listeners})) == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.properties")), ids=lambda path: path.name)
def test_no_example_lets_everybody_reach_a_controller(path: Path) -> None:
    assert exposed_listeners(load(read_properties(path.read_text()))) == []


LISTENERS = "PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9093"


@pytest.mark.parametrize(
    ("key", "entries", "entry"),
    [
        ("controller.quorum.voters", "1@a:9193,2@b:9093", "1@a:9193"),
        ("controller.quorum.bootstrap.servers", "localhost:9193", "localhost:9193"),
    ],
)
def test_a_controller_that_the_quorum_looks_for_at_another_port_says_both(
    key: str, entries: str, entry: str
) -> None:
    node = {**NODE, "listeners": LISTENERS, key: entries}
    (line,) = misnamed_controller(load(node))
    assert f"key={key} entry={entry} named_port=9193 listener=CONTROLLER listens_port=9093" in (
        said(line)
    )
    assert misnamed_controller(load({**node, key: entries.replace("9193", "9093")})) == []
    forwarded = "PLAINTEXT://a:9092,CONTROLLER://a:9193"
    assert misnamed_controller(load({**node, "advertised.listeners": forwarded})) == []


def test_a_broker_names_no_controller_of_its_own() -> None:
    node = {**NODE, "process.roles": "broker", "listeners": "PLAINTEXT://:9092"}
    assert misnamed_controller(load({**node, "controller.quorum.voters": "9@a:9193"})) == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.properties")), ids=lambda path: path.name)
def test_no_example_names_another_port(path: Path) -> None:
    assert misnamed_controller(load(read_properties(path.read_text()))) == []
