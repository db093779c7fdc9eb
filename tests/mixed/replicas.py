"""Brokers of both kinds hold copies of the same partitions, and leave, die and lose their disks. WORLD.

Meanwhile idempotent producers write with acks=all, and a member of a group reads and commits. One broker is
away at a time: the next one goes when all copies are in sync and the preferred leaders lead again.
"""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import ElectionType, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from firnline.log.checkpoint import CLEANER_OFFSETS
from tests.chaos.controllers import tracebacks
from tests.chaos.workload import SILENT, Workload, read_all, violations
from tests.mixed import copies
from tests.mixed.reader import PATIENCE_S, Reader, read_messages
from tests.mixed.sameness import differences, read_disk
from tests.peers.nodes import BROKER, CONTROLLER, FIRNLINE, KAFKA, QUICK, Cluster, Node, eventually
from tests.peers.quorum import await_caught_up
from tests.peers.topics import cluster_of

COPIED, PAIR, TIDY, OFFSETS = "copied", "pair", "tidy", "__consumer_offsets"
TAIL = "tail"  # what a leader acknowledges alone, and may be lost with it
PARTITIONS = 3
SETTINGS = {
    **QUICK,
    "metadata.log.max.record.bytes.between.snapshots": 20_000,
    "broker.session.timeout.ms": 4000,
    "replica.lag.time.max.ms": 5000,
    "offsets.topic.replication.factor": 3,
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.backoff.ms": 200,
}
# Of the compacted topic: each round of writes replaces the last, by another producer.
_KEYS, _ROUNDS = 5, 4
_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "min.insync.replicas": "2",
}
_PACE: dict[str, Any] = {"rest_s": 0.3, "patience_s": PATIENCE_S}
# Batches that a leader appends while the others are paused. They may yet get the first, as the answer to a
# fetch that was waiting, and nothing behind it.
_TAIL_BATCHES = 4
_PAUSE_S = 2.0  # well within the session of a broker


@dataclass
class Report:
    """What came of it. Each list is what a test must find empty."""

    faults: int = 0
    acked: int = 0
    records: list[str] = field(default_factory=list)  # lost, doubled, reordered
    group: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    views: list[str] = field(default_factory=list)  # of leaders, epochs, ISR
    metadata: list[str] = field(default_factory=list)
    led: Counter[str] = field(default_factory=Counter)
    coordinated: Counter[str] = field(default_factory=Counter)
    wiped: Counter[str] = field(default_factory=Counter)
    truncated: Counter[str] = field(default_factory=Counter)
    tidy: list[str] = field(default_factory=list)  # of the compacted topic
    gaps: int = 0  # offsets without a record in what our brokers have of it

    @property
    def violations(self) -> list[str]:
        return [
            *(*self.records, *self.group, *self.logs),
            *(*self.views, *self.metadata, *self.tidy),
        ]

    def __str__(self) -> str:
        return (
            f"{self.faults} faults, {self.acked} records acknowledged; led {dict(self.led)},"
            f" coordinated {dict(self.coordinated)}, wiped and back {dict(self.wiped)},"
            f" truncated {dict(self.truncated)}"
        )


def of_brokers(directory: Path, controller: str, brokers: Sequence[str], seed: int) -> "Replicas":
    """Return a controller of one kind and brokers of both."""
    members = [(controller, CONTROLLER), *((kind, BROKER) for kind in brokers)]
    return Replicas(Cluster(directory, members, SETTINGS), seed)


