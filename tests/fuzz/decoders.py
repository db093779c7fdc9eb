"""Every decoder of bytes that others wrote, and what it is fuzzed from.

Each takes any bytes. What it may raise is FirnlineError, and of one what stands beside it here; anything
else is a finding, and so is what takes longer than SLOW_S or opens to more than it may. Where a checksum
stands before what is decoded, it is made right again first: otherwise nothing behind it is ever met.
"""

import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import NamedTuple

import lz4.frame
from crc32c import crc32c

from firnline.base.errors import Code, FirnlineError, KafkaError
from firnline.base.native import native
from firnline.client import wire
from firnline.coordinator import commits, generation
from firnline.coordinator import records as group_records
from firnline.formats import (
    checkpoint,
    leader_epoch_checkpoint,
    names,
    offset_index,
    producer_snapshot,
    time_index,
    transaction_index,
)
from firnline.log.compaction import cleaner
from firnline.log.compaction.offset_map import OffsetMap
from firnline.log.compaction.rounds import CompactionJob, SegmentToClean, compact
from firnline.metadata import records as metadata_records
from firnline.metadata import snapshot_file
from firnline.protocol import record_value
from firnline.protocol.messages import messages_of
from firnline.protocol.messages.k18_api_versions import ApiVersionsRequest
from firnline.protocol.messages.principal import decode_principal
from firnline.protocol.schema import Message
from firnline.protocol.versions import CONTROLLER_SERVED, PRIVATE, SERVED
from firnline.raft.election_state import decode_election_state
from firnline.records import control
from firnline.records.batch import HEADER_BYTES, crc_is_right, headers
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import GZIP, LZ4, decompress
from firnline.records.fast_path import (
    common_batch_python,
    renumber_python,
    right_body_python,
    survey_python,
)
from firnline.records.recompress import Target, recompress
from firnline.records.record import records
from firnline.records.validate import BatchLimits, check_fetched
from firnline.records.walk import BatchWalk, walk_batches_python
from firnline.sim.disk import CrashableFs
from firnline.spark.planning.plan import SEGMENTS
from firnline.tiered.catalog import format as catalog
from firnline.tiered.metadata import records as tier_records
from firnline.tiered.objects import fingerprint, layout
from tests.fuzz.drawer import Drawer, request_head
from tests.fuzz.known import Known
from tests.worlds.log import check_client_batch

SLOW_S = 2.0
OPENED_BYTES_MAX = 1 << 20
_ROWS = tuple({row.key: row for row in (*SERVED, *CONTROLLER_SERVED, *PRIVATE)}.values())
_NOW_MS = 1_700_000_000_000
_LIMITS = BatchLimits(max_bytes=1 << 20)


class Found(Exception):
    """A decoder did what it must not."""


class Decoder(NamedTuple):
    """One decoder.

    run      decodes the bytes, whatever they are
    seeds    bytes that are whole, to begin with
    refuses  what it raises beside FirnlineError, as its docstring says
    """

    run: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    refuses: tuple[type[Exception], ...] = ()


def check(decoder: Decoder, data: bytes) -> bool:
    """Decode; return whether it was taken. Raises Found for an error that no caller expects, or for time."""
    began = time.thread_time()  # on a busy machine the rest is others' time
    try:
        decoder.run(data)
        is_taken = True
    except (FirnlineError, *decoder.refuses):
        is_taken = False
    except Found:
        raise
    except Exception as problem:
        raise Found(f"{problem!r} for {data[:2000].hex()}") from problem
    took_s = time.thread_time() - began
    if took_s > SLOW_S:
        raise Found(f"{took_s:.1f} s for {data[:2000].hex()}")
    return is_taken


# ------------------------------------------------------------------------------------------ the wire


def _message(data: bytes) -> None:
    """Which message and version: the first three bytes. What was read can be written, and is read again."""
    if len(data) < 3:
        return
    row = _ROWS[data[0] % len(_ROWS)]
    kind = messages_of(row.key)[data[1] & 1]
    first = max(row.advertised_min, kind.valid.first)
    version = first + data[2] % (row.advertised_max - first + 1)
    found, end = kind.read(data[3:], version, 0)
    if end > len(data) - 3:
        raise Found(f"{kind.__name__} v{version} ends at {end} of {len(data) - 3}")
    again = bytes(found.write(version))
    other, _ = kind.read(again, version, 0)
    if bytes(other.write(version)) != again:
        raise Found(
            f"{kind.__name__} v{version} is not read as it was written: {data.hex()[:2000]}"
        )


