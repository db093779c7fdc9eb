"""What of a log survives any power cut: read from the platter, not from the node. SIM."""

import json
from typing import Any

from firnline.formats import names
from firnline.metadata.snapshot_damage import place_of
from firnline.metadata.snapshot_file import SUFFIX, parse_snapshot_name
from firnline.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, PEEK
from firnline.sim.disk import CrashableFs, Inode


class DurableLog:
    """The durable end of the metadata log of one disk.

    Follows the segments from where the last call ended; starts again when a name changed or a file became
    shorter.
    """

    __slots__ = ("_index", "_names", "_offset", "_path", "_position", "_segments")

    def __init__(self, path: str) -> None:
        self._path = path
        self._names: dict[str, Any] | None = None
        self._segments: list[tuple[int, Inode]] = []
        self._index = 0  # of the segment the look is at, ...
        self._position = 0  # ... how many bytes of it, ...
        self._offset = 0  # ... and up to which offset, exclusive

    def end_offset(self, fs: CrashableFs) -> int:
        """Everything below survives: consecutive complete batches, from the newest snapshot or segment on."""
        found = fs.surviving_names(self._path)
        if found is not self._names:
            self._look_again(found)
        while self._index < len(self._segments):
            base_offset, inode = self._segments[self._index]
            if base_offset > self._offset:
                break
            if inode.surviving_bytes < self._position:
                self._look_again(found)
                continue
            self._follow(inode)
            if not self._may_go_on():
                break
            self._index += 1
            self._position = 0
        return self._offset

    def _look_again(self, found: dict[str, Any]) -> None:
        self._names = found
        self._segments, self._index, self._position, self._offset = [], 0, 0, 0
        for name in sorted(found):
            inode = found[name]
            if name.endswith(names.LOG):
                self._segments.append((int(name.removesuffix(names.LOG)), inode))
            elif (place := place_of(name)) is not None:
                # A voter that lost it takes no part in elections without it, so for commits it counts as
                # having it.
                self._offset = max(self._offset, place.offset)
            elif name.endswith(SUFFIX) and inode.surviving_bytes == len(inode.data):
                snapshot_id = parse_snapshot_name(name)
                if snapshot_id is not None:
                    self._offset = max(self._offset, snapshot_id.offset)

    def _may_go_on(self) -> bool:
        """Whether the next segment begins where this one ends, or before."""
        after = self._index + 1
        return after < len(self._segments) and self._segments[after][0] <= self._offset

    def _follow(self, inode: Inode) -> None:
        size = inode.surviving_bytes
        if self._position < size:
            self._position, end = walk(inode.durable, self._position, size)
            self._offset = max(self._offset, end)


def durable_end(fs: CrashableFs, path: str, *, has_gaps: bool = False) -> int:
    """The durable end of a partition's log, which begins with its oldest segment. 0 for none.

    has_gaps  it is compacted: offsets may be missing between segments
    """
    found, end = fs.surviving_names(path), 0
    for count, name in enumerate(sorted(name for name in found if name.endswith(names.LOG))):
        inode, base_offset = found[name], int(name.removesuffix(names.LOG))
        if count and base_offset > end and not has_gaps:
            break
        assert isinstance(inode, Inode)
        data = inode.repaired(inode.durable) if inode.flipped else inode.durable
        end = max(end, base_offset, walk(data, 0, inode.surviving_bytes)[1])
    return end


def walk(data: bytes | bytearray, position: int, size: int) -> tuple[int, int]:
    """Walk over the complete batches of data[position:size]; return their end, in bytes and as an offset."""
    end = 0
    while position + HEADER_BYTES <= size:
        base_offset, length, last_delta = PEEK.unpack_from(data, position)
        after = position + LOG_OVERHEAD_BYTES + length
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES or after > size:
            break
        position, end = after, base_offset + last_delta + 1
    return position, end


def durable_election(fs: CrashableFs, path: str) -> dict[str, Any] | None:
    """`quorum-state` as it survives any power cut; None if there is none, or it may not survive."""
    inode = fs.surviving_files(path).get("quorum-state")
    if inode is None or inode.surviving_bytes != len(inode.data):
        return None
    found: dict[str, Any] = json.loads(bytes(inode.durable))
    return found
