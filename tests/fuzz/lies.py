"""A broker that is lied to: what its leader and its controller answer is altered on the way. WORLD.

    python -m tests.fuzz.lies --seed 7 [--seconds 20]

A controller, a leader and a follower, each a process; before the first two stands a proxy. Of the answers
to the follower every third has one field changed, by the answer's own declaration, or a few bytes.
Meanwhile records are produced with acks=all, and clients ask the follower for what it has the controller
decide. Half way the follower is killed. It loses its metadata, and a log of which the leader has the end and
the tier the rest. Then the proxy is honest again, the follower comes back into the ISRs, the leader leaves,
and all is read from the follower.
"""

import argparse
import contextlib
import math
import os
import selectors
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, NamedTuple, Self

from firnline.base.errors import FirnlineError
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC
from firnline.protocol.compile import FIXED
from firnline.protocol.messages import messages_of
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k02_list_offsets import ListOffsetsPartitionResponse
from firnline.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from firnline.protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from firnline.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from firnline.protocol.schema import Message
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from tests.chaos.tiered_replicas import tiered_settings
from tests.fuzz import values
from tests.fuzz.drawer import spoil
from tests.fuzz.node import GROWN_BYTES_MAX, Finding
from tests.fuzz.shapes import answer_head
from tests.peers.nodes import BROKER, CONTROLLER, FIRNLINE, Cluster, Node
from tests.wire.line import MIB, Line

CONTROLLING, LEADING, FOLLOWING = 1, 2, 3
TOPIC, LED, COLD = "told", "led", "cold"
SECONDS = 20.0
BACK_S = 60.0
SHARE = 0.3
_REPORTED_MIN = 20
_SETTINGS = {
    "replica.fetch.wait.max.ms": 50,
    "replica.lag.time.max.ms": 2000,
    "broker.session.timeout.ms": 6000,
    # The controller's log begins at its newest snapshot: whoever is behind has to fetch that.
    "metadata.log.max.record.bytes.between.snapshots": 100,
    "metadata.start.offset.lag.time.max.ms": 200,
}
# Of a log of 400 kB the tier has all but what is left of it here.
_COLD = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "65536",
    "local.retention.bytes": "65536",
    "retention.ms": "-1",
}
_COLD_BATCHES = 250
_TIER_PARTITIONS = 3  # of the topic that says what is in the tier
_OUT_OF_SYNC_S = 3.5  # replica.lag.time.max.ms and half of it, and less than a session
_TROUBLE = (OSError, AssertionError, FirnlineError)
_API_VERSIONS = 18
# These are asked for a few times in a play: ListOffsets, OffsetForLeaderEpoch, AlterPartition, FetchSnapshot.
_RARE, _RARE_SHARE = {2, 23, 56, 59}, 0.7
# What a node has to believe, since nothing shows that it is not so: a newer epoch or a later start of a log,
# and that it has to go. Bytes whose checksum was altered with them are of this kind, too.
_BELIEVED = {"log_start_offset", "should_shut_down"}
_EPOCHS = {"leader_epoch", "current_leader_epoch", "epoch", "partition_epoch"}


class Lie(NamedTuple):
    """What was said in place of what: the API, the field and both values."""

    key: int
    version: int
    what: str


class Leaf(NamedTuple):
    """One field of an answer."""

    owner: Any
    name: str
    kind: Any


def leaves(found: Any) -> Iterator[Leaf]:
    """Yield the fields of a message, those of its structs and of the elements of its arrays too."""
    for name, field in type(found).fields.items():
        value = getattr(found, name)
        if isinstance(field.kind, type) and value is not None:  # a default may be shared
            value = field.kind(**{each: getattr(value, each) for each in field.kind.fields})  # type: ignore[attr-defined]
            setattr(found, name, value)
        else:
            yield Leaf(found, name, field.kind)
        for one in value if isinstance(field.kind, list) and value else (value,):
            if hasattr(type(one), "fields"):
                yield from leaves(one)


