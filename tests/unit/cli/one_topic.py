"""A fake broker with one topic, and how a command is run against it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
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
from tests.unit.cli.fake_broker import FakeBroker

ID = bytes(range(16))


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({}) as fake:
        fake.answers[3] = lambda request: metadata(fake, request)
        fake.answers[2] = list_offsets
        yield fake


def metadata(fake: FakeBroker, request: Any) -> MetadataResponse:
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=1, leader_epoch=4, replica_nodes=[1], isr_nodes=[1]
    )
    topics = {
        "events": MetadataResponseTopic(name="events", topic_id=ID, partitions=[partition]),
        "__consumer_offsets": MetadataResponseTopic(
            name="__consumer_offsets", topic_id=ID, is_internal=True, partitions=[partition]
        ),
    }
    names = list(topics) if request.topics is None else [topic.name for topic in request.topics]
    missing = Code.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=fake.port)],
        controller_id=1,
        topics=[
            topics.get(name) or MetadataResponseTopic(name=name, error_code=missing)
            for name in names
        ],
    )


def list_offsets(request: Any) -> ListOffsetsResponse:
    (topic,) = request.topics
    offsets = {-2: 10, -1: 25}
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=part.partition_index, offset=offsets[part.timestamp]
                    )
                    for part in topic.partitions
                ],
            )
        ]
    )


def run(broker: FakeBroker, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--bootstrap-server", broker.address])


def json_of(broker: FakeBroker, *arguments: str) -> Any:
    result = run(broker, *arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
