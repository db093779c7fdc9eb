"""A run of a whole cluster: like `sim/run.py`, with brokers that have data, and their clients. SIM.

After healing, every replica reaches its leader's end and returns to the ISR within a limit (rel-R18), and the
consumer has read everything that was acknowledged (rel-R14). Source: reliability (c).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from firnline.base.effects import Send
from firnline.base.errors import StorageError
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC
from firnline.metadata.delta import ClusterDelta
from firnline.metadata.features import DIRECTORIES_SINCE
from firnline.metadata.image import ClusterImage
from firnline.protocol.schema import Message
from firnline.sim.cluster.admin import Admin
from firnline.sim.cluster.budget import DirtyReplicas
from firnline.sim.cluster.client import CLIENT_IDS_FROM, Client
from firnline.sim.cluster.consumer import Consumer, OnRead
from firnline.sim.cluster.draw import log_directories
from firnline.sim.cluster.ledger import Ledger, PartitionKey, name
from firnline.sim.cluster.metadata_checks import MetadataChecks
from firnline.sim.cluster.node import ClusterNode
from firnline.sim.cluster.producer import Producer
from firnline.sim.cluster.replica_checks import ReplicaChecks
from firnline.sim.cluster.wire_checks import WireChecks
from firnline.sim.cluster_faults.directories import DirectoryFaults
from firnline.sim.groups.checks import GroupChecks
from firnline.sim.groups.member import Member
from firnline.sim.host import Host, Machine, Process
from firnline.sim.net import BROKER_PORT, PORT, Call, Network, Watcher
from firnline.sim.options import Options
from firnline.sim.quorum_node import DATA
from firnline.sim.run import Cluster
from firnline.sim.tier.reader import RestartingConsumer
from firnline.sim.world import MS, SECOND, World
from firnline.tiered.spi import RemoteStorage

# How long replicas may take to be in sync again, and the consumer to read the rest (rel-R18).
_TOGETHER_US = 60 * SECOND
# The metadata.version from which on followers state their broker epochs (Fetch 15).
_EPOCHS_SINCE = 10
_RESTART_US = (10 * MS, 2 * SECOND)


class Users:
    """The clients of a run, each on a machine of its own.

    on_read      hears of all that consumers read
    is_deposed   whether a leader epoch of a partition is over
    """

    def __init__(
        self,
        world: World,
        options: Options,
        complain: Any,
        *,
        ledger: Ledger,
        on_read: Callable[[int, PartitionKey, int, bytes, int], None],
        is_deposed: Callable[[PartitionKey, int], bool],
    ) -> None:
        shape = options.cluster
        assert shape is not None
        self._complain = complain
        self._on_read = on_read
        self._ledger = ledger
        self.admin = Admin(options, world.chance("admin"))
        self.producers = [
            Producer(number, options, world.chance("producer", number), is_deposed)
            for number in range(shape.producers)
        ]
        # With a tier, one of them begins anew now and then.
        kinds = (Consumer, Consumer if shape.tier is None else RestartingConsumer)
        self.consumers = [
            kinds[number % 2](
                options, world.chance("consumer", number), self._reader(number), self._may_go_back
            )
            for number in range(shape.consumers)
        ]
        self.members = [
            Member(number, options, world.chance("member", number))
            for number in range(shape.members)
        ]
        everybody: list[Client] = [self.admin, *self.producers, *self.consumers, *self.members]
        self.by_id = {CLIENT_IDS_FROM + number: each for number, each in enumerate(everybody)}
        self.hosts: dict[int, Host] = {}

    def _reader(self, number: int) -> OnRead:
        return partial(self._read, number)

    def _read(self, number: int, key: PartitionKey, position: int, data: bytes, epoch: int) -> None:
        self._on_read(number, key, position, data, epoch)

    def _may_go_back(self, key: PartitionKey, position: int) -> bool:
        return position > self._ledger.of(key).end_offset

    @property
    def acknowledged(self) -> int:
        return sum(producer.acknowledged for producer in self.producers)

    def begin(self) -> None:
        """Start them; each has its own rhythm."""
        for host in self.hosts.values():
            host.start()

    def end(self) -> None:
        """Start nothing more, and finish what is in flight."""
        self.admin.is_on = False
        for producer in self.producers:
            producer.is_on = False
        for member in self.members:
            member.is_on = False
        for consumer in self.consumers:
            consumer.is_on = False

    def broken_promises(self, image: ClusterImage) -> list[str]:
        """Topics that were made, or deleted, and are not, or are; a level that was raised (rel-Q16)."""
        lost = [
            f"topic {topic} was created and is not there"
            for topic_id, topic in self.admin.made.items()
            if topic_id not in image.topics_by_id
        ]
        back = [
            f"topic {topic} was deleted and is there"
            for topic_id, topic in self.admin.gone.items()
            if topic_id in image.topics_by_id
        ]
        level = image.metadata_version
        if level < self.admin.level:
            back.append(f"metadata.version was raised to {self.admin.level} and is {level}")
        return lost + back


class RequestWatcher(Protocol):
    """Is shown requests before they are handled, and their responses."""

    def received(self, process: Process, call: Call) -> None: ...

    def answered(self, process: Process, call: Call, response: Message) -> None: ...


class Watch:
    """Passes each message to the checkers that it concerns."""

    def __init__(
        self,
        quorum: Watcher,
        brokers: WireChecks,
        groups: GroupChecks,
        others: Sequence[RequestWatcher],
    ) -> None:
        self._quorum = quorum
        self._brokers = brokers
        self._groups = groups
        self._others = others

    def sent(self, process: Process, to_id: int, effect: Send[Any]) -> None:
        if effect.peer.port == PORT:
            self._quorum.sent(process, to_id, effect)
        self._brokers.sent(process, to_id, effect)

    def received(self, process: Process, call: Call) -> None:
        if call.port == PORT:
            self._quorum.received(process, call)
        self._brokers.received(process, call)
        self._groups.received(process, call)
        for other in self._others:
            other.received(process, call)

    def answered(self, process: Process, call: Call, response: Message) -> None:
        if call.port == PORT:
            self._quorum.answered(process, call, response)
        self._brokers.answered(process, call, response)
        self._groups.answered(process, call, response)
        for other in self._others:
            other.answered(process, call, response)

    def on_response(self, process: Process, effect: Send[Any], response: Message) -> None:
        self._brokers.on_response(process, effect, response)


class FullCluster(Cluster):
    """Brokers, controllers and clients of one run."""

    faults: DirectoryFaults
    faults_kind = DirectoryFaults
    workload: Users

    def _make_checks(self) -> None:
        world, options, complain = self.world, self.options, self.checkers.complain
        assert options.cluster is not None
        self.ledger = ledger = Ledger()
        directories = log_directories(options)
        self.dirty = dirty = DirtyReplicas(self.hosts, ledger, options.cluster.min_isr, directories)
        self.wire = wire = WireChecks(world, ledger, complain)
        self.replicas = ReplicaChecks(world, self.hosts, ledger, dirty, wire, complain)
        self.metadata = MetadataChecks(
            ledger,
            dirty,
            self.replicas,
            wire,
            complain,
            may_be_unknown=options.cluster.levels[0] < _EPOCHS_SINCE,
        )
        self.groups = GroupChecks(self.hosts, ledger, dirty, complain)
        self.watchers: list[RequestWatcher] = []  # besides

    def _on_image(self, image: ClusterImage, deltas: Sequence[ClusterDelta]) -> None:
        self.metadata.on_image(image, deltas)

    def _make_workload(self) -> Users:
        users = Users(
            self.world,
            self.options,
            self.checkers.complain,
            ledger=self.ledger,
            on_read=self.wire.read,
            is_deposed=self.dirty.is_deposed,
        )
        for node_id in users.by_id:
            users.hosts[node_id] = Host(node_id, self.world, self.options, self)
        return users

    def _make_network(self) -> Network:
        watch = Watch(self.checkers, self.wire, self.groups, self.watchers)
        return Network(self.world, self.options, self.hosts | self.workload.hosts, watch)

    def _make_faults(self, mode: str) -> DirectoryFaults:
        return self.faults_kind(
            self.world,
            self.options,
            self.hosts,
            self.network,
            self.checkers.history,
            mode=mode,
            dirty=self.dirty,
        )

    @property
    def committed(self) -> int:
        """Records of producers that were ever committed."""
        return self.ledger.records

    @property
    def acknowledged(self) -> int:
        """Records that were acknowledged with acks=all."""
        return self.ledger.acknowledged

    @property
    def exempt(self) -> int:
        return self.ledger.exempt

    @property
    def unclean_elections(self) -> int:
        return self.metadata.unclean_elections

    # ---- the environment of the processes

    def make(self, host: Host, process: Process, now_ms: int) -> Machine:
        client = self.workload.by_id.get(host.node_id)
        if client is not None:
            return client
        return ClusterNode(
            host.fs,
            self.options,
            host.node_id,
            host.rng,
            now_ms,
            on_running=partial(self.network.wake, process),
            watch=partial(self.replicas.dropped, process),
            remote_storage=self._storage(host),
        )

    def _storage(self, host: Host) -> RemoteStorage | None:
        """Make the store of a broker's tier, if the cluster has one."""
        return None

    def stepped(self, process: Process) -> None:
        if process.node_id >= CLIENT_IDS_FROM or not process.is_alive or not process.is_ready:
            return
        super().stepped(process)
        self.replicas.stepped(process)
        self.wire.stepped()

    def took(self, process: Process, what: str, taken_us: int) -> None:
        """A slow step of a combined node that is not unfenced yet is fine: it reads its logs (rel-X2)."""
        machine = process.machine
        if machine.controller is not None or machine.takes(BROKER_PORT):
            super().took(process, what, taken_us)

    def stopped(self, process: Process, *, is_power: bool) -> None:
        super().stopped(process, is_power=is_power)
        self.replicas.ended(process)
        self.wire.ended(process)

    def failed(self, process: Process, problem: BaseException) -> None:
        """A failed disk ends a broker; its page cache survives unless the budget allows the loss."""
        host = process.host
        if isinstance(problem, StorageError) and host.has_bad_disk:
            self.world.note(host.node_id, f"stops: {problem}")
            if self._should_go_on(process, problem):
                text = f"stopped when one of its log directories failed: {problem}"
                self.checkers.complain("rel-P9", text, host.node_id)
            if process.is_ready:
                self.checkers.failing(process)
                self.replicas.failing(process)
            host.has_bad_disk = False
            if self.faults.may_lose(host):
                self.dirty.loses(host.node_id)
                host.cut_power(self._chance)
            else:
                host.kill()
            self.world.after(self._chance.spread(*_RESTART_US), host.start)
            return
        super().failed(process, problem)

    def _should_go_on(self, process: Process, problem: StorageError) -> bool:
        """rel-P9: if a directory fails, the broker goes on with the others, unless it was the last or has the
        metadata.

        If the controller does not know the broker's directories, because metadata.version was too old when it
        registered, the node stops, and is fenced.
        """
        path = f"{problem.facts.get('path', '')}/"
        others = [each for each in self.dirty.directories if each != DATA]
        if not process.is_ready or not any(path.startswith(f"{each}/") for each in others):
            return False
        storage = process.machine.broker.storage
        image = process.machine.quorum.image
        known = image.brokers.get(process.node_id)
        if image.metadata_version < DIRECTORIES_SINCE or known is None or not known.log_dirs:
            return False
        return len(storage.failed_directories) < len(self.dirty.directories)

    # ---- the end

    def converge(self) -> None:
        super().converge()
        if not self.world.stopped:
            self._put_directories_right()
        if not self.world.stopped:
            self.workload.end()
            users = self.workload
            idle = self.wait(lambda: all(each.is_idle for each in users.producers), _TOGETHER_US)
            together = idle and self.wait(lambda: self._apart() is None, _TOGETHER_US)
            if not together and not self.world.stopped:
                text = self._apart() or "a producer gets no answer"
                self.checkers.complain(
                    "rel-R18", f"{_TOGETHER_US // SECOND} s after healing: {text}"
                )
        if not self.world.stopped:
            self.check_history()

    def _put_directories_right(self) -> None:
        """rel-P9: check that no leader is in a failed directory; then restart the brokers."""
        if not self.wait(lambda: self._led_by_failed() is None, _TOGETHER_US):
            if not self.world.stopped:
                text = f"{_TOGETHER_US // SECOND} s after healing: {self._led_by_failed()}"
                self.checkers.complain("rel-P9", text)
            return
        for host in self.hosts.values():
            broker = None if host.process is None else host.process.machine.broker
            if broker is not None and broker.storage.failed_directories:
                host.kill()
                host.start()

    def _led_by_failed(self) -> str | None:
        """Return a partition whose leader is in a failed directory."""
        for host in self.hosts.values():
            broker = None if host.process is None else host.process.machine.broker
            for key, partition in () if broker is None else broker.hosted.by_id.items():
                state = self.dirty.partition(key)
                if partition.is_offline and state is not None and state.leader == host.node_id:
                    return f"{name(key)} is led by {host.node_id}, whose directory failed"
        return None

    def _apart(self) -> str | None:
        """Return why replicas and readers are not where they should be; None if they are."""
        image = self.dirty.image
        topics = sorted(image.topics_by_name.values(), key=lambda topic: topic.name)
        for topic in topics:
            for index in sorted(topic.partitions):
                key, state = (topic.topic_id, index), topic.partitions[index]
                where = f"{topic.name}-{index}"
                if self._waits_for_operator(key):
                    continue
                if sorted(state.isr) != sorted(state.replicas):
                    return f"the ISR of {where} is {state.isr} of {state.replicas}"
                if topic.name == REMOTE_LOG_METADATA_TOPIC:
                    continue  # brokers may write to it at any time
                end = self.ledger.of(key).end_offset
                for node_id in state.replicas:
                    found = self.replicas.running(key, node_id)
                    if found is None:
                        return f"{where} is not served on {node_id}"
                    if (found.log.log_end_offset, found.log.high_watermark) != (end, end):
                        return (
                            f"{where} on {node_id} is at {found.log.high_watermark} of"
                            f" {found.log.log_end_offset}; {end} is committed"
                        )
                for consumer in self.workload.consumers:
                    if consumer.positions.get(key) != end:
                        position = consumer.positions.get(key)
                        return f"a consumer of {where} is at {position}, the end is {end}"
        return self._unsettled()

    def _waits_for_operator(self, _key: PartitionKey) -> bool:
        """Whether a partition needs what only an operator can bring back, and its leader says so."""
        return False

    def _unsettled(self) -> str | None:
        """Return why the group has not one owner for each partition, in one generation (rel-C6)."""
        members = self.workload.members
        for member in members:
            if not member.is_settled:
                return f"member {member.number} of the group is at {member.phase.value!r}"
        if len({member.generation for member in members}) > 1:
            return f"the group is in generations {[member.generation for member in members]}"
        owned = sorted(spot for member in members for spot in member.share)
        if members and owned != members[0].spots():
            return f"{members[0].spots()} are read by the group, and owned are {owned}"
        return None

    def check_history(self) -> None:
        """rel-R14 at the end: every log matches the ledger. rel-C5: and every commit is there."""
        self.groups.check_end()
        for producer in self.workload.producers:
            for key, text in producer.out_of_order:
                if not self.ledger.of(key).lost:
                    self.checkers.complain("rel-R12", f"producer {producer.number}: {text}")
        for key, history in self.ledger.partitions.items():
            if history.acked_end > history.end_offset:
                text = f"{name(key)}: {history.acked_end} was acknowledged; the end is {history.end_offset}"
                self.checkers.complain("rel-R14", text)
