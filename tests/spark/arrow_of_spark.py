"""The Arrow schema that Spark expects of a source's columns."""

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def arrow_schema_of_spark(schema: StructType) -> pa.Schema:
    """Return `schema` as Spark hands rows of it over; times are in UTC, which PySpark 4.1 cannot be told."""
    is_told = "timezone" in inspect.signature(to_arrow_schema).parameters
    more: dict[str, Any] = {"timezone": "UTC"} if is_told else {}
    return to_arrow_schema(schema, **more)
