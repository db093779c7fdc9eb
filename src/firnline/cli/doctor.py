"""`firnline doctor`: what is wrong with a cluster, and old damage that nobody looks for every day. WORLD.

Changes nothing unless it is asked to. The state of a cluster is looked at in `cli.operations.checkup`. Old
damage, on brokers: do the replicas of a partition hold the same batches? In the tier: does each catalog match
the objects in the store, and does the log begin where the tier does? In directories: stray partitions, and
replicas that differ. Source: rel-R9, spec T10, T62.
"""

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from firnline.base.errors import ConfigError, FirnlineError, KafkaError, StorageError, some_of
from firnline.base.ids import TopicPartition, Uuid, uuid_text
from firnline.cli.leftovers import leftovers
from firnline.cli.operations.checkup import check_cluster
from firnline.cli.operations.checkup_nodes import look_at_nodes, ways_back
from firnline.cli.show import (
    SOMETHING_IS_WRONG,
    as_json,
    connect,
    deadline,
    format_option,
    paragraph,
    profile_option,
    rows,
    set_option,
    timeout_option,
)
from firnline.cli.terminal import profiles
from firnline.cli.terminal.completion import complete_topics
from firnline.cli.tier.spark_python import VARIABLES, wrong_pythons
from firnline.cli.tier.store import named_store, tier_config
from firnline.client.admin import EARLIEST_LOCAL, LATEST, WITHOUT_TIER, Admin
from firnline.client.replica_diff import (
    UNKNOWN_EPOCH,
    BatchSummary,
    Difference,
    Replica,
    batch_summaries,
    first_difference,
)
from firnline.client.status import NO_ANSWER, survey
from firnline.formats import names
from firnline.log.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    read_offsets,
    read_partition_metadata,
)
from firnline.runtime.disk import RealFs
from firnline.stores.port import CLUSTER_KEY, ObjectMissing, ObjectStore
from firnline.stores.registry import open_store
from firnline.tiered.catalog.format import CatalogCorrupt, PartitionCatalog
from firnline.tiered.metadata.log import UNREADABLE
from firnline.tiered.objects.catalog_reader import list_heads_of_topic, list_topics, read_catalog
from firnline.tiered.objects.layout import LOG, segment_folder

# The batches of all replicas are read.
_TIMEOUT_S = 600.0
_NEWEST = 10_000
# A node that makes a thousand partitions may be busy for seconds.
_SURVEY_S = 12.0
# A broker that hangs is asked several things.
_ANSWER_S = 5.0
# Longer than the five seconds after which most consumers commit again.
_WATCH_S = 6.0
# A leader writes the catalog after the metadata; it may take this long.
_CATALOG_S = 10.0
_LOOK_S = 0.5


class Finding(NamedTuple):
    """One problem: where it is, and what to do about it."""

    kind: str
    where: str
    what: str
    remedy: str


class Status(NamedTuple):
    """What leaders say of tiered partitions. reported_s: when they said it, on the monotonic clock."""

    rows: list[dict[str, Any]]
    reported_s: float


# Of these, one row names many partitions with the same problem.
_IN_ONE_ROW = ("not-compared",)


