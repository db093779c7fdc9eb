"""Options of the Spark source, one declaration each; names are those of Spark's own Kafka source. PURE.

An unknown option is refused with the nearest name. An option of the official source that has no effect on a
read of the tier is checked like there, and passes. Source: spark section 4 'Options'; Spark's guide
'Structured Streaming + Kafka Integration'.
"""

import json
import re
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

from firnline.base.errors import ConfigError
from firnline.base.units import GIB, INT32_MAX, INT64_MAX, KIB, MIB
from firnline.config.parse import nearest
from firnline.spark.gaps.causes import FAIL, GAP_ACTIONS, ON_GAP
from firnline.spark.options.brokers import READ_FROM, TIER, BrokerSettings, parse_brokers
from firnline.spark.options.kafka import (
    ACTING,
    BOOTSTRAP,
    CHECK_CRCS,
    ISOLATION_LEVEL,
    PREFIX,
    check_kafka_options,
)
from firnline.spark.options.tier import STORE_PREFIX, TIER_URI, parse_tier
from firnline.spark.options.triggers import MAX_BYTES, MAX_DELAY, MAX_OFFSETS, MIN_OFFSETS, number
from firnline.spark.planning.cut import ISOLATION, Cut, parse_cut
from firnline.spark.schema import AUTO, CHUNK_BYTES, DECODERS, SPLIT_BYTES
from firnline.stores.registry import URI_FORMS

EARLIEST, LATEST = -2, -1
# The value is given by `load.load` alone, which keeps to what `pushdown` says about it.
PUSHDOWN, BY_LOAD = "pushdown", "by-load"
TASKS_MAX = 20_000

_SIZES = {"": 1, "b": 1, "k": KIB, "m": MIB, "g": GIB}
# Names as in the documentation; Spark passes them in lower case.
KNOWN = (
    TIER_URI,
    READ_FROM,
    "asOf",
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
    ON_GAP,
    "minPartitions",
    "maxRecordsPerPartition",
    "maxTasks",
    PUSHDOWN,
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    MAX_OFFSETS,
    MIN_OFFSETS,
    MAX_DELAY,
    MAX_BYTES,
    *ACTING,
    "splitBytes",
    "chunkBytes",
    "windowBytes",
    "verifyCrc",
    "decoder",
    "table",  # only `records` comes here; the system tables have options of their own
)
RECORDS = "records"
_PLACES = tuple(name for name in KNOWN if name.startswith(("starting", "ending")))
# The official source ignores them in a batch read, and says so.
_STREAMING = (MAX_OFFSETS, MIN_OFFSETS, MAX_DELAY, MAX_BYTES)


class ByTimestamp(NamedTuple):
    """The offset of the first record at or after a timestamp, in ms since 1970."""

    timestamp_ms: int


OffsetSpec = int | ByTimestamp  # an offset, EARLIEST, LATEST, or a time
OffsetSpecs = (
    OffsetSpec | Mapping[str, Mapping[int, OffsetSpec]]
)  # one for all, or by topic and partition


class Options(NamedTuple):
    """The options of one `spark.read.format("firnline")`, or of a stream. Sizes in bytes.

    tier_uri   empty if only brokers are read
    brokers    None: they are not asked
    as_of      the offsets to read; then `starting` and `ending` say nothing
    min_partitions, max_records_per_partition
               if one is given, offsets are divided as in the official source, else bytes
    max_tasks  of a division of bytes
    notes      what the user is to be told about options: one has no effect, or nothing is read
    on_gap     one of GAP_ACTIONS; None: `fail_on_data_loss` alone decides
    reports_gaps
               the table `gaps` is read: nothing that is missing is an error, each gap is a row
    """

    tier_uri: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None
    starting: OffsetSpecs = EARLIEST
    ending: OffsetSpecs = LATEST
    latest_if_no_such_time: bool = False
    include_headers: bool = False
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_tasks: int = TASKS_MAX
    takes_filters: bool = False
    read_committed: bool = False
    split_bytes: int = SPLIT_BYTES
    chunk_bytes: int = CHUNK_BYTES
    window_bytes: int = 4 * MIB
    verify_crc: bool = True
    decoder: str = AUTO
    store_settings: Mapping[str, str] = {}
    read_from: str = TIER
    brokers: BrokerSettings | None = None
    as_of: Cut | None = None
    notes: tuple[str, ...] = ()
    on_gap: str | None = None
    reports_gaps: bool = False

    @property
    def explains_gaps(self) -> bool:
        """Whether the cause of each gap matters, also of those that compaction made."""
        return self.reports_gaps or self.on_gap is not None

    @property
    def divides_offsets(self) -> bool:
        """Whether offsets are divided among tasks, as by the official source, and not bytes."""
        return self.min_partitions is not None or self.max_records_per_partition is not None


