"""Snapshots of the metadata in a node's directory: found, and checked from header to footer. WORLD.

Source: KIP-630 'Snapshot Format'.
"""

import logging
import os
from typing import NamedTuple

from firnline.base.errors import KafkaError, ProtocolError
from firnline.base.ids import OffsetAndEpoch
from firnline.metadata.snapshot_file import SUFFIX, parse_snapshot_name
from firnline.records.batch import crc_is_right
from firnline.records.control import ControlType, decode_key
from firnline.records.record import records
from firnline.spark.log_lines import warn
from firnline.spark.tables.files import Placed, Span, SpanMaker, reading, refuse, walk

_log = logging.getLogger(__name__)


class CheckedSnapshot(NamedTuple):
    """A snapshot and its batches in spans. Offsets inside it count from 0; `place.offset` is exclusive."""

    place: OffsetAndEpoch
    path: str
    spans: tuple[Span, ...]


def find_snapshots(path: str) -> dict[OffsetAndEpoch, str]:
    """Return the files of the complete snapshots in the directory of a metadata log, the oldest first.

    Logs a line for each that its node has set aside as damaged.
    """
    found: dict[OffsetAndEpoch, str] = {}
    for name in sorted(os.listdir(path)):
        if name.endswith(SUFFIX + ".damaged"):
            warn(_log, "the node has set a damaged snapshot aside", path=f"{path}/{name}")
        place = parse_snapshot_name(name)
        if place is not None and place.offset > 0:
            found.setdefault(place, os.path.join(path, name))
    return found


def check_snapshot_file(path: str, place: OffsetAndEpoch) -> CheckedSnapshot:
    """Check every batch: CRC, offset, epoch; the header first, the footer last. StorageError for damage."""
    maker = SpanMaker(path)
    at = offset = 0
    has_header = has_footer = False
    with reading(path) as fd:
        size = os.fstat(fd).st_size
        try:
            for found in walk(fd, 0, size):
                header = found.header
                if not crc_is_right(found.data, header):
                    refuse(path, at, "a batch has another CRC than it says")
                if (header.base_offset, header.leader_epoch) != (offset, place.epoch):
                    refuse(
                        path,
                        at,
                        "a batch has another offset or epoch than its place in the snapshot",
                    )
                kinds = _controls(found)
                if has_footer:
                    refuse(path, at, "a batch after the footer")
                has_header |= ControlType.SNAPSHOT_HEADER in kinds
                has_footer |= ControlType.SNAPSHOT_FOOTER in kinds
                if not has_header:
                    refuse(path, at, "records before the header")
                maker.add(found)
                at, offset = found.position + header.size_bytes, header.next_offset
        except (KafkaError, ProtocolError) as problem:
            refuse(path, at, str(problem))
    if at < size or not has_footer:
        refuse(path, at, "the snapshot ends early: there is no footer")
    maker.close()
    return CheckedSnapshot(place, path, tuple(maker.spans))


def _controls(found: Placed) -> set[int]:
    if not found.header.is_control:
        return set()
    return {decode_key(row.key) for row in records(found.data, found.header)}
