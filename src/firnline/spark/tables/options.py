"""The options of a system table, each checked. PURE.

A table refuses by name what it does not use: an option without effect would look as if it had one.
"""

from collections.abc import Mapping
from typing import NamedTuple

from firnline.base.errors import ConfigError
from firnline.base.units import INT64_MAX
from firnline.config.parse import nearest
from firnline.spark.options.tier import STORE_PREFIX, TIER_URI, parse_tier, refuse_relative
from firnline.spark.tables.columns import AS_OF_OFFSET, GAPS, LOG_DIRS, RECORDS, TABLE, TABLES
from firnline.stores.registry import URI_FORMS


class TableOptions(NamedTuple):
    """The options of a read of one system table.

    log_dirs      directories of nodes; if there are any, the tier is not read
    as_of_offset  of the metadata log, exclusive: the state before the record with this offset. None: the end
    """

    table: str
    tier_uri: str = ""
    store_settings: Mapping[str, str] = {}
    log_dirs: tuple[str, ...] = ()
    as_of_offset: int | None = None


def is_table(given: Mapping[str, str]) -> bool:
    """Whether the options ask for a system table, and not for records. ConfigError for an unknown table."""
    return _table(given) != RECORDS


def is_gaps(given: Mapping[str, str]) -> bool:
    """Whether the options ask for the table `gaps`, which has options of its own: `gaps.options`."""
    return _table(given) == GAPS


def parse_table_options(given: Mapping[str, str]) -> TableOptions:
    """Parse and check the user's options; names in any case. Raises ConfigError, which names the option."""
    name = _table(given)
    used = TABLES[name].options
    options = {option.lower(): value.strip() for option, value in given.items()}
    for option in given:
        _refuse_unused(option, name, used)
    uri, store_settings = parse_tier(options)
    dirs = tuple(d.strip() for d in options.get(LOG_DIRS, "").split(",") if d.strip())
    if LOG_DIRS in options and not dirs:
        raise ConfigError(f"{LOG_DIRS} is empty: give directories of nodes, separated by commas")
    for path in dirs:
        refuse_relative(LOG_DIRS, path)
    if not uri and not dirs:
        sources = [option for option in used if option in (TIER_URI, LOG_DIRS)]
        raise ConfigError(
            f"table {name} needs {' or '.join(sources)}",
            **{TIER_URI: URI_FORMS} if TIER_URI in used else {},
        )
    return TableOptions(
        table=name,
        tier_uri="" if dirs else uri,
        store_settings=store_settings,
        log_dirs=dirs,
        as_of_offset=_as_of(options, has_files=bool(dirs)),
    )


def _table(given: Mapping[str, str]) -> str:
    chosen = [value.strip().lower() for option, value in given.items() if option.lower() == TABLE]
    name = chosen[0] if chosen else RECORDS
    if name == RECORDS or name in TABLES:
        return name
    known = [RECORDS, *TABLES]
    near = nearest(name, known)
    hint = f"did you mean {near}?" if near else f"known are {', '.join(known)}"
    raise ConfigError(f"no such table: {name}; {hint}")


def _refuse_unused(option: str, name: str, used: tuple[str, ...]) -> None:
    lower = option.lower()
    known = {each.lower(): each for each in (TABLE, *used)}
    if lower in known:
        return
    if TIER_URI in used and lower.startswith(STORE_PREFIX) and lower != STORE_PREFIX:
        return
    near = nearest(lower, known)
    hint = f"did you mean {known[near]}?" if near else f"it uses {', '.join(known.values())}"
    raise ConfigError(f"table {name} does not use the option {option}; {hint}")


def _as_of(options: Mapping[str, str], *, has_files: bool) -> int | None:
    text = options.get(AS_OF_OFFSET.lower())
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) > INT64_MAX:
        raise ConfigError(f"{AS_OF_OFFSET} must be an offset of the metadata log", given=text)
    if not has_files:
        raise ConfigError(f"{AS_OF_OFFSET} needs {LOG_DIRS}: a tier has no metadata log")
    return int(text)