def _message_seeds() -> list[bytes]:
    """A request and an answer of each API, at its first and its last version."""
    out = []
    for place, row in enumerate(_ROWS):
        for version in {
            row.advertised_max,
            max(row.advertised_min, messages_of(row.key)[0].valid.first),
        }:
            step = version - max(row.advertised_min, messages_of(row.key)[0].valid.first)
            body = Drawer(Random(place), Known(), row.key, version).body().joined()
            out.append(bytes((place, 0, step)) + body)
            answer = messages_of(row.key)[1]()
            out.append(bytes((place, 1, step)) + bytes(answer.write(version)))
    return out


def _common_request(data: bytes) -> None:
    if native is not None:
        native.common_request(memoryview(data), len(data))


def _frames() -> list[bytes]:
    out = []
    for key, version in ((0, 9), (0, 13), (1, 12), (1, 17), (3, 12), (12, 4)):
        body = Drawer(Random(key), Known(), key, version).body().joined()
        frame = request_head(key, version, 1, "c") + body
        out.append(struct.pack(">i", len(frame)) + frame)
    return out


def _answer(data: bytes) -> None:
    wire.decode_versions(data, correlation_id=7)
    wire.decode_answer(ApiVersionsRequest(), 3, data, correlation_id=7)


# ----------------------------------------------------------------------------------------- records


def resealed(data: bytes) -> bytes:
    """Have the checksum and the length of each batch right."""
    out = bytearray(data)
    at = 0
    while at + HEADER_BYTES <= len(out):
        size = struct.unpack_from(">i", out, at + 8)[0] + 12
        if not HEADER_BYTES <= size <= len(out) - at:
            size = len(out) - at
            struct.pack_into(">i", out, at + 8, size - 12)
        struct.pack_into(">I", out, at + 17, crc32c(bytes(out[at + 21 : at + size])))
        at += size
    return bytes(out)


def _batches(data: bytes) -> None:
    data = resealed(data)
    for head in headers(data):
        if not crc_is_right(data, head):
            raise Found(f"a wrong checksum at {head.position} of {data.hex()[:2000]}")
        opened = sum(
            len(row.key or b"") + len(row.value or b"")
            for row in records(data, head, limit_bytes=OPENED_BYTES_MAX)
        )
        if opened > OPENED_BYTES_MAX:
            raise Found(f"{opened} bytes of records in {data.hex()[:2000]}")


def _checked(data: bytes) -> None:
    data = resealed(data)
    check_client_batch(data, _LIMITS, _NOW_MS)
    check_client_batch(data, _LIMITS._replace(is_compacted=True), _NOW_MS)
    check_fetched(data, 0, -1, 5)
    by_hand = common_batch_python(data, walks=True)
    if native is None:
        return
    if native.common_batch(data) != by_hand:
        raise Found(f"in C {native.common_batch(data)}, in Python {by_hand}: {data.hex()[:2000]}")
    body, count = data[HEADER_BYTES:], data[60] if len(data) > 60 else 0
    _same("right_body", native.right_body, right_body_python, body, count)
    _same("survey", native.survey, survey_python, body, count)
    _same("renumber", native.renumber, renumber_python, body, count, _NOW_MS, 2 * len(body))


def _same(
    name: str, in_c: Callable[..., object], in_python: Callable[..., object], *given: object
) -> None:
    """Both say the same of the same bytes, the first of what is given."""
    found, expected = in_c(*given), in_python(*given)
    if found != expected:
        reported = "{}{}: in C {!r:.500}, in Python {!r:.500}, of {}"
        data = given[0]
        assert isinstance(data, bytes)
        raise Found(reported.format(name, given[1:], found, expected, data.hex()[:2000]))


def _recompressed(data: bytes) -> None:
    """To each codec; what comes of it is a batch that is taken as it is."""
    data = resealed(data)
    for codec in range(5):
        found = recompress(data, Target(codec), _LIMITS, _NOW_MS, opened_bytes_max=OPENED_BYTES_MAX)
        if isinstance(found, KafkaError):
            continue
        checked = check_client_batch(found, _LIMITS, _NOW_MS)
        if isinstance(checked, KafkaError) and checked.code is not Code.INVALID_TIMESTAMP:
            raise Found(f"codec {codec}: {checked} of {data.hex()[:2000]}")


