"""Errors, in classes by who must act: the client, the operator, or the developers. PURE.

The failure of one partition is a value (`Appended | KafkaError`), never an exception, so that the request's
other partitions go on. The failure of a whole request is raised; `api/dispatch` alone maps it to a response.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from firnline.base.limits import WHY_CHARS_MAX


class Code(IntEnum):
    """Kafka's error codes, as Apache Kafka 4.3.1 states them."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133


RETRIABLE = frozenset(
    {
        Code.CORRUPT_MESSAGE,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REQUEST_TIMED_OUT,
        Code.REPLICA_NOT_AVAILABLE,
        Code.NETWORK_EXCEPTION,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.NOT_ENOUGH_REPLICAS,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Code.NOT_CONTROLLER,
        Code.CONCURRENT_TRANSACTIONS,
        Code.KAFKA_STORAGE_ERROR,
        Code.FETCH_SESSION_ID_NOT_FOUND,
        Code.INVALID_FETCH_SESSION_EPOCH,
        Code.LISTENER_NOT_FOUND,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.OFFSET_NOT_AVAILABLE,
        Code.PREFERRED_LEADER_NOT_AVAILABLE,
        Code.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        Code.ELECTION_NOT_NEEDED,
        Code.UNSTABLE_OFFSET_COMMIT,
        Code.THROTTLING_QUOTA_EXCEEDED,
        Code.UNKNOWN_TOPIC_ID,
        Code.INCONSISTENT_TOPIC_ID,
        Code.FETCH_SESSION_TOPIC_ID_ERROR,
        Code.SHARE_SESSION_NOT_FOUND,
        Code.INVALID_SHARE_SESSION_EPOCH,
        Code.SHARE_SESSION_LIMIT_REACHED,
    }
)


class FirnlineError(Exception):
    """The base class of our errors. `str()` prints `why [key=value ...]`."""

    def __init__(self, why: str, /, **facts: object) -> None:
        super().__init__(why)
        self.why = why
        self.facts = facts

    def __str__(self) -> str:
        if not self.facts:
            return self.why
        return f"{self.why} [{' '.join(f'{k}={v}' for k, v in self.facts.items())}]"


class KafkaError(FirnlineError):
    """A refusal with an error code of the protocol: the client must act.

    `why` is sent to the client, so it must not contain paths. It may quote what a client sent, so it is cut
    at WHY_CHARS_MAX: then it fits into any response.
    """

    def __init__(self, code: Code, why: str = "", /, **facts: object) -> None:
        if len(why) > WHY_CHARS_MAX:
            why = f"{why[:WHY_CHARS_MAX]}..."
        super().__init__(why, **facts)
        self.code = code

    @property
    def is_retriable(self) -> bool:
        return self.code in RETRIABLE

    def __str__(self) -> str:
        text = super().__str__()
        return f"{self.code.name}: {text}" if text else self.code.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KafkaError) and (self.code, self.why) == (other.code, other.why)

    def __hash__(self) -> int:
        return self.code.value


class Asked(NamedTuple):
    """What a peer asked for, as far as its bytes say it."""

    client_id: str | None
    api: str | int | None  # its name, or the key of one that this node does not have
    version: int | None


NOTHING_ASKED = Asked(None, None, None)


class ProtocolError(FirnlineError):
    """A peer sent bytes that are no valid request: the connection is closed without a response."""

    asked: Asked | None = None


class ConfigError(FirnlineError):
    """A setting that cannot be used: the operator must act. The text names the key and a value that works."""


# Errors that pass by themselves, or that the operator can end while the node runs. After any other error of a
# disk, the disk counts as failed (rel-P9).
_NO_DESCRIPTOR = ("EMFILE", "ENFILE")
_PASSING = ("ENOSPC", "EDQUOT", "EAGAIN", *_NO_DESCRIPTOR)


class CannotGoOn(ConfigError):
    """The cluster has what this node's settings or release do not support: it stops."""


class StorageError(FirnlineError):
    """Bytes could not be read or written, or are not as they were written: the operator must act."""

    @property
    def is_passing(self) -> bool:
        """True where the disk has not failed: it is full or busy, or the process has no descriptor left."""
        return self.facts.get("error") in _PASSING

    @property
    def has_lost_nothing(self) -> bool:
        """True where the process had no descriptor left: the call did not reach the disk; nothing is lost.

        After any other failure of a sync the written pages may be gone from memory, too, even if the disk
        was only full (rel-P9).
        """
        return self.facts.get("error") in _NO_DESCRIPTOR


class SegmentDamaged(StorageError):
    """The bytes of a segment are not as they were written. The disk works: other logs are not affected."""


class RecordsTruncated(StorageError):
    """The records to be read were truncated in the meantime. The disk has not failed; the client asks again.

    The bytes at that position must not be sent: they may belong to other records by now. A log that this
    broker no longer serves raises it, too.
    """

    @property
    def has_lost_nothing(self) -> bool:
        """True: the call did not reach the disk, so nothing is lost."""
        return True


def records_cut(path: str, end: int, cut: int) -> RecordsTruncated:
    """The error of a read up to position `end` from a file that was truncated to `cut` bytes."""
    return RecordsTruncated("the records were truncated meanwhile", path=path, end=end, cut=cut)


class WorkTimedOut(StorageError):
    """Work for a thread did not end, or did not begin, in time; a retry may succeed. No disk has failed."""

    @property
    def is_passing(self) -> bool:
        return True


class WorkFailed(FirnlineError):
    """Work for a thread raised what is no Exception, as a panic of native code. The text names it."""


def as_exception(problem: BaseException) -> Exception:
    """Return `problem`, or WorkFailed where it is no Exception."""
    if isinstance(problem, Exception):
        return problem
    kind = type(problem)
    try:
        text = str(problem)
    except Exception:  # noqa: BLE001 - the text is a courtesy of foreign code
        text = ""
    return WorkFailed(
        "work ended abruptly", raised=f"{kind.__module__}.{kind.__qualname__}", text=text
    )


class Bug(FirnlineError):
    """An invariant is broken: the developers must act. Only `runtime.loop` catches it."""


def some_of(names: Sequence[str], most: int = 5) -> str:
    """Return the first names, for a line that may concern thousands: a, b and 3 more."""
    shown, more = ", ".join(names[:most]), len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown
