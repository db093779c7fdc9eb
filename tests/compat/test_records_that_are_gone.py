"""`firnline consume` where records were deleted before it read them: it says which, and goes on, or fails."""

import os
import re
from collections.abc import Iterator

import pytest

from firnline.client.admin import Admin
from firnline.testing.plugin import Broker
from tests.compat.test_client_in_the_box import PATIENCE_S, begin, ended, make, run

STRICT = "--fail-on-data-loss"
SMALL = ("-X", "queued.max.messages.kbytes=1000", "-X", "fetch.message.max.bytes=100000")
COOPERATIVE = ("-X", "partition.assignment.strategy=cooperative-sticky")


@pytest.fixture(scope="module")
def gone_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    found = Broker(tmp_path_factory.mktemp("gone") / "data")
    found.start()
    yield found
    if found.process is not None:
        found.stop()


def delete_records(broker: Broker, topic: str, offset: int, partition: int = 0) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
        future.result(PATIENCE_S)


def without_assignments(said: str) -> list[str]:
    return [line for line in said.splitlines() if not re.search(r" (assigned|revoked) ", line)]


def test_an_offset_that_is_gone(gone_broker: Broker) -> None:
    make(gone_broker, "short", 1)
    run(gone_broker, "produce", "short", data=b"a\nb\nc\nd\n")
    delete_records(gone_broker, "short", 2)
    done = run(gone_broker, "consume", "short", "-e", "-o", "0")
    assert done.lines == ["c", "d"]
    assert done.said == (
        "firnline: short [0]: 2 offsets, 0 to 1, were deleted (retention, or delete-records) before"
        " they were read; reads on from 2, where the log begins now\n"
    )
    done = run(gone_broker, "consume", "short", "-e", "-o", "1")
    assert "short [0]: offset 1 was deleted (retention, or delete-records) before it was" in (
        done.said
    )
    assert run(gone_broker, "consume", "short", "-e", "-o", "1", "-q").said == ""
    assert run(gone_broker, "consume", "short", "-e").said == "", "nobody asked for what is gone"
    done = run(gone_broker, "consume", "short", "-e", "-o", "1", STRICT, "-q", code=1)
    assert (done.lines, done.said.count("\n")) == ([], 1)
    assert done.said.endswith(f"before it was read. Stops here because of {STRICT}\n")


def test_a_reader_that_falls_behind_retention_says_what_it_missed(gone_broker: Broker) -> None:
    """Its stdout is full while the records that come next are deleted; then it goes on."""
    make(gone_broker, "behind", 1)
    lines = [b"%d %s\n" % (number, b"x" * 1_000) for number in range(20_000)]
    run(gone_broker, "produce", "behind", data=b"".join(lines))
    plain = ("consume", "behind", "-e", *SMALL)
    readers = {
        "they were read": begin(gone_broker.bootstrap, *plain),
        "group eager read them": begin(gone_broker.bootstrap, *plain, "-g", "eager"),
        "group cooperative read them": begin(
            gone_broker.bootstrap, *plain, "-g", "cooperative", *COOPERATIVE
        ),
    }
    for reader in readers.values():
        assert reader.stdout is not None
        assert os.read(reader.stdout.fileno(), 1) == b"0"
    delete_records(gone_broker, "behind", 19_990)
    for until, reader in readers.items():
        done = ended(reader)
        assert done.code == 0, done.said
        (line,) = without_assignments(done.said)
        found = re.fullmatch(
            r"firnline: behind \[0\]: (\d+) offsets, (\d+) to 19989, were deleted"
            rf" \(retention, or delete-records\) before {until}; reads on from 19990, where the log"
            " begins now",
            line,
        )
        assert found is not None, done.said
        assert int(found[1]) == 19_990 - int(found[2])
        assert b"0" + done.out == b"".join(lines[: int(found[2])] + lines[19_990:]), until


@pytest.mark.parametrize("protocol", [(), COOPERATIVE], ids=["eager", "cooperative"])
def test_a_group_that_was_away_is_told_what_it_missed(
    gone_broker: Broker, protocol: tuple[str, ...]
) -> None:
    """One line for each partition where something is missing; a second run has nothing to tell."""
    topic = f"away{len(protocol)}"
    group = ("-g", f"group-{topic}", *protocol)
    make(gone_broker, topic, 3)
    for partition in range(3):
        run(gone_broker, "produce", topic, "-p", str(partition), data=b"0\n1\n2\n3\n")
    assert len(run(gone_broker, "consume", topic, "-e", *group).lines) == 12
    for partition in range(3):
        run(gone_broker, "produce", topic, "-p", str(partition), data=b"4\n5\n6\n")
    delete_records(gone_broker, topic, 6, 0)
    delete_records(gone_broker, topic, 5, 2)

    strict = run(gone_broker, "consume", topic, "-e", *group, STRICT, code=1)
    assert f"Stops here because of {STRICT}" in strict.said
    lost = {
        f"firnline: {topic} [0]: 2 offsets, 4 to 5, were deleted (retention, or delete-records) before"
        f" group group-{topic} read them; reads on from 6, where the log begins now",
        f"firnline: {topic} [2]: offset 4 was deleted (retention, or delete-records) before"
        f" group group-{topic} read it; reads on from 5, where the log begins now",
    }
    done = run(gone_broker, "consume", topic, "-e", *group, "-f", r"%p:%s\n")
    assert set(without_assignments(done.said)) == lost, "the strict run committed nothing of these"
    printed = set(done.lines) | {f"1:{line}" for line in strict.lines}
    assert printed == {"0:6", "1:4", "1:5", "1:6", "2:5", "2:6"}
    done = run(gone_broker, "consume", topic, "-e", *group)
    assert (done.lines, without_assignments(done.said)) == ([], [])


def test_a_group_whose_topic_was_made_anew(gone_broker: Broker) -> None:
    """Its offset lies behind the end: what is there now is read from its beginning, and that is said."""
    make(gone_broker, "anew", 1)
    run(gone_broker, "produce", "anew", data=b"a\nb\nc\n")
    run(gone_broker, "consume", "anew", "-e", "-g", "old")
    with Admin(gone_broker.bootstrap) as admin:
        admin.delete_topic("anew")
    make(gone_broker, "anew", 1)
    run(gone_broker, "produce", "anew", data=b"new\n")
    commit(gone_broker, "anew", "old", 3)
    done = run(gone_broker, "consume", "anew", "-e", "-g", "old", STRICT, code=1)
    assert done.lines == []
    done = run(gone_broker, "consume", "anew", "-e", "-g", "old")
    assert done.lines == ["new"]
    assert without_assignments(done.said) == [
        "firnline: anew [0] ends at offset 1, and group old was at 3: the topic was made anew, or"
        " records were lost; reads on from 0"
    ]


def commit(broker: Broker, topic: str, group: str, offset: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    member = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    member.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    member.close()


def test_where_a_new_group_begins(gone_broker: Broker) -> None:
    make(gone_broker, "begin", 1)
    run(gone_broker, "produce", "begin", data=b"a\nb\n")
    delete_records(gone_broker, "begin", 1)
    done = run(gone_broker, "consume", "begin", "-e", "-g", "new")
    assert (done.lines, without_assignments(done.said)) == (["b"], []), "nothing was missed"
    for words in (("-o", "end"), ("-X", "auto.offset.reset=latest")):
        done = run(gone_broker, "consume", "begin", "-e", "-g", f"new{len(words[1])}", *words)
        assert (done.lines, without_assignments(done.said)) == ([], [])
