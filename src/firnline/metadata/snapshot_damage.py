"""Snapshots that a disk has damaged: the start finds them, sets them aside, and notes what was lost. STORE.

A damaged snapshot gets the suffix `.damaged` and is not loaded: an older one and the log replace it, or the
leader's. A voter that now has less of the log than before could elect a leader that lacks committed records.
So a file name keeps the place that the voter must reach again, over all restarts: the name of the damaged
snapshot, or that of an empty `.forgotten` file if the log behind it is lost too. Source: KIP-630; spec Q17,
Q37.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.base.log_lines.quorum import SNAPSHOT_DAMAGED
from firnline.base.ports import Fs
from firnline.base.units import MIB
from firnline.metadata.snapshot_file import (
    SUFFIX,
    SnapshotCheck,
    parse_snapshot_name,
    snapshot_name,
    stored_names,
)
from firnline.raft.snapshot_rules import StoredSnapshot

DAMAGED = ".damaged"
FORGOTTEN = ".forgotten"
_READ_BYTES = MIB


class Examined(NamedTuple):
    """The complete snapshots of a directory except 0-0: the sound ones, and the damage of the others."""

    sound: dict[OffsetAndEpoch, StoredSnapshot]
    damaged: dict[OffsetAndEpoch, KafkaError]


def examine(fs: Fs, directory: str) -> Examined:
    """Read and check each snapshot as if it came over the network (Q37)."""
    found = Examined({}, {})
    for snapshot_id, name in stored_names(fs, directory).items():
        if snapshot_id.offset > 0:
            fact = check_snapshot(fs, f"{directory}/{name}", snapshot_id)
            if isinstance(fact, KafkaError):
                found.damaged[snapshot_id] = fact
            else:
                found.sound[snapshot_id] = fact
    return found


def check_snapshot(fs: Fs, path: str, snapshot_id: OffsetAndEpoch) -> StoredSnapshot | KafkaError:
    """Return size and time of a complete snapshot, or the damage of the file."""
    check = SnapshotCheck()
    file = fs.open_to_read(path)
    try:
        size_bytes = file.size()
        for position in range(0, size_bytes, _READ_BYTES):
            problem = check.feed(file.read(position, _READ_BYTES))
            if problem is not None:
                return problem
    except StorageError:
        raise  # the device failed: this says nothing of the bytes
    except Exception as problem:  # noqa: BLE001 - a decoder may raise anything
        return KafkaError(Code.CORRUPT_MESSAGE, "it cannot be read", problem=repr(problem))
    finally:
        file.close()
    return check.problem() or StoredSnapshot(snapshot_id, size_bytes, check.last_contained_ms)


def rename_damaged(fs: Fs, directory: str, snapshot_ids: Iterable[OffsetAndEpoch]) -> None:
    """Rename damaged snapshots, durably; their names keep the place that was lost."""
    names = stored_names(fs, directory)
    for snapshot_id in snapshot_ids:
        path = f"{directory}/{names[snapshot_id]}"
        fs.rename(path, f"{directory}/{snapshot_name(snapshot_id)}{DAMAGED}")
    fs.sync_dir(directory)


def damage_warnings(directory: str, damaged: Mapping[OffsetAndEpoch, KafkaError]) -> Effects:
    """Warn the operator of damage that the start found."""
    return [
        SNAPSHOT_DAMAGED(
            path=f"{directory}/{snapshot_name(snapshot_id)}",
            renamed_to=f"{snapshot_name(snapshot_id)}{DAMAGED}",
            error=problem,
        )
        for snapshot_id, problem in damaged.items()
    ]


def mark_forgotten(fs: Fs, directory: str, end: OffsetAndEpoch) -> None:
    """Create an empty file that says, durably, how far the log reached, before the log begins anew."""
    path = f"{directory}/{_mark(end)}"
    if fs.exists(path):
        return
    fs.open(path, create=True).close()
    fs.sync_dir(directory)


def once_reached(fs: Fs, directory: str) -> OffsetAndEpoch | None:
    """Return the furthest place that the log once had, as the file names say; None for none."""
    ids = [*damaged_ids(fs, directory), *_marks(fs, directory)]
    return max(ids, key=lambda one: (one.epoch, one.offset), default=None)


def damaged_ids(fs: Fs, directory: str) -> list[OffsetAndEpoch]:
    """Return the ids of the damaged snapshots that were set aside."""
    return _ids(fs, directory, DAMAGED)


def remove_marks(fs: Fs, directory: str) -> None:
    """The log has reached that place again: remove the marks."""
    for end in _marks(fs, directory):
        fs.remove(f"{directory}/{_mark(end)}")


def remove_damaged(fs: Fs, directory: str, *, before_offset: int) -> None:
    """Remove damaged snapshots that would be retired by now."""
    for snapshot_id in damaged_ids(fs, directory):
        if snapshot_id.offset < before_offset:
            fs.remove(f"{directory}/{snapshot_name(snapshot_id)}{DAMAGED}")


def _marks(fs: Fs, directory: str) -> list[OffsetAndEpoch]:
    return _ids(fs, directory, FORGOTTEN)


def _mark(end: OffsetAndEpoch) -> str:
    return snapshot_name(end).removesuffix(SUFFIX) + FORGOTTEN


def _ids(fs: Fs, directory: str, suffix: str) -> list[OffsetAndEpoch]:
    places = [place_of(name) for name in fs.list_dir(directory) if name.endswith(suffix)]
    return [place for place in places if place is not None]


def place_of(name: str) -> OffsetAndEpoch | None:
    """Return the place in the name of a `.damaged` or `.forgotten` file; None for other files."""
    stem = name.removesuffix(DAMAGED).removesuffix(FORGOTTEN)
    return None if stem == name else parse_snapshot_name(stem.removesuffix(SUFFIX) + SUFFIX)
