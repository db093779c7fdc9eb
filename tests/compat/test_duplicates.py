"""The same name twice in a request: ours answers as Apache Kafka does."""

import time
from collections.abc import Iterator

import pytest

from firnline.protocol.messages import k08_offset_commit as m08
from firnline.protocol.messages import k10_find_coordinator as m10
from firnline.protocol.messages.k03_metadata import MetadataRequest
from tests.compat.duplicate_cases import (
    CASES,
    GROUPS,
    OURS,
    REPORTED,
    SILENCE,
    TOPICS,
    Case,
    World,
    reported,
)
from tests.compat.one_server import KINDS, one_server
from tests.wire.line import Line, Target

_ANSWER_S = 5.0


class Asked:
    """A server with two topics and two groups."""

    def __init__(self, target: Target) -> None:
        self.target = target
        ids = {name: target.topic(name, partitions=2) for name in TOPICS}
        target.ask(m10.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        for group in GROUPS:
            self._commit(group)
        broker = target.ask(MetadataRequest(topics=None), 12).brokers[0].node_id
        self.world = World(ids, str(broker))

    def _commit(self, group: str) -> None:
        """A group there is because it has a commit; its coordinator may still be loading."""
        part = m08.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request = m08.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[m08.OffsetCommitRequestTopic(name="t", partitions=[part])],
        )
        deadline = time.monotonic() + 60
        while True:
            [topic] = self.target.ask(request, 8).topics
            if not topic.partitions[0].error_code:
                return
            assert time.monotonic() < deadline, topic
            time.sleep(0.1)


@pytest.fixture(scope="module", params=KINDS)
def asked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Asked]:
    """A server of one kind, used by all tests of this file."""
    with one_server(request.param, tmp_path_factory.mktemp("twice")) as server:
        yield Asked(server)


def _answer(asked: Asked, case: Case) -> str:
    try:
        with Line(asked.target.address, timeout_s=_ANSWER_S) as line:
            return reported(line.ask(case.ask(asked.world), case.version), asked.world)
    except TimeoutError:
        return SILENCE
    except AssertionError as problem:
        return str(problem)


def test_what_is_named_twice_is_answered_as_kafka_does(asked: Asked) -> None:
    wrong = []
    for case in CASES:
        wanted = REPORTED[case.name]
        if asked.target.is_firnline:
            wanted = OURS.get(case.name, wanted)
        found = _answer(asked, case)
        if found != wanted:
            wrong.append(f"{case.name}, v{case.version}\n  {found}\n  {wanted}")
    assert not wrong, "told and wanted:\n" + "\n".join(wrong)
