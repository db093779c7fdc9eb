"""Rounds of a quorum of both kinds: each kind leads and loses its lead, each is wiped and comes back. WORLD.

A round has two halves, one under a leader of each kind: a topic is made, others are changed; a follower,
of the other kind where there is one, loses its disk and comes back by FetchSnapshot from the leader; the
leader is ended in one of three ways, and comes back behind the next one, under which a topic is made too.
Only one voter is away at a time, and none while a wiped one catches up: it might vote twice.
"""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.chaos.workload import SILENT
from tests.mixed.sameness import differences, read_disk
from tests.peers.nodes import BROKER, CONTROLLER, KAFKA, QUICK, Cluster, Node, eventually
from tests.peers.quorum import View, await_caught_up, await_leader
from tests.peers.topics import cluster_of

PATIENCE_S = 60.0
_DONE_BEFORE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.INVALID_PARTITIONS)
_SAFE = {"enable.idempotence": True, "message.timeout.ms": 60_000, **SILENT}
# The leader writes a record that says nothing each half second, and gives up after 1.5 fetch timeouts.
_TAIL_S = 1.2
_TURNS_MAX = 12  # leaders ended before the other kind must have led


@dataclass
class Report:
    """What the rounds came to. `violations` is what a test must find empty."""

    faults: int = 0
    acked: int = 0
    violations: list[str] = field(default_factory=list)
    led: Counter[str] = field(default_factory=Counter)
    wiped: Counter[str] = field(default_factory=Counter)
    truncated: Counter[str] = field(default_factory=Counter)
    end_offset: int = 0
    kept: int = 0  # things that our release only keeps

    def __str__(self) -> str:
        return (
            f"{self.faults} faults, {self.acked} topics acknowledged, {self.end_offset} records;"
            f" led {dict(self.led)}, wiped and back {dict(self.wiped)},"
            f" truncated {dict(self.truncated)}"
        )


class AlreadyDone(Exception):
    """An earlier try was not acknowledged, and was done."""


