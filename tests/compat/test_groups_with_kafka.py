"""Groups and offsets beside Apache Kafka: it reads what we write, and we read what it writes. rel-C5.

One node of Kafka lives through the module: clients use it, it stops, our coordinator loads its log;
then our log is put in its place and it says what it finds.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from firnline.base.errors import Code
from firnline.base.ids import OFFSETS_TOPIC
from firnline.client.connection import Connection
from firnline.coordinator.groups import GroupCoordinator
from firnline.protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.peers import kafka
from tests.peers.nodes import eventually
from tests.worlds.chance import CountingRng
from tests.worlds.groups import GroupWorld, group_config, load_into, subscription

pytestmark = pytest.mark.peer
PARTITIONS = 4
LOADED_WITHIN_S = 60
# Their hashes are positive and negative, and one is the number without an absolute value.
SIMPLE_GROUPS = ("a", "hello", "zzzzzzzzzz", "polygenelubricants", "grüße", "\U0001f9ca")
SETTINGS = {
    "offsets.topic.num.partitions": PARTITIONS,
    "offsets.topic.replication.factor": 1,
    "group.initial.rebalance.delay.ms": 0,
}


class Said(NamedTuple):
    """What a broker says about its groups."""

    groups: dict[str, tuple[str, str]]  # state, assignor
    members: dict[str, list[tuple[str, str, str, list[tuple[str, int]]]]]
    offsets: dict[str, dict[tuple[str, int], tuple[int, str]]]


def offsets_of(broker: Connection, group: str) -> dict[tuple[str, int], tuple[int, str]]:
    """Return what a group committed. OSError while its coordinator does not say.

    Not by librdkafka's admin client: 2.16.1 ends the process at an answer that names no coordinator.
    """
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    (found,) = broker.ask(asked, version=8).groups
    if found.error_code:
        raise OSError(f"offsets of {group}: error {found.error_code}")
    return {
        (topic.name, row.partition_index): (row.committed_offset, row.metadata or "")
        for topic in found.topics
        for row in topic.partitions
    }


def wait_until_loaded(broker: Connection) -> None:
    """Return when the broker has loaded every partition of its groups.

    A broker that has just started lists no group of a partition it has not loaded, and no error either. One
    that is asked for the offsets of a group says whether it has loaded that group's partition.
    """
    ours = GroupCoordinator(group_config(offsets_topic_num_partitions=PARTITIONS), CountingRng())
    names = {ours.partition_for(name): name for name in (f"probe-{i}" for i in range(100))}
    assert len(names) == PARTITIONS
    for name in names.values():
        loaded = lambda: offsets_of(broker, name) == {}  # noqa: B023, E731
        eventually(f"the partition of {name} is loaded", loaded, within_s=LOADED_WITHIN_S)


def ask(bootstrap: str) -> Said:
    """Ask a broker over the wire, once it knows."""
    host, port = bootstrap.split(":")
    with Connection(host, int(port), timeout_s=LOADED_WITHIN_S) as broker:
        wait_until_loaded(broker)
        return ask_all(AdminClient({"bootstrap.servers": bootstrap}), broker)


def ask_all(admin: AdminClient, broker: Connection) -> Said:
    names = sorted(g.group_id for g in admin.list_consumer_groups().result().valid)
    groups, members, offsets = {}, {}, {}
    for name, future in admin.describe_consumer_groups(names).items():
        found = future.result()
        groups[name] = (found.state.name.title().replace("_", ""), found.partition_assignor)
        members[name] = sorted(
            (
                m.member_id,
                m.group_instance_id or "",
                m.client_id,
                sorted((p.topic, p.partition) for p in m.assignment.topic_partitions),
            )
            for m in found.members
        )
        offsets[name] = offsets_of(broker, name)
    return Said(groups, members, offsets)


def say(groups: GroupCoordinator) -> Said:
    """Ask our coordinator the same."""
    code, listed = groups.list_groups()
    assert code is Code.NONE
    described = {g.group_id: groups.describe(g.group_id) for g in listed}  # type: ignore[union-attr]
    offsets = {}
    for name in described:
        found = groups.fetch(name, None, require_stable=True)
        offsets[name] = {
            (topic, row.partition): (row.commit.offset, row.commit.metadata)
            for topic, rows in found.topics
            for row in rows
            if row.commit is not None
        }
    return Said(
        {n: (d.state, d.protocol_data) for n, d in described.items()},
        {
            n: sorted(
                (m.member_id, m.instance_id or "", m.client_id, assigned(m.assignment))
                for m in d.members
            )
            for n, d in described.items()
        },
        offsets,
    )


def assigned(data: bytes) -> list[tuple[str, int]]:
    """Read a consumer's assignment: version, then topics with their partitions."""
    found, position = [], 6
    for _ in range(int.from_bytes(data[2:6], "big")):
        end = position + 2 + int.from_bytes(data[position : position + 2], "big")
        topic = data[position + 2 : end].decode()
        count = int.from_bytes(data[end : end + 4], "big")
        position = end + 4
        for _ in range(count):
            found.append((topic, int.from_bytes(data[position : position + 4], "big")))
            position += 4
    return sorted(found)


