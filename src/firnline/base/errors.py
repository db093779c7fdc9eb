"""Errors, told apart by who must act: the client, the operator, or us. PURE.

Per-partition failures are values (`Appended | KafkaError`), never exceptions thrown through a loop
over partitions; whole-request failures are raised and mapped in `api/dispatch` only.
"""

from enum import IntEnum

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
    """Root of the family. `str()` prints `why [key=value ...]`."""

    def __init__(self, why: str, /, **facts: object) -> None:
        super().__init__(why)
        self.why = why
        self.facts = facts

    def __str__(self) -> str:
        if not self.facts:
            return self.why
        return f"{self.why} [{' '.join(f'{k}={v}' for k, v in self.facts.items())}]"


class KafkaError(FirnlineError):
    """A refusal with a wire code: the client must act. `why` goes on the wire and leaks no paths.

    It is cut at WHY_CHARS_MAX: it may name what a client sent, and fits into any answer.
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


class ProtocolError(FirnlineError):
    """Bytes from a peer that are not a request: the connection is closed without an answer."""


class ConfigError(FirnlineError):
    """A setting that cannot be used: the operator must act. Says which key, and what would do."""


# What passes, or the operator may end, while we run; whatever else a disk answers means that it failed
# (rel-P9).
_NO_DESCRIPTOR = ("EMFILE", "ENFILE")
_PASSING = ("ENOSPC", "EDQUOT", "EAGAIN", *_NO_DESCRIPTOR)


class CannotGoOn(ConfigError):
    """What the quorum decided does not go with how this node is set up, or with what its release acts on: it
    stops, in whatever step it learns of it."""


class StorageError(FirnlineError):
    """Bytes could not be read or written, or differ from what was written: the operator must act."""

    @property
    def is_passing(self) -> bool:
        """True where the disk is sound, and has no room or no time, or the process no descriptor, for now."""
        return self.facts.get("error") in _PASSING

    @property
    def has_lost_nothing(self) -> bool:
        """True where the process had no descriptor left: the disk was not asked, and has lost nothing.

        Of a sync nothing else passes: what a full disk refused then is gone from memory, too (rel-P9).
        """
        return self.facts.get("error") in _NO_DESCRIPTOR


class RecordsCut(StorageError):
    """What was to be read has been truncated away meanwhile. The disk is sound; whoever asks again is told.

    Nothing may be sent in place of it: its place in the file may hold other records by now. Of a log that was
    given up while it was synced it says that nothing of it is served any more.
    """

    @property
    def has_lost_nothing(self) -> bool:
        """True: here, too, the disk was not asked and has lost nothing."""
        return True


def records_cut(path: str, end: int, cut: int) -> RecordsCut:
    """The error of a read up to `end` by a handle of a file that was cut at `cut`."""
    return RecordsCut("the records were truncated meanwhile", path=path, end=end, cut=cut)


class Bug(FirnlineError):
    """An invariant is broken: we must act. Never caught below `runtime.loop`."""
