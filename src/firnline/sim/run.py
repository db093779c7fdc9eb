"""One simulated run: create the cluster, inject faults, heal it, and require that it converges. SIM.

Two phases: chaos, in which the plan's faults happen; then nothing fails any more, and within a limit a leader
commits (rel-Q19) and all nodes are equal. Source: reliability (c), 'Two phases'.
"""

import traceback
from collections.abc import Callable, Sequence
from time import perf_counter, process_time
from typing import Any, NamedTuple, Protocol

from firnline.base.effects import CloseConnection, Reply, Send
from firnline.base.errors import StorageError
from firnline.metadata.delta import ClusterDelta
from firnline.metadata.image import ClusterImage
from firnline.raft.role import Role
from firnline.sim.checkers import Checkers, Violation
from firnline.sim.derived.index import IndexChecks
from firnline.sim.faults import Fault, Faults, Injected, draw_plan
from firnline.sim.host import Host, Machine, Process
from firnline.sim.net import Network
from firnline.sim.options import Options, draw_options
from firnline.sim.quorum_node import QuorumNode
from firnline.sim.runtime.slices import small_slices
from firnline.sim.tier.waits import short_waits
from firnline.sim.workload import Workload
from firnline.sim.world import MS, SECOND, Line, World

# The first leader is elected before anything fails.
_CALM_US = 3 * SECOND
_LOOK_US = 100 * MS
# The least time a node has until it is missed is two seconds.
_STEP_US_MAX = 250 * MS
# What rel-Q19 allows, in election timeouts; and after that, how long until all nodes are equal.
_ELECTION_TIMEOUTS = 10
_EQUAL_US = 60 * SECOND
_RESTART_US = (10 * MS, 2 * SECOND)
_LETTERS = {role: role.value[0].upper() for role in Role}
BUDGET, BROKEN = "budget", "broken"


class Outcome(NamedTuple):
    """The result of a run. Times in seconds."""

    seed: int
    mode: str
    form: "ClusterKind"
    options: Options
    digest: str
    simulated_s: float
    wall_s: float
    cpu_s: float
    events: int
    faults: list[Injected]
    beyond_budget: list[Injected]
    committed: int
    exempt: int  # records lost where the budget allows it
    acknowledged: int
    violations: list[Violation]
    story: list[Line]
    unclean_elections: int = 0  # leaders that were elected from outside the ISR

    @property
    def first(self) -> Violation | None:
        """The first violation of the run; None for none."""
        return self.violations[0] if self.violations else None


class Clients(Protocol):
    """The users of the cluster, and what was acknowledged to them."""

    @property
    def acknowledged(self) -> int: ...

    def begin(self) -> None: ...

    def end(self) -> None:
        """Send no more requests."""
        ...

    def broken_promises(self, image: ClusterImage) -> list[str]: ...


