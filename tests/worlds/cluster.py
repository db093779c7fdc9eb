"""Several whole nodes on disks in memory, a network of wire bytes and one clock, in the test's hands."""

import heapq
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from firnline.api.dispatch import Dispatcher, frame_bytes
from firnline.base.effects import (
    Append,
    Effect,
    EnsureTopic,
    Reply,
    Send,
    SetTimer,
    Unanswered,
)
from firnline.base.errors import KafkaError
from firnline.broker.controller_node import ControllerNode
from firnline.broker.node import BrokerNode
from firnline.broker.wiring import build_controller, build_node
from firnline.client.wire import choose_version, decode_answer, encode_request
from firnline.config.load import load
from firnline.log.checkpoint import format_directory
from firnline.metadata import records as r
from firnline.metadata.snapshot_file import BOOTSTRAP, snapshot_batches, write_snapshot
from firnline.outbound.remote_controller import RemoteController
from firnline.outbound.replica_fetch import ReplicaFetch
from firnline.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from firnline.protocol.schema import Message, Versions
from firnline.protocol.versions import CONTROLLER_SERVED, SERVED
from firnline.sim.disk import CrashableFs
from firnline.tiered.spi import RemoteStorage
from tests.worlds.chance import SeededRng
from tests.worlds.clock import FakeClock
from tests.worlds.effects import World
from tests.worlds.harness import CLUSTER_ID, DATA, METADATA_VERSION, START_MS
from tests.worlds.timers import WorldTimers

LATENCY_MS = 1
CLIENT_PORT, CONTROLLER_PORT = 9200, 9300
Node = BrokerNode | ControllerNode


class Exchange(NamedTuple):
    """A request that was answered: by whom, to whom (-1 for a client), and how."""

    asker: int
    target: int
    version: int
    request: Message
    answer: Any


class Parcel:
    """A request that the network keeps back."""

    def __init__(self, asker: int, target: int, request: Message, arrive: Callable[[int], None]):
        self.asker, self.target, self.request = asker, target, request
        self._arrive = arrive

    def release(self, *, at: int | None = None) -> None:
        """Let it arrive, at another node than it was meant for if `at` says so; as often as wanted."""
        self._arrive(self.target if at is None else at)


class Line:
    """One request's way back, as `runtime.net.Connection` is to the one who answers."""

    principal = "User:ANONYMOUS"
    peer_host = "127.0.0.1"
    closed = False

    def __init__(
        self, listener: str, dispatcher: Dispatcher, then: Callable[[bytes], None]
    ) -> None:
        self.listener = listener
        self.dispatcher = dispatcher
        self._then = then

    def answer(self, reply: Reply) -> None:
        frame = frame_bytes(self.dispatcher.encode(reply))
        self._then(frame[4:])


