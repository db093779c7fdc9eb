"""What clients and brokers do during a run, and what was acknowledged to them. SIM.

A client is next to whatever node claims to be the active controller, also a deposed one. A response is a
promise; an unanswered request may have been carried out or not.
"""

from collections.abc import Callable, Sequence
from typing import Any

from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.base.ids import METADATA_TOPIC, Uuid
from firnline.controller.brokers import Heartbeat, Registration
from firnline.controller.configs import Alteration
from firnline.controller.controller import Controller
from firnline.controller.topics import NewPartitions, NewTopic
from firnline.metadata.features import SUPPORTED
from firnline.metadata.image import ClusterImage, ConfigResource, Endpoint, ResourceType
from firnline.metadata.result import ControllerResult
from firnline.sim.host import Host, Process
from firnline.sim.options import Options
from firnline.sim.world import SECOND, World

BROKERS = (1001, 1002, 1003)
_HEARTBEAT_US = 1_500_000
_NAMES = 90
_SET = 0
_PARTITIONS_MAX = 4

Decide = Callable[[Controller, int], ControllerResult[Any]]
ResultCallback = Callable[[Any], None]
Complain = Callable[[str, str], None]


class Workload:
    """Clients and three brokers. `complain(invariant, text)` is called for a broken promise."""

    def __init__(
        self, world: World, options: Options, hosts: dict[int, Host], complain: Complain
    ) -> None:
        self._world = world
        self._options = options
        self._hosts = hosts
        self._complain = complain
        self._chance = world.chance("workload")
        self._is_on = False
        self._incarnations = {broker: self._chance.uuid() for broker in BROKERS}
        self._directories = {broker: self._chance.uuid() for broker in BROKERS}
        # By topic id: certainly created; certainly deleted; deletion requested, with unknown result.
        self._made: dict[Uuid, str] = {}
        self._gone: dict[Uuid, str] = {}
        self._doubtful: dict[Uuid, str] = {}
        self._producer_ids: dict[int, int] = {}  # first id of a block -> its broker
        self.acknowledged = 0
        self._menu: Sequence[Callable[[Process], None]] = (
            [self._create] * 9
            + [self._delete] * 4
            + [self._configure] * 2
            + [self._grow] * 2
            + [self._allocate] * 2
            + [self._meddle]
        )

    def begin(self) -> None:
        """Start; each client and broker has its own rhythm."""
        self._is_on = True
        self._world.after(self._gap_us(), self._operate)
        for number, broker in enumerate(BROKERS):
            self._world.after(100_000 * (number + 1), self._heartbeat, broker)

    def end(self) -> None:
        """Send no more requests. Brokers still send heartbeats."""
        self._is_on = False

    def _gap_us(self) -> int:
        return self._chance.between(1, 2 * SECOND // self._options.operations_per_s)

    def _active(self) -> Process | None:
        found = [
            host.process
            for host in self._hosts.values()
            if host.process is not None
            and host.process.is_ready
            and host.process.machine.quorum.is_active
        ]
        return self._chance.pick(found) if found else None

    def _operate(self) -> None:
        if not self._is_on:
            return
        self._world.after(self._gap_us(), self._operate)
        act = self._chance.pick(self._menu)
        process = self._active()
        if process is not None:
            act(process)

    def _ask(self, process: Process, what: str, decide: Decide, on_result: ResultCallback) -> None:
        """Let the controller decide and write; `on_result(response or KafkaError)` when it answers."""

        def then(outcome: Any, now_ms: int) -> Effects:
            if not isinstance(outcome, KafkaError):
                self.acknowledged += 1
            on_result(outcome)
            return []

        def step(now_ms: int) -> Effects:
            machine = process.machine
            if not machine.quorum.is_active:
                return []
            result = decide(machine.controller, now_ms)
            return machine.quorum.write(result, then, now_ms)

        process.step(f"client: {what}", step)

    # ------------------------------------------------------------------------- operations

    def _create(self, process: Process) -> None:
        live = len(self._made)
        if live >= self._options.topics_max:
            self._delete(process)
            return
        name = f"t{self._chance.below(_NAMES)}"
        count = self._chance.between(1, _PARTITIONS_MAX)
        wanted = NewTopic(name, count, self._chance.between(1, 2), configs=self._configs())

        def on_result(outcome: Any) -> None:
            if isinstance(outcome, KafkaError) or isinstance(outcome[0], KafkaError):
                return
            topic_id = outcome[0].topic_id
            if topic_id not in self._doubtful and topic_id not in self._gone:
                self._made[topic_id] = name

        def decide(controller: Controller, now_ms: int) -> ControllerResult[Any]:
            return controller.create_topics([wanted])

        self._ask(process, f"create {name} with {count}", decide, on_result)

    def _configs(self) -> dict[str, str | None]:
        return {"retention.ms": "60000"} if self._chance.happens(30) else {}

    def _delete(self, process: Process) -> None:
        if not self._made:
            return
        topic_id = self._chance.pick(list(self._made))
        name = self._made.pop(topic_id)
        self._doubtful[topic_id] = name

        def on_result(outcome: Any) -> None:
            if isinstance(outcome, KafkaError) or isinstance(outcome[0], KafkaError):
                return
            self._doubtful.pop(topic_id, None)
            self._gone[topic_id] = name

        def decide(controller: Controller, now_ms: int) -> ControllerResult[Any]:
            return controller.delete_topics([topic_id])

        self._ask(process, f"delete {name}", decide, on_result)

    def _configure(self, process: Process) -> None:
        name = self._some_name()
        value = str(self._chance.between(1, 10**9))
        self._alter(process, name, "retention.ms", value, _ignore)

    def _meddle(self, process: Process) -> None:
        """rel-Q18: nobody changes the settings of the metadata log."""

        def on_result(outcome: Any) -> None:
            if not isinstance(outcome, KafkaError) and not isinstance(outcome[0], KafkaError):
                self._complain("rel-Q18", f"a setting of {METADATA_TOPIC} was changed")

        self._alter(process, METADATA_TOPIC, "cleanup.policy", "delete", on_result)

    def _alter(
        self, process: Process, name: str, key: str, value: str, on_result: ResultCallback
    ) -> None:
        resource = ConfigResource(ResourceType.TOPIC, name)

        def decide(controller: Controller, now_ms: int) -> ControllerResult[Any]:
            wanted = [(resource, [Alteration(key, _SET, value)])]
            return controller.incremental_alter_configs(wanted)

        self._ask(process, f"set {key} of {name}", decide, on_result)

    def _grow(self, process: Process) -> None:
        name = self._some_name()
        total = self._chance.between(2, _PARTITIONS_MAX + 2)

        def decide(controller: Controller, now_ms: int) -> ControllerResult[Any]:
            return controller.create_partitions([NewPartitions(name, total)])

        self._ask(process, f"grow {name} to {total}", decide, _ignore)

    def _allocate(self, process: Process) -> None:
        broker = self._chance.pick(BROKERS)

        def on_result(outcome: Any) -> None:
            if isinstance(outcome, KafkaError):
                return
            # A controller that was paused may answer late, so blocks come in any order.
            if outcome.first_id in self._producer_ids:
                text = f"producer ids from {outcome.first_id} were handed out twice"
                self._complain("rel-Q16", text)
            self._producer_ids[outcome.first_id] = broker

        def decide(controller: Controller, now_ms: int) -> ControllerResult[Any]:
            found = process.machine.quorum.newest.brokers.get(broker)
            epoch = -1 if found is None else found.epoch
            return controller.allocate_producer_ids(broker_id=broker, broker_epoch=epoch)

        self._ask(process, f"producer ids for {broker}", decide, on_result)

    def _some_name(self) -> str:
        return self._chance.pick(list(self._made.values())) if self._made else "t0"

    # ------------------------------------------------------------------------- brokers

    def _heartbeat(self, broker: int) -> None:
        self._world.after(_HEARTBEAT_US, self._heartbeat, broker)
        process = self._active()
        if process is None:
            return

        def decide(controller: Controller, now_ms: int) -> ControllerResult[Any]:
            image = process.machine.quorum.newest
            found = image.brokers.get(broker)
            if found is None:
                return controller.register_broker(self._registration(broker), now_ms)
            heartbeat = Heartbeat(broker, found.epoch, image.offset)
            return controller.heartbeat(heartbeat, now_ms)

        self._ask(process, f"broker {broker} beats", decide, _ignore)

    def _registration(self, broker: int) -> Registration:
        return Registration(
            broker_id=broker,
            incarnation_id=self._incarnations[broker],
            endpoints=(Endpoint("PLAINTEXT", "broker", broker),),
            features=SUPPORTED,
            rack=None,
            log_dirs=(self._directories[broker],),
        )

    # ------------------------------------------------------------------------- the promises

    def broken_promises(self, image: ClusterImage) -> list[str]:
        """Return what the committed state lacks of what was acknowledged, or contradicts (rel-Q16)."""
        lost = [
            f"topic {name} was created and is not there"
            for topic_id, name in self._made.items()
            if topic_id not in image.topics_by_id
        ]
        back = [
            f"topic {name} was deleted and is there"
            for topic_id, name in self._gone.items()
            if topic_id in image.topics_by_id
        ]
        return lost + back


def _ignore(outcome: Any) -> None:
    """No promise was made."""
