"""Lines about the cluster, which every node sees in the metadata. PURE.

Fields that let one follow a change from node to node:

    broker_epoch     of one start of a broker: the same on every node, and larger after each start
    leader_epoch     of one leadership of a partition
    partition_epoch  of one change of a partition; with topic and partition it names the change on every node
    topic_id         tells a topic from a former one of its name
    metadata_offset  up to where this node had applied the metadata when it saw the change, which is at this
                     offset or a little below it
"""

from firnline.base.log_lines.line import INFO, WARNING, LogLine

_CONTROLLER, _REPLICA, _CONFIG, _RAFT = (
    "firnline.controller",
    "firnline.replica",
    "firnline.config",
    "firnline.raft",
)
_AT = "metadata_offset"
_BROKER = ("broker", "broker_epoch")
_EPOCHS = ("leader_epoch", "partition_epoch", _AT)

METADATA_CAUGHT_UP = LogLine(
    _CONTROLLER,
    INFO,
    "metadata caught up",
    ("brokers", "fenced", "topics", "partitions", "offline", _AT),
    "This node has the present metadata after its start. Changes from here on are logged.",
)
BROKER_REGISTERED = LogLine(
    _CONTROLLER,
    INFO,
    "broker registered",
    (*_BROKER, "was_epoch", "incarnation", "listeners", "fenced", _AT),
    "A broker has started. `was_epoch`: of its start before.",
)
BROKER_FENCED = LogLine(
    _CONTROLLER,
    WARNING,
    "broker fenced",
    (*_BROKER, "reason", _AT),
    "The controller heard nothing from a broker for broker.session.timeout.ms, or it could not join yet."
    " Others lead its partitions now.",
)
BROKER_UNFENCED = LogLine(
    _CONTROLLER,
    INFO,
    "broker unfenced",
    (*_BROKER, _AT),
    "A broker is back, has the metadata, and may lead and join ISRs.",
)
BROKER_LEAVING = LogLine(
    _CONTROLLER,
    INFO,
    "broker in controlled shutdown",
    (*_BROKER, _AT),
    "A broker was told to stop, and hands over what it leads.",
)
BROKER_STOPPED = LogLine(
    _CONTROLLER,
    INFO,
    "broker stopped",
    (*_BROKER, _AT),
    "A broker has left in order: it is fenced after its controlled shutdown.",
)
BROKER_UNREGISTERED = LogLine(
    _CONTROLLER,
    INFO,
    "broker unregistered",
    (*_BROKER, _AT),
    "An operator has removed a broker from the cluster.",
)
DIRECTORIES_CHANGED = LogLine(
    _CONTROLLER,
    INFO,
    "log directories changed",
    (*_BROKER, "online", "gone", _AT),
    "A broker reports other log directories than before; `gone`: it does not use them any more, as after"
    " a disk"
    " has failed.",
)

LEADER_ELECTED = LogLine(
    _CONTROLLER,
    INFO,
    "leader elected",
    ("topic", "partition", "leader", "was", "reason", "isr", *_EPOCHS),
    "Another broker leads a partition. Reasons: `preferred leader`, `the leader was fenced`, `controlled"
    " shutdown"
    " of the leader`, `the leader was unregistered`, `reassignment`, `log directory of the leader failed`,"
    " `a member of the ISR is back`, `as requested or by order`.",
)
LEADERS_ELECTED = LogLine(
    _CONTROLLER,
    INFO,
    "more leaders elected",
    ("count", "was", "reason", "examples", _AT),
    "The sum of `leader elected` beyond the first ten of a second.",
)
UNCLEAN_ELECTION = LogLine(
    _CONTROLLER,
    WARNING,
    "unclean election",
    ("topic", "partition", "leader", "was", "old_isr", *_EPOCHS),
    "A broker leads that was not in the ISR, because unclean.leader.election.enable allows it. Acknowledged"
    " records that it lacks are lost.",
)
UNCLEAN_ELECTIONS = LogLine(
    _CONTROLLER,
    WARNING,
    "more unclean elections",
    ("count", "was", "examples", _AT),
    "The sum of `unclean election` beyond the first ten of a second.",
)
PARTITION_OFFLINE = LogLine(
    _CONTROLLER,
    WARNING,
    "partition offline",
    ("topic", "partition", "was", "reason", "isr", *_EPOCHS),
    "No member of the ISR is there to lead: clients can neither read nor write this partition until one"
    " is back.",
)
PARTITIONS_OFFLINE = LogLine(
    _CONTROLLER,
    WARNING,
    "more partitions offline",
    ("count", "was", "reason", "examples", _AT),
    "The sum of `partition offline` beyond the first ten of a second.",
)
REASSIGNMENT_BEGAN = LogLine(
    _CONTROLLER,
    INFO,
    "reassignment began",
    ("topic", "partition", "replicas", "adding", "removing", *_EPOCHS),
    "Replicas of a partition move to other brokers.",
)
REASSIGNMENT_ENDED = LogLine(
    _CONTROLLER,
    INFO,
    "reassignment ended",
    ("topic", "partition", "replicas", "was", *_EPOCHS),
    "The replicas of a partition are where they were to go, or the move was cancelled: compare `replicas`.",
)
REASSIGNMENTS_BEGAN = LogLine(
    _CONTROLLER,
    INFO,
    "more reassignments began",
    ("count", "examples", _AT),
    "The sum of `reassignment began` beyond the first ten of a second.",
)
REASSIGNMENTS_ENDED = LogLine(
    _CONTROLLER,
    INFO,
    "more reassignments ended",
    ("count", "examples", _AT),
    "The sum of `reassignment ended` beyond the first ten of a second.",
)

