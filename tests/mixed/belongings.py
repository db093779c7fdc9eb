"""What a user has in a cluster: topics, records, offsets, settings; made and asked for by clients. WORLD.

`fill` makes all kinds of it, `change` goes on with it, `look` asks a broker for everything. Whatever process
serves a directory, the answers have to be the same. Transactions and the newer group protocol are there only
where Apache Kafka runs with the features of its release.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from firnline.protocol.messages.k03_metadata import MetadataRequest
from firnline.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.chaos.workload import SILENT, offsets_of
from tests.mixed.reader import PATIENCE_S, read_messages
from tests.peers.nodes import eventually
from tests.peers.topics import await_partitions, is_led, partitions_of
from tests.wire.line import Line

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
USER = "somebody"
_CODEC_RECORDS = 60
_KEYS = 5
_DYNAMIC = (1, 2, 3)  # sources of a value: topic, broker, all brokers
LEFT_OPEN, OPEN_RECORDS = "left-open", 10
_OPEN_ID = "gone"
_LONGEST_TRANSACTION_MS = 900_000  # that Kafka allows by default
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Belongings:
    """Everything, as a broker tells it. Two of these are equal when nobody can see a difference."""

    cluster_id: str
    topic_ids: Mapping[str, str]
    records: Mapping[str, list[Row]]
    newest: Mapping[str, Row]  # of the compacted topic, by key: what else is there is the cleaner's
    bounds: Mapping[str, tuple[int, int]]
    commits: Mapping[str, tuple[int, str]]
    settings: Mapping[str, Mapping[str, tuple[str, int]]]

    def differences(self, other: "Belongings") -> list[str]:
        """Name what is not the same."""
        found = []
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if isinstance(mine, Mapping):
                keys = [k for k in {**mine, **theirs} if mine.get(k) != theirs.get(k)]
                found += [f"{field.name} of {k}: {_unlike(mine, theirs, k)}" for k in keys]
            elif mine != theirs:
                found.append(f"{field.name}: {mine!r} and {theirs!r}")
        return found


def _unlike(mine: Mapping[str, Any], theirs: Mapping[str, Any], key: str) -> str:
    a, b = mine.get(key), theirs.get(key)
    if isinstance(a, list) and isinstance(b, list):
        first = next((pair for pair in zip(a, b) if pair[0] != pair[1]), "one is longer")
        return f"{len(a)} and {len(b)}: {first}"
    return f"{a!r} and {b!r}"


class Home:
    """One node, and what clients do at it."""

    def __init__(self, bootstrap: str, address: tuple[str, int]) -> None:
        self._bootstrap, self._address = bootstrap, address
        self._writer: Producer | None = None
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **SILENT})

    # ------------------------------------------------------------------------------------- at first

    def fill(self, *, with_all_features: bool) -> None:
        """Make some of everything.

        `with_all_features`  transactions, one of them left open; a group of the newer protocol; a user
        """
        small = {"segment.bytes": "1048576", "segment.ms": "100"}
        wanted = [
            NewTopic("codecs", 4, 1, config={"max.message.bytes": "500000", "retention.ms": "-1"}),
            NewTopic("trimmed", 1, 1),
            NewTopic("tidy", 1, 1, config={"cleanup.policy": "compact", **small}),
            NewTopic("gone", 1, 1),
            NewTopic("transactions", 1, 1),
            NewTopic(LEFT_OPEN, 1, 1),
        ]
        for made in self._admin.create_topics(wanted).values():
            made.result(PATIENCE_S)
        self._fill_codecs()
        for number in range(4):
            self._write("trimmed", [(b"k", b"%d" % n) for n in range(50)])
            self._write("tidy", [(b"%d" % k, b"%d" % number) for k in range(_KEYS)])
            time.sleep(0.12)  # behind segment.ms
        cut = self._admin.delete_records([TopicPartition("trimmed", 0, 120)])
        for done in cut.values():
            done.result(PATIENCE_S)
        self._write("gone", [(None, b"x")])
        self._admin.delete_topics(["gone"])["gone"].result(PATIENCE_S)
        eventually("it is gone", lambda: not partitions_of(self._admin, "gone"))
        self._commit("classic", 37, "a note")
        self._set(ResourceType.BROKER, "1", "log.retention.ms", "999999999")
        self._set(ResourceType.BROKER, "", "num.io.threads", "9")
        if with_all_features:
            self._transact()
            self._commit("newer", 41, "", protocol="consumer")
            secret = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
            upsert = UserScramCredentialUpsertion(USER, secret, b"secret")
            self._admin.alter_user_scram_credentials([upsert])[USER].result(PATIENCE_S)

    def _fill_codecs(self) -> None:
        for place, codec in enumerate(CODECS):
            producer = self._producer({"compression.type": codec, "linger.ms": 20})
            for number in range(_CODEC_RECORDS):
                producer.produce(
                    "codecs",
                    b"%s %d %s" % (codec.encode(), number, b"x" * 40),
                    key=b"%d" % number,
                    partition=(place + number) % 4,
                    timestamp=1_700_000_000_000 + number,
                    headers=[("codec", codec.encode())],
                )
            assert producer.flush(PATIENCE_S) == 0

    def _transact(self) -> None:
        """Commit one, abort one, commit one more."""
        ends = ("commit_transaction", "abort_transaction", "commit_transaction")
        producer = self._producer({"transactional.id": "writer"})
        producer.init_transactions(PATIENCE_S)
        for end in ends:
            producer.begin_transaction()
            for _ in range(10):
                producer.produce("transactions", end.encode())
            getattr(producer, end)(PATIENCE_S)

    def leave_open(self) -> None:
        """Write in a transaction that nobody ends, nor the clock while a test runs."""
        self._open = self._producer(
            {"transactional.id": _OPEN_ID, "transaction.timeout.ms": _LONGEST_TRANSACTION_MS}
        )
        self._open.init_transactions(PATIENCE_S)
        self._open.begin_transaction()
        for _ in range(OPEN_RECORDS):
            self._open.produce(LEFT_OPEN, b"never committed")
        assert self._open.flush(PATIENCE_S) == 0

    def come_back(self) -> None:
        """Start the producer of the open transaction again, which ends what it left."""
        self._producer({"transactional.id": _OPEN_ID}).init_transactions(PATIENCE_S)

    def of_the_open(self) -> tuple[int, int, int]:
        """Return how many records a reader of committed ones finds of it, any reader, and the stable end."""
        where, place = self._bootstrap, (LEFT_OPEN, 0)
        found = [
            len(read_messages(where, [place], isolation=level)[place])
            for level in ("read_committed", "read_uncommitted")
        ]
        return found[0], found[1], self._bounds([place])[f"{LEFT_OPEN}-0"][1]

    # --------------------------------------------------------------------------------------- later

    def change(self, name: str) -> None:
        """Go on: records, settings, partitions, offsets; a topic comes and one goes."""
        self._admin.create_topics([NewTopic(name, 2, 1)])[name].result(PATIENCE_S)
        self._write(name, [(b"k", b"%d" % n) for n in range(30)])
        self._write("trimmed", [(b"k", name.encode())])
        self._write("tidy", [(b"%d" % k, name.encode()) for k in range(2)])
        count = len(partitions_of(self._admin, "codecs"))
        assert count >= 4
        grown = [NewPartitions("codecs", count + 1)]
        self._admin.create_partitions(grown)["codecs"].result(PATIENCE_S)
        await_partitions(self._admin, "codecs", count + 1, is_led)
        self._set(ResourceType.TOPIC, name, "retention.bytes", "123456789")
        self._set(ResourceType.TOPIC, "codecs", "max.message.bytes", "600000")
        self._commit("classic", 40 + count, name)
        cut = self._admin.delete_records([TopicPartition("trimmed", 0, 120 + count)])
        for done in cut.values():
            done.result(PATIENCE_S)

    # ---------------------------------------------------------------------------------------- look

    def look(self) -> Belongings:
        """Ask for everything."""
        with Line(self._address) as line:
            answer = line.ask(MetadataRequest(topics=None), 12)
        places = [
            (topic.name, number)
            for topic in answer.topics
            if not topic.name.startswith("__") and topic.name != LEFT_OPEN
            for number in range(len(topic.partitions))
        ]
        records = {
            f"{topic}-{number}": [_row(message) for message in messages]
            for (topic, number), messages in read_messages(self._bootstrap, places).items()
        }
        newest = {str(row[3]): row for row in records.pop("tidy-0")}
        return Belongings(
            answer.cluster_id,
            {t.name: t.topic_id.hex() for t in answer.topics},
            records,
            newest,
            self._bounds(places),
            {**self._commits("classic", places), **self._commits("newer", places)},
            self._settings([*dict(places), "__consumer_offsets"]),
        )

    def scram_users(self) -> list[str]:
        """Return who can log in with a password, which only Kafka acts on."""
        return list(self._admin.describe_user_scram_credentials().result(PATIENCE_S))

    def _bounds(self, places: Sequence[tuple[str, int]]) -> dict[str, tuple[int, int]]:
        asker = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "asker", **SILENT})
        try:
            return {f"{t}-{p}": offsets_of(asker, TopicPartition(t, p)) for t, p in places}
        finally:
            asker.close()

    def _commits(self, group: str, places: Sequence[tuple[str, int]]) -> dict[str, tuple[int, str]]:
        asker = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, **SILENT})
        try:
            asked = [TopicPartition(t, p) for t, p in places]
            reported = asker.committed(asked, timeout=PATIENCE_S)
        finally:
            asker.close()
        return {
            f"{group} in {t.topic}-{t.partition}": (t.offset, t.metadata or "")
            for t in reported
            if t.offset >= 0
        }

    def _settings(self, topics: list[str]) -> dict[str, dict[str, tuple[str, int]]]:
        asked = [
            *(ConfigResource(ResourceType.TOPIC, name) for name in topics),
            ConfigResource(ResourceType.BROKER, "1"),
        ]
        reported = self._admin.describe_configs(asked)
        return {
            resource.name: {
                entry.name: (entry.value, entry.source)
                for entry in reported[resource].result(PATIENCE_S).values()
                if entry.source in _DYNAMIC
            }
            for resource in asked
        }

    # ----------------------------------------------------------------------------------- by clients

    def _producer(self, more: Mapping[str, object]) -> Producer:
        safe = {"bootstrap.servers": self._bootstrap, "enable.idempotence": True}
        return Producer({**safe, **SILENT, **more})

    def _write(self, topic: str, rows: list[tuple[bytes | None, bytes]]) -> None:
        if self._writer is None:
            self._writer = self._producer({})
        for key, value in rows:
            self._writer.produce(topic, value, key=key, partition=0)
        assert self._writer.flush(PATIENCE_S) == 0

    def _commit(self, group: str, offset: int, note: str, *, protocol: str = "classic") -> None:
        """Join the group, commit an offset of the first partition that it assigns, and leave."""
        member = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "enable.auto.commit": False,
                **SILENT,
            }
        )
        member.subscribe(["codecs"])
        deadline = time.monotonic() + PATIENCE_S
        while not member.assignment():
            assert time.monotonic() < deadline, f"{group}: no assignment in {PATIENCE_S:.0f} s"
            member.poll(0.1)
        where = TopicPartition("codecs", 0, offset, note)
        member.commit(offsets=[where], asynchronous=False)
        member.close()

    def _set(self, kind: ResourceType, name: str, key: str, value: str) -> None:
        change = AlterableConfig(name=key, config_operation=0, value=value)
        resource = AlterConfigsResource(
            resource_type=kind.value, resource_name=name, configs=[change]
        )
        with Line(self._address) as line:
            answer = line.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        (done,) = answer.responses
        assert done.error_code == 0, done
        eventually(f"{key} is told", lambda: self._reports(kind, name, key, value))

    def _reports(self, kind: ResourceType, name: str, key: str, value: str) -> bool:
        """Whether the node acts on a setting, which it may hear of later than its controller said so."""
        # What holds for all brokers each of them tells of itself.
        resource = ConfigResource(kind, name or "1")
        reported = self._admin.describe_configs([resource])[resource].result(PATIENCE_S)
        return bool(reported[key].value == value)


def _row(m: Message) -> Row:
    return m.offset(), m.leader_epoch(), m.timestamp(), m.key(), m.value(), m.headers()
