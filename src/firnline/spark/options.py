"""Options of the Spark source, one declaration each; names are those of Spark's own Kafka source. PURE.

An unknown option is refused with the nearest name. An option of the official source that this one does not
support yet is refused by name, never ignored. Source: spark section 4 'Options'.
"""

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from firnline.base.errors import ConfigError
from firnline.base.units import GIB, INT64_MAX, KIB, MIB
from firnline.spark.schema import CHUNK_BYTES
from firnline.stores.registry import URI_FORMS

EARLIEST, LATEST = -2, -1

_SIZES = {"": 1, "b": 1, "k": KIB, "m": MIB, "g": GIB}
# Names as in the documentation; Spark passes them in lower case.
KNOWN = (
    "tier.uri",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "includeHeaders",
    "failOnDataLoss",
    "minPartitions",
    "maxTasks",
    "pushdown",
    "kafka.isolation.level",
    "splitBytes",
    "chunkBytes",
    "windowBytes",
    "verifyCrc",
    "decoder",
)
# Before each setting of a store's client library, as `rsm.config.store.` is for a broker.
STORE_PREFIX = "tier.store."
_NOT_YET = {
    "kafka.bootstrap.servers": "this source reads only the tier, without what brokers have not"
    " copied yet. Leave the option out",
    "maxrecordsperpartition": "use splitBytes or minPartitions",
    "maxoffsetspertrigger": "streaming reads are not supported yet",
    "minoffsetspertrigger": "streaming reads are not supported yet",
    "maxtriggerdelay": "streaming reads are not supported yet",
    "readfrom": "only the tier can be read so far",
}


class ByTimestamp(NamedTuple):
    """The offset of the first record at or after a timestamp, in ms since 1970."""

    timestamp_ms: int


OffsetSpec = int | ByTimestamp  # an offset, EARLIEST, LATEST, or a time
OffsetSpecs = (
    OffsetSpec | Mapping[str, Mapping[int, OffsetSpec]]
)  # one for all, or by topic and partition


class Options(NamedTuple):
    """The options of one `spark.read.format("firnline")`. Sizes in bytes."""

    tier_uri: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None
    starting: OffsetSpecs = EARLIEST
    ending: OffsetSpecs = LATEST
    latest_if_no_such_time: bool = False
    include_headers: bool = False
    fail_on_data_loss: bool = True
    min_partitions: int | None = None  # None: twice the cores of the driver
    max_tasks: int = 20_000
    takes_filters: bool = False
    read_committed: bool = False
    split_bytes: int = 64 * MIB
    chunk_bytes: int = CHUNK_BYTES
    window_bytes: int = 4 * MIB
    verify_crc: bool = True
    decoder: str = "auto"
    store_settings: Mapping[str, str] = {}


def parse_options(given: Mapping[str, str]) -> Options:
    """Parse and check the user's options; names in any case. Raises ConfigError, which names the option."""
    options = {name.lower(): value for name, value in given.items()}
    for name in given:
        _refuse_unknown(name)
    uri = options.get("tier.uri", "").strip()
    if not uri:
        raise ConfigError(f"tier.uri is missing: give {URI_FORMS}")
    chosen = [n for n in ("subscribe", "subscribePattern", "assign") if n.lower() in options]
    if len(chosen) != 1:
        raise ConfigError(
            "exactly one of subscribe, subscribePattern and assign is needed",
            given=", ".join(chosen) or "none",
        )
    topics = tuple(t.strip() for t in options.get("subscribe", "").split(",") if t.strip())
    if chosen == ["subscribe"] and not topics:
        raise ConfigError("subscribe is empty")
    return Options(
        tier_uri=uri,
        topics=topics,
        pattern=_pattern(options.get("subscribepattern")),
        assigned=_assigned(options.get("assign")),
        starting=_places(options, "starting"),
        ending=_places(options, "ending"),
        latest_if_no_such_time=_one_of(
            options, "startingOffsetsByTimestampStrategy", ("error", "latest")
        )
        == "latest",
        include_headers=_flag(options, "includeHeaders", False),
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        min_partitions=_size(options, "minPartitions", 1) if "minpartitions" in options else None,
        max_tasks=_size(options, "maxTasks", 20_000),
        takes_filters=_flag(options, "pushdown", False),
        read_committed=_one_of(
            options, "kafka.isolation.level", ("read_uncommitted", "read_committed")
        )
        == "read_committed",
        split_bytes=_size(options, "splitBytes", 64 * MIB),
        chunk_bytes=_size(options, "chunkBytes", CHUNK_BYTES, most=GIB),
        window_bytes=_size(options, "windowBytes", 4 * MIB, most=GIB),
        verify_crc=_flag(options, "verifyCrc", True),
        decoder=_one_of(options, "decoder", ("auto", "numpy", "python")),
        store_settings={
            name.removeprefix(STORE_PREFIX): value
            for name, value in options.items()
            if name.startswith(STORE_PREFIX)
        },
    )


