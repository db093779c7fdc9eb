"""A small tier with everything in it, and readers of it: Spark's path without Spark, and a broker's.

One partition in seven segments: two leader epochs, a gap that a compaction left, transactions, aborted and
open ones, a catalog with a part. Its twin has the same shape and says other things.
"""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from firnline.base.errors import FirnlineError, KafkaError
from firnline.records.batch import headers, set_offset_and_epoch
from firnline.records.build import NewRecord, build_batch
from firnline.records.control import ControlType, encode_key
from firnline.spark.options.parse import Options, parse_options
from firnline.spark.read import read_task
from firnline.spark.schema import ReadSettings
from firnline.tiered.catalog import writer
from firnline.tiered.objects.layout import (
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
)
from firnline.tiered.reads.index_cache import IndexCache
from firnline.tiered.reads.reader import RemoteReader
from firnline.tiered.spi import RemoteSegment
from tests.spark.written_tier import plan_scan
from tests.tier_damage import CUT, EMPTY, FLIP, KINDS, ZEROS, damaged
from tests.worlds.tier import WHERE, Cluster, Node

# The log is the most of a tier, and what is in a catalog comes before all else.
SUFFIXES = (
    LOG, LOG, OFFSET_INDEX, LOG, TIME_INDEX, TXN_INDEX, PRODUCER_SNAPSHOT, LOG, LEADER_EPOCHS, ".jsonl",
    LOG, ".jsonl",
)  # fmt: skip
OLD_SUFFIXES = (LOG, OFFSET_INDEX, LOG, TIME_INDEX, LOG, ".jsonl")
T0 = 1_000_000
TIMES = (T0 + 1_250, T0 + 3_500, T0 + 5_000)


class Fetched(NamedTuple):
    """What a consumer got: batches, and (producer id, first offset) of what was aborted."""

    records: bytes
    aborted: list[tuple[int, int]]


class Outcomes:
    """How many cases ended how."""

    def __init__(self) -> None:
        self.cases = self.refused = self.same = 0


def written(tag: str, *, is_old: bool) -> Node:
    """A leader whose whole history but the active segment is in the tier."""
    node = Node(Cluster()).start()
    if is_old:
        node.storage.custom_metadata = b""
    for offset in (0, 1, 5, 6, 40, 41) if not is_old else range(6):
        batch = bytearray(build_batch([NewRecord(b"k", f"{tag}{offset}".encode(), T0 + offset)]))
        set_offset_and_epoch(batch, 0, offset, 3)
        while node.log.log_end_offset <= offset:  # missing offsets are told twice
            node.log.append_as_follower(batch, leader_epoch=3, now_ms=node.cluster.now_ms)
    node.log.advance_high_watermark(node.log.log_end_offset)
    node.log.roll(node.cluster.now_ms)
    node.lead(4)
    for round_ in range(6):
        epoch = 4 if round_ < 3 else 6
        if round_ == 3:
            node.lead(6)
        _segment(node, epoch, tag, round_)
    node.pass_time(2_000)
    node.expire_local()
    assert node.log.local_log_start_offset > 40 or is_old
    return node


def _segment(node: Node, epoch: int, tag: str, round_: int) -> None:
    """Plain batches of several records, an aborted transaction, and every third time a committed one."""
    for number in range(3):
        node.cluster.now_ms += 100
        rows = [
            NewRecord(b"%d" % i, f"{tag} {round_} {number} {i}".encode(), node.cluster.now_ms)
            for i in range(4)
        ]
        node.log.append_as_leader(
            build_batch(rows), leader_epoch=epoch, now_ms=node.cluster.now_ms, origin="client"
        )
    for producer, kind in ((7, ControlType.ABORT), (8, ControlType.COMMIT))[
        : 1 + (round_ % 3 == 0)
    ]:
        kinds: dict[str, Any] = {
            "producer_id": producer,
            "producer_epoch": 0,
            "is_transactional": True,
        }
        sequence = round_ if producer == 7 else round_ // 3
        node.produce(epoch, f"{tag} txn {round_}", roll=False, base_sequence=sequence, **kinds)
        marker = NewRecord(encode_key(kind), bytes(6), node.cluster.now_ms)
        node.log.append_as_leader(
            build_batch([marker], is_control=True, **kinds),
            leader_epoch=epoch, now_ms=node.cluster.now_ms, origin="coordinator",
        )  # fmt: skip
    node.cluster.now_ms += 700
    node.produce(epoch, f"{tag} tail {round_}")


