"""Replay the records of one partition of `__consumer_offsets` into groups and offsets, in slices. PURE.

A record that a later one replaces is not decoded: of millions of commits in a log few are left, and of a
group only its last generation. A record with a right CRC that cannot be decoded is the same on every replica,
so it is skipped and the rest is served. A wrong CRC concerns this replica only, and ends the load. Source:
KIP-98, KIP-915, spec C15; rel-C5.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice

from firnline.base.errors import Code, KafkaError, ProtocolError
from firnline.base.ids import TopicPartition
from firnline.base.limits import KEYED_BATCH_BYTES_MAX
from firnline.base.ports import Buffer
from firnline.base.units import INT64_MAX
from firnline.coordinator.commits import legacy_commit, read_commit, read_commit_key
from firnline.coordinator.generation import check_names, read_generation
from firnline.coordinator.group import Group
from firnline.coordinator.offsets import Commit, Known, Offsets
from firnline.coordinator.records import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    decode_key,
    decode_value,
)
from firnline.records.batch import BatchHeader, crc_is_right, headers
from firnline.records.fast_path import Row, common_records
from firnline.records.record import records
from firnline.records.unreadable import UnreadableRecords

# Records per slice: a few tenths of a millisecond in compiled code, about 2 ms in Python.
RECORDS_PER_SLICE = 256
# Commits per slice of the final check.
_CHECKS_PER_SLICE = 500
# Bytes of group records that are decoded in a slice: some ten members.
_GROUP_BYTES_PER_SLICE = 8 * 1024
_GROUP_OVERHEAD_BYTES = 256
# A cache of keys, so that a consumer's next commit need not be decoded. It keeps the first keys: if there are
# more consumers than entries, some are still found in each round, and the cache is never emptied at once.
_PLACES_MAX = 64 * 1024
_FORGOTTEN_PER_SLICE = 4 * 1024
_CommitKey = tuple[str, TopicPartition]


class Replay:
    """Applies records in log order to `groups` and `offsets`, which nobody else sees until the end.

    group  returns the group of an id; creates an empty one if needed
    """

    def __init__(
        self,
        groups: dict[str, Group],
        offsets: Offsets,
        group: Callable[[str], Group],
        unreadable: UnreadableRecords,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._group = group
        self._unreadable = unreadable
        self._places: dict[bytes | None, _CommitKey] = {}
        self._partitions: dict[TopicPartition, TopicPartition] = {}  # one object for all groups
        # The last record of each group, not decoded, and its offset.
        self._generations: dict[str, tuple[int, bytes]] = {}

    def steps(self, batches: Iterable[Buffer]) -> Iterator[None]:
        """Apply complete batches; yields after each slice. KafkaError for damaged bytes.

        An empty buffer only means that finding the next batches took a slice.
        """
        for data in batches:
            if not data:
                yield
            yield from self._batches(data)
        yield from self._restore()
        yield from self._check()
        while self._places:
            for _ in range(min(len(self._places), _FORGOTTEN_PER_SLICE)):
                self._places.popitem()
            yield

    # ------------------------------------------------------------------------------- the records

    def _batches(self, data: Buffer) -> Iterator[None]:
        position = 0
        while True:
            rows, position = common_records(data, position, RECORDS_PER_SLICE)
            for first in range(0, len(rows), RECORDS_PER_SLICE):
                self._take_rows(rows[first : first + RECORDS_PER_SLICE])
                yield
            if rows:
                continue
            size_bytes = yield from self._unusual(memoryview(data)[position:])
            if not size_bytes:
                return
            position += size_bytes

    def _unusual(self, data: memoryview) -> Generator[None, None, int]:
        """Apply the first batch of `data` with the general code; return its size, 0 if it is incomplete."""
        header = next(headers(data), None)
        if header is None:
            return 0
        if not crc_is_right(data, header):
            raise KafkaError(
                Code.CORRUPT_MESSAGE, "a batch does not match its CRC", at=header.base_offset
            )
        found = self._readable(data, header)
        if header.is_control:
            self._take_markers(found, header)
        elif header.is_transactional:
            while some := list(islice(found, RECORDS_PER_SLICE)):
                self._hold_rows(some, header.producer_id)
                yield
        else:
            while some := list(islice(found, RECORDS_PER_SLICE)):
                self._take_rows(some)
                yield
        return header.size_bytes

    def _readable(self, data: memoryview, header: BatchHeader) -> Iterator[Row]:
        """Yield the records of a batch as far as it can be decoded."""
        expected = header.base_offset
        try:
            for each in records(data, header, limit_bytes=KEYED_BATCH_BYTES_MAX):
                if not expected <= each.offset <= header.last_offset:
                    raise KafkaError(Code.CORRUPT_MESSAGE, "offsets that do not ascend")
                yield each.offset, each.key, each.value
                expected = each.offset + 1
        except KafkaError as problem:
            self._unreadable.note(expected, max(expected, header.last_offset), problem)

    def _take_rows(self, rows: Sequence[Row]) -> None:
        places, by_group = self._places, self._offsets.by_group
        for offset, key, value in rows:
            try:
                place = places.get(key) or self._commit_key(key)
                if place is None:
                    self._take_group(offset, key, value)
                    continue
                group_id, partition = place
                if value is None:
                    self._offsets.drop(group_id, partition, offset)
                    continue
                known = value if key[1] else _legacy(key, value)  # type: ignore[index,arg-type]
            except ProtocolError as problem:
                self._unreadable.note(offset, offset, problem)
                continue
            of_group = by_group.get(group_id)
            if of_group is None:
                self._group(group_id)
                of_group = by_group[group_id] = {}
            of_group[partition] = known

    def _commit_key(self, key: bytes | None) -> _CommitKey | None:
        if key is None:
            raise ProtocolError("a group record without a key")
        place = read_commit_key(key)
        if place is None:
            return None
        group_id, partition = place
        place = group_id, self._partitions.setdefault(partition, partition)
        if len(self._places) < _PLACES_MAX:
            self._places[key] = place
        return place

    def _hold_rows(self, rows: Sequence[Row], producer_id: int) -> None:
        """Keep the commits of a transaction until its marker. Group records are not transactional."""
        for offset, key, value in rows:
            try:
                place = self._places.get(key) or self._commit_key(key)
                if place is None:
                    self._take_group(offset, key, value)
                else:
                    known = value if key is None or value is None or key[1] else _legacy(key, value)
                    self._offsets.hold(producer_id, (*place, known))
            except ProtocolError as problem:
                self._unreadable.note(offset, offset, problem)

    def _take_markers(self, rows: Iterable[Row], header: BatchHeader) -> None:
        for offset, key, _ in rows:
            # The key of a marker: version int16, then 0 for abort or 1 for commit.
            is_committed = key is not None and key[2:4] == b"\x00\x01"
            for commit in self._offsets.decide(header.producer_id, is_committed=is_committed):
                self._take_commit(commit, offset)

    def _take_commit(self, commit: Commit, record_offset: int) -> None:
        group_id, partition, known = commit
        if known is None:
            self._offsets.drop(group_id, partition, record_offset)
        else:
            self._group(group_id)
            self._offsets.by_group.setdefault(group_id, {})[partition] = known

    def _take_group(self, offset: int, data: bytes | None, value: bytes | None) -> None:
        key = None if data is None else decode_key(data)
        if not isinstance(key, GroupMetadataKey):
            return  # of another group protocol
        group_id = key.group
        if value is not None:
            self._group(group_id)
            self._generations[group_id] = offset, value
            return
        self._generations.pop(group_id, None)
        if group_id not in self._offsets.by_group:  # otherwise its offsets stay readable
            self._groups.pop(group_id, None)

    # ------------------------------------------------------------------------------ what is left

    def _restore(self) -> Iterator[None]:
        """Restore groups from their last records."""
        size_bytes = 0
        for group_id, (offset, data) in self._generations.items():
            try:
                found = yield from read_generation(data)
                check_names(found.members)
            except ProtocolError as problem:  # its offsets are served; its members join again
                self._unreadable.note(offset, offset, problem)
                continue
            yield from self._group(group_id).restore(
                generation=found.generation,
                protocol_type=found.protocol_type or None,
                protocol_name=found.protocol_name,
                leader=found.leader,
                state_since_ms=found.state_since_ms,
                members=found.members,
            )
            size_bytes += len(data) + _GROUP_OVERHEAD_BYTES
            if size_bytes >= _GROUP_BYTES_PER_SLICE:
                size_bytes = 0
                yield

    def _check(self) -> Iterator[None]:
        """Decode each remaining commit once, so that a later request for it cannot fail."""
        count = 0
        for group_id, of_group in list(self._offsets.by_group.items()):
            bad: list[TopicPartition] = []
            for partition, known in of_group.items():
                try:
                    if type(known) is bytes:
                        read_commit(known)
                except ProtocolError as problem:
                    bad.append(partition)
                    what = f"the last commit of group {group_id!r} for {partition}"
                    self._unreadable.note_named(what, problem)
                count += 1
                if count % _CHECKS_PER_SLICE == 0:
                    yield
            for partition in bad:
                self._offsets.drop(group_id, partition, INT64_MAX)


def _legacy(key: bytes, value: bytes) -> Known:
    """Return the commit in a record from before 0.9, of which few are left."""
    found = decode_value(LegacyOffsetCommitKey(group="", topic="", partition=0), value)
    assert isinstance(found, LegacyOffsetCommitValue)
    return legacy_commit(found)
