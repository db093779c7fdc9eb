"""What of a metadata log any power cut would leave: as the platter has it, not as the node says. SIM."""

import json
from typing import Any

from firnline.log import names
from firnline.metadata.snapshot_file import parse_snapshot_name
from firnline.records.batch import HEADER_BYTES, parse_header
from firnline.sim.disk import CrashableFs, Inode


class DurableLog:
    """Where the log of one disk ends for sure. Keeps its place in each segment."""

    __slots__ = ("_cursors", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._cursors: dict[str, tuple[Inode, int, int]] = {}  # name -> file, position, offset

    def end_offset(self, fs: CrashableFs) -> int:
        """Everything below survives: whole batches on end, from the newest snapshot or segment on."""
        files = fs.surviving_files(self._path)
        end = 0
        for name, inode in files.items():
            snapshot_id = parse_snapshot_name(name)
            if snapshot_id is not None and inode.surviving_bytes == len(inode.data):
                end = max(end, snapshot_id.offset)
        for name in sorted(name for name in files if name.endswith(names.LOG)):
            base_offset = int(name.removesuffix(names.LOG))
            if base_offset <= end:
                end = max(end, self._segment_end(name, files[name], base_offset))
        return end

    def _segment_end(self, name: str, inode: Inode, base_offset: int) -> int:
        size = inode.surviving_bytes
        known, position, offset = self._cursors.get(name, (None, 0, base_offset))
        if known is not inode or position > size:
            position, offset = 0, base_offset
        data = inode.durable
        while position + HEADER_BYTES <= size:
            header = parse_header(data, position)
            if header.magic != 2 or position + header.size_bytes > size:
                break
            position += header.size_bytes
            offset = header.next_offset
        self._cursors[name] = (inode, position, offset)
        return offset


def durable_election(fs: CrashableFs, path: str) -> dict[str, Any] | None:
    """`quorum-state` as any power cut leaves it; None when there is none, or not for sure."""
    inode = fs.surviving_files(path).get("quorum-state")
    if inode is None or inode.surviving_bytes != len(inode.data):
        return None
    found: dict[str, Any] = json.loads(bytes(inode.durable))
    return found