class Member(World):
    """One process: a node, its timers, and the disk that outlives it."""

    def __init__(self, rig: "Rig", node_id: int, settings: dict[str, str]) -> None:
        super().__init__(rig.clock)
        self.rig = rig
        self.node_id = node_id
        self.settings = settings
        self.rng = SeededRng(node_id)
        self.fs: CrashableFs = CrashableFs(clock_ms=lambda: rig.now_ms)
        self.node: Node | None = None
        self.is_running = self.is_stopped = False
        self.life = 0

    @property
    def broker(self) -> BrokerNode:
        assert isinstance(self.node, BrokerNode)
        return self.node

    @property
    def controller(self) -> ControllerNode:
        """The controller of this node, alone or inside a combined one."""
        found = self.node if isinstance(self.node, ControllerNode) else self.broker.controller_node
        assert found is not None
        return found

    def format(self, cluster_id: str = CLUSTER_ID, directory_id: bytes | None = None) -> None:
        self.directory_id = directory_id or self.rng.uuid()
        self.fs = CrashableFs(clock_ms=lambda: self.rig.now_ms)
        paths = self.settings["log.dirs"].split(",")
        for place, path in enumerate(paths):
            format_directory(
                self.fs, path, cluster_id=cluster_id, node_id=self.node_id,
                directory_id=self.rng.uuid() if place else self.directory_id,
            )  # fmt: skip
        version = self.rig.metadata_version
        levels = [r.FeatureLevelRecord(name="metadata.version", feature_level=version)]
        batches = snapshot_batches(
            levels, epoch=0, metadata_version=version, last_contained_ms=0, now_ms=START_MS
        )
        write_snapshot(self.fs, paths[0], BOOTSTRAP, batches)

    def start(self) -> None:
        config = load(self.settings)
        self.life += 1
        self.timers = WorldTimers()
        self.is_running = self.is_stopped = False
        remote = partial(RemoteController, config)
        make: Any = build_controller
        if "broker" in config.process_roles:
            make = partial(
                build_node,
                other_leaders=partial(ReplicaFetch, config),
                remote_storage=self.rig.remote_storage(self.node_id),
            )
        node = self.node = make(
            config, self.fs, self.rng, now_ms=self.rig.now_ms, remote=remote, owner=self
        )
        self.dispatchers: dict[int, tuple[str, Dispatcher]] = {}
        if isinstance(node, BrokerNode):
            self.dispatchers[CLIENT_PORT + self.node_id] = ("PLAINTEXT", Dispatcher(node))
        if "controller" in config.process_roles:
            dispatcher = Dispatcher(self.controller, CONTROLLER_SERVED)
            self.dispatchers[CONTROLLER_PORT + self.node_id] = ("CONTROLLER", dispatcher)
        self.run(node.start(self.rig.now_ms))

    def node_running(self, now_ms: int) -> None:
        self.is_running = True

    def node_stopped(self, now_ms: int) -> None:
        self.is_stopped = True

    def kill(self) -> None:
        """Stop it as SIGKILL does: what was written to the page cache stays."""
        self.life += 1
        self.node = None
        self.fs = self.fs.crash(self.rng, keep="all")

    def cut_power(self) -> None:
        """Lose the page cache as well."""
        self.life += 1
        self.node = None
        self.fs = self.fs.crash(self.rng, keep="none")

    # ---- effects: whatever takes its time is a moment of the rig, and dies with the process

    def on_set_timer(self, effect: SetTimer) -> None:
        super().on_set_timer(effect)
        at_ms = max(effect.at_ms, self.now_ms)
        self.rig.at(at_ms, partial(self._come_due, self.life, effect))

    def on_ready(self, effect: Effect) -> None:
        self.rig.at(self.now_ms, partial(self._complete, self.life, effect))

    def on_send(self, effect: Send) -> None:
        self.rig.send(self, effect)

    def on_reply(self, effect: Reply) -> None:
        effect.context.connection.answer(effect)

    def on_append(self, effect: Append) -> None:
        self.on_other(effect)

    def on_ensure_topic(self, effect: EnsureTopic) -> None:
        self.on_other(effect)

    def on_other(self, effect: Effect) -> None:
        assert self.node is not None
        self.run(self.node.perform(effect, self.now_ms))

    def _come_due(self, life: int, effect: SetTimer, serial: int) -> None:
        if life == self.life and self.timers.get(effect.key) is effect:
            self.fire(effect.key)

    def _complete(self, life: int, effect: Effect, serial: int) -> None:
        if life == self.life:
            self.complete(effect)

    def resume(self, life: int, then: Any, result: Any) -> None:
        """Hand over an answer, unless the process that asked is no more."""
        if life == self.life:
            self.run(then(result, self.rig.now_ms))