def lie(rng: Random, key: int, version: int, body: bytes) -> tuple[bytes, str]:
    """Return the body of an answer with one field changed, or a few bytes; and what was done."""
    response = messages_of(key)[1]
    answer, _ = response.read(body, version, 0)
    if rng.random() < 0.15:
        reported = spoil(rng, body)
        if not _is_believed(response, version, answer, reported):
            return reported, "bytes"
    known = [leaf for leaf in leaves(answer) if leaf.name not in _BELIEVED]
    for _ in range(10):
        leaf = rng.choice(known)
        before = getattr(leaf.owner, leaf.name)
        after = _other(rng, leaf, before)
        setattr(leaf.owner, leaf.name, after)
        with contextlib.suppress(
            FirnlineError, struct.error, TypeError, ValueError, AttributeError
        ):
            reported = bytes(_written(answer, version))
            if reported != body:
                return (
                    reported,
                    f"{type(leaf.owner).__name__}.{leaf.name} {before!r:.80} -> {after!r:.80}",
                )
        setattr(leaf.owner, leaf.name, before)
    return body, ""


def _is_believed(response: type[Message], version: int, answer: Any, reported: bytes) -> bool:
    """Would nothing show that spoilt bytes are not the truth: a later start, a newer epoch?"""
    try:
        spoilt, _ = response.read(reported, version, 0)
    except (FirnlineError, struct.error, ValueError):
        return False
    before, after = (
        [leaf for leaf in leaves(each) if _is_taken_as_said(leaf)] for each in (answer, spoilt)
    )
    highest = {leaf.name: getattr(leaf.owner, leaf.name) for leaf in before}
    for leaf in before:
        highest[leaf.name] = max(highest[leaf.name], getattr(leaf.owner, leaf.name))
    return any(getattr(leaf.owner, leaf.name) > highest.get(leaf.name, -1) for leaf in after)


def _is_taken_as_said(leaf: Leaf) -> bool:
    """Is nothing known that contradicts a higher value?"""
    is_start = leaf.name == "offset" and type(leaf.owner) is ListOffsetsPartitionResponse
    return is_start or leaf.name in _BELIEVED or leaf.name in _EPOCHS


def _written(answer: Message, version: int) -> bytes:
    return bytes(answer.write(version))


