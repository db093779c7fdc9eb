"""A catalog written from what changed is, byte for byte, the one that a look at everything gives."""

from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.base.effects import Effects, Submit
from firnline.base.errors import StorageError
from firnline.base.ids import TopicIdPartition
from firnline.stores.memory import MemoryStore
from firnline.tiered.catalog import keeper, writer
from firnline.tiered.catalog.keeper import CatalogKeeper
from firnline.tiered.catalog.writer import CatalogState, CatalogWriter
from firnline.tiered.circuits import StoreCircuits
from firnline.tiered.metadata import cache as cache_module
from firnline.tiered.metadata.cache import MetadataCache
from firnline.tiered.objects.catalog_changes import apply_update
from firnline.tiered.objects.catalog_reader import read_part
from firnline.tiered.objects.layout import CATALOG_FOLDER, PARTS_FOLDER
from firnline.tiered.spi import RemoteSegment, SegmentState, SegmentUpdate
from tests.worlds.effects import World

TOPIC = bytes(15) + b"\x07"
WHERE = TopicIdPartition(TOPIC, 0)
EPOCHS = ((0, 0),)
FOLDERS = (CATALOG_FOLDER, PARTS_FOLDER)


class Metadata:
    """The metadata of one partition, whose records a test applies one by one."""

    def __init__(self) -> None:
        self.cache = MetadataCache()
        self.offset = -1
        self.full_checks = 0
        self.changes_seen = 0

    def look(self, _where: TopicIdPartition, since: Any) -> Any:
        look = self.cache.look(since)
        self.full_checks += look.everything is not None
        self.changes_seen += len(look.changed)
        return look

    def get(self, _where: TopicIdPartition, segment_id: bytes) -> RemoteSegment | None:
        return self.cache.get(segment_id)

    def was_deleted(self, _where: TopicIdPartition, segment_id: bytes) -> bool:
        return self.cache.was_deleted(segment_id)

    def applied_offset(self, _where: TopicIdPartition) -> tuple[int, int]:
        return 0, self.offset

    def copy(self, number: int, length: int, is_finished: bool) -> None:
        segment = RemoteSegment(
            topic_id=TOPIC,
            topic="t",
            partition=0,
            segment_id=(number * 7919 % 65536).to_bytes(16, "big"),
            base_offset=number * 10,
            end_offset=number * 10 + length,
            size_bytes=1,
            max_timestamp_ms=1,
            epochs=((0, number * 10),),
            broker_id=1,
            event_timestamp_ms=1,
            state=SegmentState.COPY_STARTED,
        )
        assert self.cache.add(segment)
        self.offset += 1
        if is_finished:
            self.change(segment, SegmentState.COPY_FINISHED)

    def change(self, segment: RemoteSegment, state: SegmentState) -> None:
        update = SegmentUpdate(TOPIC, "t", 0, segment.segment_id, state, 1, 2, None)
        assert self.cache.update(update)
        self.offset += 1

    def read_again(self) -> None:
        """The metadata log was read anew: nothing is known of who looked before."""
        before, self.cache = self.cache.segments(), MetadataCache()
        for segment in before:
            self.cache.add(segment._replace(state=SegmentState.COPY_STARTED))
            if segment.state != SegmentState.COPY_STARTED:
                self.change(segment, SegmentState.COPY_FINISHED)
            if segment.state == SegmentState.DELETE_STARTED:
                self.change(segment, SegmentState.DELETE_STARTED)


class Leadership(World):
    """The leader under test, and beside it a writer that looks at everything each time."""

    holds_work = True

    def __init__(self) -> None:
        super().__init__()
        self.metadata, self.store, self.twin = Metadata(), MemoryStore(), MemoryStore()
        log = SimpleNamespace(
            log_start_offset=0,
            log_end_offset=10**6,
            epochs=SimpleNamespace(entries=lambda: EPOCHS),
            topic_partition="t-0",
        )
        self.hosted: Any = SimpleNamespace(
            log=log,
            where=WHERE,
            topic="t",
            is_over=False,
            leader_epoch=3,
            metadata_version=0,
            unexplained_segments=0,
            deletes_below=0,
            on_earlier_catalog=lambda log_start_offset: None,
            note_outcome=lambda task, problem, now_ms: [],
        )
        services: Any = SimpleNamespace(
            catalog=self.store,
            metadata=self.metadata,
            check_owner=None,
            settings=SimpleNamespace(node_id=1),
            circuits=StoreCircuits(None, None, lambda failures, max_ms: 100),
        )
        self.keeper = CatalogKeeper(services, self.hosted)  # type: ignore[arg-type]
        self.everything = CatalogWriter(topic_id=TOPIC, partition=0, leader_epoch=3, broker_id=1)
        self.followed: Submit | None = None
        self.answers: list[object] = []

    def request(self) -> None:
        self.hosted.metadata_version += 1
        self.now_ms += 1

        def reported(error: object, _now_ms: int) -> Effects:
            self.answers.append(error)
            return []

        self.run(self.keeper.request(reported, self.now_ms))
        self._follow()

    def _follow(self) -> None:
        """Prepare the twin's head at the moment at which the keeper has taken its state."""
        if not self.work or not self.work[0].name.startswith("write"):
            return
        if self.followed is self.work[0]:
            return
        self.followed = self.work[0]
        work: Any = self.work[0].work
        state = work.args[2]
        finished = {s.segment_id: s for s in self.metadata.cache.finished()}
        complete: CatalogState = state._replace(segments=finished)
        self.update = self.everything.prepare(complete, work.args[3], partial(read_part, self.twin))

    def do_work(self, fails: bool) -> None:
        """Do what waits for a worker; a write that fails has put nothing."""
        if not self.work:
            return
        effect = self.work.pop()
        self.now_ms += 1
        is_write = effect.name.startswith("write")
        if is_write and fails:
            with mock.patch.object(self.store, "put", side_effect=StorageError("no room")):
                result = effect.work()
            self.everything.failed(self.update)
        else:
            result = effect.work()
            if is_write:
                deleted = apply_update(self.twin, self.everything, self.update)
                self.everything.committed(self.update, deleted)
        self.complete_with(effect, result)
        if is_write and not fails:
            ours = {k: bytes(v) for k, v in self.store.objects.items() if k.startswith(FOLDERS)}
            assert ours == {k: bytes(v) for k, v in self.twin.objects.items()}
        self._follow()

    def finish(self) -> None:
        while self.work:
            self.do_work(fails=False)


