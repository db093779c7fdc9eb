"""A partition of groups that could not be loaded is loaded later: one read that fails may be the only one."""

from firnline.base.errors import Code
from firnline.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from tests.unit.broker.test_node import commit, committed
from tests.worlds.harness import Harness


def test_a_partition_of_groups_that_cannot_be_read_has_no_coordinator_until_it_can_be_read() -> (
    None
):
    harness = Harness()
    harness.create_topic()
    commit(harness, 7)
    index = harness.node.groups.partition_for("g")
    fs = harness.stop()
    fs.fail("read", f"__consumer_offsets-{index}/00000000000000000000.log", "EIO", skip=3, times=9)
    harness = Harness(fs)
    assert harness.node.is_ready
    harness.pass_time(0)
    [found] = harness.ask(DescribeGroupsRequest(groups=["g"]), 5).groups
    assert found.error_code == Code.NOT_COORDINATOR
    harness.pass_time(10_000)
    [found] = harness.ask(DescribeGroupsRequest(groups=["g"]), 5).groups
    assert found.error_code == Code.NOT_COORDINATOR, "the disk still fails"
    fs.forgive()
    harness.pass_time(10_000)
    assert committed(harness) == 7
    [line] = [line for line in harness.warnings if "groups have no coordinator" in line]
    assert f"topic=__consumer_offsets partition={index} error=" in line
