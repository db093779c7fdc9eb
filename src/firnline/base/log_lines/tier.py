"""Lines about the tier: its store, and what is copied to it, read from it and deleted. PURE."""

from firnline.base.log_lines.line import DEBUG, INFO, WARNING, LogLine

_TIERED = "firnline.tiered"
_PARTITION = ("topic", "partition")

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
STORE_FAILS = LogLine(
    _TIERED,
    WARNING,
    "the store of the tier fails",
    ("operation", "stopped", "error"),
    "`stopped`: what this node does not do until the store answers. Local records are still written and read."
    " One line for each outage, not for each call.",
)
STORE_ANSWERS_AGAIN = LogLine(
    _TIERED,
    INFO,
    "the store of the tier answers again",
    ("operation", "after_s"),
    "The end of `the store of the tier fails`.",
)
STORE_SILENT = LogLine(
    _TIERED,
    WARNING,
    "the store of the tier does not answer",
    ("call", "running_s"),
    "A call should have had its answer by now. Only the first of several is logged.",
)
STORE_HAS_ANSWERED = LogLine(
    _TIERED,
    INFO,
    "the store of the tier has answered",
    ("call", "after_s"),
    "The end of `the store of the tier does not answer`.",
)
STORE_NOT_USED_YET = LogLine(
    _TIERED,
    WARNING,
    "the node starts without the tier",
    ("error",),
    "The store of the tier cannot be used now; the node tries again.",
)
TIER_TASK_FAILS = LogLine(
    _TIERED,
    WARNING,
    "work in the tier fails",
    (*_PARTITION, "task", "is_retried", "error"),
    "Work of one partition: `copy`, `expiry` (deleting what has expired) or `catalog`. Each kind of error is"
    " logged once, until nothing fails any more.",
)
TIER_TASKS_RECOVERED = LogLine(
    _TIERED,
    INFO,
    "nothing in the tier fails any more",
    (*_PARTITION, "after_s"),
    "The end of `work in the tier fails`.",
)
SEGMENT_NOT_COPIED = LogLine(
    _TIERED,
    WARNING,
    "not copied to the tier, nor anything after it",
    (*_PARTITION, "base_offset", "error"),
    "A local segment is damaged. All replicas keep their local segments from here on.",
    "let another replica lead this partition",
)
INDEXES_REBUILT_FOR_TIER = LogLine(
    _TIERED,
    WARNING,
    "indexes rebuilt for the tier",
    (*_PARTITION, "segment", "files"),
    "Files beside a local segment were damaged; the tier got good ones.",
    "look at the disk",
)
REMOTE_SEGMENT_DAMAGED = LogLine(
    _TIERED,
    WARNING,
    "remote segment is damaged",
    (*_PARTITION, "segment_id", "base_offset", "end_offset", "error"),
    "An object of the tier is missing, or is not what was copied. Said once for each segment.",
)
TIER_METADATA_NOT_CREATED = LogLine(
    _TIERED,
    WARNING,
    "the metadata topic of the tier could not be created",
    ("topic", "error"),
    "Nothing is copied or read until it is there; the node goes on trying.",
)
TIER_METADATA_LOST = LogLine(
    _TIERED,
    WARNING,
    "metadata of the tier has lost records",
    (*_PARTITION, "read_to_offset", "leader_has_to_offset"),
    "Its leader has less than this node has read. Nothing is copied or deleted for its partitions, and"
    " records that only the tier has are not served, until the leader has them again.",
    "see whether its leader lost its disk",
)
TIER_METADATA_READ_AGAIN = LogLine(
    _TIERED,
    WARNING,
    "metadata of the tier is read again: records were lost",
    (*_PARTITION, "read_to_offset", "read_epoch", "leader_has_to_offset"),
    "What this node has read is not the history of the present leader, as after an unclean election.",
)
TIER_METADATA_UNREADABLE = LogLine(
    _TIERED,
    WARNING,
    "metadata of the tier cannot be read",
    (*_PARTITION, "from_offset", "error"),
    "The records after this offset are waited for. Another replica has the right bytes.",
    "let another replica lead it, and have this copy fetched anew",
)
REMOVAL_FAILS = LogLine(
    _TIERED,
    WARNING,
    "the removal of a deleted topic from the tier fails",
    ("topic_id", "partition", "error"),
    "It is retried. Each kind of error is logged once, until everything is removed.",
)
DELETED_TOPICS_REMOVED = LogLine(
    _TIERED,
    INFO,
    "deleted topics were removed from the tier",
    ("partitions",),
    "So many partitions of deleted topics have nothing in the tier any more.",
)
UPLOADS_NOT_ABORTED = LogLine(
    _TIERED,
    WARNING,
    "unfinished uploads cannot be aborted",
    ("error",),
    "The store does not allow it, and keeps the parts of uploads that nobody will finish.",
)
UPLOADS_ABORTED = LogLine(
    _TIERED,
    INFO,
    "unfinished uploads were aborted",
    ("count", "unfinished_h"),
    "Uploads to the store that nobody finished for so many hours.",
)
LOCAL_SEGMENTS_STAY = LogLine(
    _TIERED,
    WARNING,
    "local segments stay beyond local.retention",
    ("reason", "partitions", "bytes"),
    "The disk fills. `not copied`: the tier does not have them yet. `not deleted`: the tier has them, but"
    " their deletion stands still. `bytes`: of these local logs.",
)
LOCAL_SEGMENTS_GO = LogLine(
    _TIERED,
    INFO,
    "no local segments stay beyond local.retention any more",
    ("reason",),
    "The end of `local segments stay beyond local.retention`.",
)
TAKEN_FROM_CATALOG = LogLine(
    _TIERED,
    INFO,
    "taken from the catalog in the tier",
    (*_PARTITION, "log_start_offset", "was_offset", "epochs_below_offset"),
    "This broker had lost a part of what it knew of a log: the log start, or leader epochs.",
)
TIER_FORGEABLE = LogLine(
    _TIERED,
    WARNING,
    "brokers and clients share a listener",
    ("topic",),
    "Every client can forge this topic, and so delete the tier.",
    "give brokers a listener of their own (inter.broker.listener.name) that no client can reach",
)
TOPICS_OUTLIVE_METADATA = LogLine(
    _TIERED,
    WARNING,
    "topics are kept longer than the records about their segments",
    ("topics", "metadata_topic"),
    "When the records of the metadata topic are deleted, these segments of the tier are lost.",
    "raise retention.ms of the metadata topic (-1: no limit), or lower that of the topics",
)
TIERED_WITHOUT_TIER = LogLine(
    _TIERED,
    WARNING,
    "a topic is tiered from now on, and this broker has no tier",
    (*_PARTITION, "setting"),
    "It serves the records that it has, copies and deletes nothing, and will not start again without the"
    " tier: the setting is false.",
)

LINES: tuple[LogLine, ...] = tuple(
    each for each in list(vars().values()) if isinstance(each, LogLine)
)
