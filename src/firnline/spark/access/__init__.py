"""How a read reaches the store of the tier. SPARK, without Spark."""
