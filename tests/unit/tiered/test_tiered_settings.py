"""Settings of the tier: resolved once, wrong ones named. Spec 3.2, T17."""

from dataclasses import replace
from typing import Any

import pytest

from firnline.base.errors import ConfigError
from firnline.base.units import INT64_MAX
from firnline.config.broker import BrokerConfig
from firnline.tiered.hosted import ByteRate, Services
from firnline.tiered.settings import TierSettings, tier_settings
from tests.worlds.chance import SeededRng
from tests.worlds.tier import Cluster, Node


def config(**stated: str) -> BrokerConfig:
    prefix = "rlmm.config.remote.log.metadata."
    return BrokerConfig(stated={prefix + k.replace("_", "."): v for k, v in stated.items()})


def test_defaults_are_those_of_the_release() -> None:
    assert tier_settings(config()) == TierSettings(node_id=config().node_id)


def test_reading_ahead_has_its_memory_and_the_threads_of_readers() -> None:
    found = tier_settings(replace(config(), firnline_remote_read_ahead_max_bytes=7))
    assert (found.read_ahead_bytes, found.reader_threads) == (7, 10)
    assert tier_settings(replace(config(), remote_log_reader_threads=3)).reader_threads == 3


def test_keys_of_the_metadata_manager_are_taken_from_their_prefix() -> None:
    found = tier_settings(config(topic_num_partitions="5", topic_retention_ms="-1"))
    assert (found.metadata_partitions, found.metadata_retention_ms) == (5, -1)
    assert found.metadata_topic_configs() == {
        "cleanup.policy": "delete",
        "retention.bytes": "-1",
        "retention.ms": "-1",
        "remote.storage.enable": "false",
        "message.timestamp.after.max.ms": str(INT64_MAX),
    }


@pytest.mark.parametrize(
    ("stated", "why"),
    [
        ({"topic_num_partitions": "0"}, "above 0"),
        ({"topic_num_partitions": "five"}, "whole number"),
        ({"topic_retention_ms": "0"}, "above 0"),
        ({"topic_colour": "red"}, "no such key"),
    ],
)
def test_a_wrong_one_is_named(stated: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        tier_settings(config(**stated))


def test_keys_for_clients_that_we_do_not_have_are_accepted() -> None:
    tier_settings(config(common_client_bootstrap_servers="x:1", producer_acks="all"))


def services(**settings: Any) -> Services:
    made: Any = Services.__new__(Services)
    made.settings = TierSettings(**settings)
    made.rng = SeededRng(0)
    return made  # type: ignore[no-any-return]


def test_the_back_off_doubles_up_to_its_limit() -> None:
    made = services(retry_backoff_ms=500, retry_backoff_max_ms=4000, retry_jitter=0.0)
    assert [made.backoff_ms(n) for n in (1, 2, 3, 4, 5, 500)] == [500, 1000, 2000, 4000, 4000, 4000]


@pytest.mark.parametrize(("draw", "wait"), [(0, 400), (200, 600)])
def test_the_jitter_spreads_the_back_off_both_ways(draw: int, wait: int) -> None:
    made = services(retry_backoff_ms=500, retry_jitter=0.2)
    made.rng.below = lambda bound: draw if bound == 201 else -1  # type: ignore[method-assign]
    assert made.backoff_ms(1) == wait


def test_a_rate_counts_what_moved_within_its_windows() -> None:
    rate = ByteRate(100, windows=2, window_ms=1000)
    assert rate.throttle_ms(0) == 0
    rate.note(150, 0)
    assert rate.throttle_ms(500) == 0
    rate.note(60, 900)
    assert rate.throttle_ms(1900) == 100, "210 bytes are too many for two seconds by a tenth of one"
    assert rate.throttle_ms(2100) == 0


def test_copies_that_an_operator_slowed_down_too_far_go_on_once_the_quota_is_raised() -> None:
    node = Node(Cluster(), copy_bytes_per_second=1, copy_quota_windows=60).start().lead(0)
    node.produce(0, "a")
    node.produce(0, "b")
    node.pass_time(5_000)
    assert len(node.segments()) == 1
    raised = replace(node.tier.services.settings, copy_bytes_per_second=1 << 20)
    node.run(node.tier.apply_settings(raised, node.now_ms))
    node.pass_time(2_000)
    assert len(node.segments()) == 2
