"""How much faster are the bulk decoders than a plain one, and does the batch size matter?

Baseline: `decode_python`, one Python object per field, in the same process on the same bytes; all
give Arrow. Targets: spark-T1 (numpy at least 15x for values of 100 bytes, 5x for 1 KiB; none and lz4),
spark-T2 (compiled code at least 3x numpy for 100 bytes that are not compressed) and spark-T3 (numpy with
batches of 16 KiB and of 1 MB differs by at most 2x). CPU time of one core, best of several.

    PYTHONPATH=src python bench/spark_decode.py
"""

import time
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from firnline.base.units import KIB, MIB
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import LZ4, NAMES, NONE, ZSTD
from firnline.spark import decode, decode_python
from firnline.spark.schema import COLUMNS, NUMPY, OFFICIAL_COLUMNS, Wanted

WORDS = [b"delayed", b"boarding", b"departed", b"cancelled", b"gate", b"crew", b"weather", b"taxi"]


class Shape(NamedTuple):
    value_bytes: int
    batch_bytes: int
    codec: int

    def __str__(self) -> str:
        return f"{self.value_bytes:>4} B, {self.batch_bytes // KIB:>4} KiB, {NAMES[self.codec]}"


def segment(shape: Shape, *, total_bytes: int) -> tuple[bytes, int]:
    """Return about `total_bytes` of uncompressed records as a segment, and their number."""
    rnd = Random(7)
    per_batch = max(1, shape.batch_bytes // (shape.value_bytes + 50))
    out, offset = bytearray(), 0
    headers = (("trace", b"0123456789abcdef"), ("type", b"flight"))
    while offset * (shape.value_bytes + 50) < total_bytes:
        rows = []
        for i in range(per_batch):
            value = rnd.randbytes(24).hex().encode()
            while len(value) < shape.value_bytes:
                value += b" " + rnd.choice(WORDS)
            rows.append(
                NewRecord(b"%016d" % (offset + i), value[: shape.value_bytes], 10**12 + i, headers)
            )
        out += build_batch(rows, base_offset=offset, codec=shape.codec)
        offset += per_batch
    return bytes(out), offset


def nanoseconds_per_record(run: Callable[[], object], records: int, *, repeats: int) -> float:
    """Return the best CPU time of `repeats` runs, per record."""
    best = float("inf")
    for _ in range(repeats):
        begun = time.process_time()
        run()
        best = min(best, time.process_time() - begun)
    return best / records * 1e9


def bulk(data: bytes, wanted: Wanted, records: int) -> float:
    """Return what a bulk decoder takes per record."""
    return nanoseconds_per_record(lambda: list(decode.decode(data, wanted)), records, repeats=7)


def main() -> None:
    """Print one line per shape, and the targets that were missed."""
    costs: dict[Shape, float] = {}
    missed = []
    print(
        "value, batch, codec        | columns | C ns | numpy ns | plain ns | numpy / plain | target"
    )
    for value_bytes in (100, 1024):
        for codec in (NONE, LZ4, ZSTD):
            for batch_bytes in (16 * KIB, MIB):
                shape = Shape(value_bytes, batch_bytes, codec)
                data, records = segment(shape, total_bytes=8 * MIB)
                for columns in (COLUMNS, OFFICIAL_COLUMNS):
                    wanted = Wanted("t", 0, columns)
                    compiled = bulk(data, wanted, records)
                    fast = bulk(data, wanted._replace(decoder=NUMPY), records)
                    plain = nanoseconds_per_record(
                        lambda w=wanted, d=data: list(decode_python.decode(d, w)),
                        records,
                        repeats=2,
                    )
                    target = None if codec == ZSTD else 15 if value_bytes == 100 else 5
                    ratio = plain / fast
                    print(
                        f"{shape!s:<26} | {len(columns):>7} | {compiled:>4.0f} | {fast:>8.0f} |"
                        f" {plain:>8.0f} | {ratio:>4.1f}x | {f'{target}x' if target else '-'}"
                    )
                    if target and ratio < target:
                        missed.append(f"T1 {shape}")
                    if codec == NONE and value_bytes == 100 and fast < 3 * compiled:
                        missed.append(f"T2 {shape}")
                    if columns is COLUMNS:
                        costs[shape] = fast
    for shape, cost in costs.items():
        if shape.batch_bytes == MIB:
            small = costs[shape._replace(batch_bytes=16 * KIB)]
            ratio = max(cost, small) / min(cost, small)
            print(
                f"T3 {shape.value_bytes} B {NAMES[shape.codec]}: 1 MiB / 16 KiB {cost / small:.2f}x"
            )
            if ratio > 2:
                missed.append(f"T3 {shape}")
    print("missed: " + ", ".join(missed) if missed else "every target met")


if __name__ == "__main__":
    main()