class _Report:
    """What was found, and how much was checked."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], list[str]] = {}
        self.looked: Counter[str] = Counter()

    def add(self, kind: str, where: str, what: str, remedy: str | None = None) -> None:
        self._found.setdefault((kind, what, remedy or _REMEDIES[kind]), []).append(where)

    @property
    def findings(self) -> list[Finding]:
        """What was found, in order. A dead broker has replicas of thousands of partitions, but is one row."""
        return [
            Finding(kind, where, what, remedy)
            for (kind, what, remedy), places in self._found.items()
            for where in ([some_of(places)] if kind in _IN_ONE_ROW else places)
        ]


_REMEDIES = {
    "replicas-differ": "keep the replica that consumers read from (the leader's); stop the other broker,"
    " move the partition's directory there away, and start it: it fetches the partition again",
    "replica-damaged": "stop the broker with the damaged bytes, move the partition's directory there away,"
    " and start it: it fetches the partition again. If no copy is whole, restore one from a backup",
    "not-compared": "run this again when the broker answers and the replica has caught up",
    "not-asked": "run this again when the broker answers",
    "kept-aside": "if the topic was deleted, remove the directory; otherwise restore the newer metadata,"
    " and the name of the directory",
    "not-formatted": "restore meta.properties, as docs/OPERATIONS.md says",
    "log-start-above-tier": "if retention did not do it, stop the broker, lower the partition's line in"
    " log-start-offset-checkpoint to the first offset that the tier has, and start it with the tier",
    "catalog-explains-less": "restore the lost records of __remote_log_metadata, from another replica or"
    " a backup; nothing deletes these objects until then",
    "catalog-damaged": "its leader writes the next one; if the damage stays, restore an older copy",
    "tier-metadata-unreadable": "run a release that can read it, or give it up as docs/OPERATIONS.md says;"
    " if a copy is damaged, let another replica lead it; nothing of the partition is copied or deleted"
    " until then",
    "left-by-tier": "stop the broker, and run this with --clean; or turn the tier on again, which uses it",
    "object-missing": "restore the object from a copy of the tier; without it its records are lost",
}


@click.command()
@click.option(
    "--bootstrap-server", "-b", "bootstrap", metavar="HOST:PORT,...",
    help="Ask these brokers. Default: as for other commands, unless --tier, --data-dir or --config is given.",
)  # fmt: skip
@profile_option
@timeout_option(_TIMEOUT_S)
@click.option(
    "--tier", metavar="URI",
    help="Check this tier: a directory or a store, with settings from --set, --config or the environment.",
)  # fmt: skip
@set_option("Set rsm.config.store.* for --tier.")
@click.option(
    "--data-dir", "directories", multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Check this log directory of a stopped broker; given several, compare the replicas.",
)  # fmt: skip
@click.option(
    "--config", "properties", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Check the directories of this server.properties for what a tier that is off has left there.",
)  # fmt: skip
@click.option(
    "--clean", is_flag=True, help="Remove what --config finds, while the broker is stopped."
)
@click.option(
    "--topic", "topics", multiple=True, shell_complete=complete_topics, help="Only these topics."
)
@click.option(
    "--newest", type=click.IntRange(0), default=_NEWEST, show_default=True,
    help="How many offsets of each replica are compared over the brokers; 0 for all.",
)  # fmt: skip
@click.option(
    "--watch", "watch_s", type=click.FloatRange(0), default=_WATCH_S, show_default=True,
    help="Seconds over which lags and moves are watched, if there are any; 0: not at all.",
)  # fmt: skip
@click.option(
    "--spark", is_flag=True,
    help="Check only the Python of PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON, and ask no broker.",
)  # fmt: skip
@format_option
def command(
    bootstrap: str | None,
    tier: str | None,
    overrides: tuple[str, ...],
    directories: tuple[Path, ...],
    properties: Path | None,
    clean: bool,
    topics: tuple[str, ...],
    newest: int,
    watch_s: float,
    spark: bool,
    style: str,
) -> None:
    """Say what is wrong with a cluster, and how to mend it.

    Looks at brokers and controllers, and what they say of their disks and the tier; at leaders, in-sync
    replicas, moves, directories and groups; and for old damage: replicas that differ, stray partitions,
    catalogs that miss segments.

    Changes nothing without --clean. For scripts: the exit code is 0 when nothing was found, or all of it was
    removed; 3 when something was found; and 1 when no broker answered. Replicas of compacted topics are
    compacted independently, and not compared. The Python that PYSPARK_PYTHON names is always checked.
    """
    if clean and properties is None:
        raise click.UsageError("--clean removes what --config finds: name the server.properties")
    if overrides and tier is None:
        raise click.UsageError("-X names settings of a store: name the store with --tier")
    report = _Report()
    for wrong in wrong_pythons():
        report.add("spark-python", wrong.variable, wrong.what, wrong.remedy)
    if spark:
        report.looked["Pythons that the environment names for Spark"] += len(
            [name for name in VARIABLES if os.environ.get(name)]
        )
    starts: dict[tuple[str, int], Starts] = {}
    if bootstrap is None and tier is None and properties is None and not directories and not spark:
        bootstrap = profiles.find("bootstrap").value
    if bootstrap is not None:
        starts = _look_at_cluster(bootstrap, topics, watch_s, newest, report)
    if tier is not None:
        _look_at_tier(_store(tier, overrides, properties), topics, starts, report)
    if directories:
        _look_at_directories(directories, topics, report)
    if properties is not None:
        _look_for_leftovers(properties, report, clean=clean)
    _show(report, style)
    if report.findings:
        sys.exit(SOMETHING_IS_WRONG)


def _look_at_cluster(
    bootstrap: str, topics: tuple[str, ...], watch_s: float, newest: int, report: _Report
) -> dict[tuple[str, int], "Starts"]:
    """Look at all that the nodes can tell; return where the logs of tiered partitions begin."""
    found = survey(bootstrap, timeout_s=min(deadline().left_s() / 2, _SURVEY_S))
    silent = {
        each.broker_id: f"broker {each.broker_id} does not answer"
        for each in found.state.brokers
        if each.state == NO_ANSWER
    }
    for each in look_at_nodes(found, topics):
        report.add(*each)
    with connect(bootstrap, silent_s=_ANSWER_S) as admin:
        has_controller = found.state.quorum is not None
        for each in check_cluster(
            admin,
            topics,
            watch_s,
            report.looked,
            silent=silent,
            has_controller=has_controller,
            ways_back=ways_back(found),
        ):
            report.add(*each)
        _look_at_brokers(admin, topics, newest, silent, report)
        status = _tier_status(admin, silent, report)
    _look_at_tier_metadata(status, topics, report)
    return _log_starts(status)


def _show(report: _Report, style: str) -> None:
    if style == "json":
        looked = dict(sorted(report.looked.items()))
        as_json({"looked_at": looked, "findings": [each._asdict() for each in report.findings]})
    else:
        said = ", ".join(f"{what}: {n}" for what, n in sorted(report.looked.items())) or "nothing"
        paragraph(f"looked at: {said}", err=True)
        rows(
            [each._asdict() for each in report.findings],
            style,
            empty="nothing is wrong",
            sentences=("what", "remedy"),
        )


# ------------------------------------------------------------------------------------------- brokers


def _look_at_brokers(
    admin: Admin,
    topics: tuple[str, ...],
    newest: int,
    silent: Mapping[int, str],
    report: _Report,
) -> None:
    """Compare each replica with the leader's: the last `newest` offsets below the high watermark of both.

    silent  brokers that are not asked, as each costs its time for each partition, and why not
    """
    answer = admin.metadata(list(topics) or None)
    brokers = {
        each.node_id: admin.node(each.node_id, each.host, each.port)
        for each in answer.brokers
        if each.node_id not in silent
    }
    for topic in answer.topics:
        if topic.error_code:
            continue
        try:
            configs = admin.topic_configs(topic.name, only_changed=False)
        except FirnlineError as problem:
            report.add("not-compared", f"topic {topic.name}", str(problem))
            continue
        is_compacted = "compact" in (configs.get("cleanup.policy") or "")
        for part in topic.partitions:
            others = [each for each in part.replica_nodes if each != part.leader_id]
            if is_compacted and others:
                report.looked["partitions that are compacted, and not compared"] += 1
                others = []
            elif not others:
                report.looked["partitions without a copy to compare"] += 1
            else:
                report.looked["partitions over the brokers"] += 1
            where = f"{topic.name}-{part.partition_index}"
            leader = brokers.get(part.leader_id)
            if leader is None:
                report.add("not-compared", where, silent.get(part.leader_id, "nobody leads it"))
                continue
            number = part.partition_index
            try:
                begin = admin.offsets(leader, topic.name, [number], EARLIEST_LOCAL).get(number, 0)
                end = admin.offsets(leader, topic.name, [number], LATEST).get(number, 0)
            except FirnlineError as problem:
                report.add("not-compared", where, f"broker {part.leader_id}: {problem}")
                continue
            begin = max(begin, end - newest) if newest else begin
            copies = {each: Replica(brokers[each], topic.topic_id, number) for each in brokers}
            leader_copy = part.leader_id, copies[part.leader_id]
            compared_to = begin
            for node_id in others:
                if node_id not in copies:
                    said = silent.get(node_id, f"broker {node_id} is not there")
                    report.add("not-compared", where, said)
                    continue
                both = [leader_copy, (node_id, copies[node_id])]
                reached = _compare_over_brokers(where, both, begin, end, report)
                compared_to = max(compared_to, reached)
            _check_alone(where, leader_copy, compared_to, end, report)


def _tier_status(admin: Admin, silent: Mapping[int, str], report: _Report) -> Status:
    """Ask every broker about the tiered partitions that it leads. A broker without a tier leads none."""
    found: list[dict[str, Any]] = []
    for each in admin.metadata([]).brokers:
        if each.node_id in silent:
            continue
        try:
            broker = admin.node(each.node_id, each.host, each.port)
            found += admin.tier_status_of(broker, None).partitions
        except FirnlineError as problem:
            if not (isinstance(problem, KafkaError) and problem.code in WITHOUT_TIER):
                report.add("not-asked", f"broker {each.node_id}", str(problem))
    return Status(found, time.monotonic())


def _look_at_tier_metadata(status: Status, topics: tuple[str, ...], report: _Report) -> None:
    """Check whether the leaders of tiered partitions could read all remote log metadata."""
    for row in status.rows:
        if topics and row["topic"] not in topics:
            continue
        report.looked["partitions that are tiered"] += 1
        if (row["problem"] or "").startswith(UNREADABLE):
            where = f"{row['topic']}-{row['partition']}"
            report.add("tier-metadata-unreadable", where, row["problem"])


def _compare_over_brokers(
    where: str, copies: list[tuple[int, Replica]], begin: int, end: int, report: _Report
) -> int:
    """Compare a follower with the leader; return the offset up to which the leader's bytes were checked."""
    (leader_id, leader), (other_id, other) = copies
    if begin >= end:
        return end
    try:
        end = min(end, other.high_watermark(begin))
        found = first_difference(
            leader.batch_summaries(begin, end),
            other.batch_summaries(begin, end),
            begin=begin,
            end=end,
        )
    except FirnlineError as problem:
        report.add("not-compared", where, f"broker {other_id}: {problem}")
        return begin
    if found is not None:
        names = (f"broker {leader_id} (leader)", f"broker {other_id}")
        ids = [n for n, each in zip((leader_id, other_id), found[1:], strict=True) if _is_bad(each)]
        remedy = _replaced(where, ids[0]) if len(ids) == 1 else None
        _add_difference(where, found, names, report, remedy)
    return max(begin, end)


