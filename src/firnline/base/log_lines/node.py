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
    (*_PARTITION, "took_ms", "leader_epoch"),
    "This broker coordinates the groups of one partition of __consumer_offsets from now on.",
)
COORDINATORS_LOADED = LogLine(
    _COORDINATOR,
    INFO,
    "more coordinators loaded",
    ("count", "examples"),
    "The sum of `coordinator loaded` beyond the first ten of a second.",
)
COORDINATOR_UNLOADED = LogLine(
    _COORDINATOR,
    INFO,
    "coordinator unloaded",
    (*_PARTITION, "leader_epoch"),
    "Another broker coordinates the groups of one partition of __consumer_offsets, or none. The epoch is the"
    " one in which this broker led.",
)
COORDINATORS_UNLOADED = LogLine(
    _COORDINATOR,
    INFO,
    "more coordinators unloaded",
    ("count", "examples"),
    "The sum of `coordinator unloaded` beyond the first ten of a second.",
)

LOG_TRUNCATED = LogLine(
    _LOG,
    INFO,
    "log truncated",
    ("log", "from_offset", "to_offset", "records"),
    "A follower has removed records that its leader does not have. They were never committed, unless an"
    " unclean election came before: then a warning names them.",
)
LOG_BEGUN_ANEW = LogLine(
    _LOG,
    INFO,
    "log begun anew",
    ("log", "was_offset", "at_offset"),
    "A follower has dropped its local log, because that of its leader begins after the end of it, or because"
    " the rest is in the tier.",
)
LOGS_RECOVERED = LogLine(
    _LOG,
    INFO,
    "logs recovered",
    ("logs", "segments", "bytes_cut", "segments_dropped", "reason"),
    "At a start after a crash the ends of logs were checked. `bytes_cut`: what was not written whole; a"
    " warning names each log that lost something.",
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
    (*_PARTITION, "base_offset", "end_offset", "segment_id"),
    "Retention, or the deletion of the topic, has removed a segment from the tier.",
)

REQUEST_REFUSED = LogLine(
    _NET,
    WARNING,
    "request refused",
    ("host", "reason"),
    "A client sent what this broker does not serve or understand: another protocol, an API or version that it"
    " does not have, damaged bytes. Its connection is closed.",
)
LEVEL_CHANGED = LogLine(
    "firnline.config",
    WARNING,
    "log level changed",
    ("logger", "level", "is_own"),
    "A client set the level of a logger, or, with `is_own=false`, made it follow the logger above it. The"
    " level holds until this process stops.",
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
