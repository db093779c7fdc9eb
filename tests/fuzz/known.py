"""What a fuzzer knows of the node that it asks: names, ids, members, sessions, producers, offsets.

It is learned from answers, so that requests meet state that is there. What is old gives way to what is new.
"""

from collections import deque
from typing import Any, NamedTuple

from firnline.base.ids import OFFSETS_TOPIC, REMOTE_LOG_METADATA_TOPIC, ZERO_UUID

KEPT = "kept"
# They exist from the start; requests may delete the topics after the first.
PLAIN, COMPACTED, TIERED = "plain", "compacted", "tiered"
MADE = ("made-a", "made-b", "made-c")
TOPICS = (PLAIN, COMPACTED, TIERED, *MADE)
SYSTEM_TOPICS = (OFFSETS_TOPIC, REMOTE_LOG_METADATA_TOPIC, "__cluster_metadata")
GROUPS = ("g-a", "g-b", "g-c", "g-d")
TRANSACTIONAL_IDS = ("x-a", "x-b")
NODE_ID = 1
# A broker that registers, sends heartbeats and is counted out again.
OTHER_NODE_ID = 77
FETCH, VOTE, BEGIN_QUORUM, END_QUORUM, DESCRIBE_QUORUM = 1, 52, 53, 54, 55
ALTER_PARTITION, ENVELOPE, FETCH_SNAPSHOT, REGISTRATION, HEARTBEAT = 56, 58, 59, 62, 63
UNREGISTER_BROKER, ALLOCATE_IDS, UPDATE_VOTER, SNAPSHOTS = 64, 67, 82, 32011
_RECENT = 24
_UNKNOWN_MEMBER_ID, _MEMBER_ID_REQUIRED = 25, 79


class Member(NamedTuple):
    """One that was let into a group."""

    group_id: str
    member_id: str
    generation: int


class Producer(NamedTuple):
    """An idempotent producer; `sequence` is that of its next record."""

    producer_id: int
    epoch: int
    sequence: int


class Quorum:
    """Values of the quorum that the node said, the latest of each kind."""

    def __init__(self) -> None:
        self.epoch = 1
        self.offset = 0
        self.directories: deque[bytes] = deque([ZERO_UUID], maxlen=4)
        self.snapshots: deque[tuple[int, int]] = deque([(0, 0)], maxlen=4)  # end offset, epoch
        self.broker_epochs: dict[int, int] = {}

    def learn(self, key: int, answer: Any) -> None:
        """Take what an answer of the controllers' listener says."""
        if key == REGISTRATION and answer.error_code == 0:
            self.broker_epochs[OTHER_NODE_ID] = answer.broker_epoch
        elif key == SNAPSHOTS:
            self.snapshots.extend((row.end_offset, row.epoch) for row in answer.snapshots)
        elif key == FETCH:
            for topic in answer.responses:
                for part in topic.partitions:
                    self._take(part.current_leader.leader_epoch, part.high_watermark)
        elif key in (VOTE, BEGIN_QUORUM, END_QUORUM, DESCRIBE_QUORUM):
            for topic in answer.topics:
                for part in topic.partitions:
                    self._take(part.leader_epoch, getattr(part, "high_watermark", -1))
                    for voter in getattr(part, "current_voters", ()):
                        if bytes(voter.replica_directory_id) not in self.directories:
                            self.directories.append(bytes(voter.replica_directory_id))

    def _take(self, epoch: int, offset: int) -> None:
        self.epoch = epoch if epoch > 0 else self.epoch
        self.offset = offset if offset >= 0 else self.offset


class Known:
    """Values that the node said, the latest of each kind."""

    def __init__(self) -> None:
        self.topic_ids: dict[str, bytes] = {}
        self.members: deque[Member] = deque(maxlen=_RECENT)
        self.sessions: deque[tuple[int, int]] = deque(maxlen=_RECENT)  # id, next epoch
        self.producers: deque[Producer] = deque(maxlen=_RECENT)
        self.offsets: deque[int] = deque([0, 1, 2, 10], maxlen=_RECENT)
        self.epochs: deque[int] = deque([0], maxlen=_RECENT)
        self.log_dirs: deque[str] = deque(maxlen=4)
        self.cluster_id: str | None = None
        self.quorum = Quorum()

    def learn(
        self, key: int, focus: dict[str, Any], answer: Any, *, is_controllers: bool = False
    ) -> None:
        """Take what an answer to a request of `focus` says."""
        if is_controllers:
            self.quorum.learn(key, answer)
            return
        if getattr(answer, "error_code", 0) == _UNKNOWN_MEMBER_ID and "member_id" in focus:
            gone = (focus["group_id"], focus["member_id"])
            for member in [one for one in self.members if one[:2] == gone]:
                self.members.remove(member)
        reported = _LEARN.get(key)
        if reported is not None:
            reported(self, focus, answer)

    def topic_id(self, name: str) -> bytes:
        return self.topic_ids.get(name, ZERO_UUID)


def _produce(known: Known, focus: dict[str, Any], answer: Any) -> None:
    for topic in answer.responses:
        for part in topic.partition_responses:
            if part.error_code == 0:
                known.offsets.append(part.base_offset)


def _fetch(known: Known, focus: dict[str, Any], answer: Any) -> None:
    if answer.session_id:
        epoch = focus.get("session_epoch", 0)
        known.sessions.append((answer.session_id, epoch + 1 if 0 <= epoch < 1000 else 1))
    for topic in answer.responses:
        for part in topic.partitions:
            known.offsets.append(part.high_watermark)


def _list_offsets(known: Known, focus: dict[str, Any], answer: Any) -> None:
    for topic in answer.topics:
        for part in topic.partitions:
            known.offsets.append(part.offset)
            known.epochs.append(part.leader_epoch)


def _metadata(known: Known, focus: dict[str, Any], answer: Any) -> None:
    known.cluster_id = answer.cluster_id or known.cluster_id
    for topic in answer.topics:
        if topic.error_code == 0 and topic.topic_id != ZERO_UUID and topic.name in _NAMED:
            known.topic_ids[topic.name] = bytes(topic.topic_id)
        for part in topic.partitions[:1]:
            known.epochs.append(part.leader_epoch)


def _create_topics(known: Known, focus: dict[str, Any], answer: Any) -> None:
    for topic in answer.topics:
        if topic.error_code == 0 and topic.topic_id != ZERO_UUID and topic.name in _NAMED:
            known.topic_ids[topic.name] = bytes(topic.topic_id)


def _join_group(known: Known, focus: dict[str, Any], answer: Any) -> None:
    group_id = focus.get("group_id")
    is_let_in = answer.error_code in (0, _MEMBER_ID_REQUIRED)
    if is_let_in and isinstance(group_id, str) and len(answer.member_id) < 500:
        known.members.append(Member(group_id, answer.member_id, answer.generation_id))


def _init_producer_id(known: Known, focus: dict[str, Any], answer: Any) -> None:
    if answer.error_code == 0:
        known.producers.append(Producer(answer.producer_id, answer.producer_epoch, 0))


def _describe_log_dirs(known: Known, focus: dict[str, Any], answer: Any) -> None:
    for row in answer.results:
        if row.log_dir not in known.log_dirs:
            known.log_dirs.append(row.log_dir)


_NAMED = frozenset((*TOPICS, *SYSTEM_TOPICS, KEPT))
_LEARN = {
    0: _produce,
    1: _fetch,
    2: _list_offsets,
    3: _metadata,
    11: _join_group,
    19: _create_topics,
    22: _init_producer_id,
    35: _describe_log_dirs,
}
