"""What Spark itself takes for rows of a Python data source: our source with reading and decoding left out.

`bench.spark` registers it as the format `bare`. Plan, tasks, schema and record batches are those of our
source, but a task hands its first batch to Spark again and again, until it has its share of `bareRows`. No
Python source of the same rows can be faster; how near ours comes to it is what we can still gain.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from firnline.spark.source import FirnlineSource


class BareSource(FirnlineSource):
    """The source `bare`. The option `bareRows` is the number of rows of all tasks together."""

    def __init__(self, options: dict[str, str]) -> None:
        self._rows = int(options["bareRows"])
        super().__init__({key: value for key, value in options.items() if key != "barerows"})

    @classmethod
    def name(cls) -> str:
        return "bare"

    def reader(self, schema: StructType) -> DataSourceReader:
        return BareReader(super().reader(schema), self._rows)


class BarePartition(InputPartition):
    """A task of the reader that is wrapped, and how many rows it hands out."""

    def __init__(self, real: InputPartition, rows: int) -> None:
        self.real, self.rows = real, rows


class BareReader(DataSourceReader):
    """Repeats the first batch of each task of the reader that it wraps."""

    def __init__(self, real: DataSourceReader, rows: int) -> None:
        self._real, self._rows = real, rows

    def partitions(self) -> Sequence[InputPartition]:
        found = self._real.partitions()
        shares = [self._rows * number // len(found) for number in range(len(found) + 1)]
        return [
            BarePartition(real, high - low)
            for real, (low, high) in zip(found, pairwise(shares), strict=True)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, BarePartition)
        first: pa.RecordBatch = next(iter(self._real.read(partition.real)))
        left = partition.rows
        while left > 0:
            yield first.slice(0, left)
            left -= first.num_rows
