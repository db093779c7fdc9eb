"""What a broker is asked in a month, in cycles of a second, and what it holds after each. WORLD.

    python -m tests.aging.cycles [--minutes 10]

A cycle makes topics, segments, groups with members, fetch sessions and connections, and drops them: in order,
or by going away. What is held is taken when a cycle's traces have had time to go. Measured on: memory,
descriptors, threads, timers of the loop, and blocks on the disk, those of files that were deleted and are
still open among them.
"""

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from firnline.client.admin import Admin
from firnline.protocol.messages import k01_fetch as m01
from firnline.protocol.messages import k08_offset_commit as m08
from firnline.protocol.messages import k11_join_group as m11
from firnline.protocol.messages import k12_heartbeat as m12
from firnline.protocol.messages import k13_leave_group as m13
from firnline.protocol.messages import k14_sync_group as m14
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from firnline.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from firnline.records.build import NewRecord, build_batch
from firnline.testing.plugin import Broker
from tests.chaos.soak import LEDGER, append, commit
from tests.peers.ports import free_ports
from tests.wire.line import MIB, Line

FORM = "aging"
PARTITIONS = 3
GROUPS = 8
CONNECTIONS = 40
SESSIONS = 20
BATCHES, BATCH_BYTES = 6, 6_000
LASTING = "lasting"
_WAIT_S = 20.0
# Segments are small and tables short: within a minute all of it has been full and emptied many times.
_OPTIONS = {
    "group.min.session.timeout.ms": 100,
    "internal.metadata.log.segment.bytes": 65_536,
    "log.cleaner.backoff.ms": 500,
    "log.retention.check.interval.ms": 300,
    "log.segment.delete.delay.ms": 0,
    "max.incremental.fetch.session.cache.slots": 100,
    "metadata.log.max.record.bytes.between.snapshots": 32_768,
    "metadata.max.retention.bytes": 200_000,
    "offsets.topic.segment.bytes": MIB,
    "producer.id.expiration.ms": 2_000,
    "producer.id.expiration.check.interval.ms": 500,
}
_SMALL = {"internal.segment.bytes": "16384", "file.delete.delay.ms": "0"}
KINDS: tuple[dict[str, str], ...] = (
    _SMALL,
    _SMALL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    _SMALL | {"remote.storage.enable": "true", "local.retention.bytes": "16384"},
)


class Held(NamedTuple):
    """What the process holds at one moment."""

    rss_bytes: int
    files: int
    threads: int
    timers: int
    disk_bytes: int


# How much more after the cycles than before. What a cycle makes, kept each time, would be many times that.
BOUNDS = Held(rss_bytes=24 * MIB, files=12, threads=4, timers=12, disk_bytes=3 * MIB)


SYSTEM_BYTES = 16_384


