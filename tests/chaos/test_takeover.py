"""A broker that takes a partition of groups over answers everybody else while it loads. Decision 0018."""

import threading
import time
from pathlib import Path

from firnline.base.errors import Code, FirnlineError
from firnline.base.ids import OFFSETS_TOPIC
from firnline.client.connection import Connection
from firnline.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from firnline.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
)
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k12_heartbeat import HeartbeatRequest
from firnline.records.batch import headers, set_offset_and_epoch
from tests.chaos.workload import PATIENCE_S
from tests.peers.nodes import BROKER, CONTROLLER, FIRNLINE, QUICK, Cluster, Node, eventually
from tests.unit.coordinator.test_loading_in_slices import batches, commits

COMMITS, DISTINCT = 100_000, 200
PARTITIONS = 20
GROUPS = 10
SETTINGS = {
    **QUICK,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 2,
    "log.initial.task.delay.ms": 600_000,
}


def log_of_commits() -> bytes:
    """A batch for each commit, as consumers write them; the same ones again and again."""
    some = bytearray(batches(commits(DISTINCT, groups=GROUPS, partitions=PARTITIONS)))
    places = [header.position for header in headers(some)]
    log = bytearray()
    for offset in range(0, COMMITS, DISTINCT):
        for number, place in enumerate(places):
            set_offset_and_epoch(some, place, offset + number, 0)
        log += some
    return bytes(log)


def isr(node: Node) -> tuple[int, list[int]]:
    """Who leads the offsets, and who is in sync."""
    with Connection(*node.address, timeout_s=5) as asked:
        question = MetadataRequest(topics=[MetadataRequestTopic(name=OFFSETS_TOPIC)])
        part = asked.ask(question).topics[0].partitions[0]
    return int(part.leader_id), list(part.isr_nodes)


def are_in_sync(node: Node) -> bool:
    try:
        return len(isr(node)[1]) == 2
    except (FirnlineError, IndexError):
        return False


def fetched(asked: Connection, group: str) -> tuple[int, int]:
    """(error code, committed offset of partition 0)."""
    topic = OffsetFetchRequestGroupTopic(name="t", partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[topic])])
    found = asked.ask(request, version=8).groups[0]
    if found.error_code or not found.topics:
        return int(found.error_code), -1
    return 0, int(found.topics[0].partitions[0].committed_offset)


def test_others_are_answered_while_a_hundred_thousand_commits_are_loaded(tmp_path: Path) -> None:
    with Cluster(
        tmp_path, [(FIRNLINE, CONTROLLER), (FIRNLINE, BROKER), (FIRNLINE, BROKER)], SETTINGS
    ) as cluster:
        brokers = cluster[2], cluster[3]
        for node in brokers:
            # The slower way, so that there is something to be asked meanwhile.
            node.environment |= {"FIRNLINE_NATIVE": "0"}
        with Connection(*brokers[0].address, timeout_s=PATIENCE_S) as asked:
            wanted = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
            eventually(
                "a coordinator",
                lambda: asked.ask(wanted).coordinators[0].error_code == 0,
                within_s=PATIENCE_S,
            )
        eventually("both in sync", lambda: are_in_sync(brokers[0]), within_s=PATIENCE_S)
        for node in brokers:
            node.stop()
        log = log_of_commits()
        for node in brokers:
            directory = node.data / f"{OFFSETS_TOPIC}-0"
            for old in directory.glob("0*"):
                old.unlink()
            (directory / f"{0:020d}.log").write_bytes(log)
            (node.data / ".kafka_cleanshutdown").unlink()
            node.start()
        eventually("both in sync", lambda: are_in_sync(brokers[0]), within_s=PATIENCE_S)
        leader = isr(brokers[0])[0]
        taker = cluster[5 - leader]
        rounds, code = leave_to(cluster[leader], taker)
        assert code == Code.NONE
        # In one step there would be none.
        assert rounds >= 5
        with Connection(*taker.address, timeout_s=PATIENCE_S) as asked:
            assert fetched(asked, "g0") == (0, DISTINCT - PARTITIONS)
            assert fetched(asked, "g1") == (0, -1)  # it reads other partitions


def leave_to(leader: Node, taker: Node) -> tuple[int, int]:
    """Stop the leader; return how often others were answered while the taker loaded, and the last code."""
    rounds = 0
    with (
        Connection(*taker.address, timeout_s=PATIENCE_S) as groups,
        Connection(*taker.address, timeout_s=PATIENCE_S) as others,
    ):
        heartbeat = HeartbeatRequest(group_id="g0", generation_id=1, member_id="m")
        stopping = threading.Thread(target=leader.stop)
        stopping.start()
        deadline = time.monotonic() + PATIENCE_S
        code = int(Code.NOT_COORDINATOR)
        while time.monotonic() < deadline and code != Code.NONE:
            code, _ = fetched(groups, "g0")
            if code == Code.COORDINATOR_LOAD_IN_PROGRESS:
                # No session runs meanwhile; once the groups are there, nobody knows this member.
                beaten = others.ask(heartbeat).error_code
                assert beaten in (Code.NONE, Code.UNKNOWN_MEMBER_ID)
                others.ask(MetadataRequest(topics=None))
                rounds += beaten == Code.NONE
        stopping.join()
    return rounds, code