def assignment(topic: str, *partitions: int) -> bytes:
    """Write a consumer's assignment."""
    body = b"\0\0\0\0\0\1" + len(topic).to_bytes(2, "big") + topic.encode()
    numbers = b"".join(p.to_bytes(4, "big") for p in partitions)
    return body + len(partitions).to_bytes(4, "big") + numbers + b"\xff\xff\xff\xff"


def consumer(bootstrap: str, group: str, **more: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **more,
        }
    )


def use(bootstrap: str) -> tuple[Said, tuple[Consumer, Consumer]]:
    """Let clients do with Kafka all that leaves a record; return what Kafka says in the end."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 4, 1)])["t"].result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(8):
        producer.produce("t", str(number), partition=number % 4)
    producer.flush()
    for number, group in enumerate(SIMPLE_GROUPS):
        simple = consumer(bootstrap, group)
        simple.commit(
            offsets=[TopicPartition("t", 1, number, f"n\u00f6te {number}")], asynchronous=False
        )
        simple.close()
    first = consumer(bootstrap, "shared", **{"client.id": "one"})
    second = consumer(bootstrap, "shared", **{"client.id": "two", "group.instance.id": "static"})
    for one in (first, second):
        one.subscribe(["t"])
    while len(first.assignment()) != 2 or len(second.assignment()) != 2:
        first.poll(0.1)
        second.poll(0.1)
    for one in (first, second):
        one.commit(
            offsets=[TopicPartition("t", p.partition, 2) for p in one.assignment()],
            asynchronous=False,
        )
    for group in ("deserted", "deleted"):
        alone = consumer(bootstrap, group)
        alone.subscribe(["t"])
        while not alone.assignment():
            alone.poll(0.1)
        alone.commit(offsets=[TopicPartition("t", 3, 1)], asynchronous=False)
        alone.close()
    # A group is empty when the coordinator has heard that its member left, which nobody waits for.
    for group in ("deserted", "deleted"):
        eventually(f"{group} is empty", lambda: _is_empty(admin, group))  # noqa: B023
    admin.delete_consumer_groups(["deleted"])["deleted"].result()
    # The members are still there when the node stops: they are kept, and never closed.
    return ask(bootstrap), (first, second)


def _is_empty(admin: AdminClient, group: str) -> bool:
    try:
        found = admin.describe_consumer_groups([group])[group].result()
    except KafkaException as problem:
        raise OSError(str(problem)) from problem
    return bool(found.state is ConsumerGroupState.EMPTY)


class Reported(NamedTuple):
    """Kafka's answers, and where its files are now that it has stopped."""

    said: Said
    directory: Path

    def partition(self, number: int) -> Path:
        return self.directory / f"{OFFSETS_TOPIC}-{number}"


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reported, Path]:
    base = tmp_path_factory.mktemp("groups")
    with kafka.start(base, settings=SETTINGS) as cluster:
        said, members = use(cluster.bootstrap)
        kafka.stop(base, at_once=True)
        del members
    return Reported(said, cluster.data()), base