def _check_alone(
    where: str, copy: tuple[int, Replica], begin: int, end: int, report: _Report
) -> None:
    """Check the leader's bytes that no follower has: it may be their damage that keeps followers behind."""
    leader_id, leader = copy
    try:
        bad = next((each for each in leader.batch_summaries(begin, end) if _is_bad(each)), None)
    except FirnlineError as problem:
        report.add("not-compared", where, f"broker {leader_id}: {problem}")
        return
    if bad is not None:
        what = f"offset {bad.base_offset}: broker {leader_id} (leader) has {_described(bad)}"
        remedy = (
            f"{_replaced(where, leader_id)}. If none is, no broker has these records whole: stop broker"
            f" {leader_id}, put back a whole copy of {where}, from a backup or as it was moved away"
            " from a broker, and start it"
        )
        report.add("replica-damaged", where, what, remedy)


def _is_bad(batch: BatchSummary | None) -> bool:
    return batch is not None and not batch.is_intact


def _replaced(where: str, broker_id: int) -> str:
    """Return how a damaged replica is fetched again, one at a time: the others are needed for it."""
    describe = f"`firnline topic describe {where.rpartition('-')[0]}`"
    return (
        f"if {describe} shows another broker in the ISR: stop broker {broker_id}, move its directory {where}"
        " to a place outside the log directory, and start it: it fetches the partition again. Keep what"
        " was moved, and touch no other broker, until it is back in the ISR"
    )


