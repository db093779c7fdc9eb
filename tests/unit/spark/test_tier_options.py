"""`tier.uri` and `tier.store.*`: what is refused, and that no secret is an option or in an error."""

import logging
import pickle
import re
from pathlib import Path

import pytest

from firnline.base.errors import ConfigError
from firnline.spark.access import tier
from firnline.spark.access.tier import open_tier
from firnline.spark.options.parse import Options, parse_options
from firnline.spark.options.tier import parse_tier
from firnline.spark.tables.options import parse_table_options
from firnline.stores.cloud import CloudStore
from firnline.stores.port import RemoteStorageError

SECRET = "do-not-show-this"


@pytest.mark.parametrize("uri", ["tier", "./tier", "file:tier", "~/tier", "s3:/bucket/prefix"])
def test_a_uri_that_is_another_directory_for_each_process_is_refused(uri: str) -> None:
    said = r"tier.uri must be absolute.*give /"
    with pytest.raises(ConfigError, match=said):
        parse_options({"tier.uri": uri, "subscribe": "t"})
    with pytest.raises(ConfigError, match=said):
        parse_table_options({"table": "segments", "tier.uri": uri})


def test_the_remedy_is_the_directory_that_the_driver_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=re.escape(f"give {tmp_path}/tier")):
        parse_tier({"tier.uri": "tier"})


def test_directories_of_nodes_are_absolute_too() -> None:
    with pytest.raises(ConfigError, match=r"log.dirs must be absolute.*given=data"):
        parse_table_options({"table": "topics", "log.dirs": "/a, data"})


@pytest.mark.parametrize("uri", ["/tier", "file:///tier", "file:/tier", "s3://b/p", "hdfs://h:1/p"])
def test_absolute_uris_pass(uri: str) -> None:
    assert parse_tier({"tier.uri": uri}) == (uri, {})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("secret_access_key", SECRET),
        ("aws_secret_access_key", SECRET),
        ("aws.session.token", SECRET),
        ("account_key", SECRET),
        ("sas_token", SECRET),
        ("client-secret", SECRET),
        ("service_account_key", SECRET),
        ("proxy_url", f"http://me:{SECRET}@proxy:3128"),
        ("endpoint", f"https://a.blob.core.windows.net/?sig={SECRET}"),
    ],
)
def test_a_literal_secret_is_refused_without_its_value(key: str, value: str) -> None:
    given = {"tier.uri": "s3://b/p", f"tier.store.{key}": value, "subscribe": "t"}
    with pytest.raises(ConfigError) as problem:
        parse_options(given)
    assert f"tier.store.{key} is a secret" in str(problem.value)
    assert "${file:/path:key}" in str(problem.value)
    assert SECRET not in str(problem.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("access_key_id", "AKIA"),
        ("sse_kms_key_id", "arn"),
        ("sse_bucket_key_enabled", "true"),
        ("web_identity_token_file", "/run/token"),
        ("service_account", "/run/account.json"),
        ("endpoint", "http://127.0.0.1:9000"),
        ("region", "eu"),
    ],
)
def test_what_is_no_secret_is_given_as_it_is(key: str, value: str) -> None:
    given = {"tier.uri": "s3://b/p", f"tier.store.{key}": value}
    assert parse_tier(given)[1] == {key: value}


def test_settings_of_hadoop_have_names_of_their_own() -> None:
    given = {"tier.uri": "hdfs://h:1/p", "tier.store.hadoop.security.token.service.use_ip": "false"}
    assert parse_tier(given)[1] == {"hadoop.security.token.service.use_ip": "false"}


def test_an_unknown_provider_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"tier.store.region: no provider vault; write \$\{file"):
        parse_tier({"tier.uri": "s3://b/p", "tier.store.region": "${vault:a:b}"})


@pytest.fixture
def referring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    """Options whose secrets are in a file, in a file of their own, and in the environment."""
    (tmp_path / "s3.properties").write_text(f"key={SECRET}\n")
    (tmp_path / "id").write_text("me-and-nobody-else\n")
    monkeypatch.setenv("FIRNLINE_TEST_REGION", "us-east-1")
    return parse_options(
        {
            "tier.uri": "s3://bucket/prefix",
            "subscribe": "t",
            "tier.store.secret_access_key": f"${{file:{tmp_path}/s3.properties:key}}",
            "tier.store.access_key_id": f"${{directory:{tmp_path}:id}}",
            "tier.store.region": "${env:FIRNLINE_TEST_REGION}",
            "tier.store.endpoint": "http://127.0.0.1:9",
            "tier.store.max_retries": "0",
        }
    )


def test_options_hold_references_and_the_opened_store_the_secrets(
    referring: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SECRET.encode() not in pickle.dumps(referring)
    seen: dict[str, object] = {}

    def opened(uri: str, values: dict[str, str], **_: object) -> object:
        seen.update(values)
        return object()

    monkeypatch.setattr(tier, "open_store", opened)
    monkeypatch.setattr(tier, "_kept", {})
    open_tier(referring.tier_uri, referring.store_settings)
    assert seen["secret_access_key"] == SECRET
    assert seen["access_key_id"] == "me-and-nobody-else"
    assert seen["region"] == "us-east-1"


def test_no_error_of_the_store_has_what_a_reference_stands_for(
    referring: Options, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store = open_tier(referring.tier_uri, referring.store_settings)
    with pytest.raises(RemoteStorageError) as problem:
        store.get("a/b", 0, 10)
    assert isinstance(store, CloudStore)
    repeated = f"<Code>Refused</Code><Message>{SECRET} of me-and-nobody-else</Message>"
    said = str(problem.value) + caplog.text + str(store._problem(OSError(repeated), "read", "k"))
    assert "[hidden] of [hidden]" in said
    assert SECRET not in said
    # Its name says of no secret, but the user put it into a file.
    assert "me-and-nobody-else" not in said


def test_an_error_of_opening_has_no_value_and_the_names_of_options(
    referring: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRNLINE_TEST_REGION", "not-a-number")
    bad = {**referring.store_settings, "max_retries": "${env:FIRNLINE_TEST_REGION}"}
    with pytest.raises(ConfigError, match=r"tier.store.max_retries is a number") as problem:
        open_tier(referring.tier_uri, bad)
    assert "not-a-number" not in str(problem.value)


def test_what_this_machine_lacks_is_said_with_its_name(referring: Options) -> None:
    bad = {**referring.store_settings, "region": "${env:FIRNLINE_NO_SUCH_VARIABLE}"}
    with pytest.raises(ConfigError, match=r"tier.store.region: cannot resolve .*host="):
        open_tier(referring.tier_uri, bad)


def test_tasks_of_a_worker_share_a_client_until_a_secret_changes(
    referring: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_tier(referring.tier_uri, referring.store_settings)
    assert open_tier(referring.tier_uri, referring.store_settings) is first
    (tmp_path / "s3.properties").write_text("key=another-secret\n")
    second = open_tier(referring.tier_uri, referring.store_settings)
    assert second is not first
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:10")
    assert open_tier(referring.tier_uri, referring.store_settings) is not second
