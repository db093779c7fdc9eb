"""Requests of every API at every version, drawn from what the node knows, and then spoilt a little.

A burst, what one connection sends at once, is a function of its seed and of what was learned. Most fields
say what exists; in some requests one or two, in few every third, say what nobody would. Bytes are flipped,
cut, doubled and swapped. The bytes are made here: the project's writers refuse what is to be sent.
"""

import struct
from random import Random
from typing import Any, NamedTuple

from firnline.base.ids import ZERO_UUID
from firnline.protocol.compile import FIXED
from firnline.protocol.messages import messages_of
from firnline.protocol.primitives import uvarint
from firnline.protocol.schema import Field, Message, Struct
from firnline.protocol.versions import PRIVATE, SERVED, ServedApi
from firnline.records.build import NewRecord, build_batch
from tests.fuzz.known import (
    GROUPS,
    KEPT,
    MADE,
    PLAIN,
    SYSTEM_TOPICS,
    TIERED,
    TOPICS,
    TRANSACTIONAL_IDS,
    Known,
    Producer,
)

ROWS: tuple[ServedApi, ...] = (*SERVED, *PRIVATE)
# What is asked more often than the rest: each finds state, or makes it.
_OFTEN = {"produce": 6, "fetch": 5, "join_group": 4, "sync_group": 2, "metadata": 2}
_WEIGHTS = [
    _OFTEN.get(row.name, 2 if row.name.startswith(("offset_", "heart")) else 1) for row in ROWS
]
# What may lose the records of a topic, as it is asked to: of another than the one whose records are counted.
_LOSES_RECORDS = {20, 21, 33, 44}
_SYNC_GROUP, _CREATE_TOPICS, _DELETE_TOPICS = 14, 19, 20
_UNREGISTER_BROKER = 64
_NODE_ID, _NO_NODE_ID = 1, 77
_CLIENT_IDS = ("fuzz", "", None, "é" * 9, "x" * 255)
_REQUEST_BYTES_MAX = 1 << 20
_INTS = (0, 1, -1, 2, 7, 127, 128, 255, 1 << 15, (1 << 16) - 1, 1 << 20, (1 << 31) - 1, -(1 << 31))
_LONGS = (*_INTS, 1 << 31, (1 << 32) - 1, 1 << 53, (1 << 63) - 1, -(1 << 63), -2, -3, -4, -5, -6)
_TEXTS = (
    "",
    "x",
    ".",
    "..",
    "x" * 249,
    "x" * 250,
    "a/b",
    "\0",
    "é中😀",
    "-",
    "0",
    "x" * 32_767,
    "__x",
)
_CONFIG_KEYS = (
    *("retention.ms", "retention.bytes", "segment.bytes", "cleanup.policy", "compression.type"),
    *("max.message.bytes", "min.insync.replicas", "remote.storage.enable", "local.retention.ms"),
    *("local.retention.bytes", "internal.segment.bytes", "flush.ms", "segment.ms", "no.such.key"),
    *("message.timestamp.type", "unclean.leader.election.enable", "delete.retention.ms"),
    *("log.retention.ms", "log.cleaner.threads", "num.io.threads", "consumer.session.timeout.ms"),
    *(
        "remote.log.delete.on.disable",
        "remote.copy.disable",
        "min.cleanable.dirty.ratio",
        "node.id",
    ),
)
_CONFIG_VALUES = (
    *("", "0", "1", "-1", "-2", "100", "16384", "1048588", "true", "false", "delete", "compact"),
    *("compact,delete", "zstd", "gzip", "producer", "LogAppendTime", "0.5", "9223372036854775807"),
    *("9223372036854775808", "x", "1e3", " 1 ", "*"),
)
# What a topic takes. Segments are small, so that there are many.
_CONFIGS = (
    *(("internal.segment.bytes", "16384"), ("retention.ms", "60000"), ("retention.ms", "-1")),
    *(("retention.bytes", "20000"), ("cleanup.policy", "compact"), ("cleanup.policy", "delete")),
    *(("remote.storage.enable", "true"), ("local.retention.bytes", "16384"), ("flush.ms", "10")),
    *(("compression.type", "zstd"), ("compression.type", "gzip"), ("segment.ms", "100")),
    *(("compression.type", "producer"), ("min.insync.replicas", "1"), ("flush.messages", "1")),
    *(("message.timestamp.type", "LogAppendTime"), ("min.cleanable.dirty.ratio", "0")),
    *(("index.interval.bytes", "0"), ("max.message.bytes", "2000"), ("min.compaction.lag.ms", "0")),
)
_RESOURCES = {2: (*TOPICS, *SYSTEM_TOPICS), 4: ("1", ""), 8: ("1",), 32: GROUPS}
# Of these either the name or the id is stated.
_BY_NAME_OR_ID = {"DeleteTopicState", "MetadataRequestTopic"}
# How a value is made from a field's name alone.
_TEXT_FIELDS: dict[str, tuple[str | None, ...]] = {
    "group_id": GROUPS,
    "groups": GROUPS,
    "groups_names": GROUPS,
    "coordinator_key": GROUPS,
    "coordinator_keys": GROUPS,
    "member_id": ("", "", "", "no-such-member"),
    "group_instance_id": (None, None, None, "i-a", "i-b"),
    "protocol_type": ("consumer",),
    "protocol_name": ("range",),
    "transactional_id": (None, None, *TRANSACTIONAL_IDS),
    "feature": ("metadata.version", "kraft.version", "group.version", "transaction.version", "x"),
    "configuration_keys": _CONFIG_KEYS,
    "states_filter": ("Stable", "Empty", "Dead", "", "x"),
    "types_filter": ("classic", "consumer", "x"),
    "rack_id": ("", "r"),
    "reason": (None, "why"),
    "client_software_name": ("fuzz",),
    "client_software_version": ("1",),
    "committed_metadata": ("", None, "m"),
    "value": _CONFIG_VALUES,
}
_NUMBER_FIELDS: dict[str, tuple[int, ...]] = {
    "acks": (-1, -1, 1, 0),
    "replication_factor": (1, -1),
    "broker_id": (_NO_NODE_ID,),
    "broker_ids": (1,),
    "replicas": (1,),
    "count": (1, 2, 3, 4),
    "num_partitions": (1, 2, 3, -1),
    "partition": (0, 0, 0, 1),
    "index": (0, 0, 0, 1),
    "partition_index": (0, 0, 0, 1),
    "partition_indexes": (0, 0, 1),
    "partitions": (0, 0, 1),
    "replica_id": (-1, -1, -1, -2, 1),
    "replica_epoch": (-1,),
    "min_bytes": (0, 1, 1),
    "max_bytes": (1 << 20, 1 << 16, 1),
    "partition_max_bytes": (1 << 20, 1 << 16, 1),
    "config_operation": (0, 0, 1, 2, 3),
    "resource_type": (2, 2, 4, 8, 32),
    "election_type": (0, 1),
    "endpoint_type": (1, 2),
    "isolation_level": (0, 1),
    "key_type": (0, 0, 1, 2),
    "upgrade_type": (1, 2, 3),
    "max_version_level": (0, 1, 25, 29),
    "timestamp": (-1, -2, -3, -4, -5, 0, 1_700_000_000_000),
    "retention_time_ms": (-1,),
    "member_epoch": (-1, 0),
    "session_timeout_ms": (6_000, 10_000),
    "rebalance_timeout_ms": (1, 50),
    "transaction_timeout_ms": (1_000,),
    "max_wait_ms": (0, 0, 1, 20),
    "timeout_ms": (1, 20, 1_000),
    "producer_epoch": (-1,),
    "producer_id": (-1,),
    "session_id": (0,),
    "session_epoch": (0, -1),
}
_OFFSET_FIELDS = {"fetch_offset", "log_start_offset", "offset", "committed_offset"}
_EPOCH_FIELDS = {
    "current_leader_epoch",
    "last_fetched_epoch",
    "committed_leader_epoch",
    "leader_epoch",
}
_SUBSCRIPTION = struct.pack(">hih", 0, 1, len(PLAIN)) + PLAIN.encode() + struct.pack(">i", -1)
_ASSIGNMENT = struct.pack(">hih", 0, 1, len(PLAIN)) + PLAIN.encode() + struct.pack(">iii", 1, 0, -1)


