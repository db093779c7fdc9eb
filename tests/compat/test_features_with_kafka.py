"""A feature level that nobody here acts on: what its record stops, and when, in a quorum of both kinds."""

from pathlib import Path

import pytest

from firnline.metadata import records as r
from firnline.metadata.meta_log import open_meta_log
from firnline.records.build import NewRecord, build_batch
from firnline.runtime.disk import RealFs
from tests.peers.nodes import CONTROLLER, FIRNLINE, KAFKA, QUICK, Cluster, Node, eventually
from tests.worlds.quorum import broker_config


def _write(node: Node, **levels: int) -> None:
    """Put a batch of epoch 1 into the log of a node that never ran; nobody else has it."""
    log = open_meta_log(RealFs(), broker_config(log_dirs=str(node.data)), now_ms=1)
    records = [
        r.FeatureLevelRecord(name=name.replace("_", "."), feature_level=level)
        for name, level in levels.items()
    ]
    rows = [NewRecord(None, r.encode(record, 0), 1_700_000_000_000) for record in records]
    assert log.append_fetched(bytes(build_batch(rows, leader_epoch=1)), now_ms=1) is None
    for file in log.unsynced():
        file.sync()
    log.close()


def _until_both_have_ended(*nodes: Node) -> None:
    """Start a node that ended again, until each of the two has ended by itself once.

    The first to see the record committed may end before it tells the other, which then runs on, and
    rightly so: for all that it knows, the record is not committed.
    """
    ended: set[Node] = set()

    def look() -> bool:
        ended.update(node for node in nodes if not node.is_running)
        if len(ended) == len(nodes):
            return True
        for node in ended:
            if not node.is_running:
                node.launch()
        return False

    eventually("the end of both", look, within_s=60)


@pytest.mark.peer
def test_a_level_that_we_lack_stops_nodes_of_either_kind_when_it_is_committed_and_not_before(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path, [(KAFKA, CONTROLLER), (FIRNLINE, CONTROLLER)], QUICK)
    theirs, ours = cluster[1], cluster[2]
    theirs.format()
    ours.format()
    _write(theirs, metadata_version=30, new_version=1)
    try:
        theirs.launch()
        theirs.await_answer()
        eventually("it looks for votes", lambda: (theirs.metadata / "quorum-state").exists())
        assert theirs.is_running
        ours.launch()
        # It has the longer log, so it leads; with two of two the record is committed.
        _until_both_have_ended(theirs, ours)
    finally:
        cluster.kill()
    assert "FeatureLevelRecord(name='new.version', featureLevel=1)" in theirs.log_text()
    assert "at offset 1" in theirs.log_text()
    for words in (
        "new.version 1; while it still runs on Apache Kafka",
        "--feature new.version=0",
        f"path={ours.metadata} offset=1",
    ):
        assert words in ours.log_text(), ours.log_text()
    assert "Traceback" not in ours.log_text()
