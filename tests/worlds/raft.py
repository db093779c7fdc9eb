"""A quorum in memory: replicas with their logs, a network that does as the test says, and one clock."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from firnline.base.effects import (
    Effects,
    Flush,
    Peer,
    Reply,
    Send,
    Unanswered,
)
from firnline.base.errors import KafkaError, StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.protocol.messages import k55_describe_quorum
from firnline.raft import wire
from firnline.raft.node import Proposed, RaftNode
from firnline.raft.role import Role
from firnline.raft.settings import QuorumSettings
from firnline.raft.voters import Voter, VoterSet
from firnline.records.build import NewRecord, build_batch
from tests.worlds.chance import SeededRng
from tests.worlds.clock import FakeClock
from tests.worlds.effects import World
from tests.worlds.raft_disk import START_MS, Disk
from tests.worlds.timers import WorldTimers

CLUSTER = "kYk0Nk0rTGmTpCgfF2cFlA"


def directory(node_id: int) -> bytes:
    """The directory id of a node's disk."""
    return (7_000 + node_id).to_bytes(16, "big")


class Listener:
    """Writes down what it hears, in words."""

    def __init__(self) -> None:
        self.received: list[str] = []

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> Effects:
        self.received.append(f"snapshot {snapshot_id.offset}-{snapshot_id.epoch}")
        return []

    def on_committed(self, end_offset: int, now_ms: int) -> Effects:
        self.received.append(f"committed {end_offset}")
        return []

    def on_leader(self, epoch: int, now_ms: int) -> Effects:
        self.received.append(f"leads {epoch}")
        return []

    def on_useless_snapshot(
        self, snapshot_id: OffsetAndEpoch, replica_id: int, now_ms: int
    ) -> Effects:
        self.received.append(f"useless {snapshot_id.offset}-{snapshot_id.epoch} to {replica_id}")
        return []

    def on_leader_change(self, leader_id: int, epoch: int, now_ms: int) -> Effects:
        self.received.append(f"leader {leader_id} of {epoch}")
        return []


@dataclass(eq=False)
class Flight:
    """A message under way: a request to `target`, or its answer back."""

    sender: "Member"
    send: Send
    request: Any
    response: Any = None
    is_answer: bool = False
    target_id: int = field(default=0)

    @property
    def name(self) -> str:
        return type(self.response if self.is_answer else self.request).__name__


