"""Invariants of snapshots: their names, their content, their way over the network. SIM.

Source: reliability (b), rel-Q8, Q9, Q10, Q15, Q17 and rel-P3.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from firnline.base.errors import StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.metadata.loader import Loader
from firnline.metadata.snapshot_file import parse_snapshot_name, read_snapshot, snapshot_name
from firnline.sim.disk import Inode
from firnline.sim.history import CommittedMetadata
from firnline.sim.host import Process
from firnline.sim.messages import first_partition
from firnline.sim.quorum_node import LOG

Complain = Callable[[str, str, int], None]


class SnapshotChecks:
    """Checks the snapshots of a node whenever a name in its directory has changed."""

    def __init__(self, history: CommittedMetadata, complain: Complain) -> None:
        self._history = history
        self._complain = complain
        self._known: dict[int, dict[OffsetAndEpoch, Inode]] = {}
        self._counted: dict[int, list[OffsetAndEpoch]] = {}
        # The snapshot of a leader that a follower is fetching.
        self._served: dict[int, dict[OffsetAndEpoch, dict[bytes, None]]] = {}
        # Snapshots that were read and found right, by digest: most nodes write the same file.
        self._right: dict[OffsetAndEpoch, bytes] = {}
        self.checked = 0

    def ended(self, process: Process) -> None:
        """The process is gone; names may be different after a power cut."""
        self._known.pop(process.node_id, None)
        self._counted.pop(process.node_id, None)
        self._served.pop(process.node_id, None)

    def look(self, process: Process, start_offset: int) -> None:
        """Compare names with the log start, and check every new file."""
        node_id, fs = process.node_id, process.host.fs
        files = fs.files(LOG)
        found = {
            snapshot_id: files[name]
            for name in files
            if (snapshot_id := parse_snapshot_name(name)) is not None and snapshot_id.offset
        }
        known = self._known.get(node_id, {})
        for snapshot_id, inode in found.items():
            if known.get(snapshot_id) is not inode:
                self._check_new(process, snapshot_id, inode)
        self._known[node_id] = found
        # A file whose name is not synced yet does not count.
        counted = [row[0] for row in process.machine.log.snapshot_sizes()]
        for snapshot_id in self._counted.get(node_id, ()):
            if snapshot_id not in counted and snapshot_id.offset >= start_offset:
                text = f"deleted the snapshot at {snapshot_id.offset}; the log begins at {start_offset}"
                self._complain("rel-Q15", text, node_id)
        self._counted[node_id] = counted
        ends = [snapshot_id.offset for snapshot_id in counted if snapshot_id in found]
        if len(ends) < len(counted):
            text = f"counts on snapshots at {counted}; files are there for {ends}"
            self._complain("rel-Q15", text, node_id)
        if start_offset > 0 and start_offset not in ends:
            text = f"the log begins at {start_offset}; snapshots are at {ends}"
            self._complain("rel-Q8", text, node_id)
        if ends and min(ends) < start_offset:
            text = f"a snapshot at {min(ends)}, before the log's begin at {start_offset}"
            self._complain("rel-Q8", text, node_id)

    def _check_new(self, process: Process, snapshot_id: OffsetAndEpoch, inode: Inode) -> None:
        node_id, history = process.node_id, self._history
        self.checked += 1
        if inode.surviving_bytes != len(inode.data):
            text = f"the snapshot at {snapshot_id.offset} has its name before it is on the disk"
            self._complain("rel-P3", text, node_id)
        digest = _digest(inode)
        served = self._served.get(node_id, {}).get(snapshot_id)
        if served is not None and digest not in served:
            text = f"the snapshot at {snapshot_id.offset} is not, byte for byte, what a leader has"
            self._complain("rel-Q17", text, node_id)
        if self._right.get(snapshot_id) == digest:
            return
        path = f"{LOG}/{snapshot_name(snapshot_id)}"
        try:
            content = read_snapshot(process.host.fs, path)
        except StorageError as problem:
            self._complain("rel-Q10", str(problem), node_id)
            return
        if snapshot_id.offset > history.end_offset:
            text = f"a snapshot at {snapshot_id.offset}; committed is {history.end_offset}"
            self._complain("rel-Q8", text, node_id)
            return
        loader = Loader()
        loader.load(content.records, offset=snapshot_id.offset - 1, epoch=snapshot_id.epoch)
        expected = history.images.get(snapshot_id.offset - 1)
        if expected is None or history.epoch_before(snapshot_id.offset) != snapshot_id.epoch:
            text = f"{snapshot_id.offset}@{snapshot_id.epoch} is no place in the committed log"
            self._complain("rel-Q9", text, node_id)
        elif loader.image()._replace(epoch=expected.epoch) != expected:
            text = f"the snapshot at {snapshot_id.offset} says something else than the log up to it"
            self._complain("rel-Q9", text, node_id)
        else:
            self._right[snapshot_id] = digest

    def served(self, process: Process, to_id: int, response: Any) -> None:
        """A leader sends a piece: remember the complete snapshot."""
        each = first_partition(response)
        if each is None or each.error_code or each.snapshot_id.end_offset < 0:
            return
        snapshot_id = OffsetAndEpoch(each.snapshot_id.end_offset, each.snapshot_id.epoch)
        inode = process.host.fs.files(LOG).get(snapshot_name(snapshot_id))
        if inode is None:
            return  # it was deleted while it is open (spec Q41)
        if len(inode.data) != each.size:
            text = f"says {each.size} bytes of a snapshot of {len(inode.data)}"
            self._complain("rel-Q17", text, process.node_id)
        by_id = self._served.setdefault(to_id, {})
        by_id.setdefault(snapshot_id, {})[_digest(inode)] = None

    def resumed(self, node_id: int) -> None:
        """A follower fetches from the log again: no download is in progress."""
        self._served.pop(node_id, None)


def _digest(inode: Inode) -> bytes:
    return blake2b(inode.data, digest_size=16).digest()
