"""Where a batch went in a log, as a tuple: the append of one batch makes no object of its own. STORE."""

from firnline.base.effects import Appended

# First and last offset, inclusive, the time the log gave it, or -1, and the log start.
Placed = tuple[int, int, int, int]


def appended(placed: Placed) -> Appended:
    """Name what stands where in `placed`."""
    base_offset, last_offset, time_ms, start_offset = placed
    return Appended(
        base_offset=base_offset,
        last_offset=last_offset,
        log_append_time_ms=time_ms,
        log_start_offset=start_offset,
    )
