"""Feature levels: which ones this release supports, and the record versions of a metadata.version. PURE.

A cluster whose finalised level is above what a node acts on may hold promises the node would break, so
the node refuses it and says which command lowers the level. Source: KIP-584, KIP-1022; spec I33.
"""

from collections.abc import Iterable, Mapping, Sequence

from immutables import Map

from firnline.base.errors import ConfigError
from firnline.metadata import records as r
from firnline.metadata.image import ELR_VERSION, METADATA_VERSION, FeatureRange
from firnline.protocol.schema import Message

KRAFT_VERSION = "kraft.version"
# Names of the levels of metadata.version, as 4.3.1 states them.
METADATA_VERSIONS = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
}
METADATA_VERSION_MIN, METADATA_VERSION_DEFAULT = 7, 30
# Features of 4.3.1 that this release does not act on yet: levels that exist in Kafka, highest.
NOT_ACTED_ON = {
    ELR_VERSION: 1,
    "group.version": 1,
    KRAFT_VERSION: 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
# What a node of this release declares when it registers.
SUPPORTED: Map[str, FeatureRange] = Map(
    {METADATA_VERSION: FeatureRange(METADATA_VERSION_MIN, METADATA_VERSION_DEFAULT)}
)

# Record type -> (first metadata.version, record version) in descending order; others are version 0.
_VERSIONS_BY_LEVEL: dict[type[Message], tuple[tuple[int, int], ...]] = {
    r.RegisterBrokerRecord: ((30, 4), (17, 3), (8, 2), (0, 1)),
    r.PartitionRecord: ((23, 2), (17, 1), (0, 0)),
    r.PartitionChangeRecord: ((23, 2), (17, 1), (0, 0)),
}
TRANSACTIONS_SINCE, CONTROLLER_REGISTRATION_SINCE = 13, 15
DIRECTORIES_SINCE, CORDONED_SINCE = 17, 30
# Levels of metadata.version that add records or fields of records to the level below.
NEW_RECORDS_SINCE = (8, 11, 13, 14, 15, 17, 23, 30)
# Below this level a shrinking ISR has a new leader epoch (I11).
NO_BUMP_ON_SHRINK_SINCE = 12


def record_version(record: Message, metadata_version: int) -> int:
    """Return the version `record` is written at, so that every node of the cluster can read it."""
    if isinstance(record, r.BrokerRegistrationChangeRecord):
        return _registration_change_version(record)
    for since, version in _VERSIONS_BY_LEVEL.get(type(record), ()):
        if metadata_version >= since:
            return version
    return 0


def _registration_change_version(record: r.BrokerRegistrationChangeRecord) -> int:
    """The lowest version that has the fields that are set, as Kafka writes it."""
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0


def levels_of(records: Sequence[Message]) -> dict[str, int]:
    """Return the levels of features that these records set."""
    return {x.name: x.feature_level for x in records if isinstance(x, r.FeatureLevelRecord)}


def in_transaction(records: Sequence[Message]) -> list[Message]:
    """Put a new cluster's first records into a transaction, so that readers see all or none (KIP-868)."""
    if levels_of(records)[METADATA_VERSION] < TRANSACTIONS_SINCE:
        return list(records)
    begin = r.BeginTransactionRecord(name="Bootstrap records")
    return [begin, *records, r.EndTransactionRecord()]


def parse_release_version(text: str) -> int:
    """Return the level of a metadata.version by name ("4.3-IV0") or by release ("4.3": its last)."""
    levels = [level for level, name in METADATA_VERSIONS.items() if name == text]
    levels += [level for level, name in METADATA_VERSIONS.items() if name.split("-")[0] == text]
    if not levels:
        raise ConfigError(
            f"unknown metadata.version {text!r}; known are {', '.join(METADATA_VERSIONS.values())}"
        )
    return max(levels)


def parse_feature(text: str) -> tuple[str, int]:
    """Parse `name=level`."""
    name, equals, level = text.partition("=")
    if not equals or not name or not level.isdecimal():
        raise ConfigError(f"--feature {text!r} is not NAME=LEVEL with a level of 0 or more")
    return name, int(level)


def levels_to_format(features: Iterable[str], release_version: str | None) -> dict[str, int]:
    """Return the levels a new cluster begins with, those above 0 only, metadata.version first.

    Raises ConfigError for an unknown feature, one given twice, a level this release does not act on,
    and for metadata.version given in both ways.
    """
    wanted: dict[str, int] = {}
    for name, level in map(parse_feature, features):
        if name in wanted:
            raise ConfigError(f"--feature {name} is given twice")
        if name != METADATA_VERSION and name not in NOT_ACTED_ON:
            known = ", ".join(sorted([METADATA_VERSION, *NOT_ACTED_ON]))
            raise ConfigError(f"unknown feature {name!r}; known are {known}")
        wanted[name] = level
    if release_version is not None:
        if METADATA_VERSION in wanted:
            raise ConfigError("metadata.version is given by --feature and by --release-version")
        wanted[METADATA_VERSION] = parse_release_version(release_version)
    metadata_version = wanted.pop(METADATA_VERSION, METADATA_VERSION_DEFAULT)
    if metadata_version not in METADATA_VERSIONS:
        raise ConfigError(
            f"metadata.version {metadata_version} is not supported; supported are"
            f" {METADATA_VERSION_MIN} to {METADATA_VERSION_DEFAULT}"
        )
    for name, level in wanted.items():
        if level > NOT_ACTED_ON[name]:
            raise ConfigError(f"{name} has no level {level} in Kafka 4.3.1")
        if level:
            raise ConfigError(f"{name} {level} is not acted on by this release; format it at 0")
    return {METADATA_VERSION: metadata_version}


def unsupported_levels(finalised: Mapping[str, int]) -> list[str]:
    """Return the features that are finalised at a level this release does not act on (I33), sorted."""
    return [
        name
        for name in sorted(finalised)
        if not _acted_on(name).lowest <= finalised[name] <= _acted_on(name).highest
    ]


def refuse_unsupported_levels(finalised: Mapping[str, int], **place: object) -> None:
    """Raise ConfigError for `unsupported_levels`; `place` says which file or offset has them."""
    wrong = unsupported_levels(finalised)
    if not wrong:
        return
    flags = " ".join(f"--feature {name}={_acted_on(name).highest}" for name in wrong)
    raise ConfigError(
        "the cluster runs features that this release does not act on: "
        + ", ".join(f"{name} {finalised[name]}" for name in wrong)
        + "; while it still runs on Apache Kafka, lower them with:"
        + " kafka-features.sh --bootstrap-server HOST:PORT downgrade "
        + flags,
        **place,
    )


def _acted_on(name: str) -> FeatureRange:
    return SUPPORTED.get(name, FeatureRange(0, 0))
