"""The peer that other tests lean on: it starts, its tools work, its files can be dumped, it stops."""

import os
from pathlib import Path

import pytest

from tests.peers import kafka
from tests.peers.kafka import Cluster

pytestmark = pytest.mark.peer


def test_the_peer_stores_what_its_own_producer_sent(kafka_peer: Cluster) -> None:
    at = ("--bootstrap-server", kafka_peer.bootstrap)
    kafka.tool("topics", "--create", "--topic", "peer-check", *at)
    kafka.tool("console-producer", "--topic", "peer-check", *at, stdin="firn\nice\n")
    (segment,) = kafka_peer.data().glob("peer-check-0/*.log")
    dumped = kafka.tool("dump", str(segment), "--print-data-log")
    assert "payload: firn" in dumped
    assert "payload: ice" in dumped


def test_a_stopped_peer_leaves_no_process_and_resumes_with_its_data(tmp_path: Path) -> None:
    first = kafka.start(tmp_path)
    pids, bootstrap = list(first.pids), first.bootstrap
    kafka.tool("topics", "--create", "--topic", "kept", "--bootstrap-server", bootstrap)
    first.stop()
    assert pids
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    with kafka.start(tmp_path) as again:
        assert again.bootstrap == bootstrap
        assert "kept" in kafka.tool("topics", "--list", "--bootstrap-server", again.bootstrap)