class Rounds:
    """A cluster of three controllers and a broker of Kafka's, and what was done to it."""

    def __init__(self, directory: Path, kinds: Sequence[str], seed: int) -> None:
        members = [*((kind, CONTROLLER) for kind in kinds), (KAFKA, BROKER)]
        self.kinds = set(kinds)
        self.cluster = Cluster(directory, members, QUICK)
        # The one alone of its kind misses a leader last, so that both kinds lead in turn: whoever does
        # so first is refused a pre-vote by those who still follow, and grants it to the one after.
        for node in self.cluster.controllers:
            if kinds.count(node.kind) == 1:
                node.settings["controller.quorum.fetch.timeout.ms"] = 2000
        (broker,) = self.cluster.brokers
        self._broker_id = broker.node_id
        # Two directories: the broker says which one took a replica (AssignReplicasToDirs).
        broker.settings["log.dirs"] = f"{broker.data},{broker.data.with_name('more')}"
        # A producer that asks for a deleted topic would have it made again.
        broker.settings["auto.create.topics.enable"] = "false"
        self.report = Report()
        self.topics: list[str] = []
        self.deleted: list[str] = []
        self._rng = random.Random(seed)

    def run(self, rounds: int) -> Report:
        """Run that many rounds, then compare every node with every other."""
        with self.cluster:
            self._admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, **SILENT})
            self._producer = Producer({"bootstrap.servers": self.cluster.bootstrap, **_SAFE})
            view = await_caught_up(self.cluster, within_s=PATIENCE_S)
            for number in range(rounds):
                for kind in sorted(self.kinds):
                    view = self._until_leads(kind, view)
                    if number == 0:
                        self.restart_broker()
                    self.make_topic()
                    self.change_things(self.cluster[view.leader].kind)
                    self.wipe_a_follower(view)
                    view = self.end_leader(await_leader(self.cluster))
                    self.make_topic()
            view = await_caught_up(self.cluster, within_s=PATIENCE_S)
            self._check_topics()
            self.cluster.kill()
        self._compare(view)
        return self.report

    def _until_leads(self, kind: str, view: View) -> View:
        for _ in range(_TURNS_MAX):
            if self.cluster[view.leader].kind == kind:
                return view
            view = self.end_leader(view)
        raise AssertionError(f"no {kind} led in {_TURNS_MAX} elections")

    def make_topic(self) -> None:
        """Create a topic through the broker and write to it; try again until that is acknowledged."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            name = f"made-{len(self.topics)}-{self._rng.randrange(1 << 30):x}"
            try:
                made = self._admin.create_topics([NewTopic(name, 2, 1)], request_timeout=10)
                made[name].result()
                break
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        self.topics.append(name)
        self.report.acked += 1
        self._producer.produce(name, b"record")
        if self._producer.flush(PATIENCE_S):
            self.report.violations.append(f"no record was taken by {name}")

    def restart_broker(self) -> None:
        """Stop the broker in order and start it again: it leaves, registers anew, and is let in."""
        (broker,) = self.cluster.brokers
        broker.stop()
        broker.start()
        await_caught_up(self.cluster, within_s=PATIENCE_S)

    def change_things(self, leads: str) -> None:
        """Settings, partitions, a deletion; of a leader of Kafka's also a record that we only keep."""
        topic, number = self.topics[-1], len(self.topics)
        entry = ConfigEntry(
            "retention.ms",
            str(100_000 + number),
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self._until_done(lambda: self._admin.incremental_alter_configs([resource])[resource])
        grown = [NewPartitions(topic, 3)]
        with contextlib.suppress(AlreadyDone):
            self._until_done(lambda: self._admin.create_partitions(grown)[topic])
        if number > 2:
            gone = self.topics.pop(0)
            with contextlib.suppress(AlreadyDone):
                self._until_done(lambda: self._admin.delete_topics([gone])[gone])
            self.deleted.append(gone)
        if leads == KAFKA:
            secret = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
            upsert = UserScramCredentialUpsertion(f"user-{number}", secret, b"secret")
            ask = self._admin.alter_user_scram_credentials
            self._until_done(lambda: ask([upsert])[upsert.user])

    def _until_done(self, ask: Callable[[], Any]) -> None:
        """Ask until it is acknowledged; an earlier try may have done it: AlreadyDone."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                ask().result(20)
                return
            except (KafkaException, TimeoutError) as problem:
                code = problem.args[0].code() if isinstance(problem, KafkaException) else None
                if code in _DONE_BEFORE:
                    raise AlreadyDone from None
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def wipe_a_follower(self, view: View) -> None:
        """Take the disk of a follower; it must come back by a snapshot of the leader's."""
        leader = self.cluster[view.leader]
        followers = [n for n in self.cluster.controllers if n is not leader]
        node = min(followers, key=lambda n: (n.kind == leader.kind, self._rng.random()))
        # Another one may lead by the time it asks; without a snapshot it would send its log from 0 on.
        for other in self.cluster.controllers:
            if other is not node:
                eventually(f"a snapshot of {other}", lambda other=other: has_snapshot(other))
        node.kill()
        node.wipe()
        node.start()
        # A fetch that the dead process left waiting at the leader counts once more when it is answered,
        # after the new process runs: the log itself says when records are there.
        eventually(f"records in the log of {node}", lambda: has_records(node), within_s=PATIENCE_S)
        await_caught_up(self.cluster, within_s=PATIENCE_S)
        if not came_by_snapshot(node):
            self.report.violations.append(f"{node} was wiped and came back without a snapshot")
        self.report.wiped[f"{node.kind} by {leader.kind}"] += 1
        self.report.faults += 1

    def end_leader(self, view: View) -> View:
        """End the leader, wait for the next one, and bring the old one back behind it.

        In turn: by kill -9 while its log has a tail that it must lose, by kill -9, and by SIGTERM.
        """
        old = self.cluster[view.leader]
        ways = (self._end_with_a_tail, Node.kill, Node.stop)
        ways[self.report.led[old.kind] % len(ways)](old)
        self.report.led[old.kind] += 1
        self.report.faults += 1
        after = await_leader(self.cluster, after_epoch=view.epoch, within_s=PATIENCE_S)
        self.make_topic()
        tail = read_disk(str(old), old.metadata, is_cut=True).end
        old.start()
        view = await_caught_up(self.cluster, within_s=PATIENCE_S)
        by = self.cluster[view.leader]
        if tail[1] > epoch_start(by, after.epoch):
            self.report.truncated[f"{old.kind} by {by.kind}"] += 1
        return view

    def _end_with_a_tail(self, leader: Node) -> None:
        """Pause the followers, so that the leader writes what nobody hears of, and kill it then."""
        followers = [n for n in self.cluster.controllers if n is not leader]
        for node in followers:
            os.kill(node.pid, signal.SIGSTOP)
        try:
            time.sleep(_TAIL_S)
            leader.kill()
        finally:
            for node in followers:
                os.kill(node.pid, signal.SIGCONT)

    def _check_topics(self) -> None:
        """The broker tells of the metadata that it has a moment later: it is asked until it is right."""
        faults: list[str] = []

        def is_right() -> bool:
            there = cluster_of(self._admin).topics
            lost = [name for name in self.topics if name not in there]
            back = [name for name in self.deleted if name in there]
            faults[:] = [f"the broker knows {len(lost)} topics less: {lost[0]}"] if lost else []
            faults.extend(
                [f"the broker still knows {len(back)} deleted: {back[0]}"] if back else []
            )
            return not faults

        with contextlib.suppress(AssertionError):
            eventually("the broker knows what is there", is_right)
        self.report.violations += faults

    def _compare(self, view: View) -> None:
        disks = [read_disk(str(node), node.metadata) for node in self.cluster.nodes.values()]
        self.report.end_offset = view.high_watermark
        self.report.violations += differences(disks, view.high_watermark)
        image = disks[0].image_at(view.high_watermark)
        self.report.kept = len(image.kept)
        lost = [name for name in self.topics if name not in image.topics_by_name]
        if lost:
            self.report.violations.append(f"{len(lost)} acknowledged topics lost, first {lost[0]}")
        # The broker tells in its own time: the newest topics may wait for it.
        homeless = [
            name
            for name in self.topics[:-2]
            if name not in lost
            for partition in image.topics_by_name[name].partitions.values()
            if not set(partition.directories) <= set(image.brokers[self._broker_id].log_dirs)
        ]
        if homeless:
            self.report.violations.append(f"{homeless[0]} is in no directory of the broker's")


def has_snapshot(node: Node) -> bool:
    """Is there another one than that at 0, which the format leaves?"""
    return any(int(p.name.partition("-")[0]) > 0 for p in node.metadata.glob("0*.checkpoint"))


def has_records(node: Node) -> bool:
    """Is there a batch in the log of a node?"""
    return any(p.stat().st_size > 0 for p in node.metadata.glob("*.log"))


def came_by_snapshot(node: Node) -> bool:
    """Does the log of a node begin behind a snapshot? A download leaves no segment from 0 on."""
    return min(int(p.stem) for p in node.metadata.glob("*.log")) > 0


def epoch_start(node: Node, epoch: int) -> int:
    """Return where an epoch begins in the log of a node that was there, from its leader-epoch-checkpoint."""
    rows = (node.metadata / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    return {int(row.split()[0]): int(row.split()[1]) for row in rows}[epoch]
