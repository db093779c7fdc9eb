"""A generation that reads well and cannot be one: two members of one name."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firnline.base.effects import Effects
from firnline.coordinator.records import (
    GROUP_METADATA_VALUE_VERSION,
    GroupMember,
    GroupMetadataKey,
    GroupMetadataValue,
    encode_key,
    encode_value,
)
from firnline.records.build import NewRecord, build_batch
from tests.worlds.groups import GroupWorld

NAMES = st.sampled_from(["", "a", "b", "c"])
TIMES = st.sampled_from([-(2**31), -1, 0, 1, 6_000, 2**31 - 1])
ODD = st.builds(
    GroupMetadataValue,
    protocol_type=st.sampled_from(["", "consumer"]),
    generation=st.sampled_from([-(2**31), -1, 0, 1, 2**31 - 1]),
    protocol=st.sampled_from([None, "", "range"]),
    leader=st.none() | NAMES,
    current_state_timestamp=st.sampled_from([-(2**63), -1, 2**63 - 1]),
    members=st.lists(
        st.builds(
            GroupMember,
            member_id=NAMES,
            group_instance_id=st.none() | NAMES,
            client_id=NAMES,
            client_host=NAMES,
            rebalance_timeout=TIMES,
            session_timeout=TIMES,
            subscription=st.binary(max_size=4),
            assignment=st.binary(max_size=4),
        ),
        max_size=4,
    ),
)


@pytest.fixture(autouse=True)
def bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where a timer is set again and again for the same moment."""
    run = GroupWorld.run

    def counted(world: GroupWorld, effects: Effects) -> None:
        world.__dict__["count"] = count = world.__dict__.get("count", 0) + 1
        assert count < 5_000, "it never comes to rest"
        run(world, effects)

    monkeypatch.setattr(GroupWorld, "run", counted)


@given(ODD, st.sampled_from([None, "", "a"]), st.sampled_from([-1, 0, 1, 2**31 - 1]))
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_generation_loads_and_its_group_is_served(
    row: GroupMetadataValue, instance: str | None, generation: int
) -> None:
    """Goal: no record of a system topic ends all nodes that lead it, one after the other."""
    world = GroupWorld()
    key = encode_key(GroupMetadataKey(group="g"))
    value = encode_value(row, GROUP_METADATA_VALUE_VERSION)
    assert world.load(bytes(build_batch([NewRecord(key, value, 1)]))) == [None]
    world.groups.describe("g")
    world.heartbeat("a", generation, instance=instance)
    world.sync("a", "a", generation)
    world.join("b", "b")
    world.join("c", instance="a")
    world.pass_time(1_000)
    world.leave(("a", instance), ("", "b"), ("b", None))
    world.join("new")
    world.pass_time(100_000)
    world.unload()


@pytest.mark.parametrize("ids", [("m", None), ("n", "i")], ids=["id", "instance id"])
def test_a_generation_with_two_members_of_one_name_is_unreadable(
    ids: tuple[str, str | None],
) -> None:
    """The group would not have been whole, which stops a node; and the next that leads the partition."""
    one = GroupMember(member_id="m", group_instance_id="i", client_id="c", client_host="h")
    other = GroupMember(member_id=ids[0], group_instance_id=ids[1], client_id="c", client_host="h")
    row = GroupMetadataValue(protocol_type="consumer", members=[one, other])
    key = encode_key(GroupMetadataKey(group="g"))
    world = GroupWorld()
    value = encode_value(row, GROUP_METADATA_VALUE_VERSION)
    assert world.load(bytes(build_batch([NewRecord(key, value, 1)]))) == [None]
    (line,) = world.warnings
    assert "two members with the same id" in line
    assert world.groups.unreadable_records == 1


def test_a_static_member_that_is_away_is_not_waited_for_without_pause() -> None:
    """Goal: no client has the node spin. Method: a member that leaves itself a millisecond to join again is
    away when another one comes and goes; its session alone ends the wait."""
    world = GroupWorld()
    world.join("a", instance="i", rebalance_ms=1, session_ms=60_000)
    world.pass_time(3_000)
    member = world.answer_to("a").member_id
    world.sync("a", member, 1, instance="i", assignments={member: b""})
    other = world.enter("b", rebalance_ms=1)
    world.leave((other, None))
    fired = world.__dict__["count"]
    world.pass_time(30_000)
    assert world.__dict__["count"] - fired < 50
    world.pass_time(60_000)
    assert world.state() == "Empty"
