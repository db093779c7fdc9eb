"""A topic of a test: its name, with records put and read back by a line. WORLD.

For what a test prepares and what it checks; the code under test has a client of its own. Each call connects
anew, finds the leaders, and tries again while there is none, as after the death of a node.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from firnline.base.errors import Code, KafkaError
from firnline.client.admin import EARLIEST, LATEST, Admin
from firnline.client.connection import Connection, Unreachable
from firnline.client.wire import refuse
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from firnline.records.record import Header, records

T = TypeVar("T")
Bytes = bytes | str | None
TIMEOUT_S = 15.0
_FETCH_BYTES = 8 << 20
_NAP_S = 0.05
# How long a partition may answer with nothing below its end: the store of a tier is slow, or compaction has
# removed what was there.
_NOTHING_S = 2.0
# The last versions that name topics by name.
_PRODUCE_VERSION = _FETCH_VERSION = 12
# The cluster is about to change, or has changed.
_PASSING = (
    *(Code.LEADER_NOT_AVAILABLE, Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH),
    *(Code.UNKNOWN_LEADER_EPOCH, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.REPLICA_NOT_AVAILABLE),
    *(Code.NOT_ENOUGH_REPLICAS, Code.KAFKA_STORAGE_ERROR, Code.BROKER_NOT_AVAILABLE),
    Code.OFFSET_OUT_OF_RANGE,
)


class Record(NamedTuple):
    """A record that was read. Key and value are bytes or None; `timestamp_ms` since 1970, -1 for none."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class Topic(str):
    """The name of a topic, which knows the broker or the cluster that has it."""

    bootstrap: str

    def __new__(cls, name: str, bootstrap: str) -> "Topic":
        made = super().__new__(cls, name)
        made.bootstrap = bootstrap
        return made

    def __reduce__(self) -> tuple[type["Topic"], tuple[str, str]]:
        return (Topic, (str(self), self.bootstrap))

    def put(
        self,
        *values: Bytes,
        key: Bytes = None,
        partition: int = 0,
        headers: Mapping[str, Bytes] | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Write records with these values in one batch; return when all replicas in sync have it.

        Text becomes UTF-8; None is a tombstone. The partition is the stated one, whatever the key. If the
        leader dies meanwhile they may be there twice. Raises KafkaError, or AssertionError if it takes too
        long.
        """
        at_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        pairs = tuple((name, _bytes(value)) for name, value in (headers or {}).items())
        rows = [NewRecord(_bytes(key), _bytes(value), at_ms, pairs) for value in values]
        if not rows:
            return
        data = [PartitionProduceData(index=partition, records=bytes(build_batch(rows)))]
        request = ProduceRequest(
            acks=-1,
            timeout_ms=int(TIMEOUT_S * 1000),
            topic_data=[TopicProduceData(name=str(self), partition_data=data)],
        )

        def attempt(admin: Admin) -> bool:
            leader = _leaders(admin, self)[partition]
            (topic,) = leader.ask(request, version=_PRODUCE_VERSION).responses
            (part,) = topic.partition_responses
            refuse(part.error_code, part.error_message, f"{self}-{partition}")
            return True

        _retry(self.bootstrap, f"{self}-{partition} takes a record", attempt)

    def records(self, count: int | None = None, *, timeout_s: float = TIMEOUT_S) -> list[Record]:
        """Return all records, one partition after the other, each in the order of offsets.

        count  wait until there are so many. AssertionError with what there is if that takes too long

        Records of transactions that were aborted or are open are among them; what compaction or retention
        has removed is not.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            found = _retry(self.bootstrap, f"{self} can be read", lambda admin: _read(admin, self))
            if count is None or len(found) >= count:
                return found
            if time.monotonic() > deadline:
                shown = "\n".join(map(str, found[-10:]))
                raise AssertionError(
                    f"{self} has {len(found)} records after {timeout_s:g} s, not {count}; the last:\n{shown}"
                )
            time.sleep(_NAP_S)

    def values(
        self, count: int | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> list[bytes | None]:
        """Return the values of `records`."""
        return [record.value for record in self.records(count, timeout_s=timeout_s)]


def await_leaders(admin: Admin, name: str) -> None:
    """Wait until every broker knows a leader of each partition: a client may ask any of them."""
    from firnline.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic

    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=str(name))], allow_auto_topic_creation=False
    )

    def all_know() -> bool:
        for broker in admin.brokers():
            (topic,) = broker.ask(request).topics
            if topic.error_code or any(part.leader_id < 0 for part in topic.partitions):
                return False
        return True

    deadline = time.monotonic() + TIMEOUT_S
    while not all_know():
        if time.monotonic() > deadline:
            raise AssertionError(f"not every broker knew {name} after {TIMEOUT_S:g} s")
        time.sleep(_NAP_S)


