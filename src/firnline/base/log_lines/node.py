"""Lines about what one node does: its logs, groups, tier, and the requests that it refuses. PURE."""

from firnline.base.log_lines.line import DEBUG, INFO, WARNING, LogLine

_COORDINATOR, _LOG, _NET, _TIERED = (
    "firnline.coordinator",
    "firnline.log",
    "firnline.net",
    "firnline.tiered",
)
_PARTITION = ("topic", "partition")

REBALANCE_BEGAN = LogLine(
    _COORDINATOR,
    INFO,
    "group rebalance began",
    ("group", "reason", "member", "client_id", "host", "members", "generation"),
    "The members of a group have to join again. Reasons: `member joined`, `member left`, `session expired`,"
    " `subscription changed`, `the leader joined again`, `static member came back`, `member did not sync`,"
    " `the assignment was not written`, `the group is larger than group.max.size`. `member`, `client_id` and"
    " `host`: who caused it.",
)
REBALANCE_ENDED = LogLine(
    _COORDINATOR,
    INFO,
    "group rebalance ended",
    ("group", "generation", "members", "protocol", "took_ms"),
    "The members have their assignments, and consume.",
)
GROUP_EMPTY = LogLine(
    _COORDINATOR,
    INFO,
    "group is empty",
    ("group", "generation"),
    "The last member has left; the offsets stay until offsets.retention.minutes is over.",
)
COORDINATOR_LOADED = LogLine(
    _COORDINATOR,
    INFO,
    "coordinator loaded",
    (*_PARTITION, "groups", "took_ms", "leader_epoch"),
    "This broker coordinates the groups of one partition of __consumer_offsets from now on.",
)
COORDINATOR_UNLOADED = LogLine(
    _COORDINATOR,
    INFO,
    "coordinator unloaded",
    _PARTITION,
    "Another broker coordinates the groups of one partition of __consumer_offsets, or none.",
)

LOG_TRUNCATED = LogLine(
    _LOG,
    INFO,
    "log truncated",
    (*_PARTITION, "to_offset", "from_offset", "records", "leader", "leader_epoch", "reason"),
    "A follower has removed records that its leader does not have; they were never committed, unless an"
    " unclean"
    " election came before.",
)
LOG_BEGUN_ANEW = LogLine(
    _LOG,
    INFO,
    "log begun anew",
    (*_PARTITION, "at_offset", "end_offset", "leader", "leader_epoch", "reason"),
    "A follower has dropped its whole log, because its leader's begins after the end of it.",
)
LOGS_RECOVERED = LogLine(
    _LOG,
    INFO,
    "logs recovered",
    ("directory", "logs", "segments", "bytes", "reason"),
    "Logs were checked at a start after a crash.",
)

SEGMENT_COPIED = LogLine(
    _TIERED,
    DEBUG,
    "segment copied",
    (*_PARTITION, "base_offset", "end_offset", "bytes", "segment_id", "leader_epoch"),
    "A segment is in the tier, and its metadata says so.",
)
SEGMENT_REMOVED = LogLine(
    _TIERED,
    DEBUG,
    "segment removed from the tier",
    (*_PARTITION, "base_offset", "end_offset", "segment_id", "reason"),
    "Retention, or the deletion of the topic, has removed a segment from the tier.",
)

REQUEST_REFUSED = LogLine(
    _NET,
    WARNING,
    "request refused",
    ("api", "client_id", "host", "reason"),
    "A client asks for what this broker does not do, or in a way that it does not understand.",
)
LINES_LEFT_OUT = LogLine(
    "firnline",
    INFO,
    "lines left out",
    ("logger", "message", "count"),
    "So many lines of one kind were not logged, because they came faster than one a second.",
)

LINES: tuple[LogLine, ...] = tuple(
    each for each in list(vars().values()) if isinstance(each, LogLine)
)
