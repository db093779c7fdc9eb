"""What one whole node says of its own life, and that it says nothing while nothing happens."""

from tests.worlds.harness import Harness

HOUR_MS = 3_600_000


def said(node: Harness, logger: str) -> list[str]:
    return [line for line in node.logged if line.startswith(f"{logger} ")]


def test_a_node_alone_says_who_it_is_and_what_is_made() -> None:
    node = Harness()
    node.create_topic("orders", partitions=2)
    changes = [line.split("_epoch")[0] for line in said(node, "firnline.controller")]
    assert changes[0].startswith("firnline.controller info metadata caught up brokers=")
    assert "firnline.controller info broker registered broker=1 broker" in changes
    assert "firnline.controller info broker unfenced broker=1 broker" in changes
    assert changes[-1].startswith("firnline.controller info topic created topic=orders ")
    (elected,) = said(node, "firnline.raft")[-1:]
    assert "this node is the active controller node=1 epoch=1 " in elected


def test_an_hour_without_a_change_is_an_hour_without_a_line() -> None:
    node = Harness(metadata_max_idle_interval_ms="5000")
    node.create_topic("orders", partitions=2)
    node.produced("a", "b", topic="orders")
    node.pass_time(10_000)
    before = len(node.logged)
    for _ in range(60):
        node.pass_time(HOUR_MS // 60)
    assert [line for line in node.logged[before:] if " debug " not in line] == []
    assert node.warnings == []


def test_a_start_after_a_power_cut_says_what_was_recovered() -> None:
    node = Harness()
    node.create_topic("orders", partitions=2)
    node.produced("a", "b", topic="orders")
    again = Harness(node.cut_power())
    (line,) = said(again, "firnline.log")
    assert line.startswith("firnline.log info logs recovered logs=")
    assert line.endswith(' reason="the last stop was not clean"')
    assert said(Harness(again.stop()), "firnline.log") == [], "a clean stop leaves nothing to do"
