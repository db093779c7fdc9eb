"""An error of the tier says what a user of Spark can do about it."""

import pytest

from firnline.base.errors import StorageError
from firnline.spark.access.advice import advised
from firnline.spark.schema import CorruptSegment, DataLoss
from firnline.stores.port import ObjectMissing, RemoteStorageError, StoreRefused
from firnline.tiered.catalog.format import CatalogCorrupt


@pytest.mark.parametrize(
    ("uri", "problem", "helps"),
    [
        ("/data/tier", RemoteStorageError("no such directory"), "executors must all see"),
        ("file:///data/tier", RemoteStorageError("no such directory"), "executors must all see"),
        ("s3://b/tier", RemoteStorageError("no answer"), "tier.store.timeout"),
        ("hdfs://h:9/tier", RemoteStorageError("no answer"), "can be reached from the machine"),
        ("/data/tier", CorruptSegment("a batch has a wrong CRC"), "from a copy of the tier"),
        ("s3://b/tier", CatalogCorrupt("cut short"), "from a copy of the tier"),
    ],
)
def test_what_helps_is_added(uri: str, problem: StorageError, helps: str) -> None:
    with pytest.raises(type(problem), match=f"remedy=.*{helps}") as caught, advised(uri):
        raise problem
    assert caught.value is problem


@pytest.mark.parametrize(
    "problem",
    [
        RemoteStorageError("x", remedy="its own"),
        CorruptSegment("x", remedy="its own"),
        StoreRefused("the store has no such bucket"),
        ObjectMissing("x"),
        DataLoss("x"),
    ],
)
def test_an_error_that_says_it_itself_stays_as_it_is(problem: StorageError) -> None:
    before = str(problem)
    with pytest.raises(type(problem)), advised("s3://b/tier"):
        raise problem
    assert str(problem) == before
    assert "timeout" not in before


def test_hdfs_has_no_settings_of_cloud_stores() -> None:
    with pytest.raises(RemoteStorageError) as caught, advised("hdfs://h:9/tier"):
        raise RemoteStorageError("no answer")
    assert "tier.store" not in str(caught.value)
