"""Options: what is refused and with which words, and what is read."""

import pytest

from firnline.base.errors import ConfigError
from firnline.spark.options.parse import EARLIEST, LATEST, ByTimestamp, Options, parse_options

GOOD = {"tier.uri": "/t", "subscribe": "flights"}


def parsed(**more: str) -> Options:
    return parse_options(GOOD | {k.replace("__", "."): v for k, v in more.items()})


def test_names_are_read_in_any_case_and_defaults_are_the_official_source_s() -> None:
    options = parse_options({"TIER.URI": "/t", "SubScribe": "a, b", "INCLUDEHEADERS": "True"})
    assert options == Options(tier_uri="/t", topics=("a", "b"), include_headers=True)
    assert (options.starting, options.ending, options.fail_on_data_loss) == (EARLIEST, LATEST, True)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("subscrib", "did you mean subscribe?"),
        ("startingOffset", "did you mean startingOffsets?"),
        ("verifyCRCs", "did you mean verifyCrc?"),
        ("zzz", "known are tier.uri, readFrom, asOf, subscribe"),
        ("maxRecordPerPartition", "did you mean maxRecordsPerPartition?"),
        ("kafka.isolation.levl", "did you mean kafka.isolation.level?"),
        ("kafka.check.crc", "did you mean kafka.check.crcs?"),
        ("kafka.bootstrap.server", "did you mean kafka.bootstrap.servers?"),
        ("kafka.boostrap.servers", "did you mean kafka.bootstrap.servers?"),
        ("kafka.auto.offset.reset", "startingOffsets or startingTimestamp"),
        ("kafka.key.deserializer", "cast or decode the column"),
        ("kafka.value.deserializer", "cast or decode the column"),
        ("kafka.enable.auto.commit", "commits no offsets"),
        ("kafka.interceptor.classes", "change what is read"),
        ("kafka.", "known are"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused_with_what_helps(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options(GOOD | {name: "1"})
    assert name in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "tier.uri and kafka.bootstrap.servers are missing"),
        ({"tier.uri": "/t"}, "exactly one of subscribe"),
        ({**GOOD, "assign": "{}"}, "exactly one of subscribe"),
        ({"tier.uri": "/t", "subscribe": " , "}, "is empty"),
        ({"tier.uri": "/t", "subscribePattern": "("}, "not a regular expression that"),
        ({"tier.uri": "/t", "assign": "[1]"}, "assign is not like"),
        ({"tier.uri": "/t", "assign": '{"a": ["0"]}'}, "assign is not like"),
        ({"tier.uri": "/t", "assign": '{"a": [true]}'}, "assign is not like"),
        ({**GOOD, "startingOffsets": "latest"}, "cannot be latest"),
        ({**GOOD, "endingOffsets": "earliest"}, "cannot be earliest"),
        ({**GOOD, "startingOffsets": '{"flights": {"0": -1}}'}, "cannot hold -1"),
        ({**GOOD, "endingOffsets": '{"flights": {"0": -2}}'}, "cannot hold -2"),
        ({**GOOD, "startingOffsets": '{"flights": {"0": -3}}'}, "cannot hold -3"),
        ({**GOOD, "startingOffsets": '{"flights": 3}'}, "startingOffsets is not like"),
        ({**GOOD, "startingOffsets": '{"flights": {"x": 3}}'}, "startingOffsets is not like"),
        ({**GOOD, "startingOffsets": "newest"}, "startingOffsets is not like"),
        ({**GOOD, "startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({**GOOD, "endingTimestamp": "99999999999999999999"}, "milliseconds since 1970"),
        ({**GOOD, "failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
        ({**GOOD, "splitBytes": "0"}, "splitBytes must be a number"),
        ({**GOOD, "chunkBytes": "2g"}, "chunkBytes must be a number"),
        ({**GOOD, "kafka.isolation.level": "serializable"}, "one of read_uncommitted"),
        ({**GOOD, "kafka.isolation.level": "READ_COMMITTED"}, "one of read_uncommitted"),
        ({**GOOD, "decoder": "c"}, "decoder must be one of"),
        ({**GOOD, "minPartitions": "64m"}, "minPartitions must be a whole number"),
        ({**GOOD, "minPartitions": "0"}, "minPartitions must be a whole number from 1"),
        ({**GOOD, "minPartitions": "2147483648"}, "minPartitions must be a whole number from 1"),
        ({**GOOD, "maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be a whole"),
        ({**GOOD, "fetchOffset.numRetries": "x"}, "fetchOffset.numRetries must be a whole"),
        ({**GOOD, "fetchOffset.retryIntervalMs": "1s"}, "retryIntervalMs must be a whole"),
        ({**GOOD, "kafkaConsumer.pollTimeoutMs": ""}, "pollTimeoutMs must be a whole"),
        ({**GOOD, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "is higher than"),
        ({**GOOD, "minOffsetsPerTrigger": "x", "maxOffsetsPerTrigger": "5"}, "must be a whole"),
        ({**GOOD, "startingOffsets": '{"flights": {"0": "3"}}'}, "startingOffsets is not like"),
        ({**GOOD, "startingOffsets": '{"flights": {"0": 3.5}}'}, "startingOffsets is not like"),
        ({**GOOD, "startingOffsets": '{"flights": {"0": 9223372036854775808}}'}, "is not like"),
        ({**GOOD, "startingOffsets": '{"flights": {"4294967296": 3}}'}, "is not like"),
        ({"tier.uri": "/t", "assign": '{"flights": [4294967296]}'}, "assign is not like"),
        ({**GOOD, "kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is empty"),
        ({"tier.uri": "", "kafka.bootstrap.servers": "b:1", "subscribe": "t"}, "tier.uri is empty"),
        ({"tier.uri": "/t", "subscribePattern": " "}, "subscribePattern is empty"),
        ({"tier.uri": "/t", "subscribePattern": "[a-z&&[^b]]"}, "reads as Java does"),
        ({"tier.uri": "/t", "subscribePattern": r"\p{Alpha}"}, "reads as Java does"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_refused_by_name(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_options(given)


def test_a_time_comes_before_times_by_partition_and_those_before_offsets() -> None:
    by_time = '{"flights": {"0": 7}}'
    assert parsed(
        startingTimestamp="5", startingOffsetsByTimestamp=by_time, startingOffsets="earliest"
    ).starting == ByTimestamp(5)
    assert parsed(endingOffsetsByTimestamp=by_time, endingOffsets="latest").ending == {
        "flights": {0: ByTimestamp(7)}
    }


def test_offsets_and_sizes_are_read() -> None:
    options = parsed(
        startingOffsets='{"flights": {"0": -2, "1": 9}}',
        splitBytes="8m",
        chunkBytes="1024",
        windowBytes="1 MB",
        kafka__isolation__level="read_committed",
    )
    assert options.starting == {"flights": {0: EARLIEST, 1: 9}}
    assert (options.split_bytes, options.chunk_bytes, options.window_bytes) == (
        8 << 20,
        1024,
        1 << 20,
    )
    assert options.read_committed


def test_a_job_of_the_official_source_keeps_its_options() -> None:
    """Fears a job that changes the name of its format, and is refused for an option that does no harm."""
    options = parsed(
        kafka__bootstrap__servers="b:9092", readFrom="tier",
        kafka__group__id="g", groupIdPrefix="p",
        kafka__security__protocol="SASL_SSL", kafka__sasl__jaas__config="secret",
        kafka__ssl__truststore__location="/x", kafka__max__poll__records="500",
        fetchOffset__numRetries="5", fetchOffset__retryIntervalMs="10",
        kafkaConsumer__pollTimeoutMs="120000", maxOffsetsPerTrigger="some", maxTriggerDelay="15m",
        kafka__schema__registry__url="http://x",
        startingOffsets='{"flights": {"0": 7.0}}', maxRecordsPerPartition="1000",
    )  # fmt: skip
    assert options.starting == {"flights": {0: 7}}
    assert options.max_records_per_partition == 1000
    assert options.notes == (
        "option kafka.schema.registry.url is no setting of a Kafka consumer; it has no effect",
        "maxOffsetsPerTrigger has no effect in a batch read",
        "maxTriggerDelay has no effect in a batch read",
        "kafka.bootstrap.servers is not used: readFrom=tier reads what the tier has",
    )
    assert "secret" not in str(options)


@pytest.mark.parametrize("given", ["{}", '{"flights": []}'])
def test_an_assignment_of_nothing_is_told(given: str) -> None:
    """The official source reads nothing either, in silence."""
    options = parse_options({"tier.uri": "/t", "assign": given})
    assert options.notes == ("assign names no partition, so nothing is read",)
    assert parse_options({"tier.uri": "/t", "assign": '{"flights": [0]}'}).notes == ()


def test_no_brokers_are_needed_where_none_is_asked() -> None:
    options = parse_options({**GOOD, "kafka.bootstrap.servers": "", "readFrom": "tier"})
    assert options.brokers is None


def test_a_path_is_told_where_the_tier_is_named() -> None:
    with pytest.raises(ConfigError, match=r"takes no path: the option tier\.uri"):
        parse_options({"path": "/data/tier", "subscribe": "flights"})


def test_check_crcs_of_the_consumer_is_our_verify_crc_unless_that_is_given() -> None:
    assert not parsed(kafka__check__crcs="false").verify_crc
    assert parsed(kafka__check__crcs="false", verifyCrc="true").verify_crc
    assert parsed(kafka__check__crcs="true").verify_crc


def test_settings_of_the_store_are_passed_on_without_their_prefix() -> None:
    options = parse_options(GOOD | {"tier.store.endpoint": "http://x", "TIER.STORE.region": "r"})
    assert options.store_settings == {"endpoint": "http://x", "region": "r"}
    with pytest.raises(ConfigError, match=r"unknown option tier\.store\."):
        parse_options(GOOD | {"tier.store.": "x"})


def test_a_system_table_is_not_taken_for_records() -> None:
    assert parse_options(GOOD | {"table": "Records"}) == parse_options(GOOD)
    with pytest.raises(ConfigError, match=r"only be read with spark\.read.*table=segments"):
        parse_options(GOOD | {"Table": "segments"})
