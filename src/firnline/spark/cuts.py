"""Pins what a read will take, before it is read. SPARK.

cut = pin({"tier.uri": "/data/tier", "kafka.bootstrap.servers": "localhost:9092", "subscribe": "flights"})
spark.read.format("firnline").options(**options).option("asOf", cut).load()
"""

import logging
import secrets
from collections.abc import Collection, Mapping

from firnline.base.errors import ConfigError, FirnlineError
from firnline.config.topic import Lease
from firnline.spark.access.advice import advised
from firnline.spark.access.cut_files import cut_text, with_cut
from firnline.spark.access.tier import open_tier
from firnline.spark.brokers import leases
from firnline.spark.brokers.cluster import Brokers
from firnline.spark.brokers.leases import lease_end_ms
from firnline.spark.log_lines import warn
from firnline.spark.options.brokers import AUTO, BROKER, READ_FROM, BrokerSettings
from firnline.spark.options.kafka import BOOTSTRAP
from firnline.spark.options.parse import Options, parse_options
from firnline.spark.planning.cut import Cut, parse_cut
from firnline.spark.planning.live import live_topics
from firnline.spark.planning.scan import plan_read

_log = logging.getLogger(__name__)


def pin(options: Mapping[str, str], *, lease_s: float | None = None) -> str:
    """Return the cut that a read with these options would take now, as JSON in one line.

    lease_s  ask the brokers to remove none of its records for so long: not by retention, nor by compaction

    Raises the errors of `plan_read`; of a lease ConfigError if the brokers give none, NoAnswer if they do not
    confirm it.
    """
    parsed = parse_options(with_cut(options))
    if lease_s is None:
        return _plan(parsed).text()
    settings = _lenders(options)
    lease = Lease(f"cut-{secrets.token_hex(8)}", lease_end_ms(lease_s))
    leased: set[str] = set()
    with Brokers(settings) as brokers:
        try:
            return _plan_leased(brokers, parsed, lease, leased).text()
        except BaseException:
            _try_release(brokers, leased, lease)
            raise


def renew(options: Mapping[str, str], cut: str, *, lease_s: float) -> str:
    """Return the cut with a lease that ends so many seconds from now, in place of its own.

    cut  as JSON, or as the path of its file

    Raises ConfigError if the cut has no lease; else as `pin`.
    """
    parsed, lease = _leased(cut)
    longer = Lease(lease.name, lease_end_ms(lease_s))
    with Brokers(_lenders(options)) as brokers:
        there = brokers.topics(list(parsed.topics))
        leases.take(brokers, list(there.values()), longer)
        if longer != lease:
            leases.release(brokers, list(there), lease)
    return parsed._replace(lease=longer).text()


def release(options: Mapping[str, str], cut: str) -> None:
    """Give the lease of a cut back before its end. Raises ConfigError if the cut has none."""
    parsed, lease = _leased(cut)
    with Brokers(_lenders(options)) as brokers:
        leases.release(brokers, list(parsed.topics), lease)


def _plan(parsed: Options) -> Cut:
    if parsed.read_from == BROKER:
        return plan_read(None, parsed).cut
    with advised(parsed.tier_uri):
        store = open_tier(parsed.tier_uri, parsed.store_settings)
        try:
            return plan_read(store, parsed).cut
        finally:
            store.close()


def _plan_leased(brokers: Brokers, parsed: Options, lease: Lease, leased: set[str]) -> Cut:
    """Take the lease first, then the cut: until it has no topic that is new since then.

    leased  gets the names of the topics on which the lease is taken
    """
    while True:
        topics = [each for each in live_topics(brokers, parsed).values() if each.name not in leased]
        leased |= {each.name for each in topics}
        leases.take(brokers, topics, lease)
        cut = _plan(parsed)
        if set(cut.topics) <= leased:
            return cut._replace(lease=lease)


def _try_release(brokers: Brokers, names: Collection[str], lease: Lease) -> None:
    try:
        leases.release(brokers, names, lease)
    except FirnlineError as problem:
        warn(_log, "a lease stays until its end", lease=lease, problem=problem)


def _leased(cut: str) -> tuple[Cut, Lease]:
    parsed = parse_cut(cut_text(cut))
    if parsed.lease is None:
        raise ConfigError("the cut has no lease: pin(options, lease_s=...) asks for one")
    return parsed, parsed.lease


def _lenders(options: Mapping[str, str]) -> BrokerSettings:
    """Return how the brokers are reached, also if the records come from the tier alone."""
    others = {
        name: value
        for name, value in with_cut(options).items()
        if name.lower() != READ_FROM.lower()
    }
    settings = parse_options(others | {READ_FROM: AUTO}).brokers
    if settings is None:
        raise ConfigError(f"a lease is asked of the brokers: give {BOOTSTRAP}")
    return settings
