"""Real nodes with a tier on a real store: S3, Azure Blob Storage, HDFS."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from firnline.cli.doctor import command
from firnline.cli.show import SOMETHING_IS_WRONG
from firnline.client.admin import Admin
from firnline.stores.port import CLUSTER_KEY
from firnline.stores.registry import open_store
from firnline.testing.plugin import Broker
from tests.chaos.test_operator_errors import refused
from tests.chaos.test_tier_errors import RECORDS, TOPIC, fill, numbers
from tests.peers import azurite, s3
from tests.peers.nodes import eventually
from tests.peers.servers import Server, options_of

pytestmark = pytest.mark.peer
EMPTIED_S = 60.0


@pytest.mark.parametrize("name", ["s3", "azurite", "hdfs"])
def test_a_topic_lives_and_ends_on_a_store(
    start_store: Callable[[str], Server], tmp_path: Path, name: str
) -> None:
    """Goal: what a node copies it reads back, and deletes. Method: produce until most records are in the tier
    alone, read all, restart, read all, delete the topic, and look into the store."""
    server = start_store(name)
    options = ["--tier", server.uri, *options_of(server.settings)]
    options += ["-X", "log.segment.delete.delay.ms=0"]
    broker = Broker(tmp_path / "data", options=options)
    broker.start()
    try:
        fill(broker)
        assert numbers(broker) == list(range(RECORDS))
        store = open_store(server.uri, server.settings)
        logs = [info.key for info in store.list_prefix("data/") if info.key.endswith(".log")]
        assert len(logs) >= 7
        broker.restart()
        assert numbers(broker) == list(range(RECORDS))
        line = refused("--port", "0", "--dir", tmp_path / "another", *options)
        assert "the tier belongs to another cluster" in line
        assert server.uri in line
        within = ["--tier", f"{server.uri}/sub", *options_of(server.settings)]
        line = refused("--port", "0", "--dir", tmp_path / "nested", *within)
        assert f"the tier would lie within that of another cluster [tier={server.uri}/sub" in line
        assert findings(server) == []
        data = store.get(logs[-1])
        store.delete(logs[-1])
        assert [each["kind"] for each in findings(server)] == ["object-missing"]
        store.put(logs[-1], (data,), size_bytes=len(data))
        with Admin(broker.bootstrap) as admin:
            admin.delete_topic(TOPIC)
        eventually("the topic's objects are deleted", lambda: not kept(server), within_s=EMPTIED_S)
        assert store.get(CLUSTER_KEY)
        if name == "s3":
            assert s3.objects(server) == [f"tier/{CLUSTER_KEY}"]
    finally:
        assert broker.stop() == 0
    said = broker.log_text()
    assert not any(secret in said + line for secret in (s3.SECRET, azurite.SECRET))


def findings(server: Server) -> list[dict[str, str]]:
    """What `firnline doctor` finds in the tier."""
    words = ["--tier", server.uri, *options_of(server.settings), "--format", "json"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code in (0, SOMETHING_IS_WRONG), done.output
    found: list[dict[str, str]] = json.loads(done.output)["findings"]
    return found


def kept(server: Server) -> list[str]:
    """What is in the tier but for the object that names its cluster."""
    store = open_store(server.uri, server.settings)
    folders = ("data/", "catalog/", "parts/", "names/")
    return [info.key for folder in folders for info in store.list_prefix(folder)]
