"""The options of a seed: the cluster's shape, its settings, its network and disks, its faults. SIM.

Swarm testing: every seed draws its own subset of faults and its own sizes. So some runs have only tiny
segments, others only power cuts. Source: reliability (c), 'Swarm'.
"""

from typing import NamedTuple

from firnline.sim.cluster.shape import Shape
from firnline.sim.world import MS, Chance

KINDS = (
    "kill",
    "power",
    "power-all",
    "stop",
    "storm",
    "pause",
    "cut",
    "isolate",
    "split",
    "clog",
    "reset",
    "slow-link",
    "slow-disk",
    "bad-disk",
    "clock-jump",
    "clock-drift",
    "wipe",
)


# Faults that need a second node.
_OF_TWO = ("cut", "isolate", "split", "clog", "reset", "slow-link", "wipe")


class Options(NamedTuple):
    """Everything that is drawn once per seed. Times in microseconds where they end in `_us`."""

    voters: int
    observers: int
    chaos_s: int
    fault_kinds: tuple[str, ...]
    fault_gap_us: tuple[int, int]  # between two faults, lowest and highest
    # The cost of a node's step.
    read_us_per_kib: int
    # The network.
    delay_us: int
    jitter_us: int
    tail_percent: int  # of messages that take twenty times as long
    is_encoded: bool
    fetch_version_max: int  # where messages are encoded: as an older release would
    quorum_version_max: int
    socket_bytes: (
        int  # of an answer's records that a socket takes at once; the rest waits in its files
    )
    # Machines.
    flush_us: tuple[int, int]
    drift_ppm_max: int
    wall_offset_s_max: int
    # Settings of the node.
    election_timeout_ms: int
    fetch_timeout_ms: int
    idle_interval_ms: int
    segment_bytes: int
    delete_delay_ms: int
    fetch_max_bytes: int
    fetch_snapshot_max_bytes: int
    snapshot_bytes: int  # metadata.log.max.record.bytes.between.snapshots
    snapshot_interval_ms: int
    retention_bytes: int
    retention_ms: int
    start_offset_lag_ms: int
    min_changed_percent: int  # metadata.snapshot.min.changed_records.ratio, of a hundred
    cleaning_interval_ms: int
    recompresses: bool  # leaders store another codec than producers send
    # The workload.
    operations_per_s: int
    topics_max: int
    # Further faults, each from its own random stream.
    late_kinds: tuple[str, ...] = ()
    late_gap_us: tuple[int, int] = (2_000 * MS, 15_000 * MS)
    # Slice sizes of tasks that run in slices; 0: as in production.
    slice_items: int = 0
    # How often, in percent, a read that must not wait finds its pages cold.
    cold_percent: int = 0
    # For a whole cluster, the observers are brokers. None: only controllers, and brokers that observe.
    cluster: Shape | None = None

    def step_us(self, read_bytes: int) -> int:
        """How long a step with so many bytes read takes; below a millisecond it does not matter."""
        taken_us = read_bytes * self.read_us_per_kib // 1024
        return taken_us if taken_us >= MS else 0

    @property
    def voter_ids(self) -> tuple[int, ...]:
        return tuple(range(1, self.voters + 1))

    @property
    def observer_ids(self) -> tuple[int, ...]:
        return tuple(range(self.voters + 1, self.voters + self.observers + 1))

    @property
    def node_ids(self) -> tuple[int, ...]:
        return self.voter_ids + self.observer_ids


def draw_options(seed: int) -> Options:
    """Return the options of a seed."""
    chance, versions = Chance(seed, "options"), Chance(seed, "versions")
    voters = chance.pick((1, 3, 3, 3, 3, 5, 5))
    observers = chance.between(0, 3)
    election_timeout_ms = chance.pick((300, 500, 1000, 1000))
    return Options(
        voters=voters,
        observers=observers,
        chaos_s=chance.between(55, 95),
        fault_kinds=draw_kinds(chance, voters + observers) + more_kinds(seed, "stall", "rot"),
        fault_gap_us=chance.pick(
            ((200 * MS, 2000 * MS), (500 * MS, 5000 * MS), (2000 * MS, 8000 * MS))
        ),
        read_us_per_kib=Chance(seed, "cost").pick((0, 20, 200)),
        delay_us=chance.spread(50, 3_000),
        jitter_us=chance.spread(50, 10_000),
        tail_percent=chance.pick((0, 0, 1, 3)),
        is_encoded=chance.below(8) == 0,
        fetch_version_max=versions.pick((13, 14, 16, 17, 18, 18)),
        quorum_version_max=versions.pick((0, 1, 2, 2)),
        socket_bytes=Chance(seed, "socket").pick((0, 0, 4_096, 65_536)),
        flush_us=chance.pick(((100, 1_000), (500, 8_000), (2_000, 40_000))),
        drift_ppm_max=chance.pick((0, 200, 5_000)),
        wall_offset_s_max=chance.pick((0, 1, 100)),
        election_timeout_ms=election_timeout_ms,
        # A Fetch may wait for half a second: with a shorter timeout, followers of an idle leader think it is
        # dead.
        fetch_timeout_ms=max(800, election_timeout_ms * chance.pick((1, 2, 2))),
        idle_interval_ms=chance.pick((100, 500, 500)),
        segment_bytes=chance.spread(1_024, 65_536),
        delete_delay_ms=chance.pick((0, 500, 5_000, 60_000)),
        fetch_max_bytes=chance.pick((1, 500, 4_096, 1_048_576)),
        fetch_snapshot_max_bytes=chance.pick((64, 333, 4_096, 1_048_576)),
        snapshot_bytes=chance.spread(4_000, 100_000),
        snapshot_interval_ms=chance.pick((0, 2_000, 3_600_000)),
        retention_bytes=chance.spread(8_000, 300_000),
        retention_ms=chance.pick((5_000, 604_800_000)),
        start_offset_lag_ms=chance.pick((0, 0, 5_000, 60_000)),
        min_changed_percent=Chance(seed, "ratio").pick((0, 0, 10, 50, 100)),
        cleaning_interval_ms=chance.pick((500, 2_000, 10_000)),
        recompresses=Chance(seed, "codec").below(8) == 0,
        operations_per_s=chance.between(17, 28),
        topics_max=chance.between(10, 60),
    )


def draw_kinds(chance: Chance, nodes: int) -> tuple[str, ...]:
    """A third of the seeds has few kinds of faults, a third about half of them, a third all."""
    percent = chance.pick((20, 50, 100))
    known = tuple(kind for kind in KINDS if nodes > 1 or kind not in _OF_TWO)
    found = tuple(kind for kind in known if chance.happens(percent))
    return found or (chance.pick(known),)


def more_kinds(seed: int, *kinds: str) -> tuple[str, ...]:
    """Kinds that one seed in six also has, each from its own random stream: no other draw changes."""
    return tuple(kind for kind in kinds if Chance(seed, "kind", kind).below(6) == 0)