def parse_options(given: Mapping[str, str], *, is_stream: bool = False) -> Options:
    """Parse and check the user's options; names in any case. Raises ConfigError, which names the option.

    is_stream  of `readStream`; `options.triggers` has its limits
    """
    options = {name.lower(): value for name, value in given.items()}
    for name in given:
        _refuse_unknown(name)
    if options.get("table", RECORDS).strip().lower() != RECORDS:
        raise ConfigError("a system table can only be read with spark.read", table=options["table"])
    notes = check_kafka_options([name for name in options if name.startswith(PREFIX)])
    if is_stream:
        _refuse_in_a_stream(options)
    else:
        notes += _without_effect(options)
    uri, store_settings = parse_tier(options)
    read_from, brokers = parse_brokers(options, has_tier=bool(uri))
    if read_from == TIER:
        if not uri:
            raise ConfigError(
                f"tier.uri and {BOOTSTRAP} are missing: give at least one. tier.uri is {URI_FORMS}"
            )
        if BOOTSTRAP in options:
            notes.append(f"{BOOTSTRAP} is not used: {READ_FROM}={TIER} reads what the tier has")
    as_of = _as_of(options)
    topics, pattern, assigned = _strategy(options, as_of)
    if assigned is not None and not any(assigned.values()):
        notes.append("assign names no partition, so nothing is read")
    return Options(
        tier_uri=uri,
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=_places(options, "starting", is_stream=is_stream),
        ending=_places(options, "ending"),
        latest_if_no_such_time=_one_of(
            options, "startingOffsetsByTimestampStrategy", ("error", "latest")
        )
        == "latest",
        include_headers=_flag(options, "includeHeaders", False),
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        min_partitions=_count(options, "minPartitions", most=INT32_MAX),
        max_records_per_partition=_count(options, "maxRecordsPerPartition"),
        max_tasks=_count(options, "maxTasks") or TASKS_MAX,
        takes_filters=_takes_filters(options, is_stream=is_stream),
        read_committed=_reads_committed(options, as_of),
        split_bytes=_size(options, "splitBytes", SPLIT_BYTES),
        chunk_bytes=_size(options, "chunkBytes", CHUNK_BYTES, most=GIB),
        window_bytes=_size(options, "windowBytes", 4 * MIB, most=GIB),
        verify_crc=_flag(options, "verifyCrc", _flag(options, CHECK_CRCS, True)),
        decoder=_one_of(options, "decoder", DECODERS),
        store_settings=store_settings,
        read_from=read_from,
        brokers=brokers,
        as_of=as_of,
        notes=tuple(notes),
        on_gap=_on_gap(options),
    )


def _takes_filters(options: Mapping[str, str], *, is_stream: bool) -> bool:
    """Whether Spark's filters narrow the plan: only if each query of the `load()` has one."""
    given = options.get(PUSHDOWN, "false").strip().lower()
    if given == "false":
        return False
    if is_stream:
        raise ConfigError(
            f"{PUSHDOWN} is no option of a stream, which takes no filters: leave it out"
        )
    if given != BY_LOAD:
        raise ConfigError(
            f"{PUSHDOWN}={given} is no option: Spark would use the plan of one query for others of the same"
            " load(), which would lack rows. Use firnline.spark.load.load(spark, options): its queries are"
            " planned for their filters, and none lacks a row"
        )
    return True


