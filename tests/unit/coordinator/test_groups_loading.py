"""Loading, unloading, and records that others wrote. Spec C15; KIP-915; rel-C5."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.base.errors import Code, StorageError
from firnline.base.ids import TopicPartition
from firnline.base.limits import KEYED_BATCH_BYTES_MAX
from firnline.coordinator.commits import CommittedOffset
from firnline.coordinator.groups import GroupCoordinator, java_hash
from firnline.coordinator.records import (
    GroupMember,
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    decode_key,
    decode_value,
)
from firnline.coordinator.records import encode_key as key_bytes
from firnline.coordinator.records import encode_value as value_bytes
from firnline.coordinator.rows import commit_row
from firnline.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK, set_offset_and_epoch
from firnline.records.build import NewRecord, build_batch
from tests.raw_batches import GZIP, misplaced_batch, raw_batch
from tests.worlds.decoded import all_records
from tests.worlds.groups import GroupWorld, Reported, group_config, load_into

KAFKA_LOG = (
    Path(__file__).parents[2] / "golden" / "coordinator" / "kafka-4.3.1-consumer-offsets.log"
)


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def loaded(*batches: bytes) -> GroupWorld:
    world = GroupWorld()
    world.log = bytearray(b"".join(batches))
    world.crash()
    return world


# ------------------------------------------------------------------------------ where a group is


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("zzzzzzzzzz", -1580979136),
        ("\U0001f9ca", 1772876),
    ],
)
def test_java_hashes_strings_by_utf16_units(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_the_hash_without_an_absolute_value_is_partition_0() -> None:
    world = GroupWorld(offsets_topic_num_partitions=50)
    assert world.groups.partition_for("polygenelubricants") == 0
    # Negative, where masking the sign away would give another partition than Kafka's.
    assert world.groups.partition_for("zzzzzzzzzz") == 1580979136 % 50


# ------------------------------------------------------------------------- before and after a load


def ask_everything(world: GroupWorld) -> dict[str, list[Code]]:
    world.join("join")
    world.sync("sync", "m", 1)
    world.commit("commit", ("t", 0, 1))
    world.delete("g")
    return {
        "join": [world.answer_to("join").code],
        "sync": [world.answer_to("sync").code],
        "heartbeat": [world.heartbeat("m", 1)],
        "leave": world.leave(("m", None)),
        "commit": world.answer_to("commit"),
        "delete": [code for _, code in world.answer_to("delete")],
        "fetch": [world.groups.fetch("g", None, require_stable=False).code],
        "describe": [world.groups.describe("g").code],
    }


def test_a_group_of_another_broker_is_not_served(world: GroupWorld) -> None:
    world.unload()
    answers = ask_everything(world)
    assert answers == {what: [Code.NOT_COORDINATOR] for what in answers}
    assert world.listed() == (Code.NONE, [])


def test_a_group_that_is_being_loaded_is_asked_again_later(world: GroupWorld) -> None:
    world.unload()
    world.run(world.groups.load_partition(0, [], lambda said, now: [], world.now_ms))
    answers = ask_everything(world)
    # A heartbeat is told that all is well: no session runs out meanwhile.
    assert answers.pop("heartbeat") == [Code.NONE]
    assert answers == {what: [Code.COORDINATOR_LOAD_IN_PROGRESS] for what in answers}
    assert world.listed() == (Code.COORDINATOR_LOAD_IN_PROGRESS, [])
    world.pass_time(0)
    assert world.groups.describe("g").code is Code.GROUP_ID_NOT_FOUND


def test_whoever_waits_is_sent_on_when_the_partition_moves(world: GroupWorld) -> None:
    a = world.enter("a")
    world.unload()
    assert world.answer_to("a").code is Code.NOT_COORDINATOR
    assert list(world.timers) == [("group", "expiry")]
    world = GroupWorld()
    a, b = world.enter("a"), world.enter("b")
    world.pass_time(6_000)
    world.take_reported()
    world.sync("b", b, 1)
    world.holds_appends = True
    world.sync("a", a, 1)
    world.commit("c", ("t", 0, 1), group="simple")
    world.unload()
    assert world.answer_to("a").code is world.answer_to("b").code is Code.NOT_COORDINATOR
    world.commit_appends()
    assert world.answer_to("c") == [Code.NOT_COORDINATOR]
    assert list(world.timers) == [("group", "expiry")]


def test_an_answer_to_an_old_term_does_not_reach_the_groups_of_a_new_one(
    world: GroupWorld,
) -> None:
    world.holds_appends = True
    world.commit("a", ("t", 0, 1))
    world.unload()
    world.load()
    world.commit_appends()
    assert world.answer_to("a") == [Code.NOT_COORDINATOR]
    assert world.fetched() == {}


def test_members_are_known_after_a_crash_and_their_sessions_run_from_the_load(
    world: GroupWorld,
) -> None:
    ids = world.stable("a", "b", metadata=b"topics")
    before = world.groups.describe("g")
    world.pass_time(29_000)
    world.crash()
    assert world.groups.describe("g") == before
    world.pass_time(29_000)
    assert world.heartbeat(ids["a"], 1) is Code.NONE
    world.pass_time(1_000)
    assert world.heartbeat(ids["b"], 1) is Code.UNKNOWN_MEMBER_ID


def test_a_rebalance_that_a_crash_interrupts_begins_again_from_the_last_generation(
    world: GroupWorld,
) -> None:
    ids = world.stable("a")
    world.enter("b")
    world.crash()
    assert (world.state(), world.generation()) == ("Stable", 1)
    world.sync("a", ids["a"], 1)
    assert world.answer_to("a").assignment == b"part of a"


GOOD = build_batch([commit_row("g", TopicPartition("t", 0), CommittedOffset(5, 0, "", 1), 1)])


@pytest.mark.parametrize(
    ("batch", "where"),
    [
        (build_batch([NewRecord(b"\0", b"")]), " offset=0 last_offset=0 "),
        (build_batch([NewRecord(b"\0\1\0\5ab", b"")]), " offset=0 last_offset=0 "),
        (build_batch([NewRecord(None, b"x")]), " offset=0 last_offset=0 "),
        (build_batch([NewRecord(b"\0\2\0\1g", b"\0\x63nonsense")]), " offset=0 last_offset=0 "),
        (build_batch([NewRecord(b"\0\1\0\1h\0\1t\0\0\0\7", b"\0\3cut")]), "group 'h' for t-7"),
        (raw_batch(b"no gzip", codec=GZIP, count=3), " offset=0 last_offset=2 "),
        (raw_batch(b"no gzip", codec=GZIP | TRANSACTIONAL_MASK), " offset=0 last_offset=0 "),
        (raw_batch(b"?", codec=CONTROL_MASK), " offset=0 last_offset=0 "),
        (raw_batch(gzip.compress(bytes(KEYED_BATCH_BYTES_MAX + 1)), codec=GZIP), "too many bytes"),
        (misplaced_batch(-1, CONTROL_MASK), "do not ascend"),
    ],
    ids=[
        "key",
        "cut key",
        "no key",
        "group",
        "commit",
        "gzip",
        "transaction",
        "marker",
        "bomb",
        "misplaced",
    ],
)
def test_one_record_that_nobody_can_read_costs_no_other_group_its_offsets(
    batch: bytearray, where: str
) -> None:
    world = GroupWorld()
    assert world.load(bytes(batch), bytes(GOOD)) == [None]
    (line,) = world.warnings
    assert line.startswith("records cannot be read topic=__consumer_offsets partition=0 ")
    assert where in line
    assert world.fetched("g") == {("t", 0): 5}
    assert world.groups.unreadable_records > 0


def test_a_batch_that_is_damaged_here_alone_is_reported_and_never_served_in_part() -> None:
    """Another replica has it: to go on without it would lose what is there."""
    world = GroupWorld()
    flipped = bytearray(GOOD)
    flipped[-1] ^= 1
    (said,) = world.load(bytes(GOOD), bytes(flipped))
    assert isinstance(said, StorageError)
    assert "__consumer_offsets-0" in str(said)
    assert world.groups.fetch("g", None, require_stable=False).code is Code.NOT_COORDINATOR


TYPES = st.sampled_from([b"\0\0", b"\0\1", b"\0\2", b"\0\3"])
KEYS = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.just(b"\0\1\0\1h\0\1t\0\0\0\0"),
    st.just(b"\0\2\0\1h"),
    st.builds(lambda kind, rest: kind + rest, TYPES, st.binary(max_size=20)),
)
VALUES = st.one_of(
    st.none(),
    st.binary(max_size=60),
    st.builds(
        lambda version, rest: bytes((0, version)) + rest, st.integers(0, 5), st.binary(max_size=90)
    ),
)


@given(
    st.lists(
        st.one_of(
            st.builds(lambda k, v: build_batch([NewRecord(k, v, 1)]), KEYS, VALUES),
            st.builds(
                raw_batch,
                st.binary(max_size=60),
                codec=st.integers(0, 63),
                count=st.integers(1, 9),
            ),
        ),
        max_size=8,
    )
)
@settings(max_examples=150, deadline=None)
def test_any_bytes_with_a_right_crc_load_and_the_others_are_served(
    batches: list[bytearray],
) -> None:
    world = GroupWorld()
    log, offset = bytearray(), 0
    for batch in [*batches, GOOD]:
        copy = bytearray(batch)
        set_offset_and_epoch(copy, 0, offset, 0)
        offset += int.from_bytes(copy[23:27], "big") + 1
        log += copy
    assert world.load(bytes(log)) == [None]
    assert world.fetched("g") == {("t", 0): 5}
    world.pass_time(600_000)  # whatever sessions were read are over
    world.join("someone", group="h")


# ---------------------------------------------------------------------------- what others wrote


def test_kafkas_own_log_gives_kafkas_groups_and_offsets() -> None:
    """Goal: a data directory moves to us. Method: the log of a 4.3.1 node that one consumer, then two,
    a simple committer, a deleted group and a deserted one have used; expected is what its tools said."""
    world = loaded(KAFKA_LOG.read_bytes())
    code, groups = world.listed()
    assert code is Code.NONE
    assert sorted((g.group_id, g.protocol_type, g.state) for g in groups) == [
        ("grp", "consumer", "Stable"),
        ("left", "consumer", "Empty"),
        ("simple", "", "Empty"),
    ]
    described = world.groups.describe("grp")
    assert described.protocol_data == "range"
    assert [(m.instance_id, m.client_id, m.client_host) for m in described.members] == [
        (None, "one", "/127.0.0.1"),
        ("st", "two", "/127.0.0.1"),
    ]
    assert (world.generation("grp"), world.generation("left")) == (2, 2)
    assert world.fetched("grp") == {("t", 0): 3, ("t", 1): 5}
    assert world.fetched("left") == {("t", 1): 1}
    assert world.fetched("simple") == {("t", 0): 2}
    assert world.fetched("gone") == {}
    one, static = described.members
    assert world.heartbeat(one.member_id, 2, group="grp") is Code.NONE
    assert world.heartbeat(static.member_id, 2, group="grp", instance="st") is Code.NONE


def test_our_records_are_kafkas_to_the_byte() -> None:
    """Goal: a data directory moves back. Method: read every record of Kafka's log, write it again."""
    world = loaded(KAFKA_LOG.read_bytes())
    shard = world.groups._shards[0]
    theirs = {r.key: r for r in all_records(KAFKA_LOG.read_bytes())}
    checked = 0
    for group_id, group in shard.groups.items():
        for tp, commit in shard.offsets.of(group_id):
            row = commit_row(group_id, tp, commit, 0)
            assert row.value == theirs[row.key].value
            checked += 1
        if group.protocol_type is None:
            continue
        parts = {m.member_id: m.assignment for m in group.members.by_id.values()}
        held: list[bytes] = []
        world.holds_appends = True
        world.run(shard._persist(group, parts, lambda code, now: [], 0))
        held = [bytes(a.batch) for a in world.appends]
        world.appends.clear()
        (ours,) = all_records(held[0])
        assert ours.value == theirs[ours.key].value
        checked += 1
    assert checked == 6