class World:
    """The tier, its twin, and what every reader sees of it while it is whole."""

    def __init__(self, *, is_old: bool = False) -> None:
        tail, writer.TAIL_ROWS = writer.TAIL_ROWS, 4
        try:
            self.node = written("a", is_old=is_old)
            twin = written("b", is_old=is_old)
        finally:
            writer.TAIL_ROWS = tail
        self.is_old = is_old
        self.store = self.node.cluster.store
        self.objects = dict(self.store.objects)
        others = {_shape(key): data for key, data in twin.cluster.store.objects.items()}
        self.twins = {key: others[_shape(key)] for key in self.objects if _shape(key) in others}
        assert any(self.twins[k] != v and k.endswith(LOG) for k, v in self.objects.items())
        assert any(key.startswith("parts/") for key in self.objects)
        self.end = self.node.log.local_log_start_offset
        self.batches = self._read_batches()
        self.scans: list[tuple[str, Callable[[], Any]]] = [
            (f"spark {options}", lambda o=options: self._scan(o)) for options in self._options()
        ]
        self.fetches: dict[int, int] = {}  # number of the way -> offset
        sizes = (1, 300, 1 << 20)
        for number, offset in enumerate(o for o in range(0, self.end, 3) for _ in sizes):
            self.fetches[len(self.scans) + number] = offset
        self.scans += [
            (f"broker from {offset}, {size} bytes", lambda o=offset, s=size: self._fetch(o, s))
            for offset in range(0, self.end, 3)
            for size in sizes
        ]
        self.scans += [(f"broker at {t}", lambda t=t: self._offset_at(t)) for t in TIMES]
        self.scans += [
            (f"broker aux {s.base_offset}", lambda s=s: self._aux(s)) for s in self.node.segments()
        ]
        self.spark = range(len(self._options()))
        self.brokers = range(len(self.spark), len(self.scans))
        self.sound = [read() for _, read in self.scans]
        assert len(self.sound[0]) > 80 or is_old

    def run(self, seed: int, suffix: str, outcomes: Outcomes) -> None:
        """Damage one object and read by one of Spark's ways, and by three of a broker's."""
        rng = Random(seed)
        kinds = (FLIP, CUT, EMPTY, ZEROS) if self.is_old else tuple(range(len(KINDS)))
        change = damaged(rng, self.objects, self.twins, suffix, kinds)
        if change is None:
            return
        outcomes.cases += 1
        what, after = change
        ways = [rng.choice(self.spark), *rng.choices(self.brokers, k=2), *self._near(rng, what)]
        self.store.objects = after
        try:
            for way in ways:
                name, read = self.scans[way]
                try:
                    found = read()
                except FirnlineError:
                    outcomes.refused += 1
                    continue
                assert _is_same(found, self.sound[way]), f"seed {seed}: {what}: {name}"
                outcomes.same += 1
        finally:
            self.store.objects = dict(self.objects)

    def _near(self, rng: Random, what: str) -> list[int]:
        """Two of a broker's ways that pass over the segment whose object was damaged."""
        name = what.rpartition("/")[2][:20]
        base = int(name) if name.isdecimal() else 0
        near = [w for w, offset in self.fetches.items() if base - 6 <= offset < base + 15]
        return rng.choices(near or self.brokers, k=2)

    # ------------------------------------------------------------------------------ Spark's path

    def _options(self) -> list[Options]:
        committed = {"kafka.isolation.level": "read_committed"}
        middle = f'{{"t": {{"0": {self.end // 2}}}}}'
        given: list[dict[str, str]] = [
            {}, {"splitBytes": "300", "windowBytes": "200"}, committed, {"decoder": "python"},
            {**committed, "decoder": "python"}, {"startingOffsets": middle},
            {"endingOffsets": middle, **committed}, {"startingOffsets": middle, "splitBytes": "200"},
            *({"startingTimestamp": str(time)} for time in TIMES),
            {"endingTimestamp": str(TIMES[1]), "windowBytes": "100"},
        ]  # fmt: skip
        return [parse_options({"tier.uri": "/m", "subscribe": "t", **one}) for one in given]

    def _scan(self, options: Options) -> list[tuple[Any, ...]]:
        how = ReadSettings(
            ("offset", "key", "value", "timestamp"), window_bytes=options.window_bytes,
            decoder=options.decoder,
        )  # fmt: skip
        return [
            tuple(row.values())
            for task in plan_scan(self.store, options)
            for found in read_task(self.store, task, how)
            for row in found.to_pylist()
        ]

    # ----------------------------------------------------------------------------- a broker's path

    def _reader(self) -> RemoteReader:
        """A reader that has no index in memory yet."""
        services = self.node.tier.services
        return RemoteReader(services, IndexCache(services, None), is_distant=False)

    def _ask(self, ask: Callable[[Callable[[Any, int], Any]], Any]) -> Any:
        answers: list[Any] = []

        def then(result: Any, _now_ms: int) -> list[Any]:
            answers.append(result)
            return []

        self.node.run(ask(then))
        while not answers:
            self.node.pass_time(100)
        if isinstance(answers[0], KafkaError):
            raise answers[0]
        return answers[0]

    def _fetch(self, offset: int, max_bytes: int) -> Any:
        found = self._ask(
            lambda then: self._reader().read(
                self.node.tier._tasks[WHERE].hosted, offset=offset, max_bytes=max_bytes,
                isolation=1, then=then, now_ms=self.node.cluster.now_ms,
            )
        )  # fmt: skip
        aborted = sorted((a.producer_id, a.first_offset) for a in found.aborted)
        return Fetched(bytes(found.records), aborted)

    def _offset_at(self, timestamp_ms: int) -> Any:
        return self._ask(
            lambda then: self._reader().offset_for_timestamp(
                self.node.tier._tasks[WHERE].hosted, timestamp_ms, then, self.node.cluster.now_ms
            )
        )

    def _aux(self, segment: RemoteSegment) -> Any:
        epoch, offset = segment.epochs[-1][0], segment.end_offset
        found = self._ask(
            lambda then: self._reader().aux_state(
                self.node.tier._tasks[WHERE].hosted, epoch=epoch, offset=offset, then=then,
                now_ms=self.node.cluster.now_ms,
            )
        )  # fmt: skip
        return found.epochs, found.producer_snapshot

    def _read_batches(self) -> bytes:
        """The whole tier as a consumer gets it; it is whole while it is not damaged."""
        at, out = 0, b""
        while at < self.end:
            data, _ = self._fetch(at, 1 << 20)
            assert data
            out += data
            *_, last = headers(data)
            at = last.next_offset
        return out


def _is_same(found: Any, sound: Any) -> bool:
    """Whether that is what was there. A fetch may stop at a batch: the next one goes on, or says why not."""
    if found == sound or not isinstance(found, Fetched):
        return bool(found == sound)
    *_, last = headers(found.records) if found.records else (None,)
    if last is None or not sound.records.startswith(found.records):
        return False
    return found.aborted == [one for one in sound.aborted if one[1] < last.next_offset]


def _shape(key: str) -> str:
    """What an object is, without what chance or the clock gave it."""
    folder, _, name = key.rpartition("/")
    if folder.startswith("data/"):
        return folder + name[:20] + name[43:]
    return key
