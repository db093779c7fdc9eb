"""How fast simulated time passes: 5 voters and 2 observers, all faults, all checkers, on one core.

The ratio is simulated seconds to CPU seconds of this process, so a busy machine does not count. Floor: 5.
"""

import argparse

from bench.measure import report
from firnline.sim.options import KINDS, draw_options
from firnline.sim.run import run

FLOOR = 5.0


def main() -> None:
    """Run some seeds of that one shape; print the ratio, its extremes, and what happened meanwhile."""
    parser = argparse.ArgumentParser(prog="python -m bench.simulator")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    ratios, simulated_s, cpu_s, faults, committed = [], 0.0, 0.0, 0, 0
    for seed in range(1, options.seeds + 1):
        shape = draw_options(seed)._replace(voters=5, observers=2, fault_kinds=KINDS)
        outcome = run(seed, seconds=options.seconds, options=shape)
        assert outcome.first is None, outcome.first
        ratios.append(outcome.simulated_s / outcome.cpu_s)
        simulated_s += outcome.simulated_s
        cpu_s += outcome.cpu_s
        faults += len(outcome.faults)
        committed += outcome.committed
    report(
        "simulated seconds to a CPU second, 5 voters and 2 observers, all checkers",
        [
            {
                "ratio": round(simulated_s / cpu_s, 1),
                "floor": FLOOR,
                "slowest seed": round(min(ratios), 1),
                "fastest seed": round(max(ratios), 1),
                "faults in 10 s": round(faults * 10 / simulated_s, 2),
                "committed a second": round(committed / simulated_s, 1),
            }
        ],
    )


if __name__ == "__main__":
    main()