class Asked(NamedTuple):
    """One request of a burst. `correlation_id` is None where its head was spoilt: what comes is not known."""

    key: int
    version: int
    correlation_id: int | None
    focus: dict[str, Any]


class Burst(NamedTuple):
    """What one connection sends at once.

    pieces      sent one after the other, each in a turn of its own
    closes      the connection is closed when all is sent, whatever comes
    is_last     nothing may follow on that connection: it would be read as the rest of this
    """

    number: int
    pieces: list[bytes]
    asked: list[Asked]
    closes: bool
    is_last: bool


def burst(seed: int, number: int, known: Known) -> Burst:
    """Draw the burst of that number."""
    rng = Random(f"{seed}.{number}")
    frames: list[bytes] = []
    asked: list[Asked] = []
    for place in range(rng.choice((1, 1, 2, 4, 8))):
        frame, one = _request(rng, known, number * 16 + place)
        frames.append(frame)
        asked.append(one)
    how = rng.random()
    if how < 0.02:  # each twice
        frames = [data for frame in frames for data in (frame, frame)]
        asked = [one for one in asked for _ in range(2)]
    # One whose head was spoilt may say any number, that of its neighbours too.
    if any(one.correlation_id is None for one in asked):
        asked = [one._replace(correlation_id=None) for one in asked]
    data = b"".join(frames)
    closes = how > 0.96
    is_last = closes
    if 0.02 <= how < 0.05:  # half a frame
        data, is_last = data[: rng.randrange(1, len(data))], True
        closes = rng.random() < 0.7
    elif 0.05 <= how < 0.06:
        data, is_last = rng.randbytes(rng.choice((1, 4, 8, 40, 400))), True
    elif 0.06 <= how < 0.07:
        size = rng.choice((-1, 0, 1, 3, 4, 7, 8, 1 << 20, 95 << 20, (1 << 31) - 1, -(1 << 31)))
        data, is_last = struct.pack(">i", size) + data[4:], True
    pieces = [data]
    if rng.random() < 0.05 and len(data) > 2:
        cut = rng.randrange(1, len(data))
        pieces = [data[:cut], data[cut:]]
    return Burst(number, pieces, [] if is_last else asked, closes, is_last)


