"""Metrics of slow steps of the loop. WORLD."""

from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from firnline.runtime.loop import Runtime
from firnline.runtime.steps import SlowStep


class LoopFacts(NamedTuple):
    """Steps and turns of the loop that took more than 5 ms since the start; timers that are set."""

    steps: list[SlowStep]
    turns: int
    longest_turn_s: float
    timers: int = 0
    abandoned_threads: int = 0


def look(runtime: Runtime) -> LoopFacts:
    """Read the values, on the loop."""
    slow, timers = runtime.loop.slow_steps, len(runtime.loop.timers)
    abandoned = runtime.abandoned_threads
    return LoopFacts(slow.rows(), slow.turns, slow.longest_turn_s, timers, abandoned)


def families(found: LoopFacts) -> Iterator[Metric]:
    """Yield them as Prometheus families."""
    count = CounterMetricFamily(
        "firnline_loop_slow_steps", "Steps of the loop of more than 5 ms.", labels=["step"]
    )
    longest = GaugeMetricFamily(
        "firnline_loop_longest_step_seconds", "The longest step.", labels=["step"]
    )
    busy = CounterMetricFamily(
        "firnline_loop_busy_steps",
        "Steps of the loop of more than 5 ms of CPU time; other slow steps waited.",
        labels=["step"],
    )
    cpu = GaugeMetricFamily(
        "firnline_loop_longest_step_cpu_seconds",
        "An upper bound of the CPU time of slow steps.",
        labels=["step"],
    )
    for row in found.steps:
        count.add_metric([row.name], row.times)
        longest.add_metric([row.name], row.longest_s)
        busy.add_metric([row.name], row.busy_times)
        cpu.add_metric([row.name], row.longest_cpu_s)
    yield count
    yield longest
    yield busy
    yield cpu
    yield CounterMetricFamily(
        "firnline_loop_slow_turns",
        "Turns of the loop of more than 5 ms, in one step or many.",
        found.turns,
    )
    yield GaugeMetricFamily(
        "firnline_loop_longest_turn_seconds", "The longest turn.", found.longest_turn_s
    )
    yield GaugeMetricFamily("firnline_loop_timers", "Timers that are set.", found.timers)
    yield GaugeMetricFamily(
        "firnline_abandoned_threads",
        "Threads whose work has exceeded its time and has not ended yet.",
        found.abandoned_threads,
    )
