"""A whole node, asked through the wire."""

from tests.unit.broker.harness import Harness


def test_a_node_starts_and_is_counted_in() -> None:
    harness = Harness()
    assert harness.node.is_ready
    assert harness.running_ms is not None
    assert harness.node.broker_epoch > 0
    assert not harness.node.image.brokers[1].fenced
