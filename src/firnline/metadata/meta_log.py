"""`__cluster_metadata-0` on disk, in the shape the quorum asks for. STORE.

The log is an ordinary partition log; beside its segments lie `quorum-state` and the snapshots. A snapshot
that is ahead of the log wins: the node stopped between its rename and the truncation. Source: KIP-595,
KIP-630; spec Q5, Q6, Q10, Q12, Q44.
"""

from collections.abc import Sequence

from firnline.base.errors import ConfigError, KafkaError, StorageError
from firnline.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID, OffsetAndEpoch, TopicPartition
from firnline.base.ports import File, Fs
from firnline.config.broker import BrokerConfig
from firnline.config.topic import TopicConfig
from firnline.log.checkpoint import read_whole, write_durably, write_partition_metadata
from firnline.log.directory import LogDirectory
from firnline.log.log import Log
from firnline.log.recovery import open_log
from firnline.metadata.snapshot_file import (
    BOOTSTRAP,
    parse_snapshot_name,
    read_snapshot,
)
from firnline.protocol.schema import Message
from firnline.raft.election_state import (
    ElectionState,
    decode_election_state,
    encode_election_state,
)

QUORUM_STATE = "quorum-state"
_PARTITION = TopicPartition(METADATA_TOPIC, 0)
_EMPTY = OffsetAndEpoch(0, 0)


def open_meta_log(
    fs: Fs,
    config: BrokerConfig,
    *,
    now_ms: int,
    directory: LogDirectory | None = None,
) -> "MetaLog":
    """Open `__cluster_metadata-0` in the metadata log directory, made if it is missing.

    `directory` is that directory in use: its marker and its checkpoint say what needs no recovery, and the
    log's recovery point is written down there from now on. Without one the whole log is looked over.
    StorageError when the log is damaged below its recovery point.
    """
    log_dir = config.metadata_directory
    recovery_point = 0 if directory is None else directory.recovery_point(_PARTITION)
    path = f"{log_dir}/{_PARTITION}"
    is_new = not fs.exists(path)
    log = open_log(
        fs,
        path,
        _PARTITION,
        topic_id=METADATA_TOPIC_ID,
        config=TopicConfig(
            cleanup_policy=(),
            max_message_bytes=config.internal_metadata_max_batch_size_in_bytes,
            file_delete_delay_ms=config.internal_metadata_delete_delay_millis,
            retention_ms=-1,
            segment_bytes=config.internal_metadata_log_segment_bytes
            or config.metadata_log_segment_bytes,
            segment_ms=config.metadata_log_segment_ms,
        ),
        now_ms=now_ms,
        # A marker without our entry is Kafka's, which closes this log after it wrote the marker.
        was_clean=directory is not None and directory.was_clean and recovery_point > 0,
        recovery_point=recovery_point,
        before_truncation=None if directory is None else directory.write_recovery_points,
    )
    if directory is not None:
        directory.include(log)
    if is_new:
        write_partition_metadata(fs, path, METADATA_TOPIC_ID)
        fs.sync_dir(log_dir)
    return MetaLog(fs, log, log_dir)


class QuorumStateFile:
    """Epoch and vote in `quorum-state`, replaced durably before they take effect."""

    def __init__(self, fs: Fs, directory: str, voter_ids: tuple[int, ...]) -> None:
        self._fs = fs
        self._path = f"{directory}/{QUORUM_STATE}"
        self._voter_ids = voter_ids

    def load(self) -> ElectionState | None:
        """The saved state; None before the first election of this directory."""
        data = read_whole(self._fs, self._path)
        return None if data is None else decode_election_state(data, path=self._path)

    def save(self, state: ElectionState) -> None:
        """Replace the file; what was saved survives a power cut when this returns."""
        write_durably(self._fs, self._path, encode_election_state(state, self._voter_ids))


class MetaLog:
    """Adapts `log.Log` to the port of `raft` and `metadata/quorum`.

    `log_dir` is the directory that holds `__cluster_metadata-0` and `bootstrap.checkpoint`.
    """

    def __init__(self, fs: Fs, log: Log, log_dir: str) -> None:
        self._fs = fs
        self._log = log
        self._log_dir = log_dir
        # None for no snapshot; 0-0 is one, in which `storage format` of Kafka puts dynamic voters.
        self._snapshot_id = max(
            filter(None, map(parse_snapshot_name, fs.list_dir(log.path))),
            key=lambda snapshot_id: (snapshot_id.epoch, snapshot_id.offset),
            default=None,
        )
        if self._snapshot_id is not None and self._snapshot_id.offset > log.log_end_offset:
            log.truncate_fully(self._snapshot_id.offset)

    @property
    def start_offset(self) -> int:
        """First offset the log has, inclusive."""
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        """Offset the next record gets."""
        return self._log.log_end_offset

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, or of the snapshot before it; 0 for neither (Q4)."""
        return max(self._log.epochs.latest_epoch, (self._snapshot_id or _EMPTY).epoch)

    def append(self, batch: bytearray, *, epoch: int, now_ms: int) -> int:
        """Append one batch of the quorum's own; return its base offset."""
        outcome = self._log.append_as_leader(
            batch, leader_epoch=epoch, now_ms=now_ms, origin="coordinator"
        )
        if isinstance(outcome, KafkaError):
            raise StorageError("the metadata log refused a batch of ours", problem=outcome)
        return outcome.base_offset

    def unsynced(self) -> Sequence[File]:
        """The files a sync must cover."""
        return self._log.dirty_files()

    def synced(self, end_offset: int) -> None:
        """Everything below `end_offset` survives a power cut."""
        self._log.flushed(end_offset)

    def advance_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is committed."""
        self._log.advance_high_watermark(offset)

    def read(self, start_offset: int, *, max_bytes: int) -> bytes:
        """Whole batches from `start_offset` on; empty at the end."""
        return self._log.read_batches(start_offset, max_bytes=max_bytes)

    @property
    def newest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The newest complete snapshot; None for none."""
        return self._snapshot_id

    def open_snapshot(self, snapshot_id: OffsetAndEpoch) -> "_SnapshotFile | None":
        """Open a snapshot for reading; None when it is not here."""
        for name in self._fs.list_dir(self._log.path):
            if parse_snapshot_name(name) == snapshot_id:
                return _SnapshotFile(self._fs.open(f"{self._log.path}/{name}"))
        return None

    def bootstrap_records(self) -> Sequence[Message]:
        """The records `storage format` left in `bootstrap.checkpoint`."""
        path = f"{self._log_dir}/{BOOTSTRAP}"
        if not self._fs.exists(path):
            raise ConfigError(
                f"{self._log_dir} has neither metadata nor {BOOTSTRAP}: format it first, with"
                " `firnline storage format`"
            )
        return read_snapshot(self._fs, path).records

    def close(self) -> None:
        """Sync and close the log: the next start has nothing to recover."""
        self._log.close()

    @property
    def log(self) -> Log:
        """The partition log beneath, for checkpoints and retention of the log directory."""
        return self._log


class _SnapshotFile:
    """A snapshot that is open for reading."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.size_bytes = file.size()

    def read(self, position: int, size: int) -> bytes:
        return self._file.read(position, size)

    def close(self) -> None:
        self._file.close()
