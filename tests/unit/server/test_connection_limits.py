"""Limits of connections as the file, the cluster and the node state them."""

from types import SimpleNamespace
from typing import Any

import pytest

from firnline.base.errors import ConfigError
from firnline.config.load import load
from firnline.server.connection_limits import CONNECTIONS_MAX, ConnectionLimits

NODE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
}
OVERRIDES = "max.connections.per.ip.overrides"


class Limited:
    """A node with these settings in its file; what is altered is set in `altered`, by broker name."""

    def __init__(self, **stated: str) -> None:
        file = {name.replace("_", "."): value for name, value in stated.items()}
        self.altered: dict[str, dict[str, str]] = {}
        self.limits = ConnectionLimits(load({**NODE, **file}), self._image)

    def _image(self) -> Any:
        return SimpleNamespace(config=lambda kind, name: self.altered.get(name, {}))


def test_ten_thousand_where_nothing_is_stated_and_else_what_is() -> None:
    node = Limited()
    assert node.limits().total == CONNECTIONS_MAX
    node.altered[""] = {"max.connections": "20000"}
    assert node.limits().total == 20_000
    node.altered["1"] = {"max.connections": "30000"}
    assert node.limits().total == 30_000
    assert Limited(max_connections="2147483647").limits().total == 2**31 - 1


def test_a_name_stands_for_its_addresses() -> None:
    node = Limited(max_connections_per_ip="9", **{OVERRIDES: "localhost:7"})
    assert node.limits().of("127.0.0.1") == 7
    assert node.limits().of("127.0.0.2") == 9


def test_a_name_without_an_address_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.invalid, which has no address"):
        Limited(**{OVERRIDES: "nowhere.invalid:7"})


def test_what_cannot_be_read_changes_nothing_and_ends_nothing() -> None:
    node = Limited(max_connections_per_ip="9")
    node.altered[""] = {OVERRIDES: "no count"}
    assert node.limits().of("127.0.0.1") == 9
