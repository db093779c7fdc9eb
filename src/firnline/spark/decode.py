"""Decode segment bytes to Arrow RecordBatches, without a Python object per record. SPARK.

Batches are decompressed in groups. Compiled code lays out the records of a group, or numpy where there is no
such code (`decoding`). Batches whose headers say all that is wanted are not opened. When a check fails, the
reference implementation reads the group again and names the bad record. Source: spark section 2.
"""

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from firnline.base.errors import FirnlineError
from firnline.base.native import native
from firnline.base.ports import Buffer
from firnline.records.batch import COMPRESSION_MASK, HEADER_BYTES
from firnline.spark import decode_python
from firnline.spark.bodies import open_body
from firnline.spark.decoding import native_records, numpy_records
from firnline.spark.decoding.columns import RECORD_BYTES_MIN, Group, needs_numbers, record_batch
from firnline.spark.decoding.header_rows import decode_headers, need_no_bodies
from firnline.spark.decoding.varints import Corrupt
from firnline.spark.frames import Frames, Mask, check_crcs, find_frames, select_frames
from firnline.spark.schema import NUMPY, PYTHON, CorruptSegment, Wanted


def decode(data: Buffer, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """Decode the complete batches of `data`, as in a Fetch response: a partial one at the end is skipped.

    Yields RecordBatches of about `wanted.chunk_bytes` decompressed bytes, in offset order, that own their
    memory. Raises CorruptSegment with the offset for an invalid batch.
    """
    yield from decode_frames(data, find_frames(data, source=wanted.source), wanted)


def decode_frames(data: Buffer, frames: Frames, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """Decode the batches `frames` found in `data`; see `decode`."""
    if wanted.decoder == PYTHON:
        complete = memoryview(data)[: int(frames.ends[-1])] if len(frames.ends) else b""
        yield from decode_python.decode(complete, wanted)
        return
    chosen = select_frames(frames, wanted)
    if not len(chosen.begins):
        return
    if wanted.verify_crc:
        check_crcs(data, chosen, wanted)
    for first, last, is_stated in _runs(need_no_bodies(chosen, wanted.columns)):
        part = chosen.part(first, last)
        yield from decode_headers(part, wanted) if is_stated else _decode_bodies(data, part, wanted)


def _runs(mask: Mask) -> Iterator[tuple[int, int, bool]]:
    """Yield the bounds of neighbours that are alike."""
    edges = [0, *(np.flatnonzero(mask[1:] != mask[:-1]) + 1).tolist(), len(mask)]
    for first, last in itertools.pairwise(edges):
        yield first, last, bool(mask[first])


def _decode_bodies(data: Buffer, frames: Frames, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    for first, last, bodies in _groups(data, frames, wanted):
        part = frames.part(first, last)
        try:
            batch = _decode_group(_join(data, part, bodies), wanted)
        except (Corrupt, IndexError, pa.ArrowInvalid) as problem:
            raise _explain(data, part, wanted, problem) from None
        if batch is not None:
            yield batch


def _groups(
    data: Buffer, frames: Frames, wanted: Wanted
) -> Iterator[tuple[int, int, list[Buffer] | None]]:
    """Split the batches into groups of about `chunk_bytes` decompressed bytes; None for uncompressed
    bodies.
    """
    codecs = (frames.column("attributes") & COMPRESSION_MASK).tolist()
    begins, ends = frames.begins.tolist(), frames.ends.tolist()
    if not any(codecs):
        yield from _cut_evenly(begins, ends, wanted.chunk_bytes)
        return
    bodies: list[Buffer] = []
    first = size = 0
    view = memoryview(data)
    for i, codec in enumerate(codecs):
        try:
            body = open_body(codec, view[begins[i] + HEADER_BYTES : ends[i]])
        except FirnlineError as problem:
            raise CorruptSegment(
                "a batch cannot be decompressed",
                segment=wanted.source,
                topic=wanted.topic,
                partition=wanted.partition,
                offset=int(frames.heads["base_offset"][i]),
                problem=problem,
            ) from None
        if bodies and size + len(body) > wanted.chunk_bytes:
            yield first, i, bodies
            bodies, first, size = [], i, 0
        bodies.append(body)
        size += len(body)
    yield first, len(codecs), bodies


def _cut_evenly(
    begins: list[int], ends: list[int], chunk_bytes: int
) -> Iterator[tuple[int, int, None]]:
    total = ends[-1] - begins[0]
    size = max(1, total // max(1, round(total / chunk_bytes)))
    first, limit = 0, begins[0] + size
    for i, end in enumerate(ends):
        if end >= limit and i + 1 < len(ends):
            yield first, i + 1, None
            first, limit = i + 1, end + size
    yield first, len(ends), None


def _join(data: Buffer, frames: Frames, bodies: list[Buffer] | None) -> Group:
    if bodies is None:
        low, high = int(frames.begins[0]), int(frames.ends[-1])
        return Group(
            memoryview(data)[low:high],
            frames.begins - low + HEADER_BYTES,
            frames.ends - low,
            frames,
        )
    ends = np.cumsum(np.array([len(body) for body in bodies], dtype=np.int64))
    begins = np.concatenate(([0], ends[:-1])).astype(np.int64)
    return Group(bodies[0] if len(bodies) == 1 else b"".join(bodies), begins, ends, frames)


def _decode_group(group: Group, wanted: Wanted) -> pa.RecordBatch | None:
    counts = group.frames.column("record_count")
    if (counts * RECORD_BYTES_MIN > group.ends - group.begins).any():
        raise Corrupt("more records than bytes for them")
    if not counts.any():
        if (group.begins != group.ends).any():
            raise Corrupt("bytes after the last record")
        return None
    is_native = native is not None and wanted.decoder != NUMPY
    rows = (native_records if is_native else numpy_records).read_rows(
        group,
        wanted.columns,
        wanted.start_offset,
        wanted.end_offset,
        numbered=needs_numbers(wanted.columns, group.frames),
    )
    return record_batch(rows, group.frames, wanted) if len(rows.offset) else None


def _explain(data: Buffer, frames: Frames, wanted: Wanted, problem: Exception) -> CorruptSegment:
    """Let the reference implementation read the same batches: its error names the batch and the reason."""
    for begin, end in zip(frames.begins.tolist(), frames.ends.tolist(), strict=True):
        try:
            for _ in decode_python.rows(memoryview(data)[begin:end], wanted):
                pass
        except CorruptSegment as found:
            return found
    return CorruptSegment(
        "undecodable records",
        segment=wanted.source,
        topic=wanted.topic,
        partition=wanted.partition,
        from_offset=int(frames.heads["base_offset"][0]),
        problem=problem,
    )