def _refuse_unknown(name: str) -> None:
    lower = name.lower()
    known = {k.lower(): k for k in KNOWN}
    if lower in known or (lower.startswith(STORE_PREFIX) and lower != STORE_PREFIX):
        return
    if lower in _NOT_YET:
        raise ConfigError(f"option {name} is not supported: {_NOT_YET[lower]}")
    if lower.startswith("kafka."):
        raise ConfigError(
            f"option {name} configures a Kafka client, and this source uses none;"
            " of the kafka.* options only kafka.isolation.level is supported"
        )
    near = get_close_matches(lower, known, n=1, cutoff=0.6)
    hint = f"; did you mean {known[near[0]]}?" if near else f"; known are {', '.join(KNOWN)}"
    raise ConfigError(f"unknown option {name}{hint}")


def _pattern(text: str | None) -> str | None:
    if text is not None:
        try:
            re.compile(text)
        except re.error as problem:
            raise ConfigError(
                "subscribePattern is not a regular expression", problem=problem
            ) from None
    return text


def _assigned(text: str | None) -> Mapping[str, tuple[int, ...]] | None:
    if text is None:
        return None
    value = _json(text, "assign", '{"topic": [0, 1]}')
    for partitions in value.values():
        if not isinstance(partitions, list) or not all(type(p) is int for p in partitions):
            raise ConfigError('assign is not like {"topic": [0, 1]}', given=text)
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in value.items()}


def _places(options: Mapping[str, str], which: str) -> OffsetSpecs:
    """Read one end of the range; a timestamp overrides timestamps by partition, which override offsets."""
    at = f"{which}Timestamp"
    if at.lower() in options:
        return ByTimestamp(_integer(options[at.lower()], at))
    by = f"{which}OffsetsByTimestamp"
    if by.lower() in options:
        return _by_partition(options[by.lower()], by, is_time=True)
    name = f"{which}Offsets"
    text = options.get(name.lower(), "earliest" if which == "starting" else "latest").strip()
    refused = "latest" if which == "starting" else "earliest"
    if text.lower() == refused:
        raise ConfigError(f"{name} of a batch read cannot be {refused}")
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    return _by_partition(text, name, is_time=False)


def _by_partition(text: str, name: str, *, is_time: bool) -> Mapping[str, Mapping[int, OffsetSpec]]:
    example = '{"topic": {"0": 23, "1": ' + ("1700000000000" if is_time else "-2") + "}}"
    places: dict[str, dict[int, OffsetSpec]] = {}
    for topic, partitions in _json(text, name, example).items():
        if not isinstance(partitions, dict):
            raise ConfigError(f"{name} is not like {example}", given=text)
        for partition, value in partitions.items():
            if type(value) is not int or not partition.isdecimal():
                raise ConfigError(f"{name} is not like {example}", given=text)
            refused = LATEST if name.startswith("starting") else EARLIEST
            if not is_time and (value < EARLIEST or value == refused):
                raise ConfigError(f"{name} of a batch read cannot hold {value}", topic=topic)
            place = ByTimestamp(value) if is_time else value
            places.setdefault(topic, {})[int(partition)] = place
    return places


def _json(text: str, name: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"{name} is not like {example}", given=text)
    return value


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name} must be true or false", given=text)
    return text == "true"


def _one_of(options: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    text = options.get(name.lower(), allowed[0]).strip().lower()
    if text not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}", given=text)
    return text


def _integer(text: str, name: str) -> int:
    if not re.fullmatch(r"\d{1,19}", text.strip()) or int(text) > INT64_MAX:
        raise ConfigError(f"{name} must be a whole number of milliseconds since 1970", given=text)
    return int(text)


def _size(options: Mapping[str, str], name: str, default: int, *, most: int = INT64_MAX) -> int:
    """Read a positive number; sizes may end in k, m or g."""
    text = options.get(name.lower(), str(default)).strip().lower()
    found = re.fullmatch(r"(\d{1,15})\s*([bkmg]?)b?", text)
    value = int(found[1]) * _SIZES[found[2]] if found else 0
    if not 0 < value <= most:
        raise ConfigError(f"{name} must be a number from 1 to {most}, such as 64m", given=text)
    return value
