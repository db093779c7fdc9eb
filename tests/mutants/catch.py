"""Run the tests that have to notice mutants, each mutant in a process of its own. WORLD.

    python -m tests.mutants.catch "X11: the end of a snapshot is no position in it" ...

One line per mutant: `caught` or `missed`, seconds, name. The processes are forked from one that has loaded
everything and collected the tests of all mutants, because that takes longer than most tests. The exit code is
0 when all were caught.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import TextIO

import pytest

from firnline.sim.run import QUORUM, run
from firnline.sim.tier.kinds import cluster_kind
from tests.mutants.patch import Mutant, apply, without
from tests.mutants.table import MUTANTS

FAILED, HUNG_OR_BROKEN = 1, 70

# Called for each mutant, with whether it was caught and the seconds that this took.
Report = Callable[[Mutant, bool, float], None]


def catch_by_tests(mutants: Sequence[Mutant], report: Report) -> None:
    """Report of each mutant whether one of its tests fails without the guard."""
    nodes = dict.fromkeys(node for mutant in mutants for node in mutant.tests)
    arguments = ["-q", "--capture=no", "-p", "no:cacheprovider", *nodes]
    code = pytest.main(arguments, plugins=[_Catcher(mutants, report)])
    assert code == pytest.ExitCode.OK, f"the tests of the mutants cannot be run: {code!r}"


class _Catcher:
    """A plugin that runs what pytest has collected mutant by mutant."""

    def __init__(self, mutants: Sequence[Mutant], report: Report) -> None:
        self._mutants = mutants
        self._report = report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Stand in for the loop of pytest, which would run each test once."""
        assert not session.testsfailed, "some tests cannot be loaded"
        for mutant in self._mutants:
            items = [item for item in session.items if _is_of(mutant, item)]
            assert items, f"{mutant.name}: there are no tests {mutant.tests}"
            began = computed_s()
            is_caught = _fails_without_guard(mutant, items)
            self._report(mutant, is_caught, computed_s() - began)
        return True


def _is_of(mutant: Mutant, item: pytest.Item) -> bool:
    return any(item.nodeid == node or item.nodeid.startswith(f"{node}[") for node in mutant.tests)


def _fails_without_guard(mutant: Mutant, items: list[pytest.Item]) -> bool:
    """Take the guard out of a copy of this process and run tests there; False when they pass."""
    child = os.fork()
    if child == 0:
        code = HUNG_OR_BROKEN
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            apply(mutant)
            code = FAILED if _fails(items) else 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == FAILED


def _fails(items: list[pytest.Item]) -> bool:
    """Run tests until one fails."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if item.session.testsfailed:
            return True
    return False


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


def rows_only() -> TextIO:
    """Return what prints to stdout; what pytest prints goes to stderr from now on."""
    rows = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return rows


def main(names: list[str]) -> int:
    """Run the command line."""
    rows = rows_only()
    all_caught = True

    def report(mutant: Mutant, is_caught: bool, seconds: float) -> None:
        nonlocal all_caught
        all_caught = all_caught and is_caught
        word = "caught" if is_caught else "missed"
        print(f"{word}\t{seconds:.1f}\t{mutant.name}", file=rows)

    chosen = [next(each for each in MUTANTS if each.name == name) for name in names]
    by_tests = [mutant for mutant in chosen if mutant.tests]
    if by_tests:
        catch_by_tests(by_tests, report)
    for mutant in chosen:
        if mutant.seeds:
            began = computed_s()
            is_caught = caught_by_seeds(mutant) is not None
            report(mutant, is_caught, computed_s() - began)
    return 0 if all_caught else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
