"""Gauges of tiered partitions: as exact as a walk over all segments, without one. T48, T50; KIP-963."""

import random
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from firnline.log.log import Log
from firnline.log.segments import Segments
from firnline.runtime.threads.pools import PoolFacts
from firnline.server import tier_metrics
from firnline.server.tier_metrics import TierFacts
from firnline.tiered import retained, status
from firnline.tiered.coroutines import Run
from firnline.tiered.counters import RecentTimes
from firnline.tiered.metadata.cache import MetadataCache
from firnline.tiered.spi import RemoteSegment, SegmentState, SegmentUpdate
from firnline.tiered.status import Gauges
from tests.worlds.tier import TOPIC_ID, WHERE, Cluster, Node, topic_config


def led(count: int, *, copied: int | None = None) -> Node:
    """A leader with `count` closed segments, the first `copied` of which are in the tier; by default all."""
    node = Node(Cluster()).start().lead(0)
    for number in range(count):
        if number == copied:
            node.held = lambda effect: getattr(effect, "name", "").startswith("check ")
        node.produce(0, str(number))
        node.pass_time(1000)
    return node


def gauges(node: Node) -> Gauges:
    (found,) = node.tier.gauges(node.now_ms)
    return found


def facts(node: Node) -> TierFacts:
    """What a scrape finds on the node."""
    runtime: Any = SimpleNamespace(now_ms=lambda: node.now_ms, pool_facts=dict[str, PoolFacts])
    waiting = SimpleNamespace(remote_expired=0)
    broker: Any = SimpleNamespace(tier=node.tier, fetching=waiting, listing_offsets=waiting)
    steps = tier_metrics.look(runtime, broker)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: TierFacts = end.value
            return found


def shown(found: TierFacts, name: str) -> dict[str, float]:
    """The values of a metric, by topic and partition."""
    (family,) = (
        each
        for each in tier_metrics.families(found)
        if each.name == f"kafka_server_brokertopicmetrics_{name}"
    )
    return {
        "/".join([s.labels[k] for k in ("topic", "partition") if k in s.labels]): s.value
        for s in family.samples
    }


# Kafka's gauges of topics and of the node, and the fields that are summed up.
SUMS = {
    "remotecopylagsegments": "copy_lag_segments",
    "remotecopylagbytes": "copy_lag_bytes",
    "remotedeletelagsegments": "delete_lag_segments",
    "remotedeletelagbytes": "delete_lag_bytes",
    "remotelogsizebytes": "remote_bytes",
    "remotelogmetadatacount": "metadata_count",
}


@pytest.mark.parametrize(("name", "field"), SUMS.items())
def test_topics_and_the_node_have_the_sums_of_the_partitions_that_the_node_leads(
    name: str, field: str
) -> None:
    """T50. What a follower has is in the sums of its leader, which a dashboard adds to these."""
    found = facts(led(2))
    (row,) = found.partitions
    rows = [
        row._replace(topic=topic, partition=partition, is_leader=leads, **{field: value})
        for topic, partition, leads, value in (
            ("a", 0, True, 1),
            ("a", 1, True, 20),
            ("a", 2, False, 300),
            ("b", 0, True, 4000),
            ("c", 0, False, 50_000),
        )
    ]
    values = shown(found._replace(partitions=rows), name)
    assert values.pop("a/2", 300) == 300  # sizes are known on followers, too
    assert values.pop("c/0", 50_000) == 50_000
    assert values == {"a/0": 1, "a/1": 20, "b/0": 4000, "a": 21, "b": 4000, "": 4021}


def test_percentages_are_not_added_up() -> None:
    assert set(shown(facts(led(2)), "retentionsizeinpercent")) == {"t/0"}


