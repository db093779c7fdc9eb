"""Snapshots whose bytes a disk has altered: found at the start, set aside, and what went with them. STORE.

A damaged snapshot keeps its name, with a suffix that nobody loads: an older one and the log stand in for it,
or the leader's. A voter that has less of the log after that than it had before would elect a leader without
what it promised to have, so the place it must reach again is in a file's name: that of the snapshot, or of an
empty file where the log behind it went too. A name lasts over any restart. Source: KIP-630; spec Q17, Q37.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from firnline.base.effects import Effects, Warn
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import OffsetAndEpoch
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
    """Every complete snapshot of a directory but 0-0: what the sound ones are, and what ails the others."""

    sound: dict[OffsetAndEpoch, StoredSnapshot]
    damaged: dict[OffsetAndEpoch, KafkaError]


def examine(fs: Fs, directory: str) -> Examined:
    """Read every snapshot whole and check it as one that comes over the network is checked (Q37)."""
    found = Examined({}, {})
    for snapshot_id, name in stored_names(fs, directory).items():
        if snapshot_id.offset > 0:
            fact = judge_snapshot(fs, f"{directory}/{name}", snapshot_id)
            if isinstance(fact, KafkaError):
                found.damaged[snapshot_id] = fact
            else:
                found.sound[snapshot_id] = fact
    return found


def judge_snapshot(fs: Fs, path: str, snapshot_id: OffsetAndEpoch) -> StoredSnapshot | KafkaError:
    """Return what is to know of a whole snapshot, or what is wrong with the file."""
    check = SnapshotCheck()
    file = fs.open_to_read(path)
    try:
        size_bytes = file.size()
        for position in range(0, size_bytes, _READ_BYTES):
            problem = check.feed(file.read(position, _READ_BYTES))
            if problem is not None:
                return problem
    except StorageError:
        raise  # the device: nothing is known of the bytes
    except Exception as problem:  # noqa: BLE001 - whatever damage makes a decoder do, it is damage
        return KafkaError(Code.CORRUPT_MESSAGE, "it cannot be read", problem=repr(problem))
    finally:
        file.close()
    return check.problem() or StoredSnapshot(snapshot_id, size_bytes, check.last_contained_ms)


def set_aside(fs: Fs, directory: str, snapshot_ids: Iterable[OffsetAndEpoch]) -> None:
    """Take damaged snapshots out of use, durably; their names go on to say what was lost."""
    names = stored_names(fs, directory)
    for snapshot_id in snapshot_ids:
        path = f"{directory}/{names[snapshot_id]}"
        fs.rename(path, f"{directory}/{snapshot_name(snapshot_id)}{DAMAGED}")
    fs.sync_dir(directory)


def told_of_damage(directory: str, damaged: Mapping[OffsetAndEpoch, KafkaError]) -> Effects:
    """Say what an operator has to know of a start that found damage."""
    return [
        Warn(
            line=f"{directory}/{snapshot_name(snapshot_id)} is damaged: {problem}. It was set aside as"
            f" {snapshot_name(snapshot_id)}{DAMAGED}; an older snapshot and the log stand in for it, or the"
            " leader's. Look at the disk"
        )
        for snapshot_id, problem in damaged.items()
    ]


def mark_forgotten(fs: Fs, directory: str, end: OffsetAndEpoch) -> None:
    """Write down, durably, that the log reached that far, before it is begun anew."""
    path = f"{directory}/{_mark(end)}"
    if fs.exists(path):
        return
    fs.open(path, create=True).close()
    fs.sync_dir(directory)


def once_reached(fs: Fs, directory: str) -> OffsetAndEpoch | None:
    """The furthest place that the names of the directory say its log once had; None for no such name."""
    ids = [*set_aside_ids(fs, directory), *_marks(fs, directory)]
    return max(ids, key=lambda one: (one.epoch, one.offset), default=None)


def set_aside_ids(fs: Fs, directory: str) -> list[OffsetAndEpoch]:
    """Return which snapshots were set aside, and still lie there."""
    return _ids(fs, directory, DAMAGED)


def remove_marks(fs: Fs, directory: str) -> None:
    """The log is there again."""
    for end in _marks(fs, directory):
        fs.remove(f"{directory}/{_mark(end)}")


def remove_set_aside(fs: Fs, directory: str, *, before_offset: int) -> None:
    """Remove damaged snapshots that would have been retired by now."""
    for snapshot_id in set_aside_ids(fs, directory):
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
    """Return what a log once reached, as such a file's name says; None for other files."""
    stem = name.removesuffix(DAMAGED).removesuffix(FORGOTTEN)
    return None if stem == name else parse_snapshot_name(stem.removesuffix(SUFFIX) + SUFFIX)
