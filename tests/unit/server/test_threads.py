"""The settings of the tier's thread pools act, each on its pool."""

from firnline.server.main import threads_of
from tests.worlds.quorum import broker_config


def test_each_setting_gives_its_pool_threads() -> None:
    usual = threads_of(broker_config())
    assert (usual["copy"], usual["expire"], usual["read"], usual["index"]) == (10, 10, 10, 12)
    assert usual["ahead"] == 10
    changed = threads_of(
        broker_config(
            remote_log_manager_copier_thread_pool_size="1",
            remote_log_manager_expiration_thread_pool_size="2",
            remote_log_reader_threads="3",
            remote_log_manager_follower_thread_pool_size="4",
        )
    )
    assert {**usual, **changed} == {
        "disk": 8,
        "copy": 1,
        "expire": 2,
        "read": 3,
        "ahead": 3,
        "index": 7,
    }
