"""Two brokers of a few lines, with one topic whose partitions they lead in turn, for tests of commands."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from click.testing import CliRunner, Result

from firnline.base.errors import Code
from firnline.cli.main import cli
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from firnline.protocol.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.cli.fake_broker import Answer, FakeBroker

ID = bytes(range(16))
PARTITIONS = 4
START, END = 10, 100


class FakeCluster:
    """Brokers 1 and 2. `topics` are the numbers of partitions; partition n is led by broker 1 + n % 2.

    offsets  what ListOffsets tells of a partition at a time; a code is an error
    """

    def __init__(self, brokers: list[FakeBroker]) -> None:
        self.brokers = brokers
        self.topics = {"events": PARTITIONS}
        self.replicas: dict[tuple[str, int], list[int]] = {}
        self.isrs: dict[tuple[str, int], list[int]] = {}
        self.leaderless: set[tuple[str, int]] = set()
        self.offsets: dict[tuple[str, int, int], int | Code] = {}
        for number, broker in enumerate(brokers, 1):
            broker.answers[3] = self.metadata
            broker.answers[2] = lambda request, me=number: self.list_offsets(request, me)
        self.bootstrap = brokers[0].address

    def answer(self, key: int, answer: Answer) -> None:
        """Let both brokers answer requests with this key."""
        for broker in self.brokers:
            broker.answers[key] = answer

    def asked(self, kind: str) -> list[Any]:
        """Return the requests of that kind that the brokers got, the first broker's first."""
        return [
            each for broker in self.brokers for each in broker.asked if type(each).__name__ == kind
        ]

    def run(self, *words: str, stdin: str = "") -> Result:
        """Run a command at this cluster."""
        return CliRunner().invoke(cli, [*words, "--bootstrap-server", self.bootstrap], input=stdin)

    def leader(self, index: int) -> int:
        """Return who leads a partition."""
        return 1 + index % len(self.brokers)

    def metadata(self, request: Any) -> MetadataResponse:
        names = (
            list(self.topics)
            if request.topics is None
            else [topic.name for topic in request.topics]
        )
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=number, host="127.0.0.1", port=broker.port)
                for number, broker in enumerate(self.brokers, 1)
            ],
            controller_id=1,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            missing = Code.UNKNOWN_TOPIC_OR_PARTITION
            return MetadataResponseTopic(name=name, error_code=missing)
        parts = []
        for index in range(self.topics[name]):
            leader = -1 if (name, index) in self.leaderless else self.leader(index)
            replicas = self.replicas.get((name, index), [self.leader(index)])
            isr = self.isrs.get((name, index), replicas)
            parts.append(
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=leader,
                    replica_nodes=replicas,
                    isr_nodes=isr,
                )
            )
        return MetadataResponseTopic(name=name, topic_id=ID, partitions=parts)

    def list_offsets(self, request: Any, me: int) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        self._offset(topic.name, part.partition_index, part.timestamp, me)
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _offset(self, name: str, index: int, at: int, me: int) -> ListOffsetsPartitionResponse:
        found = self.offsets.get((name, index, at), {-2: START, -1: END}.get(at, -1))
        if self.leader(index) != me:
            found = Code.NOT_LEADER_OR_FOLLOWER
        if isinstance(found, Code):
            return ListOffsetsPartitionResponse(partition_index=index, error_code=found)
        return ListOffsetsPartitionResponse(partition_index=index, offset=found)


@contextmanager
def fake_cluster() -> Iterator[FakeCluster]:
    """Start both brokers."""
    with FakeBroker({}) as one, FakeBroker({}) as other:
        yield FakeCluster([one, other])


def once(first: Answer, then: Answer) -> Answer:
    """Answer the first request with `first`, the later ones with `then`."""
    answers = iter([first])

    def answer(request: Any) -> Any:
        return next(answers, then)(request)

    return answer