WHATS = ["copy", "copy", "bulk", "bulk", "begin", "drop", "many drop", "gone", "many gone", "start"]
MOVES = st.lists(
    st.tuples(
        st.sampled_from([*WHATS, "again", "ask"]),
        st.integers(0, 60),
        # What the leader does about it: nothing yet, some steps, of which one fails, or all.
        st.sampled_from(["", "request", "work", "work", "fail", "all", "all", "all"]),
    ),
    min_size=5,
    max_size=60,
)


@settings(max_examples=120, deadline=None)
@given(moves=MOVES, kept=st.integers(1, 60), in_step=st.sampled_from([0, 1000]))
def test_what_changed_gives_the_catalog_that_everything_gives(
    moves: list[tuple[str, int, str]], kept: int, in_step: int
) -> None:
    """Whatever happens between two heads, and while one is written, failed or compared."""
    with (
        mock.patch.object(cache_module, "CHANGES_KEPT", kept),
        # Deletions that are forgotten: the store is asked whether it holds what is missing.
        mock.patch.object(cache_module, "DELETED_KEPT", 3),
        mock.patch.object(keeper, "LOOKED_FOR_MAX", 2),
        mock.patch.object(keeper, "COMPARED_IN_STEP", in_step),
        mock.patch.object(writer, "REMOVED_MAX", 30),
        mock.patch.object(writer, "TAIL_ROWS", 4),
        mock.patch.object(writer, "FAN_OUT", 3),
        mock.patch.object(writer, "BULK_ROWS", 16),
    ):
        leader = Leadership()
        numbers = iter(range(10**6))
        for what, number, then in moves:
            _move(leader, numbers, what, number)
            if then in ("request", "all"):
                leader.request()
            if then == "all":
                leader.finish()
            elif then in ("work", "fail"):
                leader.do_work(fails=then == "fail")
        leader.finish()
        leader.request()
        leader.finish()
    assert leader.answers[-1] is None
    assert leader.hosted.unexplained_segments == 0


def _move(leader: Leadership, numbers: Any, what: str, number: int) -> None:
    metadata = leader.metadata
    if what in ("copy", "begin"):
        metadata.copy(next(numbers), number % 25, what == "copy")
    elif what == "bulk":
        for _ in range(number):
            metadata.copy(next(numbers), 9, is_finished=True)
    elif what in ("drop", "many drop", "gone", "many gone"):
        rows = metadata.cache.segments()
        first = number % len(rows) if rows else 0
        for segment in rows[::-1][first : first + (12 if "many" in what else 1)]:
            if segment.state != SegmentState.DELETE_STARTED:
                metadata.change(segment, SegmentState.DELETE_STARTED)
            if "drop" not in what:
                metadata.change(segment, SegmentState.DELETE_FINISHED)
    elif what == "start":
        log = leader.hosted.log
        log.log_start_offset = max(log.log_start_offset, number * 8)
        leader.hosted.deletes_below = log.log_start_offset
    elif what == "again":
        metadata.read_again()
    else:
        leader.keeper.explains_all()


def test_one_more_copy_costs_a_leader_no_look_at_all_the_others() -> None:
    """The loop and the worker are handed what changed; everything, once, goes to the worker."""
    leader = Leadership()
    for number in range(5000):
        leader.metadata.copy(number, 9, is_finished=True)
    leader.request()
    names = []
    while leader.work:
        names.append(leader.work[0].name.split()[0])
        leader.do_work(fails=False)
    assert names == ["begin", "compare", "write"]
    leader.metadata.changes_seen = 0
    for number in range(5000, 5100):
        leader.metadata.copy(number, 9, is_finished=True)
        leader.request()
        (write,) = leader.work
        work: Any = write.work
        assert len(work.args[2].segments.segments) == 1
        leader.finish()
        assert leader.keeper.explains_all()
    assert leader.metadata.full_checks == 1
    assert leader.metadata.changes_seen == 100
