"""The wire side of groups, offsets and producer ids, in every version that is served. Spec C15, C2, C8."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map

from firnline.api.context import RequestContext
from firnline.api.handlers import (
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
    k16_list_groups,
    k22_init_producer_id,
    k42_delete_groups,
    k68_consumer_group_heartbeat,
)
from firnline.api.unbuilt import LINES_PER_MINUTE, SAME_CLIENT_MS, note_refusal
from firnline.base.background import Background
from firnline.base.effects import EnsureTopic, Reply
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import OFFSETS_TOPIC, ZERO_UUID, ProducerIdBlock
from firnline.base.log_lines.line import Log
from firnline.coordinator.membership import DescribedGroup, DescribedMember
from firnline.coordinator.producer_ids import ProducerIds
from firnline.metadata.image import (
    BrokerImage,
    ClusterImage,
    Endpoint,
    PartitionImage,
    TopicImage,
)
from firnline.protocol.messages import messages_of
from firnline.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from firnline.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
)
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from firnline.protocol.messages.k12_heartbeat import HeartbeatRequest
from firnline.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from firnline.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from firnline.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from firnline.protocol.messages.k16_list_groups import ListGroupsRequest
from firnline.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from firnline.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from firnline.protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from firnline.protocol.schema import Message
from tests.worlds.effects import said
from tests.worlds.groups import GroupWorld

T_ID, OFFSETS_ID, OTHER_ID = (bytes(15) + bytes([n]) for n in (7, 8, 9))
CONNECTION = SimpleNamespace(listener="PLAINTEXT", peer_host="10.0.0.1", principal="User:ANONYMOUS")


def topic_image(name: str, topic_id: bytes, partitions: int, leader: int = 1) -> TopicImage:
    one = PartitionImage((1,), (ZERO_UUID,), (1,), leader, 0, 0)
    return TopicImage(name, topic_id, Map(dict.fromkeys(range(partitions), one)))


def cluster(*topics: TopicImage) -> ClusterImage:
    endpoint = Endpoint("PLAINTEXT", "broker-1", 9092)
    broker = BrokerImage(1, 5, ZERO_UUID, (endpoint,), Map(), None, False, False, ())
    return ClusterImage(
        brokers=Map({1: broker}),
        topics_by_name=Map({t.name: t for t in topics}),
        topics_by_id=Map({t.topic_id: t for t in topics}),
    )


class Asked(GroupWorld):
    """Reads answers from the bytes of their version; the topic of offsets is made when a test says so."""

    def __init__(self) -> None:
        self.answers: list[Message] = []
        self.asked_topics: list[EnsureTopic] = []
        super().__init__()

    def on_ensure_topic(self, effect: EnsureTopic) -> None:
        self.asked_topics.append(effect)

    def on_reply(self, reply: Reply[Any]) -> None:
        _, response = messages_of(reply.context.api_key)
        version = reply.context.api_version
        assert reply.message is not None
        message: Any = reply.message
        sent = message.write(version)
        answer, end = response.read(sent, version)
        assert end == len(sent)
        self.answers.append(answer)


class OneNode:
    """A node with the parts that handlers of groups use."""

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


class Wire:
    """Sends requests as bytes of a version and reads answers as bytes of that version."""

    def __init__(self) -> None:
        self.world = Asked()
        self.answers = self.world.answers
        self.allocations: list[Any] = []

        def allocate(then: Any) -> list[Any]:
            self.allocations.append(then)
            return []

        self.node: Any = OneNode(
            sliced_tasks=Background("requests", is_round_robin=True),
            image=cluster(topic_image("t", T_ID, 2), topic_image(OFFSETS_TOPIC, OFFSETS_ID, 1)),
            groups=self.world.groups,
            producer_ids=ProducerIds(allocate),
        )

    def send(self, handler: Any, request: Message, version: int) -> None:
        data = request.write(version)
        decoded, _ = type(request).read(data, version)
        context = RequestContext(CONNECTION, request.key, version, 1, "me", 0)
        self.world.run(handler.handle(self.node, context, decoded, self.world.now_ms))

    def ask(self, handler: Any, request: Message, version: int) -> Any:
        self.send(handler, request, version)
        return self.answer()

    def answer(self) -> Any:
        (answer,) = self.answers
        self.answers.clear()
        return answer


@pytest.fixture
def wire() -> Wire:
    return Wire()


def join_request(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"topics")],
    )


def enter(wire: Wire, version: int) -> Any:
    """Join at a version and wait for the generation."""
    wire.send(k11_join_group, join_request(), version)
    if version >= 4:
        asked = wire.answer()
        assert asked.error_code == Code.MEMBER_ID_REQUIRED
        wire.send(k11_join_group, join_request(asked.member_id), version)
    wire.world.pass_time(3_000)
    return wire.answer()


@pytest.mark.parametrize("version", range(10))
def test_a_member_lives_and_leaves_in_every_version(wire: Wire, version: int) -> None:
    """JoinGroup sets the pace; the others are asked in the newest version that is not above it."""
    joined = enter(wire, version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert joined.member_id.startswith("me-")
    assert [(m.member_id, bytes(m.metadata)) for m in joined.members] == [
        (joined.member_id, b"topics")
    ]
    at = min(version, 5)
    assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
    sync = SyncGroupRequest(
        group_id="g", generation_id=1, member_id=joined.member_id, assignments=[assignment]
    )
    if at >= 5:
        assert wire.ask(k14_sync_group, sync, at).error_code == Code.INCONSISTENT_GROUP_PROTOCOL
        sync.protocol_type, sync.protocol_name = "consumer", "range"
    synced = wire.ask(k14_sync_group, sync, at)
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"mine")
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert wire.ask(k12_heartbeat, heartbeat, min(version, 4)).error_code == 0
    leave = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
    if at >= 3:
        who = MemberIdentity(member_id=joined.member_id)
        leave = LeaveGroupRequest(group_id="g", members=[who, MemberIdentity(member_id="x")])
    left = wire.ask(k13_leave_group, leave, at)
    assert left.error_code == 0
    if at >= 3:
        assert [m.error_code for m in left.members] == [0, Code.UNKNOWN_MEMBER_ID]
    again = wire.ask(k13_leave_group, leave, at)
    assert again.error_code == (0 if at >= 3 else Code.UNKNOWN_MEMBER_ID)


def test_version_0_joins_rebalance_within_their_session(wire: Wire) -> None:
    enter(wire, 0)
    group = wire.world.groups._shards[0].groups["g"]
    (member,) = group.members.by_id.values()
    assert member.rebalance_timeout_ms == member.session_timeout_ms == 30_000
    assert member.client_host == "/10.0.0.1"


@pytest.mark.parametrize("version", range(10))
def test_a_refused_join_is_readable_in_every_version(wire: Wire, version: int) -> None:
    request = join_request()
    request.session_timeout_ms = 1
    assert wire.ask(k11_join_group, request, version).error_code == Code.INVALID_SESSION_TIMEOUT


# --------------------------------------------------------------------------------------- offsets


def commit_request(version: int, *topics: tuple[str, bytes, int]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                **({"topic_id": topic_id} if version >= 10 else {"name": name}),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=41, committed_metadata=None
                    )
                ],
            )
            for name, topic_id, partition in topics
        ],
    )


@pytest.mark.parametrize("version", range(2, 11))
def test_commits_are_taken_for_partitions_that_exist(wire: Wire, version: int) -> None:
    request = commit_request(version, ("t", T_ID, 1), ("t", T_ID, 2), ("u", OTHER_ID, 0))
    answer = wire.ask(k08_offset_commit, request, version)
    unknown = Code.UNKNOWN_TOPIC_ID if version >= 10 else Code.UNKNOWN_TOPIC_OR_PARTITION
    codes = [p.error_code for t in answer.topics for p in t.partitions]
    assert codes == [Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION, unknown]
    assert wire.world.fetched() == {("t", 1): 41}
    if version < 10:
        assert [t.name for t in answer.topics] == ["t", "t", "u"]
    else:
        assert [t.topic_id for t in answer.topics] == [T_ID, T_ID, OTHER_ID]


def test_versions_from_9_say_that_the_group_is_not_there(wire: Wire) -> None:
    for version, code in ((8, Code.ILLEGAL_GENERATION), (9, Code.GROUP_ID_NOT_FOUND)):
        request = commit_request(version, ("t", T_ID, 0))
        request.generation_id_or_member_epoch = 3
        answer = wire.ask(k08_offset_commit, request, version)
        assert answer.topics[0].partitions[0].error_code == code


def test_a_retention_of_versions_up_to_4_is_kept(wire: Wire) -> None:
    request = commit_request(4, ("t", T_ID, 0))
    request.retention_time_ms = 600_000
    wire.ask(k08_offset_commit, request, 4)
    ((_, commit),) = wire.world.groups._shards[0].offsets.of("g")
    assert commit.expire_timestamp_ms == wire.world.now_ms + 600_000
    assert commit.topic_id == T_ID


@pytest.mark.parametrize("version", range(1, 8))
def test_one_group_is_fetched_up_to_version_7(wire: Wire, version: int) -> None:
    wire.ask(k08_offset_commit, commit_request(9, ("t", T_ID, 1)), 9)
    wanted = OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
    answer = wire.ask(k09_offset_fetch, OffsetFetchRequest(group_id="g", topics=[wanted]), version)
    rows = answer.topics[0].partitions
    assert [(r.partition_index, r.committed_offset, r.metadata) for r in rows] == [
        (0, -1, ""),
        (1, 41, ""),
    ]
    if version >= 2:
        everything = OffsetFetchRequest(group_id="g", topics=None)
        (topic,) = wire.ask(k09_offset_fetch, everything, version).topics
        assert [r.partition_index for r in topic.partitions] == [1]
    wire.world.unload()
    refused = wire.ask(k09_offset_fetch, OffsetFetchRequest(group_id="g", topics=[wanted]), version)
    if version >= 2:
        assert refused.error_code == Code.NOT_COORDINATOR
    else:
        codes = [r.error_code for r in refused.topics[0].partitions]
        assert codes == [Code.NOT_COORDINATOR] * 2


@pytest.mark.parametrize("version", range(8, 11))
def test_many_groups_are_fetched_from_version_8(wire: Wire, version: int) -> None:
    wire.ask(k08_offset_commit, commit_request(9, ("t", T_ID, 1)), 9)
    by_id = version >= 10
    wanted = [
        OffsetFetchRequestGroupTopic(
            **({"topic_id": T_ID} if by_id else {"name": "t"}), partition_indexes=[1]
        ),
        OffsetFetchRequestGroupTopic(
            **({"topic_id": OTHER_ID} if by_id else {"name": "u"}), partition_indexes=[0]
        ),
    ]
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="g", topics=wanted),
            OffsetFetchRequestGroup(group_id="g", topics=None),
            OffsetFetchRequestGroup(group_id="nobody's", topics=None),
        ],
        require_stable=True,
    )
    some, all_, none = wire.ask(k09_offset_fetch, request, version).groups
    assert [(p.committed_offset, p.error_code) for t in some.topics for p in t.partitions] == [
        (41, 0),
        (-1, Code.UNKNOWN_TOPIC_ID if by_id else 0),
    ]
    assert [t.topic_id if by_id else t.name for t in all_.topics] == [T_ID if by_id else "t"]
    assert (none.error_code, list(none.topics)) == (0, [])
    wire.world.unload()
    refused = wire.ask(k09_offset_fetch, request, version)
    assert [g.error_code for g in refused.groups] == [Code.NOT_COORDINATOR] * 3


def test_offsets_of_a_topic_that_was_made_anew_are_not_the_new_ones(wire: Wire) -> None:
    wire.ask(k08_offset_commit, commit_request(10, ("t", T_ID, 1)), 10)
    wire.node.image = cluster(topic_image("t", OTHER_ID, 2))
    wanted = OffsetFetchRequestGroupTopic(topic_id=OTHER_ID, partition_indexes=[1])
    group = OffsetFetchRequestGroup(group_id="g", topics=[wanted])
    answer = wire.ask(k09_offset_fetch, OffsetFetchRequest(groups=[group]), 10)
    assert answer.groups[0].topics[0].partitions[0].committed_offset == -1


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_topic_that_goes_while_its_offsets_are_fetched_is_named_unknown(
    wire: Wire, is_made_anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: whoever asks by id hears of each partition. Method: delete the topic before the second slice."""
    monkeypatch.setattr(k09_offset_fetch, "_OFFSETS_PER_SLICE", 1)
    wire.ask(k08_offset_commit, commit_request(10, ("t", T_ID, 0), ("t", T_ID, 1)), 10)
    slices = []
    fetch = wire.node.groups.fetch

    def noted(*args: Any, **more: Any) -> Any:
        slices.append(args)
        if len(slices) == 2:
            wire.node.image = cluster(*[topic_image("t", OTHER_ID, 2)] * is_made_anew)
        return fetch(*args, **more)

    monkeypatch.setattr(wire.node.groups, "fetch", noted)
    wanted = OffsetFetchRequestGroupTopic(topic_id=T_ID, partition_indexes=[0, 1])
    group = OffsetFetchRequestGroup(group_id="g", topics=[wanted])
    wire.send(k09_offset_fetch, OffsetFetchRequest(groups=[group]), 10)
    wire.world.pass_time(0)
    answer = wire.answer()
    rows = [(t.topic_id, p) for t in answer.groups[0].topics for p in t.partitions]
    assert {topic_id for topic_id, _ in rows} == {T_ID}
    found = [(p.partition_index, p.committed_offset, p.error_code) for _, p in rows]
    assert found == [(0, 41, 0), (1, -1, Code.UNKNOWN_TOPIC_ID)]


