"""What the client of a cloud store says about a failure becomes one error of ours, without secrets."""

import pytest

from firnline.base.errors import ConfigError
from firnline.cli.tier.check import _wrong
from firnline.stores.cloud import CloudStore
from firnline.stores.port import RemoteStorageError

SIGNATURE = "c2lnbmF0dXJlIG9mIHRoZSB0b2tlbg=="
NOWHERE = "http://127.0.0.1:1"  # a port at which nobody listens


@pytest.mark.parametrize(
    ("uri", "settings"),
    [
        (
            "s3://bucket/tier",
            {"endpoint": NOWHERE, "access_key_id": "me", "secret_access_key": SIGNATURE},
        ),
        (
            "az://container/tier",
            {
                "endpoint": NOWHERE,
                "account_name": "me",
                "sas_token": f"sv=2024-11-04&sp=rwdl&sig={SIGNATURE}",
            },
        ),
        ("az://container/tier", {"endpoint": NOWHERE, "account_name": "me", "key": SIGNATURE}),
    ],
)
def test_a_store_that_is_not_there_is_an_outage_without_secrets(
    uri: str, settings: dict[str, str]
) -> None:
    settings = settings | {"max_retries": "0"}
    if "key" in settings:
        settings["account_key"] = settings.pop("key")
    store = CloudStore(uri, settings)
    for call in (
        lambda: store.get("a"),
        lambda: store.stat("a"),
        lambda: store.put("a", (b"x",), size_bytes=1),
        lambda: store.delete("a"),
        lambda: store.list_prefix("a/"),
    ):
        with pytest.raises(RemoteStorageError) as caught:
            call()
        assert type(caught.value) is RemoteStorageError
        assert "error sending request" in str(caught.value)
        assert SIGNATURE.rstrip("=") not in str(caught.value)


def test_a_bad_setting_is_named_without_its_secret() -> None:
    with pytest.raises(ConfigError) as caught:
        CloudStore("az://c/tier", {"account_name": "me", "account_key": "not*base64*at*all"})
    assert "not*base64" not in str(caught.value)


def test_the_wrong_secret_of_the_check_is_base64_as_the_right_one() -> None:
    wrong = _wrong("az://c/tier", {"account_name": "me", "account_key": SIGNATURE})
    assert wrong is not None
    wrong()  # the client takes it
    assert SIGNATURE not in vars(wrong)["_settings"].values()
