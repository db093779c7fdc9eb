"""`firnline sim`: run the metadata quorum in a simulated world, and play a failure again. WORLD."""

import json
import sys

import click

from firnline.sim import report
from firnline.sim.run import BROKEN, BUDGET, Outcome, run
from firnline.sim.shrink import shrink

_MASK = "Only these of the faults of the seed, as 3,7-9; `none` for none."


@click.group()
def command() -> None:
    """A cluster of controllers on a simulated network, disks and clocks.

    It is the production code that runs. A seed is one history: the same seed gives the same trace, event by
    event, on any machine.
    """


def _mask(text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    try:
        return report.parse_mask(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not like 3,7-9", param_hint="--mask") from None


@command.command(name="run")
@click.option("--seed", type=int, required=True, help="Which history.")
@click.option("--seconds", type=click.IntRange(4), help="Simulated seconds in which faults happen.")
@click.option("--mask", metavar="NUMBERS", help=_MASK)
@click.option(
    "--mode",
    type=click.Choice([BUDGET, BROKEN]),
    default=BUDGET,
    show_default=True,
    help="Keep within what a quorum survives, or wipe a majority of it.",
)
@click.option(
    "--shrink-seconds",
    type=float,
    default=60.0,
    show_default=True,
    help="Real time to spend on finding fewer faults that still fail.",
)
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text")
def run_command(
    seed: int, seconds: int | None, mask: str | None, mode: str, shrink_seconds: float, style: str
) -> None:
    """Run one seed; the exit code is 0 only when no invariant was violated."""
    outcome = run(seed, seconds=seconds, mask=_mask(mask), mode=mode)
    is_json = style == "json"
    for line in report.summary(outcome):
        click.echo(line, err=is_json)
    if outcome.violations:
        _explain(outcome, shrink_seconds, err=is_json)
    if is_json:
        click.echo(json.dumps(report.facts(outcome)))
    sys.exit(1 if outcome.violations else 0)


def _explain(outcome: Outcome, shrink_seconds: float, *, err: bool) -> None:
    """Say how to play it again, with the fewest faults found, and tell what happened."""
    click.echo(f"again:  {report.replay_command(outcome)}", err=err)
    small = shrink(outcome, seconds_max=shrink_seconds)
    click.echo(f"shrunk from {len(outcome.faults)} to {len(small.numbers)} faults", err=err)
    for each in small.outcome.faults:
        click.echo(f"  {each.at_us / 1e6:>10.6f} fault {each.number}: {each.text}", err=err)
    click.echo(f"shrunk: {report.replay_command(small.outcome, small.numbers)}", err=err)
    told = run(
        outcome.seed,
        seconds=small.outcome.options.chaos_s,
        mask=frozenset(small.numbers),
        mode=outcome.mode,
        keep_story=True,
    )
    for line in report.story(told.story, told.options.node_ids):
        click.echo(line, err=err)


@command.command(name="replay")
@click.option("--seed", type=int, required=True, help="Which history.")
@click.option("--seconds", type=click.IntRange(1), help="Simulated seconds in which faults happen.")
@click.option("--mask", metavar="NUMBERS", help=_MASK)
@click.option("--mode", type=click.Choice([BUDGET, BROKEN]), default=BUDGET, show_default=True)
@click.option("--all", "whole", is_flag=True, help="Every event, and not the last ones alone.")
def replay_command(
    seed: int, seconds: int | None, mask: str | None, mode: str, whole: bool
) -> None:
    """Play a run again and tell it: one line per event, one column per node."""
    outcome = run(seed, seconds=seconds, mask=_mask(mask), mode=mode, keep_story=True)
    tail = None if whole else 200
    for line in report.story(outcome.story, outcome.options.node_ids, tail=tail):
        click.echo(line)
    for line in report.summary(outcome):
        click.echo(line)
    sys.exit(1 if outcome.violations else 0)