class Life:
    """A broker with a tier, and cycles of what clients do to it."""

    def __init__(self, base: Path) -> None:
        [self._metrics_port] = free_ports(1)
        settings = _OPTIONS | {"firnline.metrics.port": self._metrics_port}
        options = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
        (base / "tier").mkdir()
        self.broker = Broker(base / "data", tier=base / "tier", options=options)
        self._cycle = 0
        self._address = ("", 0)

    def __enter__(self) -> Self:
        self.broker.start()
        self._address = ("127.0.0.1", self.broker.port)
        with Admin(self.broker.bootstrap) as admin:
            admin.create_topic(LASTING, partitions=1, configs=_SMALL | {"retention.bytes": "65536"})
        with Line(self._address) as line:
            wanted = FindCoordinatorRequest(coordinator_key="any", key_type=0)
            _until(line, wanted, 3, lambda said: said)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.broker.process is not None:
            self.broker.kill()

    def cycle(self) -> None:
        """Make and drop some of everything."""
        self._cycle += 1
        names = [f"cycle-{self._cycle}-{number}" for number in range(len(KINDS))]
        with Admin(self.broker.bootstrap) as admin:
            for name, configs in zip(names, KINDS, strict=True):
                admin.create_topic(name, partitions=PARTITIONS, configs=configs)
            with Line(self._address) as line:
                for name in (*names, LASTING):
                    self._fill(line, name)
                self._groups(line, names[0])
                self._sessions(line, names[1])
            self._connections(names[2])
            for name in names:
                admin.delete_topic(name)

    def held(self) -> Held:
        """Take what is held now."""
        pid = self.broker.pid
        status = dict(
            line.split(":", 1)
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if ":" in line
        )
        paths = [f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]
        for folder, _, names in os.walk(self.broker.directory):
            paths += [folder, *(f"{folder}/{name}" for name in names)]
        inodes: dict[tuple[int, int], int] = {}
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(path)  # of an open file too, whose name is gone
                inodes[found.st_dev, found.st_ino] = found.st_blocks * 512
        return Held(
            rss_bytes=int(status["VmRSS"].split()[0]) * 1024,
            files=len(os.listdir(f"/proc/{pid}/fd")),
            threads=int(status["Threads"]),
            timers=self._metric("firnline_loop_timers"),
            disk_bytes=sum(inodes.values()),
        )

    def settled(self, before: Held | None) -> Held:
        """What is held once the traces of the last cycle are gone: as little as before, or after 10 s."""
        deadline = time.monotonic() + 10
        while True:
            time.sleep(0.3)
            found = self.held()
            if before is None or not grown(before, found) or time.monotonic() > deadline:
                return found

    # ---------------------------------------------------------------------------- what clients do

    def _metric(self, name: str) -> int:
        url = f"http://127.0.0.1:{self._metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(name + " "):
                    return int(float(line.split()[1]))
        raise AssertionError(f"there is no metric {name}")

    def _fill(self, line: Line, name: str) -> None:
        """Some segments, by an idempotent producer that is never heard of again."""
        made = line.ask(InitProducerIdRequest(transactional_id=None), 4)
        assert made.error_code == 0, made
        for number in range(BATCHES):
            row = NewRecord(b"%d" % (number % 2), os.urandom(BATCH_BYTES), int(time.time() * 1000))
            batch = build_batch(
                [row],
                producer_id=made.producer_id,
                producer_epoch=made.producer_epoch,
                base_sequence=number,
            )
            data = PartitionProduceData(index=0, records=bytes(batch))
            topics = [TopicProduceData(name=name, partition_data=[data])]
            request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)
            _until(line, request, 9, lambda said: said.responses[0].partition_responses[0])

    def _groups(self, line: Line, topic: str) -> None:
        """Groups of one member; of half of them it leaves, of the others it is not heard of again."""
        names = [f"group-{self._cycle}-{number}" for number in range(GROUPS)]
        for name in names:
            self._member(line, name, topic, leaves=name.endswith(("0", "2", "4", "6")))
        deadline = time.monotonic() + _WAIT_S
        while names:
            answer = line.ask(DeleteGroupsRequest(groups_names=names), 2)
            names = [row.group_id for row in answer.results if row.error_code]
            assert time.monotonic() < deadline, answer
            time.sleep(0.05 if names else 0)

    def _member(self, line: Line, name: str, topic: str, *, leaves: bool) -> None:
        request = m11.JoinGroupRequest(
            group_id=name,
            session_timeout_ms=200,
            rebalance_timeout_ms=200,
            protocol_type="consumer",
            protocols=[m11.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = _until(line, request, 3, lambda said: said)
        who: dict[str, Any] = {"group_id": name, "member_id": joined.member_id}
        mine = m14.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a")
        sync = m14.SyncGroupRequest(generation_id=joined.generation_id, assignments=[mine], **who)
        assert line.ask(sync, 3).error_code == 0
        heartbeat = m12.HeartbeatRequest(generation_id=joined.generation_id, **who)
        assert line.ask(heartbeat, 3).error_code == 0
        row = m08.OffsetCommitRequestPartition(partition_index=0, committed_offset=self._cycle)
        line.ask(
            m08.OffsetCommitRequest(
                generation_id_or_member_epoch=joined.generation_id,
                topics=[m08.OffsetCommitRequestTopic(name=topic, partitions=[row])],
                **who,
            ),
            7,
        )
        if leaves:
            line.ask(m13.LeaveGroupRequest(**who), 2)

    def _sessions(self, line: Line, topic: str) -> None:
        """Fetch sessions, half of them closed by who made them."""
        for number in range(SESSIONS):
            made = line.ask(_fetch(topic, session_epoch=0), 12)
            if number % 2:
                line.ask(_fetch(topic, session_id=made.session_id, session_epoch=-1), 12)

    def _connections(self, topic: str) -> None:
        """Connections that say nothing, half a frame, or ask to wait; then all of them close."""
        from firnline.client.wire import encode_request

        waits = _fetch(topic, session_epoch=-1, max_wait_ms=300_000, min_bytes=1 << 20)
        frame = encode_request(waits, version=12, correlation_id=1, client_id="waits")
        with contextlib.ExitStack() as stack:
            lines = [stack.enter_context(Line(self._address)) for _ in range(CONNECTIONS)]
            for number, line in enumerate(lines):
                line.send((b"", frame[:7], frame)[number % 3])


def _fetch(topic: str, **more: Any) -> m01.FetchRequest:
    part = m01.FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [m01.FetchTopic(topic=topic, partitions=[part])]
    return m01.FetchRequest(topics=topics, max_bytes=1 << 20, **more)


def _until(line: Line, request: Any, version: int, row: Any) -> Any:
    """Ask until nothing is being loaded or chosen any more; return the row that says so."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        found = row(line.ask(request, version))
        if found.error_code == 0:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def grown(before: Held, after: Held, bounds: Held = BOUNDS) -> list[str]:
    """Name what grew by more than its bound."""
    return [
        f"{name}: {old} before, {new} after, {bound} more are allowed"
        for name, old, new, bound in zip(Held._fields, before, after, bounds, strict=True)
        if new - old > bound
    ]


def middle(held: list[Held]) -> Held:
    """The median of each."""
    return Held(*(int(statistics.median(column)) for column in zip(*held, strict=True)))


def main() -> int:
    """Age one broker as long as the command says; 1 where something grew."""
    parser = argparse.ArgumentParser(prog="python -m tests.aging.cycles")
    parser.add_argument("--minutes", type=float, default=10)
    given = parser.parse_args()
    ends = time.monotonic() + given.minutes * 60
    warm = time.monotonic() + given.minutes * 15  # a quarter
    held: list[Held] = []
    cycles = 0
    with tempfile.TemporaryDirectory(prefix="firnline-aging-") as base, Life(Path(base)) as life:
        while time.monotonic() < ends:
            life.cycle()
            cycles += 1
            if time.monotonic() > warm:
                held.append(life.settled(None))
        third = len(held) // 3 or 1
        before, after = middle(held[:third]), middle([*held[-third:-1], life.settled(held[0])])
        log = life.broker.log_text()
        code = life.broker.stop()
    # What the system's own topics keep of a cycle; a topic that stayed would be ten times that.
    disk_bytes = BOUNDS.disk_bytes + cycles * SYSTEM_BYTES
    violations = grown(before, after, BOUNDS._replace(disk_bytes=disk_bytes))
    if "Traceback" in log or code != 0:
        violations.append(f"it ended with {code}: {log[-2000:]}")
    row = {"commit": commit(), "form": FORM, "cycles": cycles, "before": before._asdict()}
    append(LEDGER, row | {"after": after._asdict(), "violations": violations})
    print(f"{FORM}: {cycles} cycles, {before} before, {after} after")
    for violation in violations:
        print(f"  {violation}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
