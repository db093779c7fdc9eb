"""Draws the tier of a simulated cluster: what is tiered, how often tasks run, how the store fails. SIM.

Source: reliability (b), rel-T1 to rel-T21.
"""

from firnline.sim.cluster.shape import ALWAYS, BAD_DIRECTORY, TierShape, TopicShape
from firnline.sim.options import Options
from firnline.sim.world import MS, Chance

TIERED, TIERED_BY_SIZE = "tiered", "tiered-by-size"
TIERED_EARLY, TIERED_UNCLEAN = "tiered-early", "tiered-unclean"
ROT = ("rot-log", "store-rot")
STORE_KINDS = (
    *("store-slow", "store-errors", "store-hangs", "store-down", "store-damage"),
    *("store-keeps", "store-kill"),
)


def with_tier(
    seed: int,
    options: Options,
    *,
    is_unclean: bool = False,
    is_early: bool = False,
    may_roll_idle: bool = False,
) -> Options:
    """Return the options of a cluster with a tier whose topics are tiered, most of them.

    is_early       as before bits flipped, in one of four seeds, where no unclean elections are allowed;
                   in one of twelve a topic is refused then, because it keeps more here than in all
    may_roll_idle  in one of three seeds segments are closed after a time, too, and not by size alone
    """
    chance, shape = Chance(seed, "tier"), options.cluster
    assert shape is not None
    topics = tuple(_tiered(topic, chance, is_unclean=is_unclean) for topic in shape.topics)
    kept = [] if is_early else [each.retention_bytes for each in topics if each.retention_bytes > 0]
    shape = shape._replace(
        topics=topics,
        segment_bytes=chance.spread(2_048, 16_384),
        consumers=2,
        flush_checkpoint_ms=chance.pick((500, 1_000, 5_000)),
        tier=TierShape(
            metadata_partitions=chance.between(1, 3),
            task_interval_ms=chance.pick((500, 1_000, 2_000)),
            remover_interval_ms=chance.pick((2_000, 5_000)),
            local_retention_bytes=min(chance.pick((1, 1, 8_000, 60_000)), *kept, 1 << 60),
            # A stream of its own: drawn later than the rest, it must not change that.
            delete_delay_ms=Chance(seed, "tier delay").pick((0, 0, 0, 1_000, 4_000)),
            roll_idle_ms=Chance(seed, "tier idle").pick((0, 0, 0, 0, 500, 2_000))
            if may_roll_idle
            else 0,
        ),
    )
    kinds = tuple(kind for kind in STORE_KINDS if chance.below(3)) or STORE_KINDS[:1]
    late = tuple(kind for kind in options.late_kinds if kind == BAD_DIRECTORY)
    # Bits flip in local files where `draw_cluster` says so, and then in objects, too.
    if not is_early and not is_unclean and ROT[0] in options.late_kinds:
        late += ROT
    fault_kinds = options.fault_kinds
    if is_unclean:
        fault_kinds += ("leave-alone", "leave-alone")
    return options._replace(
        cluster=shape,
        fault_kinds=fault_kinds,
        late_kinds=late + kinds,
        late_gap_us=chance.pick(((500 * MS, 3_000 * MS), (1_000 * MS, 8_000 * MS))),
    )


def _tiered(topic: TopicShape, chance: Chance, *, is_unclean: bool) -> TopicShape:
    if chance.below(8) == 0:
        return topic._replace(is_compacted=False)
    return topic._replace(
        is_compacted=False,
        is_tiered=True,
        retention_bytes=chance.pick((-1, -1, 30_000, 120_000)),
        unclean=ALWAYS if is_unclean and chance.below(2) else topic.unclean,
    )