def _request(rng: Random, known: Known, correlation_id: int) -> tuple[bytes, Asked]:
    row = rng.choices(ROWS, _WEIGHTS)[0]
    version = rng.randint(row.advertised_min, row.advertised_max)
    request = messages_of(row.key)[0]
    if version not in request.valid:  # Produce is advertised from 0
        version = row.advertised_max
    drawer = Drawer(rng, known, row.key, version)
    is_flexible = version in request.flexible
    client_id = rng.choice(_CLIENT_IDS)
    head = struct.pack(">hhi", row.key, version, correlation_id) + text_bytes(client_id, False)
    if is_flexible:
        head += drawer.tags([])
    body = drawer.struct(request, depth=0)
    if rng.random() < 0.12 and row.key != _UNREGISTER_BROKER:
        body = spoil(rng, body)
    spoilt = False
    if rng.random() < 0.01:
        head, spoilt = spoil(rng, head), True
    frame = struct.pack(">i", len(head) + len(body)) + head + body
    return frame, Asked(row.key, version, None if spoilt else correlation_id, drawer.focus)


def spoil(rng: Random, data: bytes) -> bytes:
    """Flip, cut, double, swap or add a few bytes."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        if not out:
            break
        first, second = sorted((rng.randrange(len(out)), rng.randrange(len(out))))
        second = min(second, first + rng.choice((1, 4, 16, 4096)))
        what = rng.randrange(7)
        if what == 0:
            out[first] ^= 1 << rng.randrange(8)
        elif what == 1:
            out[first] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif what == 2:
            del out[first:second]
        elif what == 3:
            out[first:first] = out[first:second]
        elif what == 4:
            out[first:first] = rng.randbytes(rng.choice((1, 2, 4, 8)))
        elif what == 5:
            del out[first:]
        else:
            size = min(second - first, len(out) - second)
            one, other = out[first : first + size], out[second : second + size]
            out[first : first + size], out[second : second + size] = other, one
    return bytes(out)


def text_bytes(text: str | None, is_compact: bool) -> bytes:
    """Encode a string of any length, or null."""
    if text is None:
        return b"\0" if is_compact else b"\xff\xff"
    data = text.encode()
    size = uvarint(len(data) + 1) if is_compact else struct.pack(">h", min(len(data), 32_767))
    return size + data


class Drawer:
    """Fills the fields of one request. `focus`: values that belong together, and that were used."""

    def __init__(self, rng: Random, known: Known, key: int, version: int) -> None:
        self._rng = rng
        self._known = known
        self._key = key
        self._version = version
        # How many of its fields say what nobody would.
        self._wild = rng.choice((0.0, 0.0, 0.0, 0.02, 0.02, 0.3))
        self._topic = self._pick_topic()
        self._left = _REQUEST_BYTES_MAX if rng.random() < 0.002 else 1 << 15
        self._producer: Producer | None = None
        self._config = _CONFIGS[0]
        self.focus: dict[str, Any] = {}
        if known.members and rng.random() < 0.8:
            member = rng.choice(known.members)
            self.focus = {"group_id": member.group_id, "member_id": member.member_id}
            self.focus["generation_id"] = member.generation
            self.focus["generation_id_or_member_epoch"] = member.generation
        elif rng.random() < 0.9:
            self.focus = {"group_id": rng.choice(GROUPS)}
        if known.sessions and rng.random() < 0.6:
            session_id, epoch = known.sessions.popleft()  # each epoch is asked for once
            self.focus |= {"session_id": session_id, "session_epoch": epoch}
        if known.producers and rng.random() < 0.6:
            self._producer = rng.choice(known.producers)
            self.focus["producer_id"] = self._producer.producer_id
            self.focus["producer_epoch"] = self._producer.epoch

    def _pick_topic(self) -> str:
        rng = self._rng
        if self._key not in _LOSES_RECORDS and rng.random() < 0.2:
            return KEPT if rng.random() < 0.4 else rng.choice(SYSTEM_TOPICS)
        if self._key in (_CREATE_TOPICS, _DELETE_TOPICS) and rng.random() < 0.9:
            return rng.choice(MADE)
        return rng.choice((PLAIN, TIERED, *TOPICS))

    # ---------------------------------------------------------------------------- structs

    def struct(self, cls: type[Struct] | type[Message], depth: int) -> bytes:
        """Return the bytes of all fields of `cls`, and of some of its tags."""
        version, rng = self._version, self._rng
        is_flexible = self._is_flexible
        self._inside = cls
        out: list[bytes] = []
        tagged: list[tuple[int, bytes]] = []
        self._is_by_id = rng.random() < 0.5
        for name, field in cls.fields.items():
            if version not in field.versions:
                continue
            compact = is_flexible if field.flexible is None else version in field.flexible
            if field.tag is None:
                out.append(self._value(cls, name, field, field.kind, compact, depth))
            elif is_flexible and rng.random() < 0.2:
                value = self._value(cls, name, field, field.kind, compact, depth)
                tagged.append((field.tag, value))
        if len(out) > 1 and rng.random() < self._wild * 0.1:  # one field in the place of another
            one, other = rng.sample(range(len(out)), 2)
            out[one], out[other] = out[other], out[one]
        return b"".join(out) + (self.tags(tagged) if is_flexible else b"")

    def tags(self, tagged: list[tuple[int, bytes]]) -> bytes:
        """Return a section of tags: those given, and sometimes such as nobody knows."""
        rng = self._rng
        if rng.random() < 0.02 + self._wild * 0.05:
            tagged = [*tagged, (rng.choice((9, 77, 1 << 20, (1 << 31) - 1)), rng.randbytes(3))]
        if tagged and rng.random() < self._wild:
            tagged = [*tagged, tagged[0]]
        rows = (uvarint(tag) + uvarint(len(value)) + value for tag, value in tagged)
        return uvarint(len(tagged)) + b"".join(rows)

    @property
    def _is_flexible(self) -> bool:
        return self._version in messages_of(self._key)[0].flexible

    def _value(
        self, cls: Any, name: str, field: Field, kind: Any, compact: bool, depth: int
    ) -> bytes:
        rng = self._rng
        is_wild = self._wild > 0 and rng.random() < self._wild
        is_nullable = self._version in field.nullable
        if isinstance(kind, list):
            return self._array(cls, name, field, kind[0], compact, depth, is_wild)
        if isinstance(kind, type):
            if is_nullable and rng.random() < 0.3:
                return b"\xff"
            return (b"\1" if is_nullable else b"") + self.struct(kind, depth)
        if kind in FIXED:
            made = self._number(name, kind, is_wild)
        elif kind == "string":
            text = self._text(cls, name, is_wild)
            if text is None and not (is_nullable or is_wild):
                text = ""
            made = text_bytes(text, compact)
        else:
            data = self._bytes(name, kind, is_wild)
            if data is None:
                made = b"\0" if compact else b"\xff" * 4
            else:
                made = (uvarint(len(data) + 1) if compact else struct.pack(">i", len(data))) + data
        self._left -= len(made)
        return made

    def _array(
        self,
        cls: Any,
        name: str,
        field: Field,
        element: Any,
        compact: bool,
        depth: int,
        is_wild: bool,
    ) -> bytes:
        rng = self._rng
        count = rng.choice((1, 1, 1, 2, 3))
        if self._version in field.nullable and rng.random() < 0.2:
            count = -1
        elif rng.random() < (0.8 if name == "assignments" and self._key != _SYNC_GROUP else 0.1):
            count = 0
        claimed = count
        if is_wild:
            claimed = count = rng.choice((0, -1, 2, 30, 500))
            if rng.random() < 0.3:
                claimed = rng.choice((-2, 1000, 1 << 20, (1 << 31) - 1))
        size = uvarint(claimed + 1) if compact and claimed >= -1 else struct.pack(">i", claimed)
        bare = field._replace(nullable=field.nullable._replace(first=1, last=0))
        parts: list[bytes] = []
        for _ in range(max(count, 0)):
            if self._left < 0:
                break
            again = parts and rng.random() < 0.3
            parts.append(
                parts[-1] if again else self._value(cls, name, bare, element, compact, depth + 1)
            )
        if len(parts) < count and claimed == count:  # there was no room for more
            size = uvarint(len(parts) + 1) if compact else struct.pack(">i", len(parts))
        if isinstance(element, type) and rng.random() < 0.5:
            self._topic = self._pick_topic()
        return size + b"".join(parts)

    # ---------------------------------------------------------------------------- values

    def _id_or_none(self) -> bytes:
        """The id of a topic, where its name is not stated beside it."""
        cls = self._inside.__name__
        return ZERO_UUID if cls in _BY_NAME_OR_ID else self._known.topic_id(self._topic)

    def _number(self, name: str, kind: str, is_wild: bool) -> bytes:
        rng, known = self._rng, self._known
        letter, size = FIXED[kind]
        if kind == "uuid":
            if name == "topic_id" and not is_wild:
                return known.topic_id(self._topic) if self._is_by_id else self._id_or_none()
            return rng.choice((ZERO_UUID, rng.randbytes(16), bytes(15) + b"\1"))
        if kind == "bool":
            return rng.choice((b"\0", b"\1")) if not is_wild else b"\xff"
        if is_wild:
            number = rng.choice(_LONGS) if rng.random() < 0.8 else rng.getrandbits(64) - (1 << 63)
        elif name in self.focus and name != "resource_type":
            number = self.focus[name]
        elif name in _OFFSET_FIELDS:
            number = rng.choice(known.offsets)
        elif name in _EPOCH_FIELDS:
            number = rng.choice((-1, -1, rng.choice(known.epochs)))
        else:
            number = rng.choice(_NUMBER_FIELDS.get(name, _INTS))
        if name == "broker_id" and number == _NODE_ID:
            number = _NO_NODE_ID  # whoever unregisters the only broker ends it, as was asked
        if name == "resource_type":
            self.focus["resource_type"] = number
        if kind == "float64":
            return struct.pack(">d", number)
        low, high = (0, (1 << size * 8) - 1) if kind[0] == "u" else (-(1 << size * 8 - 1), 0)
        high = high or -low - 1
        return struct.pack(">" + letter, max(low, min(number, high)))

    def _text(self, cls: Any, name: str, is_wild: bool) -> str | None:
        rng, known = self._rng, self._known
        if is_wild:
            return rng.choice((None, *_TEXTS)) if self._left > 0 else ""
        kind = cls.__name__
        if name in ("name", "topic", "topics", "topic_name", "topic_names"):
            if "Config" in kind:
                self._config = rng.choice(_CONFIGS)
                return self._config[0] if rng.random() < 0.9 else rng.choice(_CONFIG_KEYS)
            by_id = cls.fields.get("topic_id") if kind in _BY_NAME_OR_ID else None
            if by_id is not None and self._is_by_id and self._version in by_id.versions:
                return None
            return "range" if kind == "JoinGroupRequestProtocol" else self._topic
        if name in self.focus and rng.random() < 0.95:
            return str(self.focus[name])
        if name == "resource_name":
            return rng.choice(_RESOURCES.get(self.focus.get("resource_type", 0), _TEXTS))
        if name == "value" and rng.random() < 0.8:
            return self._config[1]
        if name == "path" and known.log_dirs:
            return rng.choice(known.log_dirs)
        if name == "cluster_id":
            return known.cluster_id
        found = rng.choice(_TEXT_FIELDS.get(name, _TEXTS))
        if name == "group_id":
            self.focus["group_id"] = found
        return found

    def _bytes(self, name: str, kind: str, is_wild: bool) -> bytes | None:
        rng = self._rng
        if kind == "records":
            return self._records(is_wild)
        if is_wild:
            return rng.choice((None, b"", rng.randbytes(rng.choice((1, 10, 1000)))))
        return _ASSIGNMENT if name == "assignment" else _SUBSCRIPTION

    def _records(self, is_wild: bool) -> bytes | None:
        rng = self._rng
        size = rng.choice((0, 10, 100, 1000))
        rows = [
            NewRecord(
                rng.choice((None, b"k", rng.randbytes(4))),
                rng.choice((None, b"", rng.randbytes(size))),
                1_700_000_000_000 + rng.randrange(1000),
                (("h", b"v"),) if rng.random() < 0.1 else (),
            )
            for _ in range(rng.choice((1, 1, 3, 20)))
        ]
        options: dict[str, Any] = {"codec": rng.choice((0, 0, 0, 1, 2, 3, 4))}
        producer = self._producer
        if producer is not None:
            options["producer_id"] = producer.producer_id
            options["producer_epoch"] = producer.epoch
            options["base_sequence"] = producer.sequence
            options["is_transactional"] = rng.random() < 0.2
            if producer in self._known.producers:
                place = self._known.producers.index(producer)
                later = producer._replace(sequence=producer.sequence + len(rows))
                self._known.producers[place] = self._producer = later
        options["is_control"] = rng.random() < 0.01
        data = bytes(build_batch(rows, **options))
        if is_wild:
            return rng.choice(
                (None, b"", data + data, spoil(rng, data), data[:-1], _resealed(rng, data))
            )
        return data


def _resealed(rng: Random, batch: bytes) -> bytes:
    """Spoil what the checksum covers, and have it right all the same."""
    from crc32c import crc32c

    out = bytearray(batch)
    for _ in range(rng.choice((1, 1, 3))):
        place = rng.randrange(21, len(out))
        out[place] = rng.choice((out[place] ^ 1 << rng.randrange(8), 0, 0x7F, 0x80, 0xFF))
    out[17:21] = struct.pack(">I", crc32c(bytes(out[21:])))
    return bytes(out)
