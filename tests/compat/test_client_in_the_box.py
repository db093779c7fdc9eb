"""`firnline produce` and `firnline consume`, as processes, against a real broker and beside kcat."""

import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firnline.cli.records.templates import FIELDS
from firnline.client.admin import Admin
from firnline.client.connection import Connection
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.testing.cluster import Cluster
from firnline.testing.plugin import Broker
from tests.peers import kafka
from tests.peers.nodes import eventually
from tests.raw_batches import raw_batch, record_with_header_keys

needs_kcat = pytest.mark.skipif(
    shutil.which("kcat") is None, reason="NOT RUN: kcat is not installed"
)
PATIENCE_S = 30.0
# A line that librdkafka writes to stderr if nobody takes it: %3|1700000000.123|FAIL|rdkafka#producer-1| ...
RAW_LOG = re.compile(r"^%\d\|", re.MULTILINE)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    found = Broker(
        tmp_path_factory.mktemp("box") / "data", options=("-X", "auto.create.topics.enable=false")
    )
    found.start()
    yield found
    if found.process is not None:
        found.stop()


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own with three partitions."""
    name = re.sub(r"[^\w.-]+", "-", request.node.name)[:200].strip("-")
    make(broker, name, 3)
    return name


def make(broker: Broker, name: str, partitions: int, **configs: str) -> None:
    with Admin(broker.bootstrap) as admin:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topic(name, partitions=partitions, replication_factor=1, configs=settings)


class Done:
    """What a command that has ended printed."""

    def __init__(self, code: int, out: bytes, said: bytes) -> None:
        self.code, self.out, self.said = code, out, said.decode()
        assert "Traceback" not in self.said, self.said
        assert RAW_LOG.search(self.said) is None, "a log line of librdkafka's: " + self.said

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()


def begin(bootstrap: str, *words: str) -> subprocess.Popen[bytes]:
    """Start a command with pipes at all ends."""
    line = [sys.executable, "-m", "firnline", *words, "--bootstrap-server", bootstrap]
    return subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def ended(process: subprocess.Popen[bytes], data: bytes | None = None) -> Done:
    out, said = process.communicate(data, timeout=PATIENCE_S)
    return Done(process.returncode, out, said)


def run(broker: Broker | str, *words: str, data: bytes = b"", code: int = 0) -> Done:
    """Run a command to its end."""
    bootstrap = broker if isinstance(broker, str) else broker.bootstrap
    done = ended(begin(bootstrap, *words), data)
    assert done.code == code, (words, done.code, done.out[-500:], done.said)
    return done


def all_of(broker: Broker | str, *commands: tuple[str, ...], code: int = 0) -> list[Done]:
    """Run commands side by side, without input."""
    bootstrap = broker if isinstance(broker, str) else broker.bootstrap
    started = [begin(bootstrap, *words) for words in commands]
    done = [ended(each, b"") for each in started]
    assert {each.code for each in done} == {code}, [(each.code, each.said) for each in done]
    return done


def text_of(broker: Broker, topic: str, template: str, *more: str) -> list[str]:
    return run(broker, "consume", topic, "-e", "-f", template + r"\n", *more).lines


# ---------------------------------------------------------------------- what goes in comes out


def test_lines_go_in_and_come_out(broker: Broker, topic: str, tmp_path: Path) -> None:
    done = run(broker, "produce", topic, "-p", "1", data="a\n\nzwölf\nlast".encode())
    assert (done.out, done.said) == (b"", "")
    file = tmp_path / "more.txt"
    file.write_bytes(b"from a file\n")
    run(broker, "produce", topic, str(file), "-", "-p", "1", data=b"then stdin\n")
    done = run(broker, "consume", topic, "-e")
    assert done.lines == ["a", "", "zwölf", "last", "from a file", "then stdin"]
    assert done.said == ""
    assert run(broker, "consume", topic, "--count-only").out == b"6\n"
    assert run(broker, "consume", topic, "-e", "-p", "0,2").out == b""


def test_keys_headers_partitions_and_tombstones(broker: Broker, topic: str) -> None:
    run(broker, "produce", topic, "-K", ":", "-Z", "-p", "2", "-H", "a=1", "-H", "a=", "-H", "b",
        data=b"k:v\n:no key\nk:\nno delimiter\n")  # fmt: skip
    shown = text_of(broker, topic, "%p %o [%k] %K [%s] %S %h", "-Z")
    assert shown == [
        "2 0 [k] 1 [v] 1 a=1,a=,b=NULL",
        "2 1 [NULL] -1 [no key] 6 a=1,a=,b=NULL",
        "2 2 [k] 1 [NULL] -1 a=1,a=,b=NULL",
        "2 3 [NULL] -1 [no delimiter] 12 a=1,a=,b=NULL",
    ]
    assert run(broker, "consume", topic, "-e", "-K", "=", "-D", ";").out == (
        b"k=v;=no key;k=;=no delimiter;"
    )


def test_a_key_goes_where_java_would_send_it(broker: Broker, topic: str) -> None:
    """murmur2, of which these are the partitions of three (Kafka's Utils.murmur2)."""
    run(broker, "produce", topic, "-K:", data=b"alice:1\nbob:1\ncarol:1\ndave:1\n")
    where = dict(line.split() for line in text_of(broker, topic, "%k %p"))
    expected = {key: str(murmur2(key.encode()) % 3) for key in ("alice", "bob", "carol", "dave")}
    assert where == expected
    assert len(set(expected.values())) > 1, "keys that tell partitions apart"


def murmur2(data: bytes) -> int:
    """MurmurHash2 with Kafka's seed, made positive."""
    word, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    for at in range(0, len(data) - len(data) % 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * word & mask
        k = (k ^ k >> 24) * word & mask
        h = (h * word & mask) ^ k
    if rest := data[len(data) - len(data) % 4 :]:
        h = (h ^ int.from_bytes(rest, "little")) * word & mask
    h = (h ^ h >> 13) * word & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


def test_json_lines_of_one_topic_make_another_that_is_the_same(broker: Broker, topic: str) -> None:
    lines = [
        {"key": "k", "value": "ü\n", "headers": [], "partition": 0, "timestamp": 1},
        {"key": None, "value": None, "headers": [], "partition": 1, "timestamp": 1_700_000_000_000},
        {"key_base64": "/w==", "value_base64": "gAA=", "headers": [
            {"name": "a", "value": ""}, {"name": "a", "value": None}, {"name": "b", "value_base64": "/w=="},
        ], "partition": 2, "timestamp": 2},
    ]  # fmt: skip
    data = "\n".join(map(json.dumps, lines)).encode()
    run(broker, "produce", topic, "--format", "json", data=data)
    first = run(broker, "consume", topic, "-e", "--format", "json")
    found = [json.loads(line) for line in first.lines]
    for each in found:
        assert (each.pop("topic"), each.pop("offset")) == (topic, 0)
    assert sorted(found, key=lambda each: each["partition"]) == lines
    make(broker, topic + ".copy", 3)
    run(broker, "produce", topic + ".copy", "--format", "json", data=first.out)
    again = run(broker, "consume", topic + ".copy", "-e", "--format", "json").out
    named = again.replace(f'"topic":"{topic}.copy"'.encode(), f'"topic":"{topic}"'.encode())
    assert sorted(named.splitlines()) == sorted(first.out.splitlines())


def test_a_format_is_read_as_it_was_printed(broker: Broker, topic: str) -> None:
    run(broker, "produce", topic, "-f", r"%p %K %S %k%s\n", data=b"1 1 3 ka\nb\n0 -1 -1 \n")
    assert run(broker, "consume", topic, "-e", "-p", "1", "-f", "%k|%s").out == b"k|a\nb"
    assert text_of(broker, topic, "%K %S", "-p", "0") == ["-1 -1"]


def test_batches_are_compressed(broker: Broker) -> None:
    data = b"".join(b"the same again and again %d\n" % number for number in range(2_000))
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        name = f"compressed-{codec}"
        make(broker, name, 1)
        run(broker, "produce", name, "-z", codec, data=data)
        segment = next((broker.directory / f"{name}-0").glob("*.log"))
        assert segment.stat().st_size < len(data) / 3, codec
    done = run(broker, "consume", "^compressed-.*", "-e")
    assert sorted(done.out.splitlines()) == sorted(data.splitlines() * 4)


def test_acks_of_nobody_and_of_the_leader(broker: Broker, topic: str) -> None:
    for acks in ("0", "1", "all"):
        run(broker, "produce", topic, "--acks", acks, "-p", "0", data=b"x\n")
    assert run(broker, "consume", topic, "-c").out == b"3\n"


# ---------------------------------------------------------------------- where it begins, and ends


def test_from_where_to_where(broker: Broker) -> None:
    make(broker, "times", 1)
    data = b"".join(b"%d000 %d\n" % (second, second) for second in (1_000, 2_000, 3_000))
    run(broker, "produce", "times", "-f", "%T %s", data=data)
    run(broker, "produce", "times", "--timestamp", "-1h", data=b"an hour ago\n")

    every = ["1000", "2000", "3000", "an hour ago"]
    expected = {
        ("-e",): every,
        ("-e", "-o", "end"): [],
        ("-e", "-o", "1", "-n", "2"): ["2000", "3000"],
        ("-n", "4"): every,
        ("-e", "-o", "-1"): ["an hour ago"],
        ("-e", "-o", "-99"): every,
        ("-e", "-o", "s@1970-01-01T00:30:00Z", "-o", "e@3000000"): ["2000"],
        ("-e", "-o", "@-2h"): ["an hour ago"],
        ("-e", "-o", "@-1m"): [],
        ("-o", "e@-30m"): every,  # an end in the past needs no -e
    }
    found = all_of(broker, *(("consume", "times", *words) for words in expected))
    assert [each.lines for each in found] == list(expected.values())
    done = run(broker, "consume", "times", "-e", "-o", "5", code=1)
    assert "times [0] ends at offset 4; there is no offset 5" in done.said


def test_it_follows_until_it_has_enough(broker: Broker, topic: str) -> None:
    reader = begin(broker.bootstrap, "consume", topic, "-n", "3")
    run(broker, "produce", topic, data=b"one\ntwo\n")
    assert reader.poll() is None, "it goes on"
    run(broker, "produce", topic, data=b"three\nfour\n")
    done = ended(reader)
    assert (done.code, len(done.lines)) == (0, 3)


def test_several_topics_and_an_expression(broker: Broker) -> None:
    for name in ("many.a", "many.b", "other"):
        make(broker, name, 1)
        run(broker, "produce", name, data=name.encode() + b"\n")
    assert sorted(run(broker, "consume", "many.a", "other", "-e").lines) == ["many.a", "other"]
    assert sorted(run(broker, "consume", "^many\\..*", "-e").lines) == ["many.a", "many.b"]
    done = run(broker, "consume", "^many\\..*", "-e", "-g", "expression")
    assert sorted(done.lines) == ["many.a", "many.b"]
    assert (
        "no topic matches ^many$; there is many."
        in run(broker, "consume", "^many$", "-e", code=1).said
    )


def test_a_group_resumes_where_it_ended(broker: Broker) -> None:
    make(broker, "work", 1)
    run(broker, "produce", "work", data=b"1\n2\n3\n4\n5\n")
    done = run(broker, "consume", "work", "-g", "workers", "-n", "2")
    assert done.lines == ["1", "2"]
    assert "group workers assigned work [0]" in done.said
    assert "group workers revoked work [0]" in done.said
    done = run(broker, "consume", "work", "-g", "workers", "-e", "-q")
    assert (done.lines, done.said) == (["3", "4", "5"], "")
    assert run(broker, "consume", "work", "-g", "workers", "-e").lines == []
    assert run(broker, "consume", "work", "-g", "late", "-o", "end", "-e").lines == []
    assert run(broker, "consume", "work", "-e").lines == ["1", "2", "3", "4", "5"], (
        "no group, no offsets"
    )


@pytest.mark.peer
def test_the_markers_of_transactions_are_no_records(tmp_path: Path) -> None:
    """On Apache Kafka: the last offset of a partition is a marker, then an open transaction is behind it."""
    from confluent_kafka import Producer

    with kafka.start(tmp_path) as cluster:
        at = cluster.bootstrap
        run(at, "produce", "t", data=b"plain\n")
        producer = Producer({"bootstrap.servers": at, "transactional.id": "x"})
        producer.init_transactions(PATIENCE_S)
        for value, is_committed in (("aborted", False), ("committed", True)):
            producer.begin_transaction()
            producer.produce("t", value)
            producer.flush(PATIENCE_S)
            end = producer.commit_transaction if is_committed else producer.abort_transaction
            end(PATIENCE_S)
        for group in ((), ("-g", "g")):
            assert run(at, "consume", "t", "-e", *group).lines == ["plain", "committed"]
        producer.begin_transaction()
        producer.produce("t", "open")
        producer.flush(PATIENCE_S)
        assert run(at, "consume", "t", "-e").lines == ["plain", "committed"]
        everything = run(at, "consume", "t", "-e", "--isolation", "read_uncommitted")
        assert everything.lines == ["plain", "aborted", "committed", "open"]


# ---------------------------------------------------------------------- what goes wrong


def test_nobody_is_there(topic: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        commands = (("produce", topic), ("consume", topic), ("consume", topic, "-g", "g"))
        for done in all_of(address, *commands, code=1):
            assert (
                done.said == f"firnline: cannot reach a broker at {address}: Connection refused\n"
            )


def test_the_deadline_is_kept_where_something_accepts_and_is_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began_s = time.monotonic()
        commands = (("produce", "t"), ("consume", "t"), ("consume", "t", "-g", "g"))
        found = all_of(address, *((*words, "--timeout", "1") for words in commands), code=1)
        assert time.monotonic() - began_s < 15, "30 s is the default"
        for done in found:
            assert done.said.startswith(
                f"firnline: {address} accepts connections, but did not answer as a broker within 1 s"
            )


def test_a_topic_that_is_not_there(broker: Broker) -> None:
    make(broker, "invoices", 1)
    typed = (("produce", "invocies"), ("consume", "invocies"), ("consume", "invocies", "-g", "g"))
    for done in all_of(broker, *typed, code=1):
        assert done.said == (
            "firnline: there is no topic invocies: did you mean invoices?"
            " `firnline topic create invocies` makes it\n"
        )
    for done in all_of(broker, ("produce", "a b"), ("consume", "a b"), code=1):
        assert "'a b' has characters other than" in done.said
    beyond = (("produce", "invoices", "-p", "7"), ("consume", "invoices", "-p", "7"))
    for done in all_of(broker, *beyond, code=1):
        assert done.said == "firnline: topic invoices has only partition 0; there is no 7\n"


def test_settings_that_librdkafka_refuses(broker: Broker, topic: str) -> None:
    done = run(broker, "consume", topic, "-X", "fetch.min.bites=1", code=1)
    said = "-X: librdkafka has no setting 'fetch.min.bites'. Did you mean 'fetch.min.bytes'?"
    assert done.said == f"firnline: {said}\n"
    done = run(broker, "produce", topic, "-X", "compresion.type=lz4", code=1)
    assert "Did you mean 'compression.type'?" in done.said
    done = run(broker, "produce", topic, "-X", "nothing.like.it=1", code=1)
    assert done.said == "firnline: -X: librdkafka has no setting 'nothing.like.it'.\n"
    assert (
        "compression.level"
        in run(broker, "produce", topic, "-X", "compression.level=x", code=1).said
    )


def test_a_record_that_is_too_large_is_named(broker: Broker) -> None:
    make(broker, "small", 1, max_message_bytes="1000")
    run(broker, "produce", "small", data=b"many that are small enough\n" * 1_000)
    data = b"a\n" + b"x" * 5_000 + b"\nc\n"
    done = run(broker, "produce", "small", data=data, code=1)
    assert "line 2: the record is too large: 5,000 bytes, and small takes 1,000 bytes;" in done.said
    assert "delivered 2 records, 1 not delivered" in done.said
    assert run(broker, "consume", "small", "-e", "-o", "1000").lines == ["a", "c"]


def test_a_compacted_topic_wants_keys(broker: Broker) -> None:
    make(broker, "compacted", 1, cleanup_policy="compact")
    done = run(broker, "produce", "compacted", data=b"a\n", code=1)
    assert "line 1: " in done.said
    assert "needs a key (-k, -K); delivered 0 records, 1 not delivered" in done.said


def test_garbage_on_line_17(broker: Broker, topic: str) -> None:
    data = b'{"value":"fine","partition":0}\n' * 16 + b"{]\n" + b'{"value":"never"}\n'
    done = run(broker, "produce", topic, "--format", "json", data=data, code=1)
    assert done.said == (
        "firnline: stdin line 17: not JSON: Expecting property name enclosed in double quotes at"
        " character 2; delivered 16 records\n"
    )
    elsewhere = b'{"value":"x","partition":9}\n'
    done = run(broker, "produce", topic, "--format", "json", data=elsewhere, code=1)
    assert "stdin line 1: partition 9 is not there" in done.said
    run(broker, "produce", topic, "--format", "json", "-p", "any", data=elsewhere)


def test_a_header_that_the_binding_cannot_name(broker: Broker) -> None:
    """Its `headers()` breaks at a name that is not UTF-8: what comes before is printed."""
    make(broker, "named", 1)
    run(broker, "produce", "named", data=b"before\n")
    records = bytes(raw_batch(record_with_header_keys((b"\xed",), b"badly")))
    data = [PartitionProduceData(index=0, records=records)]
    topics = [TopicProduceData(name="named", partition_data=data)]
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)
    with Connection("127.0.0.1", broker.port, timeout_s=PATIENCE_S) as connection:
        answer = connection.ask(request, version=9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    done = run(broker, "consume", "named", "-e", "-f", r"%s %h\n", code=1)
    assert done.lines == ["before "]
    assert done.said == (
        "firnline: named [0] at offset 1: the name of a header is not UTF-8; a format without %h"
        " prints the record; until then 1 record\n"
    )
    assert text_of(broker, "named", "%s %o") == ["before 0", "badly 1"]


def test_a_file_that_is_not_there(broker: Broker, topic: str, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    done = run(broker, "produce", topic, "-", missing, data=b"x\n", code=1)
    assert done.said == f"firnline: cannot read {missing}: No such file or directory\n"
    assert run(broker, "consume", topic, "-c").out == b"0\n", "nothing of the others was sent"


def test_without_confluent_kafka_the_line_that_installs_it(tmp_path: Path, broker: Broker) -> None:
    (tmp_path / "confluent_kafka.py").write_text("raise ImportError('no wheel for this platform')")
    line = [
        sys.executable,
        "-m",
        "firnline",
        "consume",
        "t",
        "--bootstrap-server",
        broker.bootstrap,
    ]
    path = os.pathsep.join([str(tmp_path), *(each for each in sys.path if each)])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        line, capture_output=True, env=environment, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode() == (
        "firnline: this command needs librdkafka, which is not there (no wheel for this platform):"
        " pip install confluent-kafka\n"
    )


# ---------------------------------------------------------------------- signals, pipes, lost brokers


def test_head_ends_it_in_silence(broker: Broker) -> None:
    make(broker, "long", 1)
    run(broker, "produce", "long", data=b"".join(b"%d\n" % n for n in range(50_000)))
    for words in ((), ("-o", "-1")):  # with more to write, and with nothing to write
        reader = begin(broker.bootstrap, "consume", "long", *words)
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stdout.readline()
        reader.stdout.close()
        assert reader.wait(PATIENCE_S) == 141
        assert reader.stderr.read() == b""
        reader.stderr.close()


def test_ctrl_c_while_it_follows(broker: Broker) -> None:
    make(broker, "followed", 1)
    run(broker, "produce", "followed", data=b"1\n2\n")
    for words, rest in (((), ""), (("-g", "followers"), "group followers")):
        reader = begin(broker.bootstrap, "consume", "followed", *words)
        assert reader.stdout is not None
        assert [reader.stdout.readline() for _ in range(2)] == [b"1\n", b"2\n"]
        reader.send_signal(signal.SIGINT)
        done = ended(reader)
        assert done.code == 130
        assert rest in done.said
    # What was printed was committed on the way out.
    assert run(broker, "consume", "followed", "-g", "followers", "-e").lines == []


def unread_bytes(process: "subprocess.Popen[bytes]") -> int:
    """How much of its standard input, a pipe, a process has not read yet."""
    assert process.stdin is not None
    found = fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4))
    return int.from_bytes(found, sys.byteorder)


def is_idle(pid: int) -> bool:
    """Look ten times within half a second: each time all threads of the process wait for something."""
    for _ in range(10):
        for task in Path(f"/proc/{pid}/task").iterdir():
            if (task / "stat").read_text().rpartition(")")[2].split()[0] != "S":
                return False
        time.sleep(0.05)
    return True


def test_ctrl_c_sends_what_was_read(broker: Broker) -> None:
    make(broker, "typed", 1)
    writer = begin(broker.bootstrap, "produce", "typed", "-X", "linger.ms=3000")
    assert writer.stdin is not None
    writer.stdin.write(b"1\n2\nhalf a li")
    writer.stdin.flush()
    eventually("it has read them", lambda: unread_bytes(writer) == 0)
    eventually("it waits for more", lambda: is_idle(writer.pid))
    writer.send_signal(signal.SIGINT)
    done = ended(writer)
    assert (done.code, done.said) == (130, "firnline: interrupted; delivered 2 records\n")
    assert run(broker, "consume", "typed", "-e").lines == ["1", "2"]


@pytest.mark.parametrize("words", [("produce", "t"), ("consume", "t"), ("consume", "t", "-g", "g")])
def test_ctrl_c_while_nothing_answers(words: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = begin(f"127.0.0.1:{silent.getsockname()[1]}", *words)
        silent.accept()[0].close()  # it has begun
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        began_s = time.monotonic()
        assert ended(process).code == 130
        assert time.monotonic() - began_s < 15


def test_the_broker_goes_away(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data")
    broker.start()
    make(broker, "t", 1)
    run(broker, "produce", "t", data=b"1\n")
    reader = begin(broker.bootstrap, "consume", "t", "--timeout", "6")
    writer = begin(broker.bootstrap, "produce", "t", "--timeout", "6", "-k", "k")
    assert reader.stdout is not None
    assert writer.stdin is not None
    writer.stdin.write(b"2\n")
    writer.stdin.flush()
    assert [reader.stdout.readline() for _ in range(2)] == [b"1\n", b"2\n"]
    time.sleep(0.3)  # for the answer to the writer
    broker.kill()
    writer.stdin.write(b"3\n4\n")
    writer.stdin.flush()
    wrote = ended(writer)
    assert wrote.code == 1
    # On a busy machine the 6 s may be over before the client took what was in its queue.
    why = r"line 2: (not acknowledged within 6 s|there was no time to deliver it)"
    assert re.search(why + ": cannot reach a broker at", wrote.said), wrote.said
    assert "delivered 1 record, 2 not delivered" in wrote.said
    read = ended(reader)
    assert read.code == 1
    assert "no broker answers; waits 6 s for one" in read.said
    assert "no broker answered for 6 s at" in read.said


@pytest.mark.parametrize("group", [(), ("-g", "g")], ids=["alone", "in a group"])
def test_a_flipped_byte_is_no_other_record(tmp_path: Path, group: tuple[str, ...]) -> None:
    with Broker(tmp_path / "data") as broker:
        make(broker, "t", 1)
        for value in (b"one", b"two", b"three"):
            run(broker, "produce", "t", data=value + b"\n")
    (path,) = (tmp_path / "data" / "t-0").glob("*.log")
    path.write_bytes(path.read_bytes().replace(b"two", b"twp"))
    with Broker(tmp_path / "data") as broker:
        done = run(broker, "consume", "t", "-e", "-o", "beginning", *group, code=1)
        assert done.lines == ["one"]
        assert "t [0]: offset 1: " in done.said
        assert "CRC" in done.said
        assert "`firnline doctor` says which replica" in done.said
        more = ("-X", "check.crcs=false")
        lines = run(broker, "consume", "t", "-e", "-o", "beginning", *group, *more).lines
        assert lines[-2:] == ["twp", "three"]


def test_a_broker_that_comes_back_is_followed(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data")
    broker.start()
    make(broker, "t", 1)
    reader = begin(broker.bootstrap, "consume", "t", "-n", "2")
    run(broker, "produce", "t", data=b"1\n")
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"1\n"
    broker.restart()
    run(broker, "produce", "t", data=b"2\n")
    done = ended(reader)
    assert (done.code, done.out) == (0, b"2\n")
    broker.stop()


@pytest.mark.slow
def test_a_leader_is_killed_under_produce(firnline_cluster: Cluster) -> None:
    """Goal: each line once, in order. Method: kill -9 the leader while lines come, and read what is there."""
    bootstrap = firnline_cluster.bootstrap
    with Admin(bootstrap) as admin:
        admin.create_topic("orders", partitions=1, replication_factor=3, configs={})
    writer = begin(bootstrap, "produce", "orders", "--timeout", "60")
    assert writer.stdin is not None
    leader = firnline_cluster.leader_of("orders")
    lines = [b"%d\n" % number for number in range(60_000)]
    half_way = threading.Event()

    def write() -> None:
        assert writer.stdin is not None
        for at in range(0, len(lines), 100):
            writer.stdin.write(b"".join(lines[at : at + 100]))
            writer.stdin.flush()
            if at >= len(lines) // 3:
                half_way.set()
            time.sleep(0.002)
        writer.stdin.close()

    thread = threading.Thread(target=write)
    thread.start()
    assert half_way.wait(PATIENCE_S)
    firnline_cluster.kill_node(leader)
    thread.join(PATIENCE_S)
    assert writer.wait(60) == 0, writer.stderr and writer.stderr.read()
    for pipe in (writer.stdout, writer.stderr):
        assert pipe is not None
        pipe.close()
    eventually("another leads", lambda: firnline_cluster.leader_of("orders") != leader)
    done = run(bootstrap, "consume", "orders", "-e")
    assert done.out == b"".join(lines)


# ---------------------------------------------------------------------- the page


def test_what_the_page_shows_is_what_is_printed(tmp_path: Path) -> None:
    """Each `$ command` of docs/CLIENT.md, in order, with the output that the page has under it."""
    page = (Path(__file__).parents[2] / "docs" / "CLIENT.md").read_text()
    lines = [line[4:] if line.startswith("    ") else "" for line in page.splitlines()]
    broker = Broker(tmp_path / "data")
    broker.start()
    function = (
        f'firnline() {{ {shlex.quote(sys.executable)} -m firnline "$@"'
        f" --bootstrap-server {broker.bootstrap}; }}"
    )
    examples = re.findall(r"^\$ (.*)\n((?:(?!\$ ).+\n)*)", "\n".join(lines) + "\n", re.MULTILINE)
    assert len(examples) > 6
    for command, output in examples:
        done = subprocess.run(
            ["bash", "-c", f"{function}; {command}"],
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        printed = (done.stderr + done.stdout).decode().splitlines()
        # Two pipes have no order in common.
        assert sorted(map(without_time, printed)) == sorted(
            map(without_time, output.splitlines())
        ), command
    broker.stop()
    for letter in FIELDS:
        assert f"`%{letter}`" in page, "a field that the page does not have"


def without_time(line: str) -> str:
    return re.sub(r'"timestamp":\d+', '"timestamp":0', line)


# ---------------------------------------------------------------------- beside kcat


def kcat(broker: Broker, *words: str, data: bytes = b"") -> bytes:
    line = ["kcat", "-q", "-b", broker.bootstrap, *words]
    done = subprocess.run(line, input=data, capture_output=True, timeout=PATIENCE_S, check=True)
    return done.stdout


EVERYTHING = r"%t [%p] %o %T k=%k %K v=%s %S %R h=%h \x41\x42\t%%|\n"


@needs_kcat
@pytest.mark.parametrize("writer", ["kcat", "firnline"])
@pytest.mark.parametrize("nulls", [(), ("-Z",)])
def test_both_print_alike_what_either_wrote(
    broker: Broker, topic: str, writer: str, nulls: tuple[str, ...]
) -> None:
    data = "k:v\n:only a value\nonly a key:\nneither\nü:\xff:x\n".encode()
    words = ("-K:", "-p", "1", "-H", "a=1", "-H", "b", "-H", "c=", *nulls)
    if writer == "kcat":
        kcat(broker, "-P", "-t", topic, *words, data=data)
    else:
        run(broker, "produce", topic, *words, data=data)
    theirs = kcat(broker, "-C", "-t", topic, "-e", "-f", EVERYTHING, *nulls)
    assert theirs.count(b"|\n") == 5
    assert run(broker, "consume", topic, "-e", "-f", EVERYTHING, *nulls).out == theirs
    theirs = kcat(broker, "-C", "-t", topic, "-e", "-K", ":", *nulls)
    assert run(broker, "consume", topic, "-e", "-K", ":", *nulls).out == theirs


@needs_kcat
@pytest.mark.parametrize("nulls", [(), ("-Z",)])
def test_both_write_alike(broker: Broker, topic: str, nulls: tuple[str, ...]) -> None:
    """But for empty lines, which kcat leaves out."""
    data = b"k:v\n:v\nk:\n:\nplain\na:b:c\nlast"
    words = ("-K:", "-p", "0", "-H", "a=1", "-H", "a", "-k", "given", *nulls)
    kcat(broker, "-P", "-t", topic, *words, data=data)
    theirs = text_of(broker, topic, "%k|%s|%K|%S|%h", "-Z")
    run(broker, "produce", topic, *words, data=data)
    both = text_of(broker, topic, "%k|%s|%K|%S|%h", "-Z")
    assert both == theirs * 2
