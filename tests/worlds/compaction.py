"""What tests of compaction share: a small log, a round over it, and what a reader finds afterwards."""

from dataclasses import replace

from firnline.base.effects import Effects
from firnline.base.ports import Fs
from firnline.config.topic import TopicConfig
from firnline.log.compaction.rounds import RoundDone, compact
from firnline.log.compaction.state import RoundRules
from firnline.log.log import Log
from firnline.records.batch import headers
from firnline.records.record import Record, records
from tests.worlds.log import NOW, append, batch, flush, read_all, small

RULES = RoundRules(map_bytes=1 << 20, load_factor=0.9, bytes_per_second=1e300, secret=bytes(16))


def compacted(**changes: object) -> TopicConfig:
    """Return the settings of a small topic that is compacted as soon as anything is dirty."""
    base = {"cleanup_policy": ("compact",), "min_cleanable_dirty_ratio": 0.0, "segment_bytes": 400}
    return replace(small(), **(base | changes))  # type: ignore[arg-type]


def put(log: Log, key: str, value: str | None, **more: object) -> int:
    """Append one record; return its offset."""
    return append(log, batch(value, key=key.encode(), **more)).base_offset  # type: ignore[arg-type]


def settled(log: Log) -> None:
    """All is on disk and below the high watermark, and nothing is in the active segment."""
    log.roll(NOW)
    flush(log)
    flush(log)  # the name of the lineage's file, too
    log.advance_high_watermark(log.log_end_offset)


def round_of(
    fs: Fs, log: Log, *, now_ms: int = NOW, rules: RoundRules = RULES
) -> tuple[RoundDone | None, Effects]:
    """Do a round if one is due, here and now."""
    due = log.compaction.log_to_clean(now_ms)
    if not log.compaction.is_due(due):
        return None, []
    job, cuts = log.compaction.job(due, rules, now_ms), log.compaction.cuts
    effects: Effects = []
    running = compact(fs, job)
    while True:
        try:
            group = next(running)
        except StopIteration as stop:
            done: RoundDone = stop.value
            break
        put_in = log.compaction.put(group, cuts, now_ms)
        assert put_in is not None
        effects += put_in
    assert log.compaction.done(done, cuts)
    return done, effects


def rows(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return (offset, key, value) of every record, markers left out."""
    return [(r.offset, r.key, r.value) for r in data_records(log)]


def data_records(log: Log) -> list[Record]:
    """Return every record, markers left out."""
    data = read_all(log).read()
    return [
        record
        for header in headers(data)
        if not header.is_control
        for record in records(data, header)
    ]