def _batch_seeds() -> list[bytes]:
    rows = [
        NewRecord(b"k", b"value", _NOW_MS, (("h", b"v"), ("n", b""))),
        NewRecord(None, None, _NOW_MS + 5),
    ]
    out = [bytes(build_batch(rows, codec=codec)) for codec in range(5)]
    out.append(bytes(build_batch(rows, producer_id=7, producer_epoch=1, base_sequence=3)))
    out.append(bytes(build_batch(rows[:1])) * 3)
    return out


# What is taken in pieces, by the library in one go.
_AT_ONCE: dict[int, Callable[[bytes], bytes]] = {
    GZIP: lambda body: zlib.decompressobj(31).decompress(body),
    LZ4: lambda body: bytes(lz4.frame.LZ4FrameDecompressor().decompress(body)),
}


def _opened(data: bytes) -> None:
    if not data:
        return
    codec, body = data[0] % 6, data[1:]
    found = decompress(codec, body, limit_bytes=OPENED_BYTES_MAX)
    if len(found) > max(OPENED_BYTES_MAX, len(body)):
        raise Found(f"{len(found)} bytes of codec {codec} in {data.hex()[:2000]}")
    at_once = _AT_ONCE.get(codec)
    if at_once is not None and at_once(body) != found:
        raise Found(f"codec {codec}: in pieces other bytes than at once: {data.hex()[:2000]}")


def _control(data: bytes) -> None:
    kind = control.decode_key(data[:4])
    if kind in control.TYPES:
        control.decode_value(kind, data[4:])


# ----------------------------------------------------------------------------------- what is stored


def _checkpoint(data: bytes) -> None:
    try:
        checkpoint.decode(data, 3)
    except ValueError:
        checkpoint.decode(data, 2)


def _epochs(data: bytes) -> None:
    leader_epoch_checkpoint.decode(data)


def _producers(data: bytes) -> None:
    sealed = data[:2] + struct.pack(">I", crc32c(data[6:])) + data[6:]
    producer_snapshot.decode_snapshot(sealed)


def _indexes(data: bytes) -> None:
    offset_index.can_be(*offset_index.decode(data))
    time_index.can_be(*time_index.decode(data))
    for one in transaction_index.decode(data):
        if one.first_offset > one.last_offset:
            raise Found(f"{one} in {data.hex()[:2000]}")


def _walked(data: bytes) -> None:
    """A segment; before it, behind its length, both indexes."""
    if not data:
        return
    index, segment = data[1 : 1 + data[0]], resealed(data[1 + data[0] :])
    walks = []
    for run in (
        walk_batches_python,
        walk_batches_python if native is None else native.walk_batches,
    ):
        walk = BatchWalk(0, 20, ((0, 0), (3, 5)), offsets=index, times=index)
        run(segment, walk._epochs, walk._offsets, walk._times, walk.state)
        walks.append(list(walk.state))
    if walks[0] != walks[1]:
        raise Found(f"in C {walks[1]}, in Python {walks[0]}: {data.hex()[:2000]}")


def _walk_seeds() -> list[bytes]:
    rows = [NewRecord(b"k", b"v", _NOW_MS)] * 3
    some: list[bytes] = []
    for base, epoch in ((0, 0), (3, 0), (5, 3)):
        some.append(bytes(build_batch(rows, base_offset=base, leader_epoch=epoch)))
    marker = [NewRecord(struct.pack(">hh", 0, 0), bytes(6), _NOW_MS)]
    some.append(bytes(build_batch(marker, base_offset=8, leader_epoch=3, is_control=True)))
    index = struct.pack(">ii", 7, len(some[0]) + len(some[1]))
    return [b"\0" + b"".join(some), bytes((len(index),)) + index + b"".join(some), b"\0" + some[0]]


def _compacted(data: bytes) -> None:
    """Records of one batch, by both cleaners; then a segment, which is refused where a batch is damaged."""
    count, body = (data[60] if len(data) > 60 else 0) % 16, data[HEADER_BYTES:]
    tables, kept = [], []
    for put, keep in (
        (cleaner.map_body_python, cleaner.filter_body_python),
        (cleaner.map_body, cleaner.filter_body),
    ):
        offsets = OffsetMap(9, bytes(16))
        done = put(body, count, 0, count - 1, offsets, 0, 8)
        offsets.latest_offset = count - 2
        tables.append((done, offsets.count, bytes(offsets.table)))
        kept.append(keep(body, count, 0, count - 1, offsets, True, 1))
    if tables[0] != tables[1] or kept[0] != kept[1]:
        raise Found(f"in Python {tables[0]}, {kept[0]}, in C {kept[1]}: {data.hex()[:2000]}")
    fs, segment = CrashableFs(), resealed(data)
    fs.make_dir("t-0")
    fs.open(f"t-0/{0:020d}.log", create=True).append(segment)
    for _ in compact(fs, _COMPACTION._replace(segments=(SegmentToClean(0, 99, len(segment)),))):
        pass


