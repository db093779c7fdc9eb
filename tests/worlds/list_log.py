"""A partition log kept in a list: what `replica` and `broker` see of `log.Log`, nothing on disk."""

from collections.abc import Callable, Generator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from firnline.base.effects import Appended, Effects
from firnline.base.errors import KafkaError, StorageError
from firnline.base.ids import TopicPartition
from firnline.base.slices import FileRecords, FileSlice
from firnline.config.topic import TopicConfig
from firnline.log.settings import LogSettings, log_settings
from firnline.records.batch import HEADER_BYTES, parse_header, set_offset_and_epoch
from firnline.records.build import NewRecord, build_batch
from firnline.replica.partition import FsyncRule, Partition

NODE_ID = 1
TOPIC_ID = b"\x07" * 16


class Bytes:
    """A File of given bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.path = "/memory"

    def read(self, position: int, size: int) -> bytes:
        return self.data[position : position + size]

    def sync(self) -> None:
        """Memory is as durable as it gets."""


class Aborted(NamedTuple):
    """One aborted transaction."""

    producer_id: int
    first_offset: int


class ListEpochs:
    """(epoch, start offset) pairs."""

    def __init__(self) -> None:
        self.pairs: list[tuple[int, int]] = []

    @property
    def latest_epoch(self) -> int:
        return self.pairs[-1][0] if self.pairs else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        self.pairs.append((epoch, start_offset))

    def epoch_at(self, offset: int) -> int | None:
        return max((e for e, start in self.pairs if start <= offset), default=None)

    def entries(self) -> tuple[tuple[int, int], ...]:
        return tuple(self.pairs)

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        known = [(e, s) for e, s in self.pairs if e <= epoch]
        later = [s for e, s in self.pairs if e > epoch]
        if not known:
            return (epoch, later[0]) if later else (-1, -1)
        return known[-1][0], later[0] if later else log_end


class ListLog:
    """Batches in a list. Tests set the offsets they need; `fail_next` makes an append fail."""

    def __init__(self, topic: str = "t", index: int = 0, topic_id: bytes = TOPIC_ID) -> None:
        self.topic_partition = TopicPartition(topic, index)
        self.topic_id = topic_id
        self.compaction = SimpleNamespace(swaps=0, may_have_gaps=False)
        self.path = f"/{topic}-{index}"
        self.config = TopicConfig()
        self.recovery: object = None
        self.truncation: object = None
        self.is_half_cut = False
        self.waiters: list[Callable[[int], Effects]] = []  # until the truncation is over
        self.epochs = ListEpochs()
        self.batches: list[tuple[int, bytes]] = []  # last offset, bytes
        self.log_start_offset = self.decided_start_offset = 0
        self.is_tiered = False
        self.local_log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.open_transaction_offset: int | None = None
        self.highest_remote_offset = -1
        self.aborted: list[Aborted] = []
        self.dirty: list[Any] = []
        self.flushed_to = 0
        self.recovery_point = 0
        self.refuse_next: KafkaError | None = None
        self.fail_next = False
        self.fail_error = "EIO"
        self.times: list[tuple[int, int]] = []  # offset, timestamp

    @property
    def settings(self) -> LogSettings:
        return log_settings(self.config, self.path)

    @property
    def last_stable_offset(self) -> int:
        stable = self.open_transaction_offset
        return self.high_watermark if stable is None else min(stable, self.high_watermark)

    def append_checked(
        self, data: Any, fields: tuple[int, ...], leader_epoch: int, now_ms: int
    ) -> Appended | KafkaError:
        assert fields[1] == len(data) - 12
        return self.append_as_leader(data, leader_epoch, now_ms)

    def append_as_leader(
        self, data: Any, leader_epoch: int, now_ms: int, origin: str = "client"
    ) -> Appended | KafkaError:
        if self.fail_next:
            raise StorageError("cannot append", error=self.fail_error)
        if self.refuse_next is not None:
            refused, self.refuse_next = self.refuse_next, None
            return refused
        base = self.log_end_offset
        set_offset_and_epoch(data, 0, base, leader_epoch)
        header = parse_header(data)
        self.batches.append((header.last_offset, bytes(data)))
        self.log_end_offset = header.next_offset
        self.dirty = [Bytes(b"")]
        return Appended(
            base_offset=base,
            last_offset=header.last_offset,
            log_append_time_ms=-1,
            log_start_offset=self.log_start_offset,
        )

    def read(
        self,
        start_offset: int,
        *,
        max_bytes: int,
        upto_offset: int,
        min_one_batch: bool = True,
        may_wait: bool = False,
    ) -> FileRecords:
        slices: list[FileSlice] = []
        left = max_bytes
        for last, data in self.batches:
            if last < start_offset or last >= upto_offset:
                continue
            if len(data) > left and (slices or not min_one_batch):
                break
            left -= len(data)
            slices.append(FileSlice(Bytes(data), 0, len(data)))  # type: ignore[arg-type]
        return FileRecords(slices)

    def slice_at_once(
        self, start_offset: int, max_bytes: int, upto_offset: int
    ) -> FileSlice | None:
        found = self.read(
            start_offset, max_bytes=max_bytes, upto_offset=upto_offset, min_one_batch=False
        )
        data = found.read()
        return FileSlice(Bytes(data), 0, len(data)) if data else None  # type: ignore[arg-type]

    def after_truncation(self, then: Callable[[int], Effects], now_ms: int) -> Effects:
        assert self.truncation is not None
        self.waiters.append(then)
        return []

    def end_truncation(self) -> Effects:
        """The truncation is over."""
        self.truncation = None
        waiters, self.waiters = self.waiters, []
        return [effect for then in waiters for effect in then(0)]

    def aborted_transactions(self, start_offset: int, upto_offset: int) -> Sequence[Aborted]:
        return [a for a in self.aborted if a.first_offset < upto_offset]

    def advance_high_watermark(self, offset: int) -> None:
        assert offset >= self.high_watermark
        self.high_watermark = offset

    def advance_log_start(self, offset: int) -> None:
        self.decided_start_offset = max(self.decided_start_offset, offset)
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        self.local_log_start_offset = max(self.local_log_start_offset, offset)
        floor = max((p for p in self.epochs.pairs if p[1] <= offset), default=None)
        later = [p for p in self.epochs.pairs if p[1] > offset]
        self.epochs.pairs = ([] if floor is None else [(floor[0], offset)]) + later

    def dirty_files(self) -> list[Any]:
        return self.dirty

    def flushed(self, upto_offset: int) -> None:
        self.flushed_to = self.recovery_point = upto_offset
        if upto_offset >= self.log_end_offset:
            self.dirty = []

    def have_indexes_built(self, want: object) -> None:
        """There are none."""

    def time_steps(
        self, timestamp_ms: int, *, may_wait: bool = False
    ) -> Generator[None, None, tuple[int, int] | None]:
        yield from ()
        return next((p for p in self.times if p[1] >= timestamp_ms), None)

    def greatest_time_steps(
        self, *, may_wait: bool = False
    ) -> Generator[None, None, tuple[int, int] | None]:
        yield from ()
        return max(self.times, key=lambda p: p[1], default=None)


def batch(records: int = 1, size_bytes: int = 10) -> bytearray:
    """One batch of `records` records, `size_bytes` of value in each."""
    return build_batch([NewRecord(b"k", b"v" * size_bytes, 1000 + i) for i in range(records)])


def batch_bytes(records: int = 1, size_bytes: int = 10) -> int:
    size = len(batch(records, size_bytes))
    assert size > HEADER_BYTES
    return size


def log_of(partition: Partition) -> ListLog:
    log: Any = partition.log
    assert isinstance(log, ListLog)
    return log


def partition(
    topic: str = "t",
    index: int = 0,
    *,
    fsync_rule: FsyncRule = "never",
    isr: tuple[int, ...] = (NODE_ID,),
    leader_id: int = NODE_ID,
    leader_epoch: int = 3,
    topic_id: bytes = TOPIC_ID,
) -> Partition:
    """A partition on a ListLog, led by us unless said otherwise."""
    log: Any = ListLog(topic, index, topic_id)
    made = Partition(log, node_id=NODE_ID, fsync_rule=fsync_rule)
    made.update(
        leader_id=leader_id, leader_epoch=leader_epoch, partition_epoch=0, replicas=isr, isr=isr
    )
    return made
