"""Lines about the process of a node: its start and end, its threads and its connections. PURE."""

from firnline.base.log_lines.line import CRITICAL, DEBUG, ERROR, INFO, WARNING, Log, LogLine

# A client may send an id of 32 kB.
CLIENT_ID_CHARS_MAX = 100

_PROCESS, _NET = "firnline", "firnline.net"

READY = LogLine(
    _PROCESS,
    INFO,
    "ready at",
    (),
    "Clients are served from now on. The address follows in the message, as in `ready at 127.0.0.1:9092`:"
    " scripts wait for that text.",
)
STOPPING = LogLine(
    _PROCESS, INFO, "stopping", (), "The process was told to stop, and hands over what it leads."
)
STOPPING_AT_ONCE = LogLine(
    _PROCESS,
    WARNING,
    "stopping at once",
    (),
    "The process was told a second time, and hands nothing over.",
)
NODE_STOPS = LogLine(
    _PROCESS,
    CRITICAL,
    "the node stops",
    ("error",),
    "A bug, or a disk without which the node cannot go on.",
)
NODE_FAILED = LogLine(
    _PROCESS, CRITICAL, "the node failed", ("error",), "A bug: the traceback says where."
)
THREAD_FAILED = LogLine(
    _PROCESS, ERROR, "a thread failed", ("thread", "error"), "A bug: the traceback says where."
)
ENDS_WITHOUT_THREADS = LogLine(
    _PROCESS,
    WARNING,
    "the process ends without threads that wait",
    (),
    "A disk or a store hangs, and they wait for it.",
)
SETTING = LogLine(
    _PROCESS, DEBUG, "setting", ("key", "value"), "A setting at the start, without secrets."
)
KEYS_WITHOUT_MEANING = LogLine(
    _PROCESS,
    INFO,
    "settings without meaning here",
    ("keys",),
    "Keys of Kafka's that are accepted and do nothing.",
)
CONTROLLER_EXPOSED = LogLine(
    _PROCESS,
    WARNING,
    "a controller listens on all addresses of this machine",
    ("listener", "host", "port", "instead"),
    "There is no security yet: whoever reaches this listener can take over the metadata of the cluster."
    " `instead`: how it could look in `listeners`.",
    "bind it to the network of the other nodes, and use a firewall (docs/OPERATIONS.md, 'Who may reach the"
    " controllers')",
)
CONTROLLER_ELSEWHERE = LogLine(
    _PROCESS,
    WARNING,
    "the quorum knows this controller at another port than it listens on",
    ("key", "entry", "named_port", "listener", "listens_port"),
    "The other nodes call the port of `key`. Unless something forwards it to this node, nobody reaches this"
    " controller: with three it is missing in each election, alone it has no brokers.",
    "name the same port in that key and in `listeners`; a port that is forwarded goes into"
    " `advertised.listeners`, too",
)
CLOCK_DOUBTED = LogLine(
    _PROCESS,
    WARNING,
    "the clock is far from the time at which this node last ran",
    ("clock", "last_ran", "until"),
    "The node was off for days, or a clock is wrong. If it is ahead, records, committed offsets and producers"
    " age until `until` as if the node had not been off: nothing is deleted that was to be kept.",
    "if the clock is wrong, set it and start the node again; if it is right, there is nothing to do",
)
OPEN_FILES_LIMIT_STAYS = LogLine(
    _PROCESS,
    INFO,
    "the limit of open files stays",
    ("limit", "error"),
    "The system does not let the process raise it.",
)
NO_MALLOPT = LogLine(
    _PROCESS,
    DEBUG,
    "the C library has no mallopt",
    (),
    "The amount of free memory that it keeps is not limited.",
)
PLUGIN_NOT_CLOSED = LogLine(
    _PROCESS,
    WARNING,
    "a plug-in cannot be closed",
    ("plugin", "error"),
    "The process ends all the same.",
)
PLUGIN_FAILED = LogLine(
    _PROCESS,
    DEBUG,
    "a plug-in failed",
    ("what", "error"),
    "With the traceback, for the author of the plug-in.",
)
WORK_TIMED_OUT = LogLine(
    _PROCESS,
    WARNING,
    "work did not end in time",
    ("pool", "work", "limit_ms"),
    "Its thread is left, and its result ignored. Of probes of a store the line is at debug: they have lines"
    " of their own.",
)
POOL_REFUSES = LogLine(
    _PROCESS,
    WARNING,
    "a pool of threads refuses work",
    ("pool", "hanging"),
    "Too many of its threads hang.",
)
POOL_ACCEPTS = LogLine(
    _PROCESS,
    WARNING,
    "a pool of threads takes work again",
    ("pool",),
    "A thread that had hung has returned.",
)
NO_THREAD = LogLine(
    _PROCESS,
    WARNING,
    "no thread can be started",
    ("pool", "error"),
    "The system gives none; the next work tries again.",
    "raise the limit of processes and threads (ulimit -u)",
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
    _PROCESS,
    INFO,
    "lines left out",
    ("logger", "message", "count"),
    "So many lines of one kind were not logged, because too many came.",
)

REQUEST_REFUSED = LogLine(
    _NET,
    WARNING,
    "request refused",
    ("host", "client_id", "api", "version", "reason"),
    "A client sent what this broker does not serve or understand: another protocol, an API or version that it"
    " does not have, damaged bytes. Its connection is closed. `client_id`, `api` and"
    " `version` are missing where the bytes do not have them.",
)
CLIENT_REFUSED = LogLine(
    _NET,
    WARNING,
    "client refused",
    ("host", "client_id", "api", "reason"),
    "A client asked for what this release lacks, as `reason` says. The same client is named again after ten"
    " minutes.",
)
REQUEST_FAILED = LogLine(
    _NET,
    ERROR,
    "a request failed inside",
    ("host", "client_id", "api", "version", "error", "more"),
    "A bug: the traceback says where. The connection is closed. `more`: failures of this API since the line"
    " before.",
)
CONNECTION_CLOSED = LogLine(
    _NET,
    WARNING,
    "connection closed by this node",
    ("host", "reason", "bytes", "setting"),
    "Others need the memory that it holds, or its records cannot be read. `setting`: the limit that was"
    " reached.",
)
CONNECTION_REFUSED = LogLine(
    _NET,
    WARNING,
    "connection refused",
    ("host", "reason"),
    "A limit of connections was reached, or of open files.",
)
CANNOT_ACCEPT = LogLine(
    _NET,
    WARNING,
    "no connection can be accepted",
    ("error",),
    "Open connections are served, and accepting is tried again.",
    "raise the limit of open files (ulimit -n)",
)
LIMITS_STAY = LogLine(
    _NET,
    WARNING,
    "the limits of connections stay as they were",
    ("error",),
    "A setting in the metadata cannot be read.",
)
LINK_CLOSED = LogLine(
    "firnline.links",
    DEBUG,
    "connection to another node closed",
    ("peer", "reason"),
    "It is opened again when something is to be sent.",
)


def ready_at(address: str) -> Log:
    """Return the line for the start of service: the only one whose message varies."""
    return READY._replace(message=f"{READY.message} {address}")()


def shown_client_id(client_id: str | None) -> str | None:
    """Return the id of a client for a line: its beginning, if it is long."""
    if client_id is None or len(client_id) <= CLIENT_ID_CHARS_MAX:
        return client_id
    return f"{client_id[:CLIENT_ID_CHARS_MAX]}..."


LINES: tuple[LogLine, ...] = tuple(
    each for each in list(vars().values()) if isinstance(each, LogLine)
)
