"""The options of the table `gaps`: those of a read of records that say what is read, and from where. PURE."""

from collections.abc import Mapping

from firnline.base.errors import ConfigError
from firnline.spark.gaps.causes import ON_GAP
from firnline.spark.options.parse import Options, parse_options
from firnline.spark.options.triggers import MAX_BYTES, MAX_DELAY, MAX_OFFSETS, MIN_OFFSETS
from firnline.spark.tables.columns import GAPS, TABLE

# They say what becomes of the records, or of gaps; here there are no records, and each gap is a row.
_UNUSED = (
    ON_GAP, "failOnDataLoss", "includeHeaders", "pushdown", "decoder", "groupIdPrefix", MAX_OFFSETS,
    MIN_OFFSETS, MAX_DELAY, MAX_BYTES,
)  # fmt: skip


def parse_gaps_options(given: Mapping[str, str]) -> Options:
    """Parse and check the user's options; names in any case. Raises ConfigError as `parse_options`."""
    named = {name.lower() for name in given}
    for name in _UNUSED:
        if name.lower() in named:
            raise ConfigError(f"table {GAPS} does not use the option {name}: leave it out")
    of_read = {name: value for name, value in given.items() if name.lower() != TABLE}
    return parse_options(of_read)._replace(reports_gaps=True)
