"""Prints docs/reference/metric-families.md: every family that a node prints. WORLD.

    python -m firnline.server.broker_metrics.reference > docs/reference/metric-families.md

The families are made as for a scrape, of nodes where everything is zero, so that none can be forgotten.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from types import UnionType
from typing import Any, get_origin, get_type_hints

from prometheus_client import GCCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import CollectorRegistry

from firnline.metadata.partition_counts import Latencies
from firnline.server.broker_metrics.node import ControllerFacts, NodeFacts
from firnline.server.broker_metrics.requests import RequestFamilies
from firnline.server.broker_metrics.traffic import TrafficFacts
from firnline.server.compaction_metrics import CompactionFacts
from firnline.server.metrics import Snapshot, families
from firnline.server.quorum_metrics import Histogram, QuorumFamilies
from firnline.server.tier_metrics import TierFacts

_INTRO = """\
# Families of metrics

Every family that a node prints at `/metrics`, generated from the code by `make docs`.
[metrics.md](metrics.md) explains how they are counted, what differs from Kafka, and which panels of
dashboards for Kafka stay blank. `on` is where a family is printed: on `all` nodes, on every `broker`, on one
with a `tier`, on every `controller`, or on `only a controller`, which is no broker. A counter has `_total`
behind its name. One that is `unknown` is the twin of a counter.

| family | kind | labels | on | what |
|---|---|---|---|---|
"""


def _zero(kind: Any) -> Any:
    """Return the value of a type that says nothing: 0, an empty table, facts that are all zero."""
    kind = get_origin(kind) or kind
    if kind is UnionType:
        return None
    if kind in (Mapping, Sequence):
        return {} if kind is Mapping else ()
    if issubclass(kind, Enum):
        return next(iter(kind))
    if hasattr(kind, "_fields"):
        hints = get_type_hints(kind)
        return kind(**{name: _zero(hints[name]) for name in kind._fields})
    return kind()


def _nodes() -> dict[str, Snapshot]:
    """Return what a scrape finds of each kind of node."""
    nothing: Snapshot = _zero(Snapshot)
    none = Histogram((0,) * (len(Latencies.BOUNDS_MS) + 1), 0)
    quorum = nothing.quorum._replace(generated_in=none, loaded_in=none)
    nothing = nothing._replace(quorum=quorum)
    voter = nothing._replace(quorum=quorum._replace(is_voter=True))
    broker = {
        "broker": _zero(NodeFacts),
        "traffic": _zero(TrafficFacts),
        "compaction": _zero(CompactionFacts),
    }
    return {
        "broker": nothing._replace(**broker),
        "controller": voter._replace(controller=_zero(ControllerFacts)),
        "combined": voter._replace(**broker),
        "tier": voter._replace(**broker, tier=_zero(TierFacts)),
    }


def _printed(found: Snapshot) -> Iterator[Metric]:
    registry = CollectorRegistry(auto_describe=False)
    yield from RequestFamilies().families(found.requests, found.loop_requests)
    yield from families(found)
    yield from QuorumFamilies().families(found.quorum)
    yield from ProcessCollector(registry=registry).collect()
    GCCollector(registry=registry)
    yield from registry.collect()


def printed_on() -> dict[str, dict[str, Metric]]:
    """Return the families by name, of a broker, a controller, a node that is both, and one with a tier."""
    return {
        kind: {family.name: family for family in _printed(found)}
        for kind, found in _nodes().items()
    }


def _where(name: str, on: Mapping[str, Mapping[str, Metric]]) -> str:
    kinds = {kind for kind, known in on.items() if name in known}
    if kinds == {"tier"}:
        return "tier"
    if kinds == {"controller"}:
        return "only a controller"
    if "broker" not in kinds:
        return "controller"
    return "all" if "controller" in kinds else "broker"


def page() -> str:
    """Return the page."""
    on = printed_on()
    every = {name: family for known in on.values() for name, family in known.items()}
    rows = []
    for name, family in sorted(every.items()):
        labels = getattr(family, "_labelnames", ()) or sorted(
            {label for sample in family.samples for label in sample.labels} - {"le", "quantile"}
        )
        shown = ", ".join(f"`{label}`" for label in labels)
        words = " ".join(family.documentation.split())
        rows.append(f"| `{name}` | {family.type} | {shown} | {_where(name, on)} | {words} |\n")
    return _INTRO + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(page())
