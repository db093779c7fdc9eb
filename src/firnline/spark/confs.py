"""Options of a read from Spark's own settings, `spark.firnline.OPTION`. SPARK.

    spark.read.format("firnline").options(**options_of(spark)).option("subscribe", "flights").load()

Spark hands its settings to a data source in Java that asks for them, and to none in Python. So they are read
where the session is. What `.option()` gives afterwards counts.
"""

from typing import Any

PREFIX = "spark.firnline."


def options_of(spark: Any) -> dict[str, str]:
    """Return the options among the settings of a session, classic or of Spark Connect.

    Every user of Spark sees its settings: a secret among them is refused by the read, as in an option.
    """
    return {
        key.removeprefix(PREFIX): value
        for key, value in dict(spark.conf.getAll).items()
        if key.startswith(PREFIX)
    }
