"""Readers of streams of a tier, asked as Spark's process of Python asks them."""

import json
import pickle
from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict

from firnline.spark.source import FirnlineSource
from firnline.spark.streaming.reader import FirnlineStreamReader
from tests.spark.growing_tier import GrowingTier

Json = dict[str, Any]


class Growing(GrowingTier):
    """A tier that grows, and its readers."""

    def reader(self, **options: str) -> FirnlineStreamReader:
        """Return the reader that a new process of Python has."""
        chosen = {} if "subscribePattern" in options or "assign" in options else {"subscribe": "t"}
        given = {"tier.uri": str(self.path), "startingOffsets": "earliest"} | chosen | options
        source = FirnlineSource(CaseInsensitiveDict(given))
        reader = source.streamReader(source.schema())
        assert isinstance(reader, FirnlineStreamReader)
        return reader


def rows_of(reader: FirnlineStreamReader, start: Json, end: Json) -> list[tuple[int, int]]:
    """Return partition and offset of each row of a micro-batch, read by a copy as executors have it."""
    copy = pickle.loads(pickle.dumps(reader.read))  # noqa: S301 - our own bytes
    planned = pickle.loads(pickle.dumps(list(reader.partitions(start, end))))  # noqa: S301 - our own bytes
    rows = [row for p in planned for batch in copy(p) for row in batch.to_pylist()]
    return sorted((row["partition"], row["offset"]) for row in rows)


def step(reader: FirnlineStreamReader, start: Json, limit: Any = None) -> Json:
    """Ask as Spark does; offsets go through JSON."""
    chosen = reader.getDefaultReadLimit() if limit is None else limit
    return dict(json.loads(json.dumps(reader.latestOffset(json.loads(json.dumps(start)), chosen))))