def test_a_group_is_written_without_a_leader_before_its_first_generation(
    world: GroupWorld,
) -> None:
    world.join("a", version=3)
    (record,) = all_records(bytes(world.log))
    assert record.key is not None
    assert record.value is not None
    key = decode_key(record.key)
    assert isinstance(key, GroupMetadataKey)
    value = decode_value(key, record.value)
    assert isinstance(value, GroupMetadataValue)
    assert (value.generation, value.leader, list(value.members)) == (0, None, [])


def test_a_record_whose_leader_had_gone_gives_a_group_with_another_leader() -> None:
    member = GroupMember(member_id="m", client_id="c", client_host="/h", session_timeout=6_000)
    value = GroupMetadataValue(
        protocol_type="consumer", generation=4, protocol="range", leader="gone", members=[member]
    )
    row = NewRecord(key_bytes(GroupMetadataKey(group="g")), value_bytes(value, 3), 1)
    world = loaded(bytes(build_batch([row])))
    assert world.groups._shards[0].groups["g"].members.leader == "m"
    world.join("m", "m")
    assert world.answer_to("m").leader == "m"


def test_records_of_newer_group_protocols_are_left_alone() -> None:
    newer = build_batch([NewRecord(b"\0\3\0\1g", b"\0\0whatever"), NewRecord(b"\0\x0f??", None)])
    commit = build_batch([commit_row("g", TopicPartition("t", 0), CommittedOffset(5, 0, "", 1), 1)])
    assert loaded(bytes(newer), bytes(commit)).fetched() == {("t", 0): 5}


