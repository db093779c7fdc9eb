"""Bit rot in partition logs, and the operator who repairs it. SIM.

Only one replica of a partition rots at a time, while another one in its ISR is clean and runs. It counts as
dirty until nothing with a flipped bit is left, and it again has everything that is committed. The operator
follows docs/OPERATIONS.md: if another replica is in sync, the partition's directory is moved away and fetched
again; if none is, or the others leave the ISR meanwhile, a good copy is restored. If a tiered replica lost
leader epochs, another one has to lead; this one then takes them from the tier. Source: decision 0023;
reliability d 92, d 93.
"""

from typing import NamedTuple

from firnline.base.units import INT64_MAX
from firnline.formats import leader_epoch_checkpoint, names
from firnline.log.checkpoint import (
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
)
from firnline.metadata.image import PartitionImage
from firnline.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, parse_header
from firnline.sim.cluster.ledger import PartitionKey
from firnline.sim.cluster_faults.races import RaceFaults
from firnline.sim.disk import Inode
from firnline.sim.faults import Fault
from firnline.sim.host import Host
from firnline.sim.world import MS, SECOND, Chance

_LOOK_US = 2 * SECOND
# Between two brokers whose files are put back, so that one has started before the next is stopped.
_APART_US = 10 * SECOND
_TRIES = 20
_RUNNING, _KILLED, _STOPPED = "as it runs", "while it is killed", "while it is stopped"
# Kafka's text files without a checksum: a changed digit is not noticed.
_PLAIN = (RECOVERY_POINTS, HIGH_WATERMARKS, LEADER_EPOCHS)
# Files whose bits flip; half of the time it is the batches.
_SUFFIXES = (names.LOG, names.LOG, names.LOG, names.INDEX, names.TIME_INDEX, names.SNAPSHOT)
_BASE_OFFSET_BYTES = 8
_LEADER_EPOCH_AT = range(LOG_OVERHEAD_BYTES, LOG_OVERHEAD_BYTES + 4)


class ReplicaLocation(NamedTuple):
    """One replica: its node and the path of its directory."""

    host: Host
    key: PartitionKey
    directory: str


