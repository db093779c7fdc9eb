"""Every API at every version, with the longest strings, null, nothing, and arrays of none, -1 and thousands.

What comes back is an answer of that version or the end of the connection. Afterwards nothing has failed
inside the node, another client is served as before, and the node starts again with all its records.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from firnline.client.wire import decode_answer, encode_request
from firnline.protocol.messages import messages_of
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from firnline.protocol.versions import PRIVATE, SERVED, ServedApi
from firnline.testing.plugin import Broker
from tests.fuzz.shapes import CORRELATION_ID, Plan, answer_head, frame
from tests.wire.line import Target
from tests.worlds.list_log import batch, batch_bytes

LONG = "x" * 32_767
KNOWN = "known"
NEWCOMER = (("member_id", ""), ("group_instance_id", None), ("protocol_type", "consumer"))
# At every version; the numbers are those that mean nothing, or all, or none.
PLANS = [
    Plan("longest", LONG),
    Plan("longest newcomer", LONG, named=NEWCOMER),
    Plan("longest static newcomer", LONG, named=(("member_id", ""),)),
    Plan("null", None, count=0, number=-1),
    Plan("empty", "", count=0),
    Plan("empty inside", "", count=1, number=-1),
    Plan("counts of -1", "", count=-1),
    Plan("known", KNOWN),
]
# At the first and the last version, up to a mebibyte each.
LARGE_PLANS = [
    Plan("many", "a", count=10_000),
    Plan("many deep", "a", count=10_000, is_deep=True),
    Plan("many known", KNOWN, count=10_000),
]
ROWS = (*SERVED, *PRIVATE)
_DELETE_TOPICS = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    base = tmp_path_factory.mktemp("extremes")
    made = Broker(base / "data", options=["-X", "group.initial.rebalance.delay.ms=0"])
    made.start()
    target = _target(made)
    target.topic(KNOWN)
    with target.line() as line:
        line.ask(FindCoordinatorRequest(coordinator_key=KNOWN, key_type=0), 3)
    assert target.produce(KNOWN, batch()).error_code == 0
    yield made
    if made.process is not None:
        made.kill()


def _target(broker: Broker) -> Target:
    return Target("firnline", broker.bootstrap, broker.pid, Path())


def _is_there(target: Target) -> None:
    """Goal: another client is served as before: what was written is read, whole."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=KNOWN, partitions=[wanted])]
    [topic] = target.ask(FetchRequest(topics=topics, max_bytes=1 << 20), 12).responses
    [part] = topic.partitions
    assert (part.error_code, part.high_watermark, len(part.records)) == (0, 1, batch_bytes())


def _versions(row: ServedApi) -> range:
    return range(row.advertised_min, row.advertised_max + 1)


def _cases(row: ServedApi) -> Iterator[tuple[int, Plan]]:
    plans = [p for p in PLANS if row.key != _DELETE_TOPICS or p.text != KNOWN]
    for version in _versions(row):
        for place, plan in enumerate(plans):
            if plan.named:  # a group for each: members that were met before would be waited for
                group_id = f"{LONG[:-4]}{version:02d}{place:02d}"
                plan = plan._replace(named=(*plan.named, ("group_id", group_id)))
            yield version, plan
    for version in sorted({row.advertised_min, row.advertised_max}):
        for plan in LARGE_PLANS:
            if row.key != _DELETE_TOPICS or plan.text != KNOWN:
                yield version, plan


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_an_extreme_request_is_answered_or_its_connection_closed(
    broker: Broker, row: ServedApi
) -> None:
    target = _target(broker)
    for version, plan in _cases(row):
        data = frame(row.key, version, plan, LONG if plan.text == LONG else plan.text)
        with target.line() as line:
            line.send(data)
            said = line.frame()
        if said is None:
            continue
        assert struct.unpack_from(">i", said)[0] == CORRELATION_ID, (version, plan.name)
        response = messages_of(row.key)[1]
        _, end = response.read(said, version, answer_head(row.key, version))
        assert end == len(said), (version, plan.name)
    log = broker.log_text()
    assert "failed inside" not in log, log[-3000:]
    assert "Traceback" not in log, log[-3000:]
    _is_there(target)


def test_a_member_with_the_longest_names_is_let_in(broker: Broker) -> None:
    """Version 2 made a member id longer than a length can say, and the node ended."""
    target = _target(broker)
    request = JoinGroupRequest(
        group_id="a group of long names",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=1_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=LONG, metadata=b"")],
    )
    with target.line() as line:
        line.send(encode_request(request, version=2, correlation_id=1, client_id=LONG))
        said = line.frame()
    assert said is not None
    answer = decode_answer(request, 2, said, correlation_id=1)
    assert answer.error_code == 0  # type: ignore[attr-defined]
    assert len(answer.member_id) == len(LONG)  # type: ignore[attr-defined]


def test_nothing_of_it_keeps_the_node_from_starting_again(broker: Broker) -> None:
    assert broker.stop() == 0
    broker.start()
    _is_there(_target(broker))
    assert "the node stops" not in broker.log_text()
