"""A node that is fuzzed, with topics, a tier and records that must stay; what it costs, and what it says."""

import contextlib
import os
import statistics
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from firnline.base.errors import KafkaError
from firnline.client.admin import Admin
from firnline.protocol.messages import k55_describe_quorum as k55
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k16_list_groups import ListGroupsRequest
from firnline.protocol.messages.k18_api_versions import ApiVersionsRequest
from firnline.protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest
from firnline.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from firnline.protocol.messages.k64_unregister_broker import UnregisterBrokerRequest
from firnline.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from firnline.protocol.messages.k32011_metadata_snapshots import MetadataSnapshotsRequest
from firnline.records.batch import HEADER_BYTES, headers
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import decompress
from firnline.testing.plugin import Broker
from tests.fuzz.known import (
    COMPACTED,
    GROUPS,
    KEPT,
    NODE_ID,
    OTHER_NODE_ID,
    PLAIN,
    SYSTEM_TOPICS,
    TIERED,
    Known,
)
from tests.fuzz.quorum import METADATA_TOPIC
from tests.peers.ports import free_ports
from tests.wire.line import MIB, Line, Target

# Whatever the broker's defaults become: what is kept says for itself how long, and what it takes.
_KEPT_CONFIGS = {
    "cleanup.policy": "delete",
    "remote.storage.enable": "true",
    "internal.segment.bytes": "16384",
    "local.retention.bytes": "16384",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": "1048588",
    "min.insync.replicas": "1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "9223372036854775807",
}
# The records that are drawn are years old.
_PLAIN_CONFIGS = {"retention.ms": "-1"}
_TIERED_CONFIGS = {
    "retention.ms": "-1",
    "remote.storage.enable": "true",
    "internal.segment.bytes": "16384",
    "local.retention.bytes": "16384",
}
_OPTIONS = {
    # A quorum that loses its leader has one again at once, and a broker that is gone is counted out soon.
    "controller.quorum.election.timeout.ms": 100,
    "controller.quorum.election.backoff.max.ms": 50,
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 6_000,
    "log.segment.delete.delay.ms": 0,
    "log.retention.check.interval.ms": 500,
    "log.cleaner.backoff.ms": 500,
    "group.min.session.timeout.ms": 100,
}
SLOW_S, STUCK_S = 0.1, 2.0
_PAUSE_S = 0.01
# What an allocator keeps, and what is remembered of groups, producers and topics that are gone.
GROWN_BYTES_MAX = 64 * MIB
GROWN_FILES_MAX = 16
# Whoever ends its side while an answer is waited for may still want it, for 30 s.
SETTLES_S = 45.0
_READ_BYTES = 4 * MIB
_NOT_LEADER = 6


class Finding(Exception):
    """What must not be, in words."""


class Slow(Finding):
    """Another client waited: the node was held up, or the machine was."""