def _described(batch: BatchSummary | None) -> str:
    if batch is None:
        return "nothing"
    if batch.leader_epoch == UNKNOWN_EPOCH:
        return "bytes that are no batch, damaged"
    span = f"{batch.base_offset} to {batch.last_offset} of epoch {batch.leader_epoch}"
    if not batch.is_intact:
        return f"{span}, damaged: its bytes do not have its checksum"
    return f"{span}, checksum {batch.crc & 0xFFFFFFFF:08x}"


def _add_difference(
    where: str,
    found: Difference,
    names: tuple[str, str],
    report: _Report,
    remedy: str | None = None,
) -> None:
    """Report where two replicas differ. If the bytes of one are damaged it is known which to keep."""
    both = found.one, found.other
    said = [f"{name} has {_described(each)}" for name, each in zip(names, both, strict=True)]
    kind = "replica-damaged" if any(map(_is_bad, both)) else "replicas-differ"
    report.add(kind, where, f"offset {found.offset}: {', '.join(said)}", remedy)


class Starts(NamedTuple):
    """Where a log begins, in all and in local files of its leader; 0 if unknown.

    reported_s  when the leader said so, on the monotonic clock
    """

    log: int
    local: int
    reported_s: float


def _log_starts(status: Status) -> dict[tuple[str, int], Starts]:
    """Return the start of each tiered partition, by topic id and partition."""
    return {
        (row["topic_id"], row["partition"]): Starts(
            row["log_start_offset"], row["local_log_start_offset"], status.reported_s
        )
        for row in status.rows
    }


