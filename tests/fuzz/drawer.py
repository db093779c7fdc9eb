"""Fills the fields of one request with what the node knows, and with what nobody would say.

The bytes are made here: the project's writers refuse what is to be sent. What is drawn stays in pieces, one
for each field, so that siblings of a request, of other values in a few fields, cost little.
"""

import struct
from random import Random
from typing import Any, NamedTuple

from firnline.base.ids import ZERO_UUID
from firnline.protocol.compile import FIXED
from firnline.protocol.messages import messages_of
from firnline.protocol.primitives import uvarint
from firnline.protocol.schema import Field, Message, Struct
from firnline.protocol.versions import CONTROLLER_SERVED, FORWARDABLE
from firnline.records.build import NewRecord, build_batch
from tests.fuzz import quorum, values
from tests.fuzz.known import (
    ENVELOPE,
    KEPT,
    MADE,
    NODE_ID,
    OTHER_NODE_ID,
    PLAIN,
    SYSTEM_TOPICS,
    TIERED,
    TOPICS,
    Known,
    Producer,
)

GROUP_IDS = values.TEXT_FIELDS["group_id"]
# What may lose the records of a topic, or give it more partitions, as it is asked to: of topics that may go.
_FOR_OTHERS = {20, 21, 33, 37, 44}
_SYNC_GROUP, _CREATE_TOPICS, _DELETE_TOPICS = 14, 19, 20
CLIENT_IDS = ("fuzz", "", None, "é" * 9, "x" * 255)
_FORWARDED = tuple(row for row in CONTROLLER_SERVED if row.key in FORWARDABLE)
_REQUEST_BYTES_MAX = 1 << 20
# A count of elements that is not the one that follows, compact and not.
_COUNTS = {
    True: tuple(uvarint(n) for n in (0, 1, 2, 4, 128, 1 << 20, (1 << 31) - 1)),
    False: tuple(struct.pack(">i", n) for n in (-2, -1, 0, 1, 3, 1000, (1 << 31) - 1)),
}
_COUNT, _COMPACT_COUNT, _TEXT, _COMPACT_TEXT, _OPAQUE = "count", "counts", "text", "texts", ""


class Piece(NamedTuple):
    """The bytes of one field, and of which kind they are: for a number its letter in `struct`."""

    data: bytes
    kind: str


class Body:
    """The pieces of a request's body, in their order."""

    __slots__ = ("_data", "_packed", "_places", "kinds")

    def __init__(self, pieces: list[Piece], packed: dict[str, tuple[bytes, ...]]) -> None:
        self._data = [piece.data for piece in pieces]
        self.kinds = [piece.kind for piece in pieces]
        self._packed = packed
        self._places = [place for place, kind in enumerate(self.kinds) if kind]

    def joined(self) -> bytes:
        return b"".join(self._data)

    def sibling(self, rng: Random) -> bytes:
        """Return it with other values in one or a few places."""
        data = list(self._data)
        for _ in range(rng.choice((1, 1, 2, 4)) if self._places else 0):
            place = rng.choice(self._places)
            kind = self.kinds[place]
            if kind in (_TEXT, _COMPACT_TEXT):
                data[place] = rng.choice(_SHORT_TEXTS[kind == _COMPACT_TEXT])
            elif kind in (_COUNT, _COMPACT_COUNT):
                if rng.random() < 0.03:  # most of these close their connection
                    data[place] = rng.choice(_COUNTS[kind == _COMPACT_COUNT])
            elif kind == "16s":
                data[place] = rng.choice((ZERO_UUID, bytes(15) + b"\1", rng.randbytes(16)))
            else:
                data[place] = rng.choice(self._packed[kind])
        return b"".join(data)


def text_bytes(text: str | None, is_compact: bool) -> bytes:
    """Encode a string of any length, or null."""
    if text is None:
        return b"\0" if is_compact else b"\xff\xff"
    data = text.encode()
    size = uvarint(len(data) + 1) if is_compact else struct.pack(">h", min(len(data), 32_767))
    return size + data


def request_head(key: int, version: int, number: int, client_id: str | None) -> bytes:
    """Return the head of a request, without tags where it may have some."""
    is_flexible = version in messages_of(key)[0].flexible
    head = struct.pack(">hhi", key, version, number) + text_bytes(client_id, False)
    return head + b"\0" if is_flexible else head


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