class Rig:
    """The world. `roles` by node id: "controller", "broker", or both by comma.

    remote_storage  the store of each broker's tier; may be set before the start
    """

    def __init__(
        self, roles: dict[int, str], *, metadata_version: int = METADATA_VERSION, **settings: str
    ) -> None:
        self.clock = FakeClock(START_MS)
        self.metadata_version = metadata_version  # that directories are formatted with
        self.remote_storage: Callable[[int], RemoteStorage | None] = lambda node_id: None
        self._events: list[tuple[int, int, Callable[[int], None]]] = []
        self._serial = count()
        self.cut: set[tuple[int, int]] = set()  # (from, to): requests that way are lost
        self.sent: list[tuple[int, int, Message]] = []
        self.answered: list[Exchange] = []  # also what came when nobody waited for it any more
        # (from, to, request): whether the network keeps it back, in `held`.
        self.holds: Callable[[int, int, Message], bool] = lambda *_: False
        self.held: list[Parcel] = []
        self.spoken: dict[int, dict[int, Versions]] = {}  # by node: API keys it speaks otherwise
        voters = [n for n in sorted(roles) if "controller" in roles[n]]
        common = {
            "controller.quorum.voters": ",".join(
                f"{n}@127.0.0.1:{CONTROLLER_PORT + n}" for n in voters
            ),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": DATA,
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "2",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self.members: dict[int, Member] = {}
        for node_id, role in roles.items():
            listeners = []
            if "broker" in role:
                listeners.append(f"PLAINTEXT://127.0.0.1:{CLIENT_PORT + node_id}")
            if "controller" in role:
                listeners.append(f"CONTROLLER://127.0.0.1:{CONTROLLER_PORT + node_id}")
            stated = {
                **common,
                "process.roles": role,
                "node.id": str(node_id),
                "listeners": ",".join(listeners),
            }
            member = self.members[node_id] = Member(self, node_id, stated)
            member.format()

    def __getitem__(self, node_id: int) -> Member:
        return self.members[node_id]

    # ---- time

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self.clock.now_ms = now_ms

    def at(self, at_ms: int, call: Callable[[int], None]) -> int:
        serial = next(self._serial)
        heapq.heappush(self._events, (at_ms, serial, call))
        return serial

    def step(self) -> None:
        """Let the next thing happen."""
        self.now_ms, serial, call = heapq.heappop(self._events)
        call(serial)

    def pass_time(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._events and self._events[0][0] <= end_ms:
            self.step()
        self.now_ms = end_ms

    def until(self, is_so: Callable[[], Any], at_most_ms: int = 60_000) -> int:
        """Let things happen until `is_so()`; return how long it took."""
        begin_ms = self.now_ms
        while not is_so():
            assert self.now_ms - begin_ms <= at_most_ms, "it did not come to that"
            self.step()
        return self.now_ms - begin_ms

    # ---- the network

    def send(self, asker: Member, effect: Send) -> None:
        life, request = asker.life, effect.request
        assert isinstance(request, Message)

        def lose(serial: int) -> None:
            asker.resume(life, effect.then, Unanswered(why="nobody answers"))

        target = next(
            (m for m in self.members.values() if effect.peer.port in getattr(m, "dispatchers", {})),
            None,
        )
        if target is None or target.node is None or (asker.node_id, target.node_id) in self.cut:
            self.at(self.now_ms + LATENCY_MS, lose)
            return
        rows = CONTROLLER_SERVED if effect.peer.port >= CONTROLLER_PORT else SERVED
        spoken = {row.key: Versions(row.advertised_min, row.advertised_max) for row in rows}
        spoken |= self.spoken.get(target.node_id, {})
        try:
            version = choose_version(
                request,
                spoken,
                version_min=effect.version_min,
                version_max=effect.version_max,
            )
        except KafkaError as problem:
            refusal = Unanswered(why=str(problem), is_unsupported=True)
            self.at(self.now_ms, lambda serial: asker.resume(life, effect.then, refusal))
            return
        self.sent.append((asker.node_id, target.node_id, request))
        is_answered = []

        def answered(message: Any) -> None:
            is_answered.append(True)
            self.at(
                self.now_ms + LATENCY_MS, lambda serial: asker.resume(life, effect.then, message)
            )

        def time_out(serial: int) -> None:
            if not is_answered:
                is_answered.append(True)
                lose(serial)

        self.at(self.now_ms + effect.timeout_ms, time_out)
        role = effect.peer.port - target.node_id
        arrive = self._deliver(asker.node_id, role, request, version, answered, is_answered)
        if self.holds(asker.node_id, target.node_id, request):
            parcel = Parcel(asker.node_id, target.node_id, request, arrive)
            self.held.append(parcel)
        else:
            arrive(target.node_id)

    def _deliver(
        self,
        asker: int,
        role: int,
        request: Message,
        version: int,
        answered: Callable[[Any], None],
        is_answered: list[bool],
    ) -> Callable[[int], None]:
        """Return what lets a request arrive at a node: on its port for clients, or for controllers."""
        number = next(self._serial)
        frame = encode_request(request, version=version, correlation_id=number, client_id="rig")[4:]

        def arrive(node_id: int) -> None:
            target = self[node_id]
            life = target.life

            def on_answer(body: bytes) -> None:
                message = decode_answer(request, version, body, correlation_id=number)
                self.answered.append(Exchange(asker, node_id, version, request, message))
                if not is_answered:
                    answered(message)

            def take(serial: int) -> None:
                if target.life != life or target.node is None:
                    return
                listener, dispatcher = target.dispatchers[role + node_id]
                line = Line(listener, dispatcher, on_answer)
                view = memoryview(bytearray(frame))
                target.run(dispatcher.on_frame(line, view, self.now_ms))

            self.at(self.now_ms + LATENCY_MS, take)

        return arrive

    def ask(self, node_id: int, request: Message, version: int, *, controller: bool = False) -> Any:
        """Ask as a client; return the answer, which must come within a minute."""
        answers: list[Any] = []
        role = CONTROLLER_PORT if controller else CLIENT_PORT
        self._deliver(-1, role, request, version, answers.append, [])(node_id)
        self.until(lambda: answers)
        return answers[0]

    # ---- the quorum

    def start(self) -> "Rig":
        for member in self.members.values():
            member.start()
        self.until(lambda: self.active() is not None)
        self.until(lambda: all(m.is_running for m in self.members.values()))
        return self

    def active(self) -> int | None:
        """The active controller; None while there is none."""
        found = [
            n for n, m in self.members.items() if m.node is not None and m.node.quorum.is_active
        ]
        assert len(found) <= 1 or self.cut, found
        return found[0] if found else None

    def create_topic(self, node_id: int, name: str, **more: Any) -> Any:
        """Have a broker create a topic; return its row of the answer."""
        topic = CreatableTopic(
            name=name,
            num_partitions=more.pop("partitions", 1),
            replication_factor=more.pop("replicas", 1),
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in more.pop("configs", {}).items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        return self.ask(node_id, request, 7, **more).topics[0]