# ---------------------------------------------------------------------------------------------- tier


def _store(uri: str, overrides: tuple[str, ...], properties: Path | None) -> ObjectStore:
    config = tier_config(overrides, properties)
    uri, given = named_store(uri, config, usage="firnline doctor --tier URI")
    store = open_store(uri, given, is_writer=False)
    try:
        store.get(CLUSTER_KEY)
    except ObjectMissing:  # an earlier release wrote none; and a bucket has every prefix
        if not list_topics(store):
            raise ConfigError(
                f"there is no tier at {uri}: it has neither {CLUSTER_KEY} nor a topic",
                remedy="name the tier as rsm.config.uri of its brokers does",
            ) from None
    return store


def _look_at_tier(
    store: ObjectStore,
    topics: tuple[str, ...],
    starts: Mapping[tuple[str, int], Starts],
    report: _Report,
) -> None:
    for topic in list_topics(store):
        if topic.is_deleted or (topics and topic.topic not in topics):
            continue
        for partition, head in list_heads_of_topic(store, topic.topic_id).items():
            report.looked["partitions in the tier"] += 1
            where = f"{topic.topic}-{partition}"
            try:
                catalog = read_catalog(store, topic.topic_id, partition, head)
            except (CatalogCorrupt, ObjectMissing) as problem:
                report.add("catalog-damaged", where, str(problem))
                continue
            if catalog is not None:
                known = starts.get((uuid_text(topic.topic_id), partition), Starts(0, 0, 0.0))
                _look_at_catalog(store, where, catalog, known, report)


def _look_at_catalog(
    store: ObjectStore, where: str, catalog: PartitionCatalog, starts: Starts, report: _Report
) -> None:
    """Compare a catalog with the objects in the store, twice, because leaders copy and delete meanwhile."""
    missing, unlisted = _differences(store, catalog)
    if missing or unlisted:
        try:
            newest = read_catalog(store, catalog.topic_id, catalog.partition)
        except (CatalogCorrupt, ObjectMissing) as problem:
            report.add("catalog-damaged", where, str(problem))
            return
        if newest is None:
            return  # the topic was deleted
        catalog = newest
        still_missing, still_unlisted = _differences(store, catalog)
        missing, unlisted = missing & still_missing, unlisted & still_unlisted
    log_start = max(starts.log, catalog.log_start_offset)
    for key in sorted(missing):
        report.add("object-missing", where, key)
    covered = sorted((each.base_offset, each.end_offset) for each in catalog.segments)
    unknown = sorted(_base_offset(key) for key in unlisted)
    below = [base for base in unknown if base < log_start]
    above = [base for base in unknown if base >= log_start and not _is_covered(base, covered)]
    if covered and above == [catalog.highest_offset + 1] and _may_be_a_copy(store, catalog, starts):
        report.looked["copies that may be under way"] += 1
        above = []
    if below:
        what = (
            f"the log begins at {log_start}; the store holds {len(below)} logs from {min(below)} on"
        )
        report.add("log-start-above-tier", where, what)
    hidden = [base for base, end in covered if end < log_start]
    if hidden:
        what = f"the log begins at {log_start}; the catalog has segments from {min(hidden)} on"
        report.add("log-start-above-tier", where, what)
    if above:
        last = catalog.highest_offset
        what = f"the store holds {len(above)} logs from {min(above)} on, the catalog ends at {last}"
        report.add("catalog-explains-less", where, what)


