"""Bytes of a stopped node that rot: one file of any kind is damaged, and the node is started. WORLD.

    python -m tests.fuzz.stored [--seed 7] [--cases 100]

It starts and serves what it can, or it ends and says what, where and what to do. No traceback; and no record
whose checksum is right is another than the one that was written at that offset.
"""

import argparse
import contextlib
import re
import shutil
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from firnline.base.errors import FirnlineError
from firnline.base.ids import OFFSETS_TOPIC
from firnline.client.admin import Admin
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from firnline.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from firnline.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
)
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from firnline.protocol.messages.k32012_take_snapshot import TakeSnapshotRequest
from firnline.records.batch import crc_is_right, headers
from firnline.records.build import NewRecord, build_batch
from firnline.records.record import records
from firnline.testing.plugin import Broker
from tests.wire.line import MIB, Line

TOPICS = {
    "plain": {"internal.segment.bytes": "16384", "retention.ms": "-1"},
    "compacted": {"cleanup.policy": "compact", "internal.segment.bytes": "16384"},
    "tiered": {
        "retention.ms": "-1",
        "remote.storage.enable": "true",
        "internal.segment.bytes": "16384",
        "local.retention.bytes": "16384",
    },
}
GROUPS = ("g-a", "g-b", "g-c")
_OPTIONS = {"log.retention.check.interval.ms": 500, "log.segment.delete.delay.ms": 0}
BATCHES, RECORDS = 30, 3
_WAIT_S = 20.0
_READ_S = 3.0
_LATER = {9, 5, 6}  # REPLICA_NOT_AVAILABLE, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER
HOW = ("flip", "flips", "cut", "empty", "longer", "zeros", "swap", "other")
# What holds nothing, and what is not the node's: its output.
_LEFT_OUT = {".lock", "data.log"}
Written = dict[tuple[str, int], tuple[bytes | None, bytes | None]]


class Intact(NamedTuple):
    """A stopped node, and what was written to it: (topic, offset) -> (key, value)."""

    base: Path
    written: Written
    committed: dict[str, set[int]]


class Wrong(Exception):
    """What must not be, in words."""


class Case(NamedTuple):
    """What one damage came to."""

    what: str
    outcome: str


def _broker(base: Path) -> Broker:
    options = [word for key, value in _OPTIONS.items() for word in ("-X", f"{key}={value}")]
    return Broker(base / "data", tier=base / "tier", options=options)


def build(base: Path, *, is_clean: bool = True) -> Intact:
    """Fill a node with topics, a tier, groups, producers and a snapshot, and stop or kill it."""
    (base / "tier").mkdir(parents=True)
    written: Written = {}
    committed: dict[str, set[int]] = {group: set() for group in GROUPS}
    broker = _broker(base)
    broker.start()
    with Admin(broker.bootstrap) as admin, Line(("127.0.0.1", broker.port)) as line:
        for name, configs in TOPICS.items():
            admin.create_topic(name, partitions=1, configs=configs)
        for name in TOPICS:
            _fill(line, name, written)
        _commit(line, committed)
        deadline = time.monotonic() + _WAIT_S
        while admin.tier_status(["tiered"])[0].partitions[0]["local_log_start_offset"] <= 0:
            assert time.monotonic() < deadline, "nothing went to the tier"
            time.sleep(0.1)
        line.ask(TakeSnapshotRequest(), 0)
        admin.create_topic("after-the-snapshot", partitions=1, configs={})
    if is_clean:
        assert broker.stop() == 0
    else:
        broker.kill()
    return Intact(base, written, committed)


