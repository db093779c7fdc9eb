"""Run the tests that have to notice mutants, each mutant in a process of its own. WORLD.

    python -m tests.mutants.catch "X11: the end of a snapshot is no position in it" ...

One line per mutant: `caught` or `missed`, seconds, name. The processes are forked from one that has loaded
everything, because loading takes longer than most tests. The exit code is 0 when all were caught.
"""

import os
import sys

import pytest

from firnline.sim.run import QUORUM, run
from firnline.sim.tier.kinds import cluster_kind
from tests.mutants.patch import Mutant, apply, without
from tests.mutants.table import MUTANTS


def caught_by_tests(mutant: Mutant) -> bool:
    """Take the guard out of a copy of this process and run its tests there; False when they pass."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            apply(mutant)
            code = int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *mutant.tests]))
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == pytest.ExitCode.TESTS_FAILED


def caught_by_seeds(mutant: Mutant) -> str | None:
    """Simulate until one of the invariants named does not hold; another one is not what was meant."""
    with without(mutant):
        for seed in mutant.seeds:
            form = cluster_kind(mutant.profile) if mutant.profile else QUORUM
            options = form.draw(seed)._replace(**mutant.options)
            first = run(seed, seconds=mutant.seconds, options=options, form=form).first
            if first is not None:
                what = f"seed {seed}, {first.at_us / 1e6:.1f} s: {first.invariant}: {first.text}"
                if first.invariant in mutant.invariants:
                    return what
                print(f"not what was meant: {what}")
                return None
    return None


def computed_s() -> float:
    """Seconds of computing so far, of this process and those that ended: the same on a busy machine."""
    return sum(os.times()[:4])


def main(names: list[str]) -> int:
    """Run the command line."""
    all_caught = True
    for name in names:
        (mutant,) = (each for each in MUTANTS if each.name == name)
        began = computed_s()
        is_caught = bool(caught_by_tests(mutant) if mutant.tests else caught_by_seeds(mutant))
        word = "caught" if is_caught else "missed"
        print(f"{word}\t{computed_s() - began:.1f}\t{name}", flush=True)
        all_caught = all_caught and is_caught
    return 0 if all_caught else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
