"""A node dies before or after every step of a copy, of an expiry and of a topic's removal.

The runs are generated: a dry run counts the steps (appends, worker jobs, and single puts and deletes in
the store), then each is the place of a crash, after which the same node comes back or another one leads.
Whatever happened, in the end every record is readable once, the tier holds exactly what the metadata
names, and the catalog says the same. Source: reliability (e), coverage rule; F2, F5, F9, F12, F22.
"""

from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.errors import KafkaError, StorageError
from firnline.tiered.objects.catalog_reader import read_catalog
from firnline.tiered.objects.layout import segment_stem
from firnline.tiered.spi import SegmentState
from tests.worlds.tier import TOPIC_ID, Cluster, Crash, Node, topic_config

pytestmark = pytest.mark.slow

TEXTS = ("a", "b", "c")


class World:
    """Two nodes that have the same three segments; the first leads."""

    def __init__(self, story: str) -> None:
        self.story = story
        self.cluster = Cluster()
        self.first = Node(self.cluster, 1).start().lead(0)
        self.second = Node(self.cluster, 2).start()
        for text in TEXTS:
            self.first.produce(0, text)
            self.second.follow(self.first)
            self.second.log.roll(self.cluster.now_ms)
        self.first.produce(0, "tail", roll=False)
        self.records = self.first.read_all()
        self.second.follow(self.first)
        self.second.role(is_leader=False, epoch=0)
        self.store_steps = 0
        self.crash_in_store = 0

    def until_crash_begins(self) -> None:
        """Bring the first node to where the story begins."""
        if self.story == "failing copy":
            self.first.storage.fail("copy", StorageError("503"), "after")
        if self.story in ("expire", "remove"):
            self.first.pass_time(1500)
            assert len(self.first.segments()) == 3
        self.first.steps = 0
        self.first.trace.clear()
        if self.story == "expire":
            self.cluster.now_ms += 1_200_000
            self.first.produce(0, "fresh", roll=False)
            self.second.follow(self.first)
            self.records = self.first.read_all()
            for node in (self.first, self.second):
                node.config = node.log.config = topic_config(retention_ms=600_000)
        self._watch_store()

    def _watch_store(self) -> None:
        store = self.cluster.store

        def counted(call: Callable[..., None]) -> Callable[..., None]:
            def step(*args: Any, **keys: Any) -> None:
                self.store_steps += 1
                if self.store_steps == self.crash_in_store:
                    raise Crash("store")
                call(*args, **keys)

            return step

        store.put = counted(store.put)  # type: ignore[method-assign]
        store.delete = counted(store.delete)  # type: ignore[method-assign]

    def play(self) -> None:
        """The story itself, on the first node."""
        if self.story == "remove":
            self.cluster.topics.clear()
            self._delete_topic(self.first)
        self.first.pass_time(5_000)

    def _delete_topic(self, node: Node) -> None:
        now_ms = self.cluster.now_ms
        node.run(node.tier.on_topic_deleted(TOPIC_ID, "t", 1, was_tiered=True, now_ms=now_ms))

    def go_on(self, who: str) -> Node:
        """Let the same node come back, or the other one take over; then let time pass."""
        self.crash_in_store = 0
        if who == "other":
            node = self.second
        else:
            config = self.first.config
            node = Node(self.cluster, 1, fs=self.first.crash(), config=config, rng=self.first.rng)
            node.log.advance_high_watermark(node.log.log_end_offset)
            node.start()
        if self.story == "remove":
            if who == "other":
                self._delete_topic(node)
        else:
            node.lead(1)
        # Twice as long as the interval of the tasks and the longest wait before another try.
        for _ in range(8):
            node.pass_time(10_000)
            if self.story != "remove":
                node.expire_local()
        return node


def dry(story: str) -> tuple[int, int]:
    world = World(story)
    world.until_crash_begins()
    world.play()
    return world.first.steps, world.store_steps


STORIES = ("copy", "failing copy", "expire", "remove")


def runs() -> list[tuple[str, str, int, str]]:
    found = []
    for story in STORIES:
        steps, store_steps = dry(story)
        for who in ("same", "other"):
            for step in range(1, steps + 1):
                found += [(story, "before", step, who), (story, "after", step, who)]
            found += [(story, "store", step, who) for step in range(1, store_steps + 1)]
    return found


RUNS = runs()


def test_the_matrix_is_as_large_as_it_should_be() -> None:
    steps = [run for run in RUNS if run[1] != "store"]
    assert len(steps) >= 96
    assert {run[0] for run in RUNS} == set(STORIES)


@pytest.mark.parametrize(
    ("story", "when", "step", "who"), RUNS, ids=["-".join(map(str, run)) for run in RUNS]
)
def test_a_crash_at_any_step_loses_nothing_and_leaves_nothing(
    story: str, when: str, step: int, who: str
) -> None:
    world = World(story)
    world.until_crash_begins()
    if when == "store":
        world.crash_in_store = step
    else:
        world.first.crash_at = (step, when)
    with pytest.raises(Crash):
        world.play()
    node = world.go_on(who)
    if story == "remove":
        assert world.cluster.store.objects == {}
        return
    check_reads(world, node)
    check_tier(world, node)


def check_reads(world: World, node: Node) -> None:
    """rel-T1, T2: every offset once, with the bytes it was written with; what expired is gone whole."""
    start = 3 if world.story == "expire" else 0
    assert node.log.log_start_offset == start
    assert node.log.local_log_start_offset > 3, "idle topics drain completely (T15)"
    wanted = {offset: data for offset, data in world.records.items() if offset >= start}
    assert node.read_all() == wanted
    if start:
        assert isinstance(node.read(start - 1), KafkaError)


def check_tier(world: World, node: Node) -> None:
    """rel-T13: objects, metadata and catalog say the same; nothing is unfinished."""
    segments = node.segments()
    assert [s.state for s in segments] == [SegmentState.COPY_FINISHED] * len(segments)
    stems = sorted(
        segment_stem(TOPIC_ID, 0, base_offset=segment.base_offset, segment_id=segment.segment_id)
        for segment in segments
    )
    stored = sorted(
        {key.rpartition(".")[0] for key in world.cluster.store.objects if key.startswith("data/")}
    )
    assert stored == stems
    catalog = read_catalog(world.cluster.store, TOPIC_ID, 0)
    assert catalog is not None
    assert sorted(row.stem for row in catalog.segments) == stems
    assert catalog.leader_epoch == 1
    assert catalog.log_start_offset == node.log.log_start_offset
