"""Lines about the metadata quorum, and snapshots of the metadata. PURE."""

from firnline.base.log_lines.line import DEBUG, ERROR, INFO, WARNING, LogLine

_METADATA, _RAFT = "firnline.metadata", "firnline.raft"
_ONLY_CLUSTER = "let only controllers and brokers reach the listener of the controllers"

SNAPSHOT_TAKEN = LogLine(
    _METADATA,
    DEBUG,
    "metadata snapshot taken",
    ("snapshot", "bytes", "records", "took_ms"),
    "The metadata up to an offset is in one file, so that the log before it can go.",
)
SNAPSHOT_FAILED = LogLine(
    _METADATA,
    WARNING,
    "metadata snapshot not taken",
    ("error", "next_try_s"),
    "The log of the metadata is kept, and grows, until one is taken.",
    "look at the space and the state of the disk",
)
SNAPSHOT_RETIRED = LogLine(
    _METADATA,
    DEBUG,
    "metadata snapshot retired",
    ("snapshot", "log_start_offset"),
    "A newer one replaces it: the log begins at `log_start_offset` now.",
)
SNAPSHOT_DAMAGED = LogLine(
    _METADATA,
    WARNING,
    "metadata snapshot is damaged",
    ("path", "renamed_to", "error"),
    "An older snapshot and the log replace it, or the snapshot of the leader does.",
    "look at the disk",
)
SNAPSHOT_USELESS = LogLine(
    _METADATA,
    WARNING,
    "another node cannot load the metadata snapshot",
    ("node", "snapshot"),
    "It fetched it several times in vain. This node takes another one.",
    "look at the disks of both nodes",
)
SNAPSHOT_LOADED = LogLine(
    _METADATA,
    INFO,
    "metadata snapshot loaded",
    ("snapshot", "records", "took_ms"),
    "The node knows the metadata up to that snapshot.",
)
SNAPSHOT_FETCHED = LogLine(
    _RAFT,
    INFO,
    "metadata snapshot fetched",
    ("end_offset", "epoch", "from_node", "took_ms"),
    "This node was so far behind that its leader has the log no more.",
)
VOTER_BARRED = LogLine(
    _RAFT,
    WARNING,
    "this voter has lost metadata: it neither votes nor stands for election",
    ("node", "offset", "epoch"),
    "It had promised to keep everything up to that offset. It takes part again once it"
    " has fetched that.",
)
VOTER_BACK = LogLine(
    _RAFT,
    WARNING,
    "this voter takes part in elections again",
    ("node",),
    "It has fetched what it had lost.",
)
EPOCH_REFUSED = LogLine(
    _RAFT,
    WARNING,
    "an epoch that leaves no room for elections was refused",
    ("refused_epoch", "epoch"),
    "No cluster reaches such an epoch by itself. A client that can connect to the controllers can raise it.",
    _ONLY_CLUSTER,
)
EPOCH_HIGH = LogLine(
    _RAFT,
    WARNING,
    "the epoch is near the last possible epoch",
    ("epoch", "last_epoch"),
    "A client that can connect to the controllers raises it.",
    _ONLY_CLUSTER,
)
EPOCHS_RUN_OUT = LogLine(
    _RAFT,
    WARNING,
    "there is no epoch after this one: no leader can be elected any more",
    ("epoch",),
    "Nothing can be changed in the cluster from now on.",
    "see 'When epochs run out' in docs/OPERATIONS.md",
)
TWO_LEADERS = LogLine(
    _RAFT,
    WARNING,
    "a message names a second leader of this epoch",
    ("leader", "other", "epoch"),
    "This node ignores that. Either a voter lost its quorum-state and voted twice, or a client of the"
    " controllers' listener forged the message.",
    "compare the metadata logs of the controllers",
)
NO_USABLE_RESPONSE = LogLine(
    _RAFT,
    WARNING,
    "another node sent no usable response",
    ("node", "address", "error"),
    "Said once, until that node answers well again, or with another error.",
)
SAVE_IS_SLOW = LogLine(
    _RAFT,
    WARNING,
    "epoch and vote are not on disk",
    ("after_s",),
    "Until they are, this node takes no part in the quorum, and others elect without it.",
    "look at the disk of the metadata log",
)
QUORUM_REQUEST_FAILED = LogLine(
    _RAFT,
    ERROR,
    "a request of the quorum failed",
    ("request", "error"),
    "A bug, or a request that is not one. Its sender has got UNKNOWN_SERVER_ERROR.",
)

LINES: tuple[LogLine, ...] = tuple(
    each for each in list(vars().values()) if isinstance(each, LogLine)
)
