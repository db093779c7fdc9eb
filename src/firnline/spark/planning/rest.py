"""What a read of the tier alone cannot have: records that no broker has copied yet. It is said. SPARK.

The tier does not know what was written since its last catalog, so this names only what can be known: a
partition without a segment; a catalog that says that the log was longer; and, for a tier that `firnline dev`
has made, files of the broker beside it.
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from firnline.base.errors import FirnlineError, some_of
from firnline.base.ids import Uuid, uuid_text
from firnline.spark.brokers.cluster import Brokers
from firnline.spark.log_lines import warn
from firnline.stores.port import DEV_DATA_SUFFIX, ObjectStore
from firnline.stores.registry import path_of
from firnline.tiered.objects.binding import read_owner

_log = logging.getLogger(__name__)
_REMEDY = "`firnline tier flush %s` copies what brokers have; with kafka.bootstrap.servers it is read there"
_SHOWN = 10
# Each plan of a stream would look again.
_looked_at: set[str] = set()


class Rest(NamedTuple):
    """A partition that has more than the tier, as far as that is known.

    end_offset    where the tier ends; None: no segment of it is there
    known_offset  where the log ended at least, exclusive
    """

    topic: str
    partition: int
    end_offset: int | None
    known_offset: int


def warn_of_rest(rests: Iterable[Rest]) -> None:
    """Log one line for each topic and kind."""
    empty: dict[str, list[Rest]] = {}
    behind: dict[str, list[Rest]] = {}
    for one in sorted(rests, key=lambda one: (one.topic, one.partition)):
        kind = empty if one.end_offset is None else behind
        kind.setdefault(one.topic, []).append(one)
    for topic, found in empty.items():
        message = "no segment is in the tier yet, so no record is read"
        warn(_log, message, partitions=_names(found), advice=_REMEDY % topic)
    for topic, found in behind.items():
        count = sum(one.known_offset - (one.end_offset or 0) for one in found)
        warn(
            _log, "the tier lacks the newest records, and they are not read",
            partitions=_names(found), at_least=count, advice=_REMEDY % topic,
        )  # fmt: skip


def warn_of_foreign(store: ObjectStore, tier_uri: str, brokers: Brokers) -> None:
    """Log it if what lies at `tier_uri` is no tier of the cluster, so that brokers give all of history.

    Costs a request to the store and one to a broker, the first time in a process.
    """
    if tier_uri in _looked_at:
        return
    _looked_at.add(tier_uri)
    try:
        owner, cluster_id = read_owner(store), brokers.cluster_id()
    except FirnlineError:  # whoever may not read that object may still read the records
        return
    if owner != cluster_id:
        warn(
            _log, "tier.uri has no tier of this cluster, so the brokers give all records", uri=tier_uri,
            tier_of=owner or "none", cluster=cluster_id,
            advice="that of the brokers is rsm.config.uri, or --tier of `firnline dev`",
        )  # fmt: skip


def _names(found: Sequence[Rest]) -> str:
    return some_of([f"{one.topic}-{one.partition}" for one in found], _SHOWN)


def dev_data_of(tier_uri: str) -> Path | None:
    """Return the directory that `firnline dev` keeps beside its tier; None if there is none."""
    try:
        tier = path_of(tier_uri)
        data = Path("" if tier is None else tier + DEV_DATA_SUFFIX)
        return data if tier is not None and data.is_dir() else None
    except (OSError, FirnlineError):
        return None


def end_on_disk(data: Path, topic_id: Uuid, topic: str, partition: int) -> int | None:
    """Return where the log of a partition ends at least, by the files of `firnline dev`: `dev_data_of`.

    None where there are none. Only names and sizes are looked at, so it costs a listing.
    """
    ends: list[int] = []
    try:
        for place in (data, *data.glob("node-*/data")):
            log = place / f"{topic}-{partition}"
            if log.is_dir() and uuid_text(topic_id) in (log / "partition.metadata").read_text():
                segments = list(log.glob("*.log"))
                ends += [int(each.stem) + (each.stat().st_size > 0) for each in segments]
    except (OSError, ValueError):
        return None  # another user's, or files that go while we look
    return max(ends, default=None)