def test_commits_of_before_0_9_are_read() -> None:
    key = LegacyOffsetCommitKey(group="g", topic="t", partition=0)
    value = LegacyOffsetCommitValue(offset=7, metadata="m", commit_timestamp=1)
    row = NewRecord(key_bytes(key), value_bytes(value, 0), 1)
    assert loaded(bytes(build_batch([row]))).fetched() == {("t", 0): 7}


def transactional(offset: int, base_offset: int) -> bytes:
    row = commit_row("g", TopicPartition("t", 0), CommittedOffset(offset, 0, "", 1), 1)
    return bytes(
        build_batch(
            [row],
            base_offset=base_offset,
            producer_id=9,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
    )


def marker(kind: int, base_offset: int) -> bytes:
    row = NewRecord(b"\0\0" + kind.to_bytes(2, "big"), b"\0\0\0\0\0\0", 1)
    return bytes(
        build_batch(
            [row],
            base_offset=base_offset,
            producer_id=9,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )
    )


def test_offsets_of_a_transaction_count_once_its_commit_marker_is_read() -> None:
    assert loaded(transactional(5, 0), marker(1, 1)).fetched() == {("t", 0): 5}
    assert loaded(transactional(5, 0), marker(0, 1)).fetched() == {}


def test_who_wants_stable_offsets_waits_for_an_open_transaction() -> None:
    world = loaded(transactional(5, 0))
    wanted = [("t", [0, 1])]
    unstable = world.groups.fetch("g", wanted, require_stable=True).topics[0][1]
    assert [row.code for row in unstable] == [Code.UNSTABLE_OFFSET_COMMIT, Code.NONE]
    dirty = world.groups.fetch("g", wanted, require_stable=False).topics[0][1]
    assert [row.code for row in dirty] == [Code.NONE, Code.NONE]


def test_list_filters_by_state_and_type_in_any_case(world: GroupWorld) -> None:
    world.stable("a")
    world.commit("c", ("t", 0, 1), group="simple")

    def listed(**filters: list[str]) -> list[str]:
        return sorted(g.group_id for g in world.listed(**filters)[1])

    assert listed() == ["g", "simple"]
    assert listed(states=["stable"]) == listed(states=["STABLE", "dead"]) == ["g"]
    assert listed(states=["Empty"]) == ["simple"]
    assert listed(types=["Classic"]) == ["g", "simple"]
    assert listed(types=["consumer"]) == []
    assert listed(states=["nonsense"]) == []


def test_two_partitions_are_two_worlds() -> None:
    settings = group_config(offsets_topic_num_partitions=2)
    groups = GroupCoordinator(settings, GroupWorld().rng)
    load_into(groups, 0)
    codes = {}
    for group in ("a", "b"):
        answers: list[Reported] = groups.delete_group(group, lambda code: [Reported("d", code)], 0)  # type: ignore[list-item]
        codes[groups.partition_for(group)] = answers[0].result
    assert codes == {0: Code.GROUP_ID_NOT_FOUND, 1: Code.NOT_COORDINATOR}