def test_a_large_group_is_described_some_members_at_a_time(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    notified: list[str] = []
    of_wire = k15_describe_groups._wire_member

    def noted(member: DescribedMember) -> Any:
        notified.append(member.member_id)
        return of_wire(member)

    names = [f"m{n}" for n in range(1_000)]
    members = tuple(DescribedMember(name, None, "c", "/h", b"s", b"a") for name in names)
    large = DescribedGroup(code=Code.NONE, group_id="g", state="Stable", members=members)
    monkeypatch.setattr(wire.node.groups, "describe", lambda group_id: large)
    monkeypatch.setattr(k15_describe_groups, "_wire_member", noted)
    wire.send(k15_describe_groups, DescribeGroupsRequest(groups=["g", "h"]), 5)
    counts = [len(notified)]
    while not wire.answers:
        wire.world.one_slice()
        counts.append(len(notified))
    assert max(after - before for before, after in pairwise([0, *counts])) <= 300
    found = [[m.member_id for m in group.members] for group in wire.answer().groups]
    assert found == [names, names]


# --------------------------------------------------------------------------- finding the coordinator


def find(version: int, *keys: str, key_type: int = 0) -> FindCoordinatorRequest:
    if version >= 4:
        return FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
    kind = {"key_type": key_type} if version >= 1 else {}
    return FindCoordinatorRequest(coordinator_key=keys[0], **kind)


def found(answer: Any, version: int) -> list[tuple[int, int, str, int]]:
    rows = answer.coordinators if version >= 4 else [answer]
    return [(r.error_code, r.node_id, r.host, r.port) for r in rows]


NOWHERE = (Code.COORDINATOR_NOT_AVAILABLE, -1, "", -1)


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_is_the_leader_of_the_groups_partition(wire: Wire, version: int) -> None:
    request = find(version, "g", "h") if version >= 4 else find(version, "g")
    answer = wire.ask(k10_find_coordinator, request, version)
    here = (0, 1, "broker-1", 9092)
    assert found(answer, version) == [here] * (2 if version >= 4 else 1)


@pytest.mark.parametrize("version", range(7))
def test_the_first_to_ask_has_the_topic_made(wire: Wire, version: int) -> None:
    complete, wire.node.image = wire.node.image, cluster()
    wire.send(k10_find_coordinator, find(version, "g"), version)
    (asked,) = wire.world.asked_topics
    assert asked.name == OFFSETS_TOPIC
    assert wire.answers == []
    wire.world.run(asked.then(KafkaError(Code.INVALID_REPLICATION_FACTOR, "too few brokers"), 0))
    refused = wire.answer()
    assert found(refused, version) == [NOWHERE]
    wire.node.image = complete
    wire.world.run(asked.then(None, 0))
    assert found(wire.answer(), version) == [(0, 1, "broker-1", 9092)]


def test_without_a_leader_that_listens_there_is_no_coordinator(wire: Wire) -> None:
    wire.node.image = cluster(topic_image(OFFSETS_TOPIC, OFFSETS_ID, 1, leader=-1))
    assert found(wire.ask(k10_find_coordinator, find(4, "g"), 4), 4) == [NOWHERE]
    image = cluster(topic_image(OFFSETS_TOPIC, OFFSETS_ID, 1))
    fenced = image.brokers[1]._replace(fenced=True)
    wire.node.image = image._replace(brokers=Map({1: fenced}))
    assert found(wire.ask(k10_find_coordinator, find(4, "g"), 4), 4) == [NOWHERE]
    deaf = image.brokers[1]._replace(endpoints=())
    wire.node.image = image._replace(brokers=Map({1: deaf}))
    assert found(wire.ask(k10_find_coordinator, find(4, "g"), 4), 4) == [NOWHERE]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (1, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (3, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (4, Code.UNSUPPORTED_VERSION),
        (6, Code.UNSUPPORTED_VERSION),
    ],
)
def test_who_looks_for_transactions_gives_up_at_once_and_is_named_in_the_log(
    wire: Wire, version: int, code: Code
) -> None:
    answer = wire.ask(k10_find_coordinator, find(version, "x", key_type=1), version)
    assert found(answer, version) == [(code, -1, "", -1)]
    reply = answer if version < 4 else answer.coordinators[0]
    assert "do not set transactional.id" in reply.error_message
    [warning] = wire.world.warnings
    assert "host=10.0.0.1 client_id=me api=FindCoordinator" in warning
    assert "do not set transactional.id" in warning


@pytest.mark.parametrize("version", [1, 3, 4, 6])
@pytest.mark.parametrize("key_type", [2, 9])
def test_other_coordinators_are_not_here(wire: Wire, key_type: int, version: int) -> None:
    answer = wire.ask(k10_find_coordinator, find(version, "x", key_type=key_type), version)
    assert found(answer, version) == [(Code.INVALID_REQUEST, -1, "", -1)]


# ----------------------------------------------------------------------------------------- groups


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described_in_every_version(wire: Wire, version: int) -> None:
    wire.world.stable("a", metadata=b"topics")
    flag = {"include_authorized_operations": True} if version >= 3 else {}
    request = DescribeGroupsRequest(groups=["g", "none"], **flag)
    here, none = wire.ask(k15_describe_groups, request, version).groups
    assert (here.error_code, here.group_state, here.protocol_data) == (0, "Stable", "range")
    (member,) = here.members
    assert (member.client_id, member.client_host) == ("a", "/127.0.0.1")
    assert bytes(member.member_metadata) == b"topics"
    assert bytes(member.member_assignment) == b"part of a"
    if version >= 3:
        assert here.authorized_operations == 0b110101001000
    assert none.group_state == "Dead"
    assert none.error_code == (Code.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    if version >= 6:
        assert none.error_message == "Group none not found."


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_in_every_version(wire: Wire, version: int) -> None:
    wire.world.stable("a")
    (group,) = wire.ask(k16_list_groups, ListGroupsRequest(), version).groups
    assert (group.group_id, group.protocol_type) == ("g", "consumer")
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")
    if version >= 4:
        filtered = ListGroupsRequest(states_filter=["Empty"])
        assert wire.ask(k16_list_groups, filtered, version).groups == []


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted_in_every_version(wire: Wire, version: int) -> None:
    wire.world.commit("c", ("t", 0, 1))
    wire.world.take_reported()
    request = DeleteGroupsRequest(groups_names=["g", "none"])
    answer = wire.ask(k42_delete_groups, request, version)
    assert [(r.group_id, r.error_code) for r in answer.results] == [
        ("g", 0),
        ("none", Code.GROUP_ID_NOT_FOUND),
    ]


# ----------------------------------------------------------------------------------- producer ids


@pytest.mark.parametrize("version", range(6))
def test_idempotent_producers_get_ids_in_every_version(wire: Wire, version: int) -> None:
    wire.send(k22_init_producer_id, InitProducerIdRequest(transactional_id=None), version)
    assert wire.answers == []
    wire.world.run(wire.allocations[0](ProducerIdBlock(4000, 1000), 0))
    answer = wire.answer()
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 4000, 0)
    for name, code in (("tx", Code.UNSUPPORTED_VERSION), ("", Code.INVALID_REQUEST)):
        request = InitProducerIdRequest(transactional_id=name)
        refused = wire.ask(k22_init_producer_id, request, version)
        assert (refused.error_code, refused.producer_id) == (code, -1)
    [warning] = wire.world.warnings
    assert "do not set transactional.id" in warning


@pytest.mark.parametrize("version", range(2))
def test_a_member_of_the_consumer_protocol_is_told_that_it_is_not_built(
    wire: Wire, version: int
) -> None:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m")
    answer = wire.ask(k68_consumer_group_heartbeat, request, version)
    assert answer.error_code == Code.UNSUPPORTED_VERSION
    assert "set group.protocol=classic" in answer.error_message
    [warning] = wire.world.warnings
    assert "set group.protocol=classic" in warning


def test_the_log_names_a_refused_client_once_in_ten_minutes_and_few_in_a_minute(wire: Wire) -> None:
    def ask(client_id: str, at_ms: int, sentence: str = "not built") -> int:
        context = RequestContext(CONNECTION, 68, 1, 1, client_id, at_ms)
        return len(note_refusal(wire.node, sentence, context, at_ms))

    assert [ask("a", at_ms) for at_ms in (0, 1, SAME_CLIENT_MS - 1, SAME_CLIENT_MS)] == [1, 0, 0, 1]
    assert [ask("a", SAME_CLIENT_MS, "nor this"), ask("b", SAME_CLIENT_MS)] == [1, 1]
    at_ms = 2 * SAME_CLIENT_MS
    assert sum(ask(f"crowd-{n}", at_ms) for n in range(5_000)) == LINES_PER_MINUTE
    assert [ask("late", at_ms + 59_999), ask("late", at_ms + 60_000)] == [0, 1]
    [line] = note_refusal(
        wire.node, "", RequestContext(CONNECTION, 68, 1, 1, "\n" * 40_000, 0), at_ms + 60_000
    )
    assert isinstance(line, Log)
    assert "\n" not in said(line)
    assert len(said(line)) < 400