class Member(World):
    """One replica with its disk. A restart keeps the disk.

    holds_flushes  what is flushed waits for `sync`; else for `Net.settle`
    """

    def __init__(self, net: "Net", node_id: int, directory_id: bytes, **options: Any) -> None:
        super().__init__(net.clock)
        self.net, self.node_id, self.disk = net, node_id, Disk()
        self.directory_id = directory_id
        self.options = options
        self.rng = options.pop("rng", None) or SeededRng(net.seed * 1000 + node_id)
        self.is_up = False
        self.life = 0
        self.listener = Listener()
        self.node: RaftNode = None  # type: ignore[assignment]

    def start(self) -> "Member":
        """Begin a life on the disk that is there."""
        self.life += 1
        self.is_up = True
        self.timers, self.flushes = WorldTimers(), []
        self.listener = Listener()
        self.disk.high_watermark = self.disk.start_offset
        self.node = RaftNode(
            node_id=self.node_id,
            cluster_id=CLUSTER,
            directory_id=self.directory_id,
            voters=self.net.voters,
            log=self.disk,
            elections=self.disk,
            listener=self.listener,
            rng=self.rng,
            settings=self.net.settings,
            **self.options,
        )
        self.run(self.node.start(self.net.now_ms))
        return self

    def crash(self, *, power: bool = True) -> None:
        """Stop at once; without power what was not synced is gone."""
        self.disk.forget_save()
        self.is_up = False
        self.life += 1
        self.timers, self.flushes = WorldTimers(), []
        if power:
            self.disk.lose_power()
        self.net.hang_up(self)

    def on_send(self, effect: Send) -> None:
        self.net.send(self, effect)

    def on_reply(self, effect: Reply) -> None:
        if isinstance(effect.context, list):
            effect.context.append(effect.message)
        else:
            self.net.answer(effect.context, effect.message)

    def on_flush(self, effect: Flush) -> None:
        self.wait_or_do(effect, self.flushes)

    def sync(self, problem: StorageError | None = None) -> None:
        """Report the flushes that wait."""
        while self.flushes:
            self.flush(problem)

    def end_cut(self, problem: StorageError | None = None) -> None:
        """The disk has cut the log, or failed."""
        self.run(self.disk.end_cut(self.net.now_ms, problem))

    def end_save(self, problem: StorageError | None = None) -> None:
        """The disk has the vote, or failed."""
        self.run(self.disk.end_save(self.net.now_ms, problem))

    def ask(self, request: Any, version: int | None = None) -> list[Any]:
        """Hand over a request as a stranger; the list gets the answer, now or later."""
        answers: list[Any] = []
        version = type(request).valid.last if version is None else version
        request, _ = type(request).read(request.write(version), version)

        def answer(response: Any) -> Reply:
            copy, _ = type(response).read(response.write(version), version)
            return Reply(context=answers, message=copy)

        self.run(self.node.on_request(request, answer, self.net.now_ms))
        return answers

    def fire(self, key: Hashable) -> None:
        """Let a timer come due, of the quorum by its name alone; the clock follows."""
        super().fire(("raft", key) if isinstance(key, str) else key)

    def propose(self, *values: bytes) -> Proposed:
        outcome = self.node.propose(values, epoch=self.node.epoch, now_ms=self.net.now_ms)
        assert not isinstance(outcome, KafkaError), outcome
        self.run(outcome[1])
        return outcome[0]

    @property
    def stands(self) -> tuple[Role, int, int]:
        return self.node.role, self.node.epoch, self.node.leader_id


