"""Who reaches a controller's listener, and whether the operator is told."""

from pathlib import Path

import pytest

from firnline.config.load import load, read_properties
from firnline.server.main import exposed_listeners
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
