"""Seeds that once failed, in turns; quorums that are new at every commit; the first of the whole clusters.

The soak goes on with clusters where this ends: a history that nobody has seen yet is no gate.

A failure prints one command that plays it again; `docs/simulator.md` says how to read what that prints.
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from firnline.sim import report
from firnline.sim.cluster.shape import NEVER
from firnline.sim.run import BROKEN, BUDGET, QUORUM, ClusterKind, Outcome, run
from firnline.sim.tier.kinds import CLUSTER, TIERED_CLUSTER, cluster_kind
from tests.turns import in_turns, number_of_commit

ROOT = Path(__file__).parents[2]
# The soak runs both for as long as one likes (`make soak`); these are what each change is asked.
FRESH_S = 15.0
CLUSTERS_S = 15.0
TIERED_S = 15.0
CLUSTERS_FROM = 500_000
_TIERED = "--cluster --profile tiered --seed 3"
# All of them take half an hour of a core. Each commit is asked the newest, which are of the code as it is,
# and a sixth of the others; `-m soak` asks the rest.
NEWEST = 8
# The first second of a machine that is busy is not held against the seeds.
SEEDS_MIN = 3
# Some seeds take ten seconds on an idle machine, and a minute on a busy one.
LIMIT_S = 600


def known_seeds() -> list[tuple[str, int, int | None, str]]:
    """Rows of seeds.txt: mode or profile, seed, seconds of chaos or None, what it was."""
    rows = []
    for line in (ROOT / "tests" / "sim" / "seeds.txt").read_text().splitlines():
        words, _, what = line.partition("#")
        if words.strip():
            mode, seed, *seconds = words.split()
            rows.append((mode, int(seed), int(seconds[0]) if seconds else None, what.strip()))
    return rows


def explain(outcome: Outcome) -> str:
    return "\n".join([*report.summary(outcome), report.replay_command(outcome)])


@pytest.mark.parametrize(("mode", "seed", "seconds", "what"), in_turns(known_seeds(), NEWEST))
def test_a_seed_that_once_failed(mode: str, seed: int, seconds: int | None, what: str) -> None:
    word, _, profile = mode.partition("/")
    form = cluster_kind(profile or None) if word == "cluster" else QUORUM
    outcome = run(seed, seconds=seconds, mode=BUDGET, form=form)
    assert not outcome.violations, f"{what}\n{explain(outcome)}"


def run_for(
    seconds: float, form: ClusterKind, first: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run seed after seed, none of which may violate anything, and say how much that was."""
    seed = first
    until = time.monotonic() + seconds
    simulated_s, faults, committed = 0.0, 0, 0
    while time.monotonic() < until or seed < first + SEEDS_MIN:
        outcome = run(seed, mode=BUDGET, form=form)
        assert not outcome.violations, explain(outcome)
        simulated_s += outcome.simulated_s
        faults += len(outcome.faults)
        committed += outcome.committed
        seed += 1
    with capsys.disabled():
        print(
            f"\nsimulated {form.name} seeds {first} to {seed - 1}: {simulated_s:.0f} s,"
            f" {faults * 10 / simulated_s:.1f} faults in 10 s,"
            f" {committed / simulated_s:.1f} committed records a second"
        )
    # The soak asks for more, on average over hours; this says that there was something to see at all.
    assert faults * 40 >= simulated_s, "a history without faults shows nothing"
    assert committed >= 5 * simulated_s, "a history without records shows nothing"


@pytest.mark.timeout(LIMIT_S)
def test_fresh_seeds_of_this_commit(capsys: pytest.CaptureFixture[str]) -> None:
    run_for(FRESH_S, QUORUM, number_of_commit(), capsys)


@pytest.mark.timeout(LIMIT_S)
def test_the_first_seeds_of_full_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    run_for(CLUSTERS_S, CLUSTER, CLUSTERS_FROM, capsys)


@pytest.mark.timeout(LIMIT_S)
def test_the_first_seeds_of_clusters_with_a_tier(capsys: pytest.CaptureFixture[str]) -> None:
    run_for(TIERED_S, TIERED_CLUSTER, CLUSTERS_FROM, capsys)