class Net:
    """Voters, observers, and what is under way between them. Nothing is lost unless a test says so."""

    def __init__(
        self,
        voter_ids: Sequence[int] = (1, 2, 3),
        observer_ids: Sequence[int] = (),
        *,
        settings: QuorumSettings | None = None,
        seed: int = 0,
    ) -> None:
        self.seed = seed
        self.settings = settings or QuorumSettings()
        self.voters = VoterSet([Voter(n, f"host-{n}", 9000 + n) for n in voter_ids])
        self.clock = FakeClock(START_MS)
        self.flights: list[Flight] = []
        self.open: list[Flight] = []  # requests that wait at their target for an answer
        self.cuts: set[tuple[int, int]] = set()  # (from, to) that lose everything
        self.versions: dict[int, int] = {}  # API key -> newest that all speak
        self.members = {n: Member(self, n, directory(n)) for n in (*voter_ids, *observer_ids)}

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self.clock.now_ms = now_ms

    def __getitem__(self, node_id: int) -> Member:
        return self.members[node_id]

    def start(self) -> "Net":
        for member in self.members.values():
            member.start()
        return self

    def cut(self, *node_ids: int) -> None:
        """Part these from all others."""
        rest = [n for n in self.members if n not in node_ids]
        for one in node_ids:
            self.cuts |= {(one, other) for other in rest} | {(other, one) for other in rest}

    def heal(self) -> None:
        self.cuts.clear()

    # ---- messages

    def send(self, sender: Member, send: Send) -> None:
        target_id = send.peer.node_id
        if target_id < 0:
            (target_id,) = [v.node_id for v in self.voters.voters if v.port == send.peer.port] or [
                target_id
            ]
        self.flights.append(Flight(sender, send, send.request, target_id=target_id))

    def deliver(self, flight: Flight) -> None:
        """Bring one message to its end; what leaves is what its version can say."""
        self.flights.remove(flight)
        sender, target = flight.sender, self.members.get(flight.target_id)
        if flight.is_answer:
            if (flight.target_id, sender.node_id) in self.cuts:
                self._fail(flight, "cut off")
            else:
                self._answer(flight, flight.response)
            return
        kind = type(flight.request)
        version = min(kind.valid.last, self.versions.get(kind.key, 99), flight.send.version_max)
        if version < flight.send.version_min:
            self._answer(flight, Unanswered(why="too old", is_unsupported=True))
        elif target is None or not target.is_up or (sender.node_id, target.node_id) in self.cuts:
            self._fail(flight, "not connected")
        else:
            request, _ = kind.read(flight.request.write(version), version)
            life = target.life

            def answer(response: Any) -> Reply:
                copy, _ = type(response).read(response.write(version), version)
                assert life == target.life, "an answer from an earlier life"
                return Reply(context=flight, message=copy)

            self.open.append(flight)
            target.run(target.node.on_request(request, answer, self.now_ms))

    def answer(self, flight: Flight, message: Any) -> None:
        """Send an answer back, where anybody still waits for it."""
        if flight in self.open:
            self.open.remove(flight)
            flight.response, flight.is_answer = message, True
            self.flights.append(flight)

    def hang_up(self, gone: Member) -> None:
        """A node is gone: its connections break."""
        broken = [f for f in self.flights + self.open if gone in (f.sender, self[f.target_id])]
        self.flights = [f for f in self.flights if f not in broken]
        self.open = [f for f in self.open if f not in broken]
        for flight in broken:
            self._fail(flight, "connection lost")

    def _answer(self, flight: Flight, response: Any) -> None:
        if flight.sender.is_up:
            flight.sender.run(flight.send.then(response, self.now_ms))

    def _fail(self, flight: Flight, why: str) -> None:
        self._answer(flight, Unanswered(why=why))

    def lose(self, flight: Flight) -> None:
        """The message is gone; its sender hears nothing but that."""
        self.flights.remove(flight)
        self._fail(flight, "lost")

    def find(self, name: str, sender: int | None = None, target: int | None = None) -> Flight:
        """The one flight of that message."""
        (found,) = [
            f
            for f in self.flights
            if f.name == name
            and sender in (None, f.sender.node_id)
            and target in (None, f.target_id)
        ]
        return found

    def pass_on(self, name: str, sender: int | None = None, target: int | None = None) -> None:
        self.deliver(self.find(name, sender, target))

    # ---- time

    def settle(self, limit: int = 5_000) -> None:
        """Deliver and sync until nothing moves at this moment."""
        for _ in range(limit):
            for member in self.members.values():
                if member.is_up and not member.holds_flushes:
                    member.sync()
            if not self.flights:
                return
            self.deliver(self.flights[0])
        raise AssertionError(f"it never settles: {[f.name for f in self.flights]}")

    def run_for(self, ms: int, until: Callable[[], bool] | None = None) -> None:
        """Let time pass, everything happening at its moment."""
        end_ms = self.now_ms + ms
        while True:
            self.settle()
            if until is not None and until():
                return
            due = [
                (timer.at_ms, member.node_id, str(key), member, key)
                for member in self.members.values()
                if member.is_up
                for key, timer in member.timers.items()
            ]
            if not due or min(due)[0] > end_ms:
                self.now_ms = end_ms
                assert until is None, "it did not come to that"
                return
            *_, member, key = min(due, key=lambda one: one[:3])
            member.fire(key)

    # ---- what came of it

    @property
    def leaders(self) -> list[Member]:
        return [m for m in self.members.values() if m.is_up and m.node.role is Role.LEADER]

    def elect(self, node_id: int | None = None) -> Member:
        """Run until one leads and says so; `node_id` is helped to win by timing out first."""
        if node_id is not None:
            member = self.members[node_id]
            self.settle()
            name = "election" if ("raft", "election") in member.timers else "fetch"
            member.fire(name)
            self.settle()
            self.run_for(500)
        self.run_for(20_000, until=lambda: bool(self.leaders and self.agree()))
        (leader,) = self.leaders
        assert node_id in (None, leader.node_id)
        return leader

    def agree(self) -> bool:
        """Do all that are up follow one leader?"""
        up = [m.node for m in self.members.values() if m.is_up]
        return len({(n.leader_id, n.epoch) for n in up}) == 1 and up[0].leader_id >= 0

    def elsewhere(self, member: Member) -> list[Member]:
        return [m for m in self.members.values() if m is not member]