def _fill(line: Line, name: str, written: Written) -> None:
    rng = Random(name)
    made = line.ask(InitProducerIdRequest(transactional_id=None), 4)
    for number in range(BATCHES):
        rows = [
            NewRecord(
                f"{name}-{number}-{place}".encode(),
                rng.randbytes(700),
                1_700_000_000_000 + number,
            )
            for place in range(RECORDS)
        ]
        batch = build_batch(
            rows,
            producer_id=made.producer_id,
            producer_epoch=made.producer_epoch,
            base_sequence=number * RECORDS,
            codec=number % 5,
        )
        topics = [
            TopicProduceData(
                name=name, partition_data=[PartitionProduceData(index=0, records=bytes(batch))]
            )
        ]
        answer = line.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), 9)
        [part] = answer.responses[0].partition_responses
        assert part.error_code == 0, part
        for place, row in enumerate(rows):
            written[name, part.base_offset + place] = (row.key, row.value)


def _commit(line: Line, committed: dict[str, set[int]]) -> None:
    deadline = time.monotonic() + _WAIT_S
    for offset in range(10):
        for group in GROUPS:
            row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
            request = OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=[OffsetCommitRequestTopic(name="plain", partitions=[row])],
            )
            while True:
                line.ask(FindCoordinatorRequest(coordinator_key=group, key_type=0), 3)
                [topic] = line.ask(request, 7).topics
                if topic.partitions[0].error_code == 0:
                    break
                assert time.monotonic() < deadline, topic
                time.sleep(0.05)
            committed[group].add(offset)


# -------------------------------------------------------------------------------------------- damage


def kind_of(path: Path, base: Path) -> str:
    """Of what kind a file is: its suffix or name, and of which system topic if any."""
    inside = path.relative_to(base)
    where = inside.parts[0]
    topic = re.sub(r"-\d+$", "", inside.parts[1]) if len(inside.parts) > 2 else ""
    topic = topic if topic.startswith("__") else ""
    return f"{where} {topic} {path.suffix or path.name}"