def _bytes(value: Bytes) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _retry(bootstrap: str, what: str, attempt: Callable[[Admin], T]) -> T:
    """Return the result of the first attempt that meets no passing trouble."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            with Admin(bootstrap, timeout_s=TIMEOUT_S) as admin:
                return attempt(admin)
        except KafkaError as problem:
            if problem.code not in _PASSING:
                raise
            why: Exception = problem
        except Unreachable as problem:
            why = problem
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {TIMEOUT_S:g} s; {why}") from None
        time.sleep(_NAP_S)


def _leaders(admin: Admin, name: str) -> dict[int, Connection]:
    """Return a connection to the leader of each partition. Raises KafkaError."""
    answer = admin.metadata([str(name)])
    (topic,) = answer.topics
    refuse(topic.error_code, None, f"topic {name}")
    nodes = {each.node_id: (each.host, each.port) for each in answer.brokers}
    found = {}
    for part in sorted(topic.partitions, key=lambda part: part.partition_index):
        if part.leader_id not in nodes:
            refuse(Code.LEADER_NOT_AVAILABLE, None, f"{name}-{part.partition_index}")
        found[part.partition_index] = admin.node(part.leader_id, *nodes[part.leader_id])
    return found


def _read(admin: Admin, name: str) -> list[Record]:
    """Return what is between both ends of each partition now."""
    found: list[Record] = []
    for partition, leader in _leaders(admin, name).items():
        ends = {
            wish: admin.offsets(leader, str(name), [partition], wish).get(partition)
            for wish in (EARLIEST, LATEST)
        }
        first, end = ends[EARLIEST], ends[LATEST]
        if first is None or end is None:
            refuse(Code.NOT_LEADER_OR_FOLLOWER, None, f"{name}-{partition}")
        else:
            found += _read_partition(leader, str(name), partition, first, end)
    return found


def _read_partition(
    leader: Connection, name: str, partition: int, first: int, end: int
) -> Iterator[Record]:
    position = first
    gives_up = time.monotonic() + _NOTHING_S
    while position < end and time.monotonic() < gives_up:
        data = _fetch(leader, name, partition, position)
        for batch in headers(data):
            if not position <= batch.last_offset < end:
                continue
            position = batch.next_offset
            gives_up = time.monotonic() + _NOTHING_S
            rows = () if batch.is_control else records(data, batch)
            yield from (Record(partition, *row) for row in rows if row.offset >= first)


def _fetch(leader: Connection, name: str, partition: int, position: int) -> bytes:
    part = FetchPartition(
        partition=partition, fetch_offset=position, partition_max_bytes=_FETCH_BYTES
    )
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic=name, partitions=[part])]
    )
    answer: Any = leader.ask(request, version=_FETCH_VERSION)
    refuse(answer.error_code, None, f"topic {name}")
    ((found,),) = (topic.partitions for topic in answer.responses)
    refuse(found.error_code, None, f"{name}-{partition}")
    return bytes(found.records or b"")
