"""What does the log cost beside the bare system calls? CPU-microseconds, minimum of the rounds.

append   one batch of 100 B, 16 KiB or 128 KiB, without and with a producer id; baseline: `os.write` of the
         same bytes. Bars: 3 us above the write for 100 B, 4 with a producer id.
read     the tail, and 16 KiB from anywhere, as slices; baseline: one `os.pread` of the same size.
recover  a start after a crash: CRC of every batch and all indexes; in MB/s, and the ratio to reading the
         files.
"""

import os
import struct
import tempfile
import time
from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from bench.measure import report
from firnline.base.ids import TopicPartition
from firnline.config.topic import TopicConfig
from firnline.log.log import Log
from firnline.log.recovery import open_log
from firnline.records.build import NewRecord, build_batch
from firnline.runtime.disk import RealFs

NOW = 1_700_000_000_000
ROUNDS = 5


def opened(path: str) -> Log:
    return open_log(
        RealFs(),
        path,
        TopicPartition("bench", 0),
        topic_id=bytes(16),
        config=TopicConfig(segment_bytes=1 << 28),
        now_ms=NOW,
    )


def batches(size_bytes: int, count: int, first_sequence: int) -> list[bytearray]:
    """Return `count` batches; with a sequence, of one idempotent producer."""
    more: dict[str, Any] = {}
    if first_sequence >= 0:
        more = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    template = build_batch([NewRecord(b"k", b"v" * size_bytes, NOW)], **more)
    made = []
    for number in range(count):
        data = bytearray(template)
        if first_sequence >= 0:
            struct.pack_into(">i", data, 53, first_sequence + number)
            struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
        made.append(data)
    return made


def cpu_us(work: Callable[[], None], count: int) -> float:
    begin = time.process_time_ns()
    work()
    return (time.process_time_ns() - begin) / count / 1000


def append_row(directory: str, size_bytes: int, *, idempotent: bool) -> dict[str, Any]:
    count = max(300, min(20_000, (1 << 26) // size_bytes))
    log = opened(f"{directory}/{size_bytes}-{idempotent}")
    bare, ours = [], []
    for turn in range(ROUNDS):
        made = batches(size_bytes, count, turn * count if idempotent else -1)
        fd = os.open(f"{directory}/bare", os.O_RDWR | os.O_CREAT | os.O_TRUNC)

        def write(made: list[bytearray] = made, fd: int = fd) -> None:
            for data in made:
                os.write(fd, data)

        def append(made: list[bytearray] = made) -> None:
            for data in made:
                log.append_as_leader(data, leader_epoch=0, now_ms=NOW)

        bare.append(cpu_us(write, count))
        ours.append(cpu_us(append, count))
        os.close(fd)
    assert log.log_end_offset == ROUNDS * count
    what = f"append {size_bytes} B" + (", idempotent" if idempotent else "")
    return row(what, min(ours), min(bare))


def row(what: str, ours: float, bare: float) -> dict[str, Any]:
    return {
        "what": what,
        "us": round(ours, 2),
        "bare_us": round(bare, 2),
        "above_us": round(ours - bare, 2),
        "ratio": round(ours / bare, 2),
    }


def read_rows(directory: str) -> list[dict[str, Any]]:
    log = opened(f"{directory}/100-False")
    end, count = log.log_end_offset, 4000
    fd = os.open(f"{directory}/100-False/{0:020d}.log", os.O_RDONLY)
    places = [(number * 7919) % (end - 200) for number in range(count)]
    rows = []
    for what, starts, size in (
        ("read the tail", [end - 1] * count, 171),
        ("read 16 KiB anywhere", places, 16384),
    ):

        def ours(starts: list[int] = starts, size: int = size) -> None:
            for start in starts:
                log.read(start, max_bytes=size, upto_offset=end).read()

        def bare(starts: list[int] = starts, size: int = size) -> None:
            for start in starts:
                os.pread(fd, size, start * 171)

        rows.append(
            row(
                what,
                min(cpu_us(ours, count) for _ in range(ROUNDS)),
                min(cpu_us(bare, count) for _ in range(ROUNDS)),
            )
        )
    os.close(fd)
    return rows


def recover_row(directory: str) -> dict[str, Any]:
    path = f"{directory}/16384-True"
    files = [f"{path}/{name}" for name in os.listdir(path) if name.endswith(".log")]
    size = sum(map(os.path.getsize, files))

    def bare() -> None:
        for name in files:
            with open(name, "rb", buffering=0) as file:
                while file.read(1 << 20):
                    pass

    def ours() -> None:
        opened(path)

    found = row(
        "recover 16 KiB batches, per MiB",
        *(min(cpu_us(work, size >> 20) for _ in range(ROUNDS)) for work in (ours, bare)),
    )
    return found | {"MB_per_s": round(1_000_000 / found["us"] * 1.048576)}


def main() -> None:
    """Run every row and print the table."""
    with tempfile.TemporaryDirectory() as directory:
        rows = [
            append_row(directory, size, idempotent=idempotent)
            for size in (100, 16384, 131072)
            for idempotent in (False, True)
        ]
        rows += read_rows(directory)
        rows.append(recover_row(directory))
    report("log: beside the bare system calls", rows)


if __name__ == "__main__":
    main()
