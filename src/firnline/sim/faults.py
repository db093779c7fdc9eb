"""Faults: drawn before the run, numbered, each with its own random stream, so that any can be left out. SIM.

A plan is a list; carrying it out chooses the victims by the state of the cluster at that time. The budget is
part of the specification: with static voters a wiped voter can vote twice. So a disk is replaced only while
every other voter is up and has caught up, and nothing else fails until the wiped voter has what was committed
then. Source: reliability (c), 'Fault atlas'.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from firnline.metadata.snapshot_file import snapshot_name
from firnline.sim.disk import Keep, Operation
from firnline.sim.history import CommittedMetadata
from firnline.sim.host import Host
from firnline.sim.net import Network
from firnline.sim.options import Options
from firnline.sim.quorum_node import LOG
from firnline.sim.world import MS, SECOND, Chance, World

# How long a wipe waits for a moment within the budget; no other fault begins meanwhile.
_WIPE_PATIENCE_US = 8 * SECOND
_WIPE_LOOK_US = 50 * MS
_OPERATIONS: tuple[Operation, ...] = (
    *("append", "sync", "rename", "sync_dir", "truncate", "read", "open"),
)


class Fault(NamedTuple):
    """One fault of a plan."""

    number: int
    at_us: int
    kind: str


class Injected(NamedTuple):
    """A fault that was carried out: when, and on what."""

    number: int
    at_us: int
    kind: str
    text: str


def draw_plan(seed: int, options: Options, *, begin_us: int, end_us: int) -> list[Fault]:
    """Return the faults of a seed, numbered from 1; faults of later kinds come last."""
    chance = Chance(seed, "faults")
    plan: list[Fault] = []
    at_us = begin_us
    while True:
        at_us += chance.between(*options.fault_gap_us)
        if at_us >= end_us or not options.fault_kinds:
            break
        plan.append(Fault(len(plan) + 1, at_us, chance.pick(options.fault_kinds)))
    return plan + _draw_late(seed, options, len(plan), begin_us, end_us)


def _draw_late(seed: int, options: Options, before: int, begin_us: int, end_us: int) -> list[Fault]:
    """Faults of kinds that were added later, from their own random stream: the others stay as they were."""
    plan: list[Fault] = []
    if not options.late_kinds:
        return plan
    chance = Chance(seed, "late faults")
    at_us = begin_us + chance.between(*options.late_gap_us)
    while at_us < end_us:
        plan.append(Fault(before + len(plan) + 1, at_us, chance.pick(options.late_kinds)))
        at_us += chance.between(*options.late_gap_us)
    return plan


class Faults:
    """Carries out a plan on a cluster. `heal` ends all faults that still last."""

    def __init__(
        self,
        world: World,
        options: Options,
        hosts: dict[int, Host],
        network: Network,
        history: CommittedMetadata,
        *,
        mode: str,
    ) -> None:
        self.injected: list[Injected] = []
        # Which faults went beyond the budget: only in the mode "broken".
        self.beyond_budget: list[Injected] = []
        self._world = world
        self._options = options
        self._hosts = hosts
        self._network = network
        self._history = history
        self._mode = mode
        self._lasting: dict[int, Callable[[], None]] = {}
        self._count = 0
        self._wipe: Fault | None = None
        self._is_over = False
        self._rotten: set[Host] = set()

    def schedule(self, plan: Sequence[Fault]) -> None:
        """Schedule every fault of the plan at its time."""
        for fault in plan:
            self._world.at(fault.at_us, self._begin, fault)

    def heal(self) -> None:
        """End all faults that last, and begin no more."""
        self._is_over = True
        self._wipe = None
        for undo in list(self._lasting.values()):
            undo()
        assert not self._lasting

    # ------------------------------------------------------------------------- carrying out a plan

    def _begin(self, fault: Fault) -> None:
        if self._is_over or self._wipe is not None:
            return
        chance = self._world.chance("fault", fault.number)
        begin: Callable[[Fault, Chance], None] = getattr(self, BEGINNINGS[fault.kind])
        begin(fault, chance)

    def _note(self, fault: Fault, text: str) -> None:
        injected = Injected(fault.number, self._world.now_us, fault.kind, text)
        self.injected.append(injected)
        self._world.note(-1, f"fault {fault.number}: {text}")

    def _last(self, duration_us: int, undo: Callable[[], None]) -> None:
        """Call `undo` after a while, or when everything heals, whichever is first."""
        self._count += 1
        number = self._count

        def end() -> None:
            if self._lasting.pop(number, None) is not None:
                undo()

        self._lasting[number] = end
        self._world.after(duration_us, end)

    # ---- processes

    def _node(self, chance: Chance) -> Host:
        """Choose any node; every other time the leader, where faults hurt most."""
        leaders = [host for host in self._hosts.values() if _leads(host)]
        if leaders and chance.below(2):
            return chance.pick(leaders)
        return chance.pick(list(self._hosts.values()))

    def _keep_down(self, host: Host, duration_us: int) -> None:
        host.wanted_down += 1

        def up() -> None:
            host.wanted_down -= 1
            host.start()

        self._last(duration_us, up)

    def _kill(self, fault: Fault, chance: Chance) -> None:
        host = self._node(chance)
        down_us = chance.spread(1 * MS, 8 * SECOND)
        self._note(fault, f"kill {host.node_id} for {down_us // MS} ms")
        host.kill()
        self._keep_down(host, down_us)

    def _power(self, fault: Fault, chance: Chance) -> None:
        host = self._node(chance)
        down_us = chance.spread(1 * MS, 8 * SECOND)
        self._note(fault, f"{host.node_id} loses power for {down_us // MS} ms")
        self._cut_power(host, chance, keep=chance.pick(("some", "some", "none")))
        self._keep_down(host, down_us)

    def _cut_power(self, host: Host, chance: Chance, keep: Keep = "some") -> None:
        """Cut the power of one machine."""
        host.cut_power(chance, keep=keep)

    def _power_all(self, fault: Fault, chance: Chance) -> None:
        """Cut the power of all nodes at once; some come back late."""
        self._note(fault, "all lose power")
        for host in self._hosts.values():
            self._cut_power(host, chance, keep=chance.pick(("some", "none")))
            self._keep_down(host, chance.spread(10 * MS, 4 * SECOND))

    def _stop(self, fault: Fault, chance: Chance) -> None:
        host = self._node(chance)
        if host.process is None:
            return
        down_us = chance.spread(1 * MS, 4 * SECOND)
        self._note(fault, f"stop {host.node_id} in order for {down_us // MS} ms")

        def stopped() -> None:
            if not self._is_over:
                self._keep_down(host, down_us)
            else:
                host.start()

        host.stop(stopped)

    def _storm(self, fault: Fault, chance: Chance) -> None:
        """Kill one node again and again, soon after each start."""
        host = self._node(chance)
        times = chance.between(2, 6)
        self._note(fault, f"{host.node_id} dies {times} times in a row")
        self._storm_turn(host, times, chance)

    def _storm_turn(self, host: Host, times: int, chance: Chance) -> None:
        if self._is_over or self._wipe is not None:
            return
        if chance.below(2):
            host.kill()
        else:
            self._cut_power(host, chance)
        self._keep_down(host, chance.spread(1 * MS, 300 * MS))
        if times > 1:
            delay_us = chance.spread(5 * MS, 2 * SECOND)
            self._world.after(delay_us, self._storm_turn, host, times - 1, chance)

    def _pause(self, fault: Fault, chance: Chance) -> None:
        host = self._node(chance)
        if host.process is None:
            return
        pause_us = chance.spread(20 * MS, 12 * SECOND)
        self._note(fault, f"pause {host.node_id} for {pause_us // MS} ms")
        host.pause()
        self._last(pause_us, host.resume)

    # ---- network

    def _cut_links(self, links: list[tuple[int, int]], duration_us: int) -> None:
        for link in links:
            self._network.cut(*link)

        def repair() -> None:
            for link in links:
                self._network.repair(*link)

        self._last(duration_us, repair)

    def _pair(self, chance: Chance) -> tuple[int, int] | None:
        others = list(self._hosts)
        if len(others) < 2:
            return None
        first = self._node(chance).node_id
        others.remove(first)
        second = chance.pick(others)
        return (first, second) if chance.below(2) else (second, first)

    def _cut(self, fault: Fault, chance: Chance) -> None:
        pair = self._pair(chance)
        if pair is None:
            return
        links = [pair] if chance.below(2) else [pair, (pair[1], pair[0])]
        duration_us = chance.spread(50 * MS, 10 * SECOND)
        arrow = "->" if len(links) == 1 else "<->"
        self._note(fault, f"cut {pair[0]} {arrow} {pair[1]} for {duration_us // MS} ms")
        self._cut_links(links, duration_us)

    def _isolate(self, fault: Fault, chance: Chance) -> None:
        """Isolate one node: it hears nobody, or nobody hears it, or both."""
        one = self._node(chance).node_id
        way = chance.pick(("hears nobody", "is not heard", "is cut off", "is cut off"))
        links = []
        for other in self._hosts:
            if other != one:
                links += [(one, other)] if way != "hears nobody" else []
                links += [(other, one)] if way != "is not heard" else []
        duration_us = chance.spread(100 * MS, 10 * SECOND)
        self._note(fault, f"{one} {way} for {duration_us // MS} ms")
        self._cut_links(links, duration_us)

    def _split(self, fault: Fault, chance: Chance) -> None:
        """Split the nodes into two sides that do not hear each other."""
        side = {node_id: chance.below(2) for node_id in self._hosts}
        links = [(a, b) for a in self._hosts for b in self._hosts if side[a] != side[b]]
        if not links:
            return
        duration_us = chance.spread(100 * MS, 10 * SECOND)
        here = ",".join(str(node_id) for node_id in side if side[node_id])
        self._note(fault, f"split {here} from the others for {duration_us // MS} ms")
        self._cut_links(links, duration_us)

    def _clog(self, fault: Fault, chance: Chance) -> None:
        """Stall everything that is sent to one node for a moment, then deliver it."""
        one = self._node(chance).node_id
        links = [(other, one) for other in self._hosts if other != one]
        duration_us = chance.spread(20 * MS, 1 * SECOND)
        self._note(fault, f"what is sent to {one} stalls for {duration_us // MS} ms")
        self._cut_links(links, duration_us)

    def _reset(self, fault: Fault, chance: Chance) -> None:
        pair = self._pair(chance)
        if pair is not None:
            self._note(fault, f"reset {pair[0]} -> {pair[1]}")
            self._network.reset(*pair)

    def _slow_link(self, fault: Fault, chance: Chance) -> None:
        pair = self._pair(chance)
        if pair is None:
            return
        extra_us = chance.spread(5 * MS, 900 * MS)
        duration_us = chance.spread(500 * MS, 10 * SECOND)
        self._note(fault, f"{pair[0]} -> {pair[1]} is {extra_us // MS} ms slower")
        self._network.slow(*pair, extra_us)
        self._last(duration_us, lambda: self._network.slow(*pair, -extra_us))

    def _stall(self, links: Sequence[tuple[int, int]], duration_us: int) -> None:
        """Hold what is sent over the present connections; new connections are not affected."""
        if self._is_over:
            return
        stalled = [self._network.stall(*link) for link in links]

        def release() -> None:
            for each in stalled:
                self._network.release(each)

        self._last(duration_us, release)

    def _stall_one(self, fault: Fault, chance: Chance) -> None:
        """Stall the connections of one node to another, as a faulty router would, and release them later."""
        pair = self._pair(chance)
        if pair is None:
            return
        duration_us = chance.spread(1 * SECOND, 60 * SECOND)
        self._note(fault, f"connections {pair[0]} -> {pair[1]} stall for {duration_us // MS} ms")
        self._stall([pair], duration_us)

    # ---- disks and clocks

    def _slow_disk(self, fault: Fault, chance: Chance) -> None:
        host = self._node(chance)
        extra_us = chance.spread(20 * MS, 3 * SECOND)
        self._note(fault, f"syncs of {host.node_id} take {extra_us // MS} ms more")
        host.slow_flush_us += extra_us

        def undo() -> None:
            host.slow_flush_us -= extra_us

        self._last(chance.spread(500 * MS, 10 * SECOND), undo)

    def _bad_disk(self, fault: Fault, chance: Chance) -> None:
        """The device fails once: the node stops, and comes back as after a power cut."""
        host = self._node(chance)
        operation = chance.pick(_OPERATIONS)
        error = "ENOSPC" if operation == "append" and chance.below(2) else "EIO"
        self._note(fault, f"a {operation} of {host.node_id} fails with {error}")
        host.fs.fail(operation, "/data", error, skip=chance.below(4))
        host.has_bad_disk = True

    def _clock_jump(self, fault: Fault, chance: Chance) -> None:
        host = self._node(chance)
        jump_s = chance.pick((-7200, -60, -2, 2, 60, 7200, 432_000))
        self._note(fault, f"the wall clock of {host.node_id} jumps by {jump_s} s")
        host.clock.offset_s += jump_s

    def _clock_drift(self, fault: Fault, chance: Chance) -> None:
        host = self._node(chance)
        rate_ppm = chance.between(-20_000, 20_000)
        self._note(fault, f"the clock of {host.node_id} gains {rate_ppm} us a second")
        host.clock.drift(rate_ppm)

    # ---- disks that are replaced

    def _wipe_disk(self, fault: Fault, chance: Chance) -> None:
        if self._mode == "broken":
            self._wipe_beyond_budget(fault, chance)
            return
        host = chance.pick(self._wipeable())
        if host.node_id not in self._options.voter_ids:
            self._note(fault, f"the disk of {host.node_id}, an observer, is replaced")
            self._replace(host, chance.spread(1 * MS, 2 * SECOND))
        elif self._options.voters > 1:
            self._wipe = fault
            self._wait_for_calm(fault, chance, host, self._world.now_us + _WIPE_PATIENCE_US)

    def _wipeable(self) -> list[Host]:
        return list(self._hosts.values())

    def _wait_for_calm(self, fault: Fault, chance: Chance, host: Host, until_us: int) -> None:
        if self._is_over or self._wipe is not fault:
            return
        if self._world.now_us > until_us:
            self._wipe = None
        elif self._is_calm(host):
            committed = self._history.end_offset
            self._note(fault, f"the disk of {host.node_id} is replaced; {committed} is committed")
            self._replace(host, chance.spread(1 * MS, 1 * SECOND))
            self._wait_for_wiped(fault, host, committed)
        else:
            self._world.after(_WIPE_LOOK_US, self._wait_for_calm, fault, chance, host, until_us)

    def _is_calm(self, wiped: Host) -> bool:
        """Whether every other voter runs and has everything, nothing is undecided, and nothing else fails."""
        if self._lasting:
            return False
        committed = self._history.end_offset
        for node_id in self._options.voter_ids:
            process = self._hosts[node_id].process
            if process is None or not process.is_ready or process.is_paused:
                return False
            machine = process.machine
            # What the wiped one acknowledged and is not committed yet would count as on its disk.
            if machine.log.end_offset != committed or machine.raft.leader_id < 0:
                return False
            # A deposed leader may have as many records, but different ones.
            if machine.log.last_epoch != self._history.epoch_before(committed):
                return False
            if self._hosts[node_id] is not wiped and machine.log.synced_offset < committed:
                return False
        return True

    def _wait_for_wiped(self, fault: Fault, host: Host, committed: int) -> None:
        if self._wipe is not fault:
            return
        process = host.process
        machine = process.machine if process is not None and process.is_ready else None
        if machine is not None and (machine.raft.high_watermark or 0) >= committed:
            self._wipe = None
        else:
            self._world.after(_WIPE_LOOK_US, self._wait_for_wiped, fault, host, committed)

    def _replace(self, host: Host, down_us: int) -> None:
        host.kill()
        host.is_powered = False
        host.replace_disk()
        self._keep_down(host, down_us)

    # ---- bits that flip

    def _rot(self, fault: Fault, chance: Chance) -> None:
        """Flip a bit of a snapshot when its node starts again; only of one voter at a time."""
        host = self._node(chance)
        process = host.process
        if process is None or not process.is_ready or not self._may_rot(host):
            return
        stored = [row[0] for row in process.machine.log.snapshot_sizes()]
        if not stored:
            return
        host.kill()
        # If the log before it is gone, the newest snapshot is the one that matters.
        for snapshot_id in {stored[-1], chance.pick(stored)}:
            inode = host.fs.files(LOG)[snapshot_name(snapshot_id)]
            at, bit = chance.below(len(inode.durable)), chance.below(8)
            for data in (inode.data, inode.durable):
                data[at] ^= 1 << bit
            self._note(fault, f"byte {at} of the snapshot {snapshot_id} of {host.node_id} flips")
        self._keep_down(host, chance.spread(1 * MS, 4 * SECOND))

    def _may_rot(self, host: Host) -> bool:
        """Whether every other voter with a flipped bit has fetched again what it lost."""
        if host.node_id not in self._options.voter_ids:
            return True
        others = [self._hosts[n] for n in self._options.voter_ids if n != host.node_id]
        if not others or any(other in self._rotten and not _has_all(other) for other in others):
            return False
        self._rotten.add(host)
        return True

    def _wipe_beyond_budget(self, fault: Fault, chance: Chance) -> None:
        """A majority of the voters, with the leader, loses its disks; the others come back late."""
        voters = [self._hosts[node_id] for node_id in self._options.voter_ids]
        voters.sort(key=lambda host: not _leads(host))
        lost = voters[: len(voters) // 2 + 1]
        names = ", ".join(str(host.node_id) for host in lost)
        self._note(fault, f"the disks of {names} are replaced, a majority: beyond the budget")
        self.beyond_budget.append(self.injected[-1])
        for host in lost:
            self._replace(host, chance.spread(1 * MS, 100 * MS))
        for host in voters[len(lost) :]:
            host.kill()
            self._keep_down(host, 10 * self._options.election_timeout_ms * MS)


def _leads(host: Host) -> bool:
    process = host.process
    return process is not None and process.is_ready and process.machine.quorum.is_leader


def _has_all(host: Host) -> bool:
    process = host.process
    return process is not None and process.is_ready and process.machine.log.forgotten is None


# By name, so that other clusters may override them.
BEGINNINGS: dict[str, str] = {
    "kill": "_kill",
    "power": "_power",
    "power-all": "_power_all",
    "stop": "_stop",
    "storm": "_storm",
    "pause": "_pause",
    "cut": "_cut",
    "isolate": "_isolate",
    "split": "_split",
    "clog": "_clog",
    "reset": "_reset",
    "slow-link": "_slow_link",
    "slow-disk": "_slow_disk",
    "bad-disk": "_bad_disk",
    "clock-jump": "_clock_jump",
    "clock-drift": "_clock_drift",
    "wipe": "_wipe_disk",
    "rot": "_rot",
    # Of whole clusters.
    "slow-to-controllers": "_slow_to_controllers",
    "slow-from-controllers": "_slow_from_controllers",
    "deaf-to-controllers": "_deaf_to_controllers",
    "elect": "_elect",
    "leave-alone": "_leave_alone",
    "rejoin": "_rejoin",
    "late-answer": "_late_answer",
    "late-copy": "_late_copy",
    "stall": "_stall_one",
    "rot-log": "_rot_log",
    "bad-directory": "_bad_directory",
    # Of clusters with a tier.
    "store-slow": "_store_slow",
    "store-errors": "_store_errors",
    "store-hangs": "_store_hangs",
    "store-down": "_store_down",
    "store-damage": "_store_damage",
    "store-rot": "_store_rot",
    "store-keeps": "_store_keeps",
    "store-long": "_store_long",
    "store-hangs-one": "_store_hangs_one",
    "store-refuses": "_store_refuses",
    "store-restart": "_store_restart",
    "store-kill": "_store_kill",
}
