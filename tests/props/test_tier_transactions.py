"""Transactions in the tier: read_committed gets from it what it got from the local log. rel-T3, rel-T19.

Brokers of Kafka wrote such logs. Transactions of several producers begin, end and stay open in any order,
segments roll anywhere, leaders change and crash, and after each of these the local files go.
"""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.base.errors import KafkaError
from firnline.formats.transaction_index import AbortedTxn
from firnline.records.batch import headers
from tests.worlds.tier import Cluster, Node

PRODUCERS = (1, 2, 3)
ALL = 1 << 20


class Aborted(NamedTuple):
    """A transaction that was aborted: its first offset, and that of its marker."""

    producer_id: int
    first_offset: int
    marker_offset: int

    def concerns(self, start: int, end: int) -> bool:
        return self.marker_offset >= start and self.first_offset < end


class Story:
    """Two nodes with replicas of one partition; exactly one leads. What is aborted is written down here."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.nodes = [Node(self.cluster, 1).start(), Node(self.cluster, 2).start()]
        self.leader = self.epoch = self.generation = 0
        self.open: dict[int, int] = {}  # producer id -> first offset
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.aborted: list[Aborted] = []
        self.written: dict[int, bytes] = {}
        self.nodes[0].lead(0)
        self.nodes[1].role(is_leader=False, epoch=0)

    @property
    def node(self) -> Node:
        return self.nodes[self.leader]

    @property
    def stable_offset(self) -> int:
        """Where the first open transaction begins; rel-T3 looks at it after each step."""
        return min(self.open.values(), default=self.node.log.high_watermark)

    def step(self, what: str, number: int) -> None:
        getattr(self, "do_" + what)(number)
        copied = [each.end_offset for node in self.nodes for each in node.segments()]
        assert max(copied, default=-1) < self.stable_offset, "rel-T3: it is copied while it is open"

    def _appended(self, at: int) -> None:
        self.written[at] = bytes(self.node.log.read_batches(at, max_bytes=ALL))
        self.nodes[1 - self.leader].follow(self.node)

    def do_plain(self, number: int) -> None:
        at = self.node.log.log_end_offset
        self.node.produce(self.epoch, "p" * (number + 1), roll=number % 3 == 0)
        self._appended(at)

    def do_send(self, number: int) -> None:
        """A batch of a transaction, which begins with it or goes on."""
        producer, at = PRODUCERS[number % len(PRODUCERS)], self.node.log.log_end_offset
        self.node.produce(
            self.epoch,
            "t" * (number + 1),
            roll=number % 4 == 0,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=self.sequences[producer],
            is_transactional=True,
        )
        self._appended(at)
        self.sequences[producer] += 1
        self.open.setdefault(producer, at)

    def do_end(self, number: int) -> None:
        """The oldest transaction, or another one, ends."""
        if not self.open:
            return
        producer = list(self.open)[number % len(self.open)]
        commits, at = number % 3 == 0, self.node.log.log_end_offset
        self.node.end_transaction(self.epoch, producer, is_commit=commits, roll=number % 2 == 0)
        self._appended(at)
        first = self.open.pop(producer)
        if not commits:
            self.aborted.append(Aborted(producer, first, at))

    def do_wait(self, number: int) -> None:
        self.node.pass_time(number * 300)

    def do_change_leader(self, number: int) -> None:
        other = self.nodes[1 - self.leader]
        other.follow(self.node)
        other.log.roll(self.cluster.now_ms)
        self.epoch += 1
        self.node.role(is_leader=False, epoch=self.epoch)
        self.leader = 1 - self.leader
        self.node.lead(self.epoch)

    def do_restart(self, number: int) -> None:
        """The leader crashes, recovers its log, and leads again."""
        dead = self.node
        fs = dead.crash()
        self.nodes[self.leader] = Node(self.cluster, dead.node_id, fs=fs, rng=dead.rng).start()
        self.epoch += 1
        self.node.lead(self.epoch)
        self.node.log.advance_high_watermark(self.node.log.log_end_offset)

    def do_look(self, number: int) -> None:
        """Read what the local log has, let it go, and read it again."""
        node = self.node
        start, end = node.log.local_log_start_offset, self.stable_offset
        before = {at: _pairs(node.log.aborted_transactions(at, at + 1)) for at in range(start, end)}
        node.pass_time(2_000)
        node.expire_local()
        for at in range(min(node.log.local_log_start_offset, end)):
            max_bytes = 1 if number % 2 else ALL
            self._check(node, at, max_bytes)
            if at in before and max_bytes == 1:
                assert self._read(node, at, 1)[1] == before[at], "rel-T19"

    def _read(self, node: Node, offset: int, max_bytes: int) -> tuple[int, set[tuple[int, int]]]:
        """Return the offset after what is read, and (producer id, first offset) of the list."""
        result = node.read(offset, max_bytes=max_bytes, isolation=1)
        assert not isinstance(result, KafkaError), (offset, result)
        data, end = bytes(result.records), offset
        for header in headers(data):
            batch = data[header.position : header.position + header.size_bytes]
            assert batch == self.written[header.base_offset]
            end = header.next_offset
        assert offset < end <= self.stable_offset
        assert len(_pairs(result.aborted)) == len(result.aborted), "one is there twice"
        return end, _pairs(result.aborted)

    def _check(self, node: Node, offset: int, max_bytes: int) -> None:
        """All that concern what is read are there, and nothing that is not aborted."""
        end, found = self._read(node, offset, max_bytes)
        needed = {each[:2] for each in self.aborted if each.concerns(offset, end)}
        known = {each[:2] for each in self.aborted if each.marker_offset >= offset}
        assert needed <= found <= known, (offset, end)


def _pairs(rows: list[AbortedTxn]) -> set[tuple[int, int]]:
    return {(row.producer_id, row.first_offset) for row in rows}


STEPS = ("plain", "send", "send", "send", "end", "end", "wait", "look", "change_leader", "restart")


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), min_size=8, max_size=40))
@settings(max_examples=150, deadline=None)
def test_read_committed_gets_from_the_tier_what_it_got_from_the_log(
    steps: list[tuple[str, int]],
) -> None:
    story = Story()
    for what, number in steps:
        story.step(what, number)
    for number in range(12):  # all transactions end, and everything is looked at once more
        story.step("end", number)
    story.step("plain", 0)
    story.step("look", 0)
    story.step("look", 1)
