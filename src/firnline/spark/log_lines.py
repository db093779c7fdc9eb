"""Lines that reading in Spark logs, as `message key=value`. SPARK.

They go to Python's `logging` in the process of a Spark job, to the logger of the module that says it: the
job decides where they are written. Their form is that of a node's lines.
"""

import logging

from firnline.base.errors import FirnlineError
from firnline.base.log_lines.text import fields_text


def warn(logger: logging.Logger, message: str, /, **fields: object) -> None:
    """Log a warning. `message` never changes: what varies is a field."""
    logger.warning("%s", f"{message}{fields_text(fields)}", extra={"fields": fields})


def warn_of(logger: logging.Logger, problem: FirnlineError) -> None:
    """Log a problem that does not end the read."""
    warn(logger, problem.why, **problem.facts)