_PACKED = {letter: values.packed(letter, size, values.LONGS) for letter, size in FIXED.values()}
_SHORT_TEXTS = {
    # Null, which many a field may not be, seldom: it closes the connection.
    compact: tuple(text_bytes(text, compact) for text in (None, *values.SHORT_TEXTS * 4))
    for compact in (False, True)
}


class Drawer:
    """Fills the fields of one request. `focus`: values that belong together, and that were used."""

    def __init__(
        self, rng: Random, known: Known, key: int, version: int, *, is_controllers: bool = False
    ) -> None:
        self._rng = rng
        self._known = known
        self._key = key
        self._version = version
        self._is_controllers = is_controllers
        self._is_flexible = version in messages_of(key)[0].flexible
        # How many of its fields say what nobody would.
        self._wild = rng.choice((0.0, 0.0, 0.0, 0.02, 0.02, 0.3))
        self._topic = self._pick_topic()
        self._left = _REQUEST_BYTES_MAX if rng.random() < 0.002 else 1 << 15
        self._producer: Producer | None = None
        self._config = values.CONFIGS[0]
        self._pieces: list[Piece] = []
        self.focus: dict[str, Any] = {}
        self.may_be_spoilt = key not in quorum.OF_OTHER_BROKERS
        if known.members and rng.random() < 0.8:
            member = rng.choice(known.members)
            self.focus = {"group_id": member.group_id, "member_id": member.member_id}
            self.focus["generation_id"] = member.generation
            self.focus["generation_id_or_member_epoch"] = member.generation
        elif rng.random() < 0.9:
            self.focus = {"group_id": rng.choice(GROUP_IDS)}
        if is_controllers:
            return
        if known.sessions and rng.random() < 0.6:
            session_id, epoch = known.sessions.popleft()  # each epoch is asked for once
            self.focus |= {"session_id": session_id, "session_epoch": epoch}
        if known.producers and rng.random() < 0.6:
            self._producer = rng.choice(known.producers)
            self.focus["producer_id"] = self._producer.producer_id
            self.focus["producer_epoch"] = self._producer.epoch

    def _pick_topic(self) -> str:
        rng = self._rng
        if self._key not in _FOR_OTHERS and rng.random() < 0.2:
            return KEPT if rng.random() < 0.4 else rng.choice(SYSTEM_TOPICS)
        if self._key in (_CREATE_TOPICS, _DELETE_TOPICS) and rng.random() < 0.9:
            return rng.choice(MADE)
        return rng.choice((PLAIN, TIERED, *TOPICS))

    # ---------------------------------------------------------------------------- structs

    def body(self) -> Body:
        """Draw all fields of the request."""
        self._struct(messages_of(self._key)[0], 0)
        packed = quorum.packed(self._key) if self._is_controllers else _PACKED
        return Body(self._pieces, packed)

    def tags(self, tagged: list[tuple[int, bytes]]) -> bytes:
        """Return a section of tags: those given, and sometimes such as nobody knows."""
        rng = self._rng
        if rng.random() < 0.02 + self._wild * 0.05:
            tagged = [*tagged, (rng.choice((9, 77, 1 << 20, (1 << 31) - 1)), rng.randbytes(3))]
        if tagged and rng.random() < self._wild:
            tagged = [*tagged, tagged[0]]
        if not tagged:
            return b"\0"
        rows = (uvarint(tag) + uvarint(len(value)) + value for tag, value in tagged)
        return uvarint(len(tagged)) + b"".join(rows)

    def _put(self, data: bytes, kind: str = _OPAQUE) -> None:
        self._pieces.append(Piece(data, kind))

    def _struct(self, cls: type[Struct] | type[Message], depth: int) -> None:
        """Draw all fields of `cls`, and some of its tags."""
        version, rng = self._version, self._rng
        is_flexible = self._is_flexible
        self._inside = cls
        starts: list[int] = []
        tagged: list[tuple[int, bytes]] = []
        self._is_by_id = rng.random() < 0.5
        pieces = self._pieces
        for name, field in cls.fields.items():
            if version not in field.versions:
                continue
            compact = is_flexible if field.flexible is None else version in field.flexible
            if field.tag is None:
                starts.append(len(pieces))
                self._value(cls, name, field, field.kind, compact, depth)
            elif is_flexible and rng.random() < 0.2:
                start = len(pieces)
                self._value(cls, name, field, field.kind, compact, depth)
                tagged.append((field.tag, b"".join(piece.data for piece in pieces[start:])))
                del pieces[start:]
        if len(starts) > 1 and rng.random() < self._wild * 0.1:  # one field in the place of another
            self._swap(starts)
        if is_flexible:
            self._put(self.tags(tagged))

    def _swap(self, starts: list[int]) -> None:
        pieces, ends = self._pieces, [*starts[1:], len(self._pieces)]
        fields = [pieces[a:b] for a, b in zip(starts, ends, strict=True)]
        one, other = self._rng.sample(range(len(fields)), 2)
        fields[one], fields[other] = fields[other], fields[one]
        pieces[starts[0] :] = [piece for field in fields for piece in field]

    def _value(
        self, cls: Any, name: str, field: Field, kind: Any, compact: bool, depth: int
    ) -> None:
        rng = self._rng
        is_wild = self._wild > 0 and rng.random() < self._wild
        is_nullable = self._version in field.nullable
        if isinstance(kind, list):
            self._array(cls, name, field, kind[0], compact, depth, is_wild)
            return
        if isinstance(kind, type):
            is_null = is_nullable and rng.random() < 0.3
            if is_nullable:
                self._put(b"\xff" if is_null else b"\1")
            if not is_null:
                self._struct(kind, depth)
            return
        if kind in FIXED:
            self._put(self._number(name, kind, is_wild), FIXED[kind][0])
            return
        if kind == "string":
            text = self._text(cls, name, is_wild)
            if text is None and not (is_nullable or is_wild):
                text = ""
            self._put(text_bytes(text, compact), _COMPACT_TEXT if compact else _TEXT)
        else:
            data = self._bytes(name, kind, is_wild)
            if data is None:
                made = b"\0" if compact else b"\xff" * 4
            else:
                made = (uvarint(len(data) + 1) if compact else struct.pack(">i", len(data))) + data
            self._put(made)
        self._left -= len(self._pieces[-1].data)

    def _array(
        self,
        cls: Any,
        name: str,
        field: Field,
        element: Any,
        compact: bool,
        depth: int,
        is_wild: bool,
    ) -> None:
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
        reported = (
            quorum.count(rng, self._key, name) if self._is_controllers and count >= 0 else None
        )
        if reported is not None and not is_wild:
            count = claimed = reported
        bare = field._replace(nullable=field.nullable._replace(first=1, last=0))
        pieces, place = self._pieces, len(self._pieces)
        self._put(b"")
        drawn, start = 0, len(pieces)
        while drawn < count and self._left >= 0:
            if drawn and rng.random() < 0.3:
                again = pieces[start:]
                pieces += again
                self._left -= sum(len(piece.data) for piece in again)
            else:
                start = len(pieces)
                self._value(cls, name, bare, element, compact, depth + 1)
                self._left -= 1
            drawn += 1
        if drawn < count and claimed == count:  # there was no room for more
            claimed = drawn
        is_small = compact and claimed >= -1
        size = uvarint(claimed + 1) if is_small else struct.pack(">i", claimed)
        pieces[place] = Piece(size, _COMPACT_COUNT if compact else _COUNT)
        if isinstance(element, type) and rng.random() < 0.5:
            self._topic = self._pick_topic()

    # ---------------------------------------------------------------------------- values

    def _id_or_none(self) -> bytes:
        """The id of a topic, where its name is not stated beside it."""
        cls = self._inside.__name__
        return ZERO_UUID if cls in values.BY_NAME_OR_ID else self._known.topic_id(self._topic)

    def _number(self, name: str, kind: str, is_wild: bool) -> bytes:
        rng, known = self._rng, self._known
        letter, size = FIXED[kind]
        if kind == "uuid":
            reported = quorum.uuid(known.quorum, rng, name) if self._is_controllers else None
            if reported is not None and not is_wild:
                return reported
            if name == "topic_id" and not is_wild:
                return known.topic_id(self._topic) if self._is_by_id else self._id_or_none()
            return rng.choice((ZERO_UUID, rng.randbytes(16), bytes(15) + b"\1"))
        if kind == "bool":
            return rng.choice((b"\0", b"\1")) if not is_wild else b"\xff"
        reported = None
        if self._is_controllers:
            reported = quorum.number(known.quorum, rng, self._key, name, self.focus)
        if is_wild:
            number = self._wild_number()
        elif reported is not None:
            number = reported
        elif name in self.focus and name != "resource_type":
            number = self.focus[name]
        elif name in values.OFFSET_FIELDS:
            number = rng.choice(known.offsets)
        elif name in values.EPOCH_FIELDS:
            number = rng.choice((-1, -1, rng.choice(known.epochs)))
        else:
            number = rng.choice(values.NUMBER_FIELDS.get(name, values.INTS))
        if name == "broker_id" and number == NODE_ID and (is_wild or reported is None):
            number = OTHER_NODE_ID  # whoever unregisters the only broker ends it, as was asked
        if name == "resource_type":
            self.focus["resource_type"] = number
        if kind == "float64":
            return struct.pack(">d", number)
        low, high = (0, (1 << size * 8) - 1) if kind[0] == "u" else (-(1 << size * 8 - 1), 0)
        high = high or -low - 1
        return struct.pack(">" + letter, max(low, min(number, high)))

    def _wild_number(self) -> int:
        rng = self._rng
        return rng.choice(values.LONGS) if rng.random() < 0.8 else rng.getrandbits(64) - (1 << 63)

    def _text(self, cls: Any, name: str, is_wild: bool) -> str | None:
        rng, known = self._rng, self._known
        if is_wild:
            return rng.choice((None, *values.TEXTS)) if self._left > 0 else ""
        kind = cls.__name__
        reported = quorum.text(rng, self._key, kind, name) if self._is_controllers else None
        if reported is not None:
            return reported
        if name in ("name", "topic", "topics", "topic_name", "topic_names"):
            if "Config" in kind:
                self._config = rng.choice(values.CONFIGS)
                return self._config[0] if rng.random() < 0.9 else rng.choice(values.CONFIG_KEYS)
            by_id = cls.fields.get("topic_id") if kind in values.BY_NAME_OR_ID else None
            if by_id is not None and self._is_by_id and self._version in by_id.versions:
                return None
            return "range" if kind == "JoinGroupRequestProtocol" else self._topic
        if name in self.focus and rng.random() < 0.95:
            return str(self.focus[name])
        if name == "resource_name":
            return rng.choice(
                values.RESOURCES.get(self.focus.get("resource_type", 0), values.TEXTS)
            )
        if name == "value" and rng.random() < 0.8:
            return self._config[1]
        if name == "path" and known.log_dirs:
            return rng.choice(known.log_dirs)
        if name == "cluster_id":
            return known.cluster_id
        found = rng.choice(values.TEXT_FIELDS.get(name, values.TEXTS))
        if name == "group_id":
            self.focus["group_id"] = found
        return found

    def _bytes(self, name: str, kind: str, is_wild: bool) -> bytes | None:
        rng = self._rng
        if kind == "records":
            return self._records(is_wild)
        if is_wild:
            return rng.choice((None, b"", rng.randbytes(rng.choice((1, 10, 1000)))))
        if self._key == ENVELOPE:
            if name == "request_principal":
                return quorum.principal(rng)
            return self._wrapped() if name == "request_data" else quorum.address(rng)
        return values.ASSIGNMENT if name == "assignment" else values.SUBSCRIPTION

    def _wrapped(self) -> bytes:
        """A client's request, as a broker passes it on; one in ten that it would not."""
        rng = self._rng
        row = rng.choice(_FORWARDED if rng.random() < 0.9 else CONTROLLER_SERVED)
        version = rng.randint(row.advertised_min, row.advertised_max)
        inner = Drawer(rng, self._known, row.key, version, is_controllers=True)
        data = request_head(row.key, version, 7, rng.choice(CLIENT_IDS)) + inner.body().joined()
        self.may_be_spoilt = row.key not in quorum.OF_OTHER_BROKERS
        return spoil(rng, data) if self.may_be_spoilt and rng.random() < 0.1 else data

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