class RotFaults(RaceFaults):
    """`RaceFaults`, and bits that flip in the files of brokers."""

    def _rot_log(self, fault: Fault, chance: Chance) -> None:
        spots = [
            ReplicaLocation(self._hosts[node_id], key, self.dirty.path_of(node_id, key))
            for key, _, state in self._partitions_once()
            for node_id in state.replicas
            if self.dirty.may_rot(node_id, key, state) and not self._hosts[node_id].has_bad_disk
        ]
        if not spots:
            return
        replica, way = chance.pick(spots), chance.pick((_RUNNING, _KILLED, _STOPPED))
        host = replica.host
        down_us = chance.spread(1 * MS, 4 * SECOND)
        if way == _RUNNING or host.process is None or not self.dirty.may_stop(host.node_id):
            self._flip(fault, chance, replica, _RUNNING)
        elif way == _KILLED:
            host.kill()
            self._flip(fault, chance, replica, way)
            self._keep_down(host, down_us)
        else:

            def stopped() -> None:
                if self._is_over:
                    host.start()
                    return
                state = self.dirty.partition(replica.key)
                if state is not None and self.dirty.may_rot(host.node_id, replica.key, state):
                    self._flip(fault, chance, replica, way)
                self._keep_down(host, down_us)

            host.stop(stopped)

    def _partitions_once(self) -> list[tuple[PartitionKey, str, PartitionImage]]:
        found = {row[0]: row for row in self._partitions()}
        return list(found.values())

    def _flip(self, fault: Fault, chance: Chance, replica: ReplicaLocation, way: str) -> None:
        """Flip one bit in one file of that replica, which must be synced, and committed if it is a batch."""
        host = replica.host
        for _ in range(_TRIES):
            found = self._file(replica, chance)
            if found is None:
                continue
            name, inode = found
            if not inode.surviving_bytes:
                continue
            at, bit = chance.below(inode.surviving_bytes), chance.below(8)
            if self._is_noticeable(replica, name, inode, at, bit):
                inode.flip(at, bit)
                self._note(fault, f"byte {at} of {name} on {host.node_id} flips {way}")
                self.dirty.rots(host.node_id, replica.key, replica.directory)
                self._operate_later(chance, replica)
                return

    def _file(self, replica: ReplicaLocation, chance: Chance) -> tuple[str, Inode] | None:
        """Choose a file of the replica's directory."""
        files = replica.host.fs.surviving_files(replica.directory)
        if chance.below(8) == 0:
            name = chance.pick((LEADER_EPOCHS, PARTITION_METADATA))
            found = [name] if name in files else []
        else:
            suffix = chance.pick(_SUFFIXES)
            found = sorted(name for name in files if name.endswith(suffix))
        if not found:
            return None
        name = chance.pick(found)
        return f"{replica.directory}/{name}", files[name]

    def _is_noticeable(
        self, replica: ReplicaLocation, path: str, inode: Inode, at: int, bit: int
    ) -> bool:
        """Whether a reader can notice the flip; for a batch, whether it is also committed."""
        name = path.rpartition("/")[2]
        if name in _PLAIN:
            data = bytearray(inode.durable)
            data[at] ^= 1 << bit
            return not _is_read(bytes(data))
        if not name.endswith(names.LOG):
            return True
        position, end = 0, int(name.removesuffix(names.LOG))
        while position + HEADER_BYTES <= inode.surviving_bytes:
            header = parse_header(inode.durable, position)
            if header.size_bytes < HEADER_BYTES:
                return False  # an earlier flip hides the start of the next batch
            if position <= at < position + header.size_bytes:
                break
            position, end = position + header.size_bytes, header.next_offset
        else:
            return False
        if header.next_offset > self.dirty.committed_end(replica.key):
            return False
        if self.dirty.has_gaps(replica.key) and at - position < _BASE_OFFSET_BYTES:
            wrong = header.base_offset ^ 1 << (_BASE_OFFSET_BYTES - 1 - at + position) * 8 + bit
            after = self._next_offset(replica, name, inode, position + header.size_bytes)
            return wrong < end or wrong + header.last_offset_delta >= after
        return at - position not in _LEADER_EPOCH_AT

    def _next_offset(self, replica: ReplicaLocation, name: str, inode: Inode, position: int) -> int:
        """The offset of the batch at `position`, or of the next segment; INT64_MAX for neither."""
        if position + HEADER_BYTES <= inode.surviving_bytes:
            return parse_header(inode.durable, position).base_offset
        files = replica.host.fs.surviving_files(replica.directory)
        later = [each for each in files if each.endswith(names.LOG) and each > name]
        return int(min(later).removesuffix(names.LOG)) if later else INT64_MAX

    # ---- the operator

    def _operate_later(self, chance: Chance, replica: ReplicaLocation) -> None:
        self._world.after(chance.spread(2 * SECOND, 30 * SECOND), self._operate, replica)

    def _operate(self, replica: ReplicaLocation) -> None:
        """Let it be fetched again, once another replica is in sync and this one may stop."""
        host, spot = replica.host, (replica.host.node_id, replica.key)
        if self._is_over or not self.dirty.is_rotten(*spot):
            return
        may_stop = host.process is not None and self.dirty.may_stop(host.node_id)
        may_stop = may_stop and self.dirty.is_spare(host.node_id, replica.key)
        if self._wipe is None and may_stop and not self.dirty.has_flipped_bits(*spot):
            self._let_another_lead(replica)
        elif self._wipe is None and may_stop:
            host.kill()
            files = host.fs.files(replica.directory)
            moved = {name: inode.repaired(inode.data) for name, inode in files.items()}
            host.fs.remove_dir(replica.directory)
            host.fs.sync_dir(replica.directory.rpartition("/")[0])
            self._world.note(-1, f"{replica.directory} of {host.node_id} is moved away")
            self.dirty.is_rotten(host.node_id, replica.key)
            self._keep_down(host, 100 * MS)
            self._world.after(_LOOK_US, self._look_after, replica, moved)
        else:
            self._world.after(_LOOK_US, self._operate, replica)

    def _look_after(self, replica: ReplicaLocation, moved: dict[str, bytes]) -> None:
        """Wait until it is fetched again; restore it, whole, if no other replica is in sync any more."""
        host, state = replica.host, self.dirty.partition(replica.key)
        is_gone = state is None or host.node_id not in state.replicas
        if is_gone or self.dirty.is_hosted(host.node_id, replica.key):
            return
        is_last = state is not None and state.isr == (host.node_id,)
        is_last = is_last and not host.fs.exists(replica.directory)
        may_stop = self._is_over or self.dirty.may_stop(host.node_id)
        if not (is_last and may_stop and host.process is not None and host.process.is_ready):
            self._world.after(_LOOK_US, self._look_after, replica, moved)
            return
        host.kill()
        host.fs.make_dir(replica.directory)
        for name, data in moved.items():
            file = host.fs.open(f"{replica.directory}/{name}", create=True)
            file.append(data)
            file.sync()
        for path in (replica.directory, replica.directory.rpartition("/")[0]):
            host.fs.sync_dir(path)
        self._world.note(-1, f"{replica.directory} of {host.node_id} is put back whole")
        host.start()

    def _let_another_lead(self, replica: ReplicaLocation) -> None:
        """Restart a leader that lost leader epochs: as a follower it takes them from the tier."""
        host, state = replica.host, self.dirty.partition(replica.key)
        if state is not None and state.leader == host.node_id:
            self._world.note(-1, f"{host.node_id} restarts, without leader epochs")
            host.kill()
            self._keep_down(host, 100 * MS)
        self._world.after(_LOOK_US, self._operate, replica)

    def heal(self) -> None:
        """Restore a good copy where bits are still wrong.

        With a tier, broker after broker, each stopped in order: if all replicas die soon after DeleteRecords,
        a log start offset that is in no checkpoint yet goes back, as with Kafka, and the records are back.
        """
        super().heal()
        damaged: dict[int, list[str]] = {}
        for node_id, directory in self.dirty.rotten():
            damaged.setdefault(node_id, []).append(directory)
        is_tiered = self._options.cluster is not None and self._options.cluster.tier is not None
        for number, (node_id, directories) in enumerate(damaged.items()):
            if is_tiered:
                self._world.after(number * _APART_US, self._stop_and_put_back, node_id, directories)
            else:
                self._put_back(node_id, directories)

    def _put_back(self, node_id: int, directories: list[str]) -> None:
        host = self._hosts[node_id]
        host.kill()
        for directory in directories:
            for inode in host.fs.files(directory).values():
                for at, mask in list(inode.flipped.items()):
                    for bit in range(8):
                        if mask >> bit & 1:
                            inode.flip(at, bit)
            self._world.note(-1, f"{directory} of {node_id} is put back whole")

    def _stop_and_put_back(self, node_id: int, directories: list[str]) -> None:
        host = self._hosts[node_id]

        def stopped() -> None:
            self._put_back(node_id, directories)
            host.start()

        if host.process is None or not host.process.is_ready:
            stopped()
        else:
            host.stop(stopped)


def _is_read(data: bytes) -> bool:
    try:
        leader_epoch_checkpoint.decode(data)
    except ValueError:
        return False
    return True
