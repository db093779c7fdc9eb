"""Makes the short name `firnline` known to Spark, which looks for installed modules `pyspark_*`."""

from firnline.spark.source import FirnlineSource

DefaultSource = FirnlineSource

__all__ = ["DefaultSource"]
