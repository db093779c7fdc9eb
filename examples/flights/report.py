"""What the demo asks of the flights, with Spark. Also a command of its own, with no broker, only the tier:

python examples/flights/report.py demo-out/tier demo-out
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
from flights import airlines
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from firnline.spark.session import session

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
EVENT = "id string, carrier string, month int, hour int, origin string, dep_delay double"


class Report(NamedTuple):
    """What Spark found."""

    records: int
    distinct_offsets: int
    distinct_flights: int
    cancelled: int
    by_month: pd.DataFrame  # flights, mean, p95 by carrier and month
    by_hour: pd.DataFrame  # flights, mean by carrier and hour
    partitions: int
    from_brokers: int  # records that were not read from the tier


SCHEMA = "value binary, partition int, offset long, readFrom string"


def as_events(log: DataFrame) -> DataFrame:
    """Return the topic's events as columns, beside where each stood in the log, and where it was read."""
    event = F.from_json(F.col("value").cast("string"), EVENT)
    places = ("partition", "offset", "readFrom")
    return log.select(*places, event.alias("event")).select(*places, "event.*")


def make_report(spark: SparkSession, source: Mapping[str, str]) -> Report:
    """Read the topic once and answer every question of the demo.

    source  options that say where the tier is, and the brokers if records may come from them
    """
    log = spark.read.format("firnline").schema(SCHEMA).options(subscribe="flights", **source).load()
    events = as_events(log).cache()
    seen = events.select(
        F.count("*").alias("records"),
        F.count_distinct("partition", "offset").alias("distinct_offsets"),
        F.count_distinct("id").alias("distinct_flights"),
        F.count_if(F.isnull("dep_delay")).alias("cancelled"),
        F.count_if(F.col("readFrom") == "broker").alias("from_brokers"),
    ).first()
    assert seen is not None
    delay = F.col("dep_delay")
    by_month = _rows(
        events.groupBy("carrier", "month").agg(
            F.count("*").alias("flights"),
            F.mean(delay).alias("mean"),
            F.percentile(delay, 0.95).alias("p95"),
        ),
        index=["carrier", "month"],
    )
    by_hour = _rows(
        events.where(delay.isNotNull())
        .groupBy("carrier", "hour")
        .agg(F.count("*").alias("flights"), F.mean(delay).alias("mean")),
        index=["carrier", "hour"],
    )
    return Report(
        **seen.asDict(),
        by_month=by_month,
        by_hour=by_hour,
        partitions=events.rdd.getNumPartitions(),
    )


# Columns that a table of twelve months takes; on less it is printed in two halves.
_YEAR_COLUMNS = 118


def print_delays(console: Console, by_month: pd.DataFrame) -> None:
    """Print flights, mean and 95th percentile per carrier and month, in minutes."""
    halves = [range(1, 13)] if console.width >= _YEAR_COLUMNS else [range(1, 7), range(7, 13)]
    for months in halves:
        console.print(_delay_table(by_month, months))


def _delay_table(by_month: pd.DataFrame, months: range) -> Table:
    table = Table(
        title="Departure delay from New York in 2013, in minutes, by carrier and month",
        caption="n: flights · ø: mean · p95: one flight in twenty left later than this",
        padding=(0, 0, 0, 1),
        header_style="bold",
    )
    table.add_column("Carrier", no_wrap=True)
    table.add_column("", style="dim")
    for month in months:
        table.add_column(MONTHS[month - 1], justify="right")
    names = airlines()
    flights = by_month["flights"].groupby("carrier").sum().sort_values(ascending=False)
    for carrier in flights.index:
        of = by_month.loc[carrier].reindex(months)
        cells = [
            f"{_integer(n)}\n{_delay(mean)}\n[dim]{_integer(p95)}[/dim]"
            for n, mean, p95 in of[["flights", "mean", "p95"]].itertuples(index=False)
        ]
        name = f"[bold]{carrier}[/bold]\n{names.get(carrier, '')}\n{flights[carrier]:,}"
        table.add_row(name, "n\nø\np95", *cells, end_section=True)
    return table


def draw_delays(by_hour: pd.DataFrame, path: Path) -> None:
    """Draw the mean departure delay by carrier and hour of the day as a heat map."""
    names = airlines()
    enough = by_hour[by_hour["flights"] >= 20]
    grid = enough["mean"].unstack("hour").sort_index(axis=1)
    flights = by_hour["flights"].groupby("carrier").sum()
    grid = grid.loc[flights.loc[grid.index].sort_values(ascending=False).index]
    figure, axes = plt.subplots(figsize=(12, 7), dpi=150, layout="constrained")
    figure.set_facecolor("#fbfaf7")
    colours = plt.get_cmap("YlOrRd").with_extremes(bad="#efece4")
    image = axes.imshow(grid.to_numpy(), cmap=colours, aspect="auto", vmin=-5, vmax=45)
    for y, carrier in enumerate(grid.index):
        for x, hour in enumerate(grid.columns):
            mean = grid.loc[carrier, hour]
            if pd.notna(mean):
                axes.text(
                    x, y, f"{round(mean)}", ha="center", va="center", fontsize=8,
                    color="white" if mean > 22 else "#4a4036",
                )  # fmt: skip
    for line in range(1, len(grid.index)):
        axes.axhline(line - 0.5, color="#fbfaf7", linewidth=1)
    axes.set_xticks(range(len(grid.columns)), [f"{hour}:00" for hour in grid.columns])
    axes.set_yticks(range(len(grid.index)), [names.get(c, c) for c in grid.index])
    axes.tick_params(length=0, labelsize=9)
    axes.set_xlabel("scheduled hour of departure", labelpad=10)
    for edge in axes.spines.values():
        edge.set_visible(False)
    axes.set_title("Delays grow through the day\n", loc="left", fontsize=16, fontweight="bold")
    axes.text(
        0, 1.02, "Mean departure delay in minutes, New York 2013; read by Spark from the tier alone",
        transform=axes.transAxes, fontsize=10, color="#6b6258",
    )  # fmt: skip
    bar = figure.colorbar(image, ax=axes, shrink=0.6, pad=0.01, extend="max")
    bar.outline.set_visible(False)
    bar.set_label("minutes")
    figure.savefig(path)
    plt.close(figure)


def _rows(frame: DataFrame, *, index: list[str]) -> pd.DataFrame:
    rows = [row.asDict() for row in frame.collect()]
    return pd.DataFrame(rows).set_index(index).sort_index()


def _integer(value: Any) -> str:
    return "" if pd.isna(value) else f"{value:.0f}"


def _delay(value: float) -> str:
    if pd.isna(value):
        return ""
    colour = "red" if value >= 20 else "yellow" if value >= 10 else "green"
    return f"[{colour}]{value:.1f}[/{colour}]"


def main() -> None:
    """Report on the tier at the first argument; the picture goes to the directory of the second."""
    tier, out = sys.argv[1], Path(sys.argv[2])
    if "://" not in tier:
        tier = str(Path(tier).absolute())
    spark = session("flights", is_brief=True)
    report = make_report(spark, {"tier.uri": tier})
    console = Console()
    print_delays(console, report.by_month)
    draw_delays(report.by_hour, out / "delays.png")
    console.print(f"{report.records:,} records, {report.distinct_flights:,} flights")


if __name__ == "__main__":
    main()