class Cluster:
    """Machines, network, clients, faults and checkers of one run; the `Environment` of every process."""

    def __init__(self, options: Options, world: World, mode: str) -> None:
        self.options = options
        self.world = world
        self.hosts: dict[int, Host] = {}
        for node_id in options.node_ids:
            self.hosts[node_id] = Host(node_id, world, options, self)
        self.checkers = Checkers(world, options, self.hosts, self._on_violation, self._on_image)
        self.indexes = IndexChecks(self.checkers.complain)
        self._make_checks()
        self.workload: Clients = self._make_workload()
        self.network = self._make_network()
        self.faults = self._make_faults(mode)
        self._chance = world.chance("restarts")

    def _make_checks(self) -> None:
        """Make the judges that a kind of cluster has besides."""

    def _make_network(self) -> Network:
        return Network(self.world, self.options, self.hosts, self.checkers)

    def _make_faults(self, mode: str) -> Faults:
        history = self.checkers.history
        return Faults(self.world, self.options, self.hosts, self.network, history, mode=mode)

    def _make_workload(self) -> "Clients":
        return Workload(self.world, self.options, self.hosts, self.checkers.complain)

    @property
    def committed(self) -> int:
        """Committed data records."""
        return self.checkers.history.records

    @property
    def acknowledged(self) -> int:
        """What was acknowledged to clients: changes of the cluster, or records."""
        return self.workload.acknowledged

    @property
    def exempt(self) -> int:
        """Records that were lost, and that the budget does not cover."""
        return 0

    @property
    def unclean_elections(self) -> int:
        return 0

    # ---- environment of the processes

    def send(self, process: Process, effect: Send[Any]) -> None:
        self.network.send(process, effect)

    def reply(self, process: Process, effect: Reply[Any]) -> None:
        self.network.reply(process, effect)

    def close_connection(self, process: Process, effect: CloseConnection[Any]) -> None:
        self.network.close_connection(process, effect)

    def make(self, host: Host, process: Process, now_ms: int) -> Machine:
        return QuorumNode(host.fs, self.options, host.node_id, host.rng, now_ms)

    def stepped(self, process: Process) -> None:
        fs = process.host.fs
        fs.is_examined = True
        self.checkers.stepped(process)
        fs.is_examined = False
        if process.is_alive and process.is_ready:
            self.indexes.stepped(process)

    def failed(self, process: Process, problem: BaseException) -> None:
        """An injected disk failure may stop a node; nothing else may."""
        host = process.host
        if isinstance(problem, StorageError) and host.has_bad_disk:
            self.world.note(host.node_id, f"stops: {problem}")
            host.cut_power(self._chance)
            delay_us = self._chance.spread(*_RESTART_US)
            self.world.after(delay_us, host.start)
            return
        where = traceback.extract_tb(problem.__traceback__)[-1]
        place = f"{where.filename.rpartition('/firnline/')[2]}:{where.lineno}"
        text = f"{type(problem).__name__} at {place}: {problem}"
        self.checkers.complain("rel-X1", text, host.node_id)

    def ended_in_work(self, process: Process) -> None:
        self.world.note(process.node_id, "ends in the middle of its work")
        process.host.kill()
        self.world.after(self._chance.spread(*_RESTART_US), process.host.start)

    def took(self, process: Process, what: str, taken_us: int) -> None:
        """A blocked loop answers nobody: heartbeats are missed, leaders deposed (rel-X2)."""
        # A truncation goes over headers of batches, which costs less than their records.
        allowed_us = 4 * _STEP_US_MAX if "truncate" in what else _STEP_US_MAX
        if taken_us > allowed_us:
            text = f"a step held the loop for {taken_us // MS} ms: {what}"
            self.checkers.complain("rel-X2", text, process.node_id)

    def stopped(self, process: Process, *, is_power: bool) -> None:
        self.network.process_ended(process, is_power=is_power)
        self.checkers.ended(process)
        self.indexes.ended(process)

    def _on_violation(self, violation: Violation) -> None:
        self.world.stopped = True

    def _on_image(self, image: ClusterImage, deltas: Sequence[ClusterDelta]) -> None:
        """The metadata is that from here on."""

    # ---- phases

    def begin(self) -> None:
        """Start every node, one after the other."""
        for number, host in enumerate(self.hosts.values()):
            self.world.at(number * 10 * MS, host.start)
        self.world.at(500 * MS, self.workload.begin)

    def heal(self) -> None:
        """End all faults: start nodes that are down, let clocks run evenly."""
        self.world.note(-1, "healed")
        self.faults.heal()
        for host in self.hosts.values():
            host.slow_flush_us = 0
            host.clock.drift(0)
            host.fs.forgive()
            host.start()

    def converge(self) -> None:
        """Check rel-Q19, then that all nodes become equal."""
        world, timeout_us = self.world, self.options.election_timeout_ms * MS
        before = self.checkers.history.end_offset
        # A disk that was slow ends what it began before.
        slow_us = max(host.sync_ends_us for host in self.hosts.values()) - world.now_us
        within_us = max(_ELECTION_TIMEOUTS * timeout_us, SECOND) + max(slow_us, 0)
        if not self.wait(lambda: self._leads_on(before), within_us):
            if not world.stopped:
                text = f"no leader commits {within_us // MS} ms after everything healed"
                self.checkers.complain("rel-Q19", text)
            return
        world.run_until(world.now_us + SECOND)
        self.workload.end()
        # What was asked last is answered, or its leader lost.
        world.run_until(world.now_us + SECOND)
        goal = self.checkers.history.end_offset
        if not self.wait(lambda: self._are_equal(goal), _EQUAL_US) and not world.stopped:
            self.checkers.complain("rel-Q19", f"not all nodes have {goal}: {self._places()}")
        if not world.stopped:
            self.check_end()

    def wait(self, is_so: Callable[[], bool], within_us: int) -> bool:
        until_us = self.world.now_us + within_us
        while not self.world.stopped and not is_so():
            if self.world.now_us >= until_us:
                return False
            self.world.run_until(min(self.world.now_us + _LOOK_US, until_us))
        return not self.world.stopped

    def _machines(self) -> list[Any]:
        return [
            host.process.machine
            for host in self.hosts.values()
            if host.process is not None and host.process.is_ready
        ]

    def _leads_on(self, before: int) -> bool:
        active = [machine for machine in self._machines() if machine.quorum.is_active]
        return bool(active) and self.checkers.history.end_offset > before

    def _are_equal(self, goal: int) -> bool:
        machines = self._machines()
        return len(machines) == len(self.hosts) and all(
            (machine.raft.high_watermark or 0) >= goal and machine.quorum.image.offset >= goal - 1
            for machine in machines
        )

    def _places(self) -> str:
        """Where each node stands, for the complaint."""
        found = []
        for node_id, host in self.hosts.items():
            if host.process is None or not host.process.is_ready:
                found.append(f"{node_id} is down")
                continue
            machine = host.process.machine
            found.append(
                f"{node_id} {machine.raft.role.value} in epoch {machine.raft.epoch} at"
                f" {machine.raft.high_watermark} of {machine.log.end_offset}"
                f" with image {machine.quorum.image.offset}"
            )
        return "; ".join(found)

    def check_end(self) -> None:
        """Every node shows what the committed log says; every promise is kept."""
        for host in self.hosts.values():
            assert host.process is not None
            machine = host.process.machine
            self.checkers.check_image(host.node_id, machine.quorum.image)
        history = self.checkers.history
        image = history.images[max(history.images)]
        for text in self.workload.broken_promises(image):
            self.checkers.complain("rel-Q16", text)


