"""What the coordinator reads of its partition while the log goes on changing."""

from types import SimpleNamespace
from typing import cast

import pytest

from firnline.broker import coordination
from firnline.log.log import Log
from firnline.replica.partition import Partition
from firnline.sim.disk import CrashableFs
from tests.worlds.log import NOW, fill, flush, found_headers, opened, small


def test_retention_during_a_load_takes_nothing_but_what_it_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slice that asked for what had gone stopped the node."""
    monkeypatch.setattr(coordination, "LOAD_STEP_BYTES", 100)
    log: Log = opened(CrashableFs(), small(segment_bytes=300))
    fill(log, 40)
    flush(log)
    log.advance_high_watermark(log.log_end_offset)
    batches = coordination.batches_of(cast(Partition, SimpleNamespace(log=log)))
    next(batches)
    log.advance_log_start(30)
    assert log.delete_due_segments(NOW)
    assert log.first_base_offset > 1
    wanted = b"".join(log.read_batches(h.base_offset, max_bytes=1) for h in found_headers(log))
    assert wanted.endswith(b"".join(batches)[-60:])