def _may_be_a_copy(store: ObjectStore, catalog: PartitionCatalog, starts: Starts) -> bool:
    """Whether the one log object after the end of the catalog may belong to a copy in progress.

    The object exists before the catalog names it, for as long as it takes to read it back. But a segment that
    the leader has deleted locally was copied and recorded in the metadata; if no catalog names it, the record
    is lost.
    """
    base = catalog.highest_offset + 1
    if starts.local <= base:
        return True
    while True:
        try:
            newest = read_catalog(store, catalog.topic_id, catalog.partition)
        except (CatalogCorrupt, ObjectMissing):
            return False
        if newest is None or newest.highest_offset >= base:
            return True
        if time.monotonic() > starts.reported_s + _CATALOG_S:
            return False
        time.sleep(_LOOK_S)


def _differences(store: ObjectStore, catalog: PartitionCatalog) -> tuple[set[str], set[str]]:
    """Return the log objects that the store lacks, and those that the catalog does not name."""
    folder = segment_folder(catalog.topic_id, catalog.partition)
    held = {info.key for info in store.list_prefix(folder) if info.key.endswith(LOG)}
    known = {segment.key() for segment in catalog.segments}
    return known - held, held - known


def _base_offset(key: str) -> int:
    digits = key.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isdecimal() else 0


def _is_covered(offset: int, spans: Iterable[tuple[int, int]]) -> bool:
    return any(base <= offset <= end for base, end in spans)


# --------------------------------------------------------------------------------------- directories


class _Copy(NamedTuple):
    """The files of one replica; the offsets [begin, end) may be compared."""

    path: Path
    begin: int
    end: int
    is_compacted: bool


def _look_for_leftovers(properties: Path, report: _Report, *, clean: bool) -> None:
    for found in leftovers(properties, is_to_be_removed=clean):
        report.looked["caches of a tier that is off"] += 1
        if found.is_removed:
            click.echo(f"{found.path}: {found.what}", err=True)
        else:
            report.add("left-by-tier", str(found.path), found.what)


def _look_at_directories(
    directories: tuple[Path, ...], topics: tuple[str, ...], report: _Report
) -> None:
    fs = RealFs()
    copies: dict[tuple[Uuid, TopicPartition], list[_Copy]] = {}
    for root in directories:
        if not (root / META_PROPERTIES).exists():
            report.add("not-formatted", str(root), "no meta.properties says whose it is")
        starts = read_offsets(fs, str(root / LOG_STARTS))
        marks = read_offsets(fs, str(root / HIGH_WATERMARKS))
        cleaned = read_offsets(fs, str(root / CLEANER_OFFSETS))
        for path in sorted(root.iterdir()):
            if path.name.endswith(names.STRAY_DIR):
                size = sum(file.stat().st_size for file in path.glob("*" + names.LOG))
                report.add(
                    "kept-aside", str(path), f"{size} bytes of records that belong to no topic"
                )
            place = names.parse_partition_dir(path.name) if path.is_dir() else None
            if place is None or (topics and place.topic not in topics):
                continue
            try:
                topic_id = read_partition_metadata(fs, str(path))
            except StorageError:
                topic_id = None
            if topic_id is not None:
                report.looked["replicas in directories"] += 1
                copy = _Copy(path, starts.get(place, 0), marks.get(place, 0), place in cleaned)
                copies.setdefault((topic_id, place), []).append(copy)
    for (_, place), found in copies.items():
        for other in found[1:]:
            _compare_files(str(place), found[0], other, report)


def _compare_files(where: str, one: _Copy, other: _Copy, report: _Report) -> None:
    if one.is_compacted or other.is_compacted:
        return
    begin = max(one.begin, other.begin, _first(one.path), _first(other.path))
    end = min(one.end, other.end)
    if begin >= end:
        report.looked["replicas without a checkpoint of the high watermark"] += 1
        return
    try:
        found = first_difference(_in_files(one.path), _in_files(other.path), begin=begin, end=end)
    except KafkaError as problem:
        report.add("not-compared", where, f"{one.path} and {other.path}: {problem}")
        return
    if found is not None:
        _add_difference(where, found, (str(one.path), str(other.path)), report)


def _first(path: Path) -> int:
    found = sorted(path.glob("*" + names.LOG))
    return int(found[0].stem) if found else 0


def _in_files(path: Path) -> Iterator[BatchSummary]:
    for file in sorted(path.glob("*" + names.LOG)):
        yield from batch_summaries(file.read_bytes())