ISR_SHRUNK = LogLine(
    _REPLICA,
    INFO,
    "ISR shrunk",
    ("topic", "partition", "isr", "removed", "reason", *_EPOCHS),
    "A replica does not count for acks=all any more. Reasons: `broker fenced`, `controlled shutdown`, `broker"
    " unregistered`, `reassignment`, `log directory failed`, and for a slow one `fell behind`; its leader"
    " says `no"
    " fetch for 31 s` or `not caught up for 31 s` (replica.lag.time.max.ms).",
)
ISRS_SHRUNK = LogLine(
    _REPLICA,
    INFO,
    "more ISRs shrunk",
    ("count", "removed", "reason", "examples", _AT),
    "The sum of `ISR shrunk` beyond the first ten of a second.",
)
ISR_GROWN = LogLine(
    _REPLICA,
    INFO,
    "ISR grown",
    ("topic", "partition", "isr", "added", "reason", *_EPOCHS),
    "A replica has every committed record, and counts for acks=all. Reasons: `caught up`, `caught up"
    " after its"
    " broker started again`, `reassignment`.",
)
ISRS_GROWN = LogLine(
    _REPLICA,
    INFO,
    "more ISRs grown",
    ("count", "added", "reason", "examples", _AT),
    "The sum of `ISR grown` beyond the first ten of a second.",
)

TOPIC_CREATED = LogLine(
    _CONTROLLER,
    INFO,
    "topic created",
    ("topic", "topic_id", "partitions", "replication_factor", "configs", _AT),
    "A topic was created. `configs`: its own settings.",
)
TOPICS_CREATED = LogLine(
    _CONTROLLER,
    INFO,
    "more topics created",
    ("count", "examples", _AT),
    "The sum of `topic created` beyond the first ten of a second.",
)
TOPIC_DELETED = LogLine(
    _CONTROLLER,
    INFO,
    "topic deleted",
    ("topic", "topic_id", "partitions", _AT),
    "A topic was deleted, with its records.",
)
TOPICS_DELETED = LogLine(
    _CONTROLLER,
    INFO,
    "more topics deleted",
    ("count", "examples", _AT),
    "The sum of `topic deleted` beyond the first ten of a second.",
)
PARTITIONS_ADDED = LogLine(
    _CONTROLLER,
    INFO,
    "partitions added",
    ("topic", "topic_id", "partitions", "was", _AT),
    "A topic has more partitions: keys may go to other partitions from now on.",
)

CONFIG_CHANGED = LogLine(
    _CONFIG,
    INFO,
    "config changed",
    ("resource", "changes", _AT),
    "Settings of a topic, a broker, or of all brokers changed. `changes`: `key=new (was old)`; `unset`:"
    " the default"
    " holds. Secrets are `[hidden]`.",
)
CONFIGS_CHANGED = LogLine(
    _CONFIG,
    INFO,
    "more configs changed",
    ("count", "examples", _AT),
    "The sum of `config changed` beyond the first ten of a second.",
)
FEATURE_CHANGED = LogLine(
    _CONFIG,
    INFO,
    "feature changed",
    ("feature", "level", "was", _AT),
    "A feature level of the cluster changed, for instance metadata.version.",
)

CONTROLLER_CHANGED = LogLine(
    _RAFT,
    INFO,
    "controller changed",
    ("controller", "was", "epoch", "node"),
    "The quorum has another leader, or `none`. Each node says so when it learns it.",
)
BECAME_CONTROLLER = LogLine(
    _RAFT,
    INFO,
    "this node is the active controller",
    ("node", "epoch", _AT),
    "It leads the quorum, has applied all records, and decides from now on.",
)
RESIGNED_CONTROLLER = LogLine(
    _RAFT,
    INFO,
    "this node is not the active controller any more",
    ("node", "epoch", _AT),
    "It stops, or another node was elected.",
)

LAST_REPLICA_STANDING = LogLine(
    _CONTROLLER,
    WARNING,
    "last replica standing",
    ("broker", "partitions"),
    "This broker leads partitions again, alone in their ISR. If it lost data while it was away, acknowledged"
    " records are lost.",
)

LINES: tuple[LogLine, ...] = tuple(
    each for each in list(vars().values()) if isinstance(each, LogLine)
)
