"""The long form of kills, power cuts and quorums of both kinds, in pieces that add up. WORLD.

    python -m tests.chaos.soak [--kills 1000] [--cuts 1000] [--controller-kills 200] [--controller-cuts 300]
                               [--cluster-kills 250] [--broker-cuts 50] [--tier-kills 300] [--mixed 100]
                               [--mixed-brokers 100] [--migrations 10] [--minutes 60] [--piece 25]

Each piece is a run of its own with a seed of its own, and one line in ledger/soak.jsonl: commit, form, seed,
cycles, faults, records acknowledged, violations, and the faults by kind where there are several. A run begins
where the ledger says this commit stands, so it may be stopped at any time and resumed. The exit code is 1
when a violation was ever found at this commit.
"""

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.controllers import run_controller_kills, run_controller_power_cuts
from tests.chaos.image import CannotMount, why_not
from tests.chaos.kill import Report, run_kills
from tests.chaos.power_cut import run_power_cuts
from tests.chaos.replicas import APART, TOGETHER, run_broker_power_cuts, run_cluster_kills
from tests.chaos.tier_kills import run_tier_kills
from tests.mixed.migration import run_migrations
from tests.mixed.replicas import run_broker_faults
from tests.mixed.rounds import Rounds
from tests.peers.kafka import PeerMissing, jars
from tests.peers.nodes import FIRNLINE, KAFKA

ROOT = Path(__file__).parents[2]
LEDGER = ROOT / "ledger" / "soak.jsonl"
PIECE = 25
# A round of a mixed quorum is half a minute, a fault of mixed brokers a quarter, a kill a second.
PIECES = {
    "mixed-two-of-theirs": 5,
    "mixed-two-of-ours": 5,
    "mixed-brokers-under-ours": 10,
    "mixed-brokers-under-theirs": 10,
    "migration": 1,
}
# A file of a traceback that lies somewhere else, in a line of JSON.
OUTSIDE = re.compile(r'(File \\")/[^"\\]*/')
ON_IMAGES = ("power-cut", "controller-power-cut", "broker-power-cut")


def _mixed(*kinds: str) -> Callable[[Path, int, int], Any]:
    return lambda directory, rounds, seed: Rounds(directory, kinds, seed).run(rounds)


def _brokers_under(controller: str) -> Callable[[Path, int, int], Any]:
    return lambda directory, cycles, seed: run_broker_faults(directory, controller, cycles, seed)


FORMS: dict[str, Callable[[Path, int, int], Any]] = {
    "kill": lambda directory, cycles, seed: run_kills(directory / "data", cycles, seed),
    "power-cut": run_power_cuts,
    "controller-kill": run_controller_kills,
    "controller-power-cut": run_controller_power_cuts,
    "cluster-kill": lambda directory, cycles, seed: run_cluster_kills(
        directory, cycles, seed, APART
    ),
    "combined-kill": lambda directory, cycles, seed: run_cluster_kills(
        directory, cycles, seed, TOGETHER
    ),
    "broker-power-cut": run_broker_power_cuts,
    "tier-kill": run_tier_kills,
    "migration": run_migrations,
    "mixed-brokers-under-ours": _brokers_under(FIRNLINE),
    "mixed-brokers-under-theirs": _brokers_under(KAFKA),
    "mixed-two-of-theirs": _mixed(KAFKA, KAFKA, FIRNLINE),
    "mixed-two-of-ours": _mixed(FIRNLINE, FIRNLINE, KAFKA),
}


