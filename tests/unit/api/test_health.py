"""What a broker says is wrong with it: to `cluster status`, and as a metric."""

from typing import Any

import pytest

from firnline.api import health
from firnline.api.dispatch import Dispatcher
from firnline.base.counting.aging import DOUBTED_MS, aging_since
from firnline.base.counting.machine import HELD_UP_REPORTED_MS, DiskSpace
from firnline.base.effects import Reply
from firnline.base.errors import Code
from firnline.base.units import DAY_MS, MIB
from firnline.broker.controller_node import ControllerNode
from firnline.client.wire import encode_request
from firnline.log.recovery import at_once
from firnline.protocol.messages.k32003_cluster_status import ClusterStatusRequest
from firnline.protocol.versions import CONTROLLER_PRIVATE, CONTROLLER_SERVED
from firnline.server.broker_metrics.node import ControllerFacts, controller_families
from firnline.sim.disk import CrashableFs
from firnline.stores.memory import MemoryStore
from firnline.stores.port import RemoteStorageError
from tests.worlds.chance import SeededRng
from tests.worlds.harness import START_MS, Connection, Harness, format_disk


def said(harness: Harness) -> dict[str, str]:
    """What it reports, by kind; the same to whoever asks by the network."""
    found = at_once(health.problems(harness.node, harness.now_ms))
    assert all(each.kind in health.KINDS and each.see for each in found)
    answer = harness.ask(ClusterStatusRequest(topics=[]), 0)
    rows = [(row.kind, row.what, row.see) for row in answer.problems]
    assert rows == [tuple(each) for each in found]
    return {each.kind: each.what for each in found}


@pytest.fixture
def harness() -> Harness:
    made = Harness()
    made.create_topic()
    assert not said(made)
    return made


def test_appends_that_fail_are_reported_for_as_long_as_producers_try_again(
    harness: Harness,
) -> None:
    harness.fs.fail("append", "t-0", "ENOSPC")
    assert harness.produced("a").error_code == Code.KAFKA_STORAGE_ERROR
    assert "appends to t fail: 1 so far" in said(harness)["appends-fail"]
    harness.produced("b")
    assert "appends-fail" in said(harness)
    harness.pass_time(health.APPEND_FAILED_MS + 1)
    assert not said(harness)
    total = at_once(harness.node.hosted.traffic.total())
    assert (total.failed_appends, total.failed_produces, total.produces) == (1, 1, 2)


def test_a_directory_that_failed_is_reported_until_the_next_start() -> None:
    fs, rng = CrashableFs(), SeededRng(7)
    for path in ("/one", "/two"):
        format_disk(fs, rng, path)
    harness = Harness(fs, log_dirs="/one,/two", metadata_log_dir="/one")
    harness.create_topic(partitions=2)
    lost = next(p for p in harness.node.hosted if p.log.path.startswith("/two"))
    fs.fail("append", lost.log.path, "EIO")
    harness.produced("a", index=lost.topic_partition.partition)
    harness.pass_time(health.APPEND_FAILED_MS + 1)
    (kind, what), *more = said(harness).items()
    assert kind == "log-directory-offline"
    assert what.startswith("the log directory /two has failed: ")
    assert not more


def test_a_disk_is_nearly_full_by_its_size_and_a_large_one_by_what_is_left(
    harness: Harness,
) -> None:
    disks = harness.node.machine.disks
    disks["/small"] = DiskSpace(free_bytes=6 * MIB, total_bytes=100 * MIB)
    disks["/large"] = DiskSpace(free_bytes=3_000 * MIB, total_bytes=1_000_000 * MIB)
    assert not said(harness)
    disks["/small"] = DiskSpace(free_bytes=4 * MIB, total_bytes=100 * MIB)
    assert said(harness)["disk-nearly-full"] == "the disk of /small: 4 of 100 MiB are free"
    disks["/large"] = DiskSpace(free_bytes=2_000 * MIB, total_bytes=1_000_000 * MIB)
    assert "/large" in said(harness)["disk-nearly-full"] or len(said(harness)) == 1


def test_a_disk_that_does_not_answer_is_reported_after_a_while(harness: Harness) -> None:
    machine = harness.node.machine
    machine.silent_disk, machine.silent_since_ms = "/hangs", harness.now_ms
    assert not said(harness)
    harness.pass_time(health.DISK_SILENT_MS + 1)
    assert "the disk of /hangs has not answered for 10 s" in said(harness)["disk-silent"]


