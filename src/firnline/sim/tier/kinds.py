"""The kinds of simulated clusters by name: whole ones, with a tier or without. SIM."""

from functools import partial

from firnline.sim.cluster.draw import draw_cluster
from firnline.sim.cluster.profiles import PROFILES as _WITHOUT_TIER
from firnline.sim.cluster.run import FullCluster
from firnline.sim.run import ClusterKind
from firnline.sim.tier.draw import TIERED
from firnline.sim.tier.profiles import PROFILES as _WITH_TIER
from firnline.sim.tier.run import TieredCluster

PROFILES = (*_WITHOUT_TIER, *_WITH_TIER)


def cluster_kind(profile: str | None = None) -> ClusterKind:
    """Whole clusters; with a profile, faults that test one rule, or a tier."""
    words = "--cluster" if profile is None else f"--cluster --profile {profile}"
    made = TieredCluster if profile in _WITH_TIER else FullCluster
    name = "tiered" if profile in _WITH_TIER else "cluster"
    return ClusterKind(name, words, partial(draw_cluster, profile=profile), made)


CLUSTER = cluster_kind()
TIERED_CLUSTER = cluster_kind(TIERED)
