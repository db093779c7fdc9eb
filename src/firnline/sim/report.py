"""Print a run: one line per event, one column per node for people; JSON for programs. SIM.

The legend is in `docs/simulator.md`.
"""

from collections.abc import Sequence
from typing import Any

from firnline.sim.run import BUDGET, Outcome
from firnline.sim.world import NOWHERE, Line

_SAME = "."
_EVENT_COLUMNS = 68
_TAIL = 80


def facts(outcome: Outcome) -> dict[str, Any]:
    """The outcome as one JSON value."""
    seconds = max(outcome.simulated_s, 0.001)
    return {
        "seed": outcome.seed,
        "mode": outcome.mode,
        "form": outcome.form.name,
        "digest": outcome.digest,
        "simulated_s": round(outcome.simulated_s, 3),
        "wall_s": round(outcome.wall_s, 3),
        "cpu_s": round(outcome.cpu_s, 3),
        "events": outcome.events,
        "voters": outcome.options.voters,
        "observers": outcome.options.observers,
        "faults": len(outcome.faults),
        "faults_per_10_s": round(len(outcome.faults) * 10 / seconds, 2),
        "committed": outcome.committed,
        "committed_per_s": round(outcome.committed / seconds, 1),
        "acknowledged": outcome.acknowledged,
        "acknowledged_per_s": round(outcome.acknowledged / seconds, 1),
        "exempt": outcome.exempt,
        "unclean_elections": outcome.unclean_elections,
        "beyond_budget": [each.number for each in outcome.beyond_budget],
        "violations": [
            {
                "invariant": each.invariant,
                "at_s": each.at_us / 1e6,
                "node": each.node_id,
                "text": each.text,
            }
            for each in outcome.violations
        ],
    }


def summary(outcome: Outcome) -> list[str]:
    """A summary of a run in a few lines."""
    found = facts(outcome)
    others = "observers" if outcome.options.cluster is None else "brokers apart"
    lines = [
        f"seed {outcome.seed}: {outcome.options.voters} voters, {outcome.options.observers} {others},"
        f" {found['simulated_s']} simulated seconds in {found['wall_s']}",
        f"{found['faults']} faults ({found['faults_per_10_s']} in 10 s), {found['committed']} records"
        f" committed ({found['committed_per_s']} a second), digest {outcome.digest}",
    ]
    if outcome.options.cluster is not None:
        lines.append(
            f"{outcome.acknowledged} records acknowledged ({found['acknowledged_per_s']} a second),"
            f" {outcome.exempt} of them lost by the last replica standing or"
            f" {outcome.unclean_elections} unclean elections, which is exempt"
        )
    for each in outcome.beyond_budget:
        lines.append(f"the budget was broken by fault {each.number}: {each.text}")
    for violation in outcome.violations:
        where = "" if violation.node_id == NOWHERE else f" on node {violation.node_id}"
        lines.append(
            f"{violation.invariant} violated at {violation.at_us / 1e6:.6f} s{where}: {violation.text}"
        )
    return lines


def replay_command(outcome: Outcome, numbers: Sequence[int] | None = None) -> str:
    """The command that replays the run; with only some of its faults, if given."""
    words = [f"firnline sim replay --seed {outcome.seed} --seconds {outcome.options.chaos_s}"]
    if outcome.form.words:
        words.append(outcome.form.words)
    if outcome.mode != BUDGET:
        words.append(f"--mode {outcome.mode}")
    if numbers is not None:
        words.append(f"--mask {format_mask(numbers)}")
    return " ".join(words)


def format_mask(numbers: Sequence[int]) -> str:
    """Write numbers as 3,7-9; none of them is `none`."""
    if not numbers:
        return "none"
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def parse_mask(text: str) -> frozenset[int]:
    """Read what `format_mask` writes. Raises ValueError."""
    if text == "none":
        return frozenset()
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        numbers += range(int(first), int(last if dash else first) + 1)
    return frozenset(numbers)


def story(lines: Sequence[Line], node_ids: Sequence[int], *, tail: int | None = _TAIL) -> list[str]:
    """The last `tail` events, every fault, and the violation: time, node, event, and the state of each node.

    A state is the one before the event; a dot means that it is the same as in the line before.
    """
    width = max([len(cell) for line in lines[-5000:] for cell in line.columns] or [4])
    head = "   seconds node event".ljust(_EVENT_COLUMNS + 13)
    out = [head + " ".join(f"{node_id}".ljust(width) for node_id in node_ids)]
    begin = 0 if tail is None else max(0, len(lines) - tail)
    before: tuple[str, ...] = ()
    skipped = 0
    for index, line in enumerate(lines):
        if index < begin and not line.text.startswith(("fault", "VIOLATION", "healed")):
            skipped += 1
            continue
        if skipped:
            out.append(f"{'...':>10}      {skipped} events")
            skipped = 0
        out.append(_row(line, before, width))
        before = line.columns
    return out


def _row(line: Line, before: tuple[str, ...], width: int) -> str:
    cells = [
        _SAME if before and index < len(before) and cell == before[index] else cell
        for index, cell in enumerate(line.columns)
    ]
    where = "" if line.node_id == NOWHERE else str(line.node_id)
    text = line.text.ljust(_EVENT_COLUMNS)
    columns = " ".join(cell.ljust(width) for cell in cells)
    return f"{line.at_us / 1e6:>10.6f} {where:>4} {text} {columns}".rstrip()