@pytest.mark.parametrize(
    ("off_days", "words"),
    [
        (
            10,
            "10 days ahead of the time at which this node last ran: is it right? For another 24 h",
        ),
        (
            -10,
            "10 days behind the time at which this node last ran: it is wrong",
        ),
    ],
)
def test_a_clock_that_is_doubted_is_reported_until_it_is_not(off_days: int, words: str) -> None:
    aging = aging_since(START_MS - off_days * DAY_MS, START_MS)
    harness = Harness(aging=aging)
    assert words in said(harness)["clock-doubted"]
    harness.now_ms += DOUBTED_MS
    assert not said(harness)


def test_a_loop_that_was_held_up_is_reported_for_a_minute(harness: Harness) -> None:
    harness.node.machine.was_late(health.HELD_UP_MS - 1, harness.now_ms)
    assert not said(harness)
    harness.node.machine.was_late(health.HELD_UP_MS, harness.now_ms)
    assert said(harness)["loop-held-up"].startswith("it served nobody for 2.0 s")
    harness.pass_time(HELD_UP_REPORTED_MS)
    assert not said(harness)


def test_a_store_that_fails_is_reported_with_its_error() -> None:
    harness = Harness(store=MemoryStore())
    harness.create_topic(remote_storage_enable="true")
    assert not said(harness)
    tier = harness.node.tier
    assert tier is not None
    failed = RemoteStorageError("it is down")
    tier.services.circuits.open("read", failed, harness.now_ms)  # the probe is not sent
    what = said(harness)["tier-store-fails"]
    assert what.startswith("the store of the tier fails (read), for 0 s now: it is down")


def of_controller(harness: Harness) -> dict[str, str]:
    """What the controller reports, where it is alone in its process."""
    controller = harness.node.controller_node
    assert controller is not None
    found = health.controller_problems(controller, harness.now_ms)
    assert all(each.kind in health.CONTROLLER_KINDS and each.see for each in found)
    ask = ClusterStatusRequest(topics=[])
    frame = encode_request(ask, version=0, correlation_id=1, client_id="t")
    [reply] = Dispatcher(controller, (*CONTROLLER_SERVED, *CONTROLLER_PRIVATE)).on_frame(
        Connection(), memoryview(bytearray(frame))[4:], harness.now_ms
    )
    assert isinstance(reply, Reply)
    answer: Any = reply.message
    assert [(row.kind, row.what, row.see) for row in answer.problems] == [*map(tuple, found)]
    return {each.kind: each.what for each in found}


def test_both_halves_of_a_combined_node_tell_of_one_machine(harness: Harness) -> None:
    """Without the guard the half for controllers had facts of its own, which nobody wrote."""
    harness.node.machine.disks["/data"] = DiskSpace(free_bytes=4 * MIB, total_bytes=100 * MIB)
    assert "4 of 100 MiB are free" in said(harness)["disk-nearly-full"]
    assert "4 of 100 MiB are free" in of_controller(harness)["disk-nearly-full"]


def test_a_node_that_is_only_a_controller_reports_disk_loop_quorum_and_snapshots(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = harness.node.controller_node
    assert controller is not None
    assert not of_controller(harness)
    machine = controller.machine
    machine.disks["/meta"] = DiskSpace(free_bytes=4 * MIB, total_bytes=100 * MIB)
    machine.silent_disk, machine.silent_since_ms = "/hangs", harness.now_ms
    harness.pass_time(health.DISK_SILENT_MS + 1)
    machine.was_late(health.HELD_UP_MS, harness.now_ms)
    controller.quorum.snapshotter.problem = "ENOSPC"
    monkeypatch.setattr(type(controller.quorum.raft), "answering_leader_id", -1)
    assert of_controller(harness).keys() == {
        *("disk-nearly-full", "disk-silent", "loop-held-up", "snapshot-fails", "no-leader")
    }
    shown = {
        sample.labels["kind"]: sample.value
        for family in controller_families(ControllerFacts([*_all(controller, harness)], {}, 0))
        for sample in family.samples
        if sample.name == "firnline_problems"
    }
    assert shown.keys() == {*health.CONTROLLER_KINDS}
    assert sum(shown.values()) == 5


def _all(controller: ControllerNode, harness: Harness) -> list[health.Problem]:
    return health.controller_problems(controller, harness.now_ms)


def test_snapshots_that_fail_are_a_problem_of_a_broker_until_one_is_taken(harness: Harness) -> None:
    def take() -> None:
        snapshotter = harness.node.quorum.snapshotter
        harness.run(snapshotter.take(lambda outcome, at_ms: [], harness.now_ms))
        harness.pass_time(1_000)

    harness.fs.fail("append", ".checkpoint", "ENOSPC", times=1)
    take()
    assert "ENOSPC" in said(harness)["snapshot-fails"]
    harness.fs.forgive()
    harness.pass_time(600_000)
    take()
    assert not said(harness)
