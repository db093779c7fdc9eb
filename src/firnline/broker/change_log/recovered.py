"""The line about logs that were recovered at a start. PURE."""

from collections.abc import Iterable

from firnline.base.effects import Effects
from firnline.base.log_lines.storage import LOGS_RECOVERED
from firnline.log.log import Log
from firnline.log.recovery import RecoveryReport

_REASON = "the last stop was not clean"


def recovered(logs: Iterable[Log]) -> Effects:
    """Return one line about all logs that were not closed in order, if there are any."""
    reports = [log.recovery for log in logs if isinstance(log.recovery, RecoveryReport)]
    found = [each for each in reports if not each.was_clean]
    if not found:
        return []
    return [
        LOGS_RECOVERED(
            logs=len(found),
            segments=sum(each.segments_scanned for each in found),
            bytes_cut=sum(each.bytes_cut for each in found),
            segments_dropped=sum(each.segments_dropped for each in found),
            reason=_REASON,
        )
    ]