def test_how_long_a_decision_about_the_size_took_is_shown_for_leaders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """T50: RemoteLogSizeComputationTime. The first decision takes in all segments, the next what is new."""
    monkeypatch.setattr(retained, "PLACED_IN_STEP", 2)
    node, name = led(9), "remotelogsizecomputationtime"
    node.role(is_leader=False, epoch=1)
    node.held = lambda effect: True  # no run of the node itself
    node.lead(2)
    assert shown(facts(node), name) == {"t": 0, "": 0}
    expiry = node.tier._tasks[WHERE].expiry
    turns = [_turns_of(expiry._decide, node.now_ms)]
    assert shown(facts(node), name) == {"t": 7 * turns[0], "": 7 * turns[0]}
    turns.append(_turns_of(expiry._decide, node.now_ms))
    assert turns[0] > 3 > turns[1]
    assert shown(facts(node), name) == {"t": 7 * turns[1], "": 7 * turns[1]}
    node.role(is_leader=False, epoch=3)
    assert shown(facts(node), name) == {"": 0}


def _turns_of(decide: Any, now_ms: int) -> int:
    """Decide, each turn 7 ms after the one before; return after how many."""
    run = Run(now_ms, lambda _result, _now_ms: [])
    steps, turns = decide(run), 0
    with suppress(StopIteration):
        next(steps)
        while True:
            run.now_ms += 7
            turns += 1
            steps.send(None)
    return turns


def test_what_waits_is_counted_as_the_status_counts_it_and_how_old_it_is() -> None:
    node = led(7, copied=3)
    found, (row,) = gauges(node), node.tier.status()
    assert (found.copy_lag_segments, found.copy_lag_bytes) == (4, row.copy_lag_bytes)
    assert found.copy_lag_bytes == sum(s.size_bytes for s in node.log.closed_segments()[3:])
    (first, *_) = node.log.closed_segments()[3:]
    assert found.copy_lag_ms == node.now_ms - first.largest_time_ms() > 0
    assert found.remote_bytes == sum(s.size_bytes for s in node.segments()[:3])


def test_nothing_waits_on_a_follower_nor_if_copies_are_disabled() -> None:
    """Its leader reports it; T49: copy.disable zeroes the lag."""
    node = led(5, copied=2)
    node.log.config = replace(node.log.config, remote_log_copy_disable=True)
    assert gauges(node).copy_lag_segments == 0
    node.log.config = replace(node.log.config, remote_log_copy_disable=False)
    assert gauges(node).copy_lag_segments == 3
    node.role(is_leader=False, epoch=1)
    assert (gauges(node).is_leader, gauges(node).copy_lag_segments) == (False, 0)


def test_segments_that_are_being_deleted_are_counted_until_they_are_gone() -> None:
    node = led(4)
    sizes = [s.size_bytes for s in node.segments()]
    node.held = lambda effect: getattr(effect, "name", "").startswith("delete ")
    node.log.config = topic_config(retention_ms=1)
    node.pass_time(1000)
    found = gauges(node)
    assert (found.delete_lag_segments, found.delete_lag_bytes) == (4, sum(sizes))
    assert (found.remote_bytes, found.metadata_count) == (0, 4)
    node.held = lambda effect: False
    node.release()
    assert (gauges(node).delete_lag_segments, gauges(node).metadata_count) == (0, 0)


def test_the_limits_are_used_in_percent() -> None:
    node = led(10)
    node.log.config = topic_config(retention_bytes=-1, local_retention_bytes=-2)
    assert gauges(node).retention_used_percent == gauges(node).local_retention_used_percent == 0
    total = gauges(node).remote_bytes
    node.log.config = topic_config(retention_bytes=2 * total, local_retention_bytes=-2)
    assert gauges(node).retention_used_percent == 50
    local = node.log.size_bytes
    assert gauges(node).local_retention_used_percent == 100 * local // (2 * total)
    node.log.config = topic_config(retention_bytes=2 * total, local_retention_bytes=local)
    assert gauges(node).local_retention_used_percent == 100