@pytest.mark.parametrize("what", ["--seed 11", "--cluster --seed 3", "--cluster --seed 7", _TIERED])
def test_the_same_seed_is_the_same_trace_in_processes_with_other_hash_seeds(what: str) -> None:
    """Goal: nothing of the order of sets or hashes leaks into a run. Method: the whole command twice."""
    digests = []
    words = f"sim run {what} --seconds 12 --format json"
    for hash_seed in ("1", "77"):
        done = subprocess.run(
            [sys.executable, "-m", "firnline", *words.split()],
            cwd=ROOT,
            env={
                "PYTHONHASHSEED": hash_seed,
                "PYTHONPATH": str(ROOT / "src"),
                "PATH": "/usr/bin:/bin",
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        digests.append(_facts(done.stdout)["digest"])
    assert digests[0] == digests[1]


def test_another_seed_is_another_trace() -> None:
    assert run(21, seconds=4).digest != run(22, seconds=4).digest


def test_a_majority_that_is_wiped_is_reported_as_just_that() -> None:
    """Goal: beyond the budget the simulator must see the loss; a run that stays clean proves nothing.
    Method: the mode that wipes a majority at once; the loss is found, and the fault is named."""
    found = [run(seed, mode=BROKEN, seconds=12) for seed in BROKEN_SEEDS]
    for outcome in found:
        assert outcome.beyond_budget, "the budget was to be broken"
        assert outcome.first is not None, "committed records are gone, and nobody says so"
        assert outcome.first.invariant in LOSS, explain(outcome)
        assert "beyond the budget" in explain(outcome)
        assert run(outcome.seed, seconds=12).first is None, (
            "within the budget the same seed is clean"
        )


def test_a_partition_that_loses_every_replica_is_reported_as_just_that() -> None:
    """Goal: what was acknowledged is gone with all replicas at once, and the run must say so, and why."""
    for seed in BROKEN_CLUSTERS:
        outcome = run(seed, mode=BROKEN, seconds=20, form=CLUSTER)
        assert outcome.beyond_budget, "the budget was to be broken"
        assert outcome.first is not None, "acknowledged records are gone, and nobody says so"
        assert outcome.first.invariant in LOSS_OF_RECORDS, explain(outcome)
        assert "all of a partition, lose what they had: beyond the budget" in explain(outcome)
        assert run(seed, seconds=20, form=CLUSTER).first is None, "within the budget it is clean"


def test_unclean_elections_lose_what_their_topics_allow_and_only_they_do() -> None:
    """Goal: what may be lost is counted, with the elections it was lost by; the rest is promised as ever.
    Method: the same faults on the same topics, once as drawn and once with no topic that allows it."""
    form = cluster_kind("unclean")
    elections, lost = 0, 0
    for seed in UNCLEAN_SEEDS:
        outcome = run(seed, seconds=20, form=form)
        assert not outcome.violations, explain(outcome)
        elections += outcome.unclean_elections
        lost += outcome.exempt
        shape = outcome.options.cluster
        assert shape is not None
        topics = tuple(topic._replace(unclean=NEVER) for topic in shape.topics)
        options = outcome.options._replace(cluster=shape._replace(topics=topics))
        clean = run(seed, options=options, form=form)
        assert not clean.violations, explain(clean)
        assert (clean.unclean_elections, clean.exempt) == (0, 0)
    assert elections > 0, "nobody was elected from outside the ISR: the exemption was not needed"
    assert lost > 0, "who was elected had everything: nothing was tried"


UNCLEAN_SEEDS = (1, 2, 3)
# Invariants that a lost majority breaks: what was committed, and votes that were forgotten.
LOSS = {"rel-Q1", "rel-Q2", "rel-Q3", "rel-Q4", "rel-Q5", "rel-Q6", "rel-Q7", "rel-Q16", "rel-X1"}
BROKEN_SEEDS = (4, 6)
# The same for a partition: committed, held by the ISR, readable, and where a new leader begins.
LOSS_OF_RECORDS = {"rel-R2", "rel-R5", "rel-R9", "rel-R14", "rel-C2"}
BROKEN_CLUSTERS = (6, 10)


def _facts(stdout: str) -> dict[str, object]:
    import json

    found = json.loads(stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found