_COMPACTION = CompactionJob(
    path="t-0",
    segments=(),
    later_bases=(),
    first_dirty_offset=0,
    upto_offset=99,
    segment_bytes=1 << 20,
    segment_index_bytes=1 << 16,
    index_interval_bytes=100,
    delete_retention_ms=1000,
    now_ms=_NOW_MS,
    last_batches=((7, 3, 0),),
    map_bytes=1 << 10,
    load_factor=0.9,
    bytes_per_second=1e300,
    secret=bytes(16),
)


def _snapshot(data: bytes) -> None:
    snapshot_file._decode(resealed(data))


def _groups(data: bytes) -> None:
    """Key and value, parted by the length that the first byte says."""
    if not data:
        return
    key, value = data[1 : 1 + data[0]], data[1 + data[0] :]
    _each(
        [
            lambda: commits.read_commit_key(key),
            lambda: commits.read_commit(value),
            lambda: _exhaust(generation.read_generation(value)),
        ]
    )
    found = group_records.decode_key(key)
    if found is not None:
        group_records.decode_value(found, value)


def _exhaust(steps: Iterable[None]) -> None:
    for _ in steps:
        pass


def _each(some: Iterable[Callable[[], object]]) -> None:
    """Try each, whatever the one before it refused."""
    for one in some:
        try:
            one()
        except FirnlineError:
            continue


def _catalog(data: bytes) -> None:
    """Lines without their footer; it is put below them."""
    if not data.endswith(b"\n"):
        data += b"\n"
    data += b'{"lines":%d,"crc32c":%d}\n' % (data.count(b"\n"), crc32c(data))
    _each([lambda: list(catalog._lines(data, "k", "part", SEGMENTS.common))])
    catalog.decode_head(data, "k")


