"""Draws what one seed of a whole cluster is; says which of its nodes are brokers, and where they log. SIM.

Source: reliability (c), 'Swarm'.
"""

from firnline.metadata.features import METADATA_VERSION_DEFAULT, METADATA_VERSION_MIN
from firnline.sim.cluster.profiles import bend
from firnline.sim.cluster.shape import BAD_DIRECTORY, NEVER, Shape, TopicShape
from firnline.sim.options import Options, draw_kinds, draw_options, more_kinds
from firnline.sim.quorum_node import DATA
from firnline.sim.tier import profiles as tier
from firnline.sim.world import MS, Chance

_LATE = ("rot-log", BAD_DIRECTORY)
# Only seeds with several directories are asked.
_LATE_ONE_IN = {BAD_DIRECTORY: 2}
_RACES = ("stall", "late-answer", "late-copy")


def broker_ids(options: Options) -> tuple[int, ...]:
    """The nodes that are brokers."""
    assert options.cluster is not None
    return options.node_ids if options.cluster.is_combined else options.observer_ids


def draw_cluster(seed: int, profile: str | None = None) -> Options:
    """Return the options of a seed of a whole cluster, bent to a profile of `profiles` where one is named."""
    chance = Chance(seed, "cluster")
    base = draw_options(seed)
    voters = chance.pick((1, 3, 3, 3))
    brokers = chance.pick((1, 2, 3, 3, 3, 3, 4, 5))
    is_combined = chance.below(4) == 0
    if is_combined:
        brokers = max(brokers, voters)
    groups = Chance(seed, "groups")
    session_timeout_ms = chance.pick((2_000, 3_000, 6_000))
    lag_max_ms = chance.pick((1_000, 2_000, 6_000))
    shape = Shape(
        is_combined=is_combined,
        topics=_topics(chance, brokers),
        segment_bytes=chance.spread(1_024, 65_536),
        session_timeout_ms=session_timeout_ms,
        heartbeat_ms=session_timeout_ms // chance.pick((4, 8)),
        lag_max_ms=lag_max_ms,
        fetch_wait_ms=min(500, lag_max_ms // 2),
        backoff_ms=chance.pick((100, 500, 1_000)),
        partition_fetch_bytes=chance.pick((1, 2_000, 1_048_576)),
        flush_checkpoint_ms=chance.pick((1_000, 10_000, 60_000)),
        is_balanced=chance.happens(50),
        producers=2,
        batch_records=chance.between(30, 50),
        batch_gap_ms=chance.between(180, 300),
        plain_percent=chance.pick((0, 30, 60)),
        acks_one_percent=chance.pick((0, 30)),
        is_even=Chance(seed, "even").happens(50),
        in_flight=Chance(seed, "in flight").pick((1, 1, 2, 5)),
        consumers=1,
        admin_gap_ms=chance.pick((1_000, 3_000, 8_000)),
        members=groups.pick((0, 0, 2, 3)),
        commit_gap_ms=groups.pick((100, 300, 1_000)),
        commit_bytes=groups.pick((0, 0, 500)),
        min_isr=min(2, (brokers + 1) // 2),
    )
    options = base._replace(
        voters=voters,
        observers=brokers - voters if is_combined else brokers,
        cluster=shape,
        fault_kinds=draw_kinds(chance, voters + brokers) + more_kinds(seed, *_RACES),
        fault_gap_us=chance.pick(((300 * MS, 3_000 * MS), (1_000 * MS, 6_000 * MS))),
        snapshot_bytes=chance.spread(8_000, 200_000),
        fetch_max_bytes=chance.pick((4_096, 1_048_576)),
        fetch_snapshot_max_bytes=chance.pick((4_096, 1_048_576)),
        segment_bytes=chance.spread(8_192, 262_144),
        idle_interval_ms=500,
    )
    if profile in tier.PROFILES:
        return tier.bend(seed, _with_late_draws(seed, options), profile)
    return _with_late_draws(seed, options) if profile is None else bend(options, profile)


def _with_late_draws(seed: int, options: Options) -> Options:
    """What was added later, each by chance of its own: seeds of a profile do without."""
    shape = options.cluster
    assert shape is not None
    chance = Chance(seed, "compacted")
    topics = tuple(
        topic._replace(is_compacted=chance.below(6) == 0) if topic.unclean == NEVER else topic
        for topic in shape.topics
    )
    directories = Chance(seed, "directories").pick((1, 1, 2, 3))
    shape = shape._replace(topics=topics, levels=draw_levels(seed), directories=directories)
    kinds = _LATE if directories > 1 else tuple(each for each in _LATE if each != BAD_DIRECTORY)
    return options._replace(
        late_kinds=late_kinds(seed, kinds),
        slice_items=Chance(seed, "slices").pick((0, 0, 0, 1, 2)),
        cluster=shape,
    )


def draw_levels(seed: int) -> tuple[int, ...]:
    """Half of the seeds begin with the newest metadata.version, the others with one of any release before."""
    chance = Chance(seed, "metadata.version")
    found = [METADATA_VERSION_DEFAULT]
    if chance.below(2):
        for _ in range(chance.between(1, 4)):
            found.append(chance.between(METADATA_VERSION_MIN, METADATA_VERSION_DEFAULT))
    return tuple(sorted(set(found)))


def late_kinds(seed: int, kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Kinds that a seed has besides, in a plan of their own: one in four, or as `_LATE_ONE_IN` says."""
    return tuple(
        kind for kind in kinds if Chance(seed, "late", kind).below(_LATE_ONE_IN.get(kind, 4)) == 0
    )


def log_directories(options: Options) -> tuple[str, ...]:
    """Where brokers have logs of partitions; the first has the metadata, too."""
    assert options.cluster is not None
    more = (f"{DATA}{number}" for number in range(2, options.cluster.directories + 1))
    return (DATA, *more)


def _topics(chance: Chance, brokers: int) -> tuple[TopicShape, ...]:
    """One to six partitions in one to three topics."""
    left = chance.between(1, 6)
    found: list[TopicShape] = []
    while left and len(found) < 3:
        partitions = chance.between(1, left) if len(found) < 2 else left
        factor = min(brokers, chance.pick((1, 2, 3, 3, 3)))
        min_isr = min(factor, chance.pick((1, 2, 2)))
        found.append(TopicShape(f"t{len(found)}", partitions, factor, min_isr))
        left -= partitions
    return tuple(found)
