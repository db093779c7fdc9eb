"""L5: the data pipeline: the tier (and later the tail) as a Spark table. SPARK."""
