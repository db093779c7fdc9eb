"""The plan of `firnline dev --nodes`: ports, roles, replication factors, and what is refused."""

import contextlib
import socket
from pathlib import Path

import pytest

from firnline.base.errors import ConfigError
from firnline.cli.dev_cluster import (
    DevNode,
    plan,
    prepare,
    refuse_other_contents,
    run_cluster,
    settings_of,
)
from firnline.config.load import load, read_properties
from tests.peers.ports import free_ports


def settings(members: list[DevNode], node_id: int, **stated: str) -> dict[str, str]:
    given = {name.replace("_", "."): value for name, value in stated.items()}
    return settings_of(members[node_id - 1], members, {}, given)


@pytest.mark.parametrize(("nodes", "controllers"), [(2, [1]), (3, [1, 2, 3]), (5, [1, 2, 3])])
def test_as_many_controllers_as_help_and_no_factor_above_the_nodes(
    tmp_path: Path, nodes: int, controllers: list[int]
) -> None:
    members = plan(tmp_path, nodes, 0)
    assert [m.node_id for m in members if m.controller_port] == controllers
    ports = [port for m in members for port in (m.port, m.broker_port, m.controller_port) if port]
    assert len(set(ports)) == 2 * nodes + len(controllers)
    config = load(settings(members, nodes))
    assert len(config.controller_quorum_voters) == len(controllers)
    assert config.offsets_topic_replication_factor == min(3, nodes)
    assert config.broker_listeners == {"BROKER"}
    assert config.exposed_controllers == []
    assert not config.shares_broker_listener
    assert config.default_replication_factor == min(3, nodes)
    assert settings(members, 1)["min.insync.replicas"] == ("2" if nodes > 2 else "1")


def test_the_others_take_the_ports_that_follow_or_free_ones(tmp_path: Path) -> None:
    for _ in range(20):
        (port,) = free_ports(1)
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(socket.create_server(("127.0.0.1", port + 1)))
                members = plan(tmp_path, 3, port)
            except (OSError, ConfigError):
                continue  # somebody else's port
        assert members[0].port == port
        assert members[1].port not in (port, port + 1)
        return
    raise AssertionError("no two ports are free side by side")


def test_a_first_port_in_use_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}.*--port"):
            plan(tmp_path / "new", 3, port)
    assert not (tmp_path / "new").exists()


def test_the_next_run_has_the_same_ports_and_the_same_cluster(tmp_path: Path) -> None:
    members = plan(tmp_path, 2, 0)
    for member in members:
        prepare(member, settings_of(member, members, {}, {}))
    ids = [read_properties((m.data / "meta.properties").read_text()) for m in members]
    assert ids[0]["cluster.id"] == ids[1]["cluster.id"]
    assert ids[0]["node.id"] != ids[1]["node.id"]
    again = plan(tmp_path, 2, 0)
    assert again == members
    for member in again:
        prepare(member, settings_of(member, again, {}, {}))
    assert ids == [read_properties((m.data / "meta.properties").read_text()) for m in members]


def test_a_setting_with_a_backslash_survives_the_file(tmp_path: Path) -> None:
    members = plan(tmp_path, 1, 0)
    stated = settings_of(members[0], members, {}, {"broker.rack": "a\\b é"})
    prepare(members[0], stated)
    found = read_properties(members[0].settings_file.read_text())
    assert found["broker.rack"] == "a\\b é"


def test_a_directory_of_another_shape_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "meta.properties").write_text("")
    with pytest.raises(ConfigError, match="holds a single node"):
        refuse_other_contents(tmp_path / "one", 3)
    (tmp_path / "three" / "node-1" / "data").mkdir(parents=True)
    refuse_other_contents(tmp_path / "three", 1)
    with pytest.raises(ConfigError, match="holds a cluster of 1 nodes: start it with --nodes 1"):
        refuse_other_contents(tmp_path / "three", 3)


@pytest.mark.parametrize("name", ["node.id", "listeners", "log.dirs", "controller.quorum.voters"])
def test_what_every_node_has_for_itself_cannot_be_stated_for_all(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"-X {name}"):
        run_cluster(
            3, tmp_path, port=0, settings={}, stated={name: "1"}, tier=None, log_level="info"
        )
    assert list(tmp_path.iterdir()) == []


def test_each_node_has_a_port_of_its_own_for_metrics(tmp_path: Path) -> None:
    members = plan(tmp_path, 3, 0)
    found = [settings(members, n, firnline_metrics_port="9404") for n in (1, 2, 3)]
    assert [each["firnline.metrics.port"] for each in found] == ["9404", "9405", "9406"]
    off = settings(members, 2, firnline_metrics_port="0")
    assert off["firnline.metrics.port"] == "0"
