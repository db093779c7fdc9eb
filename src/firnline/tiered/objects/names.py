"""The name register of a tier: a name is registered once, and marked when its topic is deleted. STORE.

Source: spec T62; docs/formats/catalog.md.
"""

import json

from firnline.base.ids import Uuid, uuid_text
from firnline.stores.port import ObjectStore
from firnline.tiered.objects.layout import (
    TopicName,
    catalog_folder,
    name_key,
    names_folder,
    parse_name,
    parts_folder,
    segment_folder,
    topic_catalog_folder,
    topic_parts_folder,
)
from firnline.tiered.spi import PartitionDelete


def register_name(store: ObjectStore, *, topic: str, topic_id: Uuid, now_ms: int) -> None:
    """Register the name of a topic id, if it is not registered yet."""
    if not any(name.topic_id == topic_id for name in _names(store, topic)):
        _put_name(store, TopicName(topic, now_ms, topic_id, is_deleted=False))


def mark_deleted(store: ObjectStore, *, topic: str, topic_id: Uuid, now_ms: int) -> None:
    """Mark the topic as deleted for readers, before its first object is deleted."""
    if not any(n.topic_id == topic_id and n.is_deleted for n in _names(store, topic)):
        _put_name(store, TopicName(topic, now_ms, topic_id, is_deleted=True))


def remove_catalog(store: ObjectStore, *, topic: str, topic_id: Uuid, partition: int) -> None:
    """Delete the partition's catalog; with the topic's last one, its entries of the name register, too.

    The heads first: without them no reader looks for the parts.
    """
    _empty(store, catalog_folder(topic_id, partition))
    _empty(store, parts_folder(topic_id, partition))
    if any(map(store.list_prefix, (topic_catalog_folder(topic_id), topic_parts_folder(topic_id)))):
        return
    for info in store.list_prefix(names_folder(topic)):
        name = parse_name(info.key)
        if name is not None and name.topic_id == topic_id:
            store.delete(info.key)


def sweep_partition(store: ObjectStore, delete: PartitionDelete) -> None:
    """Delete all objects in the partition's folders, as its topic id is never used again."""
    _empty(store, segment_folder(delete.topic_id, delete.partition))
    remove_catalog(store, topic=delete.topic, topic_id=delete.topic_id, partition=delete.partition)


def _empty(store: ObjectStore, folder: str) -> None:
    for page in store.pages(folder):
        store.delete_many([info.key for info in page])


def _names(store: ObjectStore, topic: str) -> list[TopicName]:
    listed = [info.key for info in store.list_prefix(names_folder(topic))]
    return [name for name in map(parse_name, listed) if name is not None]


def _put_name(store: ObjectStore, name: TopicName) -> None:
    body = {
        "firnline": "topic",
        "version": 1,
        "topic": name.topic,
        "topicId": uuid_text(name.topic_id),
        "registeredMs": name.registered_ms,
        "deleted": name.is_deleted,
    }
    data = json.dumps(body, separators=(",", ":")).encode() + b"\n"
    store.put(name_key(name), (data,), size_bytes=len(data))