@pytest.mark.parametrize("count", [3, 300])
def test_a_scrape_looks_at_no_more_segments_of_a_large_partition_than_of_a_small_one(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = led(count, copied=count // 3)
    gauges(node)  # sums up once what the log has had before
    walks: list[str] = []

    def counted(owner: type, name: str) -> None:
        plain = getattr(owner, name)

        def walk(self: Any, *args: Any, **more: Any) -> Any:
            walks.append(f"{owner.__name__}.{name}")
            return plain(self, *args, **more)

        monkeypatch.setattr(owner, name, walk)

    for name in ("segments", "finished", "unfinished"):
        counted(MetadataCache, name)
    for name in ("all", "closed", "from_offset", "describe_closed", "ages"):
        counted(Segments, name)
    counted(Log, "closed_segments")
    monkeypatch.setattr(status, "status_rows", None)
    found = gauges(node)
    assert found.copy_lag_segments == count - count // 3
    assert walks == []


def test_the_totals_of_a_partition_are_those_of_its_segments_whatever_happens_to_them() -> None:
    node = led(60)
    cache = MetadataCache()
    draws = random.Random(5)
    known = [s._replace(size_bytes=draws.randrange(1, 10_000)) for s in node.segments()]
    states: dict[bytes, SegmentState] = {}
    for _ in range(2000):
        segment = draws.choice(known)
        state = draws.choice(list(SegmentState))
        if state == SegmentState.COPY_STARTED:
            cache.add(segment._replace(state=state))
        else:
            cache.update(_change(segment, state))
        listed = cache.segments()
        states = {s.segment_id: s.state for s in listed}
        finished = [s for s in listed if s.state == SegmentState.COPY_FINISHED]
        deleting = [s for s in listed if s.state == SegmentState.DELETE_STARTED]
        assert cache.totals() == (
            len(listed),
            len(finished),
            sum(s.size_bytes for s in finished),
            len(deleting),
            sum(s.size_bytes for s in deleting),
        )
    assert len(set(states.values())) == 3


def _change(segment: RemoteSegment, state: SegmentState) -> SegmentUpdate:
    return SegmentUpdate(
        topic_id=TOPIC_ID,
        topic="t",
        partition=WHERE.partition,
        segment_id=segment.segment_id,
        state=state,
        broker_id=1,
        event_timestamp_ms=1,
    )


def test_the_bytes_of_a_log_are_those_of_its_segments_whatever_happens_to_it() -> None:
    node = Node(Cluster(), config=topic_config(local_retention_bytes=400)).start().lead(0)
    draws, counts = random.Random(7), list[int]()
    for step in range(400):
        what = draws.random()
        log = node.log
        if what < 0.6:
            node.produce(0, "x" * draws.randrange(200), roll=draws.random() < 0.7)
        elif what < 0.75:
            node.pass_time(1000)
            node.expire_local()
        elif what < 0.9 and log.log_end_offset > log.local_log_start_offset + 3:
            end = draws.randrange(log.local_log_start_offset + 1, log.log_end_offset)
            if end > log.highest_remote_offset:
                log.truncate_to(end)
        elif what > 0.99:
            log.truncate_fully(log.log_end_offset + 2, now_ms=node.now_ms)
        closed = log.closed_segments()
        active = log._segments.active.size_bytes
        at = draws.randrange(log.local_log_start_offset, log.log_end_offset + 2)
        after = [s for s in closed if s.end_offset >= at]
        assert log.bytes_from(at) == sum(s.size_bytes for s in after) + active, step
        upto = draws.randrange(at, log.log_end_offset + 2)
        within = [s for s in after if s.end_offset < upto]
        found = log.closed_between(at, upto)
        assert (found.segments, found.size_bytes) == (
            len(within),
            sum(s.size_bytes for s in within),
        )
        counts.append(len(closed))
    assert max(counts) > 8
    assert len(set(counts)) > 5


def test_times_are_kept_for_a_minute_and_counted_for_ever() -> None:
    times = RecentTimes()
    for second in range(300):
        times.note(second, second * 1000)
        times.note(second + 2, second * 1000 + 500)
    found = times.look(299_900)
    assert (found.times, found.total_ms) == (600, sum(2 * s + 2 for s in range(300)))
    assert (found.avg_ms, found.max_ms) == (sum(2 * s + 2 for s in range(240, 300)) / 120, 301)
    assert times.look(400_000)[2:] == (0.0, 0)
