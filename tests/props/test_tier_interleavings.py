"""Any order of copies, deletes, leader changes, crashes and faults keeps the log whole.

rel-T1 (every offset of [log start, high watermark) once, with its bytes), T2 (nothing local goes before
it is finished in the tier), T10 (log start <= local start <= tier end), T12, T15. Leader changes here
are clean; unclean ones are in test_tiered_read and test_tiered_expiry.
"""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from firnline.base.effects import Effect
from firnline.base.errors import KafkaError, StorageError
from firnline.records.batch import headers
from firnline.tiered.lineage import Lineage, plan_ranges
from firnline.tiered.spi import RemoteSegment, SegmentState
from tests.tier_decisions import Listed, decided
from tests.worlds.tier import WHERE, Cluster, Node, topic_config

HELD = ("copy ", "delete ", "write catalog", "begin catalog", "take back")


class Story:
    """Two nodes with replicas of one partition; exactly one leads."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.nodes = [Node(self.cluster, 1).start(), Node(self.cluster, 2).start()]
        self.leader = 0
        self.epoch = 0
        self.generation = 0
        self.written: dict[int, bytes] = {}
        self.config = topic_config()
        self.nodes[0].lead(0)
        self.nodes[1].role(is_leader=False, epoch=0)

    @property
    def node(self) -> Node:
        return self.nodes[self.leader]

    def step(self, what: str, number: int) -> None:
        getattr(self, "do_" + what)(number)

    def do_produce(self, number: int) -> None:
        node = self.node
        start = node.log.log_end_offset
        node.produce(self.epoch, *("x" * (number + n) for n in range(number % 3 + 1)), roll=False)
        data = node.log.read_batches(start, max_bytes=1 << 20)
        for header in headers(data):
            part = data[header.position : header.position + header.size_bytes]
            self.written[header.base_offset] = bytes(part)
        if number % 4 == 0:
            node.log.roll(self.cluster.now_ms)
        other = self.nodes[1 - self.leader]
        other.follow(node)
        if number % 3 == 0:
            other.log.roll(self.cluster.now_ms)

    def do_wait(self, number: int) -> None:
        self.node.pass_time(number * 300)

    def do_both(self, number: int) -> None:
        for node in self.nodes:
            node.pass_time(number * 100)

    def do_hold(self, number: int) -> None:
        names = HELD[: number % len(HELD) + 1]

        def held(effect: Effect) -> bool:
            return getattr(effect, "name", "").startswith(names)

        self.node.held = held

    def do_release(self, number: int) -> None:
        self.node.release()

    def do_local(self, number: int) -> None:
        self.node.expire_local()

    def do_elect(self, number: int) -> None:
        old, other = self.node, self.nodes[1 - self.leader]
        other.follow(old)
        self.epoch += 1
        self.leader = 1 - self.leader
        self._config()
        if number % 2:
            other.lead(self.epoch)
            old.role(is_leader=False, epoch=self.epoch)
        else:
            old.role(is_leader=False, epoch=self.epoch)
            other.lead(self.epoch)

    def do_crash(self, number: int) -> None:
        """The leader dies, with what it held, and comes back leading."""
        old = self.node
        fresh = Node(self.cluster, old.node_id, fs=old.crash(), config=old.log.config, rng=old.rng)
        fresh.log.advance_log_start(old.log.log_start_offset)  # the checkpoint
        fresh.log.advance_high_watermark(fresh.log.log_end_offset)
        self.nodes[self.leader] = fresh.start()
        self.epoch += 1
        fresh.lead(self.epoch)
        self.nodes[1 - self.leader].role(is_leader=False, epoch=self.epoch)

    def do_fault(self, number: int) -> None:
        call = ("copy", "delete")[number % 2]
        self.node.storage.fail(call, StorageError("503"), ("before", "after")[number // 2 % 2])

    def do_append_fault(self, number: int) -> None:
        self.node.append_faults.append(("refused", "lost")[number % 2])

    def do_delete_records(self, number: int) -> None:
        log = self.node.log
        log.advance_log_start(min(log.log_start_offset + number % 4, log.high_watermark))

    def do_retention(self, number: int) -> None:
        self.config = topic_config(retention_bytes=(-1, 200, 600)[number % 3])
        self._config()

    def _config(self) -> None:
        for node in self.nodes:
            node.log.config = self.config

    # ---------------------------------------------------------------------------------- checks

    def check(self) -> None:
        node, log = self.node, self.node.log
        assert log.log_start_offset <= log.local_log_start_offset <= log.log_end_offset
        if log.local_log_start_offset > log.log_start_offset:
            self.check_covered()
        segments = node.tier.services.metadata.segments(WHERE)
        if isinstance(segments, KafkaError):
            return
        ids = [s.segment_id for s in segments]
        assert len(ids) == len(set(ids))
        for segment in segments:
            assert segment.end_offset < max(n.log.last_stable_offset for n in self.nodes)

    def check_covered(self) -> None:
        """Whatever local files no longer have is in finished segments of this history (T2)."""
        node, log = self.node, self.node.log
        segments = node.tier.services.metadata.segments(WHERE)
        if isinstance(segments, KafkaError):
            return
        finished = [s for s in segments if s.state == SegmentState.COPY_FINISHED]
        plan = plan_ranges(
            finished,
            log.epochs.entries(),
            start_offset=log.log_start_offset,
            end_offset=log.local_log_start_offset,
        )
        at = log.log_start_offset
        for _, start, end in plan:
            assert start == at, f"a gap at {at}"
            at = end
        assert at == log.local_log_start_offset, f"a gap at {at}"

    def settle(self) -> None:
        """Faults end; everything catches up; then the books are compared."""
        for node in self.nodes:
            node.storage.faults.clear()
            node.append_faults.clear()
            node.release()
        for _ in range(8):
            for node in self.nodes:
                node.pass_time(10_000)
        node, log = self.node, self.node.log
        wanted = {o: d for o, d in self.written.items() if o >= log.log_start_offset}
        assert node.read_all() == wanted
        segments = node.segments()
        assert all(s.state == SegmentState.COPY_FINISHED for s in segments)
        stored = {k.rpartition(".")[0][-22:] for k in self.cluster.store.objects if k[:4] == "data"}
        assert len(stored) == len(segments), "no orphan, nothing missing (T13)"
        self.check_size()

    def check_size(self) -> None:
        """T15: by a count of its own, what is kept exceeds the limit by less than the oldest segment."""
        log, limit = self.node.log, self.config.retention_bytes
        if limit < 0:
            return
        segments = self.node.segments()
        live = [s for s in segments if Lineage(log.epochs.entries()).holds(s, log.log_end_offset)]
        hosted = self.node.tier._tasks[WHERE].hosted
        covered = hosted.covered_offset(self.node.tier.services.metadata)
        assert isinstance(covered, int)
        total = sum(s.size_bytes for s in live) + self.local_only_bytes(live)
        if live:
            # Those that end inside the oldest one go with it.
            oldest = [s for s in live if s.end_offset <= live[0].end_offset]
            assert total - sum(s.size_bytes for s in oldest) < limit or total <= limit
        upto = hosted.deletes_below
        tier = Listed(
            segments, covered, deletes_below=upto, serves_all=upto >= log.log_start_offset
        )
        again = decided(log, tier, now_ms=self.cluster.now_ms)
        assert again.segments == [], "a second look finds nothing more to do"

    def local_only_bytes(self, live: list[RemoteSegment]) -> int:
        """The bytes of the local segments of which the tier has nothing.

        One that the tier has in part is not counted twice. Nor is the last segment: a new leader may have in
        it what the old one had rolled and copied.
        """
        log = self.node.log
        closed = log.closed_segments()
        last_offset = closed[-1].end_offset + 1 if closed else log.first_base_offset
        last_bytes = log.size_bytes - sum(s.size_bytes for s in closed)
        tier_end = max((s.end_offset for s in live), default=-1)
        local = [(s.base_offset, s.size_bytes) for s in closed] + [(last_offset, last_bytes)]
        begin = max(tier_end + 1, log.log_start_offset)
        return sum(size for base, size in local if base >= begin)


MOVES = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *["produce"] * 4,
                *["wait"] * 4,
                *["local"] * 2,
                *("both", "hold", "release", "elect", "crash", "fault", "append_fault"),
                *("delete_records", "retention"),
            ]
        ),
        st.integers(0, 11),
    ),
    max_size=40,
)


@settings(max_examples=120, deadline=None)
@given(moves=MOVES)
@example(moves=[("produce", 8), ("wait", 0), ("elect", 0), ("retention", 1)])  # all is in both
@example(  # the new leader does not know that more than a file says where the log starts (decision 0042)
    moves=[("produce", 0), ("wait", 0), ("delete_records", 1), ("elect", 0), ("retention", 1)]
)
def test_any_interleaving_keeps_every_record_readable_once(moves: list[tuple[str, int]]) -> None:
    story = Story()
    for what, number in moves:
        story.step(what, number)
        story.check()
    story.settle()