class Node:
    """One process with a directory and a tier of its own, its records, and another client that asks."""

    def __init__(self, base: Path) -> None:
        self._port, self._controllers_port = free_ports(2)
        reported = f"127.0.0.1:{self._controllers_port}"
        settings = _OPTIONS | {
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://{reported}",
            "controller.quorum.voters": f"{NODE_ID}@{reported}",
        }
        options = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
        (base / "tier").mkdir(parents=True)
        self.broker = Broker(base / "data", tier=base / "tier", options=options)
        self.kept: dict[int, bytes] = {}  # offset -> key
        self._reported = 0  # of its log, how much was looked at
        self._before = (0, 0)

    def __enter__(self) -> Self:
        self.start()
        with Admin(self.broker.bootstrap) as admin:
            admin.create_topic(KEPT, partitions=1, configs=_KEPT_CONFIGS)
            self._create_usual(admin)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.broker.process is not None:
            self.broker.kill()

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.broker.port)

    @property
    def controllers_address(self) -> tuple[str, int]:
        """Where the node, which is a controller too, listens as one."""
        return ("127.0.0.1", self._controllers_port)

    def start(self) -> None:
        """Start it. Raises Finding where it does not come up."""
        try:
            self.broker.start()
        except RuntimeError as problem:
            raise Finding(f"it does not start: {str(problem)[-3000:]}") from None
        with Line(self.address) as line:
            line.ask(FindCoordinatorRequest(coordinator_key=GROUPS[0], key_type=0), 3)

    def remember(self) -> None:
        """Take what it costs now as what it may cost later."""
        target = Target("firnline", self.broker.bootstrap, self.broker.pid, Path())
        self._before = (target.fresh_bytes, self._files())

    def known(self) -> Known:
        """What there is at the start."""
        found = Known()
        with Line(self.address) as line:
            asked = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            found.learn(3, {}, line.ask(asked, 12))
            found.learn(35, {}, line.ask(DescribeLogDirsRequest(topics=None), 4))
        with Line(self.controllers_address) as line:
            part = k55.DescribeQuorumPartition(partition_index=0)
            topics = [k55.DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=[part])]
            found.quorum.learn(55, line.ask(k55.DescribeQuorumRequest(topics=topics), 2))
            found.quorum.learn(32011, line.ask(MetadataSnapshotsRequest(), 0))
            # Which epoch the broker has no answer says: whoever wants to know it tries.
            for epoch in range(found.quorum.offset + 1):
                wanted = AllocateProducerIdsRequest(broker_id=NODE_ID, broker_epoch=epoch)
                if line.ask(wanted, 0).error_code == 0:
                    found.quorum.broker_epochs[NODE_ID] = epoch
        return found

    def look(self) -> None:
        """Raise Finding where it has ended, or says that something failed inside it."""
        process = self.broker.process
        assert process is not None
        log = self.broker.directory.with_name(self.broker.directory.name + ".log")
        with log.open("rb") as text:
            text.seek(self._reported)
            said = text.read()
        self._reported += len(said)
        for word in (b"Traceback", b"failed inside", b"the node stops", b"out of use"):
            place = said.find(word)
            if place >= 0:
                place += self._reported - len(said)
                said = log.read_bytes()  # what led to it may have been said some looks before
                raise Finding(said[max(0, place - 2000) : place + 4000].decode(errors="replace"))
        if process.poll() is not None:
            last = said[-2000:].decode(errors="replace")
            raise Finding(f"it ended with {process.returncode}: {last}")

    def look_at_its_end(self) -> None:
        """As `look`, where it may be about to end."""
        process = self.broker.process
        assert process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        self.look()

    def settle(self) -> None:
        """Delete what requests made; raise Finding where memory or files do not come back."""
        deadline = time.monotonic() + SETTLES_S
        while True:
            with contextlib.suppress(KafkaError):  # what was asked before may still make a topic
                self._delete_all()
            grown = self._rss_bytes() - self._before[0]
            files = self._files() - self._before[1]
            if grown <= GROWN_BYTES_MAX and files <= GROWN_FILES_MAX:
                break
            if time.monotonic() > deadline:
                raise Finding(
                    f"{grown / MIB:.0f} MiB and {files} open files more than before:"
                    f" {self._most_files()}"
                )
            time.sleep(0.5)
        self.look()

    def restart(self) -> None:
        """Stop it in order and start it; raise Finding where it says more than it should."""
        code = self.broker.stop()
        if code != 0:
            raise Finding(f"it stopped with {code}: {self.broker.log_text()[-3000:]}")
        self.start()
        self.look()

    def all_are_there(self) -> None:
        """Read the topic that is kept from its start, and compare what was acknowledged."""
        found: dict[int, bytes] = {}
        offset, end = 0, max(self.kept, default=-1)
        deadline = time.monotonic() + 60
        with Line(self.address) as line:
            while offset <= end:
                wanted = FetchPartition(
                    partition=0, fetch_offset=offset, partition_max_bytes=_READ_BYTES
                )
                topics = [FetchTopic(topic=KEPT, partitions=[wanted])]
                request = FetchRequest(topics=topics, max_bytes=_READ_BYTES, max_wait_ms=100)
                [part] = line.ask(request, 12).responses[0].partitions
                for head in headers(bytes(part.records or b"")):
                    if head.base_offset in self.kept:
                        # A broker whose `compression.type` was altered has compressed it again.
                        found[head.base_offset] = decompress(
                            head.codec,
                            part.records[
                                head.position + HEADER_BYTES : head.position + head.size_bytes
                            ],
                        )
                    offset = max(offset, head.next_offset)
                if time.monotonic() > deadline:
                    raise Finding(f"{KEPT} cannot be read at {offset}: error {part.error_code}")
        lost = sorted(self.kept.keys() - found.keys())
        if lost:
            raise Finding(f"{len(lost)} acknowledged records are not there, at {lost[:5]}")
        other = [at for at, key in self.kept.items() if key not in found[at]]
        if other:
            raise Finding(f"{len(other)} acknowledged records are others, at {other[:5]}")

    # ---------------------------------------------------------------------------- within

    def _rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.broker.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the kernel states no VmRSS")

    def _most_files(self) -> str:
        """Say of which topics most open files are."""
        found: Counter[str] = Counter()
        folder = f"/proc/{self.broker.pid}/fd"
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                path = Path(os.readlink(f"{folder}/{name}"))
                found[path.parent.name.rpartition("-")[0] or path.name.partition(":")[0]] += 1
        return ", ".join(f"{count} in {name}" for name, count in found.most_common(10))

    def _files(self) -> int:
        return len(os.listdir(f"/proc/{self.broker.pid}/fd"))

    def _create_usual(self, admin: Admin) -> None:
        compacted = {"cleanup.policy": "compact", "internal.segment.bytes": "16384"}
        for name, configs in (
            (PLAIN, _PLAIN_CONFIGS),
            (COMPACTED, compacted),
            (TIERED, _TIERED_CONFIGS),
        ):
            admin.create_topic(name, partitions=2, configs=configs)

    def _delete_all(self) -> None:
        """Delete topics and groups; make anew those that are there from the start."""
        with Line(self.address) as line:
            line.ask(UnregisterBrokerRequest(broker_id=OTHER_NODE_ID), 0)
            groups = [row.group_id for row in line.ask(ListGroupsRequest(), 4).groups]
            if groups:
                line.ask(DeleteGroupsRequest(groups_names=groups), 2)
            asked = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            names = [topic.name for topic in line.ask(asked, 12).topics]
        with Admin(self.broker.bootstrap) as admin:
            for name in names:
                if name != KEPT and name not in SYSTEM_TOPICS:
                    admin.delete_topic(name)
            self._create_usual(admin)