class Replicas:
    """A cluster, and what is written to it while its nodes come and go."""

    def __init__(self, cluster: Cluster, seed: int = 1) -> None:
        self.cluster = cluster
        self.report = Report()
        self._rng = random.Random(seed)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the cluster under producers and a reader; at the end compare everything."""
        try:
            with self.cluster:
                self._admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, **SILENT})
                self._make_topics()
                where = self.cluster.bootstrap
                with (
                    Workload(where, COPIED, PARTITIONS, **_PACE) as self._work,
                    Workload(where, PAIR, PARTITIONS, **_PACE) as self._beside,
                    Reader(where, COPIED) as self._reader,
                ):
                    self._reader.await_commits(1)
                    self.await_in_sync()
                    self._await_cleaned()
                    yield
                    self._check_records()
                self._check_copies()
                self.cluster.kill()
        finally:
            self.cluster.kill()

    # ------------------------------------------------------------------------------------ faults

    def leave(self, node: Node) -> None:
        """Stop a broker in order, write without it, and bring it back to lead again."""
        node.stop()
        self._go_on_without(node)
        self._bring_back(node)

    def die(self, node: Node) -> None:
        """Kill a broker while a log has a tail that nobody copied, which it must lose to another history."""
        tail = self._tail_led_by(node)
        producer = _producer(node)
        while True:
            self.await_in_sync()
            _append(producer, tail)  # it has its connection before the others are paused
            with _paused([other for other in self.cluster.brokers if other is not node]):
                since = time.monotonic()
                for _ in range(_TAIL_BATCHES):
                    _append(producer, tail)
                # Later they might be fenced, and what the last in-sync replica acknowledged is lost by right.
                if time.monotonic() - since < _PAUSE_S:
                    node.kill()
                    break
        self._go_on_without(node)
        by = self._leader_after(node, tail)
        for _ in range(2 * _TAIL_BATCHES):
            _append(_producer(by), tail)
        lost = copies.batches(node, tail)[-1]
        others = [row for row in copies.batches(by, tail) if row.leader_epoch > lost.leader_epoch]
        if lost.last_offset >= others[0].base_offset:
            self.report.truncated[f"{node.kind} by {by.kind}"] += 1
        self._bring_back(node)

    def lose_disk(self, node: Node) -> None:
        """Kill a broker and take its disk; it comes back with an empty one of another id, and leads.

        Within the budget alone: on a slow machine another one may have lost its session just then, and what
        the last in-sync replica has is lost with its disk. Then it comes back as it was, and is ended again.
        """
        while True:
            self.await_in_sync()
            node.kill()
            if not self._was_last(node):
                break
            node.start()
        node.wipe()
        self._go_on_without(node)
        self._bring_back(node)
        self.report.wiped[node.kind] += 1

    def hand_over(self, node: Node, kind: str) -> None:
        """Stop a node in order, and go on with one of the other kind on its directory."""
        node.stop()
        self.report.metadata += tracebacks(self.cluster)
        self._go_on_without(node)
        self._bring_back(self.cluster.hand_over(node.node_id, kind))
        self.await_metadata()

    def any_fault(self) -> None:
        """One of the three, to a broker by chance."""
        way = self._rng.choice((self.leave, self.die, self.lose_disk))
        way(self._rng.choice(self.cluster.brokers))

    def _go_on_without(self, node: Node) -> None:
        """Write, read and commit while the broker is away."""
        self.report.faults += 1
        self._work.await_acks(500)
        self._beside.await_acks(200)
        self._reader.await_commits()
        self._note_leaders()

    def _bring_back(self, node: Node) -> None:
        node.start()
        self.await_in_sync()
        self._elect_preferred()
        self._work.await_acks(300)
        self._reader.await_commits()
        self._note_leaders()

    # ---------------------------------------------------------------------------------- the state

    def await_in_sync(self) -> None:
        """Wait until all copies of all partitions are in sync."""
        eventually("all copies are in sync", self._all_in_sync, within_s=PATIENCE_S)

    def await_metadata(self) -> None:
        """Wait until every node has the metadata that is there now."""
        await_caught_up(self.cluster, within_s=PATIENCE_S)

    def elect(self) -> None:
        """Ask that the preferred leaders lead; whether they do is seen to later."""
        with contextlib.suppress(KafkaException, TimeoutError):
            self._admin.elect_leaders(ElectionType.PREFERRED, None).result(10)

    def _all_in_sync(self) -> bool:
        return all(
            set(row.isrs) == set(row.replicas)
            for topic in self._topics().values()
            for row in topic.partitions.values()
        )

    def _was_last(self, node: Node) -> bool:
        """Wait until a broker that was killed is fenced; is it the last one of an ISR?"""
        alone = [node.node_id]

        def isrs() -> list[list[int]]:
            rows = [row for topic in self._topics().values() for row in topic.partitions.values()]
            return [row.isrs for row in rows if node.node_id in row.isrs]

        what = f"{node} is fenced"
        eventually(what, lambda: all(isr == alone for isr in isrs()), within_s=PATIENCE_S)
        return bool(isrs())

    def _topics(self) -> Any:
        found = eventually("a broker tells", lambda: cluster_of(self._admin), within_s=PATIENCE_S)
        return found.topics  # type: ignore[attr-defined]

    def _leaders(self) -> dict[str, int]:
        return {
            f"{name}-{number}": row.leader
            for name, topic in self._topics().items()
            for number, row in topic.partitions.items()
        }

    def _tail_led_by(self, node: Node) -> str:
        """Wait until a broker leads its partition of `TAIL`."""

        def found() -> str | None:
            leaders = self._leaders().items()
            return next((p for p, n in leaders if n == node.node_id and p.startswith(TAIL)), None)

        return str(eventually(f"{node} leads of {TAIL}", found, within_s=PATIENCE_S))

    def _leader_after(self, node: Node, partition: str) -> Node:
        """Wait until another broker leads."""

        def found() -> Node | None:
            number = self._leaders()[partition]
            return self.cluster.nodes.get(number) if number != node.node_id else None

        leader = eventually(f"a leader of {partition}", found, within_s=PATIENCE_S)
        assert isinstance(leader, Node)
        return leader

    def _note_leaders(self) -> None:
        for partition, leader in self._leaders().items():
            if leader in self.cluster.nodes:
                kind = self.cluster[leader].kind
                which = self.report.coordinated if OFFSETS in partition else self.report.led
                which[kind] += 1

    def _elect_preferred(self) -> None:
        """Have the first of each partition's replicas lead; wait until it does."""

        def they_lead() -> bool:
            self.elect()
            return all(
                row.leader == row.replicas[0]
                for topic in self._topics().values()
                for row in topic.partitions.values()
            )

        eventually("the preferred leaders lead", they_lead, within_s=PATIENCE_S)

    # ----------------------------------------------------------------------------------- at first

    def _make_topics(self) -> None:
        """Make the topics; each broker is preferred by one partition of each.

        The one in the middle coordinates by preference. In a test's shapes it is alone of its kind, so both
        kinds coordinate, whoever of the others takes over when it loses its disk.
        """
        count = len(self.cluster.brokers)
        eventually(
            f"{count} brokers",
            lambda: len(cluster_of(self._admin).brokers) == count,
            within_s=PATIENCE_S,
        )
        ids = [node.node_id for node in self.cluster.brokers]
        placed = [[ids[(p + n) % len(ids)] for n in range(3)] for p in range(PARTITIONS)]
        wanted = [
            _topic(COPIED, placed, {"min.insync.replicas": "2"}),
            _topic(PAIR, [row[:2] for row in placed], {"min.insync.replicas": "1"}),
            _topic(TAIL, placed, {"min.insync.replicas": "1"}),
            _topic(TIDY, placed[:2], _COMPACTED),
            _topic(OFFSETS, [placed[len(ids) // 2]], {"cleanup.policy": "compact"}),
        ]
        for made in self._admin.create_topics(wanted).values():
            made.result(PATIENCE_S)
        names = [topic.topic for topic in wanted]
        partitions = sum(topic.num_partitions for topic in wanted)
        eventually(
            "the topics are known everywhere",
            lambda: all(
                len(copies.reported_by(node, names)) == partitions for node in self.cluster.brokers
            ),
        )
        self._write_compacted()

    def _write_compacted(self) -> None:
        """Each producer replaces what the one before it wrote: batches without a record stay behind."""
        for number in range(_ROUNDS):
            producer = Producer(
                {
                    "bootstrap.servers": self.cluster.bootstrap,
                    "enable.idempotence": True,
                    **SILENT,
                }
            )
            for partition in (0, 1):
                for key in range(_KEYS):
                    value = b"%d of round %d" % (key, number)
                    producer.produce(TIDY, value, key=b"%d" % key, partition=partition)
            assert producer.flush(PATIENCE_S) == 0
            time.sleep(0.15)  # behind segment.ms: the next write begins a segment

    def _await_cleaned(self) -> None:
        """Wait until a broker of Kafka's has cleaned what it leads; a follower may have it in one segment."""
        leaders = self._leaders()
        for number in (0, 1):
            node = self.cluster[leaders[f"{TIDY}-{number}"]]
            if node.kind == KAFKA:
                row = f"{TIDY} {number} "
                path = node.data / CLEANER_OFFSETS
                what = f"{node} has cleaned {row}"
                eventually(what, lambda: row in path.read_text(), within_s=PATIENCE_S)  # noqa: B023

    # ----------------------------------------------------------------------------------- at last

    def _check_records(self) -> None:
        self._work.finish()
        self._beside.finish()
        acked = self._work.acked()
        self._reader.await_all(dict(self._work.sent))
        self.report.group = self._reader.faults(acked)
        for topic, work in ((COPIED, self._work), (PAIR, self._beside)):
            reported = work.acked()
            self.report.acked += sum(map(len, reported.values()))
            found = read_all(self.cluster.bootstrap, topic, PARTITIONS)
            self.report.records += [f"{topic} {v}" for v in violations(reported, found, work.sent)]
        self.report.tidy = self._check_compacted()

    def _check_compacted(self) -> list[str]:
        """Read the compacted topic from its first offset: the newest value of each key is there."""
        newest = {b"%d" % key: b"%d of round %d" % (key, _ROUNDS - 1) for key in range(_KEYS)}
        faults = []
        for place, messages in read_messages(
            self.cluster.bootstrap, [(TIDY, 0), (TIDY, 1)]
        ).items():
            found = {message.key(): message.value() for message in messages}
            if found != newest:
                faults.append(f"{place} reads as {found}")
        return faults

    def _check_copies(self) -> None:
        brokers, report = self.cluster.brokers, self.report
        names = [f"{t}-{n}" for t in (COPIED, PAIR, TAIL) for n in range(PARTITIONS)]
        report.logs = _settled(lambda: copies.differing(brokers, names))
        report.gaps = sum(
            copies.missing(node, f"{TIDY}-{number}")
            for node in brokers
            if node.kind == FIRNLINE
            for number in (0, 1)
        )
        report.logs += copies.dumps_differ(brokers, f"{COPIED}-0")
        await_caught_up(self.cluster, within_s=PATIENCE_S)
        topics = [COPIED, PAIR, TAIL, TIDY, OFFSETS]
        report.views = _settled(lambda: copies.views_differ(self.cluster, topics))
        report.metadata = tracebacks(self.cluster)
        high_watermark = await_caught_up(self.cluster, within_s=PATIENCE_S).high_watermark
        disks = [
            read_disk(str(node), node.metadata, is_cut=True) for node in self.cluster.nodes.values()
        ]
        report.metadata += differences(disks, high_watermark)
        # Ours write epochs down with the next sync, and at a stop. Kafka's last one cannot stop in order
        # when its controllers are gone.
        for node in sorted(brokers, key=lambda each: each.kind == KAFKA):
            node.stop() if node.kind == FIRNLINE else node.kill()
        report.logs += copies.bad_logs(brokers, names)


def run_broker_faults(directory: Path, controller: str, cycles: int, seed: int) -> Report:
    """End brokers of a cluster by chance, `cycles` times; one of the three is alone of its kind."""
    other = FIRNLINE if controller == KAFKA else KAFKA
    replicas = of_brokers(directory, controller, (other, controller, other), seed)
    with replicas.running():
        for _ in range(cycles):
            replicas.any_fault()
    return replicas.report


def _settled(faults: Callable[[], list[str]]) -> list[str]:
    """Return what is wrong and stays so: nodes are told of the last changes one after the other."""
    with contextlib.suppress(AssertionError):
        eventually("nothing is wrong", lambda: not faults(), within_s=60)
    return faults()


def _topic(name: str, placed: list[list[int]], config: dict[str, str]) -> NewTopic:
    return NewTopic(name, len(placed), replica_assignment=placed, config=config)


def _producer(node: Node) -> Producer:
    """Return a producer that a leader answers alone, and that asks no other broker anything."""
    return Producer({"bootstrap.servers": f"127.0.0.1:{node.port}", "acks": 1, **SILENT})


def _append(producer: Producer, partition: str) -> None:
    """Have the leader append one batch."""
    topic, number = partition.rsplit("-", 1)
    reported: list[object] = []
    producer.produce(
        topic, b"x", partition=int(number), on_delivery=lambda error, _: reported.append(error)
    )
    assert producer.flush(PATIENCE_S) == 0
    assert reported == [None], reported


@contextlib.contextmanager
def _paused(nodes: Sequence[Node]) -> Iterator[None]:
    """Have processes stand still."""
    for node in nodes:
        os.kill(node.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for node in nodes:
            os.kill(node.pid, signal.SIGCONT)