def _other(rng: Random, leaf: Leaf, before: Any) -> Any:
    """A value that is near, that is far, or none."""
    if isinstance(leaf.kind, list):
        rows = list(before or ())
        return rng.choice((None, [], rows + rows, rows[:-1], rows[::-1]))
    if leaf.kind == "records":
        return _records(rng, bytes(before or b""))
    if leaf.kind in ("string", "bytes"):
        some = (None, "", "x", "told", "__cluster_metadata", "x" * 300)
        text = rng.choice(some)
        return text.encode() if text is not None and leaf.kind == "bytes" else text
    if leaf.kind == "bool":
        return not before
    if leaf.kind == "uuid":
        return rng.choice((bytes(16), bytes(15) + b"\1", rng.randbytes(16)))
    if leaf.kind not in FIXED or not isinstance(before, int):
        return None
    near = (before + 1, before - 1, 0, -1, before * 2, before // 2, before + 1000)
    number = rng.choice(near) if rng.random() < 0.7 else rng.choice(values.LONGS)
    size = FIXED[leaf.kind][1]
    number = max(-(1 << size * 8 - 1), min(number, (1 << size * 8 - 1) - 1))
    if _is_taken_as_said(leaf):
        number = min(number, before)
    return number


def _records(rng: Random, data: bytes) -> bytes | None:
    """Records that are cut, spoilt, twice there, or of an offset that was before."""
    if len(data) < 61:
        return rng.choice((None, b"", rng.randbytes(100)))
    (base,) = struct.unpack_from(">q", data)
    earlier = rng.choice((0, -1, base - 1, base // 2, -(1 << 63)))
    at = rng.randrange(17, len(data))  # under the checksum, or the checksum
    flipped = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    size = struct.pack(">i", rng.choice((0, -1, 48, 49, 1 << 30, (1 << 31) - 1)))
    return rng.choice(
        (
            None,
            b"",
            data + data,
            data[: rng.randrange(len(data))],
            flipped,
            struct.pack(">q", min(earlier, base)) + data[8:],
            data[:8] + size + data[12:],
            rng.randbytes(200),
        )
    )


class Liar:
    """A proxy: passes on what it gets, and alters answers to one client as a seed says."""

    def __init__(self, to: tuple[str, int], rng: Random, client_id: str) -> None:
        self._to, self._rng, self._client_id = to, rng, client_id.encode()
        self.lies: list[Lie] = []
        self.is_lying = False
        self.only: set[int] | None = None
        self._is_over = False
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_over = True
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over:
            for key, _ in self._selector.select(0.1):
                if key.data is None:
                    self._accept()
                elif key.fileobj.fileno() >= 0:  # type: ignore[union-attr]
                    self._pass(key.data)
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _accept(self) -> None:
        near, _ = self._listening.accept()
        try:
            far = socket.create_connection(self._to, 2)
        except OSError:
            near.close()
            return
        asked: dict[int, tuple[int, int]] = {}
        for one, other, is_answers in ((near, far, False), (far, near, True)):
            one.settimeout(10)
            way = _Way(one, other, is_answers, asked)
            self._selector.register(one, selectors.EVENT_READ, way)

    def _pass(self, way: "_Way") -> None:
        try:
            data = way.one.recv(1 << 20)
            way.held += data
            if data:
                way.other.sendall(b"".join(self._altered(way, frame) for frame in way.frames()))
                return
        except OSError:
            pass
        for sock in (way.one, way.other):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(sock)
            sock.close()

    def _altered(self, way: "_Way", frame: bytes) -> bytes:
        """Note a request of the client; alter an answer to it, sometimes."""
        if not way.is_answers:
            key, version, number, size = struct.unpack_from(">hhih", frame, 4)
            if frame[14 : 14 + max(size, 0)] == self._client_id:
                way.asked[number] = (key, version)
            return frame
        (number,) = struct.unpack_from(">i", frame, 4)
        key, version = way.asked.pop(number, (_API_VERSIONS, 0))
        is_asked = key != _API_VERSIONS and (self.only is None or key in self.only)
        share = _RARE_SHARE if key in _RARE else SHARE
        if not self.is_lying or not is_asked or self._rng.random() > share:
            return frame
        start = 4 + answer_head(key, version)
        body, what = lie(self._rng, key, version, frame[start:])
        self.lies.append(Lie(key, version, what))
        return struct.pack(">i", start - 4 + len(body)) + frame[4:start] + body


class _Way:
    """One direction of a connection."""

    def __init__(
        self,
        one: socket.socket,
        other: socket.socket,
        is_answers: bool,
        asked: dict[int, tuple[int, int]],
    ) -> None:
        self.one, self.other, self.is_answers, self.asked = one, other, is_answers, asked
        self.held = b""

    def frames(self) -> Iterator[bytes]:
        """Yield the whole frames that are held, and keep the rest."""
        while len(self.held) >= 4:
            size = 4 + struct.unpack_from(">i", self.held)[0]
            if len(self.held) < size:
                return
            frame, self.held = self.held[:size], self.held[size:]
            yield frame


class Stage:
    """A controller, a leader and a follower that is lied to; what was acknowledged: offset -> key."""

    def __init__(self, base: Path, seed: int) -> None:
        members = [(FIRNLINE, CONTROLLER), (FIRNLINE, BROKER), (FIRNLINE, BROKER)]
        tier = base / "tier"
        tier.mkdir(parents=True)
        settings = tiered_settings(tier, metadata_replicas=2)
        self.cluster = Cluster(base, members, settings | _SETTINGS)
        who = f"firnline-{FOLLOWING}"
        self.liars = {
            node: Liar(self.cluster[node].address, Random(f"{seed}.{node}"), who)
            for node in (CONTROLLING, LEADING)
        }
        self.cluster.advertised_ports |= {node: liar.port for node, liar in self.liars.items()}
        self.kept: dict[str, dict[int, bytes]] = {TOPIC: {}, COLD: {}}
        self._rss_bytes = 0

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        cold = _topic(COLD, LEADING, FOLLOWING)
        cold.configs = [CreatableTopicConfig(name=name, value=each) for name, each in _COLD.items()]
        self._until_in_sync(
            create=[_topic(TOPIC, LEADING, FOLLOWING), _topic(LED, FOLLOWING, LEADING), cold]
        )
        self._fill_the_tier()
        self._rss_bytes = _rss_bytes(self.follower)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cluster.kill()
        for liar in self.liars.values():
            liar.close()

    @property
    def follower(self) -> Node:
        return self.cluster[FOLLOWING]

    def play(self, seconds: float) -> None:
        """Lie for so long, then not any more, and look at what became of it. Raises Finding."""
        for liar in self.liars.values():
            liar.is_lying = True
        ends = time.monotonic() + seconds
        starts_anew = time.monotonic() + seconds / 2
        self._leave_an_isr()
        with Line(self.cluster[LEADING].address) as line:
            while time.monotonic() < ends or self._has_reported_too_little(ends):
                for topic in self.kept:
                    self._produce(line, topic)
                with contextlib.suppress(*_TROUBLE):
                    self._ask_the_follower()
                self._look()
                if (
                    time.monotonic() > starts_anew
                ):  # its registration is answered, and epochs are asked for
                    starts_anew = math.inf
                    self.follower.kill()
                    shutil.rmtree(self.follower.metadata)  # so it fetches the snapshot
                    shutil.rmtree(self.follower.data / f"{COLD}-0")  # so it asks where to begin
                    self.follower.start(wait=False)
        for liar in self.liars.values():
            liar.is_lying = False
        time.sleep(_OUT_OF_SYNC_S)  # whoever is in an ISR by then is in sync
        self._until_in_sync()
        grown = _rss_bytes(self.follower) - self._rss_bytes
        if grown > GROWN_BYTES_MAX:
            raise Finding(f"the follower holds {grown / MIB:.0f} MiB more than before")
        self.cluster[LEADING].stop()
        for topic in self.kept:
            self._all_are_at_the_follower(topic)
        self._look()

    # ---------------------------------------------------------------------------- within

    def _leave_an_isr(self) -> None:
        """The leader stands still until what the follower leads has lost it, and comes back."""
        with Line(self.follower.address) as line, contextlib.suppress(*_TROUBLE):
            os.kill(self.cluster[LEADING].pid, signal.SIGSTOP)
            try:
                line.ask(_produce(LED, [NewRecord(None, b"v", 0)], acks=1), 9)
                time.sleep(_OUT_OF_SYNC_S)
            finally:
                os.kill(self.cluster[LEADING].pid, signal.SIGCONT)

    def _has_reported_too_little(self, ends: float) -> bool:
        """A busy machine gets more time."""
        reported = sum(len(liar.lies) for liar in self.liars.values())
        return (
            min(reported, len(self.kept[TOPIC])) < _REPORTED_MIN
            and time.monotonic() < ends + BACK_S
        )

    def _fill_the_tier(self) -> None:
        """Produce until the leader has deleted what the tier holds: nobody is lied to yet."""
        with Line(self.cluster[LEADING].address) as line:
            while len(self.kept[COLD]) < _COLD_BATCHES:
                self._produce(line, COLD)
        folder = self.cluster[LEADING].data / f"{COLD}-0"
        deadline = time.monotonic() + BACK_S
        while min(int(path.stem) for path in folder.glob("*.log")) == 0:
            if time.monotonic() > deadline:
                raise Finding(f"all of {COLD} is local after {BACK_S:.0f} s")
            time.sleep(0.1)

    def _produce(self, line: Line, topic: str) -> None:
        kept = self.kept[topic]
        rows = [
            NewRecord(b"%d-%d" % (len(kept), number), os.urandom(300), int(time.time() * 1000))
            for number in range(5)
        ]
        answer = line.ask(_produce(topic, rows, acks=-1), 9)
        [part] = answer.responses[0].partition_responses
        if part.error_code == 0:
            kept[part.base_offset] = rows[0].key or b""

    def _ask_the_follower(self) -> None:
        """What it asks the controller for: a block of ids, a topic in an Envelope, its own ISR."""
        with Line(self.follower.address, timeout_s=1.0) as line:
            line.ask(_produce(LED, [NewRecord(None, b"v", 0)], acks=1), 9)
            line.ask(InitProducerIdRequest(transactional_id=None), 4)
            new = CreatableTopic(name="asked", num_partitions=1, replication_factor=1)
            line.ask(CreateTopicsRequest(topics=[new], timeout_ms=500), 7)

    def _look(self) -> None:
        """Raise Finding where the follower ended, or says that something failed."""
        said = self.follower.log_text()
        for word in ("Traceback", "failed inside", "out of use", "registered by another process"):
            place = said.find(word)
            if place >= 0:
                raise Finding(self._reported(said[max(0, place - 500) : place + 3000]))
        if not self.follower.is_running:
            raise Finding(self._reported(f"it ended: {said[-2000:]}"))

    def _reported(self, what: str) -> str:
        last = "\n".join(str(each) for liar in self.liars.values() for each in liar.lies[-6:])
        return f"{what}\nlast lies:\n{last}"

    def _until_in_sync(self, create: list[CreatableTopic] | None = None) -> None:
        deadline = time.monotonic() + BACK_S
        last: object = None
        while time.monotonic() < deadline:
            self._look()
            with contextlib.suppress(OSError, AssertionError, FirnlineError, ValueError):
                with Line(self.cluster[LEADING].address) as line:
                    if create is not None:
                        line.ask(CreateTopicsRequest(topics=create, timeout_ms=5_000), 7)
                    wanted = [*self.kept, REMOTE_LOG_METADATA_TOPIC]
                    names = [MetadataRequestTopic(name=name) for name in wanted]
                    topics = line.ask(MetadataRequest(topics=names), 12).topics
                last = parts = [part for topic in topics for part in topic.partitions]
                are_complete = [set(part.isr_nodes) == {LEADING, FOLLOWING} for part in parts]
                if all(are_complete) and len(are_complete) == len(self.kept) + _TIER_PARTITIONS:
                    return
            time.sleep(0.2)
        raise Finding(self._reported(f"not in sync within {BACK_S:.0f} s: {last}"))

    def _all_are_at_the_follower(self, topic: str) -> None:
        kept = self.kept[topic]
        found: dict[int, bytes] = {}
        offset, end = 0, max(kept, default=-1)
        deadline = time.monotonic() + BACK_S
        while offset <= end:
            with Line(self.follower.address) as line:
                wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=MIB)
                topics = [FetchTopic(topic=topic, partitions=[wanted])]
                request = FetchRequest(topics=topics, max_bytes=MIB, max_wait_ms=100)
                [part] = line.ask(request, 12).responses[0].partitions
            data = bytes(part.records or b"")
            for head in headers(data):
                found[head.base_offset] = data[head.position : head.position + head.size_bytes]
                offset = max(offset, head.next_offset)
            if time.monotonic() > deadline:
                raise Finding(
                    self._reported(f"at {offset} of {end} of {topic} the follower says {part}")
                )
        wrong = [at for at, key in kept.items() if key not in found.get(at, b"")]
        if wrong:
            lost = f"{len(wrong)} of {len(kept)} acknowledged batches of {topic} are lost"
            raise Finding(self._reported(f"{lost}: {wrong[:5]}"))


def _topic(name: str, *brokers: int) -> CreatableTopic:
    row = CreatableReplicaAssignment(partition_index=0, broker_ids=list(brokers))
    return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[row])


def _produce(topic: str, rows: list[NewRecord], *, acks: int) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=bytes(build_batch(rows)))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics)


def _rss_bytes(node: Node) -> int:
    for line in Path(f"/proc/{node.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel states no VmRSS")


def play(base: Path, seed: int, seconds: float) -> tuple[str, Counter[int], int]:
    """Play one seed; return what was found, how many answers of each API were altered, and batches kept."""
    found = ""
    with Stage(base, seed) as stage:
        try:
            stage.play(seconds)
        except Finding as finding:
            found = str(finding)
        reported = Counter(each.key for liar in stage.liars.values() for each in liar.lies)
        return found, reported, sum(map(len, stage.kept.values()))


def main() -> int:
    """Play as the command says; 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.lies")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="firnline-lies-") as directory:
        found, reported, kept = play(Path(directory), given.seed, given.seconds)
    print(
        f"{sum(reported.values())} altered answers, of APIs {dict(sorted(reported.items()))}; {kept} batches"
    )
    print(found, end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