class Others(threading.Thread):
    """Another client: asks all the time what is served, and produces records that must stay."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self._node = node
        self._is_over = threading.Event()
        self.waited_s: list[float] = []
        self.late_s: list[
            float
        ] = []  # by how much it woke later than it wanted: what the machine adds
        self.problem: Exception | None = None

    def run(self) -> None:
        try:
            with Line(self._node.address) as line:
                asleep = time.monotonic()
                while not self._is_over.wait(_PAUSE_S):
                    began = time.monotonic()
                    self.late_s.append(began - asleep - _PAUSE_S)
                    line.ask(ApiVersionsRequest(), 0)
                    self.waited_s.append(time.monotonic() - began)
                    if len(self.waited_s) % 5 == 0:
                        self._produce(line)
                    asleep = time.monotonic()
        except Exception as problem:  # noqa: BLE001 - told where it is waited for
            self.problem = problem

    def _produce(self, line: Line) -> None:
        key = f"kept-{len(self.waited_s)}-{time.monotonic_ns()}".encode()
        batch = bytes(build_batch([NewRecord(key, bytes(200), int(time.time() * 1000))]))
        data = PartitionProduceData(index=0, records=batch)
        topics = [TopicProduceData(name=KEPT, partition_data=[data])]
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)
        deadline = time.monotonic() + STUCK_S
        while True:
            [part] = line.ask(request, 9).responses[0].partition_responses
            # A broker that was counted out leads again once it was heard of.
            if part.error_code != _NOT_LEADER or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        if part.error_code:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=KEPT)])
            reported = line.ask(asked, 12)
            raise Finding(f"an ordinary record was refused: error {part.error_code}; {reported}")
        self._node.kept[part.base_offset] = key

    def end(self) -> None:
        """Stop asking."""
        self._is_over.set()
        self.join()

    def are_unharmed(self) -> None:
        """Goal: 95 of 100 answers within 100 ms, and none later than 2 s. Raises Finding.

        What this process itself waits for the processor, the node and its threads wait for, too.
        """
        if self.problem is not None:
            raise Finding(f"another client: {type(self.problem).__name__}: {self.problem}")
        if len(self.waited_s) < 20:
            return
        slow = statistics.quantiles(self.waited_s, n=20)[-1]
        late = statistics.quantiles(self.late_s, n=20)[-1] if len(self.late_s) > 20 else 0.0
        if slow > SLOW_S + 3 * late or max(self.waited_s) > STUCK_S:
            longest = max(self.waited_s)
            raise Slow(
                f"another client waited {slow * 1000:.0f} ms in 5 of 100 cases, {longest:.2f} s once;"
                f" it woke {late * 1000:.0f} ms late in 5 of 100"
            )


@contextlib.contextmanager
def others(node: Node) -> Iterator[Others]:
    """Have another client ask while something is done."""
    found = Others(node)
    found.start()
    try:
        yield found
    finally:
        found.end()
