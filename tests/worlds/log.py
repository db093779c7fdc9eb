"""What tests of the log share: a seeded Rng, batches, a log on a disk that can lose power."""

import struct
from dataclasses import replace
from typing import Any

from crc32c import crc32c

from firnline.base.background import run_to_completion
from firnline.base.effects import Appended
from firnline.base.errors import KafkaError
from firnline.base.ids import TopicPartition
from firnline.base.ports import Buffer, Fs
from firnline.base.slices import FileRecords
from firnline.config.topic import TopicConfig
from firnline.formats.producer_snapshot import SnapshotEntry
from firnline.log.log import Log
from firnline.log.producer_state import latest_snapshot, snapshot_offsets
from firnline.log.recovery import open_log
from firnline.records.batch import BatchHeader, headers
from firnline.records.build import NewRecord, build_batch
from firnline.records.record import Record, records
from firnline.records.validate import BatchLimits, check_limits, check_shape

TP = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))
PATH = "/data/t-0"
NOW = 1_700_000_000_000
ABORT, COMMIT = 0, 1


def batch(
    *values: bytes | str | None,
    key: bytes | None = b"k",
    time_ms: int = NOW,
    pid: int = -1,
    epoch: int = 0,
    seq: int = -1,
    **more: Any,
) -> bytearray:
    """Return one batch of records with these values, as a producer sends it."""
    rows = [
        NewRecord(key, v.encode() if isinstance(v, str) else v, time_ms) for v in values or ("v",)
    ]
    if pid >= 0:
        more |= {"producer_id": pid, "producer_epoch": epoch, "base_sequence": seq}
    return build_batch(rows, **more)


def marker(pid: int, kind: int, *, epoch: int = 0, coordinator_epoch: int = 0) -> bytearray:
    """Return the control batch that ends a transaction."""
    return build_batch(
        [NewRecord(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator_epoch), NOW)],
        producer_id=pid,
        producer_epoch=epoch,
        is_transactional=True,
        is_control=True,
    )


def patched(
    data: bytearray, kind: str, position: int, value: int, *, fix_crc: bool = True
) -> bytearray:
    """Overwrite one field of a batch; the CRC is made right again unless it is to be wrong."""
    struct.pack_into(kind, data, position, value)
    if fix_crc:
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return data


def small(**changes: Any) -> TopicConfig:
    """Return settings under which a few batches roll a segment and fill indexes."""
    base = {"segment_bytes": 1000, "index_interval_bytes": 200, "segment_index_bytes": 1200}
    return replace(TopicConfig(), **(base | changes))


def opened(fs: Fs, config: TopicConfig | None = None, *, partition: int = 0, **more: Any) -> Log:
    """Open the test's log as a start of the node would."""
    config, where = config or small(), TP._replace(partition=partition)
    return open_log(fs, PATH, where, topic_id=TOPIC_ID, config=config, now_ms=NOW, **more)


def append(
    log: Log, data: bytearray, *, epoch: int = 0, now_ms: int = NOW, **more: Any
) -> Appended:
    """Append as the leader; anything but success fails the test."""
    done = log.append_as_leader(data, leader_epoch=epoch, now_ms=now_ms, **more)
    assert isinstance(done, Appended), done
    return done


def fill(log: Log, count: int, *, size: int = 40, **more: Any) -> None:
    """Append so many batches of one record."""
    for number in range(count):
        append(log, batch(f"{number:0{size}d}", **more))


def refused(log: Log, data: bytearray, **more: Any) -> KafkaError:
    """Append what has to be refused; return why, and check that nothing was written."""
    end, size = log.log_end_offset, log.size_bytes
    found = log.append_as_leader(data, leader_epoch=0, now_ms=NOW, **more)
    assert isinstance(found, KafkaError), found
    assert (log.log_end_offset, log.size_bytes) == (end, size)
    return found


def check_client_batch(data: Buffer, limits: BatchLimits, now_ms: int) -> BatchHeader | KafkaError:
    """Validate a batch as `Log.append_as_leader` does; return its header, or why it is refused."""
    found = check_shape(data, limits)
    if isinstance(found, KafkaError):
        return found
    return check_limits(found, data, limits, now_ms) or BatchHeader(*found)


def newest_snapshot(fs: Fs, *, upto_offset: int) -> tuple[int, list[SnapshotEntry]] | None:
    """Return (offset, entries) of the newest undamaged producer snapshot at or below `upto_offset`."""
    found = latest_snapshot(fs, PATH, snapshot_offsets(fs, PATH), upto_offset=upto_offset)
    return None if found is None else (found[0], list(found[1]))


def has_open_transaction(log: Log, pid: int) -> bool:
    """Whether a producer has an open transaction in the log."""
    producer = log.producers.get(pid)
    return producer is not None and producer.txn_first_offset >= 0


def end_txn(log: Log, pid: int, kind: int, *, leader_epoch: int = 0, **more: Any) -> Appended:
    """End a transaction as its coordinator does."""
    return append(log, marker(pid, kind, **more), epoch=leader_epoch, origin="coordinator")


def read_all(log: Log, start: int | None = None) -> FileRecords:
    """Return everything from `start`, by default the local start, to the log end."""
    start = log.local_log_start_offset if start is None else start
    return log.read(start, max_bytes=1 << 30, upto_offset=log.log_end_offset)


def found_headers(log: Log, start: int | None = None) -> list[BatchHeader]:
    """Return the headers of all batches, read through the log."""
    return list(headers(read_all(log, start).read()))


def found_records(log: Log, start: int | None = None) -> list[Record]:
    """Return all records, control records too, read through the log."""
    data = read_all(log, start).read()
    return [record for header in headers(data) for record in records(data, header)]


def flush(log: Log) -> None:
    """Do what a Flush does, and report it."""
    end = log.log_end_offset
    files = log.dirty_files()
    for file in files:
        file.sync()
    log.flushed(end)


def offset_at_time(log: Log, timestamp_ms: int) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first local record with at least that timestamp."""
    return run_to_completion(log.time_steps(timestamp_ms))


def greatest_time(log: Log) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first local record with the greatest timestamp."""
    return run_to_completion(log.greatest_time_steps())