def damage(rng: Random, base: Path) -> str:
    """Damage one file; say what was done."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(base.rglob("*")):
        if path.is_file() and path.name not in _LEFT_OUT:
            kinds.setdefault(kind_of(path, base), []).append(path)
    path = rng.choice(kinds[rng.choice(sorted(kinds))])
    intact = path.read_bytes()
    how = rng.choice(HOW)
    out = bytearray(intact)
    if how in ("flip", "flips"):
        for _ in range(1 if how == "flip" else rng.randint(2, 9)):
            if out:
                out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del out[rng.randrange(len(out) + 1) :]
    elif how == "empty":
        out.clear()
    elif how == "longer":
        out += rng.choice((rng.randbytes(rng.randint(1, 200)), bytes(100), out[:200]))
    elif how == "zeros":
        first = rng.randrange(len(out) + 1)
        size = min(len(out) - first, rng.choice((1, 8, 61, 512, 5000)))
        out[first : first + size] = bytes(size)
    elif how == "swap":
        size = min(rng.choice((1, 8, 100)), len(out) // 2)
        one = rng.randrange(len(out) - 2 * size + 1)
        other = rng.randrange(one + size, len(out) - size + 1)
        out[one : one + size], out[other : other + size] = (
            out[other : other + size],
            out[one : one + size],
        )
    else:
        same = [each for some in kinds.values() for each in some if each.suffix == path.suffix]
        out[:] = rng.choice(same).read_bytes()
    path.write_bytes(out)
    return f"{how} {path.relative_to(base)}"


# -------------------------------------------------------------------------------------------- checks


def run(intact: Intact, base: Path, seed: int) -> Case:
    """Damage a copy of a node by seed, start it, and read all of it. Raises Wrong."""
    shutil.copytree(intact.base, base, symlinks=True)
    what = damage(Random(seed), base)
    broker = _broker(base)
    try:
        broker.start()
    except RuntimeError:
        said = broker.log_text()
        if "Traceback" in said:
            raise Wrong(f"seed {seed}, {what}: a traceback: {said[-3000:]}") from None
        if str(base) not in said.replace("file://", ""):
            raise Wrong(f"seed {seed}, {what}: it does not say where: {said[-1500:]}") from None
        return Case(what, "refused")
    try:
        served = _read_all(broker, intact)
        code = broker.stop()
    except (FirnlineError, AssertionError, OSError) as problem:
        raise Wrong(f"seed {seed}, {what}: {problem!r}: {broker.log_text()[-3000:]}") from None
    except Wrong as problem:
        raise Wrong(f"seed {seed}, {what}: {problem}") from None
    finally:
        if broker.process is not None:
            broker.kill()
    said = broker.log_text()
    for word in ("Traceback", "failed inside"):
        if word in said:
            raise Wrong(f"seed {seed}, {what}: {said[max(0, said.find(word) - 300) :][:4000]}")
    if code != 0 and str(base) not in said:
        raise Wrong(f"seed {seed}, {what}: it stopped with {code}: {said[-1500:]}")
    lost = len(intact.written) - served
    return Case(what, "whole" if lost == 0 else "some lost")


def _read_all(broker: Broker, intact: Intact) -> int:
    """Read every topic and group; return how many records were there."""
    served = 0
    with Line(("127.0.0.1", broker.port)) as line:
        for name in TOPICS:
            served += sum(1 for _ in _read(line, name, intact.written))
        for group in GROUPS:
            _read_group(line, group, intact.committed[group])
    return served


def _read(line: Line, name: str, written: Written) -> Iterator[int]:
    """Yield the offsets of records that are as they were written; those of a wrong CRC are no records."""
    row = ListOffsetsPartition(partition_index=0, timestamp=-2)
    wanted = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[row])]
    )
    [found] = line.ask(wanted, 5).topics[0].partitions
    offset = max(found.offset, 0)
    deadline = time.monotonic() + _READ_S
    while True:
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=MIB)
        topics = [FetchTopic(topic=name, partitions=[part])]
        request = FetchRequest(topics=topics, max_bytes=MIB, max_wait_ms=300, min_bytes=1)
        [got] = line.ask(request, 12).responses[0].partitions
        data = bytes(got.records or b"")
        if got.error_code in _LATER and time.monotonic() < deadline:
            time.sleep(0.05)  # the tier's metadata is being read
            continue
        if got.error_code or not data:
            return
        before = offset
        try:
            for head in headers(data):
                if crc_is_right(data, head) and not head.is_control:
                    for record in records(data, head):
                        if written.get((name, record.offset)) != (record.key, record.value):
                            raise Wrong(f"{name} at {record.offset} is {record.key!r}")
                        if record.offset >= offset:
                            yield record.offset
                offset = max(offset, head.next_offset)
        except (FirnlineError, struct.error):
            return  # a client that checks what it is given stops here
        if offset == before:
            return


def _read_group(line: Line, group: str, committed: set[int]) -> None:
    topics = [OffsetFetchRequestGroupTopic(name="plain", partition_indexes=[0])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=False
    )
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        [found] = line.ask(request, 8).groups
        if found.error_code == 0:
            for topic in found.topics:
                [part] = topic.partitions
                at = part.committed_offset
                if part.error_code == 0 and at != -1 and at not in committed:
                    raise Wrong(f"{group} of {OFFSETS_TOPIC} is at {at}, which nobody committed")
            return
        time.sleep(0.1)


def main() -> int:
    """Damage as the command says; 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.stored")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=1)
    parser.add_argument("--killed", action="store_true", help="the node was killed, not stopped")
    given = parser.parse_args()
    outcomes: Counter[tuple[str, str]] = Counter()
    found = 0
    with tempfile.TemporaryDirectory(prefix="firnline-stored-") as directory:
        intact = build(Path(directory) / "whole", is_clean=not given.killed)
        for seed in range(given.seed, given.seed + given.cases):
            base = Path(directory) / "copy"
            try:
                case = run(intact, base, seed)
                outcomes[case.what.partition(" ")[0], case.outcome] += 1
                print(f"{seed}: {case.outcome}: {case.what}", flush=True)
            except Wrong as problem:
                found += 1
                print(f"FOUND: {problem}", flush=True)
            shutil.rmtree(base, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):
                (base.parent / "copy" / "data.log").unlink()
    for row, count in sorted(outcomes.items()):
        print(row, count)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