def _names(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    names.parse_segment_file(text)
    names.parse_partition_dir(text)
    snapshot_file.parse_snapshot_name(text)
    layout.parse_head(text)
    layout.parse_written_epoch(text)
    layout.parse_catalog_partition(text)
    layout.parse_name(text)


def _of_records(types: Mapping[int, type[Message]]) -> list[bytes]:
    """One record of each type, at its first and its last version."""
    out = []
    for kind in types.values():
        for version in {kind.valid.first, kind.valid.last}:
            try:
                out.append(record_value.encode_value(kind(), version))
            except FirnlineError:  # its defaults are not to be said at that version
                continue
    return out


def _catalog_seeds() -> list[bytes]:
    sums = ((".log", fingerprint.ObjectSum(9, 7)),)
    row = catalog.CatalogSegment(
        bytes(16),
        0,
        9,
        100,
        5,
        ((0, 0),),
        "data/x",
        (".log",),
        b"m",
        fingerprint.Fingerprint(False, 1, 2, sums),
        3,
        (catalog.Split(4, 50, 4), catalog.Split(6, 70, 5)),
    )
    ref = catalog.PartRef("parts/p", 1, 3, 9, 100, 7, 0, 1, 2, 96, 5)
    head = catalog.CatalogHead(
        "t",
        bytes(16),
        0,
        1,
        2,
        1,
        3,
        0,
        4,
        0,
        9,
        ((0, 0), (1, 5)),
        (ref,),
        ((bytes(16), 9),),
        (row,),
    )
    lines = catalog.encode_head(head).splitlines(keepends=True)
    return [
        b"".join(lines[:-1]),
        b"{}\n",
        b'{"firnline":"catalog","kind":"part"}\n{"a":[[[[]]]]}\n',
    ]


def _group_seeds() -> list[bytes]:
    key = struct.pack(">hh1sh1si", 1, 1, b"g", 1, b"t", 0)
    value = struct.pack(">hqihq", 3, 5, -1, 0, 7)
    name = struct.pack(">hh1s", 2, 1, b"g")
    members = struct.pack(">hh8sih5sh1sqi", 3, 8, b"consumer", 1, 5, b"range", 1, b"m", 7, 1)
    members += struct.pack(">h1shh1sh1sii", 1, b"m", -1, 1, b"c", 1, b"h", 5, 6)
    members += struct.pack(">i1si1s", 1, b"s", 1, b"a")
    return [bytes((len(k),)) + k + v for k, v in ((key, value), (name, members), (name, b""))]


def _snapshot_seeds() -> list[bytes]:
    joined = snapshot_file.snapshot_batches(
        [metadata_records.TYPES[12]()], epoch=1, metadata_version=25, last_contained_ms=1, now_ms=2
    )
    return [b"".join(joined), *_batch_seeds()]


def _control_seeds() -> list[bytes]:
    return [struct.pack(">hhhi", 0, 1, 0, 3), struct.pack(">hhh", 0, 3, 0) + bytes(9)]


def _producer_seeds() -> list[bytes]:
    none = producer_snapshot.encode_snapshot([])
    return [none, none[:6] + struct.pack(">i", 1) + bytes(42)]


def _some(*data: bytes) -> Callable[[], list[bytes]]:
    return lambda: list(data)


DECODERS: dict[str, Decoder] = {
    "messages": Decoder(_message, _message_seeds),
    "usual-request": Decoder(_common_request, _frames),
    "answers": Decoder(_answer, _some(struct.pack(">ihii", 7, 0, 1, 0), bytes(20))),
    "principal": Decoder(decode_principal, _some(b"\0\0\5User\4abc\0\0")),
    "batches": Decoder(_batches, _batch_seeds),
    "judged": Decoder(_checked, _batch_seeds),
    "recompressed": Decoder(_recompressed, _batch_seeds),
    "codecs": Decoder(
        _opened, lambda: [bytes((n,)) + one[HEADER_BYTES:] for n, one in enumerate(_batch_seeds()[:5])]
    ),
    "control": Decoder(_control, _control_seeds),
    "checkpoint": Decoder(_checkpoint, _some(b"0\n1\nt 0 5\n", b"0\n2\n1 2\n3 4\n"), (ValueError,)),
    "epochs": Decoder(_epochs, _some(b"0\n2\n1 2\n3 4\n"), (ValueError,)),
    "producers": Decoder(_producers, _producer_seeds),
    "indexes": Decoder(
        _indexes, _some(struct.pack(">6I", 0, 0, 1, 5, 9, 99), struct.pack(">hqqqq", 0, 1, 2, 3, 4))
    ),
    "walked": Decoder(_walked, _walk_seeds),
    "compacted": Decoder(_compacted, _batch_seeds),
    "snapshot": Decoder(_snapshot, _snapshot_seeds),
    "metadata": Decoder(
        metadata_records.decode, lambda: _of_records(metadata_records.TYPES)
    ),
    "groups": Decoder(_groups, _group_seeds),
    "tier-metadata": Decoder(tier_records.decode, lambda: _of_records(tier_records.TYPES)),
    "catalog": Decoder(_catalog, _catalog_seeds),
    "fingerprint": Decoder(fingerprint.decode_fingerprint, _some(bytes(20), bytes(36))),
    "election-state": Decoder(
        lambda data: decode_election_state(data, path="p"),
        _some(b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
              b'"currentVoters":[{"voterId":1}],"data_version":0}'),
    ),
    "names": Decoder(_names, _some(b"00000000000000000000.log", b"t-0", b"a-b-1.x-delete")),
}  # fmt: skip


def mutants(rng: Random, corpus: list[bytes]) -> Iterator[bytes]:
    """Yield what comes of whole inputs by flips, cuts, numbers that nobody says, and two put together."""
    while True:
        out = bytearray(rng.choice(corpus))
        for _ in range(rng.choice((1, 1, 2, 4))):
            at = rng.randrange(len(out) + 1)
            what = rng.randrange(6)
            if what == 0 and at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            elif what == 1 and at < len(out):
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            elif what == 2:
                del out[at : at + rng.choice((1, 2, 8, 64))]
            elif what == 3:
                out[at:at] = rng.randbytes(rng.choice((1, 2, 4)))
            elif what == 4:
                number = rng.choice((-1, 0, 1 << 31 - 1, (1 << 31) - 1, -(1 << 31), 1 << 20))
                out[at : at + 4] = struct.pack(">i", number)
            else:
                other = rng.choice(corpus)
                out[at:] = other[rng.randrange(len(other) + 1) :]
        yield bytes(out[:4096])