def test_kafkas_offsets_topic_loads_into_our_coordinator(reported: tuple[Reported, Path]) -> None:
    """Goal: a user moves in with all groups. Method: load each partition's log, ask both the same."""
    kafkas, _ = reported
    ours = GroupCoordinator(group_config(offsets_topic_num_partitions=PARTITIONS), CountingRng())
    for number in range(PARTITIONS):
        logs = sorted(kafkas.partition(number).glob("*.log"))
        load_into(ours, number, *(log.read_bytes() for log in logs))
    assert {"shared", "deserted", *SIMPLE_GROUPS} == set(kafkas.said.groups)
    assert len(kafkas.said.members["shared"]) == 2
    assert say(ours) == kafkas.said


def lived_in() -> GroupWorld:
    """Our coordinator after a life, its groups all on partition 0 of Kafka's topic."""
    world = GroupWorld()
    groups = GroupCoordinator(group_config(offsets_topic_num_partitions=PARTITIONS), CountingRng())
    names = iter(n for n in (f"ours-{i}" for i in range(100)) if groups.partition_for(n) == 0)
    stable, left, simple, deleted = (next(names) for _ in range(4))
    ids = {}
    for name, instance in (("one", None), ("two", "static")):
        world.join(name, group=stable, instance=instance, metadata=subscription("t"), version=3)
    world.pass_time(10_000)
    ids = {name: world.answer_to(name).member_id for name in ("one", "two")}
    parts = {ids["one"]: assignment("t", 0, 1), ids["two"]: assignment("t", 2, 3)}
    world.sync("one", ids["one"], 1, group=stable, assignments=parts)
    world.commit("one", ("t", 0, 7), member_id=ids["one"], generation=1, group=stable)
    member = world.stable("gone", group=left, metadata=subscription("t"))["gone"]
    world.commit("gone", ("t", 2, 8), member_id=member, generation=1, group=left)
    world.leave((member, None), group=left)
    world.commit("c", ("t", 3, 9), ("t", 1, 5), group=simple, metadata="sn\u00f6w \U0001f9ca")
    world.commit("c", ("t", 3, 10), group=simple, retention_ms=10**12)
    world.commit("c", ("t", 0, 1), group=deleted)
    world.delete(deleted)
    return world


def test_kafkas_dump_tool_decodes_every_record_we_write(tmp_path: Path, kafka_jars: Path) -> None:
    world = lived_in()
    log = tmp_path / f"{OFFSETS_TOPIC}-0" / "00000000000000000000.log"
    log.parent.mkdir()
    log.write_bytes(world.log)
    printed = kafka.tool("dump", str(log), "--offsets-decoder")
    lines = [line for line in printed.splitlines() if line.startswith("| offset")]
    assert len(lines) == world.next_offset
    assert "isvalid: false" not in printed
    payloads = [line.partition(" payload: ")[2] for line in lines]
    values = [json.loads(p) for p in payloads if p != "<DELETE>"]
    assert len(payloads) - len(values) == 2
    committed = [v["data"] for v in values if "offset" in v["data"]]
    assert [v["offset"] for v in committed] == [7, 8, 9, 5, 10, 1]
    assert committed[2]["metadata"] == "sn\u00f6w \U0001f9ca"
    generations = [v["data"] for v in values if "generation" in v["data"]]
    stable = next(v for v in generations if len(v["members"]) == 2)
    assert [m["assignment"]["assignedPartitions"] for m in stable["members"]] == [
        [{"topic": "t", "partitions": [0, 1]}],
        [{"topic": "t", "partitions": [2, 3]}],
    ]
    assert [m["groupInstanceId"] for m in stable["members"]] == [None, "static"]


def test_kafka_loads_our_offsets_topic_and_says_what_we_say(
    reported: tuple[Reported, Path],
) -> None:
    """Goal: a user moves out again. Method: our log in Kafka's directory, Kafka started on it."""
    kafkas, base = reported
    world = lived_in()
    for number in range(PARTITIONS):
        for file in kafkas.partition(number).iterdir():
            if file.suffix in (".log", ".index", ".timeindex", ".snapshot", ".txnindex"):
                file.unlink()
        log = bytes(world.log) if number == 0 else b""
        (kafkas.partition(number) / "00000000000000000000.log").write_bytes(log)
    with kafka.start(base, settings=SETTINGS) as cluster:
        said = ask(cluster.bootstrap)
    assert said == say(world.groups)
    assert len(said.groups) == 3
