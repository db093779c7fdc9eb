"""Profiles of clusters with a tier: any of them, and options for runs that test one rule of the tier. SIM.

Source: reliability (b), rel-T6, T8, T9.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from firnline.sim.cluster.profiles import replicated
from firnline.sim.cluster.shape import ALWAYS, TopicShape
from firnline.sim.options import Options
from firnline.sim.tier.draw import (
    TIERED,
    TIERED_BY_SIZE,
    TIERED_EARLY,
    TIERED_UNCLEAN,
    with_tier,
)
from firnline.sim.world import MS


def _busy(
    seed: int, options: Options, topics: tuple[TopicShape, ...], tier: dict[str, int], **more: Any
) -> Options:
    """Three brokers that copy a small segment every moment; all topics are tiered, and read again often."""
    bent = with_tier(seed, replicated(options, **{"batch_gap_ms": 80, **more}))
    shape = bent.cluster
    assert shape is not None
    assert shape.tier is not None
    values = {
        "metadata_partitions": 1,
        "task_interval_ms": 500,
        "local_retention_bytes": 1,
        "delete_delay_ms": 0,
        **tier,
    }
    shape = shape._replace(
        topics=tuple(topic._replace(is_tiered=True) for topic in topics),
        segment_bytes=2_048,
        consumers=4,
        members=0,
        tier=shape.tier._replace(**values),
    )
    return bent._replace(cluster=shape, slice_items=0)


def _t6(seed: int, options: Options) -> Options:
    """Copies end after others began to delete them: topics go, and clocks disagree by minutes."""
    topics = (TopicShape("t0", 2, 3, 2), TopicShape("t1", 1, 3, 1))
    bent = _busy(seed, options, topics, {}, admin_gap_ms=250)
    return bent._replace(
        fault_kinds=("elect", "elect", "slow-link"),
        fault_gap_us=(1_000 * MS, 4_000 * MS),
        late_kinds=("store-long",),
        late_gap_us=(500 * MS, 4_000 * MS),
        wall_offset_s_max=100,
    )


def _t8(seed: int, options: Options) -> Options:
    """Deletions fail, and leaders start again that do not know up to where records have expired."""
    topics = (
        TopicShape("t0", 2, 1, 1, retention_bytes=40_000),
        TopicShape("t1", 2, 3, 2, retention_bytes=40_000),
    )
    tier = {"restart_gap_ms": 300}
    bent = _busy(seed, options, topics, tier, admin_gap_ms=4_000, batch_gap_ms=200)
    assert bent.cluster is not None
    return bent._replace(
        fault_kinds=("elect",),
        fault_gap_us=(2_000 * MS, 6_000 * MS),
        late_kinds=("store-restart", "store-restart", "store-hangs-one"),
        late_gap_us=(1_000 * MS, 4_000 * MS),
        wall_offset_s_max=0,
        cluster=bent.cluster._replace(flush_checkpoint_ms=60_000),
    )


def _t9(seed: int, options: Options) -> Options:
    """Leaders copy what nobody else has, and then others lead without it: segments diverge in the middle."""
    topics = (TopicShape("t0", 2, 3, 1, ALWAYS), TopicShape("t1", 1, 3, 1, ALWAYS))
    tier = {"metadata_partitions": 3, "metadata_replicas": 1}
    bent = _busy(seed, options, topics, tier, plain_percent=70, admin_gap_ms=60_000)
    return bent._replace(
        fault_kinds=("leave-alone",),
        fault_gap_us=(2_000 * MS, 8_000 * MS),
        late_kinds=(),
    )


def _rot(seed: int, options: Options) -> Options:
    """Bits flip in local files and in objects of the tier, while segments are copied and leaders change."""
    topics = (TopicShape("t0", 2, 3, 2), TopicShape("t1", 2, 3, 2, retention_bytes=60_000))
    tier = {"local_retention_bytes": 8_000, "restart_gap_ms": 1_000, "remover_interval_ms": 2_000}
    bent = _busy(seed, options, topics, tier, batch_gap_ms=60, flush_checkpoint_ms=500)
    return bent._replace(
        fault_kinds=("kill", "elect", "elect", "stop", "slow-link", "cut", "wipe"),
        fault_gap_us=(1_000 * MS, 4_000 * MS),
        late_kinds=(
            *(*("rot-log",) * 4, *("store-rot",) * 3),
            *("store-errors", "store-damage", "store-down", "store-kill"),
        ),
        late_gap_us=(500 * MS, 2_000 * MS),
    )


PROFILES: dict[str, Callable[[int, Options], Options]] = {
    TIERED: partial(with_tier, may_roll_idle=True),
    TIERED_BY_SIZE: with_tier,
    TIERED_EARLY: partial(with_tier, is_early=True),
    TIERED_UNCLEAN: partial(with_tier, is_unclean=True),
    "tiered-t6": _t6,
    "tiered-t8": _t8,
    "tiered-t9": _t9,
    "tiered-rot": _rot,
}


def bend(seed: int, options: Options, profile: str) -> Options:
    """Return the options changed by the profile."""
    return PROFILES[profile](seed, options)
