"""Three brokers under faults: what is acknowledged stays, whoever leads; and the logs are one history.

Each run draws kills, lost page caches, empty disks, cut links and slow answers from its seed, within the
budget (design/reliability, the promise): one replica at a time may lose what it had, and the next one only
when all are in sync again. After each event rel-R5, R6, R9 and R10 are checked; at the end rel-R14 and R18.
"""

import random
from typing import Any

import pytest

from firnline.client.wire import decode_answer, encode_request
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.records.batch import headers
from firnline.replica.partition import Partition
from tests.worlds.cluster import CLIENT_PORT, Line, Member, Rig
from tests.worlds.harness import batch, values_of

BROKERS = (4, 5, 6)
ROLES = {1: "controller", **dict.fromkeys(BROKERS, "broker")}
SEEDS = range(16)
STEPS = 60
PRODUCE_VERSION = 9


class World:
    """A cluster with one partition on three brokers, min.insync.replicas 2, and what was promised of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rig = Rig(
            ROLES, replica_lag_time_max_ms="3000", broker_session_timeout_ms="4000"
        ).start()
        made = self.rig.create_topic(4, "t", replicas=3, configs={"min_insync_replicas": "2"})
        assert made.error_code == 0
        self.acked: dict[int, str] = {}  # offset -> value
        self.published = 0  # the largest high watermark that any leader had
        self.committed: dict[int, str] = {}  # what it covers: offset -> value
        self.held: dict[
            tuple[int, int], dict[int, str]
        ] = {}  # what is in the log, by broker and life
        self.epochs: dict[tuple[int, int], int] = {}  # newest epoch led, by broker and life
        self.sent = 0
        self.is_complete = True  # all replicas have been in sync since one lost something

    # ---- what is there

    def replica(self, node_id: int) -> Partition | None:
        node = self.rig[node_id].node
        return None if node is None else self.rig[node_id].broker.partitions.get(("t", 0))

    def replicas(self) -> dict[int, Partition]:
        found = ((node_id, self.replica(node_id)) for node_id in BROKERS)
        return {node_id: p for node_id, p in found if p is not None}

    def leader(self) -> int | None:
        found = [(p.leader_epoch, n) for n, p in self.replicas().items() if p.is_leader]
        return max(found)[1] if found else None

    def isr(self) -> tuple[int, ...]:
        """As the controller has it."""
        state = self.rig[1].controller.image.partition("t", 0)
        assert state is not None
        return tuple(sorted(state.isr))

    # ---- what happens

    def produce(self) -> None:
        """Send one record with acks=all to whoever leads; the answer may come later, or never."""
        leader = self.leader()
        if leader is None:
            return
        self.sent += 1
        value = f"v{self.sent}"
        member, number = self.rig[leader], self.sent
        request = ProduceRequest(
            acks=-1,
            timeout_ms=8_000,
            topic_data=[
                TopicProduceData(
                    name="t", partition_data=[PartitionProduceData(index=0, records=batch(value))]
                )
            ],
        )

        def answered(body: bytes) -> None:
            answer: Any = decode_answer(request, PRODUCE_VERSION, body, correlation_id=number)
            part = answer.responses[0].partition_responses[0]
            if part.error_code == 0:
                self.acked[part.base_offset] = value

        frame = encode_request(
            request, version=PRODUCE_VERSION, correlation_id=number, client_id="props"
        )[4:]
        listener, dispatcher = member.dispatchers[CLIENT_PORT + leader]
        line = Line(listener, dispatcher, answered)
        member.run(dispatcher.on_frame(line, memoryview(bytearray(frame)), self.rig.now_ms))

    def kill(self) -> None:
        """End a process; one that may lose something loses its page cache, or its disk."""
        node_id = self.random.choice(BROKERS)
        member = self.rig[node_id]
        if member.node is None:
            return
        may_lose = self.is_complete and self.isr() == BROKERS and len(self.replicas()) == 3
        member.kill()
        if may_lose and self.random.random() < 0.6:
            self.is_complete = False
            if self.random.random() < 0.4:
                member.format(directory_id=member.directory_id)
            else:
                member.fs = member.fs.crash(member.rng, keep="some")

    def start(self) -> None:
        stopped = [n for n in BROKERS if self.rig[n].node is None]
        if stopped:
            self.rig[self.random.choice(stopped)].start()

    def cut(self) -> None:
        one, other = self.random.sample((1, *BROKERS), 2)
        self.rig.cut.add((one, other))

    def repair(self) -> None:
        self.rig.cut.clear()

    def act(self) -> None:
        weights = {self.produce: 6, self.kill: 1, self.start: 2, self.cut: 1, self.repair: 2}
        self.random.choices(list(weights), list(weights.values()))[0]()
        until_ms = self.rig.now_ms + self.random.choice((1, 3, 20, 300, 1500, 5000))
        while self.rig._events and self.rig._events[0][0] <= until_ms:
            self.rig.step()
            self.check()
        self.rig.now_ms = until_ms
        if self.isr() == BROKERS and len(self.replicas()) == 3:
            self.is_complete = True

    # ---- what must hold

    def check(self) -> None:
        replicas = self.replicas()
        for node_id, p in replicas.items():
            self.check_member(self.rig[node_id], p)
        for node_id, p in replicas.items():
            if p.is_leader and p.leader_epoch == max(r.leader_epoch for r in replicas.values()):
                self.check_leader(node_id, p, replicas)

    def check_member(self, member: Member, p: Partition) -> None:
        life = (member.node_id, member.life)
        held = self.held.get(life)
        if held is None or len(held) != p.log.log_end_offset:
            now = contents(p)
            # rel-R10: what any leader called committed is not given up.
            for offset, value in (held or {}).items():
                is_kept = now.get(offset) == value
                assert is_kept or self.committed.get(offset) != value, (member.node_id, offset)
            self.held[life] = now
        if p.is_leader and p.leader_epoch > self.epochs.get(life, -1):
            self.epochs[life] = p.leader_epoch
            self.check_complete(member.node_id, p)

    def check_complete(self, node_id: int, p: Partition) -> None:
        """rel-R5: a new leader has all that was acknowledged."""
        kept = contents(p)
        lost = {at: value for at, value in self.acked.items() if kept.get(at) != value}
        assert not lost, f"broker {node_id} leads in epoch {p.leader_epoch} without {lost}"

    def check_leader(self, node_id: int, p: Partition, replicas: dict[int, Partition]) -> None:
        """rel-R6: those who must have it have it. Who is down, or not yet registered, is not asked."""
        high_watermark = p.log.high_watermark
        if high_watermark <= self.published:
            return
        for other in p.maximal_isr:
            q = replicas.get(other)
            if other != node_id and q is not None and q.leader_epoch == p.leader_epoch:
                assert q.log.log_end_offset >= high_watermark, (node_id, other, high_watermark)
        self.published = high_watermark
        held = contents(p)
        self.committed |= {at: value for at, value in held.items() if at < high_watermark}
        self.check_one_history(replicas)

    def check_one_history(self, replicas: dict[int, Partition]) -> None:
        """rel-R9: below the lesser of two high watermarks two replicas hold the same bytes."""
        found = list(replicas.values())
        for one in found:
            for other in found:
                upto = min(one.log.high_watermark, other.log.high_watermark)
                assert below(one, upto) == below(other, upto)

    def heal(self) -> None:
        """Mend all; within a bound everybody has everything and is in sync again (rel-R18)."""
        self.rig.cut.clear()
        for node_id in BROKERS:
            if self.rig[node_id].node is None:
                self.rig[node_id].start()

        def is_healed() -> bool:
            self.check()
            ends = {p.log.log_end_offset for p in self.replicas().values()}
            return self.isr() == BROKERS and len(self.replicas()) == 3 and len(ends) == 1

        self.rig.until(is_healed, 60_000)
        one, *others = self.replicas().values()
        assert all(all_bytes(other) == all_bytes(one) for other in others)
        kept = contents(one)
        assert {at: kept.get(at) for at in self.acked} == self.acked


def all_bytes(p: Partition) -> bytes:
    return p.log.read_batches(p.log.log_start_offset, max_bytes=1 << 24)


def below(p: Partition, offset: int) -> bytes:
    data = all_bytes(p)
    end = max(
        (h.position + h.size_bytes for h in headers(data) if h.last_offset < offset), default=0
    )
    return data[:end]


def contents(p: Partition) -> dict[int, str]:
    """Offset -> value; each batch holds one record."""
    data = all_bytes(p)
    return {
        header.base_offset: next(
            values_of(data[header.position : header.position + header.size_bytes])
        )
        for header in headers(data)
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_acknowledged_is_kept_whatever_fails_within_the_budget(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.act()
    world.heal()
    assert world.acked, "nothing was acknowledged, so nothing was tried"
