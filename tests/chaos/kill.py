"""Kill a broker in the middle of its work and start it again, as often as asked. WORLD."""

import random
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from firnline.records.build import NewRecord, build_batch
from firnline.testing.plugin import Broker
from tests.chaos.workload import Workload, append, make_topic, read_all, violations

TOPIC, PARTITIONS = "killed", 3
# A broker that waited for its own dead session would not come back within the test.
OPTIONS = ("-X", "broker.session.timeout.ms=600000")


@dataclass
class Report:
    """What a run of faults came to. Times in milliseconds.

    kinds  how many faults of each kind, where there are several
    """

    faults: int = 0
    acked: int = 0
    violations: list[str] = field(default_factory=list)
    back_ms: list[float] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        back = (
            f"; accepts again after {statistics.median(self.back_ms):.0f} ms"
            f" (median, {max(self.back_ms):.0f} at most)"
            if self.back_ms
            else ""
        )
        kinds = ", ".join(f"{self.kinds[kind]} {kind}" for kind in sorted(self.kinds))
        faults = f"{self.faults} faults ({kinds})" if kinds else f"{self.faults} faults"
        return f"{faults}, {self.acked} records acknowledged{back}"


def run_kills(directory: Path, cycles: int, seed: int) -> Report:
    """Kill -9 in mid-produce, `cycles` times; then every record is there once and in order."""
    rng = random.Random(seed)
    report = Report()
    broker = Broker(directory, options=OPTIONS)
    broker.start()
    try:
        # Small segments, so that kills meet rolls, index files and producer snapshots.
        make_topic(broker.bootstrap, TOPIC, PARTITIONS, internal_segment_bytes="65536")
        make_topic(broker.bootstrap, "probe", 1)
        with Workload(broker.bootstrap, TOPIC, PARTITIONS) as work:
            for _ in range(cycles):
                work.await_acks(100)
                time.sleep(rng.uniform(0, 0.3))
                broker.kill()
                report.faults += 1
                started = time.monotonic()
                broker.start()
                probe(broker)
                report.back_ms.append((time.monotonic() - started) * 1000)
            work.await_acks(100)
            work.finish()
        acked = work.acked()
        report.acked = sum(map(len, acked.values()))
        found = read_all(broker.bootstrap, TOPIC, PARTITIONS)
        report.violations = violations(acked, found, work.sent)
        if "Traceback" in broker.log_text():
            report.violations.append("a traceback in the broker's log")
    finally:
        if broker.process is not None:
            broker.stop()
    return report


def probe(broker: Broker) -> None:
    """Have one record acknowledged."""
    answer = append(broker, "probe", build_batch([NewRecord(b"k", b"v", 1)]))
    assert answer.error_code == 0, answer
