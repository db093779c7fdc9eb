"""Lines about a broker: its groups, and its life with the controller. PURE."""

from firnline.base.log_lines.line import INFO, WARNING, LogLine

_BROKER, _COORDINATOR = "firnline.broker", "firnline.coordinator"
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

GROUPS_REFUSED = LogLine(
    _COORDINATOR,
    WARNING,
    "requests for groups were refused",
    ("count", "host", "host_bytes", "bytes"),
    "Groups use all the memory that they may. `host` sent the last one; `host_bytes` are held for its"
    " members, `bytes` for all.",
    "find out which client there keeps joining groups; firnline.groups.max limits the number of groups",
)
MEMBER_IDS_FORGOTTEN = LogLine(
    _COORDINATOR,
    WARNING,
    "ids of members that never joined were forgotten early",
    ("count", "host"),
    "Most of them were handed out to `host`.",
    "find out which client there keeps joining groups",
)
COORDINATOR_NOT_LOADED = LogLine(
    _COORDINATOR,
    WARNING,
    "groups have no coordinator",
    (*_PARTITION, "error"),
    "Their records in this partition cannot be read; it is tried again.",
)
INTERNAL_TOPIC_NOT_CREATED = LogLine(
    _BROKER,
    WARNING,
    "an internal topic could not be created",
    ("topic", "error"),
    "Clients see COORDINATOR_NOT_AVAILABLE. The next request that needs it tries again.",
)
SUPERSEDED = LogLine(
    _BROKER,
    WARNING,
    "this broker is registered by another process, or unregistered",
    ("broker",),
    "The controllers refuse this process for good: it leads and follows nothing. Said once a minute.",
    "start it again; if two nodes have the same node.id, give one an id and log directories of its own",
)
CONTROLLER_SILENT = LogLine(
    _BROKER,
    WARNING,
    "the active controller does not answer",
    ("reason",),
    "This broker is fenced if that goes on for broker.session.timeout.ms.",
)
NOT_UNFENCED = LogLine(
    _BROKER,
    WARNING,
    "the controller does not unfence this broker",
    ("error",),
    "It refuses its registration or its heartbeats. Each error is logged once.",
)

LINES: tuple[LogLine, ...] = tuple(
    each for each in list(vars().values()) if isinstance(each, LogLine)
)
