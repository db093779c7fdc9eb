"""`firnline sim`: simulate a quorum or a whole cluster, and replay a failure. WORLD."""

import json
import sys

import click

from firnline.cli.terminal.exits import SOMETHING_IS_WRONG
from firnline.sim import report
from firnline.sim.run import BROKEN, BUDGET, QUORUM, ClusterKind, Outcome, run
from firnline.sim.shrink import shrink
from firnline.sim.tier.kinds import PROFILES, cluster_kind

_IS_CLUSTER = "Simulate brokers, producers and consumers too, not only the metadata quorum."
_PROFILE = "Faults that test one rule of replication, or a tier; with --cluster."
_MASK = "Only these faults of the seed, as 3,7-9; `none` for none."


@click.group()
def command() -> None:
    """Simulate the network, disks and clocks of a quorum, or of a whole cluster.

    The simulated nodes run the production code. A seed determines the whole run: the same seed gives the same
    trace, event by event, on any machine.
    """


def _mask(text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    try:
        return report.parse_mask(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not like 3,7-9", param_hint="--mask") from None


def _kind(is_cluster: bool, profile: str | None) -> ClusterKind:
    if not is_cluster and profile is not None:
        raise click.BadParameter("is for --cluster", param_hint="--profile")
    return cluster_kind(profile) if is_cluster else QUORUM


@command.command(name="run")
@click.option("--seed", type=int, required=True, help="The seed of the run.")
@click.option("--cluster", "is_cluster", is_flag=True, help=_IS_CLUSTER)
@click.option("--profile", type=click.Choice(list(PROFILES)), help=_PROFILE)
@click.option("--seconds", type=click.IntRange(4), help="Simulated seconds in which faults happen.")
@click.option("--mask", metavar="NUMBERS", help=_MASK)
@click.option(
    "--mode",
    type=click.Choice([BUDGET, BROKEN]),
    default=BUDGET,
    show_default=True,
    help="Only faults that a quorum survives, or also the loss of a majority.",
)
@click.option(
    "--shrink-seconds",
    type=float,
    default=60.0,
    show_default=True,
    help="Seconds of real time to search for fewer faults that still fail.",
)
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text")
def run_command(
    seed: int,
    is_cluster: bool,
    profile: str | None,
    seconds: int | None,
    mask: str | None,
    mode: str,
    shrink_seconds: float,
    style: str,
) -> None:
    """Run one seed; the exit code is 3 if an invariant was violated."""
    form = _kind(is_cluster, profile)
    outcome = run(seed, seconds=seconds, mask=_mask(mask), mode=mode, form=form)
    is_json = style == "json"
    for line in report.summary(outcome):
        click.echo(line, err=is_json)
    if outcome.violations:
        _explain(outcome, shrink_seconds, err=is_json)
    if is_json:
        click.echo(json.dumps(report.facts(outcome)))
    sys.exit(SOMETHING_IS_WRONG if outcome.violations else 0)


def _explain(outcome: Outcome, shrink_seconds: float, *, err: bool) -> None:
    """Say how to replay the run with the fewest faults found, and print its trace."""
    click.echo(f"again:  {report.replay_command(outcome)}", err=err)
    small = shrink(outcome, seconds_max=shrink_seconds)
    click.echo(f"shrunk from {len(outcome.faults)} to {len(small.numbers)} faults", err=err)
    for each in small.outcome.faults:
        click.echo(f"  {each.at_us / 1e6:>10.6f} fault {each.number}: {each.text}", err=err)
    click.echo(f"shrunk: {report.replay_command(small.outcome, small.numbers)}", err=err)
    rerun = run(
        outcome.seed,
        seconds=small.outcome.options.chaos_s,
        mask=frozenset(small.numbers),
        mode=outcome.mode,
        keep_story=True,
        form=outcome.form,
    )
    for line in report.story(rerun.story, rerun.options.node_ids):
        click.echo(line, err=err)


@command.command(name="replay")
@click.option("--seed", type=int, required=True, help="The seed of the run.")
@click.option("--cluster", "is_cluster", is_flag=True, help=_IS_CLUSTER)
@click.option("--profile", type=click.Choice(list(PROFILES)), help=_PROFILE)
@click.option("--seconds", type=click.IntRange(1), help="Simulated seconds in which faults happen.")
@click.option("--mask", metavar="NUMBERS", help=_MASK)
@click.option("--mode", type=click.Choice([BUDGET, BROKEN]), default=BUDGET, show_default=True)
@click.option("--all", "every_event", is_flag=True, help="Every event, not only the last ones.")
def replay_command(
    seed: int,
    is_cluster: bool,
    profile: str | None,
    seconds: int | None,
    mask: str | None,
    mode: str,
    every_event: bool,
) -> None:
    """Replay a run and print its trace: one line per event, one column per node."""
    form = _kind(is_cluster, profile)
    outcome = run(seed, seconds=seconds, mask=_mask(mask), mode=mode, keep_story=True, form=form)
    tail = None if every_event else 200
    for line in report.story(outcome.story, outcome.options.node_ids, tail=tail):
        click.echo(line)
    for line in report.summary(outcome):
        click.echo(line)
    sys.exit(SOMETHING_IS_WRONG if outcome.violations else 0)