class ClusterKind(NamedTuple):
    """What is simulated: how a seed becomes options, and options a cluster.

    words  of the command line that name it
    """

    name: str
    words: str
    draw: Callable[[int], Options]
    make: Callable[[Options, World, str], Cluster]


QUORUM = ClusterKind("quorum", "", draw_options, Cluster)


def run(
    seed: int,
    *,
    seconds: int | None = None,
    mask: frozenset[int] | None = None,
    mode: str = BUDGET,
    keep_story: bool = False,
    options: Options | None = None,
    plan: list[Fault] | None = None,
    form: ClusterKind = QUORUM,
) -> Outcome:
    """Run one seed. `seconds` of chaos instead of what the seed says; of its faults only those in `mask`."""
    if options is None:
        options = form.draw(seed)
        if mode == BROKEN:
            options = options._replace(fault_kinds=(*options.fault_kinds, "wipe"))
    if seconds is not None:
        options = options._replace(chaos_s=seconds)
    world = World(seed, keep_story=keep_story)
    cluster = form.make(options, world, mode)
    world.columns = lambda: tuple(map(state_of, cluster.hosts.values()))
    began, worked = perf_counter(), process_time()
    end_us = options.chaos_s * SECOND
    if plan is None:
        plan = draw_plan(seed, options, begin_us=_CALM_US, end_us=end_us)
    cluster.faults.schedule([each for each in plan if mask is None or each.number in mask])
    is_tiered = options.cluster is not None and options.cluster.tier is not None
    with small_slices(options.slice_items), short_waits(is_tiered):
        cluster.begin()
        world.run_until(end_us)
        if not world.stopped:
            cluster.heal()
            cluster.converge()
    return Outcome(
        seed=seed,
        mode=mode,
        form=form,
        options=options,
        digest=world.digest(),
        simulated_s=world.now_us / SECOND,
        wall_s=perf_counter() - began,
        cpu_s=process_time() - worked,
        events=world.events,
        faults=cluster.faults.injected,
        beyond_budget=cluster.faults.beyond_budget,
        committed=cluster.committed,
        exempt=cluster.exempt,
        acknowledged=cluster.acknowledged,
        violations=cluster.checkers.violations,
        story=world.story,
        unclean_elections=cluster.unclean_elections,
    )


def state_of(host: Host) -> str:
    """One node in a few characters: role and epoch, log start, high watermark and log end."""
    process = host.process
    if process is None:
        return "down"
    if not process.is_ready:
        return "starts"
    machine = process.machine
    raft, log = machine.raft, machine.log
    high_watermark = "?" if raft.high_watermark is None else raft.high_watermark
    active = "*" if machine.quorum.is_active else ""
    paused = "z" if process.is_paused else ""
    start = f"{log.start_offset}>" if log.start_offset else ""
    return f"{paused}{_LETTERS[raft.role]}{raft.epoch}{active} {start}{high_watermark}/{log.end_offset}"
