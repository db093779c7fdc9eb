"""Simulated hours that add up: seed after seed, each with one line in ledger/soak.jsonl. WORLD.

    python -m tests.sim.soak [--form cluster|tiered] [--hours 100] [--minutes 60] [--first-seed 1] [--jobs 2]

A line holds commit, form, seeds, hours, faults, records, violations, and the `empty` seeds, in which nobody
had a record acknowledged: they tested nothing, so their hours are left out. A run goes on after the last seed
that the ledger has of this commit and form, so it may be stopped at any time. An hour counts when it had, on
average, a fault in 10 simulated seconds and, of the quorum, 20 committed records a second, of whole clusters
100 that were acknowledged; the totals are printed. The exit code is 1 when a violation was ever found.
"""

import argparse
import os
import sys
import time
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from firnline.sim import report
from firnline.sim.run import QUORUM, ClusterKind, run
from firnline.sim.tier.kinds import CLUSTER, TIERED_CLUSTER
from tests.chaos.soak import LEDGER, append, commit, read_ledger

PIECE = 20  # seeds to a line of the ledger
FAULTS_PER_10_S = 1.0


class Kind(NamedTuple):
    """What is simulated, how the ledger calls it, and which records make an hour count."""

    name: str
    form: ClusterKind
    records: str
    per_s: float


QUORUM_HOURS = Kind("simulate", QUORUM, "committed", 20.0)
CLUSTER_HOURS = Kind("cluster", CLUSTER, "acked", 100.0)
TIERED_HOURS = Kind("tiered", TIERED_CLUSTER, "acked", 100.0)
KINDS = {kind.form.name: kind for kind in (QUORUM_HOURS, CLUSTER_HOURS, TIERED_HOURS)}


def soak(
    *,
    hours: float,
    ledger: Path,
    at: str,
    until_s: float,
    first_seed: int,
    jobs: int = 1,
    kind: Kind = QUORUM_HOURS,
) -> list[str]:
    """Run seeds until the ledger has `hours` of this commit, or time is up; return what was violated."""
    known = [row for row in read_ledger(ledger, at) if row["form"] == kind.name]
    seed = max([first_seed, *(row["seeds"][1] + 1 for row in known)])
    with _workers(jobs) as pool:
        running: dict[Future[dict[str, Any]], None] = {}
        while running or (_hours(known) < hours and time.monotonic() < until_s):
            while len(running) < jobs and _hours(known) < hours and time.monotonic() < until_s:
                running[pool.submit(piece, at, seed, until_s, kind.form.name)] = None
                seed += PIECE
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                del running[future]
                row = future.result()
                append(ledger, row)
                known.append(row)
                print(
                    f"{kind.name} {_hours(known):.2f}/{hours} h: seeds {row['seeds']}", flush=True
                )
                for text in row["violations"]:
                    print(f"  {text}", flush=True)
    for line in totals(known, kind):
        print(line)
    return [text for row in known for text in row["violations"]]


def _workers(jobs: int) -> Executor:
    """One process to a core; for one, a thread of this process."""
    if jobs == 1:
        return ThreadPoolExecutor(1)
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))


def piece(at: str, seed: int, until_s: float, form: str = QUORUM.name) -> dict[str, Any]:
    """Run some seeds, at least one, and sum them up."""
    kind = KINDS[form]
    is_cluster = kind is not QUORUM_HOURS
    row: dict[str, Any] = {
        "commit": at,
        "form": kind.name,
        "seeds": [seed, seed],
        "hours": 0.0,
        "cpu_s": 0.0,
        "faults": 0,
        kind.records: 0,
        **({"exempt": 0} if is_cluster else {}),
        "empty": [],
        "violations": [],
    }
    for each in range(seed, seed + PIECE):
        outcome = run(each, form=kind.form)
        row["seeds"][1] = each
        records = outcome.acknowledged if is_cluster else outcome.committed
        if records:
            row["hours"] = round(row["hours"] + outcome.simulated_s / 3600, 6)
        else:
            row["empty"].append(each)
        row["cpu_s"] = round(row["cpu_s"] + outcome.cpu_s, 3)
        row["faults"] += len(outcome.faults)
        row[kind.records] += records
        if is_cluster:
            row["exempt"] += outcome.exempt
        if outcome.violations:
            lines = [line for line in report.summary(outcome) if " violated at " in line]
            row["violations"].append(f"{'; '.join(lines)} [{report.replay_command(outcome)}]")
        if time.monotonic() >= until_s:
            break
    return row


def totals(rows: list[dict[str, Any]], kind: Kind = QUORUM_HOURS) -> list[str]:
    """Hours, and whether they had enough faults and records to count."""
    seconds = max(_hours(rows) * 3600, 0.001)
    faults = sum(row["faults"] for row in rows) * 10 / seconds
    records = sum(row[kind.records] for row in rows) / seconds
    speed = seconds / max(sum(row["cpu_s"] for row in rows), 0.001)
    counts = faults >= FAULTS_PER_10_S and records >= kind.per_s
    return [
        f"{seconds / 3600:.2f} simulated hours at {speed:.1f} times real time a core",
        f"{faults:.2f} faults in 10 s, {records:.1f} {kind.records} records a second:"
        f" the hours {'count' if counts else 'do not count'}",
    ]


def _hours(rows: list[dict[str, Any]]) -> float:
    return sum(row["hours"] for row in rows)


def main() -> int:
    """Run the command line; 1 when something was violated at this commit."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.soak")
    parser.add_argument("--form", choices=list(KINDS), default=QUORUM.name)
    parser.add_argument("--hours", type=float, default=100)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    found = soak(
        hours=options.hours,
        ledger=LEDGER,
        at=commit(),
        until_s=time.monotonic() + options.minutes * 60,
        first_seed=options.first_seed,
        jobs=options.jobs,
        kind=KINDS[options.form],
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