def commit() -> str:
    """Return the commit of the code that is run, with a + when it was changed since."""
    head = _git("rev-parse", "--short=12", "HEAD")
    return head + ("+" if _git("status", "--porcelain", "--", "src") else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def read_ledger(path: Path, at: str | None) -> list[dict[str, Any]]:
    """Return the lines of one commit, or of all; a line cut short by a crash is left out."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if at is None or row["commit"] == at:
            rows.append(row)
    return rows


def append(path: Path, row: dict[str, Any]) -> None:
    """Add one line, on a line of its own whatever the last run left."""
    text = path.read_text() if path.exists() else ""
    line = without_places(json.dumps(row))
    with path.open("a") as ledger:
        ledger.write(("\n" if text and not text.endswith("\n") else "") + line + "\n")


def without_places(line: str) -> str:
    """Leave out where on this machine things lie: a violation may bring a traceback."""
    for place in (sys.prefix, sys.base_prefix, ROOT, tempfile.gettempdir(), Path.home()):
        line = line.replace(f"{place}/", "")
    return OUTSIDE.sub(r"\1", line)


def soak(
    wanted: dict[str, int],
    *,
    ledger: Path,
    at: str,
    until_s: float,
    forms: Any = None,
    piece: int = PIECE,
) -> list[str]:
    """Run pieces until `wanted` cycles of each form are in the ledger or time is up.

    Returns what was violated, now and in earlier runs of the same commit.
    """
    for form, goal in wanted.items():
        while time.monotonic() < until_s:
            rows = [row for row in read_ledger(ledger, at) if row["form"] == form]
            done = sum(row["cycles"] for row in rows)
            if done >= goal:
                break
            seed, cycles = len(rows) + 1, min(PIECES.get(form, piece), goal - done)
            with tempfile.TemporaryDirectory(prefix="firnline-soak-") as directory:
                report = _run((forms or FORMS)[form], Path(directory), cycles, seed)
            row = {
                "commit": at,
                "form": form,
                "seed": seed,
                "cycles": cycles,
                "faults": report.faults,
                "acked": report.acked,
                "violations": report.violations,
            }
            if kinds := getattr(report, "kinds", None):
                row["kinds"] = dict(kinds)
            append(ledger, row)
            print(f"{form} {done + cycles}/{goal}: {report}", flush=True)
            for violation in report.violations:
                print(f"  {violation}", flush=True)
    return [text for row in read_ledger(ledger, at) for text in row["violations"]]


def _run(form: Callable[..., Any], directory: Path, cycles: int, seed: int) -> Any:
    """Run one piece; one that does not come to its end is a violation too."""
    try:
        return form(directory, cycles, seed)
    except (AssertionError, RuntimeError) as problem:
        return Report(violations=[f"it did not come to its end: {str(problem)[:2000]}"])


def main() -> int:
    """Run the command line; 1 when something was violated at this commit."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--cuts", type=int, default=1000)
    parser.add_argument("--controller-kills", type=int, default=200)
    parser.add_argument("--controller-cuts", type=int, default=300)
    parser.add_argument("--cluster-kills", type=int, default=250, help="of each of two forms")
    parser.add_argument("--broker-cuts", type=int, default=50, help="of one of three replicas")
    parser.add_argument("--tier-kills", type=int, default=300, help="one in three of the store")
    parser.add_argument("--mixed", type=int, default=100)
    parser.add_argument("--mixed-brokers", type=int, default=100)
    parser.add_argument("--migrations", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--piece", type=int, default=PIECE, help="faults of one chain")
    options = parser.parse_args()
    # Leave through `finally`: no mount and no broker stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    wanted = {
        "mixed-two-of-theirs": options.mixed,
        "mixed-two-of-ours": options.mixed,
        "mixed-brokers-under-ours": options.mixed_brokers,
        "mixed-brokers-under-theirs": options.mixed_brokers,
        "migration": options.migrations,
        "controller-kill": options.controller_kills,
        "controller-power-cut": options.controller_cuts,
        "cluster-kill": options.cluster_kills,
        "combined-kill": options.cluster_kills,
        "broker-power-cut": options.broker_cuts,
        "tier-kill": options.tier_kills,
        "kill": options.kills,
        "power-cut": options.cuts,
    }
    if reason := why_not():
        print(reason)
        wanted = {form: goal for form, goal in wanted.items() if form not in ON_IMAGES}
    try:
        jars()
    except PeerMissing as problem:
        print(f"NOT RUN: {problem}")
        wanted = {form: goal for form, goal in wanted.items() if form not in PIECES}
    try:
        found = soak(
            wanted,
            ledger=LEDGER,
            at=commit(),
            until_s=time.monotonic() + options.minutes * 60,
            piece=options.piece,
        )
    except CannotMount as problem:
        print(problem)
        return 0
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