def _on_gap(options: Mapping[str, str]) -> str | None:
    if ON_GAP.lower() not in options:
        return None
    chosen = _one_of(options, ON_GAP, GAP_ACTIONS)
    if chosen == FAIL and not _flag(options, "failOnDataLoss", True):
        raise ConfigError(
            f"{ON_GAP}={FAIL} fails for each gap, and failOnDataLoss=false for none: leave out one"
        )
    return chosen


def _as_of(options: Mapping[str, str]) -> Cut | None:
    """Return the cut to read. It has offsets, so no other option may say them, too."""
    text = options.get("asof")
    if text is None:
        return None
    others = [name for name in _PLACES if name.lower() in options]
    if others:
        raise ConfigError(f"asOf says which offsets are read: leave out {', '.join(others)}")
    return parse_cut(text)


def _reads_committed(options: Mapping[str, str], as_of: Cut | None) -> bool:
    given = _one_of(options, ISOLATION_LEVEL, ISOLATION, is_exact=True) == ISOLATION[True]
    if as_of is None or (ISOLATION_LEVEL in options and given == as_of.read_committed):
        return given
    if ISOLATION_LEVEL in options:
        raise ConfigError(
            f"{ISOLATION_LEVEL} is another one than that of the cut in asOf",
            given=ISOLATION[given], cut=ISOLATION[as_of.read_committed],
        )  # fmt: skip
    return as_of.read_committed


def _strategy(
    options: Mapping[str, str], as_of: Cut | None
) -> tuple[tuple[str, ...], str | None, Mapping[str, tuple[int, ...]] | None]:
    """Return the topics, the pattern and the partitions, of which one is given, or all topics of a cut."""
    chosen = [n for n in ("subscribe", "subscribePattern", "assign") if n.lower() in options]
    if as_of is not None and not chosen:
        return tuple(as_of.topics), None, None
    if len(chosen) != 1:
        raise ConfigError(
            "exactly one of subscribe, subscribePattern and assign is needed",
            given=", ".join(chosen) or "none",
        )
    topics = tuple(t.strip() for t in options.get("subscribe", "").split(",") if t.strip())
    if chosen == ["subscribe"] and not topics:
        raise ConfigError("subscribe is empty")
    pattern = _pattern(options.get("subscribepattern"))
    return topics, pattern, _assigned(options.get("assign"))


def _without_effect(options: Mapping[str, str]) -> list[str]:
    """Check options that a batch read has no use for as the official source does; return notes."""
    least, most = (options.get(f"{n}offsetspertrigger") for n in ("min", "max"))
    # As there, neither is read if only one is given.
    if (
        least is not None
        and most is not None
        and number(least, MIN_OFFSETS) > number(most, MAX_OFFSETS)
    ):
        raise ConfigError(
            "minOffsetsPerTrigger is higher than maxOffsetsPerTrigger", least=least, most=most
        )
    return [
        f"{name} has no effect in a batch read" for name in _STREAMING if name.lower() in options
    ]


def _refuse_in_a_stream(options: Mapping[str, str]) -> None:
    """Refuse options of batch reads, such as those that say where a read ends."""
    ends = [name for name in _PLACES if name.startswith("ending") and name.lower() in options]
    if ends or "asof" in options:
        raise ConfigError(
            f"a stream has no end: leave out {', '.join(ends or ['asOf'])}."
            " trigger(availableNow=True) ends with what there is"
        )


def _refuse_unknown(name: str) -> None:
    lower = name.lower()
    known = {k.lower(): k for k in KNOWN}
    if lower in known or (lower.startswith(STORE_PREFIX) and lower != STORE_PREFIX):
        return
    if lower.startswith(PREFIX) and lower != PREFIX:
        return
    if lower == "path":
        raise ConfigError(f"load() takes no path: the option {TIER_URI} says where the tier is")
    near = nearest(lower, known)
    hint = f"; did you mean {known[near]}?" if near else f"; known are {', '.join(KNOWN)}"
    raise ConfigError(f"unknown option {name}{hint}")


