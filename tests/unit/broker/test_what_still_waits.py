"""What the loop still waits for is what the table of decision 0035 says, and no more.

Method: brokers with a tier, and a controller, go through starts, changes of leaders, truncations, snapshots,
wiped disks and stops. Each call that may wait for a disk is noted with the function that decided to make it,
unless it is made by work that a node hands to a pool, or by a Flush.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.sim.disk import CrashableFs
from tests.unit.broker.test_tier_replicas import World
from tests.worlds.cluster import Member, Rig
from tests.worlds.effects import synced, worked
from tests.worlds.harness import batch

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "decisions" / "0035-what-still-waits.md"
SOURCE = ROOT / "src" / "firnline"
# What a node hands to a pool, a file that a Flush names, and what an operator does.
NOT_THE_LOOP = {f.__code__ for f in (worked, Member.format)}
FLUSH = synced.__code__
# They write a file for others: who decides to is further up.
WRITERS = {
    "log/checkpoint.py",
    "log/epochs.py",
    "log/file_syncs.py",
    "log/segment.py",
    "log/segments.py",
    "log/sync_ledger.py",
    "log/truncation.py",
}
THROUGH = {"_write", "sync_now"}
_ROW = re.compile(r"^\| `([a-z_/]+\.py):(\w+)` \| ([a-z_, ]+) \|", re.MULTILINE)

Site = tuple[str, str, str]


def allowed() -> set[Site]:
    """The rows of the table: module, function, and what it asks of the disk."""
    rows = _ROW.findall(PAGE.read_text())
    return {(module, name, verb) for module, name, verbs in rows for verb in verbs.split(", ")}


def caller() -> tuple[str, str] | None:
    """Who decided to ask; None where that is not the loop."""
    frame: Any = sys._getframe(2)
    found: tuple[str, str] | None = None
    while frame is not None:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if path.startswith(str(SOURCE)) and not path.endswith("sim/disk.py"):
            module = str(Path(path).relative_to(SOURCE))
            if found is None and module not in WRITERS and name not in THROUGH:
                found = module, name
        elif frame.f_code in NOT_THE_LOOP or (frame.f_code is FLUSH and found is None):
            return None
        frame = frame.f_back
    return found


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> set[Site]:
    """What the loop waited for so far."""
    seen: set[Site] = set()

    def noting(verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(self: Any, *args: Any, **options: Any) -> Any:
            if verb == "truncate":
                is_nothing = self.size() == args[0]
            else:
                is_nothing = verb.startswith("remove") and not self.exists(args[0])
            site = None if is_nothing else caller()
            if site is not None:
                seen.add((*site, verb))
            return call(self, *args, **options)

        return noted

    file = type(CrashableFs().open("/file", create=True))
    for kind, verbs in (
        (CrashableFs, ("remove", "remove_dir", "sync_dir")),
        (file, ("sync", "truncate")),
    ):
        for verb in verbs:
            monkeypatch.setattr(kind, verb, noting(verb, getattr(kind, verb)))
    return seen


def stop(rig: Rig, node_id: int) -> None:
    member = rig[node_id]
    assert member.node is not None
    member.run(member.node.shutdown(rig.now_ms))
    rig.until(lambda: member.is_stopped)
    member.node = None


def leader_of(rig: Rig) -> int:
    state = rig[1].controller.image.partition("t", 0)
    assert state is not None
    return state.leader


def test_the_loop_waits_for_the_disk_where_the_table_says(waits: set[Site]) -> None:
    world = World(metadata_log_max_record_bytes_between_snapshots="1500")
    rig = world.rig
    world.produce(6)
    world.move_leader()
    world.produce(6)
    world.drained()
    # A follower that lost its disk begins in the tier.
    victim = world.followers[0]
    world.wipe(victim)
    world.restart(victim)
    world.until(lambda: victim in world.isr())
    # A leader that nobody hears has a record that is cut when it follows.
    old = world.lead_again()
    rig.cut |= {(n, old) for n in rig.members if n != old}
    part = PartitionProduceData(index=0, records=batch("cut", time_ms=rig.now_ms))
    data = TopicProduceData(name="t", partition_data=[part])
    rig.ask(old, ProduceRequest(acks=1, timeout_ms=5_000, topic_data=[data]), 9)
    rig.cut |= {(old, n) for n in rig.members if n != old}
    rig.until(lambda: leader_of(rig) not in (-1, old), 120_000)
    rig.cut.clear()
    world.until(lambda: not world.replica(old).is_leader)
    world.produce(2)
    world.until(lambda: old in world.isr())
    # The power goes, a broker stops and starts, and then the controller.
    rig[old].cut_power()
    world.restart(old)
    stop(rig, old)
    world.restart(old)
    world.until(lambda: old in world.isr())
    rig[1].kill()
    rig[1].start()
    world.produce(2)
    for node_id in rig.members:
        if rig[node_id].node is not None:
            stop(rig, node_id)
    assert waits - allowed() == set(), (
        "the loop waits for the disk, and decision 0035 does not say so"
    )


def test_each_row_of_the_table_names_code_that_is_there() -> None:
    rows = allowed()
    assert len(rows) > 5, "the table was not found"
    gone = [
        (module, name)
        for module, name, _ in sorted(rows)
        if f"def {name}(" not in (SOURCE / module).read_text()
    ]
    assert not gone
