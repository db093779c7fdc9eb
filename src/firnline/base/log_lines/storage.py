"""Lines about logs on the disks of a node, and the replicas in them. PURE."""

from firnline.base.log_lines.line import ERROR, INFO, WARNING, LogLine

_BROKER, _LOG, _REPLICA, _COMPACTION = (
    "firnline.broker",
    "firnline.log",
    "firnline.replica",
    "firnline.compaction",
)
_PARTITION = ("topic", "partition")

LOG_TRUNCATED = LogLine(
    _LOG,
    INFO,
    "log truncated",
    ("log", "from_offset", "to_offset", "records"),
    "A follower has removed records that its leader does not have. They were never committed, unless an"
    " unclean election came before: then `committed records were lost` names them.",
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
    "At a start after a crash the ends of logs were checked. `bytes_cut`: what was not written whole; `log"
    " cut off` names each log that lost something.",
)
LOG_CUT = LogLine(
    _LOG,
    WARNING,
    "log cut off",
    (*_PARTITION, "end_offset", "bytes_cut", "segments_dropped"),
    "The end of a log was not written whole when the process or the machine stopped.",
    is_loss=True,
)
LOG_BEGINS_EMPTY = LogLine(
    _LOG,
    WARNING,
    "log begins empty at its log start",
    (*_PARTITION, "log_start_offset", "files_end_offset"),
    "All that its files held is below the log start.",
    is_loss=True,
)
CHECKPOINT_DELAYED = LogLine(
    _LOG,
    WARNING,
    "a checkpoint is tried again later",
    ("error",),
    "A start after a crash reads more until it is written.",
)
RECORDS_UNREADABLE = LogLine(
    _LOG,
    WARNING,
    "records cannot be read",
    (*_PARTITION, "offset", "last_offset", "record", "reason", "meaning", "is_last_named"),
    "Records of an internal topic that no replica can read. `is_last_named`: further ones of this"
    " partition are only counted.",
)
LOG_DIRECTORY_FAILED = LogLine(
    _BROKER,
    WARNING,
    "a log directory failed and is out of use",
    ("path", "cause", "error", "remedy"),
    "Its replicas are offline until the next start. With the last one, or that of the metadata, the node"
    " stops.",
)
PARTITION_NOT_SERVED = LogLine(
    _BROKER,
    WARNING,
    "partition is not served",
    (*_PARTITION, "error"),
    "This replica cannot be opened, or has failed; others of this broker are served.",
)
LOG_NOT_DELETED = LogLine(
    _BROKER,
    WARNING,
    "log is not deleted before the next start",
    (*_PARTITION, "error"),
    "The disk refused to delete a log that this broker has no more.",
)
STRAY_LOG = LogLine(
    _REPLICA,
    WARNING,
    "a log is kept aside",
    ("path", "reason", "advice"),
    "This broker serves nothing from it: it belongs to no topic of the cluster, or to a replica that is now"
    " elsewhere.",
    is_loss=True,
)
INDEX_REBUILT = LogLine(
    _REPLICA,
    WARNING,
    "an index was missing or damaged: it was rebuilt",
    ("segment",),
    "It was made again from the records.",
)
INDEX_NOT_REBUILT = LogLine(
    _REPLICA,
    WARNING,
    "an index was missing or damaged: the rebuild failed",
    ("segment", "error"),
    "Fetches that need it fail.",
)
RECORDS_LOST = LogLine(
    _REPLICA,
    WARNING,
    "committed records were lost",
    (*_PARTITION, "leader", "from_offset", "to_offset"),
    "The new leader lacks them, so this replica truncated them: up to, not including, `to_offset`.",
    is_loss=True,
)
DOES_NOT_FOLLOW = LogLine(
    _REPLICA,
    WARNING,
    "replica does not follow its leader",
    (*_PARTITION, "leader", "reason"),
    "It tries again. The same error is not logged twice in a row.",
)
ISR_CHANGE_UNANSWERED = LogLine(
    _REPLICA,
    WARNING,
    "a request to grow the ISR was not answered",
    (*_PARTITION, "more", "joining"),
    "It may still be applied, so acks=all waits for these brokers. `more`: further partitions with the same.",
    "start these brokers again, or unregister them",
)
STORAGE_FAILED = LogLine(
    _LOG,
    WARNING,
    "storage failed",
    ("error",),
    "An error of a disk; the next lines say what follows from it.",
)
NOT_COMPACTED = LogLine(
    _COMPACTION,
    WARNING,
    "log is not compacted",
    (*_PARTITION, "error"),
    "Said once, until a round succeeds or fails in another way. The log grows.",
)
COMPACTION_STUCK = LogLine(
    _COMPACTION,
    WARNING,
    "a process that compacts cannot be ended",
    ("process", "log"),
    "It waits for the disk. No other log is compacted in its place until it ends.",
)
DISK_ERROR = LogLine(
    "firnline.disk",
    ERROR,
    "a disk refused an operation",
    ("operation", "path", "error", "remedy"),
    "What the client gets is only an error code, or the operation is retried.",
)

LINES: tuple[LogLine, ...] = tuple(
    each for each in list(vars().values()) if isinstance(each, LogLine)
)