def peers(net: Net) -> list[Peer]:
    """The voters as bootstrap servers: somewhere to ask, whoever that is."""
    return [Peer(-2 - i, v.host, v.port) for i, v in enumerate(net.voters.voters)]


# ---- requests of strangers, as the wire has them


def vote(
    epoch: int,
    candidate_id: int = 2,
    *,
    last: tuple[int, int] = (0, 0),
    voter_id: int = 1,
    voter_directory_id: bytes = bytes(16),
    directory_id: bytes | None = None,
    is_pre_vote: bool = False,
    cluster_id: str | None = CLUSTER,
) -> Any:
    """A Vote; `last` is offset and epoch."""
    request = wire.vote_request(
        cluster_id or "",
        epoch=epoch,
        candidate_id=candidate_id,
        directory_id=directory(candidate_id) if directory_id is None else directory_id,
        voter_id=voter_id,
        last=OffsetAndEpoch(*last),
        is_pre_vote=is_pre_vote,
    )
    request.cluster_id = cluster_id
    request.topics[0].partitions[0].voter_directory_id = voter_directory_id
    return request


def begin(
    epoch: int, leader_id: int = 2, *, voter_id: int = 1, voter_directory_id: bytes = bytes(16)
) -> Any:
    """A BeginQuorumEpoch."""
    request = wire.begin_request(
        CLUSTER,
        epoch=epoch,
        leader_id=leader_id,
        voter_id=voter_id,
        listener="CONTROLLER",
        leader=Peer(leader_id, f"host-{leader_id}", 9000 + leader_id),
    )
    request.topics[0].partitions[0].voter_directory_id = voter_directory_id
    return request


def end(epoch: int, leader_id: int = 2, successors: Sequence[tuple[int, bytes]] = ()) -> Any:
    """An EndQuorumEpoch."""
    return wire.end_request(CLUSTER, epoch=epoch, leader_id=leader_id, successors=successors)


def fetch(
    epoch: int,
    replica_id: int,
    at: tuple[int, int],
    *,
    high_watermark: int | None = 1 << 60,
    max_wait_ms: int = 500,
    directory_id: bytes | None = None,
) -> Any:
    """A Fetch; `at` is offset and epoch of the log's end."""
    request = wire.fetch_request(
        CLUSTER,
        epoch=epoch,
        replica_id=replica_id,
        directory_id=directory(replica_id) if directory_id is None else directory_id,
        end=OffsetAndEpoch(*at),
        high_watermark=high_watermark,
        max_bytes=1 << 20,
    )
    request.max_wait_ms = max_wait_ms
    return request


def fetch_snapshot(
    epoch: int, replica_id: int, snapshot_id: tuple[int, int], position: int, size: int = 4
) -> Any:
    """A FetchSnapshot."""
    return wire.fetch_snapshot_request(
        CLUSTER,
        epoch=epoch,
        replica_id=replica_id,
        directory_id=directory(replica_id),
        snapshot_id=OffsetAndEpoch(*snapshot_id),
        position=position,
        max_bytes=size,
    )


def describe() -> Any:
    """A DescribeQuorum."""
    m = k55_describe_quorum
    partition = m.DescribeQuorumPartition(partition_index=0)
    topic = m.DescribeQuorumTopic(topic_name="__cluster_metadata", partitions=[partition])
    return m.DescribeQuorumRequest(topics=[topic])


def part(response: Any) -> Any:
    """The one partition of an answer."""
    topics = getattr(response, "responses", None) or response.topics
    return topics[0].partitions[0]


def alone(node_id: int = 1, **options: Any) -> tuple[Net, Member]:
    """One replica of three that nobody else answers, started."""
    net = Net(**options)
    member = net[node_id]
    member.start()
    return net, member


def one_record(base_offset: int, epoch: int, value: bytes) -> bytes:
    """A batch of one record, as a log holds it."""
    records = [NewRecord(None, value, 5)]
    return bytes(build_batch(records, base_offset=base_offset, leader_epoch=epoch))
