"""Each invariant that a docstring names is asserted where it could be broken: here it is broken."""

from typing import Any

import pytest

from firnline.log.truncation import _assert_in_order
from tests.worlds.list_log import ListLog, partition


def test_the_maximal_isr_holds_all_of_the_isr() -> None:
    p = partition(isr=(1, 2))
    p._assert_isr()
    p.maximal_isr = (1,)
    with pytest.raises(AssertionError, match="maximal ISR"):
        p._assert_isr()


def test_nobody_else_counts_where_a_partition_is_alone() -> None:
    p = partition(isr=(1, 2))
    p.is_alone = True
    with pytest.raises(AssertionError, match="no other replica counts"):
        p._assert_isr()


@pytest.mark.parametrize(
    "broken",
    [{"log_start_offset": 3}, {"local_log_start_offset": 9}, {"high_watermark": 9}],
)
def test_a_cut_leaves_the_offsets_of_a_log_in_order(broken: dict[str, int]) -> None:
    log: Any = ListLog("t", 0, bytes(16))
    log.log_start_offset, log.local_log_start_offset = 1, 2
    log.log_end_offset, log.high_watermark = 5, 4
    _assert_in_order(log)
    for name, value in broken.items():
        setattr(log, name, value)
    with pytest.raises(AssertionError):
        _assert_in_order(log)