def _pattern(text: str | None) -> str | None:
    """Check a pattern. What Java and Python read differently is refused, not guessed."""
    if text is None:
        return None
    text = text.strip()
    if not text:
        raise ConfigError("subscribePattern is empty")
    try:
        with warnings.catch_warnings():
            # Python warns of set operations such as [a&&b], which it does not have and Java has.
            warnings.simplefilter("error", FutureWarning)
            re.compile(text)
    except (re.error, FutureWarning) as problem:
        raise ConfigError(
            "subscribePattern is not a regular expression that Python reads as Java does",
            problem=problem,
        ) from None
    return text


def _assigned(text: str | None) -> Mapping[str, tuple[int, ...]] | None:
    if text is None:
        return None
    value = _json(text, "assign", '{"topic": [0, 1]}')
    for partitions in value.values():
        if not isinstance(partitions, list) or not all(
            type(p) is int and p <= INT32_MAX for p in partitions
        ):
            raise ConfigError('assign is not like {"topic": [0, 1]}', given=text)
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in value.items()}


def _places(options: Mapping[str, str], which: str, *, is_stream: bool = False) -> OffsetSpecs:
    """Read one end of the range; a timestamp overrides timestamps by partition, which override offsets.

    A stream may start at the latest offsets, and does so unless the user says something else.
    """
    at = f"{which}Timestamp"
    if at.lower() in options:
        return ByTimestamp(_integer(options[at.lower()], at))
    by = f"{which}OffsetsByTimestamp"
    if by.lower() in options:
        return _by_partition(options[by.lower()], by, is_time=True)
    name = f"{which}Offsets"
    default = "earliest" if which == "starting" and not is_stream else "latest"
    text = options.get(name.lower(), default).strip()
    refused = "latest" if which == "starting" else "earliest"
    if text.lower() == refused and not is_stream:
        raise ConfigError(f"{name} of a batch read cannot be {refused}")
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    return _by_partition(text, name, is_time=False, is_stream=is_stream)


def _by_partition(
    text: str, name: str, *, is_time: bool, is_stream: bool = False
) -> Mapping[str, Mapping[int, OffsetSpec]]:
    example = '{"topic": {"0": 23, "1": ' + ("1700000000000" if is_time else "-2") + "}}"
    places: dict[str, dict[int, OffsetSpec]] = {}
    for topic, partitions in _json(text, name, example).items():
        if not isinstance(partitions, dict):
            raise ConfigError(f"{name} is not like {example}", given=text)
        for partition, given in partitions.items():
            # The official source takes 23.0 as well, which pandas writes for a column with gaps.
            value = int(given) if type(given) is float and given.is_integer() else given
            is_number = type(value) is int and value <= INT64_MAX
            if not is_number or not partition.isdecimal() or int(partition) > INT32_MAX:
                raise ConfigError(f"{name} is not like {example}", given=text)
            refused = LATEST if name.startswith("starting") else EARLIEST
            if not is_time and (value < EARLIEST or (value == refused and not is_stream)):
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


def _one_of(
    options: Mapping[str, str], name: str, allowed: tuple[str, ...], *, is_exact: bool = False
) -> str:
    text = options.get(name.lower(), allowed[0]).strip()
    if not is_exact:
        text = text.lower()
    if text not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}", given=text)
    return text


def _integer(text: str, name: str) -> int:
    if not re.fullmatch(r"\d{1,19}", text.strip()) or int(text) > INT64_MAX:
        raise ConfigError(f"{name} must be a whole number of milliseconds since 1970", given=text)
    return int(text)


def _count(options: Mapping[str, str], name: str, *, most: int = INT64_MAX) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    value = number(text, name)
    if not 0 < value <= most:
        raise ConfigError(f"{name} must be a whole number from 1 to {most}", given=text)
    return value


def _size(options: Mapping[str, str], name: str, default: int, *, most: int = INT64_MAX) -> int:
    """Read a positive number; sizes may end in k, m or g."""
    text = options.get(name.lower(), str(default)).strip().lower()
    found = re.fullmatch(r"(\d{1,15})\s*([bkmg]?)b?", text)
    value = int(found[1]) * _SIZES[found[2]] if found else 0
    if not 0 < value <= most:
        raise ConfigError(f"{name} must be a number from 1 to {most}, such as 64m", given=text)
    return value
