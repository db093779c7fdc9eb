"""Run the tests that have to notice one mutant, in a process of its own. WORLD.

    python -m tests.mutants.catch "X11: the end of a snapshot is no position in it"

The exit code is 0 when the mutant was caught; what noticed it is printed.
"""

import sys

import pytest

from firnline.sim.options import draw_options
from firnline.sim.run import run
from tests.mutants.patch import Mutant, apply, without
from tests.mutants.table import MUTANTS


def caught_by_tests(mutant: Mutant) -> str | None:
    """Take the guard out of this process, for good, and run its tests; None when they pass."""
    apply(mutant)
    code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", *mutant.tests])
    return "a test failed" if code == pytest.ExitCode.TESTS_FAILED else None


def caught_by_seeds(mutant: Mutant) -> str | None:
    """Simulate until one of the invariants named does not hold; another one is not what was meant."""
    with without(mutant):
        for seed in mutant.seeds:
            options = draw_options(seed)._replace(**mutant.options)
            first = run(seed, seconds=mutant.seconds, options=options).first
            if first is not None:
                what = f"seed {seed}, {first.at_us / 1e6:.1f} s: {first.invariant}: {first.text}"
                if first.invariant in mutant.invariants:
                    return what
                print(f"not what was meant: {what}")
                return None
    return None


def main() -> int:
    """Run the command line."""
    (name,) = sys.argv[1:]
    (mutant,) = (each for each in MUTANTS if each.name == name)
    found = caught_by_tests(mutant) if mutant.tests else caught_by_seeds(mutant)
    print(found or "nobody noticed")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
