"""A metadata log on a simulated disk, small segments, and what every state of it has to obey."""

from typing import Any

from firnline.base.effects import Effects
from firnline.base.errors import StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.log.checkpoint import format_directory
from firnline.log.directory import LogDirectory
from firnline.metadata import records as r
from firnline.metadata.meta_log import MetaLog, open_meta_log
from firnline.metadata.snapshot_file import parse_snapshot_name, read_snapshot, snapshot_batches
from firnline.raft.ports import SnapshotPart
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from firnline.sim.disk import CrashableFile, CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.effects import World, carried_out
from tests.worlds.quorum import broker_config

CONFIG = broker_config(internal_metadata_log_segment_bytes="400")
DIR = "/data/__cluster_metadata-0"
DELETE_DELAY_MS = 60_000
NOW = 1_000


class PowerCut(BaseException):
    """The power went."""


class CuttingFs(CrashableFs):
    """Raises PowerCut instead of the operation number `cut_at`, of all that change the disk."""

    cut_at: int | None = None
    done: list[tuple[str, str]]

    def check(self, operation: Any, path: str) -> None:
        super().check(operation, path)
        if operation not in ("read", "open"):
            self._step(operation, path)

    def open(self, path: str, *, create: bool = False) -> CrashableFile:
        if create and not self.exists(path):
            self._step("create", path)
        return super().open(path, create=create)

    def remove(self, path: str) -> None:
        if self.exists(path):
            self._step("remove", path)
        super().remove(path)

    @property
    def count(self) -> int:
        return len(self.__dict__.setdefault("done", []))

    def _step(self, operation: str, path: str) -> None:
        """Write down what is done to the disk, or cut the power before it."""
        if self.count == self.cut_at:
            raise PowerCut
        self.done.append((operation, path.rpartition("/")[2]))


def a_disk(kind: type[CrashableFs] = CrashableFs) -> Any:
    fs = kind()
    fs.make_dir("/data")
    fs.sync_dir("/")
    return fs


def opened(fs: CrashableFs, directory: LogDirectory | None = None) -> MetaLog:
    return open_meta_log(fs, CONFIG, now_ms=NOW, directory=directory)


def in_use(fs: CrashableFs) -> LogDirectory:
    """The log directory with its checkpoints, formatted if it is not."""
    if not fs.exists("/data/meta.properties"):
        format_directory(fs, "/data", cluster_id="c", node_id=1, directory_id=SeededRng(1).uuid())
    directory = LogDirectory(fs, "/data", cluster_id="c", node_id=1, unique=SeededRng(2).uuid)
    directory.start()
    return directory


def batch_at(offset: int, epoch: int, count: int = 1, tag: str = "") -> bytes:
    """A leader's batch of `count` records that say where they are."""
    rows = [
        NewRecord(None, f"{offset + n}@{epoch}{tag}".encode().ljust(40, b"."), NOW)
        for n in range(count)
    ]
    return bytes(build_batch(rows, base_offset=offset, leader_epoch=epoch))


def extend(log: MetaLog, *epochs: int) -> None:
    """Append one record of each epoch, as a follower."""
    if log.lost_beginning:
        truncate(log, 0)
    for epoch in epochs:
        assert log.append_fetched(batch_at(log.end_offset, epoch), now_ms=NOW) is None


def sync(log: MetaLog) -> None:
    end_offset = log.end_offset
    for file in log.unsynced():
        file.sync()
    log.synced(end_offset)


def commit(log: MetaLog, offset: int | None = None) -> None:
    sync(log)
    log.advance_high_watermark(log.end_offset if offset is None else offset)


def snapshot_bytes(snapshot_id: OffsetAndEpoch, topics: int = 3) -> bytes:
    """A snapshot whose content says which id it is of."""
    end, epoch = snapshot_id
    content = [
        r.TopicRecord(name=f"{end}-{epoch}-{n}", topic_id=(n + 1).to_bytes(16, "big"))
        for n in range(topics)
    ]
    batches = snapshot_batches(
        content, epoch=epoch, metadata_version=30, last_contained_ms=end, now_ms=NOW
    )
    return b"".join(batches)


def part_of(log: MetaLog, snapshot_id: OffsetAndEpoch) -> SnapshotPart:
    """A part that is whole and synced."""
    part = log.start_part(snapshot_id)
    data = snapshot_bytes(snapshot_id)
    for start in range(0, len(data), 100):
        assert part.append(data[start : start + 100]) is None
    assert part.problem() is None
    for file in part.files():
        file.sync()
    return part


def freeze(log: MetaLog, snapshot_id: OffsetAndEpoch) -> None:
    """Take a snapshot of our own, as the snapshotter does."""
    part = part_of(log, snapshot_id)
    log.give_name(part).sync()
    log.register(part)


def retire(log: MetaLog, offset: int) -> World:
    """Raise the log start, durably; return the world, which has what is left for later."""
    return carried_out(log.retire_snapshots(offset, now_ms=NOW), NOW)


def install(log: MetaLog, snapshot_id: OffsetAndEpoch) -> None:
    """Install to the end of what is done now."""
    carried_out(log.install(part_of(log, snapshot_id), _do_nothing, _unhurt, NOW), NOW)


def truncate(log: MetaLog, offset: int) -> None:
    """Cut to the end."""
    world = carried_out(log.truncate_to(offset, _unhurt, NOW), NOW)
    assert (world.timers, world.warnings) == ({}, [])


def _do_nothing(now_ms: int) -> Effects:
    return []


def _unhurt(problem: StorageError | None, now_ms: int) -> Effects:
    if problem is not None:
        raise problem
    return []


def ids(log: MetaLog) -> list[OffsetAndEpoch]:
    return [row[0] for row in log.snapshot_sizes()]


def found(log: MetaLog) -> list[tuple[int, int, bytes]]:
    """Offset, epoch and bytes of every batch from the log start on."""
    rows, offset = [], log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, max_bytes=1000)
        for header in headers(data):
            end = header.position + header.size_bytes
            if header.base_offset >= log.start_offset:
                rows.append((header.base_offset, header.leader_epoch, data[header.position : end]))
            offset = header.next_offset
    return rows


def check(log: MetaLog, fs: CrashableFs) -> None:
    """What is true of every metadata log that was opened: rel-Q8, rel-Q10, rel-Q11, Q42-Q44."""
    start, end = log.start_offset, log.end_offset
    stored = ids(log)
    assert start == 0 or start in [one.offset for one in stored], "Q42"
    assert all(start <= one.offset <= end for one in stored), "rel-Q8"
    names = fs.list_dir(DIR)
    on_disk = [one for one in map(parse_snapshot_name, names) if one is not None and one.offset]
    assert sorted(on_disk) == sorted(stored)
    for name in names:
        if parse_snapshot_name(name) is not None:
            read_snapshot(fs, f"{DIR}/{name}")  # rel-Q10: whole
    if start == end and end > 0:
        assert log.newest_snapshot_id is not None
        assert (end, log.last_epoch) == log.newest_snapshot_id, "rel-Q11"
    assert log.synced_offset <= end
    batches = found(log)
    assert [row[0] for row in batches] == sorted(row[0] for row in batches)
    if batches:
        assert batches[0][0] == start
        assert batches[-1][1] == log.last_epoch
