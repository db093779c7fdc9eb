"""Text becomes a value by Kafka's rules, or an error that names the key."""

from dataclasses import replace

import pytest

from firnline.base.errors import ConfigError
from firnline.config.broker import broker_keys
from firnline.config.parse import nearest, parse, text_of
from firnline.config.topic import topic_keys

KEYS = {**broker_keys(), **topic_keys()}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("preallocate", "TRUE", True),
        ("preallocate", " false ", False),
        ("retention.ms", " 5 ", 5),
        ("retention.ms", "+7", 7),
        ("cleanup.policy", "compact , delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("cleanup.policy", "  ", ()),
        ("min.cleanable.dirty.ratio", "5e-1", 0.5),
        ("compression.gzip.level", "-1", -1),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "0:1,2:3", ("0:1", "2:3")),
        ("group.consumer.migration.policy", "downgrade", "downgrade"),
        ("log.dirs", "/a, /b", ("/a", "/b")),
        ("broker.rack", " eu ", "eu"),
    ],
)
def test_text_that_kafka_takes(name: str, text: str, value: object) -> None:
    assert parse(KEYS[name], text) == value


# Each of these Apache Kafka 4.3.1 answers with INVALID_CONFIG.
@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("preallocate", "yes", "true or false"),
        ("segment.bytes", "100", "at least 1048576"),
        ("segment.bytes", "x", "whole number"),
        ("segment.bytes", "1_000_000_000", "whole number"),
        ("segment.bytes", "3000000000", "32 bits"),
        ("segment.bytes", "", "whole number"),
        ("segment.bytes", "\u0661\u0660\u0664\u0668\u0665\u0667\u0666", "whole number"),
        ("retention.ms", "-2", "at least -1"),
        ("retention.ms", "9223372036854775808", "64 bits"),
        ("compression.type", "ZSTD", "one of uncompressed, zstd"),
        ("compression.gzip.level", "0", "or -1"),
        ("compression.gzip.level", "10", "at most 9"),
        ("min.cleanable.dirty.ratio", "1.5", "at most 1"),
        ("min.cleanable.dirty.ratio", "half", "number"),
        ("metadata.snapshot.min.changed_records.ratio", "1.5", "at most 1"),
        ("metadata.snapshot.min.changed_records.ratio", "-0.1", "at least 0"),
        ("min.cleanable.dirty.ratio", "NaN", "number"),
        ("message.timestamp.type", "createtime", "CreateTime"),
        ("cleanup.policy", "compact,shred", "compact, delete"),
        ("leader.replication.throttled.replicas", "x", "partition:broker"),
        ("offsets.topic.replication.factor", "40000", "16 bits"),
        ("remote.log.storage.manager.impl.prefix", "", "empty"),
    ],
)
def test_text_that_kafka_refuses_is_refused_by_name(name: str, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse(KEYS[name], text)
    assert str(refusal.value).startswith(f"{name}={text}")
    assert says in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("preallocate", True, "true"),
        ("cleanup.policy", ("compact", "delete"), "compact,delete"),
        ("min.cleanable.dirty.ratio", 0.5, "0.5"),
        ("log.cleaner.io.max.bytes.per.second", 1.7976931348623157e308, "1.7976931348623157E308"),
        ("retention.ms", 604800000, "604800000"),
        ("log.retention.ms", None, None),
    ],
)
def test_values_are_printed_as_kafka_prints_them(name: str, value: object, text: str) -> None:
    assert text_of(KEYS[name], value) == text  # type: ignore[arg-type]


def test_every_default_survives_a_trip_through_text() -> None:
    for key in KEYS.values():
        text = text_of(key, key.default)
        if text is not None and not key.is_required:
            assert parse(key, text) == key.default, key.name


def test_the_nearest_name_is_found_and_a_far_one_is_not() -> None:
    assert nearest("log.retention.hour", broker_keys()) == "log.retention.hours"
    assert nearest("zzz", broker_keys()) is None


def test_an_error_about_a_secret_shows_no_part_of_it() -> None:
    """Today's secrets are free text, which nothing refuses; a provider may return any value."""
    password = replace(KEYS["delegation.token.secret.key"], valid="[this, that]")
    for key, is_hidden in ((password, False), (KEYS["retention.ms"], True)):
        with pytest.raises(ConfigError, match=f"{key.name}=") as problem:
            parse(key, "hunter2", is_hidden=is_hidden)
        assert "hunter2" not in str(problem.value)
