"""The settings of the quorum that an operator may change. PURE. Source: spec 1.4."""

from typing import NamedTuple

# Fixed in Kafka too (spec 1.4, 'Fixed').
FETCH_WAIT_MAX_MS = 500
CLEANING_INTERVAL_MS = 60_000
OBSERVER_SILENCE_MAX_MS = 300_000
BACKOFF_BASE_MS = 100
BACKOFF_DOUBLINGS_MAX = 20
# How long a leader that shuts down waits for its successor (Q28).
RESIGN_WAIT_MAX_MS = 5_000


class QuorumSettings(NamedTuple):
    """`controller.quorum.*`, `metadata.max.retention.*` and the lag bound of KIP-630 (Q51)."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_bytes: int = 1024 * 1024
    fetch_snapshot_max_bytes: int = 1024 * 1024
    retention_max_bytes: int = 100 * 1024 * 1024
    retention_max_ms: int = 7 * 24 * 3600 * 1000
    start_offset_lag_time_max_ms: int = 0
    # First of controller.listener.names: the listener whose address voters learn from BeginQuorumEpoch.
    listener_name: str = "CONTROLLER"
    # Only the simulator changes it, because a minute is too long for it.
    cleaning_interval_ms: int = CLEANING_INTERVAL_MS
