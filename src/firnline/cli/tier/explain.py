"""`firnline tier explain`: where the bytes of an offset are in the tier, and what they are. WORLD."""

import sys
from pathlib import Path
from typing import Any

import click

from firnline.base.errors import ConfigError, some_of
from firnline.base.ids import uuid_text
from firnline.cli.show import SOMETHING_IS_WRONG, as_json, facts, format_option
from firnline.cli.terminal.names import did_you_mean
from firnline.cli.tier.store import named_store, store_options, tier_config
from firnline.stores.registry import open_store
from firnline.tiered.catalog.format import PartitionCatalog
from firnline.tiered.objects.catalog_reader import (
    list_partitions,
    list_topics,
    read_catalog,
    resolve_topic,
)
from firnline.tiered.objects.explain import Explained
from firnline.tiered.objects.explain import explain as explain_offset


@click.command()
@click.argument("where", metavar="TOPIC-PARTITION@OFFSET")
@click.option("--tier", "uri", metavar="URI", help="The tier: as a broker's --tier.")
@store_options
@format_option
def explain(
    where: str, uri: str | None, overrides: tuple[str, ...], file: Path | None, style: str
) -> None:
    """Show which object of the tier has an offset, in which bytes, and what became of its transaction.

    Reads the store alone, so no broker has to run. The exit code is 3 where the tier has no undamaged record
    at the offset.
    """
    topic, partition, offset = _parsed(where)
    uri, settings = named_store(
        uri, tier_config(overrides, file), usage=f"firnline tier explain {where} --tier URI"
    )
    store = open_store(uri, settings, is_writer=False)
    known = resolve_topic(store, topic)
    if known is None:
        hint = did_you_mean(topic, {each.topic for each in list_topics(store)})
        raise ConfigError(
            f"{uri} has no topic {topic}: it has those with remote.storage.enable=true, once something of"
            f" theirs was copied. {hint}"
        )
    catalog = read_catalog(store, known.topic_id, partition)
    if catalog is None:
        partitions = list_partitions(store, known.topic_id)
        there = some_of([str(number) for number in partitions]) or "none"
        raise ConfigError(f"{uri} has nothing of {topic}-{partition}; it has partitions {there}")
    found = explain_offset(store, catalog, offset)
    content = _content(catalog, found, offset)
    if style == "json":
        as_json(content)
    else:
        facts({name: value for name, value in content.items() if value is not None})
    if not found.is_record:
        sys.exit(SOMETHING_IS_WRONG)


def _parsed(where: str) -> tuple[str, int, int]:
    partition, at, offset = where.rpartition("@")
    topic, dash, number = partition.rpartition("-")
    if not (at and dash and topic and number.isdecimal() and offset.isdecimal()):
        raise click.BadParameter(f"{where!r} is not TOPIC-PARTITION@OFFSET", param_hint="WHERE")
    return topic, int(number), int(offset)


def _content(catalog: PartitionCatalog, found: Explained, offset: int) -> dict[str, Any]:
    segment, batch = found.segment, found.batch
    return {
        "topic": catalog.topic,
        "topic_id": uuid_text(catalog.topic_id),
        "partition": catalog.partition,
        "offset": offset,
        "what": found.what,
        "segment": segment and uuid_text(segment.segment_id),
        "segment_offsets": segment and f"{segment.base_offset} to {segment.end_offset}",
        "object": found.key,
        "bytes": batch and f"{batch.position} to {batch.position + batch.size_bytes - 1}",
        "batch_offsets": batch and f"{batch.base_offset} to {batch.last_offset}",
        "found_by": found.found_by,
        "leader_epoch": batch and batch.leader_epoch,
        "producer_id": batch.producer_id if batch and batch.producer_id >= 0 else None,
        "transaction": found.transaction,
    }
